//! Many states of many workloads, on all processors.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};

use engine::canary::Canary;
use engine::host::{Host, RealHost};
use parking_lot::Mutex;
use rand::seq::SliceRandom;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::disk::{Cutter, Event, Image, Vices};
use super::judge::Promises;
use super::op::Op;
use super::run::{LAYOUTS, ROOMY_LAYOUTS, Story, create};
use super::state::{Depth, State, judge, states};
use super::workload::{Workload, short_count};

/// How `fsync` is meant: to write the intent log.
pub const LOG: bool = true;

/// The sequences that are explored.
#[derive(Debug, Clone, Copy)]
pub struct Plan {
    /// The first number: the seed of the first random workload, or where to begin among all sequences.
    pub seed: u64,
    /// The campaign ends after this many states.
    pub states: u64,
    /// States of one random workload, at most.
    pub of_each: usize,
    /// One state in this many is opened for writing, too.
    pub write_every: u64,
    /// One state in this many is shown to the real `zdb`; 0: none.
    pub zdb_every: u64,
    /// Threads.
    pub threads: usize,
    /// The bug that is switched on.
    pub canary: Option<Canary>,
    /// Which workloads.
    pub kind: Kind,
}

/// Which workloads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Random ones.
    Random,
    /// The same beside scrubs.
    Scrubbed,
    /// The same beside removals of vdevs.
    Removing,
    /// All sequences of this many operations, in order.
    Short(u32),
    /// Random sequences of this many operations.
    Sample(u32),
}

/// Something is wrong.
#[derive(Debug, Clone)]
pub struct Failure {
    /// The workload.
    pub workload: Workload,
    /// The state.
    pub state: State,
    /// What is wrong.
    pub reason: String,
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Failure { workload, state, reason } = self;
        write!(f, "{workload} on {}, state {state}: {reason}\n  again: cargo xtask explore --workload {workload} --state {state}", layout_of(*workload).name)
    }
}

/// The results of a campaign.
#[derive(Debug, Default)]
pub struct Report {
    /// Numbers that were used up, from [`Plan::seed`] on; the next campaign goes on after them.
    pub numbers: u64,
    /// Workloads done: a number need not be one.
    pub workloads: u64,
    /// States looked at.
    pub states: u64,
    /// Of them opened for writing.
    pub written: u64,
    /// Of them shown to the real `zdb`.
    pub shown: u64,
    /// Seconds that it took.
    pub seconds: f64,
    /// The failures; at most [`FAILURES_MAX`].
    pub failures: Vec<Failure>,
}

/// Enough to see that something is wrong.
const FAILURES_MAX: usize = 5;

impl std::fmt::Display for Report {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Report { workloads, states, written, shown, seconds, failures, numbers: _ } = self;
        let rate = *states as f64 / seconds.max(0.001);
        write!(f, "{states} crash states of {workloads} workloads in {seconds:.0} s ({rate:.0}/s), {written} of them written, ")?;
        write!(f, "{shown} shown to the real zdb; {} failures", failures.len())
    }
}

fn layout_of(workload: Workload) -> &'static super::run::Layout {
    // Short sequences go through the layouts by numbers that have nothing to do with what they are made of.
    let number = match workload {
        Workload::Removing(seed) => return &ROOMY_LAYOUTS[(seed % ROOMY_LAYOUTS.len() as u64) as usize],
        Workload::Random(seed) | Workload::Scrubbed(seed) => seed,
        Workload::Short(_, number) => number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32,
    };
    &LAYOUTS[(number % LAYOUTS.len() as u64) as usize]
}

/// Empty pools, one of each layout.
pub struct Explorer {
    bases: Vec<Vec<Image>>,
}

impl Default for Explorer {
    fn default() -> Self {
        Explorer { bases: LAYOUTS.iter().chain(&ROOMY_LAYOUTS).map(create).collect() }
    }
}

/// The state that threads share.
struct Shared {
    next: AtomicU64,
    report: Mutex<Report>,
}

impl Explorer {
    /// Does a workload; `None`: there is none of this name.
    pub fn tell(&self, workload: Workload, canary: Option<Canary>, vices: Vices) -> Option<Story> {
        let layout = layout_of(workload);
        let base = LAYOUTS.iter().chain(&ROOMY_LAYOUTS).position(|other| other == layout).map(|index| &self.bases[index])?;
        Some(Story::tell(workload.ops()?, base, LOG, canary, vices))
    }

