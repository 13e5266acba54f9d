//! The published program's own reports, operation for operation.

use super::super::{Round, Workload};
use super::*;
use crate::target::{HostDirectory, Target};

/// What Debian's `postmark` 1.53 reported for the same parameters.
struct Report {
    created: u64,
    read: u64,
    appended: u64,
    deleted_alone: u64,
    megabytes_read: &'static str,
    megabytes_written: &'static str,
}

fn compare(seed: u64, subdirectories: u64, report: &Report) {
    let host = HostDirectory::new("host", &std::env::temp_dir()).unwrap();
    let mut postmark = Postmark::new();
    for (name, value) in [("files", 100), ("transactions", 1000), ("subdirectories", subdirectories)] {
        postmark.parameters_mut().set(name, value).unwrap();
    }
    let outcome = postmark.run(&Round::new(&host, host.directory(), 0, seed)).unwrap();
    let counts = outcome.counts;
    assert_eq!((counts.created, counts.read, counts.appended), (report.created, report.read, report.appended));
    assert_eq!(counts.deleted, report.created);
    let times = &outcome.latencies;
    assert_eq!(
        (times.creation.count(), times.read.count(), times.append.count()),
        (report.created, report.read, report.appended)
    );
    assert_eq!((times.deletion.count(), outcome.transactions.count()), (report.created, 1000));
    assert_eq!(counts.deleted - outcome.after_transactions.deleted, report.deleted_alone);
    let megabytes = |bytes: u64| format!("{:.2}", bytes as f64 / f64::from(1 << 20));
    assert_eq!(megabytes(counts.bytes_read), report.megabytes_read);
    assert_eq!(megabytes(counts.bytes_written), report.megabytes_written);
    assert_eq!(std::fs::read_dir(host.directory()).unwrap().count(), 0);
}

#[test]
fn the_same_operations_as_the_original_without_subdirectories() {
    let report =
        Report { created: 593, read: 500, appended: 500, deleted_alone: 86, megabytes_read: "3.23", megabytes_written: "3.76" };
    compare(42, 0, &report);
}

#[test]
fn the_same_operations_as_the_original_with_subdirectories_and_another_seed() {
    let report =
        Report { created: 623, read: 499, appended: 500, deleted_alone: 146, megabytes_read: "3.20", megabytes_written: "3.97" };
    compare(7, 10, &report);
}

#[test]
fn running_out_of_files_is_said() {
    let host = HostDirectory::new("host", &std::env::temp_dir()).unwrap();
    let mut postmark = Postmark::new();
    for (name, value) in [("files", 5), ("transactions", 1000), ("bias-create", 0)] {
        postmark.parameters_mut().set(name, value).unwrap();
    }
    let error = postmark.measure(&Round::new(&host, host.directory(), 0, 42)).unwrap_err();
    assert!(error.to_string().starts_with("out of files"), "{error}");
}

#[test]
fn each_published_figure_is_one_that_is_measured() {
    let host = HostDirectory::new("host", &std::env::temp_dir()).unwrap();
    let mut postmark = Postmark::new();
    postmark.parameters_mut().shrink(500);
    let figures = postmark.measure(&Round::new(&host, host.directory(), 0, 42)).unwrap();
    for published in postmark.published() {
        assert!(figures.iter().any(|figure| figure.name == published.figure), "{}", published.figure);
    }
}
