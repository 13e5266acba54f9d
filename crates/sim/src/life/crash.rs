//! Verbs that a loss of power cuts off.
//!
//! # Theory
//! As in [`crate::explore`], which has the disks, the cuts and the states: every verb is on disk when it returns, with all before it, but for a write that
//! was not to wait. So after a cut the pool is what the model is after some verbs, of which those that were acknowledged are none too many. A verb is
//! there or is not: what a half received stream or a rollback leaves, nobody sees, and the next import takes it away, unless it is to be resumed.
//!
//! Half of the states are opened for writing: what is freed in the background goes on to its end, and more verbs are done.

use std::ops::Range;
use std::sync::{Arc, OnceLock};
use std::sync::atomic::{AtomicU64, Ordering};

use engine::canary::Canary;
use engine::host::{Host, RealHost};
use parking_lot::Mutex;
use rand::seq::SliceRandom;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use tarnfs::{Error, Pool};

use super::compare::{Guids, compare};
use super::ground::{ground, next_verb};
pub use super::ground::{Workload, first_pair, pair_count};
use super::model::Tree;
use super::perform::perform;
use super::verb::{Cut, Receive, Verb};
use crate::explore::disk::{Cutter, Event, Image, Recorder, Vices};
use crate::explore::run::{LAYOUTS, Opened, create};
use crate::explore::state::{self, State, states_of};
use crate::oracle;
use crate::scenario::properties;

/// Enough to see that something is wrong.
const FAILURES_MAX: usize = 5;
/// Groups in which all that was destroyed comes free.
const GROUPS_MAX: usize = 200;
/// Verbs that are done to a recovered pool.
const VERBS_AFTER: usize = 4;

/// A pool at the ground.
struct Base {
    layout: &'static str,
    images: Vec<Image>,
    tree: Tree,
    guids: Guids,
}

impl Base {
    fn new(layout: &crate::explore::run::Layout) -> Result<Base, Error> {
        let opened = Opened::import(&create(layout), false, None, None, Vices::default())?;
        // To look at a file is no change.
        opened.pool.engine().dsl.set_properties("tank", properties(&[("atime", "off")])).map_err(Error::from)?;
        let mut tree = Tree::new("tank");
        for verb in ground() {
            perform(&opened.pool, &verb)?;
            tree.apply(&verb).unwrap_or_else(|kind| panic!("{verb:?}: {kind:?}"));
        }
        opened.pool.sync()?;
        let mut guids = Guids::new();
        compare(&opened.pool, &tree, &mut guids, false).unwrap_or_else(|reason| panic!("the ground: {reason}"));
        opened.pool.export()?;
        Ok(Base { layout: layout.name, images: opened.images(), tree, guids })
    }
}

/// A run: its verbs, and what the disks saw of it.
pub struct Tale {
    /// The verbs.
    pub verbs: Vec<Verb>,
    /// Whether each was done: one that is refused brings nothing to disk.
    done: Vec<bool>,
    /// The trees before the first verb, after it, and so on.
    trees: Vec<Tree>,
    /// The events at the disks.
    pub events: Vec<Event>,
    base: Vec<Image>,
    guids: Guids,
    layout: &'static str,
}

/// What is explored.
#[derive(Debug, Clone)]
pub struct Plan {
    /// The first workload.
    pub first: Workload,
    /// Which of the workloads, in their order from the first on.
    pub numbers: Range<u64>,
    /// It ends after this many states.
    pub states: u64,
    /// States of one workload, at most.
    pub of_each: usize,
    /// One state for each cut, instead of any.
    pub one_of_each_cut: bool,
    /// One state in this many is opened for writing, too.
    pub write_every: u64,
    /// One state in this many is shown to the real `zdb`; 0: none.
    pub zdb_every: u64,
    /// Threads.
    pub threads: usize,
    /// The bug that is switched on.
    pub canary: Option<Canary>,
    /// From one pair to the next: [`FAR`], or 1 for those with the same first verb.
    pub step: u64,
}

/// Neighbours in this order have little in common: the number of pairs is no multiple of it.
pub const FAR: u64 = 1009;

/// The results.
#[derive(Debug, Default)]
pub struct Report {
    /// Workloads done.
    pub workloads: u64,
    /// States looked at.
    pub states: u64,
    /// Of them opened for writing.
    pub written: u64,
    /// Of them shown to the real `zdb`.
    pub shown: u64,
    /// Seconds that it took.
    pub seconds: f64,
    /// What is wrong, with the command that looks at it again.
    pub failures: Vec<String>,
}

impl std::fmt::Display for Report {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Report { workloads, states, written, shown, seconds, failures } = self;
        write!(f, "{states} crash states of {workloads} workloads of verbs in {seconds:.0} s, {written} of them written, {shown} shown to the real zdb; {} failures", failures.len())
    }
}

/// Layouts that verbs are done on: the first of all.
const VERB_LAYOUTS: usize = 4;

/// Pools at the ground, one of each layout, made when they are needed. The number of a workload says which is its own.
#[derive(Default)]
pub struct Explorer([OnceLock<Base>; VERB_LAYOUTS]);

