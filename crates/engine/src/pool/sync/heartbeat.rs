//! Multihost protection: telling other hosts that the pool is in use, and finding out that it is in use elsewhere.
//!
//! # Theory
//! A device that two hosts can reach is no longer safe by a lock of one of them. So with the property `multihost` a host writes,
//! every second, its newest uberblock again into a slot that no transaction group uses, with a number that counts up. An
//! import of the pool looks at the newest uberblock, waits for some twenty such seconds, and looks again: if anything changed, the
//! pool is in use. Then it claims the pool ([`super::claim`]), in case another host is importing it too.
//!
//! A host whose heartbeats do not get through for so long that another one could take the pool must not write any more: the pool is
//! suspended, for good. That is decided by the clock alone, before and after each heartbeat, pass and commit: a device that hangs, or a host that
//! stands still, gives no error, and all may be well again when it is too late. So the thread that looks at the clock waits for no device: each heartbeat
//! is written by a thread of its own, one at a time for each device, and one that hangs keeps no other from being written.
//!
//! # On disk
//! `ondisk::uberblock::Multihost`; the last slot of the ring.
//!
//! # Locks
//! `Heartbeat::state`, and nothing below it.

use std::sync::Arc;
use std::time::Duration;

use ondisk::label::LABELS;
use ondisk::uberblock::{Multihost, Uberblock};
use parking_lot::{Condvar, Mutex};

use super::claim::Claim;
use super::writer::GroupWriter;
use crate::error::{Error, ErrorKind, Result};
use crate::host::{HostRef, work_in_background};
use crate::pool::config::pool_config::PoolState;
use crate::pool::open::import::Candidate;
use crate::tunables::{Parameter, Tunables};
use crate::vdev::label::{DeviceLabels, write_heartbeat};
use crate::vdev::{Leaf, TopVdev, key};
use crate::{bail, error};

/// What the error begins with that stops a pool of which nothing was heard for too long.
pub const NO_HEARTBEAT: &str = "no multihost heartbeat could be written";

const NS_PER_MS: u64 = 1_000_000;
/// The shortest look.
const LOOK_NS_MIN: u64 = 1_000_000_000;
/// With fewer missed intervals than this a host would stop for nothing.
#[doc(alias = "MMP_MIN_FAIL_INTERVALS")]
const FAIL_INTERVALS_MIN: u64 = 2;
/// A host stops after its missed intervals; another one waits for this many times as long.
#[doc(alias = "MMP_IMPORT_SAFETY_FACTOR")]
const SAFETY_FACTOR: u64 = 2;
/// A host that is silent for longer is not waited for: the pool must be looked at by hand.
const LOOK_NS_MAX: u64 = 3_600_000_000_000;
/// Weights of the running average of the time between heartbeats.
const AVERAGE_OF: u64 = 128;

#[derive(Debug, Default)]
struct HeartbeatState {
    is_on: bool,
    is_ending: bool,
    /// The running average of the time between two heartbeats.
    delay_ns: u64,
    last_ns: u64,
    sequence: u16,
    next_leaf: usize,
    /// The guids of devices that a heartbeat is being written to.
    under_way: Vec<u64>,
    /// Of those that are being flushed for one.
    flushing: Vec<u64>,
}

/// What a pool knows of its heartbeats.
#[derive(Debug, Default)]
pub(in crate::pool) struct Heartbeat {
    state: Mutex<HeartbeatState>,
    changed: Condvar,
}

impl Heartbeat {
    /// Multihost protection is on or off from now on.
    pub(in crate::pool) fn turn(&self, on: bool, now_ns: u64, interval_ns: u64) {
        let mut state = self.state.lock();
        if on && !state.is_on {
            (state.last_ns, state.delay_ns) = (now_ns, interval_ns);
        }
        state.is_on = on;
        drop(state);
        self.changed.notify_all();
    }

    pub(in crate::pool) fn is_on(&self) -> bool {
        self.state.lock().is_on
    }

    /// The thread ends.
    pub(in crate::pool) fn end(&self) {
        self.state.lock().is_ending = true;
        self.changed.notify_all();
    }

    /// The threads of the pool begin: until now nothing had to be heard of it.
    pub(super) fn begin(&self, now_ns: u64) {
        self.state.lock().last_ns = now_ns;
    }

