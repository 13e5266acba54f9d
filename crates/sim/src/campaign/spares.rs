//! Distributed spares of dRAID.

use disk::Disk;
use engine::error::ErrorKind;
use engine::pool::Fill;
use engine::vdev::VdevKind;
use rand::Rng;
use rand::seq::IndexedRandom;

use super::device::Device;
use super::round::{Round, Suspect};

/// A spare that stands in for a device.
#[derive(Debug, Clone, Copy)]
pub(super) struct StandIn {
    pub(super) guid: u64,
    /// It was filled by a rebuild, which copies what is wrong, too, and may not be at its end.
    pub(super) is_copied: bool,
    /// It may have what is wrong: right after a scrub.
    pub(super) is_wrong: bool,
}

impl Round {
    /// Has a spare everything that a device would have?
    pub(super) fn has_stand_in(&self, device: &Device) -> bool {
        self.stand_ins.get(device.name()).is_some_and(|spare| !spare.is_wrong && self.is_whole(spare.guid))
    }

    fn is_whole(&self, spare: u64) -> bool {
        self.pool.engine().vdevs.config().find(spare).is_some_and(|spare| ["DTL", "rebuild_txg", "resilver_txg"].iter().all(|key| spare.get(key).is_none()))
    }

    /// Does a spare that stands in for a device not have everything, and all devices are there on which it lies?
    pub(super) fn is_spare_filling(&self) -> bool {
        let config = self.pool.engine().vdevs.config();
        let leaves = self.pool.engine().vdevs.leaves();
        let is_there = |device: &Device| !device.is_gone() && leaves.iter().any(|leaf| leaf.name() == device.name() && leaf.is_open());
        let can_be_whole = |name: &str| {
            let beside = self.tops.iter().find(|top| top.iter().flatten().any(|device| device.name() == name));
            beside.is_some_and(|top| top.iter().flatten().all(|device| device.name() == name || is_there(device)))
        };
        self.stand_ins.iter().any(|(name, spare)| can_be_whole(name) && config.find(spare.guid).is_some() && !self.is_whole(spare.guid))
    }

    pub(super) fn forget_stand_ins(&mut self) {
        let config = self.pool.engine().vdevs.config();
        self.stand_ins.retain(|_, spare| config.find(spare.guid).is_some());
    }

    /// A spare comes in, for a device that is not there if there is one, or goes back.
    pub(super) fn change_spares(&mut self) -> Result<(), String> {
        self.forget_departed();
        let engine = self.pool.engine().clone();
        if self.random.random_range(0..3) == 0
            && let Some((name, spare)) = self.stand_ins.iter().find(|(name, _)| !self.suspects.contains_key(*name)).map(|(name, spare)| (name.clone(), *spare))
        {
            let done = engine.detach_device(spare.guid);
            self.say(format!("the spare for {name} goes back: {done:?}"));
            self.forget_stand_ins();
            return allow(done, &[ErrorKind::Exists, ErrorKind::Busy, ErrorKind::NoDevice]).map(drop).map_err(|error| format!("detach of a spare: {error}"));
        }
        let spares = engine.auxiliary().map_err(|error| format!("spares: {error}"))?.spares;
        let config = engine.vdevs.config();
        let Some(spare) = spares.iter().find(|spare| spare.kind == VdevKind::DraidSpare && config.find(spare.guid).is_none()) else { return Ok(()) };
        let of = engine.vdevs.data_tops().into_iter().find(|top| top.guid() == spare.number("top_guid")).ok_or("a spare is of no vdev")?;
        let is_free = |name: &str| !self.stand_ins.contains_key(name);
        let columns: Vec<_> = self.tops.iter().flatten().filter(|column| column.len() == 1 && is_free(column[0].name())).map(|column| column[0].clone()).collect();
        let guids: Vec<u64> = of.config().leaves().iter().map(|leaf| leaf.guid).collect();
        let places: Vec<_> = columns.into_iter().filter_map(|device| Some((self.guid(device.name())?, device))).filter(|(guid, _)| guids.contains(guid)).collect();
        let is_gone = |device: &Device| matches!(self.suspects.get(device.name()), Some(Suspect::Dead | Suspect::Behind));
        let gone: Vec<_> = places.iter().filter(|(_, device)| is_gone(device)).cloned().collect();
        let Some((old, device)) = if gone.is_empty() { &places } else { &gone }.choose(&mut self.random).cloned() else { return Ok(()) };
        let fill = if self.random.random() { Fill::Sequential } else { Fill::Healing };
        let done = engine.attach_distributed(old, spare.guid, fill);
        self.say(format!("a spare stands in for {}: {fill:?} {done:?}", device.name()));
        if done.is_ok() {
            let is_copied = fill == Fill::Sequential;
            let is_wrong = is_copied && self.is_any_wrong_beside(&device);
            self.stand_ins.insert(device.name().to_owned(), StandIn { guid: spare.guid, is_copied, is_wrong });
            self.tally.spared += 1;
            self.tally.rebuilt += usize::from(is_copied);
        }
        allow(done, &[ErrorKind::Busy, ErrorKind::Exists]).map(drop).map_err(|error| format!("a spare for {}: {error}", device.name()))
    }

    /// May something be wrong on a device of the same vdev?
    pub(super) fn is_any_wrong_beside(&self, device: &Device) -> bool {
        let top = self.tops.iter().find(|top| top.iter().flatten().any(|one| one.name() == device.name()));
        top.is_some_and(|top| top.iter().flatten().any(|one| self.suspects.get(one.name()) == Some(&Suspect::Wrong)) || top.iter().flatten().any(|one| self.stand_ins.get(one.name()).is_some_and(|spare| spare.is_wrong)))
    }
}

/// Is done, or was refused for one of these reasons?
pub(super) fn allow<T>(done: engine::error::Result<T>, refusals: &[ErrorKind]) -> Result<Option<T>, engine::error::Error> {
    match done {
        Ok(done) => Ok(Some(done)),
        Err(error) if refusals.contains(&error.kind()) => Ok(None),
        Err(error) => Err(error),
    }
}
