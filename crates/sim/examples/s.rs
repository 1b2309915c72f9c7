use larder_sim::torture::*;
fn main() {
    for slots in [1, 2] {
        let t = std::time::Instant::now();
        println!("{:?} {:?}", small::exhaust(&small::setup(slots)), t.elapsed());
    }
    #[cfg(feature = "mutants")]
    {
        let only: Vec<String> = std::env::args().skip(1).collect();
        for m in larder_core::mutant::MUTANTS
            .iter()
            .filter(|m| only.is_empty() || only.iter().any(|o| o == m.name))
        {
            let task = runner::Task {
                first_seed: 0,
                runs: 4000,
                span: None,
                profile: None,
                jobs: 2,
                mutant: Some(m.name),
            };
            let o = runner::torture(&task, &std::sync::atomic::AtomicBool::new(false), |_| {});
            match o.violations.first() {
                Some((s, v)) => {
                    println!("{} caught at {s} in {:.1} s: {v}", m.name, o.seconds);
                    runner::activate(Some(m.name));
                    let t = std::time::Instant::now();
                    let sh = shrink::shrink(&plan::Plan::of(*s, None)).unwrap();
                    println!("   shrunk to {} in {:?}", sh.lines.len(), t.elapsed());
                    if !only.is_empty() {
                        println!("{}", sh.plan.headline());
                        for l in &sh.lines {
                            println!("{l}");
                        }
                        println!("{}", sh.violation);
                    }
                    runner::activate(None);
                }
                None => println!("{} SURVIVES {} in {:.1} s", m.name, o.seeds, o.seconds),
            }
        }
    }
}