    /// For how long nothing was heard of this host; 0 where nothing has to be.
    fn silence_ns(&self, now_ns: u64) -> u64 {
        let state = self.state.lock();
        if state.is_on { now_ns.saturating_sub(state.last_ns) } else { 0 }
    }

    /// What the uberblock of a group says of it.
    pub(in crate::pool) fn of_group(&self, tunables: &Tunables) -> Multihost {
        let state = self.state.lock();
        if state.is_on { tunables.heartbeat(state.delay_ns, 0) } else { Multihost::default() }
    }

    /// A heartbeat or a group is on disk.
    pub(in crate::pool) fn note_written(&self, now_ns: u64, delay_min_ns: u64, is_group: bool) {
        let mut state = self.state.lock();
        let passed = now_ns.saturating_sub(state.last_ns);
        state.delay_ns = if passed >= state.delay_ns {
            passed
        } else {
            (state.delay_ns.saturating_mul(AVERAGE_OF - 1).saturating_add(passed) / AVERAGE_OF).max(delay_min_ns)
        };
        state.last_ns = now_ns;
        if is_group {
            state.sequence = 1;
        }
    }
}

impl Tunables {
    fn heartbeat(&self, delay_ns: u64, sequence: u16) -> Multihost {
        Multihost::new(delay_ns.max(1), self.now(Parameter::MultihostInterval) as u32, sequence, self.multihost_fail_intervals() as u16)
    }

    /// After how many missed intervals the pool is suspended; 0: never.
    fn multihost_fail_intervals(&self) -> u64 {
        match self.now(Parameter::MultihostFailIntervals) {
            0 => 0,
            intervals => intervals.max(FAIL_INTERVALS_MIN),
        }
    }

    fn multihost_interval_ns(&self) -> u64 {
        self.now(Parameter::MultihostInterval) * NS_PER_MS
    }
}

impl GroupWriter {
    /// Turns multihost protection on or off, as the property says.
    ///
    /// # Errors
    /// The host has no id to tell it by.
    pub(in crate::pool) fn set_multihost(&self, on: bool) -> Result<()> {
        let (host, tunables) = (&self.layers.context.host, &self.layers.context.tunables);
        if on && host.host_id() == 0 {
            bail!(Denied, "multihost protection needs a host id, and this system has none: write one with zgenhostid(8)");
        }
        self.heartbeat.turn(on, host.now_ns(), tunables.multihost_interval_ns());
        Ok(())
    }

    /// Writes a heartbeat on one device after the other, as long as the pool is open.
    pub(super) fn heartbeat_thread(self: &Arc<Self>) {
        loop {
            let interval = self.layers.context.tunables.multihost_interval_ns();
            let leaves = self.layers.vdevs.leaves().iter().filter(|leaf| leaf.is_open()).count().max(1) as u64;
            {
                let mut state = self.heartbeat.state.lock();
                while !state.is_on && !state.is_ending {
                    self.heartbeat.changed.wait(&mut state);
                }
                if !state.is_ending {
                    self.heartbeat.changed.wait_for(&mut state, Duration::from_nanos(interval / leaves));
                }
                if state.is_ending {
                    return;
                }
                if !state.is_on {
                    continue;
                }
            }
            if let Some(beat) = self.begin_beat(interval / leaves) {
                // Where there is no thread for it, this one is missed.
                self.start_thread("heartbeat_write", move || {
                    work_in_background();
                    beat.write();
                });
            }
        }
    }

    /// Writes a heartbeat in this thread.
    #[cfg(test)]
    pub(in crate::pool) fn beat(self: &Arc<Self>, delay_min_ns: u64) {
        if let Some(beat) = self.begin_beat(delay_min_ns) {
            beat.write();
        }
    }

