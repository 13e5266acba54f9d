//! What `zpool iostat` knows of single requests: times (`-l`, `-w`), those under way (`-q`), sizes (`-r`).
//!
//! # Theory
//!
//! OpenZFS has a queue before each device, with a class for each purpose. Here the thread that needs a block asks the device
//! itself (see `engine::vdev::traffic`): the time at the disk is the whole time, and nothing ever pends. A read counts as *sync*,
//! read-ahead and checks too, since a reader may wait for it; a write of the intent log is a *sync* write, and what a transaction
//! group writes is *async*. There is no trim and no rebuild. So the columns of queues, scrub, trim and rebuild are there, as
//! programs expect them, and say `-`, or 0.

use std::ops::Range;

use tarnfs::control::{Requests, VdevStats};

use crate::text::units::{nice_number, nice_time};

/// A title and the columns below it.
pub(super) type Title = (&'static str, &'static [&'static str]);

const READ_WRITE: &[&str] = &["read", "write"];
const PENDING: &[&str] = &["pend", "activ"];
const SINGLE_JOINED: &[&str] = &["ind", "agg"];

/// The columns of `-l`.
pub(super) const LATENCY_TITLES: [Title; 7] = [
    ("total_wait", READ_WRITE),
    ("disk_wait", READ_WRITE),
    ("syncq_wait", READ_WRITE),
    ("asyncq_wait", READ_WRITE),
    ("scrub", &["wait"]),
    ("trim", &["wait"]),
    ("rebuild", &["wait"]),
];

/// The columns of `-q`.
pub(super) const QUEUE_TITLES: [Title; 7] = [
    ("syncq_read", PENDING),
    ("syncq_write", PENDING),
    ("asyncq_read", PENDING),
    ("asyncq_write", PENDING),
    ("scrubq_read", PENDING),
    ("trimq_write", PENDING),
    ("rebuildq_write", PENDING),
];

/// The columns of `-w`. The last three have no title above them.
const WAIT_TITLES: [Title; 7] = [
    ("total_wait", READ_WRITE),
    ("disk_wait", READ_WRITE),
    ("syncq_wait", READ_WRITE),
    ("asyncq_wait", READ_WRITE),
    ("", &["scrub"]),
    ("", &["trim"]),
    ("", &["rebuild"]),
];

/// The columns of `-r`.
const SIZE_TITLES: [Title; 7] = [
    ("sync_read", SINGLE_JOINED),
    ("sync_write", SINGLE_JOINED),
    ("async_read", SINGLE_JOINED),
    ("async_write", SINGLE_JOINED),
    ("scrub", SINGLE_JOINED),
    ("trim", SINGLE_JOINED),
    ("rebuild", SINGLE_JOINED),
];

/// Buckets of times, up to 137 seconds.
const WAIT_BUCKETS: usize = 37;
/// Buckets of sizes: from 512 bytes to 16 MiB.
const SIZE_BUCKETS: Range<usize> = 9..25;

/// How many requests were added in each bucket.
fn added(now: &[u64], before: &[u64], buckets: usize) -> Vec<u64> {
    let at = |counts: &[u64], bucket: usize| counts.get(bucket).copied().unwrap_or(0);
    (0..buckets).map(|bucket| at(now, bucket).saturating_sub(at(before, bucket))).collect()
}

/// The times of reads and of all writes, added since `before`.
fn waits(stats: &VdevStats, before: &VdevStats) -> [Vec<u64>; 2] {
    let writes = |stats: &VdevStats| {
        let mut sum = stats.write_requests.clone();
        sum.add(&stats.log_requests);
        sum.wait
    };
    [
        added(&stats.read_requests.wait, &before.read_requests.wait, WAIT_BUCKETS),
        added(&writes(stats), &writes(before), WAIT_BUCKETS),
    ]
}

/// The mean, where all requests of a bucket took as long as its middle.
fn mean(buckets: &[u64]) -> u64 {
    let count: u128 = buckets.iter().map(|count| u128::from(*count)).sum();
    let total: u128 = buckets.iter().enumerate().map(|(bucket, count)| u128::from(*count) * (3 << bucket) / 2).sum();
    total.checked_div(count).map_or(0, |mean| mean as u64)
}

/// The mean times, in the order of the columns.
pub(super) fn latencies(stats: &VdevStats, before: &VdevStats) -> [u64; 11] {
    let [read, write] = waits(stats, before).map(|buckets| mean(&buckets));
    [read, write, read, write, 0, 0, 0, 0, 0, 0, 0]
}

/// The requests that wait and that are under way, in the order of the columns.
pub(super) fn queues(stats: &VdevStats) -> [u64; 14] {
    let mut cells = [0; 14];
    cells[1] = stats.read_requests.active;
    cells[3] = stats.log_requests.active;
    cells[7] = stats.write_requests.active;
    cells[11] = stats.trim_requests.active;
    cells
}

/// Which table has a line for each bucket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Histogram {
    /// `-w`: by time.
    Wait,
    /// `-r`: by size.
    Size,
}

impl Histogram {
    /// Of the column of buckets.
    pub(in crate::zpool) fn title(self) -> &'static str {
        match self {
            Histogram::Wait => "latency",
            Histogram::Size => "req_size",
        }
    }

    pub(super) fn titles(self) -> &'static [Title] {
        match self {
            Histogram::Wait => &WAIT_TITLES,
            Histogram::Size => &SIZE_TITLES,
        }
    }

    /// The buckets that are shown.
    pub(super) fn buckets(self) -> Range<usize> {
        match self {
            Histogram::Wait => 0..WAIT_BUCKETS,
            Histogram::Size => SIZE_BUCKETS,
        }
    }

    /// A time's bucket is named after its end, a size's after its beginning.
    pub(super) fn bound(self, bucket: usize) -> u64 {
        match self {
            Histogram::Wait => (2 << bucket) - 1,
            Histogram::Size => 1 << bucket,
        }
    }

    pub(in crate::zpool) fn label(self, bucket: usize) -> String {
        match self {
            Histogram::Wait => nice_time(self.bound(bucket)),
            Histogram::Size => nice_number(self.bound(bucket)),
        }
    }

    /// The counts by column and bucket, times `scale`.
    pub(in crate::zpool) fn columns(self, stats: &VdevStats, before: &VdevStats, scale: f64) -> Vec<Vec<u64>> {
        let scaled = |counts: Vec<u64>| counts.into_iter().map(|count| (count as f64 * scale) as u64).collect::<Vec<u64>>();
        match self {
            Histogram::Wait => {
                let [read, write] = waits(stats, before).map(scaled);
                let none = vec![0; WAIT_BUCKETS];
                let mut columns = vec![read.clone(), write.clone(), read, write];
                columns.resize(11, none);
                columns
            }
            Histogram::Size => {
                let sizes = |of: &Requests, before: &Requests| {
                    [(&of.single, &before.single), (&of.joined, &before.joined)]
                        .map(|(now, before)| scaled(added(now, before, SIZE_BUCKETS.end)))
                };
                let none = || [(); 2].map(|()| vec![0; SIZE_BUCKETS.end]);
                let kinds = [
                    sizes(&stats.read_requests, &before.read_requests),
                    sizes(&stats.log_requests, &before.log_requests),
                    none(),
                    sizes(&stats.write_requests, &before.write_requests),
                    none(),
                    sizes(&stats.trim_requests, &before.trim_requests),
                    none(),
                ];
                kinds.into_iter().flatten().collect()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mean_is_that_of_the_middles() {
        assert_eq!(mean(&[]), 0);
        assert_eq!(mean(&[0, 0, 0, 4]), 12);
        assert_eq!(mean(&[0, 0, 0, 1, 1]), (12 + 24) / 2);
        assert_eq!(mean(&[u64::MAX; WAIT_BUCKETS]), (3u128 * ((1 << WAIT_BUCKETS) - 1) / 2 / WAIT_BUCKETS as u128) as u64);
    }

    #[test]
    fn buckets_are_named_as_openzfs_names_them() {
        let labels = |histogram: Histogram| histogram.buckets().map(|bucket| histogram.label(bucket)).collect::<Vec<_>>();
        let wait = labels(Histogram::Wait);
        assert_eq!((wait[0].as_str(), wait[9].as_str(), wait[16].as_str(), wait[36].as_str()), ("1ns", "1us", "131us", "137s"));
        let size = labels(Histogram::Size);
        assert_eq!((size[0].as_str(), size[1].as_str(), size[15].as_str(), size.len()), ("512", "1K", "16M", 16));
    }
}
