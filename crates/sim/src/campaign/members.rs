//! Devices that take the place of others, come beside them, or go.

use std::sync::Arc;

use disk::Disk;
use engine::error::ErrorKind;
use engine::host::RealHost;
use engine::pool::{Beside, Fill, OpenOptions};
use engine::vdev::NewLeaf;
use rand::Rng;

use super::device::Device;
use super::round::{Round, Suspect, expect_right, import};
use super::shape::{Kind, fast};
use super::spares::allow;

/// Mirrors do not get more sides.
const SIDES_MAX: usize = 4;

impl Round {
    pub(super) fn new_device(&mut self, like: &Device) -> Arc<Device> {
        self.devices_made += 1;
        Device::new(format!("/memory/d{}", self.devices_made), like.size_bytes(), self.power.clone(), self.random.random())
    }

    fn put_beside(&mut self, old: &Device, how: Beside) -> Result<Option<Arc<Device>>, String> {
        let Some(guid) = self.guid(old.name()) else { return Ok(None) };
        let new = self.new_device(old);
        let leaf = NewLeaf { disk: new.clone(), path: new.name().to_owned(), whole_disk: false };
        // A rebuild copies what is wrong, too.
        let is_wrong = self.is_any_wrong_beside(old);
        let is_copied = self.shape.kind != Kind::Raidz && self.random.random() && (!is_wrong || how == Beside::Mirror || self.is_enough_without(old));
        let fill = if is_copied { Fill::Sequential } else { Fill::Healing };
        let done = self.pool.engine().attach_and_fill(guid, leaf, (how, fill), None);
        self.say(format!("{} beside {}: {how:?} {fill:?} {done:?}", new.name(), old.name()));
        // There is a checkpoint, a vdev is being removed, or others are being filled in the other way.
        let done = allow(done, &[ErrorKind::Exists, ErrorKind::Busy]).map_err(|error| format!("{how:?} of {}: {error}", old.name()))?;
        if done.is_none() {
            return Ok(None);
        }
        self.suspects.insert(new.name().to_owned(), if is_copied && is_wrong { Suspect::Wrong } else { Suspect::Filling });
        if is_copied {
            self.copying.insert(new.name().to_owned());
            self.tally.rebuilt += 1;
        }
        self.tally.exchanged += 1;
        Ok(Some(new))
    }

    /// Are the others enough if a device has what is wrong?
    fn is_enough_without(&mut self, device: &Device) -> bool {
        let before = self.suspects.clone();
        self.suspects.insert(device.name().to_owned(), Suspect::Wrong);
        let is_enough = self.tops.iter().all(|top| self.is_enough(top));
        self.suspects = before;
        is_enough
    }

    /// Devices come, go, or stand in for others, as the kind of vdevs has it.
    pub(super) fn change_members(&mut self) -> Result<(), String> {
        match self.shape.kind {
            Kind::Mirror => self.change_mirror(),
            Kind::Draid(_) => self.change_spares(),
            Kind::Raidz => self.replace(),
        }
    }

    /// Replaces a device, a dead one first.
    pub(super) fn replace(&mut self) -> Result<(), String> {
        self.forget_departed();
        if let Some((top, column)) = self.dead_newcomer() {
            let new = self.tops[top][column][1].clone();
            self.say(format!("detach {}", new.name()));
            let Some(guid) = self.guid(new.name()) else { return Ok(()) };
            let done = self.pool.engine().detach_device(guid);
            allow(done, &[ErrorKind::Exists, ErrorKind::Busy]).map_err(|error| format!("detach of {}: {error}", new.name()))?;
            self.forget_departed();
            return Ok(());
        }
        let single = |column: &Vec<Arc<Device>>| column.len() == 1;
        let mut places = Vec::new();
        for (top, columns) in self.tops.iter().enumerate() {
            places.extend(columns.iter().enumerate().filter(|(_, column)| single(column)).map(|(column, _)| (top, column)));
        }
        let is_dead = |(top, column): &(usize, usize)| self.suspects.get(self.tops[*top][*column][0].name()) == Some(&Suspect::Dead);
        let dead: Vec<(usize, usize)> = places.iter().copied().filter(is_dead).collect();
        let choice = if dead.is_empty() { places } else { dead };
        if choice.is_empty() {
            return Ok(());
        }
        let (top, column) = choice[self.random.random_range(0..choice.len())];
        let old = self.tops[top][column][0].clone();
        if let Some(new) = self.put_beside(&old, Beside::Replacement)? {
            self.tops[top][column].push(new);
        }
        if self.random.random() { self.wait() } else { Ok(()) }
    }

