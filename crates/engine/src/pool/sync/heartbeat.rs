//! Multihost protection: telling other hosts that the pool is in use, and finding out that it is in use elsewhere.
//!
//! # Theory
//! A device that two hosts can reach is no longer safe by a lock of one of them. So with the property `multihost` a host writes,
//! every second, its newest uberblock again into a slot that no transaction group uses, with a number that counts up. An
//! import of the pool looks at the newest uberblock, waits for some twenty such seconds, and looks again: if anything changed, the
//! pool is in use. Then it writes a random number there and waits whether that stays, in case somebody else is importing too.
//!
//! A host whose heartbeats do not get through for so long that another one could take the pool must not write any more: the pool is
//! suspended.
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

use super::writer::GroupWriter;
use crate::error::{Error, ErrorKind, Result};
use crate::host::Host;
use crate::pool::config::pool_config::PoolState;
use crate::pool::open::import::Candidate;
use crate::tunables::{Parameter, Tunables};
use crate::vdev::label::{DeviceLabels, flush_disk, write_heartbeat};
use crate::vdev::{TopVdev, key};
use crate::{bail, error};

const NS_PER_MS: u64 = 1_000_000;
/// The shortest look.
const LOOK_NS_MIN: u64 = 1_000_000_000;
/// How often a claim is written and looked for.
#[doc(alias = "MMP_IMPORT_VERIFY_ITERS")]
const CLAIM_ROUNDS: u32 = 10;
/// A remote host stops after its missed intervals; we wait for this many times as long.
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
        Multihost::new(delay_ns.max(1), self.now(Parameter::MultihostInterval) as u32, sequence, self.now(Parameter::MultihostFailIntervals) as u16)
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
    pub(super) fn heartbeat_thread(&self) {
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
            self.beat(interval / leaves);
        }
    }

    pub(in crate::pool) fn beat(&self, delay_min_ns: u64) {
        let (host, tunables) = (&self.layers.context.host, &self.layers.context.tunables);
        if self.layers.context.groups.failure().is_some() {
            return;
        }
        // A ring has slots as large as the sectors of its vdev, or more.
        let of_top = |top: &Arc<TopVdev>| top.leaves().iter().map(|leaf| (leaf.clone(), top.ashift())).collect::<Vec<_>>();
        let leaves: Vec<_> = self.layers.vdevs.data_tops().iter().flat_map(of_top).filter(|(leaf, _)| leaf.is_open()).collect();
        // In this order: it is not to seem newer than what replaces the uberblock meanwhile.
        let seconds = host.wall_clock().0;
        let mut uberblock = self.uberblock();
        let (turn, last_ns) = {
            let mut state = self.heartbeat.state.lock();
            if uberblock.timestamp != seconds {
                uberblock.timestamp = seconds;
            }
            state.sequence = state.sequence.checked_add(1).unwrap_or(1);
            uberblock.multihost = Some(tunables.heartbeat(state.delay_ns, state.sequence));
            state.next_leaf = state.next_leaf.wrapping_add(1);
            (state.next_leaf, state.last_ns)
        };
        let written = leaves.get(turn % leaves.len().max(1)).and_then(|(leaf, ashift)| Some((leaf, leaf.disk()?, *ashift))).is_some_and(|(leaf, disk, ashift)| {
            let written = write_heartbeat(&*disk, ashift, &uberblock, Some((host.random() % LABELS as u64) as usize));
            // The leaf's own: what fails may have lost more than the heartbeat.
            written.and_then(|()| leaf.flush()).is_ok()
        });
        let now = host.now_ns();
        if written {
            self.heartbeat.note_written(now, delay_min_ns, false);
            return;
        }
        let limit = tunables.now(Parameter::MultihostFailIntervals) * tunables.multihost_interval_ns();
        if limit > 0 && now.saturating_sub(last_ns) > limit {
            let seconds = now.saturating_sub(last_ns) / 1_000_000_000;
            let failure = error!(Suspended, "no multihost heartbeat could be written for {seconds} s: another host may take the pool");
            tracing::error!("pool {}: suspended: {failure}", self.configuration.name());
            self.layers.context.groups.fail(failure);
        }
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

fn device_ashift(device: &crate::pool::open::import::FoundDevice) -> u32 {
    let ashift = device.config.nvlist("vdev_tree").and_then(|tree| tree.u64(key::ASHIFT)).unwrap_or(9);
    u32::try_from(ashift).unwrap_or(9)
}

/// The newest uberblock that is on the devices now.
fn newest(candidate: &Candidate) -> Option<Uberblock> {
    let all = candidate.devices.iter().flat_map(|device| {
        let found = DeviceLabels::read(&*device.disk).uberblocks(device_ashift(device));
        found.into_iter().map(|found| found.uberblock)
    });
    all.max_by(Uberblock::compare_age)
}

fn in_use(candidate: &Candidate) -> Error {
    let config = &candidate.config;
    Error::new(
        ErrorKind::InUseElsewhere,
        format!("pool is imported on {} (hostid: {:#x})", config.host_name.to_string_lossy(), config.host_id),
    )
}

/// Makes sure that no other host uses the pool; that takes some twenty seconds, if it is needed at all. With `claim`, which
/// writes, makes sure too that no other host is doing the same.
///
/// # Errors
/// `InUseElsewhere`; `Denied`: this host has no id.
#[doc(alias = "spa_activity_check")]
pub fn check_not_in_use(candidate: &Candidate, host: &dyn Host, tunables: &Tunables, claim: bool) -> Result<()> {
    if !needs_look(candidate, host.host_id()) {
        return Ok(());
    }
    if host.host_id() == 0 {
        bail!(Denied, "pool has the multihost property on and the system's hostid is not set. Set a unique hostid with the zgenhostid(8) command");
    }
    let first = newest(candidate).ok_or_else(|| in_use(candidate))?;
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
        return claim_pool(candidate, host, &first, interval);
    }
    Ok(())
}

/// Writes random numbers until it is clear that nobody else does.
fn claim_pool(candidate: &Candidate, host: &dyn Host, first: &Uberblock, interval_ms: u32) -> Result<()> {
    let original = first.multihost.unwrap_or_default();
    let base = original.sequence().filter(|sequence| *sequence < u16::MAX).unwrap_or(0);
    let write = |uberblock: &Uberblock| {
        let mut result = Err(error!(NoDevice, "pool {}: no device can be written", candidate.config.name));
        for device in &candidate.devices {
            let written = write_heartbeat(&*device.disk, device_ashift(device), uberblock, None).and_then(|()| flush_disk(&*device.disk));
            if written.is_ok() || result.is_err() {
                result = written;
            }
        }
        result
    };
    let mut outcome = Ok(());
    for _ in 0..CLAIM_ROUNDS {
        let sequence = base + 1 + (host.random() % u64::from(u16::MAX - base)) as u16;
        let config = original.config & !(0xffff << 32) | u64::from(sequence) << 32;
        let mine = Uberblock { multihost: Some(Multihost { config, ..original }), ..first.clone() };
        outcome = write(&mine);
        host.sleep(Duration::from_millis(interval_ms.into()));
        if outcome.is_ok() && newest(candidate).as_ref() != Some(&mine) {
            outcome = Err(in_use(candidate));
        }
        if outcome.is_err() {
            break;
        }
    }
    // The number goes back to what it was, so that a host that tries again sees nothing new.
    let restored = write(first);
    outcome.and(restored)
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
        writer.heartbeat.turn(true, 0, 1_000_000_000);
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