    /// The next heartbeat, and where it is to be written. None where the pool has stopped, or where one is being written to every device.
    fn begin_beat(self: &Arc<Self>, delay_min_ns: u64) -> Option<Beat> {
        let (host, tunables) = (&self.layers.context.host, &self.layers.context.tunables);
        self.check_may_write(host.now_ns()).ok()?;
        // A ring has slots as large as the sectors of its vdev, or more.
        let of_top = |top: &Arc<TopVdev>| top.leaves().iter().map(|leaf| (leaf.clone(), top.ashift())).collect::<Vec<_>>();
        let leaves: Vec<_> = self.layers.vdevs.data_tops().iter().flat_map(of_top).filter(|(leaf, _)| leaf.is_open()).collect();
        // In this order: it is not to seem newer than what replaces the uberblock meanwhile.
        let seconds = host.wall_clock().0;
        let mut uberblock = self.uberblock();
        uberblock.timestamp = seconds;
        let mut state = self.heartbeat.state.lock();
        let last = state.next_leaf;
        let is_free = |turn: &usize| !state.under_way.contains(&leaves[turn % leaves.len()].0.guid());
        let turn = (1..=leaves.len()).map(|step| last.wrapping_add(step)).find(is_free)?;
        let (leaf, ashift) = leaves[turn % leaves.len()].clone();
        state.next_leaf = turn;
        state.under_way.push(leaf.guid());
        state.sequence = state.sequence.checked_add(1).unwrap_or(1);
        uberblock.multihost = Some(tunables.heartbeat(state.delay_ns, state.sequence));
        drop(state);
        Some(Beat { writer: self.clone(), leaf, ashift, uberblock, delay_min_ns })
    }

    /// Asked before anything is written, and after it, before it counts. If nothing was heard of this host for so long that another one may have taken the
    /// pool, that stops it for good, whatever can be written now.
    ///
    /// # Errors
    /// What stopped the pool.
    pub(in crate::pool) fn check_may_write(&self, now_ns: u64) -> Result<()> {
        let (groups, tunables) = (&self.layers.context.groups, &self.layers.context.tunables);
        if let Some(failure) = groups.failure() {
            return Err(failure);
        }
        let limit = tunables.multihost_fail_intervals() * tunables.multihost_interval_ns();
        let silence = self.heartbeat.silence_ns(now_ns);
        if limit == 0 || silence <= limit {
            return Ok(());
        }
        let seconds = silence / 1_000_000_000;
        let failure = error!(Suspended, "{NO_HEARTBEAT} for {seconds} s: another host may take the pool");
        tracing::error!("pool {}: suspended: {failure}", self.configuration.name());
        // In this order: a thread that hears of it finds that nothing is written, and those that waited find why.
        self.layers.vdevs.gate().end();
        groups.fail(failure.clone());
        self.layers.vdevs.gate().give_up();
        // What is free here may not be free any more.
        self.works.end_all();
        Err(failure)
    }
}

/// A heartbeat that is to be written. Until this is dropped no other one is written to its device.
struct Beat {
    writer: Arc<GroupWriter>,
    leaf: Arc<Leaf>,
    ashift: u32,
    uberblock: Uberblock,
    delay_min_ns: u64,
}

impl Beat {
    fn write(&self) {
        let host = &self.writer.layers.context.host;
        let label = (host.random() % LABELS as u64) as usize;
        let is_written = self.leaf.disk().is_some_and(|disk| write_heartbeat(&*disk, self.ashift, &self.uberblock, Some(label)).is_ok());
        let now = host.now_ns();
        self.end();
        // What took too long shows nothing any more.
        if self.writer.check_may_write(now).is_ok() && is_written {
            self.writer.heartbeat.note_written(now, self.delay_min_ns, false);
            self.flush();
        }
    }

    /// Others see what is written before it is durable. A flush may take long, and hold up the next heartbeats of no device.
    fn flush(&self) {
        let (heartbeat, guid) = (&self.writer.heartbeat, self.leaf.guid());
        let begins = {
            let flushing = &mut heartbeat.state.lock().flushing;
            let begins = !flushing.contains(&guid);
            flushing.extend(begins.then_some(guid));
            begins
        };
        if begins {
            // The leaf's own: what fails may have lost more than the heartbeat, and the leaf knows it then.
            let _ = self.leaf.flush();
            heartbeat.state.lock().flushing.retain(|other| *other != guid);
        }
    }

    /// The next heartbeat may be written to the device.
    fn end(&self) {
        self.writer.heartbeat.state.lock().under_way.retain(|guid| *guid != self.leaf.guid());
    }
}

impl Drop for Beat {
    fn drop(&mut self) {
        self.end();
    }
}

