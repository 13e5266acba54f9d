//! Files whose contents are known.

use std::collections::BTreeMap;
use std::sync::Arc;

use rand::Rng;
use rand_chacha::ChaCha8Rng;
use tarnfs::{Credentials, FileSystem, WriteMode};

use crate::scenario::contents;

/// Names of files: so many.
const NAMES: u64 = 20;
/// Files are not longer.
const LENGTH_MAX: usize = 500_000;

/// What the files of a file system must be.
#[derive(Clone, Default)]
pub struct Files {
    known: BTreeMap<String, Vec<u8>>,
    /// Changed since all was on disk: a loss of power may leave anything of these.
    unsafe_names: BTreeMap<String, ()>,
}

/// Why a file is not as it should be.
#[derive(Debug)]
pub(super) enum Wrong {
    /// It could not be read.
    Unreadable(String, String),
    /// It has other contents, or is not there.
    Other(String, String),
}

impl Files {
    /// Makes, overwrites or removes a file.
    pub(super) fn change(&mut self, fs: &Arc<FileSystem>, random: &mut ChaCha8Rng) -> Result<(), String> {
        let (name, user) = (format!("f{}", random.random_range(0..NAMES)), Credentials::root());
        let said = |error: tarnfs::Error| format!("{name}: {error}");
        self.unsafe_names.insert(name.clone(), ());
        if self.known.contains_key(&name) && random.random_range(0..4) == 0 {
            fs.unlink(fs.root(), name.as_bytes()).map_err(said)?;
            self.known.remove(&name);
            return Ok(());
        }
        let length = [100, 3000, 20_000, 131_072, LENGTH_MAX][random.random_range(0..5)];
        let bytes = contents(random.random(), random.random_range(1..=length), random.random_range(0..3));
        let (inode, offset) = match self.known.get(&name) {
            Some(known) => (fs.lookup(fs.root(), name.as_bytes()).map_err(said)?.inode, random.random_range(0..=known.len())),
            None => (fs.create(fs.root(), name.as_bytes(), 0o100_644, 0, &user).map_err(said)?.inode, 0),
        };
        let written = fs.write(inode, WriteMode::At(offset as u64), &bytes, &user).map_err(said);
        fs.forget(inode, 1);
        let known = self.known.entry(name.clone()).or_default();
        known.resize(known.len().max(offset + bytes.len()), 0);
        known[offset..offset + bytes.len()].copy_from_slice(&bytes);
        written.map(drop)
    }

    /// All is on disk.
    pub(super) fn note_synced(&mut self) {
        self.unsafe_names.clear();
    }

    fn read(fs: &Arc<FileSystem>, name: &str) -> Result<Option<Vec<u8>>, Wrong> {
        let unreadable = |error: tarnfs::Error| Wrong::Unreadable(name.to_owned(), error.to_string());
        let inode = match fs.lookup(fs.root(), name.as_bytes()) {
            Ok(stat) => stat.inode,
            Err(error) if error.kind() == engine::error::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(unreadable(error)),
        };
        let found = fs.getattr(inode).and_then(|stat| fs.read(inode, 0, stat.size as usize)).map_err(unreadable);
        fs.forget(inode, 1);
        found.map(Some)
    }

    /// Compares one file.
    fn compare_one(fs: &Arc<FileSystem>, name: &str, known: Option<&Vec<u8>>) -> Result<(), Wrong> {
        let found = Self::read(fs, name)?;
        if found.as_ref() == known {
            return Ok(());
        }
        let said = match (found, known) {
            (None, _) => "it is gone".to_owned(),
            (Some(_), None) => "it was removed".to_owned(),
            (Some(found), Some(known)) => {
                let first = found.iter().zip(known).position(|(one, other)| one != other);
                format!("{} bytes for {}, the first other one is {first:?}", found.len(), known.len())
            }
        };
        Err(Wrong::Other(name.to_owned(), said))
    }

    /// Compares all files.
    pub(super) fn compare(&self, fs: &Arc<FileSystem>) -> Vec<Wrong> {
        let names = (0..NAMES).map(|number| format!("f{number}"));
        names.filter_map(|name| Self::compare_one(fs, &name, self.known.get(&name)).err()).collect()
    }

    /// After a loss of power: compares what was on disk, and takes the others as they are.
    pub(super) fn adopt(&mut self, fs: &Arc<FileSystem>) -> Vec<Wrong> {
        let mut wrong = Vec::new();
        for name in std::mem::take(&mut self.unsafe_names).into_keys() {
            match Self::read(fs, &name) {
                Ok(Some(found)) => drop(self.known.insert(name, found)),
                Ok(None) => drop(self.known.remove(&name)),
                Err(error) => wrong.push(error),
            }
        }
        wrong.extend(self.compare(fs));
        wrong
    }
}
