//! Verbs at random: most can be done, some are refused.

use rand::Rng;
use rand::seq::IndexedRandom;
use rand_chacha::ChaCha8Rng;

use super::model::{Dataset, Snapshot, Tree};
use super::verb::{Change, Cut, Receive, Verb};

/// What a life may grow to.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// File systems.
    pub datasets: usize,
    /// Snapshots of all of them.
    pub snapshots: usize,
    /// Bytes of one file.
    pub file_bytes: usize,
    /// Names of files.
    pub files: usize,
}

struct Chooser<'a> {
    tree: &'a Tree,
    dice: &'a mut ChaCha8Rng,
    limits: Limits,
}

/// What is done, and how often, among all.
type Choice = (&'static str, u32);

/// All choices.
const CHOICES: [Choice; 19] = [
    ("write", 30),
    ("snapshot", 16),
    ("clone", 7),
    ("promote", 9),
    ("roll back", 8),
    ("roll back and write", 4),
    ("rename", 4),
    ("rename snapshots", 4),
    ("create", 4),
    ("destroy", 6),
    ("destroy snapshots", 9),
    ("destroy later", 5),
    ("hold", 4),
    ("release", 6),
    ("bookmark", 4),
    ("destroy bookmarks", 3),
    ("receive", 4),
    ("receive more", 10),
    ("receive a clone", 3),
];

/// A verb that somebody may do with this tree.
pub fn random_verb(tree: &Tree, dice: &mut ChaCha8Rng, limits: Limits) -> Verb {
    let mut chooser = Chooser { tree, dice, limits };
    loop {
        let Ok((name, _)) = CHOICES.choose_weighted(chooser.dice, |choice| choice.1).copied() else { unreachable!("there are choices") };
        if let Some(verb) = chooser.choose(name) {
            return verb;
        }
    }
}

impl Chooser<'_> {
    fn below(&mut self, end: usize) -> usize {
        self.dice.random_range(0..end.max(1))
    }

    fn one_in(&mut self, count: usize) -> bool {
        self.below(count) == 0
    }

    fn any(&mut self, wanted: impl Fn(&str, &Dataset) -> bool) -> Option<String> {
        let all: Vec<&String> = self.tree.datasets.iter().filter(|(name, dataset)| wanted(name, dataset)).map(|(name, _)| name).collect();
        all.choose(self.dice).map(|name| (*name).clone())
    }

    /// A snapshot, by its full name.
    fn any_snapshot(&mut self, wanted: impl Fn(&Snapshot) -> bool) -> Option<String> {
        let of = |(name, dataset): (&String, &Dataset)| -> Vec<String> {
            dataset.snapshots.iter().filter(|snapshot| wanted(snapshot)).map(|snapshot| format!("{name}@{}", snapshot.name)).collect()
        };
        let all: Vec<String> = self.tree.datasets.iter().flat_map(of).collect();
        all.choose(self.dice).cloned()
    }

    fn has_room(&mut self) -> bool {
        self.tree.datasets.len() < self.limits.datasets
    }

    /// A name for a new file system: seldom one that is taken.
    fn new_name(&mut self) -> String {
        let parent = self.any(|name, _| name.matches('/').count() < 3).unwrap_or_default();
        format!("{parent}/d{}", self.below(40))
    }

    fn short_name(&mut self) -> String {
        format!("s{}", self.below(60))
    }

    fn choose(&mut self, name: &str) -> Option<Verb> {
        Some(match name {
            "write" => self.write()?,
            "snapshot" => self.snapshot()?,
            "clone" if self.has_room() => Verb::Clone { snapshot: self.any_snapshot(|_| true)?, to: self.new_name() },
            "promote" => {
                let only_clones = !self.one_in(20);
                Verb::Promote { dataset: self.any(|_, dataset| dataset.origin.is_some() || !only_clones)? }
            }
            "roll back" => self.roll_back()?,
            "roll back and write" => self.roll_back_and_write()?,
            "rename" => Verb::Rename { from: self.any(|name, _| name.contains('/'))?, to: self.new_name() },
            "rename snapshots" => self.rename_snapshots()?,
            "create" if self.has_room() => Verb::Create { dataset: self.new_name() },
            "destroy" => self.destroy()?,
            "destroy snapshots" => self.destroy_snapshots()?,
            "destroy later" => {
                let only_kept = self.below(3) > 0;
                let tree = self.tree;
                let names = vec![self.any_snapshot(|snapshot| !only_kept || tree.what_keeps(snapshot).is_some())?];
                Verb::DestroySnapshots { names, defer: true }
            }
            "hold" => Verb::Hold { names: self.some_snapshots(|_| true)?, tag: format!("t{}", self.below(3)) },
            "release" => self.release()?,
            "bookmark" => self.bookmark()?,
            "destroy bookmarks" => Verb::DestroyBookmarks { names: vec![self.any_bookmark()?] },
            "receive" if self.has_room() => self.receive_all()?,
            "receive more" => self.receive_more()?,
            "receive a clone" if self.has_room() => self.receive_clone()?,
            _ => return None,
        })
    }

    fn write(&mut self) -> Option<Verb> {
        let dataset = self.any(|_, _| true)?;
        let mut known: Vec<(String, usize)> = self.tree.datasets[&dataset].files.iter().map(|(name, file)| (name.clone(), file.contents.len())).collect();
        let mut changes = Vec::new();
        for _ in 0..1 + self.below(5) {
            let file = format!("f{}", self.below(self.limits.files));
            let at = known.iter().position(|(name, _)| *name == file);
            let (seed, size) = (self.dice.random_range(1..1 << 32), at.map_or(0, |at| known[at].1));
            match (at, self.below(20)) {
                (Some(at), 0..3) => {
                    known.remove(at);
                    changes.push(Change::Remove { file });
                }
                (Some(at), 3..6) => {
                    known[at].1 = self.below(self.limits.file_bytes);
                    changes.push(Change::Truncate { file, size: known[at].1 });
                }
                (Some(_), 6..9) => {
                    let (offset, length) = (self.below(size), 1 + self.below(self.limits.file_bytes));
                    changes.push(Change::Punch { file, offset, length });
                }
                (Some(_), 9) => changes.push(Change::Chmod { file, mode: 0o600 | seed as u32 & 0o77 }),
                (Some(_), 10 | 11) => changes.push(Change::SetXattr { file, length: 1 + self.below(2000), seed }),
                (Some(at), 12) => {
                    let to = format!("g{}", self.below(self.limits.files));
                    let (_, size) = known.remove(at);
                    known.retain(|(name, _)| *name != to);
                    known.push((to.clone(), size));
                    changes.push(Change::Rename { from: file, to });
                }
                _ => {
                    // Far behind the end, now and then: holes.
                    let end = if self.one_in(4) { self.limits.file_bytes } else { size + 1 };
                    let offset = self.below(end);
                    let length = 1 + self.below(self.limits.file_bytes / 2);
                    match at {
                        Some(at) => known[at].1 = size.max(offset + length),
                        None => known.push((file.clone(), offset + length)),
                    }
                    changes.push(Change::Write { file, offset, length, seed });
                }
            }
        }
        let verb = Verb::Write { dataset, changes, sync: self.one_in(2) };
        // Whether a file system was changed is the question of a receive: a change changes something.
        let mut after = self.tree.clone();
        let (Ok(()), Verb::Write { dataset, .. }) = (after.apply(&verb), &verb) else { return None };
        if after.datasets[dataset].files == self.tree.datasets[dataset].files { None } else { Some(verb) }
    }

    fn snapshot(&mut self) -> Option<Verb> {
        let all: usize = self.tree.datasets.values().map(|dataset| dataset.snapshots.len()).sum();
        if all >= self.limits.snapshots {
            return self.destroy_snapshots();
        }
        let (head, short) = (self.any(|_, _| true)?, self.short_name());
        let mut heads = vec![head.clone()];
        match self.below(10) {
            // Everything below, too.
            0 | 1 => heads.extend(self.tree.datasets.keys().filter(|name| name.starts_with(&format!("{head}/"))).cloned()),
            2 | 3 => heads.extend(self.any(|name, _| name != head)),
            _ => {}
        }
        Some(Verb::Snapshot { names: heads.into_iter().map(|head| format!("{head}@{short}")).collect() })
    }

    fn roll_back(&mut self) -> Option<Verb> {
        let dataset = self.any(|_, dataset| !dataset.snapshots.is_empty())?;
        let snapshots = &self.tree.datasets[&dataset].snapshots;
        let to = match self.below(10) {
            0 => snapshots.choose(self.dice).map(|snapshot| snapshot.name.clone()),
            1..6 => snapshots.last().map(|snapshot| snapshot.name.clone()),
            _ => None,
        };
        Some(Verb::RollBack { dataset, to })
    }

    fn roll_back_and_write(&mut self) -> Option<Verb> {
        let dataset = self.any(|_, dataset| !dataset.snapshots.is_empty())?;
        let write = |chooser: &mut Self| {
            let (file, seed) = (format!("f{}", chooser.below(chooser.limits.files)), chooser.dice.random_range(1..1 << 32));
            Change::Write { file, offset: chooser.below(chooser.limits.file_bytes), length: 1 + chooser.below(chooser.limits.file_bytes / 2), seed }
        };
        let changes = (0..1 + self.below(3)).map(|_| write(self)).collect();
        let snapshot = if self.one_in(2) { Some(self.short_name()) } else { None };
        Some(Verb::RollBackAndWrite { dataset, changes, snapshot })
    }

    fn rename_snapshots(&mut self) -> Option<Verb> {
        let dataset = self.any(|_, dataset| !dataset.snapshots.is_empty())?;
        let from = self.tree.datasets[&dataset].snapshots.choose(self.dice)?.name.clone();
        Some(Verb::RenameSnapshot { dataset, from, to: self.short_name(), recursive: self.one_in(3) })
    }

    fn destroy(&mut self) -> Option<Verb> {
        let careful = !self.one_in(10);
        let tree = self.tree;
        let is_bare = |name: &str, dataset: &Dataset| dataset.snapshots.is_empty() && tree.children(name).next().is_none();
        Some(Verb::Destroy { dataset: self.any(|name, dataset| name.contains('/') && (!careful || is_bare(name, dataset)))? })
    }

    /// One, some, or a row of one file system.
    fn some_snapshots(&mut self, wanted: impl Fn(&Snapshot) -> bool) -> Option<Vec<String>> {
        if self.one_in(2) {
            return Some(vec![self.any_snapshot(wanted)?]);
        }
        let dataset = self.any(|_, dataset| dataset.snapshots.iter().any(&wanted))?;
        let snapshots = &self.tree.datasets[&dataset].snapshots;
        let first = self.dice.random_range(0..snapshots.len());
        let end = self.dice.random_range(first + 1..=snapshots.len());
        let row: Vec<String> = snapshots[first..end].iter().filter(|snapshot| wanted(snapshot)).map(|snapshot| format!("{dataset}@{}", snapshot.name)).collect();
        if row.is_empty() { None } else { Some(row) }
    }

    fn destroy_snapshots(&mut self) -> Option<Verb> {
        let careful = !self.one_in(12);
        let tree = self.tree;
        let mut names = self.some_snapshots(|snapshot| !careful || tree.what_keeps(snapshot).is_none())?;
        if self.one_in(10) {
            names.push(format!("{}@nothing", names[0].split('@').next().unwrap_or_default()));
        }
        Some(Verb::DestroySnapshots { names, defer: self.one_in(5) })
    }

    fn release(&mut self) -> Option<Verb> {
        let name = self.any_snapshot(|snapshot| !snapshot.holds.is_empty())?;
        let holds: Vec<String> = self.tree.snapshot(&name).ok()?.holds.iter().cloned().collect();
        let tag = if self.one_in(20) { "none".to_owned() } else { holds.choose(self.dice)?.clone() };
        Some(Verb::Release { names: vec![name], tag })
    }

    fn any_bookmark(&mut self) -> Option<String> {
        let dataset = self.any(|_, dataset| !dataset.bookmarks.is_empty())?;
        let shorts: Vec<&String> = self.tree.datasets[&dataset].bookmarks.keys().collect();
        Some(format!("{dataset}#{}", shorts.choose(self.dice)?))
    }

    fn bookmark(&mut self) -> Option<Verb> {
        let source = if self.one_in(4) { self.any_bookmark()? } else { self.any_snapshot(|_| true)? };
        let own = source.split(['@', '#']).next().unwrap_or_default().to_owned();
        let head = if self.one_in(4) { self.any(|_, _| true)? } else { own };
        Some(Verb::Bookmark { name: format!("{head}#b{}", self.below(10)), source })
    }

    fn cut(&mut self) -> Cut {
        let at = self.dice.random_range(0..1000);
        match self.below(8) {
            0 => Cut::Lost(at),
            1 | 2 => Cut::Resumed(at),
            _ => Cut::Whole,
        }
    }

    fn finish(&mut self, snapshot: String, from: Option<String>, to: &str, force: bool) -> Receive {
        let short = if self.one_in(2) { snapshot.split('@').nth(1).unwrap_or_default().to_owned() } else { self.short_name() };
        let (cut, flags) = (self.cut(), self.dice.random_range(0..8));
        Receive { snapshot, from, to: format!("{to}@{short}"), force, origin: None, cut, flags }
    }

    /// A whole stream: into a new file system, or over one that has no snapshots.
    fn receive_all(&mut self) -> Option<Verb> {
        let snapshot = self.any_snapshot(|_| true)?;
        let over = self.one_in(6);
        let to = match over {
            true => self.any(|_, dataset| dataset.snapshots.is_empty() && dataset.origin.is_none())?,
            false => self.new_name(),
        };
        Some(Verb::Receive(self.finish(snapshot, None, &to, over)))
    }

    /// Something that can be put on top of what a file system has.
    fn receive_more(&mut self) -> Option<Verb> {
        let mut pairs = Vec::new();
        for (target, dataset) in &self.tree.datasets {
            for (back, known) in dataset.snapshots.iter().rev().enumerate() {
                for (source, theirs) in self.tree.datasets.iter().filter(|(source, _)| *source != target) {
                    let at = theirs.snapshots.iter().position(|snapshot| snapshot.identity == known.identity);
                    let bookmark = theirs.bookmarks.iter().find(|(_, bookmark)| bookmark.identity == known.identity);
                    let later = |moment: u64| theirs.snapshots.iter().filter(move |snapshot| snapshot.moment > moment);
                    if let Some(at) = at {
                        let from = &theirs.snapshots[at];
                        pairs.extend(later(from.moment).map(|to| (target, back, format!("{source}@{}", to.name), format!("{source}@{}", from.name))));
                    } else if let Some((short, bookmark)) = bookmark {
                        pairs.extend(later(bookmark.moment).map(|to| (target, back, format!("{source}@{}", to.name), format!("{source}#{short}"))));
                    }
                }
            }
        }
        let (target, back, snapshot, from) = pairs.choose(self.dice)?.clone();
        // Without force, only where what it has last is what the stream begins at.
        let force = back > 0 || self.one_in(2);
        Some(Verb::Receive(self.finish(snapshot, Some(from), target, force)))
    }

    /// The stream of a clone, or a whole one, as a clone of something.
    fn receive_clone(&mut self) -> Option<Verb> {
        let source = self.any(|_, dataset| dataset.origin.is_some() && !dataset.snapshots.is_empty())?;
        let dataset = &self.tree.datasets[&source];
        let snapshot = format!("{source}@{}", dataset.snapshots.choose(self.dice)?.name);
        let from = self.tree.name_of(dataset.origin?)?;
        let identity = self.tree.snapshot(&from).ok()?.identity;
        let is_whole = self.one_in(4);
        let origin = self.any_snapshot(|snapshot| is_whole || snapshot.identity == identity)?;
        let to = self.new_name();
        let receive = self.finish(snapshot, Some(from).filter(|_| !is_whole), &to, false);
        Some(Verb::Receive(Receive { origin: Some(origin), ..receive }))
    }
}
