//! Harm that is done to devices, and how it is made good.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use disk::Disk;
use engine::error::ErrorKind;
use engine::pool::Stopped;
use engine::vdev::VdevState;
use ondisk::scan::ScanFunction;
use rand::Rng;
use rand::seq::IndexedRandom;

use super::device::Device;
use super::round::{Columns, Round, Suspect};

/// A device with more errors is not used any more.
const ERRORS_MAX: u64 = 10;

impl Round {
    /// How many columns, or sides, may give nothing or what is wrong.
    pub(super) fn redundancy(&self, top: &Columns) -> usize {
        if self.parity > 0 { usize::from(self.parity) } else { top.len() - 1 }
    }

    /// Notes that a device may be wrong, if the others are enough then.
    pub(super) fn suspect(&mut self, device: &Device, how: Suspect) -> bool {
        let (suspects, spread, stand_ins) = (self.suspects.clone(), self.spread.clone(), self.stand_ins.clone());
        let known = self.suspects.entry(device.name().to_owned()).or_insert(how);
        *known = how.max(*known);
        if how == Suspect::Wrong {
            self.let_wrong_go_on(device);
        }
        let is_enough = self.tops.iter().all(|top| self.is_enough(top));
        if !is_enough {
            (self.suspects, self.spread, self.stand_ins) = (suspects, spread, stand_ins);
        }
        is_enough
    }

    /// What is wrong on a device is copied by what is under way there and does not know it.
    fn let_wrong_go_on(&mut self, device: &Device) {
        let Some(top) = self.tops.iter().find(|top| top.iter().flatten().any(|one| one.name() == device.name())) else { return };
        for name in top.iter().flatten().map(|device| device.name()) {
            if self.copying.contains(name) {
                self.suspects.insert(name.to_owned(), self.suspects.get(name).copied().unwrap_or(Suspect::Wrong).max(Suspect::Wrong));
            }
            if let Some(spare) = self.stand_ins.get_mut(name) {
                spare.is_wrong |= spare.is_copied;
            }
        }
        if self.is_expanding() {
            self.spread.insert(device.name().to_owned());
        }
    }

    /// Is what columns have that are not suspect enough?
    pub(super) fn is_enough(&self, top: &Columns) -> bool {
        let suspect = |device: &Arc<Device>| self.suspects.get(device.name()).copied();
        // The last one is alone when it has replaced the other.
        let stays_wrong = |column: &Vec<Arc<Device>>| column.last().and_then(suspect).is_some_and(|suspect| suspect > Suspect::Filling);
        let is_spared = |column: &Vec<Arc<Device>>| column.len() == 1 && suspect(&column[0]) != Some(Suspect::Wrong) && self.has_stand_in(&column[0]);
        let is_wrong = |column: &&Vec<Arc<Device>>| !is_spared(column) && (stays_wrong(column) || column.iter().all(|device| suspect(device).is_some()));
        let spread = top.iter().flatten().filter(|device| self.spread.contains(device.name())).count();
        top.iter().filter(is_wrong).count() + spread <= self.redundancy(top)
    }

    pub(super) fn any_device(&mut self) -> Arc<Device> {
        let devices = self.devices();
        devices.choose(&mut self.random).expect("a device").clone()
    }

    pub(super) fn harm(&mut self) -> Result<(), String> {
        self.forget_departed();
        let (device, kind) = (self.any_device(), self.random.random_range(0..11));
        if kind == 9 {
            return self.hang(&device);
        }
        let how = match kind {
            7 => Suspect::Behind,
            8 => Suspect::Dead,
            _ => Suspect::Wrong,
        };
        if how == Suspect::Wrong && self.is_leaving(&device) {
            // Nobody knows which side is right of what is copied to the others.
            return Ok(());
        }
        if device.is_gone() || !self.suspect(&device, how) {
            return Ok(());
        }
        self.tally.harm += 1;
        let count = self.random.random_range(1..100);
        let what = match kind {
            0 | 1 => {
                device.damage(Some(&device.written(count)));
                format!("{count} sectors changed")
            }
            2 => {
                device.damage(None);
                "all data changed".to_owned()
            }
            3 => {
                let sectors = device.written(count);
                device.set(|faults| faults.latent.extend(sectors.iter().map(|at| at / 512)));
                format!("{count} sectors unreadable")
            }
            4 => {
                device.set(|faults| faults.flips = 1 + count as u32 / 4);
                "reads have bits turned".to_owned()
            }
            5 => {
                device.set(|faults| faults.misdirected = 1 + count as u32 / 16);
                "writes go elsewhere".to_owned()
            }
            6 => {
                device.set(|faults| faults.torn = 1 + count as u32 / 16);
                "writes are torn".to_owned()
            }
            10 => {
                device.set(|faults| faults.turned = 1 + count as u32 / 8);
                "writes have bits turned".to_owned()
            }
            _ => {
                device.set(|faults| faults.gone = true);
                if how == Suspect::Dead { "dies".to_owned() } else { "is pulled".to_owned() }
            }
        };
        self.say(format!("{}: {what}", device.name()));
        Ok(())
    }

    /// A device does not answer for a while: nothing is lost by that.
    fn hang(&mut self, device: &Device) -> Result<(), String> {
        let time = Duration::from_millis(self.random.random_range(50..600));
        device.set(|faults| faults.hangs_until = Some(Instant::now() + time));
        self.tally.harm += 1;
        self.say(format!("{}: hangs for {time:?}", device.name()));
        Ok(())
    }

