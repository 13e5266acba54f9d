//! Bugs on purpose.
//!
//! # Theory
//! A test that looks for lost data is worth something if it finds data being lost. So some of the steps that make a change
//! durable can be left out, one at a time, by [`crate::tunables::Tunables::canary`]. Nothing but a test sets it: no property, no option, no
//! variable of the environment leads here.

/// A step that is left out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Canary {
    /// The devices are not flushed before the uberblock is written: it can be there without what it leads to.
    NoFlushBeforeUberblock,
    /// Every other group ends without its uberblock: what it acknowledged is lost with the power.
    NoUberblock,
    /// Blocks of the intent log are written, and not flushed before `fsync` returns.
    NoFlushOfLog,
    /// Snapshots that are asked for together are taken one after the other, each in a group of its own.
    SnapshotsOneByOne,
    /// A promoted clone gets its snapshots, and not what they use.
    PromoteMovesNoSpace,
    /// What a destroyed snapshot alone had is not freed.
    DestroyedSnapshotKeepsBlocks,
    /// What a receive left that broke off with the pool stays when it is imported.
    HalfReceivedStays,
}
