//! The states of a pool that can still be reached.

use std::ops::Deref;
use std::path::PathBuf;
use std::sync::Arc;

use disk::DiskRef;
use engine::error::Result;
use engine::host::RealHost;
use engine::pool::import::{Candidate, discover, discover_before, select};
use engine::pool::{OpenOptions, Pool as EnginePool};
use engine::tunables::Tunables;
use engine::{bail, error};

use crate::{Pool, zpl};

/// Memory for looking at one state.
const LOOK_CACHE_BYTES: u64 = 64 << 20;

/// The end of one group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct State {
    /// Its number.
    pub txg: u64,
    /// When it was written, in seconds since 1970.
    pub seconds: u64,
}

/// A snapshot, as it is chosen by time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SnapshotMoment {
    /// The part after the `@`.
    pub name: String,
    /// The group in which it was taken.
    pub txg: u64,
    /// When, in seconds since 1970.
    pub seconds: u64,
}

/// When to look.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Moment {
    /// The newest state on disk.
    Now,
    /// The state at the end of this group, or of the last one before it that is known.
    Group(u64),
    /// A snapshot.
    Snapshot(String),
    /// The last state or snapshot not later than this, in seconds since 1970.
    Time(u64),
}

/// A pool that is looked at, whatever users it has. Nothing is written.
pub struct Past {
    name: String,
    guid: u64,
    disks: Vec<DiskRef>,
    states: Vec<State>,
}

/// A pool as it was, open for reading.
pub struct PastPool {
    pool: Arc<Pool>,
    /// Which state it is.
    pub state: State,
}

impl Deref for PastPool {
    type Target = Arc<Pool>;

    fn deref(&self) -> &Arc<Pool> {
        &self.pool
    }
}

impl Drop for PastPool {
    fn drop(&mut self) {
        self.pool.abandon();
    }
}

impl Past {
    /// Looks for a pool in `paths` (devices, files, or directories of them), by name or guid.
    ///
    /// # Errors
    /// There is none, or several.
    pub fn find(paths: &[PathBuf], name_or_guid: &str) -> Result<Past> {
        let candidates = discover(disk::find(paths));
        let candidate = match select(&candidates, name_or_guid, false) {
            Ok(candidate) => candidate,
            // Of a destroyed one more than ever.
            Err(error) => select(&candidates, name_or_guid, true).map_err(|_| error)?,
        };
        Ok(Past::of(candidate))
    }

    /// Of a pool that was found.
    pub fn of(candidate: &Candidate) -> Past {
        let states = candidate.uberblocks.iter().map(|uberblock| State { txg: uberblock.txg, seconds: uberblock.timestamp });
        let mut states: Vec<State> = states.collect();
        states.sort_by_key(|state| std::cmp::Reverse(state.txg));
        states.dedup_by_key(|state| state.txg);
        let disks = candidate.devices.iter().map(|device| device.disk.clone()).collect();
        Past { name: candidate.config.name.clone(), guid: candidate.config.guid, disks, states }
    }

    /// The pool's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The states that the labels lead to, newest first. What they had may be gone.
    pub fn states(&self) -> &[State] {
        &self.states
    }

    /// Opens the newest state; if that is damaged, the newest one that can be opened.
    ///
    /// # Errors
    /// No state can be read.
    pub fn newest(&self) -> Result<PastPool> {
        let mut failed = None;
        // If somebody writes the pool, what was found first may be gone by now.
        for _ in 0..3 {
            match self.open(u64::MAX, None) {
                Ok(pool) => return Ok(pool),
                Err(error) => failed = Some(error),
            }
        }
        let older = self.states.iter().find_map(|state| self.at(*state).ok());
        older.ok_or_else(|| failed.unwrap_or_else(|| error!(NotFound, "pool {}: there is no state", self.name)))
    }

