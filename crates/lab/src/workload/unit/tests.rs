//! The tests of the tests: sizes, bytes moved, turns, limits.

use std::cell::RefCell;
use std::path::Path;
use std::time::Duration;

use anyhow::{Result, bail};

use super::*;
use crate::target::{HostDirectory, Target};

fn tiny() -> Settings {
    Settings { divisor: 256, smallest_bytes: 16 * KIB, half_of_memory_bytes: 1024 * MIB, repetitions: 2, ..Settings::full() }
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
    let settings = tiny();
    let target = Counting::new(false);
    let results = run(&[&target], &settings, &mut |_| ()).unwrap();
    assert_eq!(results.rows.iter().map(|row| row.test.id).collect::<Vec<_>>(), (1..=14).collect::<Vec<u8>>());
    for row in &results.rows {
        let series = &row.series[0];
        assert_eq!((series.failure.as_deref(), series.measurements.len()), (None, 2), "test {}", row.test.id);
        let times = match row.test.id {
            8 => 3,
            11 | 13 | 14 => 4,
            _ => 1,
        };
        let expected = settings.bytes(row.test.moved) * times;
        for measurement in &series.measurements {
            assert_eq!((measurement.bytes, measurement.complete), (expected, true), "test {}", row.test.id);
        }
        assert!(series.median().unwrap() >= series.minimum().unwrap());
    }
    // 5, 6, 11, 13, each twice.
    assert_eq!(*target.dropped.borrow(), 8);
    assert_eq!(std::fs::read_dir(target.directory()).unwrap().count(), 0);
}

#[test]
fn published_sizes_are_the_published_sizes() {
    let settings = Settings::full();
    let sizes = |id: usize| (settings.bytes(TESTS[id - 1].file) / MIB, settings.bytes(TESTS[id - 1].moved) / MIB);
    assert_eq!([1, 2, 3, 4, 6, 7].map(sizes), [(128, 128), (5, 5), (50, 50), (1024, 1024), (10, 10), (1000, 1000)]);
    assert_eq!([9, 10, 11, 12, 13, 14].map(sizes), [(1024, 128), (100, 1), (100, 1), (1024, 128), (1024, 5), (1024, 5)]);
    assert_eq!(Settings { divisor: 8, ..settings }.bytes(Size::Bytes(5 * MIB)), MIB);
}

#[test]
fn a_failing_target_does_not_stop_the_others() {
    let (good, bad) = (Counting::new(false), Counting::new(true));
    let settings = Settings { only: vec![6], ..tiny() };
    let results = run(&[&bad, &good], &settings, &mut |_| ()).unwrap();
    assert_eq!(results.rows[0].series[0].failure.as_deref(), Some("cannot empty the caches: stuck"));
    assert_eq!((*bad.dropped.borrow(), results.rows[0].series[0].median()), (1, None));
    assert_eq!(results.rows[0].series[1].measurements.len(), 2);
}

#[test]
fn the_time_limit_is_told() {
    let target = Counting::new(false);
    let settings = Settings { only: vec![10], time_limit: Duration::ZERO, ..tiny() };
    let results = run(&[&target], &settings, &mut |_| ()).unwrap();
    assert!(results.rows[0].series[0].cut_short());
}

#[test]
fn medians() {
    let series = |seconds: &[f64]| {
        let measure = |seconds: &f64| Measurement { id: 1, bytes: MIB, seconds: *seconds, complete: true };
        Series { measurements: seconds.iter().map(measure).collect(), failure: None }
    };
    assert_eq!(series(&[]).median(), None);
    assert_eq!(series(&[0.5, 0.25]).median(), Some(3.0));
    assert_eq!(series(&[1.0, 0.125, 0.25]).median(), Some(4.0));
    assert_eq!((series(&[1.0, 0.5]).minimum(), series(&[1.0, 0.5]).maximum()), (Some(1.0), Some(2.0)));
}
