//! Transactions: the right to change something in one group.
//!
//! # Theory
//! [`OpenTx`] is what user operations get: it joins the open group, after the dirty-data limit and the space limits let
//! it. [`SyncTx`] exists only while the sync thread writes a group. Both lend a [`Tx`], which is all that a change needs;
//! functions that may run only while syncing take `&SyncTx`, so that the wrong call does not compile.

use std::ops::{Deref, Range};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;
use std::time::Duration;

use ondisk::blkptr::BlkPtr;
use ondisk::feature::Feature;
use parking_lot::Mutex;

use super::membership::{Membership, Whole};
use super::{DmuContext, ObjectId, Objset};
use crate::bail;
use crate::error::{Error, Result};
use crate::tunables::Parameter;
use crate::txg::{Txg, TxgGroups, TxgHold};

/// How many groups a transaction waits for space that others were promised, or that is coming free.
const GROUPS_WAITED_MAX: usize = 8;

/// Membership of a group.
#[derive(Debug)]
pub struct Tx {
    txg: Txg,
    syncing: bool,
    /// What the blocks that it was the first to change, and the indirect blocks above them, may take on disk.
    dirtied: AtomicU64,
    /// What it frees on disk, about.
    freeing: AtomicU64,
}

impl Tx {
    #[cfg(test)]
    pub(crate) fn for_test(txg: Txg) -> Self {
        Tx::new(txg, false)
    }

    fn new(txg: Txg, syncing: bool) -> Self {
        Tx { txg, syncing, dirtied: AtomicU64::new(0), freeing: AtomicU64::new(0) }
    }

    /// It was the first to change something that may take `bytes` on disk.
    pub(super) fn note_dirtied(&self, bytes: u64) {
        self.dirtied.fetch_add(bytes, Ordering::Relaxed);
    }

    /// It frees, or leaves to be freed soon, what takes `bytes` on disk, about.
    pub fn note_freeing(&self, bytes: u64) {
        self.freeing.fetch_add(bytes, Ordering::Relaxed);
    }

    /// The group.
    pub fn txg(&self) -> Txg {
        self.txg
    }

    /// Whether this is the sync thread.
    pub fn is_syncing(&self) -> bool {
        self.syncing
    }
}

/// Why there is no room.
#[derive(Debug)]
pub enum Refusal {
    /// There will be none.
    Final(Error),
    /// Only what is promised or freed and not on disk yet stands in the way: wait for the group, and ask again.
    ForNow(Error),
}

impl From<Error> for Refusal {
    fn from(error: Error) -> Self {
        Refusal::Final(error)
    }
}

impl From<Refusal> for Error {
    fn from(refusal: Refusal) -> Self {
        match refusal {
            Refusal::Final(error) | Refusal::ForNow(error) => error,
        }
    }
}

/// Asks until the answer is final; in between the open group gets to disk. Hold no group. A caller that has waited for some takes any answer.
///
/// # Errors
/// Those of `ask`; what stopped the pool.
pub fn ask_for_room<T>(groups: &TxgGroups, mut ask: impl FnMut() -> Result<T, Refusal>) -> Result<T> {
    for _ in 0..GROUPS_WAITED_MAX {
        match ask() {
            Err(Refusal::ForNow(_)) => groups.wait_for_room()?,
            answer => return Ok(answer?),
        }
    }
    Ok(ask()?)
}

/// What an indirect block led to that cannot be read.
#[derive(Debug, Clone)]
pub struct LostTree {
    /// Whose it was.
    pub object: ObjectId,
    /// Its level: what is below it has lower ones.
    pub level: u8,
    /// The data blocks below it.
    pub blocks: Range<u64>,
}

