//! What PostMark does next: the table of files, and one random number after the other.
//!
//! # Invariants
//!
//! 1. Numbers are drawn in the order of the published program, one for each choice that it makes and no more.
//! 2. The table has twice as many entries as there are files at the beginning; an entry is free if its size is 0.

use super::super::Parameters;
use super::twister::Twister;

/// Choices are made in tenths.
const TENTHS: u64 = 10;
/// Files hold printable characters, from the blank on.
const FIRST_CHARACTER: u8 = b' ';
const CHARACTERS: u64 = 95;

#[derive(Clone, Default)]
struct FileEntry {
    name: String,
    size: u64,
}

/// One thing to do.
pub(super) enum Operation {
    Create {
        name: String,
        bytes: u64,
    },
    Read {
        name: String,
        bytes: u64,
    },
    Append {
        name: String,
        bytes: u64,
    },
    Delete {
        name: String,
    },
    /// No entry is free, or the file drawn for an append is as large as files get.
    Nothing,
}

pub(super) struct Choices {
    twister: Twister,
    entries: Vec<FileEntry>,
    /// The entry that the next file gets, if it is free.
    next: usize,
    smallest: u64,
    largest: u64,
    subdirectories: u64,
    bias_read: u64,
    bias_create: u64,
    created: u64,
    deleted: u64,
}

impl Choices {
    /// Also draws what the files hold: twice the largest file.
    pub(super) fn new(parameters: &Parameters, seed: u32) -> (Choices, Vec<u8>) {
        let mut twister = Twister::new(seed);
        let largest = parameters.get("largest");
        let contents = (0..2 * largest).map(|_| FIRST_CHARACTER + twister.below(CHARACTERS) as u8).collect();
        let choices = Choices {
            twister,
            entries: vec![FileEntry::default(); 2 * parameters.get("files") as usize],
            next: 0,
            smallest: parameters.get("smallest"),
            largest,
            subdirectories: parameters.get("subdirectories"),
            bias_read: parameters.get("bias-read"),
            bias_create: parameters.get("bias-create"),
            created: 0,
            deleted: 0,
        };
        (choices, contents)
    }

    fn free_entry(&mut self) -> Option<usize> {
        let here = self.entries.get(self.next).is_some_and(|entry| entry.size == 0);
        let free = if here { self.next } else { self.entries.iter().position(|entry| entry.size == 0)? };
        self.next = free + 1;
        Some(free)
    }

    /// An entry that is in use. There must be one.
    fn taken_entry(&mut self) -> usize {
        loop {
            let number = self.twister.below(self.entries.len() as u64) as usize;
            if self.entries[number].size > 0 {
                return number;
            }
        }
    }

    fn new_name(&mut self) -> String {
        let folder = match self.subdirectories {
            0 | 1 => String::new(),
            many => format!("s{}/", self.twister.below(many)),
        };
        self.created += 1;
        format!("{folder}{}", self.created)
    }

    /// No file is left.
    pub(super) fn depleted(&self) -> bool {
        self.created == self.deleted
    }

    pub(super) fn create(&mut self) -> Operation {
        let Some(free) = self.free_entry() else { return Operation::Nothing };
        let name = self.new_name();
        let bytes = self.smallest + self.twister.below(self.largest.saturating_sub(self.smallest));
        self.entries[free] = FileEntry { name: name.clone(), size: bytes };
        Operation::Create { name, bytes }
    }

    /// The first half of a transaction.
    pub(super) fn read_or_append(&mut self) -> Operation {
        let read = self.twister.below(TENTHS) < self.bias_read;
        let number = self.taken_entry();
        let FileEntry { name, size } = self.entries[number].clone();
        if read {
            return Operation::Read { name, bytes: size };
        }
        if size >= self.largest {
            return Operation::Nothing;
        }
        let bytes = self.twister.below(self.largest - size) + 1;
        self.entries[number].size += bytes;
        Operation::Append { name, bytes }
    }

    /// The second half of a transaction.
    pub(super) fn create_or_delete(&mut self) -> Operation {
        if self.twister.below(TENTHS) < self.bias_create {
            return self.create();
        }
        let number = self.taken_entry();
        self.delete(number)
    }

    fn delete(&mut self, number: usize) -> Operation {
        let entry = std::mem::take(&mut self.entries[number]);
        self.deleted += 1;
        Operation::Delete { name: entry.name }
    }

    /// Deletes the next file that is left, in the order of the table.
    pub(super) fn delete_one_of_the_rest(&mut self, from: &mut usize) -> Option<Operation> {
        let taken = (*from..self.entries.len()).find(|number| self.entries[*number].size > 0)?;
        *from = taken + 1;
        Some(self.delete(taken))
    }
}
