//! Vdevs that become wider, come or go.

#![allow(clippy::disallowed_methods)] // what is under way is done by real threads

use std::time::Instant;

use disk::Disk;
use engine::error::ErrorKind;
use engine::tunables::Parameter;
use engine::vdev::NewLeaf;
use rand::Rng;

use super::device::Device;
use super::round::{PATIENCE, Round};
use super::shape::Kind;
use super::spares::allow;

/// RAID-Z does not become wider, mirrors not more.
const COLUMNS_MAX: usize = 9;
const TOPS_MAX: usize = 4;

impl Round {
    /// RAID-Z gets a device more; of mirrors one comes or goes.
    pub(super) fn reshape(&mut self) -> Result<(), String> {
        self.forget_departed();
        match self.shape.kind {
            Kind::Raidz => self.expand(),
            Kind::Mirror if self.tops.len() > 1 && self.random.random_range(0..3) > 0 => self.remove(),
            Kind::Mirror if self.tops.len() < TOPS_MAX => self.add(),
            _ => Ok(()),
        }
    }

    pub(super) fn is_expanding(&self) -> bool {
        self.pool.engine().expansion_progress().is_some_and(|progress| !progress.is_done)
    }

    fn expand(&mut self) -> Result<(), String> {
        let at = self.random.random_range(0..self.tops.len());
        if self.is_expanding() || self.tops[at].len() >= COLUMNS_MAX || !self.suspects.is_empty() {
            return Ok(());
        }
        let old = self.tops[at][0][0].clone();
        let engine = self.pool.engine().clone();
        let Some(guid) = engine.vdevs.data_tops().iter().find(|top| top.leaves().iter().any(|leaf| leaf.name() == old.name())).map(|top| top.guid()) else { return Ok(()) };
        let new = self.new_device(&old);
        if self.shape.is_stepwise {
            let bytes = self.random_bytes();
            self.limit_expansion(bytes);
        }
        let done = engine.expand_raidz(guid, NewLeaf { disk: new.clone(), path: new.name().to_owned(), whole_disk: false }, None);
        self.say(format!("{} makes vdev {at} wider: {done:?}", new.name()));
        if done.is_ok() {
            self.tops[at].push(vec![new]);
            self.tally.reshaped += 1;
        }
        // A checkpoint, or something is being replaced.
        allow(done, &[ErrorKind::Exists, ErrorKind::Busy, ErrorKind::NoDevice]).map(drop).map_err(|error| format!("expand: {error}"))
    }

    fn limit_expansion(&self, bytes: u64) {
        self.tunables.parameters.set(Parameter::ExpandBytesMax, &bytes.to_string()).expect("a number");
    }

    fn random_bytes(&mut self) -> u64 {
        self.random.random_range(1..4 << 20)
    }

    /// An expansion that goes on step by step may do one.
    pub(super) fn let_expand(&mut self) {
        let Some(progress) = self.pool.engine().expansion_progress().filter(|progress| !progress.is_done) else { return };
        if self.shape.is_stepwise {
            let more = self.random_bytes();
            self.limit_expansion(progress.moved + more);
        }
    }

    /// Is a device part of a vdev that is being removed?
    pub(super) fn is_leaving(&self, device: &Device) -> bool {
        let tops = self.pool.engine().vdevs.data_tops();
        tops.iter().any(|top| top.is_removing() && top.leaves().iter().any(|leaf| leaf.name() == device.name()))
    }

    fn remove(&mut self) -> Result<(), String> {
        let engine = self.pool.engine().clone();
        if engine.is_removing() {
            if self.random.random_range(0..3) > 0 {
                return Ok(());
            }
            let done = engine.cancel_removal();
            self.say(format!("the removal is given up: {done:?}"));
            // It has just ended.
            return allow(done, &[ErrorKind::NotFound]).map(drop).map_err(|error| format!("cancel: {error}"));
        }
        let at = self.random.random_range(0..self.tops.len());
        let devices: Vec<_> = self.tops[at].iter().flatten().cloned().collect();
        if devices.iter().any(|device| self.suspects.contains_key(device.name())) {
            return Ok(());
        }
        let Some(top) = engine.vdevs.data_tops().into_iter().find(|top| top.leaves().iter().any(|leaf| leaf.name() == devices[0].name())) else { return Ok(()) };
        let done = engine.remove_top(top.guid());
        self.say(format!("vdev {} of {} goes: {done:?}", top.id(), devices.iter().map(|device| device.name()).collect::<Vec<_>>().join(", ")));
        self.tally.reshaped += usize::from(done.is_ok());
        // A checkpoint, something is being replaced, another one is going, or the others have no room or cannot be written.
        let refusals = [ErrorKind::Exists, ErrorKind::Busy, ErrorKind::Invalid, ErrorKind::NoSpace, ErrorKind::Conflict];
        allow(done, &refusals).map(drop).map_err(|error| format!("remove: {error}"))
    }

    fn add(&mut self) -> Result<(), String> {
        let like = self.any_device();
        let sides: Vec<_> = (0..2).map(|_| self.new_device(&like)).collect();
        let done = self.pool.engine().add_vdevs(vec![self.shape.new_top(sides.iter())], false);
        self.say(format!("{} and {} come: {done:?}", sides[0].name(), sides[1].name()));
        if done.is_ok() {
            self.tops.push(sides.into_iter().map(|side| vec![side]).collect());
            self.tally.reshaped += 1;
        }
        allow(done, &[ErrorKind::Exists, ErrorKind::Busy, ErrorKind::Conflict]).map(drop).map_err(|error| format!("add: {error}"))
    }

    /// What is expanded or removed comes to its end.
    pub(super) fn finish_reshaping(&mut self) -> Result<(), String> {
        self.limit_expansion(0);
        let begun = Instant::now();
        while self.is_expanding() || self.pool.engine().is_removing() {
            if begun.elapsed() > PATIENCE {
                let engine = self.pool.engine();
                return Err(format!("it does not end: {:?} {:?} {:?}", engine.expansion_progress(), engine.last_removal(), engine.vdevs.status()));
            }
            self.pass()?;
        }
        self.pool.engine().vdevs.departures().wait();
        self.forget_departed();
        Ok(())
    }
}
