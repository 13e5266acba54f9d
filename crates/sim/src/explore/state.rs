//! One crash state: where the power went, what was kept, and what is done with the result.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::disk::{Cutter, Event, Image, Keep, Recorder, SimDisk, Vices};
use super::judge::{Promises, Seen};
use super::op::{Doer, Op};
use super::run::{Opened, Story};
use super::workload::random_in;
use crate::oracle::{self, OracleResult};

/// The writes that are kept in the variants of one cut. All later ones are [`Keep::Some`].
const VARIANTS: [Keep; 4] = [Keep::Nothing, Keep::Everything, Keep::Newest, Keep::AllButOldest];
/// Variants of one cut.
const VARIANTS_MAX: usize = 10;

/// A crash state of a story.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct State {
    /// The power goes just before this event.
    pub cut: usize,
    /// Which of the outcomes that has.
    pub variant: usize,
}

impl std::fmt::Display for State {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}.{}", self.cut, self.variant)
    }
}

impl State {
    /// As it is printed.
    pub fn parse(text: &str) -> Option<State> {
        let (cut, variant) = text.split_once('.')?;
        Some(State { cut: cut.parse().ok()?, variant: variant.parse().ok()? })
    }

    /// Random numbers of its own.
    pub fn dice(self, seed: u64) -> ChaCha8Rng {
        ChaCha8Rng::seed_from_u64(seed ^ (self.cut as u64) << 40 ^ (self.variant as u64) << 56)
    }

    /// The images when the power comes back. The cutter is not behind the cut.
    pub fn images(self, cutter: &mut Cutter<'_>, seed: u64) -> Vec<Image> {
        cutter.advance(self.cut);
        cutter.cut(VARIANTS.get(self.variant).copied().unwrap_or(Keep::Some), &mut self.dice(seed))
    }
}

/// All states of a story, in the order of their cuts.
pub fn states(story: &Story) -> Vec<State> {
    states_of(&story.events, &story.base)
}

/// All states that a loss of power among these events can leave, in the order of their cuts.
pub fn states_of(events: &[Event], base: &[Image]) -> Vec<State> {
    let mut found = Vec::new();
    let mut cutter = Cutter::new(events, base.to_vec(), 0);
    for cut in 0..=events.len() {
        // Before these nothing has changed since the last cut.
        if matches!(events.get(cut.wrapping_sub(1)), Some(Event::Begin(_))) {
            continue;
        }
        cutter.advance(cut);
        let variants = match cutter.pending() {
            0 => 1,
            1 => 5,
            2 => 7,
            _ => VARIANTS_MAX,
        };
        found.extend((0..variants).map(|variant| State { cut, variant }));
    }
    found
}

/// How closely a state is looked at.
#[derive(Debug, Clone, Copy, Default)]
pub struct Depth {
    /// It is opened for writing too, which replays the intent log; it is written, and looked at again.
    pub write: bool,
    /// The power goes again in between, and so it does when a disk fails in between.
    pub twice: bool,
    /// So often the pool is worked on where the log was replayed, until the power goes again.
    pub lives: u32,
    /// The real `zdb` looks at it.
    pub zdb: bool,
    /// So many disks are gone when the power comes back; whatever they had must not be missed.
    pub lost: usize,
}

/// The verdict on a state of disks that lied.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Outcome {
    /// All that was promised is there.
    Kept,
    /// A state that there was, but not all that was promised.
    Older,
    /// The pool or a part of it cannot be read, and says so.
    Refused,
}

/// The file system of an opened pool.
///
/// # Errors
/// It cannot be read.
pub fn see(opened: &Opened) -> Result<Seen, String> {
    let fs = opened.pool.file_system("tank").map_err(|error| format!("the file system cannot be opened: {error}"))?;
    Seen::read(&fs).map_err(|error| format!("it cannot be read: {error}"))
}

fn check(opened: &Opened) -> Result<(), String> {
    let report = opened.pool.check(true, &|_| ()).map_err(|error| format!("check: {error}"))?;
    if report.is_clean() { Ok(()) } else { Err(format!("our checker found: {:?}", report.findings.iter().take(5).collect::<Vec<_>>())) }
}

fn open(images: &[Image], read_only: bool, recorder: Option<&Arc<Recorder>>) -> Result<Opened, String> {
    // Not the numbers that were drawn when the pool was written: a log that begins anew would be taken for what was there before.
    let opened = Opened::import_as(3, images, read_only, recorder, None, Vices::default());
    opened.map_err(|error| format!("import{}: {error}", if read_only { " (read-only)" } else { "" }))
}