/// The dataset that pays for the blocks of an object set, and decides where freed ones go (upward call: implemented by `dsl`).
pub trait SpaceOwner: Send + Sync {
    /// May `bytes` more (worst case) be written in `txg`? Called in open context.
    ///
    /// # Errors
    /// `NoSpace` or `Quota`.
    fn reserve(&self, txg: Txg, bytes: u64) -> Result<(), Refusal>;
    /// As `reserve`, for what the log brings back: it was let in, and is not refused for a limit that was set or reached since, as long as the pool has
    /// a place for it.
    ///
    /// # Errors
    /// `NoSpace`.
    fn reserve_again(&self, txg: Txg, bytes: u64) -> Result<(), Refusal> {
        self.reserve(txg, bytes)
    }
    /// As `reserve`, for what frees space in the end: it may go on where nothing else can be written, but not until the pool
    /// has no room left to note in what was freed (a snapshot may keep all of it).
    fn reserve_to_free(&self, txg: Txg) -> Result<(), Refusal>;
    /// How much more would be promised, about: less than what is free on disk, as what was promised is taken off.
    fn room_left(&self) -> u64 {
        u64::MAX
    }
    /// Something that takes `bytes` on disk, about, is freed in `txg`, or soon after it. Called in open context.
    fn will_free(&self, txg: Txg, bytes: u64) {
        let _ = (txg, bytes);
    }
    /// What was told so ([`SpaceOwner::will_free`]) and is not on disk yet.
    fn coming_free(&self) -> u64 {
        0
    }
    /// The transaction is over: it reserved `promised`, and has dirtied what takes `needed` at most.
    fn settle(&self, txg: Txg, promised: u64, needed: u64);
    /// A block was written.
    fn born(&self, tx: &SyncTx<'_>, bp: &BlkPtr) -> Result<()>;
    /// A block is no longer needed by the head: free it ([`SyncTx::free`]) or keep it on the deadlist.
    fn killed(&self, tx: &SyncTx<'_>, bp: &BlkPtr) -> Result<()>;
    /// Blocks below a lost indirect block that the owner knows from elsewhere: a snapshot that has them too can still lead to them.
    fn known_below(&self, lost: &LostTree) -> Vec<BlkPtr> {
        let _ = lost;
        Vec::new()
    }
    /// Blocks that take `bytes` are no longer needed, and nobody can find them: what led to them, a block born in `birth`, cannot be read.
    fn leaked(&self, bytes: u64, birth: Txg) {
        let _ = (bytes, birth);
    }
    /// Something that needs `feature` to be understood is being written: the owner is to say so on disk, in this group or the
    /// one before.
    fn uses(&self, feature: Feature) {
        let _ = feature;
    }
}

/// A user's transaction; dropping it is its end.
pub struct OpenTx<'a> {
    tx: Tx,
    /// The owner that promised space, and how much.
    owner: &'a dyn SpaceOwner,
    promised: u64,
    hold: Hold<'a>,
}

/// A hold of its own, or that of a whole of several operations.
enum Hold<'a> {
    Own { _hold: TxgHold },
    Whole(&'a Whole),
}

/// What a change that a group needs for the first time dirties besides the blocks that are counted: what leads to a dnode.
const UNCOUNTED_BYTES: u64 = 16 << 10;

/// The most that a transaction needs which has dirtied so much that its group had not changed before. What only changes again what the group has changed needs nothing.
pub(super) fn needed(dirtied: u64) -> u64 {
    if dirtied > 0 { dirtied + UNCOUNTED_BYTES } else { 0 }
}

impl Drop for OpenTx<'_> {
    fn drop(&mut self) {
        let dirtied = self.tx.dirtied.load(Ordering::Relaxed);
        match self.tx.freeing.load(Ordering::Relaxed) {
            0 => {}
            bytes => self.owner.will_free(self.tx.txg, bytes),
        }
        match &self.hold {
            Hold::Own { .. } => self.owner.settle(self.tx.txg, self.promised, needed(dirtied)),
            // The whole settles.
            Hold::Whole(whole) => whole.note_dirtied(dirtied),
        }
    }
}

impl Deref for OpenTx<'_> {
    type Target = Tx;

    fn deref(&self) -> &Tx {
        &self.tx
    }
}

impl<'a> OpenTx<'a> {
    /// Joins the open group to write at most `bytes` of new data and metadata; waits while too much is dirty or promised.
    /// Take no lock that the sync thread wants while calling this.
    ///
    /// # Errors
    /// `NoSpace`, `Quota`, `ReadOnly`, or what stopped the pool.
    pub fn assign(membership: &'a Membership, bytes: u64) -> Result<Self> {
        let objset = membership.objset();
        if let Some(whole) = membership.whole() {
            return Ok(Self::of(objset, whole));
        }
        let brought = bytes;
        let bytes = objset.worst_case(bytes, objset.settings().record_bytes);
        let is_again = objset.log().is_some_and(|log| log.is_being_replayed());
        let reserve = |txg| if is_again { objset.owner().reserve_again(txg, bytes) } else { objset.owner().reserve(txg, bytes) };
        Self::assign_with(objset, (brought, bytes), &reserve)
    }