/// Whether a pool must be watched before it is imported here.
fn needs_look(candidate: &Candidate, host_id: u32) -> bool {
    let config = &candidate.config;
    let is_ours = host_id != 0 && config.host_id == u64::from(host_id) && config.state == PoolState::Exported;
    let is_protected = candidate.uberblock().multihost.is_some_and(|multihost| multihost.delay_ns != 0);
    is_protected && !is_ours && config.state != PoolState::Destroyed
}

/// How long to watch.
fn look_ns(multihost: &Multihost, tunables: &Tunables) -> u64 {
    let rounds = tunables.now(Parameter::MultihostImportIntervals).max(1);
    let least = LOOK_NS_MIN.max(rounds * tunables.multihost_interval_ns());
    match (multihost.interval_ms(), multihost.fail_intervals()) {
        (Some(interval), Some(fails)) if fails > 0 => u64::from(fails) * u64::from(interval) * NS_PER_MS * SAFETY_FACTOR,
        (Some(interval), _) => least.max((u64::from(interval) * NS_PER_MS).saturating_add(multihost.delay_ns).saturating_mul(rounds)),
        (None, _) => least.max(tunables.multihost_interval_ns().saturating_add(multihost.delay_ns).saturating_mul(rounds)),
    }
}

pub(super) fn device_ashift(device: &crate::pool::open::import::FoundDevice) -> u32 {
    let ashift = device.config.nvlist("vdev_tree").and_then(|tree| tree.u64(key::ASHIFT)).unwrap_or(9);
    u32::try_from(ashift).unwrap_or(9)
}

/// The newest uberblock that is on the devices now.
pub(super) fn newest(candidate: &Candidate) -> Option<Uberblock> {
    let all = candidate.devices.iter().flat_map(|device| {
        let found = DeviceLabels::read(&*device.disk).uberblocks(device_ashift(device));
        found.into_iter().map(|found| found.uberblock)
    });
    all.max_by(Uberblock::compare_age)
}

pub(super) fn in_use(candidate: &Candidate) -> Error {
    let config = &candidate.config;
    Error::new(
        ErrorKind::InUseElsewhere,
        format!("pool is imported on {} (hostid: {:#x})", config.host_name.to_string_lossy(), config.host_id),
    )
}

