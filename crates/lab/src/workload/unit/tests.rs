//! The tests of the tests: sizes, bytes moved, caches, limits.

use std::cell::RefCell;
use std::path::Path;

use anyhow::{Result, bail};

use super::*;
use crate::target::{HostDirectory, Target};
use crate::workload::rounds::{self, Plan};

fn tiny() -> Vec<Unit> {
    let units = TESTS.iter().map(|test| Unit::new(test, 1024 * MIB));
    let smaller = units.map(|mut unit| {
        for name in ["file", "bytes"] {
            let published = unit.parameters.iter().find(|parameter| parameter.name == name).map(|parameter| parameter.value);
            if let Some(published) = published {
                unit.parameters.set(name, (published / 256).max(MIB)).unwrap();
            }
        }
        unit
    });
    smaller.collect()
}

fn plan(rounds: u32) -> Plan {
    Plan { rounds, ..Plan::default() }
}

/// A directory that counts how often its caches are emptied, and can fail at it.
struct Counting {
    host: HostDirectory,
    dropped: RefCell<u32>,
    broken: bool,
}

impl Counting {
    fn new(broken: bool) -> Counting {
        let host = HostDirectory::new("counting", &std::env::temp_dir()).unwrap();
        Counting { host, dropped: RefCell::new(0), broken }
    }
}

impl Target for Counting {
    fn name(&self) -> &str {
        self.host.name()
    }

    fn directory(&self) -> &Path {
        self.host.directory()
    }

    fn drop_caches(&self) -> Result<()> {
        *self.dropped.borrow_mut() += 1;
        if self.broken { bail!("stuck") } else { Ok(()) }
    }

    fn description(&self) -> String {
        self.host.description()
    }
}

#[test]
fn all_fourteen_move_what_they_were_published_to_move() {
    let target = Counting::new(false);
    for unit in tiny() {
        let directory = target.directory().join(unit.name());
        std::fs::create_dir(&directory).unwrap();
        let round = Round::new(&target, &directory, 0, 1);
        unit.prepare(&round).unwrap();
        let (bytes, _, latencies) = unit.run(&round).unwrap();
        let times = match unit.test.id {
            8 => 3,
            11 | 13 | 14 => 4,
            _ => 1,
        };
        assert_eq!(bytes, unit.parameters.get("bytes") * times, "{}", unit.name());
        // Each call has been timed; small ones are of 1 to 8 K.
        let calls = latencies.count();
        match unit.test.id {
            3 | 7 => assert!((4000..5300).contains(&(bytes / calls)), "{}: {calls} calls", unit.name()),
            1 | 8 => assert_eq!(calls, bytes / MIB, "{}", unit.name()),
            2 => assert_eq!(calls, bytes / (128 * KIB), "{}", unit.name()),
            4..=6 => assert_eq!(calls, bytes / (32 * KIB), "{}", unit.name()),
            9 => assert_eq!(calls, bytes / (8 * KIB) + 1, "the sync is a call"),
            12 => assert_eq!(calls, bytes / (8 * KIB), "{}", unit.name()),
            _ => assert_eq!(calls, bytes / (2 * KIB), "{}", unit.name()),
        }
        assert_eq!(std::fs::metadata(directory.join("file")).unwrap().len(), unit.file_bytes(), "{}", unit.name());
    }
    // 5, 6, 11, 13.
    assert_eq!(*target.dropped.borrow(), 4);
}

#[test]
fn published_sizes_are_the_published_sizes() {
    let sizes: Vec<(u64, u64)> = all().iter().map(|unit| (unit.file_bytes() / MIB, unit.moved_bytes() / MIB)).collect();
    assert_eq!(sizes[..7], [(128, 128), (5, 5), (50, 50), (1024, 1024), (1024, 1024), (10, 10), (1000, 1000)]);
    assert_eq!(sizes[8..], [(1024, 128), (100, 1), (100, 1), (1024, 128), (1024, 5), (1024, 5)]);
    let mut third = Unit::new(&TESTS[2], 0);
    third.parameters_mut().shrink(1000);
    assert_eq!(third.moved_bytes(), MIB);
}

#[test]
fn a_failing_target_does_not_stop_the_others() {
    let (good, bad) = (Counting::new(false), Counting::new(true));
    let outcome = rounds::run(&tiny()[5], &[&bad, &good], plan(2), &()).unwrap();
    assert_eq!(outcome.columns[0].failure.as_deref(), Some("cannot empty the caches: stuck"));
    assert_eq!((*bad.dropped.borrow(), outcome.columns[0].samples.len()), (1, 0));
    assert_eq!(outcome.columns[1].samples[0].values.len(), 2);
    assert_eq!(std::fs::read_dir(good.directory()).unwrap().count(), 0);
}

#[test]
fn the_time_limit_is_told() {
    let target = Counting::new(false);
    let mut unit = tiny().remove(9);
    unit.parameters_mut().set("limit", 0).unwrap();
    let outcome = rounds::run(&unit, &[&target], plan(1), &()).unwrap();
    assert!(outcome.columns[0].remarks[0].starts_with("cut short after 0 s"), "{:?}", outcome.columns[0].remarks);
}

/// Through the library, without a mount: the same bytes, the same files.
#[test]
fn all_fourteen_run_on_the_library() {
    let scratch = tempfile::tempdir().unwrap();
    let setup = crate::comparator::Setup::new(scratch.path().to_owned(), 1 << 30, "tarn".into());
    let crate::comparator::Attempt::Ready(target) = crate::comparator::prepare("tarn-embedded", &setup).unwrap() else {
        panic!("left out")
    };
    for unit in tiny() {
        let outcome = rounds::run(&unit, &[target.as_ref()], plan(1), &()).unwrap();
        let column = &outcome.columns[0];
        assert_eq!((column.failure.as_deref(), column.remarks.len(), column.samples.len()), (None, 0, 5), "{}", unit.name());
    }
    drop(target);
    assert_eq!(std::fs::read_dir(scratch.path()).unwrap().count(), 0);
}