    /// Joins the open group without asking for space for data: for what frees some (removing files), and must succeed on a
    /// pool that is full.
    ///
    /// # Errors
    /// `NoSpace` if even what is kept back for this is used up; `ReadOnly`, or what stopped the pool.
    pub fn assign_freeing(membership: &'a Membership) -> Result<Self> {
        let objset = membership.objset();
        if let Some(whole) = membership.whole() {
            return Ok(Self::of(objset, whole));
        }
        Self::assign_with(objset, (0, 0), &|txg| objset.owner().reserve_to_free(txg))
    }

    /// `brought`: what it writes; `promised`: what that may take.
    fn assign_with(objset: &'a Objset, (brought, promised): (u64, u64), reserve: &dyn Fn(Txg) -> Result<(), Refusal>) -> Result<Self> {
        let hold = ask_for_room(&objset.context().groups, || {
            let hold = join(objset, brought)?;
            reserve(hold.txg()).map(|()| hold)
        })?;
        Ok(OpenTx { tx: Tx::new(hold.txg(), false), owner: objset.owner().as_ref(), promised, hold: Hold::Own { _hold: hold } })
    }

    fn of(objset: &'a Objset, whole: &'a Whole) -> Self {
        OpenTx { tx: Tx::new(whole.txg(), false), owner: objset.owner().as_ref(), promised: 0, hold: Hold::Whole(whole) }
    }

    /// Joins the open group if that needs no waiting.
    pub(super) fn try_join(objset: &Objset) -> Result<Option<TxgHold>> {
        let context = check_may_join(objset)?;
        let has_room = context.dirty.total() < context.dirty_bytes_max();
        Ok(if has_room { context.groups.try_hold() } else { None })
    }
}

fn check_may_join(objset: &Objset) -> Result<&Arc<DmuContext>> {
    let context = objset.context();
    if context.read_only || objset.is_snapshot() {
        bail!(ReadOnly, "{} is read-only", objset.name());
    }
    if let Some(failure) = context.groups.failure() {
        return Err(failure);
    }
    match context.io.devices().refusal() {
        Some(refusal) => Err(refusal),
        None => Ok(context),
    }
}

fn join(objset: &Objset, brought: u64) -> Result<TxgHold> {
    let context = check_may_join(objset)?;
    throttle(context, brought)?;
    Ok(context.groups.hold())
}

/// Every transaction changes some blocks of metadata.
const LEAST_BROUGHT: u64 = 4 << 10;

fn throttle(context: &DmuContext, brought: u64) -> Result<()> {
    let open = context.groups.open_txg();
    let max = context.note_pressure();
    let threshold = max / 100 * context.tunables.now(Parameter::DirtyDataSyncPercent);
    if context.dirty.ripe(open) > threshold {
        context.groups.kick(open);
    }
    let delay = context.dirty.delay_ns(max, brought.max(LEAST_BROUGHT), &context.tunables);
    if delay > 0 {
        context.groups.kick(open);
        context.host.sleep(Duration::from_nanos(delay));
    }
    while !context.dirty.wait_for_room(max) {
        if let Some(failure) = context.groups.failure() {
            return Err(failure);
        }
        context.groups.kick(context.groups.open_txg());
    }
    Ok(())
}

/// The sync thread's transaction: one pass over one group.
pub struct SyncTx<'a> {
    tx: Tx,
    /// Which pass over the group this is, from 1.
    pub pass: u32,
    /// The pool's layers.
    pub context: &'a Arc<DmuContext>,
    frees: &'a Mutex<Vec<BlkPtr>>,
}

impl Deref for SyncTx<'_> {
    type Target = Tx;

    fn deref(&self) -> &Tx {
        &self.tx
    }
}

impl<'a> SyncTx<'a> {
    /// Pass `pass` of `txg`; freed blocks are collected in `frees`, for the pool to return or defer. Only `pool/sync`
    /// and pool creation call this.
    pub fn new(context: &'a Arc<DmuContext>, txg: Txg, pass: u32, frees: &'a Mutex<Vec<BlkPtr>>) -> Self {
        SyncTx { tx: Tx::new(txg, true), pass, context, frees }
    }

    /// The block's space goes back to the pool.
    pub fn free(&self, bp: &BlkPtr) {
        if !bp.is_hole() && !bp.is_embedded() {
            // Nobody will ask for it again, and its memory is wanted for what comes next.
            self.context.cache.invalidate(bp);
            self.frees.lock().push(*bp);
        }
    }
}
