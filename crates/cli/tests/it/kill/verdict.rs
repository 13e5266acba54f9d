//! Is what is there after the kill something that may be there?
//!
//! # Theory
//! [`super::promises`] says what must be there, [`super::names`] which prefix of what each thread did to names is there, and
//! [`super::contents`] what each record of each file may be. Here they are put together: if an operation is there, so is
//! what was done, by whichever thread, before it began.

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::path::Path;

use super::contents::{Contents, contents};
use super::journal::{Event, Journal, Op};
use super::names::{self, Names, Prefixes, look, prefixes};
use super::promises::{self, Durable, ORDER, Order, durable, pool_synced};

/// What was looked at.
#[derive(Debug, Default, Clone)]
pub(super) struct Totals {
    pub(super) rounds: u64,
    pub(super) acknowledged: u64,
    pub(super) synced: u64,
    pub(super) pool_synced: u64,
    pub(super) survived: u64,
    pub(super) names: u64,
    pub(super) records: u64,
}

impl Totals {
    pub(super) fn add(&mut self, other: &Totals) {
        self.rounds += other.rounds;
        self.acknowledged += other.acknowledged;
        self.synced += other.synced;
        self.pool_synced += other.pool_synced;
        self.survived += other.survived;
        self.names += other.names;
        self.records += other.records;
    }
}

impl fmt::Display for Totals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Totals { rounds, acknowledged, synced, pool_synced, survived, names, records } = self;
        write!(f, "{rounds} rounds; {acknowledged} operations acknowledged, {synced} of them fsync, {pool_synced} zpool sync; ")?;
        write!(f, "{survived} operations on names survived; {names} names and {records} records compared")
    }
}

/// What one thread did and what is there of it.
struct Thread<'a> {
    number: usize,
    /// Its operations on names and attributes; without the latter where they have an order of their own.
    ordered: Vec<&'a Event>,
    durable: Durable,
    found: Prefixes,
}

/// Judges what one round left. Panics with what is wrong.
pub(super) fn judge(directory: &Path, journal: &Journal, what: &str) -> Totals {
    let threads = journal.read(what);
    let count = |wanted: &dyn Fn(&Op) -> bool| threads.iter().flatten().filter(|event| event.done.is_some() && wanted(&event.op)).count() as u64;
    let mut totals = Totals { rounds: 1, acknowledged: count(&|_| true), synced: count(&Op::is_sync), ..Totals::default() };
    totals.pool_synced = count(&|op| *op == Op::SyncPool);
    let pool = pool_synced(&threads);
    let contents = contents(&threads, pool);
    // The last operation that is known to be there: whatever was done before it began must be.
    let mut visible = (pool, "the pool was synced".to_owned());
    let mut judged = Vec::new();
    for (number, events) in threads.iter().enumerate() {
        let what = format!("{what}: thread {number}");
        let durable = durable(events, pool);
        if durable.begun > visible.0 {
            visible = (durable.begun, format!("what thread {number} synced"));
        }
        let place = directory.join(number.to_string());
        let mut actual = BTreeMap::new();
        if place.exists() {
            look(&place, "", &mut actual, &what);
        }
        let all: Vec<&Event> = events.iter().filter(|event| event.op.is_of_names()).collect();
        let ordered: Vec<&Event> = all.iter().copied().filter(|event| ORDER == Order::Groups || !event.op.is_of_attributes()).collect();
        let found = prefixes(&ordered, &actual, ORDER == Order::Groups);
        let Some(shortest) = found.fit.first() else {
            panic!("{what}: no prefix of its operations leads to {actual:#?}\n{ordered:#?}")
        };
        if ORDER == Order::Log {
            names::judge_facts(&all, &durable.files, &actual, &found.names).unwrap_or_else(|text| panic!("{what}: {text}"));
        }
        if let Some(last) = shortest.checked_sub(1)
            && ordered[last].begun > visible.0
        {
            visible = (ordered[last].begun, format!("thread {number}: {:?}", ordered[last].op));
        }
        totals.survived += *shortest as u64;
        totals.names += actual.len() as u64;
        totals.records += judge_contents(&place, &found.names, &contents, &what);
        judged.push(Thread { number, ordered, durable, found });
    }
    judged.iter().for_each(|thread| thread.has_all_that_it_must(&visible, what));
    totals
}

impl Thread<'_> {
    /// `visible`: the line before which everything that was done must be there, and why.
    fn has_all_that_it_must(&self, visible: &(usize, String), what: &str) {
        let Thread { number, ordered, durable, found } = self;
        let done = ordered.iter().filter(|event| event.done.is_some_and(|done| done < visible.0)).count();
        let owed = done.max(durable.names);
        let longest = *found.fit.last().unwrap();
        assert!(
            longest >= owed,
            "{what}: thread {number}: {longest} of its operations on names are there; {owed} were done before {} (line {}); the first that is missing: {:?}",
            visible.1,
            visible.0,
            ordered[longest]
        );
    }
}

fn judge_contents(place: &Path, names: &Names, contents: &BTreeMap<u64, Contents>, what: &str) -> u64 {
    let mut records = 0;
    for (name, file) in names.files() {
        let bytes = fs::read(place.join(name)).unwrap_or_else(|error| panic!("{what}: {name}: {error}"));
        records += contents[&file].judge(file, &bytes).unwrap_or_else(|text| panic!("{what}: {name}: {text}"));
    }
    records
}

/// Damage of every kind that the judge must see.
pub(super) fn canary() {
    super::contents::canary();
    names::canary();
    promises::canary();
}
