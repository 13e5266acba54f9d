//! Devices of a vdev with parity that are far slower than the others: readers do without them for a while.
//!
//! # Theory
//! A read of RAID-Z or dRAID is as slow as the slowest of its devices, and parity can stand in for one of them. Now and then, as reads end, the mean times of
//! what each device did since are compared: one is an *outlier* that is beyond the upper quartile by many times what lies between the quartiles (Tukey's fence). A
//! device that is it again and again sits out: its column is rebuilt from parity. It is written as before, and scrubs and repairs read it. After a while it is tried again.
//!
//! # Invariants
//! 1. No more devices are made to sit out than there is parity, those that are not as they should be among them.
//! 2. A reader takes no lock for this, unless it is the one that compares.
//!
//! # Locks
//! `Sitting::seen`, and nothing below it.

use std::collections::BTreeMap;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use parking_lot::Mutex;

use super::Members;
use crate::bail;
use crate::error::Result;
use crate::host::HostRef;
use crate::tunables::{Parameter, Tunables};
use crate::vdev::leaf::WAIT_BUCKETS;
use crate::vdev::{Leaf, TopVdev, VdevState};

/// With fewer columns nothing can be said of one.
const COLUMNS_MIN: usize = 5;
/// A device that was an outlier more often than that sits out.
#[doc(alias = "LAT_OUTLIER_LIMIT")]
const OUTLIER_MAX: u64 = 20;
/// So much is taken from all counts when there were as many outliers as there are columns: it is not one device.
const DECAY: u64 = 2;
const MILLISECOND_NS: u64 = 1_000_000;

type Reads = [u64; WAIT_BUCKETS];

/// See the module.
#[derive(Default)]
pub(in crate::vdev) struct Sitting {
    is_automatic: AtomicBool,
    /// As the leaves have them.
    known: OnceLock<(HostRef, Tunables)>,
    /// When devices were compared last.
    looked: AtomicU64,
    /// guarded by: itself
    seen: Mutex<Seen>,
}

#[derive(Default)]
struct Seen {
    /// The reads of each leaf when it was compared last.
    reads: BTreeMap<u32, Reads>,
    /// Outliers of all columns, lately.
    outliers: u64,
}

/// A column since it was compared last.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Column {
    /// Readers cannot use it now, or had better not.
    Out,
    /// It was not read.
    Idle,
    /// The mean time of its reads.
    Took(u64),
}

impl Sitting {
    /// Whether devices are made to sit out by themselves (`autosit`).
    pub(in crate::vdev) fn set_automatic(&self, is_automatic: bool) {
        self.is_automatic.store(is_automatic, Relaxed);
    }

    /// A read has ended: is it time to compare?
    #[doc(alias = "vdev_child_slow_outlier")]
    pub(in crate::vdev) fn after_read(&self, top: &TopVdev) {
        if !self.is_automatic.load(Relaxed) {
            return;
        }
        if self.known.get().is_none()
            && let Some(known) = top.members().leaves.first().and_then(|leaf| leaf.traffic.clock_and_limits())
        {
            let _ = self.known.set(known);
        }
        let Some((host, limits)) = self.known.get() else { return };
        let (now, looked) = (host.now_ns(), self.looked.load(Relaxed));
        let pause = limits.now(Parameter::OutlierCheckIntervalMs).saturating_mul(MILLISECOND_NS);
        if now.saturating_sub(looked) < pause || limits.now(Parameter::ReadSitOutSecs) == 0 {
            return;
        }
        if self.looked.compare_exchange(looked, now, Relaxed, Relaxed).is_ok() {
            self.compare(&top.members(), limits.now(Parameter::OutlierInsensitivity));
        }
    }