    /// A workload, and the images of one of its states.
    ///
    /// # Errors
    /// There is no such workload or state.
    pub fn state(&self, workload: Workload, state: State, canary: Option<Canary>) -> Result<(Story, Vec<Image>), String> {
        let story = self.tell(workload, canary, Vices::default()).ok_or("there is no such workload")?;
        if state.cut > story.events.len() {
            return Err(format!("there are only {} events", story.events.len()));
        }
        let images = state.images(&mut Cutter::new(&story.events, story.base.clone(), 0), workload.seed());
        Ok((story, images))
    }

    /// Looks at one state again.
    ///
    /// # Errors
    /// What is wrong.
    pub fn replay(story: &Story, images: &[Image], workload: Workload, state: State) -> Result<(), String> {
        let promises = Promises::at(story, state.cut);
        let depth = Depth { write: true, twice: true, zdb: true, lives: 2, lost: layout_of(workload).redundancy() };
        judge(story, images, promises, depth, &mut state.dice(!workload.seed()))
    }

    /// Looks at states until there were as many as planned, or something is wrong several times, or there are no more workloads.
    pub fn explore(&self, plan: &Plan) -> Report {
        let begun = RealHost.now_ns();
        let shared = Shared { next: AtomicU64::new(0), report: Mutex::default() };
        std::thread::scope(|scope| {
            for _ in 0..plan.threads.max(1) {
                scope.spawn(|| while self.explore_next(plan, &shared) {});
            }
        });
        let mut report = shared.report.into_inner();
        report.numbers = shared.next.into_inner();
        report.seconds = (RealHost.now_ns() - begun) as f64 / 1e9;
        report
    }

    /// The next workload; `false`: it is over.
    fn explore_next(&self, plan: &Plan, shared: &Shared) -> bool {
        {
            let report = shared.report.lock();
            if report.states >= plan.states || report.failures.len() >= FAILURES_MAX {
                return false;
            }
        }
        let number = plan.seed.wrapping_add(shared.next.fetch_add(1, Ordering::Relaxed));
        let workload = match plan.kind {
            Kind::Random => Workload::Random(number),
            Kind::Scrubbed => Workload::Scrubbed(number),
            Kind::Removing => Workload::Removing(number),
            Kind::Short(length) if number >= short_count(length) => return false,
            Kind::Short(length) => Workload::Short(length, number),
            Kind::Sample(length) => {
                let mut dice = ChaCha8Rng::seed_from_u64(number);
                Workload::Short(length, dice.random_range(0..short_count(length)))
            }
        };
        // A workload that cannot even be done is a failure like others.
        let told = catch_unwind(AssertUnwindSafe(|| self.tell(workload, plan.canary, Vices::default())));
        let Ok(story) = told else {
            let reason = "the workload itself failed: see the panic above".to_owned();
            shared.report.lock().failures.push(Failure { workload, state: State { cut: 0, variant: 0 }, reason });
            return true;
        };
        let Some(story) = story else { return true };
        shared.report.lock().workloads += 1;
        self.explore_story(plan, workload, &story, shared);
        true
    }

    fn explore_story(&self, plan: &Plan, workload: Workload, story: &Story, shared: &Shared) {
        let mut states = states(story);
        if !matches!(plan.kind, Kind::Random | Kind::Scrubbed | Kind::Removing) {
            // The states before that are the same in all of them.
            states.retain(|state| state.cut > end_of_ground(story));
        }
        let mut dice = ChaCha8Rng::seed_from_u64(workload.seed());
        states.shuffle(&mut dice);
        states.truncate(plan.of_each);
        states.sort_unstable();
        let mut cutter = Cutter::new(&story.events, story.base.clone(), 0);
        for state in states {
            let images = state.images(&mut cutter, workload.seed());
            let one_in = |count: u64, dice: &mut ChaCha8Rng| count > 0 && dice.random_range(0..count) == 0;
            let write = one_in(plan.write_every, &mut dice);
            let lives = if write && dice.random_range(0..8) == 0 { 2 } else { 0 };
            let depth = Depth { write, twice: write && dice.random(), zdb: one_in(plan.zdb_every, &mut dice), lives, lost: layout_of(workload).redundancy() };
            let result = judge(story, &images, Promises::at(story, state.cut), depth, &mut state.dice(!workload.seed()));
            let mut report = shared.report.lock();
            report.states += 1;
            report.written += u64::from(depth.write);
            report.shown += u64::from(depth.zdb);
            if let Err(reason) = result {
                report.failures.push(Failure { workload, state, reason });
                return;
            }
        }
    }
}

/// Where the part that all short sequences begin with ends.
fn end_of_ground(story: &Story) -> usize {
    let ground = story.ops.iter().position(|op| *op == Op::Sync).unwrap_or(0);
    story.events.iter().position(|event| matches!(event, Event::End(number) if *number == ground)).unwrap_or(0)
}
