//! Flushing a top-level vdev.
//!
//! # Theory
//! The system says once that something could not be written: to one of those who flush, which need not be the writer; and has dropped it. So a caller that was told that
//! all is well knows that only if nobody else was told otherwise since it began to write. A writer marks how things are before
//! ([`FlushMark`]), and a flush of what was written since then looks at the mark.
//!
//! # Invariants
//! 1. A leaf on which a flush has failed is behind before that is counted: a mark shows the one, or what is compared with it the other.

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
    failed_flushes: u64,
    view: View,
}

impl FlushMark {
    /// What was to be written is not on this leaf, however well it is flushed.
    pub(super) fn leave_out(&mut self, leaf: usize) {
        if let Some(marked) = self.0.get_mut(leaf) {
            marked.view.readable = false;
        }
    }
}

impl TopVdev {
    /// For who is about to write.
    pub fn flush_mark(&self) -> FlushMark {
        // In this order (invariant 1).
        FlushMark(self.leaves().iter().map(|leaf| Marked { failed_flushes: leaf.failed_flushes(), view: leaf.view(BIRTH_UNKNOWN) }).collect())
    }

    /// The threads for several flushes at a time, if one of the devices is slow enough for that.
    pub fn beside_flushes(&self) -> Option<&Arc<Executor>> {
        self.leaves().iter().find_map(|leaf| leaf.traffic.beside_flushes())
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
        let flush = move |leaf: Arc<Leaf>| if leaf.is_open() { leaf.flush() } else { Err(gone.clone()) };
        let flushed = Executor::map_with(self.beside_flushes(), self.leaves().to_vec(), flush);
        self.is_enough(mark, flushed, "flushed")
    }

    /// What was done on these leaves since `mark` made everything durable, or why not.
    ///
    /// # Errors
    /// What made a leaf fail without which something is not durable.
    pub fn is_enough(&self, mark: &FlushMark, done: Vec<Result<()>>, what: &str) -> Result<()> {
        let unharmed = |((done, leaf), marked): ((Result<()>, &Arc<Leaf>), &Marked)| done.and_then(|()| leaf.check_flushes_since(marked.failed_flushes));
        let done: Vec<Result<()>> = done.into_iter().zip(self.leaves()).zip(&mark.0).map(unharmed).collect();
        let views: Vec<View> = mark.0.iter().map(|marked| marked.view).collect();
        let good: Vec<bool> = done.iter().map(Result::is_ok).collect();
        let (columns, parity) = self.layout().columns();
        let is_durable = |leaves: &Vec<usize>| {
            let (views, good): (Vec<View>, Vec<bool>) = leaves.iter().filter_map(|&leaf| Some((*views.get(leaf)?, *good.get(leaf)?))).unzip();
            mirror::flush_is_enough(&views, &good)
        };
        if columns.iter().filter(|leaves| !is_durable(leaves)).count() <= parity { Ok(()) } else { self.failure(done, what) }
    }

    /// Of several answers the one that says most.
    ///
    /// # Errors
    /// Always.
    pub fn failure(&self, done: Vec<Result<()>>, what: &str) -> Result<()> {
        let failure = done.into_iter().rev().find(|result| matches!(result, Err(error) if error.kind() != ErrorKind::NoDevice));
        failure.unwrap_or_else(|| Err(self.no_device(what)))
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
        self.0.iter().try_for_each(|(top, mark)| top.is_enough(mark, top.leaves().iter().map(|_| Ok(())).collect(), "flushed"))
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
