use larder_sim::torture::*;
use std::sync::atomic::AtomicBool;
fn main() {
    let a: Vec<String> = std::env::args().collect();
    let profile = profile::profile(&a[3]);
    let task = runner::Task {
        first_seed: a[1].parse().unwrap(),
        runs: a[2].parse().unwrap(),
        span: None,
        profile,
        jobs: a.get(4).map_or(1, |j| j.parse().unwrap()),
        mutant: None,
    };
    let o = runner::torture(&task, &AtomicBool::new(false), |_| {});
    println!("{:?} per hour {:.0}", o, o.seeds as f64 / o.seconds * 3600.0);
    for (s, v) in &o.violations {
        println!("{s}: {v}\n{}", plan::Plan::of(*s, profile).headline());
    }
}