/// Is this what may be there?
///
/// # Errors
/// Why not. A panic is one, too.
pub fn judge(story: &Story, images: &[Image], promises: Promises, depth: Depth, dice: &mut ChaCha8Rng) -> Result<(), String> {
    // The same numbers for each, however deep the others go.
    let mut second: ChaCha8Rng = ChaCha8Rng::seed_from_u64(dice.random());
    let mut next = ChaCha8Rng::seed_from_u64(dice.random());
    let mut gone = ChaCha8Rng::seed_from_u64(next.random());
    guarded(|| {
        as_it_is(story, images, promises)?;
        if depth.lost > 0 {
            let fewer = without(images, depth.lost, &mut gone);
            as_it_is(story, &fewer, promises).map_err(after("a disk was lost with the power"))?;
            if depth.write {
                written(story, &fewer, promises, false).map_err(after("a disk was lost with the power"))?;
            }
        }
        if depth.zdb {
            zdb(images, oracle::zdb_check_crashed)?;
        }
        if depth.write {
            let events = written(story, images, promises, depth.zdb)?;
            if depth.twice {
                cut_again(story, images, promises, &events, depth.zdb, &mut second)?;
                fails(story, images, promises, &mut second)?;
            }
            if depth.lives > 0 {
                live_on(images, depth, &mut next)?;
            }
        }
        Ok(())
    })
}

/// A panic is an error.
///
/// # Errors
/// That, or those of `body`.
pub fn guarded<T>(body: impl FnOnce() -> Result<T, String>) -> Result<T, String> {
    let result = catch_unwind(AssertUnwindSafe(body));
    result.unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().cloned().or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
        Err(format!("a panic: {}", text.unwrap_or_default()))
    })
}

/// So many of the disks that are there less.
fn without(images: &[Image], lost: usize, dice: &mut ChaCha8Rng) -> Vec<Image> {
    let mut images = images.to_vec();
    for _ in 0..lost {
        let there: Vec<usize> = (0..images.len()).filter(|number| images[*number].chunks().next().is_some()).collect();
        if let Some(number) = there.choose(dice) {
            images[*number] = Image::default();
        }
    }
    images
}

fn as_it_is(story: &Story, images: &[Image], promises: Promises) -> Result<(), String> {
    let opened = open(images, true, None)?;
    check(&opened)?;
    promises.allow_group(story, &see(&opened)?)
}

fn after(what: &str) -> impl Fn(String) -> String + use<> {
    let what = what.to_owned();
    move |reason| format!("{what}: {reason}")
}

/// Imports for writing, writes, and looks again. Returns what came to the disks until the log was replayed.
fn written(story: &Story, images: &[Image], promises: Promises, with_zdb: bool) -> Result<Vec<Event>, String> {
    let recorder = Arc::new(Recorder::default());
    let opened = open(images, false, Some(&recorder))?;
    promises.allow_replayed(story, &see(&opened)?).map_err(after("opened for writing"))?;
    opened.pool.sync().map_err(|error| format!("sync: {error}"))?;
    let events = recorder.take();
    write_something(&opened).map_err(|error| format!("writing afterwards: {error}"))?;
    let images_after = opened.images();
    drop(opened);
    let opened = open(&images_after, true, None)?;
    check(&opened).map_err(after("written afterwards"))?;
    promises.allow_replayed(story, &see(&opened)?).map_err(after("written afterwards"))?;
    drop(opened);
    if with_zdb {
        zdb(&images_after, oracle::zdb_check_metadata).map_err(after("written afterwards"))?;
    }
    Ok(events)
}

/// As a crash in the recovery left it: a log is claimed, and replayed in part.
fn recovered(story: &Story, images: &[Image], promises: Promises, with_zdb: bool) -> Result<(), String> {
    check(&open(images, true, None)?)?;
    if with_zdb {
        zdb(images, oracle::zdb_check_crashed)?;
    }
    written(story, images, promises, false).map(drop)
}

/// The power goes again among the events of a recovery.
fn cut_again(story: &Story, images: &[Image], promises: Promises, events: &[Event], with_zdb: bool, dice: &mut ChaCha8Rng) -> Result<(), String> {
    let state = State { cut: dice.random_range(0..=events.len()), variant: dice.random_range(0..VARIANTS_MAX) };
    let images = state.images(&mut Cutter::new(events, images.to_vec(), 0), dice.random());
    recovered(story, &images, promises, with_zdb).map_err(after(&format!("a second crash ({state}) in the recovery")))
}

/// A disk fails in the recovery, and then the power.
fn fails(story: &Story, images: &[Image], promises: Promises, dice: &mut ChaCha8Rng) -> Result<(), String> {
    let (disk, nth) = (dice.random_range(0..images.len()), |dice: &mut ChaCha8Rng, end| Some(dice.random_range(1..end)));
    let vices = match dice.random_range(0..4) {
        0 => Vices { disk, write_error: nth(dice, 60), ..Vices::default() },
        1 => Vices { disk, flush_error: nth(dice, 10), ..Vices::default() },
        _ => Vices { disk, read_error: nth(dice, 150), ..Vices::default() },
    };
    let recorder = Arc::new(Recorder::default());
    // Whether that goes well or not is for others to say.
    if let Ok(opened) = Opened::import_as(4, images, false, Some(&recorder), None, vices) {
        let _ = opened.pool.sync();
    }
    let events = recorder.take();
    let state = State { cut: events.len(), variant: dice.random_range(0..VARIANTS_MAX) };
    let images = state.images(&mut Cutter::new(&events, images.to_vec(), 0), dice.random());
    recovered(story, &images, promises, false).map_err(after(&format!("a disk failed in the recovery ({vices:?}, {state})")))
}

