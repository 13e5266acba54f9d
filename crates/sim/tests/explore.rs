//! The crash explorer, as much of it as is fast. The long run is `cargo xtask explore`.

use sim::explore::{Explorer, Kind, Plan};

fn plan(kind: Kind, states: u64) -> Plan {
    Plan { seed: 1, states, of_each: 40, write_every: 6, zdb_every: 0, threads: 2, canary: None, kind }
}

#[test]
fn random_workloads() {
    let report = Explorer::default().explore(&plan(Kind::Random, 200));
    println!("{report}");
    for failure in &report.failures {
        println!("{failure}");
    }
    assert!(report.failures.is_empty());
}