    /// Devices that were pulled or offline, or were taken for broken, are back.
    pub(super) fn give_back(&mut self) -> Result<(), String> {
        self.say("give back");
        let dead = |suspects: &BTreeMap<String, Suspect>, name: &str| suspects.get(name) == Some(&Suspect::Dead);
        for device in self.devices() {
            if !dead(&self.suspects, device.name()) {
                device.set(|faults| faults.gone = false);
            }
        }
        let engine = self.pool.engine().clone();
        for leaf in engine.vdevs.leaves() {
            let Some(device) = self.devices().into_iter().find(|device| device.name() == leaf.name()) else { continue };
            if dead(&self.suspects, leaf.name()) || (leaf.is_open() && leaf.state() == VdevState::Online && !leaf.is_behind()) {
                continue;
            }
            if !leaf.is_open() && !self.suspects.contains_key(leaf.name()) && self.guid(leaf.name()).is_some() {
                return Err(format!("{} did nothing wrong and is {}", leaf.name(), leaf.state()));
            }
            engine.forgive_devices(Some(leaf.guid()), vec![(leaf.guid(), device.clone())]);
            let state = match engine.online_device(leaf.guid(), Some(device), false) {
                // Its replacement has just ended.
                Err(error) if error.kind() == ErrorKind::NotFound => continue,
                state => state.map_err(|error| format!("online: {error}"))?,
            };
            // Or ends now.
            if !leaf.is_open() && self.guid(leaf.name()).is_some() {
                return Err(format!("{} is {state} when it is back: {:?}", leaf.name(), leaf.reason()));
            }
        }
        if self.random.random() { self.wait() } else { Ok(()) }
    }

    /// Takes devices out of use that failed too often, as the agent of the daemon does.
    pub(super) fn diagnose(&mut self) -> Result<(), String> {
        let engine = self.pool.engine().clone();
        let dead: Vec<Arc<Device>> = self.devices().into_iter().filter(|device| device.is_gone()).collect();
        for leaf in engine.vdevs.leaves() {
            let errors = leaf.stats.write_errors.load(Ordering::Relaxed) + leaf.stats.read_errors.load(Ordering::Relaxed);
            if leaf.is_open() && errors >= ERRORS_MAX && dead.iter().any(|device| device.name() == leaf.name()) {
                match engine.stop_device(leaf.guid(), Stopped::Failing, false) {
                    // Its replacement has just ended.
                    Err(error) if error.kind() == ErrorKind::NotFound => {}
                    done => done.map_err(|error| format!("{}: {error}", leaf.name()))?,
                }
            }
        }
        Ok(())
    }

    pub(super) fn offline(&mut self) -> Result<(), String> {
        let device = self.any_device();
        if device.is_gone() || self.suspects.contains_key(device.name()) || !self.suspect(&device, Suspect::Behind) {
            return Ok(());
        }
        let (engine, temporary) = (self.pool.engine().clone(), self.random.random());
        let Some(guid) = self.guid(device.name()) else { return Ok(()) };
        let done = engine.stop_device(guid, Stopped::Offline, temporary);
        self.say(format!("{} offline: {done:?}", device.name()));
        match done {
            // While something is being replaced the engine does not count what the new device has, or the replacement has just ended.
            Err(error) if matches!(error.kind(), ErrorKind::Busy | ErrorKind::NotFound) => {
                self.suspects.remove(device.name());
                Ok(())
            }
            done => done.map_err(|error| format!("offline: {error}")),
        }
    }

    /// Scrubs: what was wrong is right, as far as devices are there.
    pub(super) fn scrub(&mut self) -> Result<(), String> {
        self.say("scrub");
        let errors = self.scrub_now()?;
        if errors.0 > 0 { Err(format!("a scrub could not repair {} blocks", errors.0)) } else { Ok(()) }
    }

    /// Scrubs, and returns the errors and the bytes that were repaired.
    pub(super) fn scrub_now(&mut self) -> Result<(u64, u64), String> {
        self.wait()?;
        for device in self.devices() {
            device.set(|faults| (faults.flips, faults.misdirected, faults.torn, faults.turned) = (0, 0, 0, 0));
        }
        self.sync()?;
        let engine = self.pool.engine().clone();
        engine.scrub(false).map_err(|error| format!("scrub: {error}"))?;
        self.wait()?;
        let Some(progress) = engine.scan_progress() else { return Err("there was no scrub".into()) };
        // Where a device that does not answer is behind, and still in use, it is a resilver, which looks at what that needs only.
        // What only a checkpoint has nobody looks at.
        if progress.record.function == ScanFunction::Scrub && self.kept.is_none() {
            self.clear(Suspect::Wrong);
            let suspects = &self.suspects;
            self.spread.retain(|name| suspects.contains_key(name));
            self.stand_ins.values_mut().for_each(|spare| spare.is_wrong = false);
        }
        Ok((progress.record.errors, progress.record.processed))
    }

    pub(super) fn guid(&self, name: &str) -> Option<u64> {
        self.pool.engine().vdevs.leaves().iter().find(|leaf| leaf.name() == name).map(|leaf| leaf.guid())
    }
}