    /// The groups after a state that the labels know: those that [`Past::newest`] passed over, as they cannot be read. Newest first.
    pub fn groups_after(&self, state: State) -> impl Iterator<Item = u64> + '_ {
        self.states.iter().map(|state| state.txg).take_while(move |txg| *txg > state.txg)
    }

    /// The newest state that has a file system which is not there now.
    pub(super) fn last_with(&self, dataset: &str) -> Option<State> {
        let has = |state: &State| self.at(*state).is_ok_and(|pool| pool.file_system(dataset).is_ok());
        self.states.iter().copied().find(has)
    }

    /// Opens one state.
    ///
    /// # Errors
    /// Its uberblock was written over, or it cannot be read any more.
    pub fn at(&self, state: State) -> Result<PastPool> {
        self.open(state.txg, Some(state.txg))
    }

    fn open(&self, txg_max: u64, exactly: Option<u64>) -> Result<PastPool> {
        let found = discover_before(self.disks.clone(), txg_max).into_iter().find(|found| found.config.guid == self.guid);
        let found = found.ok_or_else(|| error!(NotFound, "pool {}: no state as old as txg {txg_max} is left", self.name))?;
        let uberblock = found.uberblock();
        let state = State { txg: uberblock.txg, seconds: uberblock.timestamp };
        if exactly.is_some_and(|txg| txg != state.txg) {
            bail!(NotFound, "pool {}: txg {txg_max} was written over meanwhile", self.name);
        }
        let tunables = Tunables { write_workers: 1, cache_bytes_max: LOOK_CACHE_BYTES, ..Tunables::default() };
        let options = OpenOptions {
            host: RealHost::shared(),
            tunables,
            read_only: true,
            file_owner: Some(zpl::file_owner),
            new_name: None,
            forget_log: true,
        };
        let pool = Pool::wrap(EnginePool::open(&found, options)?);
        Ok(PastPool { pool, state })
    }

    /// The snapshots of a file system, newest first.
    ///
    /// # Errors
    /// There is no such dataset, or it cannot be read.
    pub fn snapshots(pool: &Pool, dataset: &str) -> Result<Vec<SnapshotMoment>> {
        let dsl = &pool.engine().dsl;
        let mut found = Vec::new();
        for (name, object) in dsl.open_dataset(dataset)?.snapshots()? {
            let record = dsl.dataset_record(object)?;
            found.push(SnapshotMoment { name, txg: record.creation_txg.get(), seconds: record.creation_time.get() });
        }
        found.sort_by_key(|snapshot| std::cmp::Reverse(snapshot.txg));
        Ok(found)
    }

    /// Opens a file system at a moment: the pool, and the name of what is to be opened in it.
    ///
    /// # Errors
    /// Nothing is left of that moment.
    pub fn open_at(&self, dataset: &str, moment: &Moment) -> Result<(PastPool, String)> {
        let head = |pool: PastPool| (pool, dataset.to_owned());
        let before = |fits: &dyn Fn(&State) -> bool| self.states.iter().find(|state| fits(state)).copied();
        match moment {
            Moment::Now => self.newest().map(head),
            Moment::Snapshot(name) => Ok((self.newest()?, format!("{dataset}@{name}"))),
            Moment::Group(txg) => match before(&|state| state.txg <= *txg) {
                Some(state) => self.at(state).map(head),
                None => bail!(NotFound, "pool {}: {}", self.name, self.oldest_words()),
            },
            Moment::Time(seconds) => {
                let state = before(&|state| state.seconds <= *seconds);
                let newest = self.newest()?;
                let snapshot = Past::snapshots(&newest, dataset)?.into_iter().find(|snapshot| snapshot.seconds <= *seconds);
                match (state, snapshot) {
                    (Some(state), Some(snapshot)) if snapshot.txg >= state.txg => Ok((newest, format!("{dataset}@{}", snapshot.name))),
                    (Some(state), snapshot) => match (self.at(state), snapshot) {
                        (Err(_), Some(snapshot)) => Ok((newest, format!("{dataset}@{}", snapshot.name))),
                        (opened, _) => opened.map(head),
                    },
                    (None, Some(snapshot)) => Ok((newest, format!("{dataset}@{}", snapshot.name))),
                    (None, None) => bail!(NotFound, "pool {}: no snapshot is as old as that, and {}", self.name, self.oldest_words()),
                }
            }
        }
    }

    fn oldest_words(&self) -> String {
        self.states.last().map_or("no group is left".to_owned(), |oldest| format!("the oldest group that is left is txg {}", oldest.txg))
    }
}