    fn compare(&self, members: &Members, insensitivity: u64) {
        let (leaves, parity) = members.layout.columns();
        if leaves.len() < COLUMNS_MIN {
            return;
        }
        let Some(mut seen) = self.seen.try_lock() else { return };
        let leaves: Vec<Vec<&Leaf>> = leaves.iter().map(|of| of.iter().filter_map(|leaf| members.leaf(*leaf)).map(|leaf| &**leaf).collect()).collect();
        let columns: Vec<Column> = leaves.iter().map(|leaves| seen.column(leaves)).collect();
        let is_full = columns.iter().filter(|column| **column == Column::Out).count() >= parity;
        if !is_full && columns.contains(&Column::Idle) {
            // Until all were read.
            return;
        }
        seen.reads = leaves.iter().flatten().map(|leaf| (leaf.number(), leaf.traffic.reads_by_time())).collect();
        let Some((slow, by)) = outlier(&columns, insensitivity).filter(|_| !is_full) else { return };
        let count = |column: &[&Leaf]| column.iter().map(|leaf| leaf.traffic.outlier().load(Relaxed)).max().unwrap_or(0);
        let set = |column: &[&Leaf], count: u64| column.iter().for_each(|leaf| leaf.traffic.outlier().store(count, Relaxed));
        seen.outliers += by;
        if seen.outliers >= leaves.len() as u64 {
            leaves.iter().for_each(|column| set(column, count(column).saturating_sub(DECAY)));
            seen.outliers = 0;
        }
        let slow = &leaves[slow];
        set(slow, count(slow) + by);
        if count(slow) > OUTLIER_MAX {
            for leaf in slow {
                tracing::warn!("{} is far slower than the others: readers do without it for {} seconds", leaf.name(), leaf.traffic.sit_out_secs());
                leaf.traffic.sit_out(Some(leaf.traffic.sit_out_secs()));
                leaf.traffic.note_sat_out();
            }
            leaves.iter().for_each(|column| set(column, 0));
        }
    }

    /// Has readers do without a device until somebody says otherwise, or no longer.
    ///
    /// # Errors
    /// `Busy`: no more devices can be done without.
    pub(in crate::vdev) fn set(&self, members: &Members, leaf: &Leaf, sits_out: bool) -> Result<()> {
        let _alone = self.seen.lock();
        if !sits_out {
            leaf.traffic.sit_in();
            return Ok(());
        }
        let (columns, parity) = members.layout.columns();
        let is_other = |column: &&Vec<u32>| !column.contains(&leaf.number());
        let sits = |number: &u32| members.leaf(*number).is_some_and(|leaf| leaf.traffic.sits_out());
        if columns.iter().filter(is_other).filter(|column| column.iter().any(sits)).count() >= parity {
            bail!(Busy, "too many disks already sitting out");
        }
        leaf.traffic.sit_out(None);
        Ok(())
    }
}

impl Seen {
    /// A column since it was compared last. A leaf that was not there then begins now.
    fn column(&mut self, leaves: &[&Leaf]) -> Column {
        let is_well = |leaf: &&Leaf| leaf.state() == VdevState::Online && !leaf.is_behind() && !leaf.traffic.sits_out();
        let (mut count, mut time) = (0_u64, 0_u64);
        for leaf in leaves {
            let now = leaf.traffic.reads_by_time();
            let before = self.reads.entry(leaf.number()).or_insert(now);
            for (bucket, (now, before)) in now.iter().zip(before).enumerate() {
                let new = now.saturating_sub(*before);
                count += new;
                time = time.saturating_add(new.saturating_mul(1 << bucket));
            }
        }
        match time.checked_div(count) {
            _ if leaves.is_empty() || !leaves.iter().all(is_well) => Column::Out,
            None => Column::Idle,
            Some(mean) => Column::Took(mean),
        }
    }
}

/// The column that is beyond the fence, and by how much, for its count.
fn outlier(columns: &[Column], insensitivity: u64) -> Option<(usize, u64)> {
    let times = columns.iter().map(|column| if let Column::Took(mean) = column { *mean } else { 0 });
    let (slow, most) = times.clone().enumerate().max_by_key(|(_, time)| *time)?;
    let mut sorted: Vec<u64> = times.collect();
    sorted.sort_unstable();
    let half = sorted.len() / 2;
    let (lower, upper) = (median(&sorted[..half]), median(&sorted[sorted.len() - half..]));
    // Times that are nearly the same say nothing.
    let between = (upper - lower).max(lower / 4).max(1);
    let beyond = most.checked_sub(upper.saturating_add(between.saturating_mul(insensitivity))).filter(|beyond| *beyond > 0)?;
    Some((slow, (beyond / between).clamp(1, OUTLIER_MAX / 4)))
}

fn median(sorted: &[u64]) -> u64 {
    match sorted {
        [] => 0,
        _ if sorted.len().is_multiple_of(2) => sorted[sorted.len() / 2 - 1].midpoint(sorted[sorted.len() / 2]),
        _ => sorted[sorted.len() / 2],
    }
}

#[cfg(test)]
mod tests;