/// Makes sure that no other host uses the pool; that takes some twenty seconds, if it is needed at all. With `claim`, which
/// writes, makes sure too that no other host is doing the same: what this returns is to be kept until the pool is open ([`Claim`]).
///
/// # Errors
/// `InUseElsewhere`; `Denied`: this host has no id.
#[doc(alias = "spa_activity_check")]
pub fn check_not_in_use(candidate: &Candidate, host: &HostRef, tunables: &Tunables, claim: bool) -> Result<Option<Claim>> {
    if !needs_look(candidate, host.host_id()) {
        return Ok(None);
    }
    if host.host_id() == 0 {
        bail!(Denied, "pool has the multihost property on and the system's hostid is not set. Set a unique hostid with the zgenhostid(8) command");
    }
    let first = newest(candidate).ok_or_else(|| in_use(candidate))?;
    // What is to be opened was found before, and the pool has gone on since.
    if first.compare_age(candidate.uberblock()).is_gt() {
        return Err(in_use(candidate));
    }
    let multihost = first.multihost.unwrap_or_default();
    let look = look_ns(&multihost, tunables);
    if look > LOOK_NS_MAX {
        bail!(
            InUseElsewhere,
            "pool '{}' may be in use by a host that need not show it for {} s: too long to wait for; export it there",
            candidate.config.name,
            look / 1_000_000_000
        );
    }
    let limit = look / SAFETY_FACTOR;
    // A quarter more or less, so that two hosts that start together do not end together.
    let look = look + host.random() % (look / 4).max(1);
    tracing::info!("pool {}: watching for another host, {} s", candidate.config.name, look / 1_000_000_000);
    let begin = host.now_ns();
    while host.now_ns().saturating_sub(begin) < look {
        host.sleep(Duration::from_nanos(LOOK_NS_MIN.min(look)));
        if newest(candidate).as_ref() != Some(&first) {
            return Err(in_use(candidate));
        }
    }
    if claim && let (Some(interval), Some(_)) = (multihost.interval_ms(), multihost.sequence()) {
        let interval_ns = u64::from(interval) * NS_PER_MS;
        return Claim::make(candidate, host, first, Duration::from_nanos(interval_ns), limit.max(FAIL_INTERVALS_MIN * interval_ns));
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_other_host_says_how_long_to_wait() {
        let tunables = Tunables::default();
        let second = 1_000_000_000;
        // It stops after ten missed seconds; twice as long is safe.
        assert_eq!(look_ns(&Multihost::new(second, 1000, 1, 10), &tunables), 20 * second);
        assert_eq!(look_ns(&Multihost::new(second, 500, 1, 6), &tunables), 6 * second);
        // It never stops: its interval and its usual delay, twenty times.
        assert_eq!(look_ns(&Multihost::new(second, 1000, 1, 0), &tunables), 40 * second);
        // Written before these numbers were.
        assert_eq!(look_ns(&Multihost { delay_ns: 2 * second, config: 0 }, &tunables), 60 * second);
    }

    /// A damaged pool could say that its host may be silent for years.
    #[test]
    fn nobody_waits_for_ever() {
        let silent = Multihost::new(u64::MAX, 0xff_ffff, 1, u16::MAX);
        assert!(look_ns(&silent, &Tunables::default()) > LOOK_NS_MAX);
        assert!(look_ns(&Multihost { delay_ns: u64::MAX, config: 0 }, &Tunables::default()) > LOOK_NS_MAX);
    }

    #[test]
    fn the_delay_is_a_running_average() {
        let heartbeat = Heartbeat::default();
        heartbeat.turn(true, 0, 1000);
        heartbeat.note_written(5000, 10, false);
        assert_eq!(heartbeat.state.lock().delay_ns, 5000, "a long delay counts at once");
        for beat in 0..2000 {
            heartbeat.note_written(5000 + (beat + 1) * 100, 150, false);
        }
        assert_eq!(heartbeat.state.lock().delay_ns, 150, "and is forgotten slowly, down to the least");
    }

    /// Heartbeats were as large as the largest sector of the pool, on every device: where sectors are smaller, over uberblocks.
    #[test]
    fn a_heartbeat_leaves_uberblocks_alone() {
        use crate::pool::{NewPool, OpenOptions, Pool};
        use crate::vdev::{NewLeaf, NewTop};
        let disks = [9, 12].map(|ashift| (ashift, Arc::new(disk::MemDisk::new(format!("sectors-{ashift}"), 128 << 20))));
        let top = |(ashift, disk): &(u32, Arc<disk::MemDisk>)| NewTop {
            leaves: vec![NewLeaf { disk: disk.clone(), path: format!("/sectors-{ashift}"), whole_disk: false }],
            ashift: Some(*ashift),
            ..NewTop::default()
        };
        let new = NewPool {
            name: "beats".into(),
            vdevs: disks.iter().map(top).collect(),
            features: ondisk::feature::Feature::for_new_pools().collect(),
            properties: Vec::new(),
            fill: Box::new(|_, _| Ok(())),
            command: "zpool create beats".into(),
            configure: Box::new(|_| ()),
        };
        let options = OpenOptions {
            host: crate::host::RealHost::shared(),
            tunables: Tunables::default(),
            read_only: false,
            file_owner: None,
            new_name: None,
            forget_log: false,
        };
        let pool = Pool::create(new, options).unwrap();
        let writer = pool.groups().clone();
        writer.heartbeat.turn(true, writer.layers.context.host.now_ns(), 1_000_000_000);
        while pool.uberblock().txg < 130 {
            pool.change_config(|config| config.comment = Some("changed".into()));
            pool.sync_all().unwrap();
        }
        let places = || {
            let of_disk = |(ashift, disk): &(u32, Arc<disk::MemDisk>)| DeviceLabels::read(&**disk).uberblocks(*ashift);
            disks.each_ref().map(|disk| of_disk(disk).into_iter().map(|found| (found.label, found.slot)).collect::<Vec<_>>())
        };
        let before = places();
        (0..64).for_each(|_| writer.beat(0));
        for ((ashift, _), (before, after)) in disks.iter().zip(before.iter().zip(places())) {
            let lost: Vec<_> = before.iter().filter(|place| !after.contains(place)).collect();
            assert!(lost.is_empty(), "sectors of 2^{ashift}: the uberblocks at {lost:?} (label, slot) are gone");
        }
        pool.export().unwrap();
    }
}
