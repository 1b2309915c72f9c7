// SPDX-License-Identifier: MIT OR Apache-2.0
//! Decisions about a flash that several volumes share.

use std::slice::from_ref;

use larder_core::config::WritePolicy;
use larder_core::format::{Kept, OriginPlace, OriginRecord, StateRecord, Wishes, superseded};

use super::ADOPTED;
use super::case::{Case, place};

/// A volume that starts by itself takes nothing from the others of a flash that it shared.
#[test]
fn of_a_shared_flash_only_the_same_origin_is_superseded() {
    let origins = ["/san", "/lun"].map(|at| {
        let place = OriginPlace { name: at.into(), ..place(at) };
        OriginRecord::new(&place, 4096)
    });
    let kept = Kept::Units(Vec::new());
    let shared = StateRecord::attached(7, &kept, WritePolicy::WriteAround, origins.into());
    let by = |record: &StateRecord, own: bool, origins: &[&str]| {
        let origins: Vec<_> = origins.iter().map(|at| place(at)).collect();
        superseded(vec![((), record.clone())], |()| own, |(), _| false, &origins, None)
    };
    let in_use = |found: Vec<((), StateRecord)>| {
        found.iter().map(|(_, r)| (r.in_use, r.origins[0].in_use, r.origins[1].in_use)).collect()
    };
    let after = |own, origins: &[&str]| -> Vec<_> {
        in_use(by(&shared, own, origins).expect("it is clean"))
    };
    assert_eq!(after(false, &["/lun"]), [(true, true, false)]);
    assert_eq!(after(false, &["/lun", "/san"]), [(false, true, true)]);
    assert_eq!(after(true, &["/lun"]), [(false, true, true)], "the cache starts without flash");
    assert_eq!(after(false, &["/other"]), []);
    // After a restart of the machine its device has another number, and the same link.
    let link = || Some("/dev/mapper/lun".into());
    let mut linked = shared.clone();
    linked.origins[1].origin_link = link();
    let renumbered = [OriginPlace { link: link(), ..place("/dev/dm-5") }];
    let found = superseded(vec![((), linked)], |()| false, |(), _| false, &renumbered, None);
    assert_eq!(in_use(found.expect("it is clean"))[..], [(true, true, false)]);
    let without = by(&shared, false, &["/lun"]).expect("it is clean").remove(0).1;
    assert!(by(&without, false, &["/lun"]).expect("it is clean").is_empty());
    assert_eq!(in_use(by(&without, false, &["/san"]).expect("clean"))[..], [(false, true, false)]);
    assert!(without.using(1, true).origins[1].in_use);
    // The volume moved its origin, and starts alone: the name is that of one in the record.
    let moved = OriginPlace { name: "/lun".into(), ..place("/moved") };
    let by_name = |record: &StateRecord| {
        superseded(vec![((), record.clone())], |()| false, |(), _| false, from_ref(&moved), None)
    };
    assert_eq!(in_use(by_name(&shared).expect("it is clean"))[..], [(true, true, false)]);
    // The record of a volume by itself has no name; its file has.
    let lone = vec![OriginRecord::new(&place("/lun"), 4096)];
    let lone = StateRecord::attached(8, &kept, WritePolicy::WriteAround, lone);
    let by_file = |named: bool| {
        let named = |(): &(), name: &str| named && name == "/lun";
        superseded(vec![((), lone.clone())], |()| false, named, from_ref(&moved), None)
            .expect("it is clean")
            .len()
    };
    assert_eq!((by_file(true), by_file(false)), (1, 0));
    // After a clean stop only the first is dirty.
    let stopped = shared.clone().stopped(vec![(1, 1)], [0].into_iter().collect(), &[None, None]);
    assert!(stopped.dirty && by_name(&stopped).is_ok() && by(&stopped, false, &["/san"]).is_err());
    assert!(by(&stopped, true, &["/lun"]).is_err(), "the cache starts without its flash");
    let dirty = StateRecord { dirty: true, ..shared.clone() };
    assert!(by_name(&dirty).is_err() && by_name(&dirty.clone().using(1, false)).is_ok());
    assert!(by(&dirty, false, &["/lun"]).is_err() && by(&dirty, false, &["/other"]).is_ok());
}

#[test]
fn decisions_about_several_volumes() {
    let volumes = |kind: &str, change: fn(&mut Case)| {
        let mut case = Case::three(kind);
        change(&mut case);
        case.decide()
    };
    assert_eq!(volumes("sce", |_| ()), "warm");
    let changed: fn(&mut Case) = |c| c.others[1].0.modified_ns = Some(78);
    let cold = "the origin was written to while it was not served";
    assert_eq!(volumes("sce", changed), format!("warm; of 2: {cold}"));
    let refused = volumes("prwc", |c| {
        c.record(|r| r.dirty = true);
        c.others[1].0.modified_ns = Some(78);
    });
    assert!(refused.starts_with("refused") && refused.contains(cold), "{refused}");
    // The others have dirty data, and that one has none.
    for wishes in [Wishes::default(), ADOPTED] {
        let mut case = Case::three("prwc");
        case.record(|r| (r.dirty, r.origins[2].clean) = (true, true));
        (case.wishes, case.others[1].0.modified_ns) = (wishes, Some(78));
        assert_eq!(case.decide(), format!("warm; of 2: {cold}"));
    }
    let out = volumes("sce", |c| c.record(|r| r.origins[0].in_use = false));
    assert!(out.starts_with("warm; of 0: it was detached"), "{out}");
    let all = volumes("sce", |c| {
        c.record(|r| r.origins.iter_mut().for_each(|of| of.in_use = false));
    });
    assert!(all.starts_with("cold: it was detached"), "{all}");
    let fewer = volumes("sce", |c| drop(c.others.pop()));
    assert_eq!(fewer, "cold: the state file records it for the origins /san, /lun/1, /lun/2");
    // Two origins were exchanged: the user's word does not make the one's dirty data that of the other.
    let exchanged = volumes("prwc", |c| {
        c.record(|r| r.dirty = true);
        c.wishes = ADOPTED;
        c.others.reverse();
    });
    assert!(exchanged.contains("records the origin as that of the volume 'third'"), "{exchanged}");
    let moved = volumes("prwc", |c| {
        c.record(|r| r.dirty = true);
        c.wishes = ADOPTED;
        c.others[1].1 = place("/moved");
    });
    assert_eq!(moved, "warm, the user vouches for its place");
    // A crash came before everything of the first had left: nothing of it is dirty.
    let crashed: fn(&mut Case) = |c| c.record(|r| (r.dirty, r.origins[0].in_use) = (true, false));
    let renewed = volumes("prwc", crashed);
    assert!(renewed.starts_with("warm; of 0: it was detached"), "{renewed}");
    let other_order = volumes("sce", |c| c.others.reverse());
    assert!(other_order.starts_with("warm; of 1: the state file records it for"), "{other_order}");
}