impl Explorer {
    fn base(&self, number: u64) -> &Base {
        let at = (number % VERB_LAYOUTS as u64) as usize;
        self.0[at].get_or_init(|| Base::new(&LAYOUTS[at]).unwrap_or_else(|error| panic!("the ground on {}: {error}", LAYOUTS[at].name)))
    }

    /// Does a workload.
    ///
    /// # Panics
    /// A verb is not refused or done as the model says.
    pub fn tell(&self, workload: Workload, canary: Option<Canary>) -> Tale {
        let number = match workload {
            Workload::Pair(number) | Workload::Random(number) => number,
        };
        let base = self.base(number);
        let recorder = Arc::new(Recorder::default());
        // Other numbers than those of the ground: a guid must be another.
        let opened = Opened::import_as(4, &base.images, false, Some(&recorder), canary, Vices::default()).unwrap_or_else(|error| panic!("import: {error}"));
        let (verbs, mut trees, mut done) = (workload.verbs(&base.tree), vec![base.tree.clone()], Vec::new());
        for (number, verb) in verbs.iter().enumerate() {
            recorder.note(Event::Begin(number));
            let found = perform(&opened.pool, verb);
            recorder.note(Event::End(number));
            let mut tree = trees[number].clone();
            let expected = tree.apply(verb);
            assert_eq!(found.as_ref().map(|()| ()).map_err(Error::kind), expected, "{workload}: {verb:?}: {found:?}");
            done.push(expected.is_ok());
            trees.push(if expected.is_ok() { tree } else { trees[number].clone() });
        }
        drop(opened);
        Tale { verbs, done, trees, events: recorder.take(), base: base.images.clone(), guids: base.guids.clone(), layout: base.layout }
    }

    /// Looks at states until there were as many as planned, or something is wrong several times, or there are no more pairs.
    pub fn explore(&self, plan: &Plan) -> Report {
        let begun = RealHost.now_ns();
        let (next, report) = (AtomicU64::new(plan.numbers.start), Mutex::new(Report::default()));
        std::thread::scope(|scope| {
            for _ in 0..plan.threads.max(1) {
                scope.spawn(|| while self.explore_next(plan, &next, &report) {});
            }
        });
        let mut report = report.into_inner();
        report.seconds = (RealHost.now_ns() - begun) as f64 / 1e9;
        report
    }

    fn explore_next(&self, plan: &Plan, next: &AtomicU64, report: &Mutex<Report>) -> bool {
        {
            let report = report.lock();
            if report.states >= plan.states || report.failures.len() >= FAILURES_MAX {
                return false;
            }
        }
        let number = next.fetch_add(1, Ordering::Relaxed);
        if number >= plan.numbers.end {
            return false;
        }
        let workload = match plan.first {
            Workload::Pair(_) if number >= pair_count() => return false,
            Workload::Pair(first) => Workload::Pair(first.wrapping_add(number.wrapping_mul(plan.step)) % pair_count()),
            Workload::Random(seed) => Workload::Random(seed.wrapping_add(number)),
        };
        let tale = state::guarded(|| Ok(self.tell(workload, plan.canary)));
        report.lock().workloads += 1;
        match tale {
            Err(reason) => report.lock().failures.push(format!("{workload}: the workload itself failed: {reason}")),
            Ok(tale) => self.explore_tale(plan, workload, &tale, report),
        }
        true
    }

    fn explore_tale(&self, plan: &Plan, workload: Workload, tale: &Tale, report: &Mutex<Report>) {
        let mut dice = ChaCha8Rng::seed_from_u64(workload.seed());
        let mut states = states_of(&tale.events, &tale.base);
        states.shuffle(&mut dice);
        if plan.one_of_each_cut {
            let mut cuts = std::collections::BTreeSet::new();
            states.retain(|state| cuts.insert(state.cut));
        }
        states.truncate(plan.of_each);
        states.sort_unstable();
        let mut cutter = Cutter::new(&tale.events, tale.base.clone(), 0);
        for state in states {
            let images = state.images(&mut cutter, workload.seed());
            let one_in = |count: u64, dice: &mut ChaCha8Rng| count > 0 && dice.random_range(0..count) == 0;
            let (write, zdb) = (one_in(plan.write_every, &mut dice), one_in(plan.zdb_every, &mut dice));
            let result = tale.judge(&images, state, write, zdb, plan.canary);
            let mut report = report.lock();
            report.states += 1;
            report.written += u64::from(write);
            report.shown += u64::from(zdb);
            if let Err(reason) = result {
                let layout = tale.layout;
                report.failures.push(format!("{workload} on {layout}, state {state}: {reason}\n  again: cargo xtask explore --workload {workload} --state {state}"));
                return;
            }
        }
    }

    /// Looks at one state again.
    ///
    /// # Errors
    /// What is wrong; that there is no such state, too.
    pub fn replay(&self, workload: Workload, state: State, canary: Option<Canary>) -> Result<Tale, String> {
        let tale = self.tell(workload, canary);
        if state.cut > tale.events.len() {
            return Err(format!("there are only {} events", tale.events.len()));
        }
        let images = state.images(&mut Cutter::new(&tale.events, tale.base.clone(), 0), workload.seed());
        tale.judge(&images, state, true, true, canary).map(|()| tale)
    }
}

