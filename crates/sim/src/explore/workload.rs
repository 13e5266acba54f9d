//! Which operations are done: at random, or all short sequences.
//!
//! # Theory
//! Most bugs that lose data after a crash need few files and few operations (the ACE part of CrashMonkey: at most three). So besides
//! random workloads there are all sequences of one and two operations on a handful of files, each made safe by one of the ways
//! there are, and samples of those of three.

use std::fmt;

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::op::{End, Op};
use super::world::{Shape, World};

/// A workload by its name: all else follows from that.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Workload {
    /// Random operations of this seed.
    Random(u64),
    /// The same beside scrubs.
    Scrubbed(u64),
    /// The same beside removals of vdevs.
    Removing(u64),
    /// One of the short sequences: how many operations, and its number.
    Short(u32, u64),
}

impl fmt::Display for Workload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Workload::Random(seed) => write!(f, "random:{seed}"),
            Workload::Scrubbed(seed) => write!(f, "scrubbed:{seed}"),
            Workload::Removing(seed) => write!(f, "removing:{seed}"),
            Workload::Short(length, number) => write!(f, "short{length}:{number}"),
        }
    }
}

impl Workload {
    /// As it is printed.
    pub fn parse(text: &str) -> Option<Workload> {
        let (kind, number) = text.split_once(':')?;
        let number = number.parse().ok()?;
        match kind {
            "random" => Some(Workload::Random(number)),
            "scrubbed" => Some(Workload::Scrubbed(number)),
            "removing" => Some(Workload::Removing(number)),
            "short1" => Some(Workload::Short(1, number)),
            "short2" => Some(Workload::Short(2, number)),
            "short3" => Some(Workload::Short(3, number)),
            _ => None,
        }
    }

    /// Its operations; `None`: there is no such sequence (one of its operations cannot be done).
    pub fn ops(self) -> Option<Vec<Op>> {
        match self {
            Workload::Random(seed) => Some(random(seed)),
            Workload::Scrubbed(seed) => Some(scrubbed(seed)),
            Workload::Removing(seed) => Some(removing(seed)),
            Workload::Short(length, number) => short(length, number),
        }
    }

    /// A number from which all that is random about it follows.
    pub fn seed(self) -> u64 {
        match self {
            Workload::Random(seed) | Workload::Scrubbed(seed) | Workload::Removing(seed) => seed,
            Workload::Short(length, number) => number << 2 | u64::from(length),
        }
    }
}

fn s(text: &str) -> String {
    text.to_owned()
}

/// The beginning of every short sequence.
fn ground() -> Vec<Op> {
    vec![
        Op::Mkdir { path: s("A") },
        Op::Mkdir { path: s("B") },
        Op::Create { path: s("foo") },
        Op::Write { path: s("foo"), offset: 0, length: 5000, seed: 1 },
        Op::Create { path: s("A/bar") },
        Op::Write { path: s("A/bar"), offset: 0, length: 20_000, seed: 2 },
        Op::SetXattr { path: s("foo"), name: s("user.a"), length: 20, seed: 3 },
        Op::Sync,
    ]
}

const FILES: [&str; 2] = ["foo", "A/bar"];
const FREE: [&str; 2] = ["new", "B/new"];

/// The operations that short sequences are made of.
pub fn alphabet() -> Vec<Op> {
    let mut all = Vec::new();
    for path in FREE {
        all.extend([Op::Create { path: s(path) }, Op::Mkdir { path: s(path) }, Op::Symlink { path: s(path), target: s("foo") }]);
        all.push(Op::Write { path: s(path), offset: 0, length: 3000, seed: 4 });
        all.push(Op::Rename { old: s("A"), new: s(path) });
    }
    for file in FILES {
        all.extend(FREE.map(|new| Op::Link { old: s(file), new: s(new) }));
        all.extend(FREE.map(|new| Op::Rename { old: s(file), new: s(new) }));
        all.push(Op::Unlink { path: s(file) });
        all.push(Op::Write { path: s(file), offset: 1000, length: 700, seed: 5 });
        all.push(Op::Write { path: s(file), offset: 4000, length: 40_000, seed: 6 });
        all.push(Op::Write { path: s(file), offset: 90_000, length: 100, seed: 7 });
        all.extend([0, 2500, 30_000].map(|size| Op::Truncate { path: s(file), size }));
        all.push(Op::Punch { path: s(file), offset: 512, length: 4096 });
        all.push(Op::SetXattr { path: s(file), name: s("user.a"), length: 90, seed: 8 });
        all.push(Op::Chmod { path: s(file), mode: 0o600 });
    }
    all.push(Op::RemoveXattr { path: s("foo"), name: s("user.a") });
    all.push(Op::Rename { old: s("foo"), new: s("A/bar") });
    all.push(Op::Rename { old: s("A/bar"), new: s("foo") });
    all.push(Op::Exchange { one: s("foo"), two: s("A/bar") });
    all.push(Op::Exchange { one: s("A"), two: s("B") });
    all.push(Op::Rename { old: s("A"), new: s("B") });
    all.push(Op::Rmdir { path: s("B") });
    all.push(Op::Clone { from: s("A/bar"), to: s("foo") });
    all
}

