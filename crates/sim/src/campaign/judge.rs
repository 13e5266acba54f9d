//! The court of a campaign.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use disk::Disk;
use rand::Rng;
use rand::seq::SliceRandom;
use tarnfs::Pool;

use super::device::Device;
use super::files::Wrong;
use super::round::{Columns, Round, expect_right, import, open_files};
use crate::explore::state::store;
use crate::oracle;

/// More than there can be dead devices.
const DEAD_MAX: usize = 32;
/// Sets of devices that are tried alone, for each round.
const SETS: usize = 2;

fn check(pool: &Pool) -> Result<(), String> {
    let report = pool.check(true, &|_| ()).map_err(|error| format!("check: {error}"))?;
    if report.is_clean() { Ok(()) } else { Err(format!("our checker: {:?}", report.findings.iter().take(10).collect::<Vec<_>>())) }
}

fn copies(columns: &[&Vec<Arc<Device>>]) -> Vec<Arc<Device>> {
    columns.iter().flat_map(|column| column.iter()).map(|device| device.copy()).collect()
}

impl Round {
    /// All devices are there again and a scrub is done: nothing is lost, nothing is left to repair, and any set of devices that is enough has everything.
    pub(super) fn judge(&mut self) -> Result<(), String> {
        self.say("judge");
        self.give_back()?;
        self.discard()?;
        self.wait()?;
        for _ in 0..DEAD_MAX {
            if !self.has_dead() {
                break;
            }
            self.replace()?;
            self.wait()?;
            // While a vdev is removed nothing is replaced.
            if self.has_dead() && self.pool.engine().is_removing() {
                self.finish_reshaping()?;
            }
        }
        self.look_alone()?;
        let before = self.scrub_now()?;
        self.finish_reshaping()?;
        self.wait()?;
        let first = self.scrub_now()?;
        let second = self.scrub_now()?;
        if (before.0, first.0, second) != (0, 0, (0, 0)) {
            return Err(format!("errors and repaired bytes of the first scrub: {before:?}, of the second: {first:?}, of the third: {second:?}"));
        }
        if !self.suspects.is_empty() {
            return Err(format!("still suspect: {:?}", self.suspects));
        }
        self.read()?;
        self.export()?;
        for _ in 0..SETS {
            self.judge_alone()?;
        }
        Ok(())
    }

    /// Nobody is suspect: any set of devices that is enough has everything, in the middle of whatever is under way, and without a scrub that would repair what is not as it should be.
    pub(super) fn look_alone(&mut self) -> Result<(), String> {
        if !self.suspects.is_empty() || !self.spread.is_empty() || self.stand_ins.values().any(|spare| spare.is_wrong) {
            return Ok(());
        }
        self.say("look at sets of devices alone");
        self.export()?;
        let seen = self.judge_alone().map_err(|error| format!("before a scrub: {error}"));
        self.open_again()?;
        seen
    }

    /// As many devices are left out as there is redundancy.
    fn judge_alone(&mut self) -> Result<(), String> {
        let mut left = Vec::new();
        for top in &self.tops {
            let mut columns: Vec<&Vec<Arc<Device>>> = top.iter().collect();
            columns.shuffle(&mut self.random);
            columns.truncate(top.len() - self.redundancy(top));
            left.extend(columns);
        }
        let names: Vec<&str> = left.iter().flat_map(|column| column.iter()).map(|device| device.name()).collect();
        let only = format!("only {}", names.join(", "));
        let pool = import(copies(&left), true).map_err(|error| format!("{only}: {error}"))?;
        let fs = open_files(&pool)?;
        let same = expect_right(&self.files.compare(&fs)).and_then(|()| check(&pool));
        fs.release_all();
        pool.abandon();
        self.tally.alone += 1;
        same.map_err(|error| format!("{only}: {error}"))
    }

    /// The real `zdb` finds nothing wrong. After [`Round::run`].
    pub fn judge_by_zdb(&self, what: &str) {
        let place = tempfile::tempdir().expect("a directory");
        let images: Vec<_> = self.devices().iter().map(|device| device.image()).collect();
        let paths = store(&images, place.path()).expect("images");
        oracle::zdb_check(&paths.iter().map(|path| path.as_path()).collect::<Vec<&Path>>()).expect_clean(what);
    }

    /// One device too many is damaged: what can be read is right, and the log of errors names every file that cannot be. After [`Round::run`].
    ///
    /// # Errors
    /// A file has other contents, or was lost and is not named.
    pub fn judge_beyond(&mut self) -> Result<(), String> {
        let count = self.random.random_range(20..300);
        let mut columns: Vec<usize> = (0..self.tops[0].len()).collect();
        columns.shuffle(&mut self.random);
        columns.truncate(self.redundancy(&self.tops[0]) + 1);
        let top: Columns = self.tops[0].iter().map(|column| column.iter().map(|device| device.copy()).collect()).collect();
        for column in &columns {
            let device = &top[*column][0];
            let all = self.parity == 0 && columns.len() > 1 && self.random.random_range(0..3) == 0;
            device.damage(if all { None } else { Some(device.written(count)) }.as_deref());
        }
        self.say(format!("beyond the redundancy: {count} sectors of each of {columns:?}"));
        let others = self.tops[1..].iter().flatten().flatten().map(|device| device.copy());
        let devices = top.into_iter().flatten().chain(others).collect();
        // Metadata may be gone as well; then nothing wrong can be read.
        let Ok(pool) = import(devices, false) else { return Ok(()) };
        let named = open_files(&pool).map_or(Ok(0), |fs| {
            let wrong = self.files.compare(&fs);
            let named = all_are_named(&pool, &fs, &wrong);
            fs.release_all();
            named
        });
        pool.abandon();
        self.tally.lost += named?;
        Ok(())
    }
}

/// The objects with damaged blocks: those of the log, to which a group takes what was found before, and those found since.
fn damaged_objects(pool: &Pool) -> Result<BTreeSet<u64>, String> {
    let found = pool.engine().context.io.lost.all().into_iter().map(|(at, _)| at.object);
    let logged = pool.engine().damaged().map_err(|error| format!("the log of errors: {error}"))?;
    Ok(found.chain(logged.into_iter().map(|damaged| damaged.at.object)).collect())
}

/// Is every file that could not be read in the list of what was lost? How many those are.
fn all_are_named(pool: &Pool, fs: &tarnfs::FileSystem, wrong: &[Wrong]) -> Result<usize, String> {
    // A group that is under way has taken what was found, and its log does not have it yet. One that fails names nothing, and may be asked again.
    let _ = pool.sync();
    let lost = damaged_objects(pool)?;
    for file in wrong {
        match file {
            Wrong::Other(name, said) => return Err(format!("{name} could be read, and {said}")),
            Wrong::Unreadable(name, said) => {
                // One whose name cannot be found is lost with its directory.
                let object = fs.lookup(fs.root(), name.as_bytes()).ok().map(|stat| stat.inode);
                if lost.is_empty() || object.is_some_and(|object| !lost.contains(&object) && !lost.contains(&0)) {
                    return Err(format!("{name} ({object:?}) could not be read ({said}), and what was lost does not name it: {lost:?}"));
                }
            }
        }
    }
    Ok(wrong.len())
}