/// What may be there after a cut.
struct Allowed {
    /// So many verbs, one more than what was acknowledged last, or more.
    trees: std::ops::RangeInclusive<usize>,
    /// A stream was being received, or something was done to what a rollback began.
    receiving: bool,
    /// What is left of one may be resumed.
    resumable: bool,
}

impl Tale {
    fn allowed(&self, cut: usize) -> Allowed {
        let (mut begun, mut ended) = (0, 0);
        for event in &self.events[..cut] {
            match event {
                Event::Begin(number) => begun = number + 1,
                Event::End(number) => ended = number + 1,
                _ => {}
            }
        }
        let safe = (0..ended).rev().find(|number| self.done[*number] && self.verbs[*number].is_durable()).map_or(0, |number| number + 1);
        let last = begun.checked_sub(1).filter(|_| begun > ended).map(|number| &self.verbs[number]);
        let receiving = matches!(last, Some(Verb::Receive(_) | Verb::RollBackAndWrite { .. }));
        let resumable = matches!(last, Some(Verb::Receive(Receive { cut: Cut::Resumed(_), .. })));
        Allowed { trees: safe..=begun, receiving, resumable }
    }

    /// Which of the trees it is.
    fn fit(&self, pool: &Arc<Pool>, allowed: &Allowed, receiving: bool) -> Result<usize, String> {
        let mut reasons = String::new();
        for number in allowed.trees.clone().rev() {
            match compare(pool, &self.trees[number], &mut self.guids.clone(), receiving) {
                Ok(()) => return Ok(number),
                Err(reason) => reasons += &format!("\n  after {number} verbs: {reason}"),
            }
        }
        Err(format!("it is not the state{reasons}"))
    }

    fn judge(&self, images: &[Image], state: State, write: bool, zdb: bool, canary: Option<Canary>) -> Result<(), String> {
        state::guarded(|| {
            let allowed = self.allowed(state.cut);
            let opened = open(images, true, None)?;
            check(&opened)?;
            self.fit(&opened.pool, &allowed, allowed.receiving)?;
            drop(opened);
            if zdb {
                state::zdb(images, oracle::zdb_check_crashed)?;
            }
            if write { self.go_on(images, &allowed, state, zdb, canary) } else { Ok(()) }
        })
    }

    /// Imports for writing, frees what is to be freed, does more, and looks again.
    fn go_on(&self, images: &[Image], allowed: &Allowed, state: State, zdb: bool, canary: Option<Canary>) -> Result<(), String> {
        let text = |error: Error| format!("opened for writing: {error}");
        // A bug that is looked for is there in the recovery, too.
        let opened = open(images, false, canary)?;
        let mut tree = self.trees[self.fit(&opened.pool, allowed, allowed.resumable).map_err(|reason| format!("opened for writing: {reason}"))?].clone();
        let mut dice = state.dice(1);
        for _ in 0..if allowed.resumable { 0 } else { VERBS_AFTER } {
            let verb = next_verb(&tree, &mut dice);
            let mut after = tree.clone();
            let (expected, found) = (after.apply(&verb), perform(&opened.pool, &verb));
            if found.as_ref().map(|()| ()).map_err(Error::kind) != expected {
                return Err(format!("afterwards: {verb:?}: {found:?}, not {expected:?}"));
            }
            tree = if expected.is_ok() { after } else { tree };
        }
        for _ in 0..GROUPS_MAX {
            opened.pool.sync().map_err(text)?;
            if !opened.pool.engine().dsl.has_background_frees().map_err(text)? {
                break;
            }
        }
        if opened.pool.engine().dsl.has_background_frees().map_err(text)? {
            return Err("opened for writing: freeing has no end".to_owned());
        }
        let images = opened.images();
        drop(opened);
        let opened = open(&images, true, None)?;
        check(&opened).map_err(|reason| format!("afterwards: {reason}"))?;
        compare(&opened.pool, &tree, &mut Guids::new(), allowed.resumable).map_err(|reason| format!("afterwards: {reason}"))?;
        drop(opened);
        if zdb { state::zdb(&images, oracle::zdb_check_crashed).map_err(|reason| format!("afterwards: {reason}")) } else { Ok(()) }
    }
}

fn open(images: &[Image], read_only: bool, canary: Option<Canary>) -> Result<Opened, String> {
    // Not the numbers that were drawn before: a guid must be another.
    let opened = Opened::import_as(3, images, read_only, None, canary, Vices::default());
    opened.map_err(|error| format!("import{}: {error}", if read_only { " (read-only)" } else { "" }))
}

fn check(opened: &Opened) -> Result<(), String> {
    let report = opened.pool.check(true, &|_| ()).map_err(|error| format!("check: {error}"))?;
    if report.is_clean() { Ok(()) } else { Err(format!("our checker found: {:?}", report.findings.iter().take(5).collect::<Vec<_>>())) }
}