/// The ends of a sequence that make it safe: a sync of one thing that is there, or of everything.
const SAFETY: [Option<&str>; 7] = [None, Some("foo"), Some("A/bar"), Some("new"), Some("B/new"), Some(""), Some("A")];

/// How many numbers sequences of a length have.
pub fn short_count(length: u32) -> u64 {
    (alphabet().len() as u64).pow(length) * SAFETY.len() as u64
}

fn short(length: u32, mut number: u64) -> Option<Vec<Op>> {
    let (alphabet, mut ops, mut world) = (alphabet(), ground(), World::default());
    let safety = SAFETY[(number % SAFETY.len() as u64) as usize];
    number /= SAFETY.len() as u64;
    for _ in 0..length {
        ops.push(alphabet[(number % alphabet.len() as u64) as usize].clone());
        number /= alphabet.len() as u64;
    }
    ops.push(safety.map_or(Op::Sync, |path| Op::Fsync { path: s(path) }));
    let possible = number == 0 && ops.iter().all(|op| world.apply(op).is_some());
    possible.then_some(ops)
}

/// Names in a directory of a random workload.
const NAMES: usize = 5;
const FILE_BYTES: usize = 160_000;
const PAGE: usize = 4096;

struct Dice(ChaCha8Rng);

impl Dice {
    fn below(&mut self, end: usize) -> usize {
        self.0.random_range(0..end.max(1))
    }

    /// Small more often than large.
    fn size(&mut self, max: usize) -> usize {
        let bits = self.below(max.ilog2() as usize + 1);
        self.0.random_range(0..2usize << bits).min(max)
    }

    fn path(&mut self, world: &World) -> String {
        let directories: Vec<String> = world.paths().into_iter().filter(|(_, id)| world.names(*id).is_some()).map(|(path, _)| path).collect();
        let directory = directories[self.below(directories.len())].clone();
        let name = format!("n{}", self.below(NAMES));
        if directory.is_empty() { name } else { format!("{directory}/{name}") }
    }

    fn op(&mut self, world: &World) -> Op {
        let path = self.path(world);
        let Some(id) = world.find(&path) else { return self.make(world, path) };
        let (shape, size) = (&world.node(id).shape, world.node(id).data.contents.len());
        let seed = self.0.random_range(1..1 << 32);
        match (self.below(100), shape) {
            (0..10, Shape::Directory(_)) => Op::Rmdir { path },
            (0..10, _) => Op::Unlink { path },
            (10..24, _) => Op::Rename { old: path, new: self.path(world) },
            (24..28, _) => Op::Exchange { one: path, two: self.path(world) },
            (28..56, Shape::File) => {
                let offset = if self.below(2) == 0 { size } else { self.below(size + size / 8 + 3000) };
                let (offset, length) = (offset.min(FILE_BYTES - 60_000), self.size(60_000).max(1));
                // Some begin and end on a page: only these go around the cache, where `direct=always`.
                match seed % 3 {
                    0 => Op::Write { path, offset: offset / PAGE * PAGE, length: length.next_multiple_of(PAGE).min(60_000 / PAGE * PAGE), seed },
                    _ => Op::Write { path, offset, length, seed },
                }
            }
            (56..63, Shape::File) => Op::Truncate { path, size: self.below(size * 5 / 4 + 10).min(FILE_BYTES) },
            (63..67, Shape::File) => Op::Punch { path, offset: self.below(size + 1), length: self.size(FILE_BYTES).max(1) },
            (67..74, _) => Op::SetXattr { path, name: format!("user.k{}", self.below(3)), length: self.size(300), seed },
            (74..77, _) => Op::RemoveXattr { path, name: format!("user.k{}", self.below(3)) },
            (77..82, _) => Op::Chmod { path, mode: 0o600 | seed as u32 & 0o77 },
            (82..85, _) => Op::Chown { path, uid: seed as u32 % 3 * 1000, gid: seed as u32 % 4 * 100 },
            (85..88, _) => Op::Utimes { path, seconds: seed as i64 },
            (88..91, _) => Op::Clone { from: path, to: self.path(world) },
            _ => Op::Fsync { path },
        }
    }

