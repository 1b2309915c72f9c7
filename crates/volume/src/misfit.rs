// SPDX-License-Identifier: MIT OR Apache-2.0
//! Why a flash that was formatted for one cache is not another's: what its label says, in the words of the
//! settings, beside what they say now.

use larder_core::format::label::{Label, SectionKind};
use larder_io::format_size;

/// The write policies under which a flash with this label was used.
pub(super) fn write_policy(label: &Label) -> &'static str {
    match (label.log().is_some(), label.keeps.dirty) {
        (true, true) => "full",
        (true, false) => "through or bounded",
        (false, true) => "no-write-back",
        (false, false) => "async, through or around",
    }
}

/// What of a cache its label says.
fn says(label: &Label) -> Vec<(&'static str, String)> {
    let log = label.log().map(|section| section.kind);
    let kind = if log.is_some() { "page logs" } else { "units" };
    let mut says = vec![
        ("a cache of", kind.to_owned()),
        ("--write-policy", write_policy(label).to_owned()),
        ("an origin of", format_size(label.origin_bytes)),
        ("--unit", format_size(label.unit_bytes)),
        ("--workers", label.shards.to_string()),
    ];
    if let Some(SectionKind::Log { batch_pages, .. }) = log {
        says.push(("--batch-pages", batch_pages.to_string()));
    }
    let factors = if label.keeps.factors { "periodic updates" } else { "none" };
    says.push(("reference factors for", factors.to_owned()));
    let last =
        label.sections.iter().map(|s| s.offset.saturating_add(s.bytes)).max().unwrap_or_default();
    says.push(("a flash size of", format_size(last)));
    says
}

/// Where they differ, in words.
pub(super) fn misfit(found: &Label, wanted: &Label) -> String {
    let (found, wanted) = (says(found), says(wanted));
    let other = |what| wanted.iter().find(|(name, _)| *name == what);
    let differ = found.iter().filter_map(|(what, was)| {
        let (_, is) = other(*what)?;
        (is != was).then(|| format!("{what} {was} (now {is})"))
    });
    // Of two kinds of cache that is enough.
    let differ: Vec<String> =
        if found[0] == wanted[0] { differ.collect() } else { differ.take(2).collect() };
    match differ.is_empty() {
        true => "it was formatted for the same cache with another layout".to_owned(),
        false => format!("it was formatted for {}", differ.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use larder_core::format::Keeps;
    use larder_core::format::label::Section;

    use super::*;

    #[test]
    fn what_differs_is_said_with_both_values() {
        let section = |kind, bytes| Section { kind, offset: 1 << 20, bytes };
        let units = Label {
            volume: 1,
            unit_bytes: 1 << 20,
            slots: 9,
            shards: 2,
            log_bytes: 4096,
            keeps: Keeps { dirty: false, factors: false },
            origin_bytes: 1 << 30,
            sections: vec![section(SectionKind::Slots, 3 << 20)],
        };
        let fewer = Label { shards: 1, ..units.clone() };
        assert_eq!(misfit(&units, &fewer), "it was formatted for --workers 2 (now 1)");
        let kind = SectionKind::Log { blocks: 64, segment: 16, batch_pages: 32 };
        let keeps = Keeps { dirty: true, factors: false };
        let log = Label { sections: vec![section(kind, 3 << 20)], keeps, ..fewer.clone() };
        let said = misfit(&units, &log);
        assert!(said.contains("a cache of units (now page logs)"), "{said}");
        assert!(!said.contains("workers"), "{said}");
        let kind = SectionKind::Log { blocks: 64, segment: 16, batch_pages: 64 };
        let larger = Label {
            sections: vec![section(kind, 4 << 20)],
            keeps: Keeps::default(),
            volume: 2,
            ..log.clone()
        };
        let said = misfit(&log, &larger);
        let all = [
            "--batch-pages 32 (now 64)",
            "full (now through or bounded)",
            "a flash size of 4MiB (now 5MiB)",
        ];
        assert!(all.iter().all(|what| said.contains(what)), "{said}");
    }
}