/// The recovered pool is worked on, and the power goes again.
fn live_on(images: &[Image], depth: Depth, dice: &mut ChaCha8Rng) -> Result<(), String> {
    let recorder = Arc::new(Recorder::default());
    let opened = Opened::import_as(dice.random(), images, false, Some(&recorder), None, Vices::default()).map_err(|error| format!("import: {error}"))?;
    opened.pool.sync().map_err(|error| format!("sync: {error}"))?;
    let world = see(&opened)?.world();
    let (begin, ops) = (recorder.count(), random_in(world.clone(), dice.random()));
    let story = Story::go_on(ops, world, images, &opened, &recorder);
    drop(opened);
    let mut cutter = Cutter::new(&story.events, images.to_vec(), 0);
    let mut cuts: Vec<usize> = (0..3).map(|_| dice.random_range(begin..=story.events.len())).collect();
    cuts.sort_unstable();
    for cut in cuts {
        let state = State { cut, variant: dice.random_range(0..VARIANTS_MAX) };
        let images = state.images(&mut cutter, dice.random());
        let deeper = Depth { write: true, twice: false, zdb: false, lives: depth.lives - 1, lost: 0 };
        let judged = judge(&story, &images, Promises::at(&story, cut), deeper, dice);
        judged.map_err(|reason| format!("in the life after it, state {state}: {reason}\n  in that life: {:?}", story.ops))?;
    }
    Ok(())
}

fn write_something(opened: &Opened) -> Result<(), tarnfs::Error> {
    let fs = opened.pool.file_system("tank")?;
    let doer = Doer::new(&opened.pool, &fs, false);
    let path = "something".to_owned();
    doer.run(&Op::Create { path: path.clone() })?;
    doer.run(&Op::Write { path: path.clone(), offset: 0, length: 30_000, seed: 9 })?;
    doer.run(&Op::Sync)?;
    doer.run(&Op::Unlink { path })?;
    doer.run(&Op::Sync)
}

/// Images in files.
pub fn store(images: &[Image], directory: &Path) -> std::io::Result<Vec<PathBuf>> {
    use std::os::unix::fs::FileExt;
    let mut paths = Vec::new();
    for (number, image) in images.iter().enumerate() {
        let path = directory.join(format!("d{number}.img"));
        let file = std::fs::File::create(&path)?;
        file.set_len(super::run::DISK_BYTES)?;
        for (offset, chunk) in image.chunks() {
            file.write_all_at(chunk, offset)?;
        }
        paths.push(path);
    }
    Ok(paths)
}

/// What the real `zdb` says of these images, asked by `ask`.
///
/// # Errors
/// It finds something.
pub fn zdb(images: &[Image], ask: fn(&[&Path]) -> OracleResult) -> Result<(), String> {
    let directory = tempfile::Builder::new().prefix("tarn-explore-").tempdir().map_err(|error| error.to_string())?;
    // A disk that is gone is not shown, nor one that the pool has no more: its labels may be cleared, or half of them.
    let opened = open(images, true, None)?;
    let names: Vec<String> = opened.pool.engine().vdevs.leaves().iter().map(|leaf| leaf.name().to_owned()).collect();
    let is_of_pool = |(image, disk): &(&Image, &Arc<SimDisk>)| image.chunks().next().is_some() && names.iter().any(|name| name == disk::Disk::name(&***disk));
    let there: Vec<Image> = images.iter().zip(&opened.disks).filter(is_of_pool).map(|(image, _)| image.clone()).collect();
    drop(opened);
    let paths = store(&there, directory.path()).map_err(|error| error.to_string())?;
    let paths: Vec<&Path> = paths.iter().map(PathBuf::as_path).collect();
    match ask(&paths) {
        OracleResult::Wrong(output) => Err(format!("the real zdb: {output}")),
        other => {
            other.expect_clean("a crash state");
            Ok(())
        }
    }
}

/// Judges a state after disks lied, or lost bits: it may be old, or not readable, but not wrong.
///
/// # Errors
/// It is wrong.
pub fn judge_damaged(story: &Story, images: &[Image], promises: Promises) -> Result<Outcome, String> {
    guarded(|| {
        let seen = match open(images, true, None).and_then(|opened| see(&opened)) {
            Ok(seen) => seen,
            Err(_) => return Ok(Outcome::Refused),
        };
        if promises.allow_group(story, &seen).is_ok() {
            return Ok(Outcome::Kept);
        }
        promises.broken().allow_group(story, &seen).map(|()| Outcome::Older)
    })
}