    /// Some operations that can be done one after the other.
    fn transaction(&mut self, world: &World) -> Op {
        let (mut world, mut ops, length) = (world.clone(), Vec::new(), 1 + self.below(7));
        while ops.len() < length {
            let op = self.op(&world);
            if !matches!(op, Op::Clone { .. } | Op::Fsync { .. }) && world.apply(&op).is_some() {
                ops.push(op);
            }
        }
        Op::Transaction { ops, end: [End::Commit, End::Commit, End::Durable, End::Abort][self.below(4)] }
    }

    fn make(&mut self, world: &World, path: String) -> Op {
        match self.below(20) {
            0..10 => Op::Create { path },
            10..14 => Op::Mkdir { path },
            14..16 => {
                let length = self.size(200).max(1);
                Op::Symlink { path, target: "x".repeat(length) }
            }
            _ => Op::Link { old: self.path(world), new: path },
        }
    }
}

fn random(seed: u64) -> Vec<Op> {
    random_in(World::default(), seed)
}

/// Every few operations a scrub begins, or pauses, and a group is written.
fn scrubbed(seed: u64) -> Vec<Op> {
    let with_scrubs = |(number, op)| match number % 5 {
        0 => vec![Op::Scrub, op],
        2 => vec![Op::Sync, op],
        _ => vec![op],
    };
    random(seed).into_iter().enumerate().flat_map(with_scrubs).collect()
}

/// After some operations a vdev begins to go, and a group is written every few operations. Some removals are given up.
fn removing(seed: u64) -> Vec<Op> {
    let gives_up = seed.is_multiple_of(3);
    let with_removals = |(number, op)| match number % 6 {
        1 => vec![Op::Evacuate { give_up: gives_up && number > 12 }, op],
        2 | 4 => vec![Op::Sync, op],
        _ => vec![op],
    };
    random(seed).into_iter().enumerate().flat_map(with_removals).collect()
}

/// Random operations where all this is.
pub fn random_in(world: World, seed: u64) -> Vec<Op> {
    random_of(world, seed, &|_| true)
}

/// As [`random_in`], of those operations that fit.
pub fn random_of(mut world: World, seed: u64, fits: &dyn Fn(&Op) -> bool) -> Vec<Op> {
    let mut dice = Dice(ChaCha8Rng::seed_from_u64(seed));
    let mut ops = Vec::new();
    let length = 10 + dice.below(50);
    while ops.len() < length {
        let op = match dice.below(28) {
            0 | 1 => Op::Sync,
            2..5 => dice.transaction(&world),
            _ => dice.op(&world),
        };
        if fits(&op) && world.apply(&op).is_some() {
            ops.push(op);
        }
    }
    ops
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_workloads_are_read_back() {
        for workload in [Workload::Random(7), Workload::Scrubbed(8), Workload::Removing(9), Workload::Short(1, 3), Workload::Short(3, 99)] {
            assert_eq!(Workload::parse(&workload.to_string()), Some(workload));
        }
        assert_eq!(Workload::parse("random"), None);
    }

    #[test]
    fn random_workloads_have_everything() {
        let ops: Vec<Op> = (0..300).flat_map(random).collect();
        let kinds: std::collections::HashSet<_> = ops.iter().map(std::mem::discriminant).collect();
        assert_eq!(kinds.len(), 20);
    }

    #[test]
    fn there_are_many_short_sequences() {
        let possible = (0..short_count(1)).filter(|number| short(1, *number).is_some()).count();
        assert!(possible > 150, "{possible}");
        assert_eq!(short(1, short_count(1)), None);
    }
}
