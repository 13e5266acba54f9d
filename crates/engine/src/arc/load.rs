//! Getting a block that is not there as it is wanted: from its other copy, or from a device.

use std::sync::Arc;
use std::sync::atomic::Ordering::Acquire;

use ondisk::blkptr::{BlkPtr, BlockPointer, DataPointer};

use super::cache::Inner;
use super::copies::{Copies, Data};
use super::flight::Source;
use super::pointers::kept_bytes;
use super::shard::{Key, Kind};
use crate::error::{Result, Within};
use crate::zio::{BlockIo, Bookmark, WhileThere};

/// Which copy somebody wants.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Wanted {
    Plain,
    Physical,
}

impl Wanted {
    fn of(self, copies: &Copies) -> Option<Data> {
        match self {
            Wanted::Plain => copies.plain().cloned(),
            Wanted::Physical => copies.physical().cloned(),
        }
    }
}

/// One block that is asked for.
#[derive(Clone, Copy)]
pub(super) struct Asked<'a> {
    pub(super) key: Key,
    pub(super) bp: &'a BlkPtr,
    pub(super) at: &'a Bookmark,
    /// Nobody needs it yet.
    pub(super) ahead: bool,
    /// It stays here afterwards.
    pub(super) is_kept: bool,
    /// The reader goes around the cache: it is not counted as one, and what others keep stays as it was.
    pub(super) past: bool,
    pub(super) while_there: WhileThere<'a>,
}

pub(super) fn kind_of(bp: &BlkPtr) -> Kind {
    Kind { metadata: bp.is_metadata(), logical_bytes: bp.logical_size() }
}

/// What the cache keeps of the contents of a block: of one of pointers not the holes at its end.
pub(super) fn trimmed(bp: &BlkPtr, contents: Data) -> Data {
    match bp.level() {
        0 => contents,
        // Shrunk in place, a buffer would keep the most of its pages from others.
        _ => match kept_bytes(&contents) {
            kept if kept < contents.len() => Arc::new(contents[..kept].to_vec()),
            _ => contents,
        },
    }
}

/// A block that is on disk as it is used.
pub(super) fn same(bp: &BlkPtr, physical: Data) -> Copies {
    let plain = trimmed(bp, Arc::clone(&physical));
    if Arc::ptr_eq(&plain, &physical) { Copies::Same(physical) } else { Copies::Both { physical, plain } }
}

impl Inner {
    /// The contents of a block, which are not here.
    pub(super) fn load_plain(&self, asked: Asked<'_>) -> Result<Data> {
        match asked.bp.decode().within(|| format!("pointer to block {}", asked.at))? {
            BlockPointer::Data(pointer) => {
                BlockIo::check_key(&pointer, asked.at)?;
                self.load(&pointer, asked, Wanted::Plain)
            }
            _ => self.io.read(asked.bp, asked.at),
        }
    }

    /// A block as it is on disk.
    pub(super) fn load_physical(&self, asked: Asked<'_>) -> Result<Data> {
        match asked.bp.decode().within(|| format!("pointer to block {}", asked.at))? {
            BlockPointer::Data(pointer) => self.load(&pointer, asked, Wanted::Physical),
            _ => self.io.read_physical(asked.bp, asked.at).map(Arc::new),
        }
    }

    fn load(&self, pointer: &DataPointer, asked: Asked<'_>, wanted: Wanted) -> Result<Data> {
        let key = asked.key;
        let is_use = !asked.ahead && !asked.past;
        let here = self.copies(&key, is_use);
        let is_hit = here.is_some_and(|copies| copies.physical().is_some() || wanted.of(&copies).is_some());
        let flights = self.flights(&key);
        let cached = || self.copies(&key, is_use).filter(|copies| wanted.of(copies).is_some()).map(Ok);
        let keep = &|result: &Result<Copies>| {
            if let Ok(copies) = result
                && asked.is_kept
            {
                self.insert(key, copies.clone().worth_keeping(), kind_of(asked.bp), asked.ahead, self.origin(asked.at.objset, asked.bp));
            }
        };
        let is_for_all = |result: &Result<Copies>| !asked.ahead || result.is_ok();
        let mut counted = !is_use;
        let data = loop {
            let (result, source) = flights.run(key, cached, |is_pending| self.make(pointer, asked, wanted, is_pending), keep, is_for_all);
            if !std::mem::replace(&mut counted, true) {
                self.count(&key, if is_hit { Source::Cached } else { source });
            }
            match result {
                Ok(copies) => {
                    // The reader that was waited for may have wanted the other copy.
                    if let Some(data) = wanted.of(&copies) {
                        break data;
                    }
                }
                // It was read while it was written over.
                Err(_) if wanted == Wanted::Plain && self.rewritten.lock().contains_key(&key) => {}
                Err(error) => return Err(error),
            }
        };
        if !asked.ahead {
            self.used(&key);
        }
        if asked.is_kept {
            self.evict();
        } else if !asked.past {
            self.forget(&key);
        }
        Ok(data)
    }

    /// Counts a reader's use of a block, by where it came from.
    fn count(&self, key: &Key, source: Source) {
        match source {
            Source::Cached => self.hit(key),
            Source::Joined => {
                self.joined.add(1);
                self.used_in_flight(key);
            }
            Source::Loaded => self.misses.add(1),
        }
    }

    /// From what is here, or else from a device.
    fn make(&self, pointer: &DataPointer, asked: Asked<'_>, wanted: Wanted, is_pending: &dyn Fn() -> bool) -> Result<Copies> {
        let Asked { key, bp, at, .. } = asked;
        let here = self.copies(&key, false);
        if wanted == Wanted::Plain
            && here.as_ref().is_none_or(|copies| copies.plain().is_none())
            && let Some(data) = self.rewritten.lock().get(&key)
        {
            return Ok(Copies::Plain(trimmed(bp, Arc::clone(data))));
        }
        let physical = match here.as_ref().and_then(Copies::physical) {
            Some(physical) => Arc::clone(physical),
            None => Arc::new(self.read(pointer, asked, is_pending)?),
        };
        if BlockIo::is_same(pointer) {
            return Ok(same(bp, physical));
        }
        let plain = match (here.as_ref().and_then(Copies::plain), wanted) {
            (Some(plain), _) => Arc::clone(plain),
            (None, Wanted::Physical) => return Ok(Copies::Physical(physical)),
            (None, Wanted::Plain) if bp.level() > 0 => Arc::new(BlockIo::open_trimmed(pointer, &physical, at)?),
            (None, Wanted::Plain) => Arc::new(BlockIo::open(pointer, &physical, at)?),
        };
        Ok(Copies::Both { physical, plain })
    }

    fn read(&self, pointer: &DataPointer, asked: Asked<'_>, is_pending: &dyn Fn() -> bool) -> Result<Vec<u8>> {
        if let Some(bytes) = self.second.read(&asked.key, pointer, &self.io) {
            return Ok(bytes);
        }
        // The sync thread cancels the reading of a block that it frees; a reader that begins after that knows by itself. And blocks of the group
        // that is being written may be written over in their places at any moment.
        let is_wanted: WhileThere<'_> = &|see_to_it| {
            if is_pending() && asked.key.birth != self.writing.load(Acquire) {
                (asked.while_there)(see_to_it);
            }
        };
        if asked.ahead { self.io.read_physical_ahead(pointer, asked.at, is_wanted) } else { self.io.read_physical_while(pointer, asked.at, is_wanted) }
    }
}
