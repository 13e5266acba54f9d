//! Flushing a top-level vdev.
//!
//! # Theory
//! The system says once that something could not be written: to one of those who flush, which need not be the writer; and has dropped it. So a caller that was told that
//! all is well knows that only if nobody else was told otherwise since it began to write. A writer marks how things are before
//! ([`FlushMark`]), and a flush of what was written since then looks at the mark.
//!
//! # Invariants
//! 1. A leaf on which a flush has failed is behind before that is counted: a mark shows the one, or what is compared with it the other.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::map::{View, mirror};
use super::{BIRTH_UNKNOWN, Leaf, TopVdev, VdevTree};
use crate::error::{ErrorKind, Result};
use crate::sync::Executor;

/// How the leaves of a vdev were before something was written.
#[derive(Debug, Clone, Default)]
pub struct FlushMark(Vec<Marked>);

#[derive(Debug, Clone, Copy)]
struct Marked {
    /// The number of the leaf.
    leaf: u32,
    failed_flushes: u64,
    view: View,
}

impl FlushMark {
    /// What was to be written is not on the leaf of this number, however well it is flushed.
    pub(super) fn leave_out(&mut self, leaf: u32) {
        self.0.iter_mut().filter(|marked| marked.leaf == leaf).for_each(|marked| marked.view.readable = false);
    }
}

impl TopVdev {
    /// For who is about to write.
    pub fn flush_mark(&self) -> FlushMark {
        // In this order (invariant 1).
        let marked = |leaf: &Arc<Leaf>| Marked { leaf: leaf.number(), failed_flushes: leaf.failed_flushes(), view: leaf.view(BIRTH_UNKNOWN) };
        FlushMark(self.members().leaves.iter().map(marked).collect())
    }

    /// The threads for several flushes at a time, if one of the devices is slow enough for that.
    pub fn beside_flushes(&self) -> Option<Arc<Executor>> {
        self.members().leaves.iter().find_map(|leaf| leaf.traffic.beside_flushes().cloned())
    }

    /// Makes durable what was written.
    pub fn flush(&self) -> Result<()> {
        self.flush_since(&self.flush_mark())
    }

    /// Makes durable what was written since `mark`.
    pub(super) fn flush_since(&self, mark: &FlushMark) -> Result<()> {
        if self.is_placeholder() {
            return Ok(());
        }
        let gone = self.no_device("flushed");
        let flush = move |leaf: Arc<Leaf>| (leaf.number(), if leaf.is_open() { leaf.flush() } else { Err(gone.clone()) });
        let flushed = Executor::map_with(self.beside_flushes().as_ref(), self.leaves(), flush);
        self.is_enough(mark, flushed, "flushed")
    }

    /// What was done on leaves since `mark` made everything durable, or why not: `done` by number, of others all is well. Nothing
    /// comes or goes meanwhile: a leaf that came after the mark has nothing of it, and one that has gone makes nothing durable.
    ///
    /// # Errors
    /// What made a leaf fail without which something is not durable.
    pub fn is_enough(&self, mark: &FlushMark, done: Vec<(u32, Result<()>)>, what: &str) -> Result<()> {
        let members = self.fixed_members();
        let mut failures = Vec::new();
        let mut judge = |number: u32| {
            let found = mark.0.iter().find(|marked| marked.leaf == number).zip(members.leaf(number));
            let (marked, leaf) = found.unzip();
            let said = done.iter().filter(|(leaf, _)| *leaf == number).try_for_each(|(_, done)| done.clone());
            let result = said.and_then(|()| leaf.zip(marked).map_or(Ok(()), |(leaf, marked)| leaf.check_flushes_since(marked.failed_flushes)));
            let good = result.is_ok();
            failures.extend(result.err());
            (marked.map_or(View { readable: false, ..View::IDLE }, |marked| marked.view), good)
        };
        let judged: BTreeMap<u32, (View, bool)> = members.leaves.iter().map(|leaf| (leaf.number(), judge(leaf.number()))).collect();
        let is_lost = |leaves: &Vec<u32>| {
            let (views, good): (Vec<View>, Vec<bool>) = leaves.iter().filter_map(|leaf| judged.get(leaf).copied()).unzip();
            !mirror::flush_is_enough(&views, &good)
        };
        if members.layout.tolerates(&is_lost) {
            return Ok(());
        }
        let says_more = failures.iter().rposition(|error| error.kind() != ErrorKind::NoDevice);
        Err(says_more.map_or_else(|| self.no_device(what), |index| failures.swap_remove(index)))
    }
}

/// As a mark of each device that is for the intent log alone: a group flushes these too, and takes no notice when that fails.
#[derive(Default)]
pub struct LogMark(Vec<(Arc<TopVdev>, FlushMark)>);

impl LogMark {
    /// What was written since, and has been flushed, is durable.
    ///
    /// # Errors
    /// Somebody else was told that a flush failed.
    pub fn check(&self) -> Result<()> {
        self.0.iter().try_for_each(|(top, mark)| top.is_enough(mark, Vec::new(), "flushed"))
    }
}

impl VdevTree {
    /// For who is about to write to the intent log what a flush is to make durable.
    pub fn log_mark(&self) -> LogMark {
        let logs = self.data_tops().into_iter().filter(|top| top.is_log() && top.state().is_readable());
        LogMark(logs.map(|top| (top.clone(), top.flush_mark())).collect())
    }
}

#[cfg(test)]
mod tests;
