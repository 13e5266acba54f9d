//! Seeded random operations.

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use tarnfs::RenameMode;

use super::model::{Model, Node};
use super::{Actor, contents};

/// How large what the steps make is.
#[derive(Debug, Clone, Copy)]
pub struct Mix {
    /// Different names in one directory.
    pub names: u32,
    /// Largest piece written at once.
    pub write_bytes: usize,
    /// Largest file.
    pub file_bytes: usize,
    /// Largest extended attribute.
    pub xattr_bytes: usize,
}

impl Default for Mix {
    fn default() -> Self {
        Mix { names: 12, write_bytes: 300_000, file_bytes: 2 << 20, xattr_bytes: 20_000 }
    }
}

/// A source of random operations.
pub struct RandomSteps {
    random: ChaCha8Rng,
    mix: Mix,
}

fn directories(model: &Model) -> Vec<String> {
    let mut found = vec![String::new()];
    let mut at = 0;
    while at < found.len() {
        let path = found[at].clone();
        let names = model.find(&path).and_then(|id| model.names(id)).expect("a directory");
        for (name, &id) in names {
            if model.names(id).is_some() {
                found.push(join(&path, std::str::from_utf8(name).expect("a name of a test")));
            }
        }
        at += 1;
    }
    found
}

fn join(directory: &str, name: &str) -> String {
    if directory.is_empty() { name.to_owned() } else { format!("{directory}/{name}") }
}

impl RandomSteps {
    /// The steps of `seed`, which is printed.
    pub fn new(seed: u64, mix: Mix) -> Self {
        println!("random operations of seed {seed}");
        RandomSteps { random: ChaCha8Rng::seed_from_u64(seed), mix }
    }

    /// A number below `end`.
    pub fn below(&mut self, end: usize) -> usize {
        self.random.random_range(0..end)
    }

    fn path(&mut self, directories: &[String]) -> String {
        let directory = &directories[self.below(directories.len())];
        let name = self.below(self.mix.names as usize);
        join(directory, &format!("n{name}"))
    }

    /// Small more often than large.
    fn size(&mut self, max: usize) -> usize {
        let bits = self.below(max.ilog2() as usize + 1);
        self.random.random_range(0..(2usize << bits)).min(max)
    }

    fn bytes(&mut self, length: usize) -> Vec<u8> {
        let (seed, texture) = (self.random.random(), self.below(3) as u8);
        contents(seed, length, texture)
    }

    /// One operation that the model allows.
    pub fn step(&mut self, actor: &mut Actor<'_>) {
        let directories = directories(actor.model);
        let path = self.path(&directories);
        let Some(id) = actor.model.find(&path) else { return self.make(actor, &directories, &path) };
        let entry = actor.model.entry(id);
        let is_file = matches!(entry.node, Node::File(_));
        let is_directory = actor.model.names(id).is_some();
        match self.below(100) {
            0..8 if is_directory => {
                if actor.model.names(id).is_some_and(std::collections::BTreeMap::is_empty) {
                    actor.rmdir(&path);
                } else if self.below(6) == 0 {
                    actor.remove_all(&path);
                }
            }
            0..14 if !is_directory => actor.unlink(&path),
            14..28 => self.rename(actor, &directories, &path),
            28..60 if is_file => {
                let limit = self.mix.file_bytes;
                let Node::File(data) = &actor.model.entry(id).node else { return };
                let end = data.len();
                let offset = if self.below(3) == 0 { end } else { self.below(end + end / 8 + 4000) };
                let length = self.size(self.mix.write_bytes).clamp(1, limit);
                let offset = offset.min(limit - length);
                let data = self.bytes(length);
                actor.write(&path, offset, &data);
            }
            60..68 if is_file => {
                let Node::File(data) = &actor.model.entry(id).node else { return };
                let size = self.below(data.len() * 5 / 4 + 10).min(self.mix.file_bytes);
                actor.truncate(&path, size);
            }
            68..74 if is_file => {
                let Node::File(data) = &actor.model.entry(id).node else { return };
                let (offset, length) = (self.below(data.len() + 1), self.size(self.mix.file_bytes).max(1));
                actor.punch(&path, offset, length);
            }
            74..84 => {
                let name = format!("user.k{}", self.below(6));
                if self.below(3) == 0 {
                    if actor.model.entry(id).xattrs.contains_key(name.as_bytes()) {
                        actor.removexattr(&path, &name);
                    }
                } else {
                    let length = self.size(self.mix.xattr_bytes);
                    let value = self.bytes(length);
                    actor.setxattr(&path, &name, &value);
                }
            }
            84..90 => {
                let mode = self.random.random_range(0..0o1000);
                if !matches!(actor.model.entry(id).node, Node::Symlink(_)) {
                    actor.chmod(&path, mode);
                }
            }
            90..95 => {
                let (uid, gid) = (self.below(5) as u32 * 1000, self.below(4) as u32 * 100);
                actor.chown(&path, uid, gid);
            }
            95..100 => {
                let (seconds, nanoseconds) = (self.random.random_range(-10..1 << 32), self.random.random_range(0..1_000_000_000));
                actor.utimens(&path, seconds, nanoseconds);
            }
            _ => {}
        }
    }

    fn make(&mut self, actor: &mut Actor<'_>, directories: &[String], path: &str) {
        match self.below(20) {
            0..9 => {
                let length = self.size(self.mix.write_bytes);
                let data = self.bytes(length);
                actor.file(path, &data);
            }
            9..14 => actor.mkdir(path),
            14..16 => {
                let length = self.size(1000).max(1);
                actor.symlink(path, &vec![b'x'; length]);
            }
            16..17 => actor.special(path, 0o010_644, 0),
            _ => {
                let old = self.path(directories);
                if let Some(id) = actor.model.find(&old)
                    && actor.model.names(id).is_none()
                {
                    actor.link(&old, path);
                }
            }
        }
    }

    fn rename(&mut self, actor: &mut Actor<'_>, directories: &[String], old: &str) {
        let new = self.path(directories);
        let moved = actor.id(old);
        let parent = |path: &str| path.rsplit_once('/').map_or_else(String::new, |(directory, _)| directory.to_owned());
        let (from, to) = (actor.id(&parent(old)), actor.id(&parent(&new)));
        if actor.model.is_below(to, moved) {
            return;
        }
        let Some(other) = actor.model.find(&new) else { return actor.rename(old, &new, RenameMode::NoReplace) };
        if other == moved {
            return;
        }
        if self.below(3) == 0 {
            if !actor.model.is_below(from, other) {
                actor.rename(old, &new, RenameMode::Exchange);
            }
            return;
        }
        let replaces = match (actor.model.names(moved), actor.model.names(other)) {
            (Some(_), Some(names)) => names.is_empty(),
            (None, None) => true,
            _ => false,
        };
        if replaces {
            actor.rename(old, &new, RenameMode::Replace);
        }
    }
}