    /// Where a device died that was to replace another.
    fn dead_newcomer(&self) -> Option<(usize, usize)> {
        let is_dead = |device: &Arc<Device>| self.suspects.get(device.name()) == Some(&Suspect::Dead);
        let columns = self.tops.iter().enumerate().flat_map(|(top, columns)| columns.iter().enumerate().map(move |(column, devices)| (top, column, devices)));
        columns.filter(|(_, _, devices)| devices.len() == 2 && is_dead(&devices[1])).map(|(top, column, _)| (top, column)).next()
    }

    pub(super) fn has_dead(&self) -> bool {
        self.suspects.values().any(|suspect| *suspect == Suspect::Dead)
    }

    /// A side comes, goes, or becomes a pool of its own.
    fn change_mirror(&mut self) -> Result<(), String> {
        self.wait()?;
        let top = self.random.random_range(0..self.tops.len());
        let sides = self.tops[top].len();
        if sides < SIDES_MAX && self.random.random() {
            let beside = self.tops[top].iter().flatten().find(|device| !self.suspects.contains_key(device.name())).cloned();
            let Some(beside) = beside else { return Ok(()) };
            if let Some(new) = self.put_beside(&beside, Beside::Mirror)? {
                self.tops[top].push(vec![new]);
            }
            return if self.random.random() { self.wait() } else { Ok(()) };
        }
        if !self.suspects.is_empty() || self.kept.is_some() || self.pool.engine().is_removing() {
            return Ok(());
        }
        if self.tops.iter().all(|top| top.len() > 2) && self.random.random() {
            return self.split();
        }
        if sides > 2 {
            let gone = self.tops[top][self.random.random_range(0..sides)][0].clone();
            self.say(format!("detach {}", gone.name()));
            self.tally.exchanged += 1;
            let Some(guid) = self.guid(gone.name()) else { return Ok(()) };
            self.pool.engine().detach_device(guid).map_err(|error| format!("detach: {error}"))?;
            self.forget_departed();
        }
        Ok(())
    }

    fn split(&mut self) -> Result<(), String> {
        self.sync()?;
        let chosen: Vec<Arc<Device>> = self.tops.iter().map(|top| top[top.len() - 1][0].clone()).collect();
        let guids: Vec<u64> = chosen.iter().filter_map(|device| self.guid(device.name())).collect();
        self.say(format!("split off {}", chosen.iter().map(|device| device.name()).collect::<Vec<_>>().join(", ")));
        let options = OpenOptions {
            host: RealHost::shared(),
            tunables: fast(),
            read_only: false,
            file_owner: None,
            new_name: Some("half".into()),
            forget_log: false,
        };
        let half = self.pool.engine().split(&guids, options).map_err(|error| format!("split: {error}"))?;
        half.export().map_err(|error| format!("export of what was split off: {error}"))?;
        self.tally.exchanged += 1;
        self.forget_departed();
        let half = import(chosen, true)?;
        let fs = half.file_system("half").map_err(|error| format!("half: {error}"))?;
        let same = expect_right(&self.files.compare(&fs));
        fs.release_all();
        drop(fs);
        half.export().map_err(|error| format!("half: {error}"))?;
        same.map_err(|error| format!("what was split off: {error}"))
    }
}
