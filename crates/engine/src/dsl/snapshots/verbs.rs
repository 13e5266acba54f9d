//! The administrative verbs on snapshots, holds and bookmarks: each on several things, all or none.

use std::sync::Arc;

use parking_lot::Mutex;

use super::bookmark_verbs_sync::{NewBookmark, SentBookmark, bookmark_to_send, check_destroy_bookmarks, create_bookmarks_sync, create_refusals, destroy_bookmarks_sync};
use super::destroy_sync::Doomed;
use super::holds_sync::{Tagged, has_temporary, release_temporary_sync};
use super::redaction_sync::NewRedaction;
use super::snapshot_sync::{NewSnapshots, Refusals};
use crate::canary::Canary;
use crate::dmu::{Membership, SyncTx};
use crate::dsl::Dsl;
use crate::dsl::dsl::Parts;
use crate::dsl::space::room::SpaceCheck;
use crate::dsl::tasks::actor::{act_as, actor};
use crate::error::{Error, ErrorKind, Result};
use crate::txg::Txg;
use crate::{bail, error};

/// Snapshots that a group takes at its end.
#[derive(Debug, Default)]
pub struct Pending(Arc<Mutex<Option<Refusals>>>);

impl Pending {
    /// Why none was taken, if so. To be asked when the group is on disk.
    ///
    /// # Errors
    /// What was in the way of the first.
    pub fn outcome(&self) -> Result<()> {
        match self.0.lock().take() {
            Some(refused) => refused.into_iter().next().map_or(Ok(()), |(_, error)| Err(error)),
            None => Err(error!(Suspended, "the pool stopped before the snapshot was taken")),
        }
    }
}

/// What can be done with snapshots, holds and bookmarks.
#[derive(Debug)]
pub struct SnapshotVerbs<'d>(pub(in crate::dsl) &'d Arc<Dsl>);

impl SnapshotVerbs<'_> {
    /// Makes a change of several things, unless something is refused, at once or in the sync thread.
    fn run_refusable<T, R, C>(&self, (blocks, space): (u64, SpaceCheck), what: T, refusals: R, change: C) -> Result<Refusals>
    where
        T: Send + Sync + 'static,
        R: Fn(&Parts, &T, Option<Txg>) -> Refusals + Copy + Send + 'static,
        C: Fn(&Parts, &T, &SyncTx<'_>) -> Result<()> + Copy + Send + 'static,
    {
        let what = Arc::new(what);
        {
            let _names = self.0.lock_names();
            let refused = refusals(&self.0.parts, &what, None);
            if !refused.is_empty() {
                return Ok(refused);
            }
        }
        loop {
            let changing = what.clone();
            let refused = self.0.run_task(blocks, space, |_| Ok(()), move |dsl, tx| {
                let refused = refusals(&dsl.parts, &changing, Some(tx.txg()));
                if refused.is_empty() {
                    change(&dsl.parts, &changing, tx)?;
                }
                Ok(refused)
            })?;
            // The next group may have it.
            if !refused.iter().any(|(_, error)| error.kind() == ErrorKind::Conflict) {
                return Ok(refused);
            }
        }
    }

    /// Takes snapshots, all in one group, and waits until they are on disk. What is said of some of them says why none was taken.
    ///
    /// # Errors
    /// `Invalid`, `NameTooLong`, `CrossDevice` (two of one dataset), `NotSupported` (a property that snapshots have not), `NoSpace`.
    #[doc(alias = "dsl_dataset_snapshot")]
    pub fn create_snapshots(&self, new: NewSnapshots) -> Result<Refusals> {
        new.check(&self.0.meta)?;
        if new.names.len() > 1 && self.0.meta.context.tunables.canary == Some(Canary::SnapshotsOneByOne) {
            let one = |name: &String| self.create_snapshots(NewSnapshots { names: vec![name.clone()], properties: new.properties.clone() });
            return Ok(new.names.iter().map(one).collect::<Result<Vec<Refusals>>>()?.into_iter().flatten().collect());
        }
        // Many records share a block of the MOS.
        let cost = (3 + new.names.len() as u64 / 16, SpaceCheck::Normal);
        self.run_refusable(cost, new, |parts, new, txg| new.refusals(parts, txg), |parts, new, tx| new.take_sync(parts, tx))
    }

    /// Why these snapshots cannot be taken, as far as can be said now.
    ///
    /// # Errors
    /// As for [`SnapshotVerbs::create_snapshots`], or what is in the way of one of them.
    pub fn check_new(&self, new: &NewSnapshots) -> Result<()> {
        new.check(&self.0.meta)?;
        let _names = self.0.lock_names();
        self.0.parts.room.check_change(&*self.0.root_dir()?, 3, SpaceCheck::Normal).map_err(Error::from)?;
        new.refusals(&self.0.parts, None).into_iter().next().map_or(Ok(()), |(_, error)| Err(error))
    }

    /// Takes snapshots at the end of the group that `members` have joined, of which the caller is one. Checked before; should one be in the way all
    /// the same, [`Pending`] says so when the group is on disk, and none is taken.
    ///
    /// # Errors
    /// The members have joined no group.
    pub fn create_with(&self, members: &Membership, new: NewSnapshots) -> Result<Pending> {
        let txg = members.txg().ok_or_else(|| error!(Invalid, "snapshots are to be taken of a group that is not begun"))?;
        let pending = Pending::default();
        let (said, user) = (pending.0.clone(), actor());
        let work = move |dsl: &Arc<Dsl>, tx: &SyncTx<'_>| {
            let _acting = act_as(user);
            let refused = new.refusals(&dsl.parts, Some(tx.txg()));
            if refused.is_empty() {
                new.take_sync(&dsl.parts, tx)?;
            }
            *said.lock() = Some(refused);
            Ok(())
        };
        self.0.tasks.queue_in(txg, Box::new(work));
        Ok(pending)
    }

    /// Destroys snapshots, all in one group; what only they have is freed in the background. Those that are not there are passed over.
    /// `defer`: what is held or cloned is only marked, and goes when nothing keeps it any more.
    ///
    /// # Errors
    /// `NoSpace`, `ReadOnly`.
    #[doc(alias = "dsl_destroy_snapshots_nvl")]
    pub fn destroy_snapshots(&self, names: Vec<String>, defer: bool) -> Result<Refusals> {
        let doomed = Doomed { names, defer };
        let cost = (1, SpaceCheck::ExtraReserved);
        self.run_refusable(cost, doomed, |parts, doomed, _| doomed.refusals(parts), |parts, doomed, tx| doomed.destroy_sync(parts, tx))
    }

    /// What would come free if all snapshots from `first` to `last` were destroyed, which are of one dataset.
    ///
    /// # Errors
    /// `NotFound`; `Invalid`: they are not of one dataset, or not in this order.
    #[doc(alias = "dsl_dataset_space_wouldfree")]
    pub fn space_would_free(&self, first: &str, last: &str) -> Result<u64> {
        let _names = self.0.lock_names();
        let (first, last) = (self.0.dataset_by_name(first)?, self.0.dataset_by_name(last)?);
        let (begin, end) = (first.phys(), last.phys());
        if !first.is_snapshot || !last.is_snapshot || first.dir.object != last.dir.object || begin.creation_txg.get() > end.creation_txg.get() {
            bail!(Invalid, "{}: the snapshots are not those of one dataset, the older one first", first.dir.full_name());
        }
        let (mut at, mut sum) = (end.next_snapshot.get(), 0_u64);
        let mut before = u64::MAX;
        while at != first.object {
            let dataset = self.0.dataset(at)?;
            sum = sum.saturating_add(dataset.deadlist().space_born_in(&self.0.meta, begin.prev_snapshot_txg.get(), u64::MAX)?.used);
            let phys = dataset.phys();
            if phys.prev_snapshot.get() == 0 || phys.prev_snapshot_txg.get() >= before {
                bail!(Corrupt, "dataset {at}: its snapshots are not in a row");
            }
            (at, before) = (phys.prev_snapshot.get(), phys.prev_snapshot_txg.get());
        }
        Ok(sum)
    }

    /// Keeps snapshots from being destroyed.
    ///
    /// # Errors
    /// `Invalid` (the tag), `NoSpace`, `ReadOnly`.
    pub fn hold_snapshots(&self, names: Vec<String>, tag: String) -> Result<Refusals> {
        let cost = (1 + names.len() as u64 / 16, SpaceCheck::Reserved);
        let held = Tagged { names, tag };
        held.check_tag()?;
        self.run_refusable(cost, held, |parts, held, _| held.hold_refusals(parts), |parts, held, tx| held.hold_sync(parts, tx))
    }

    /// Takes that back. One that only waited for it is destroyed.
    ///
    /// # Errors
    /// `ReadOnly`.
    pub fn release_snapshots(&self, names: Vec<String>, tag: String) -> Result<Refusals> {
        let cost = (1, SpaceCheck::None);
        let released = Tagged { names, tag };
        self.run_refusable(cost, released, |parts, held, _| held.release_refusals(parts), |parts, held, tx| held.release_sync(parts, tx))
    }

    /// Releases what sends of OpenZFS's held that a crash ended. When a pool is opened.
    ///
    /// # Errors
    /// The MOS cannot be read; `ReadOnly`.
    pub fn release_temporary(&self) -> Result<()> {
        let has_any = {
            let _names = self.0.lock_names();
            has_temporary(&self.0.parts)?
        };
        if !has_any {
            return Ok(());
        }
        self.0.run_task(1, SpaceCheck::None, |_| Ok(()), |dsl, tx| release_temporary_sync(&dsl.parts, tx))
    }

    /// Makes bookmarks.
    ///
    /// # Errors
    /// `NoSpace`, `ReadOnly`.
    pub fn create_bookmarks(&self, new: Vec<NewBookmark>) -> Result<Refusals> {
        let cost = (1 + new.len() as u64 / 16, SpaceCheck::Normal);
        self.run_refusable(cost, new, |parts, new, _| create_refusals(parts, new), |parts, new, tx| create_bookmarks_sync(parts, new, tx))
    }

    /// Whether a redaction bookmark can be made.
    ///
    /// # Errors
    /// Those of [`Self::create_redaction`].
    pub fn check_redaction(&self, new: &NewRedaction) -> Result<()> {
        let _names = self.0.lock_names();
        new.check(&self.0.parts)
    }

    /// Makes a bookmark that says what of its snapshot is not to be sent.
    ///
    /// # Errors
    /// `NotSupported`, `TooBig`, `Exists`, `Mismatch`, and those of [`Self::create_bookmarks`].
    pub fn create_redaction(&self, new: NewRedaction) -> Result<()> {
        let new = Arc::new(new);
        let checked = new.clone();
        let blocks = 2 + new.blocks.len() as u64 / 4096;
        self.0.run_task(blocks, SpaceCheck::Normal, move |dsl| checked.check(&dsl.parts), move |dsl, tx| new.create_sync(&dsl.parts, tx))
    }

    /// The bookmark `name` of `head`, for a stream that is sent by it or from it.
    ///
    /// # Errors
    /// `NotFound`; or it cannot be read.
    pub fn bookmark_to_send(&self, head: &str, name: &str) -> Result<SentBookmark> {
        let _names = self.0.lock_names();
        bookmark_to_send(&self.0.parts, head, name)
    }

    /// Destroys bookmarks; those that are not there are passed over.
    ///
    /// # Errors
    /// `Invalid`, `NameTooLong`, `ReadOnly`; `Busy`: a stream is sent by the redaction list of one.
    pub fn destroy_bookmarks(&self, names: Vec<String>) -> Result<()> {
        let names = Arc::new(names);
        let checked = names.clone();
        let check = move |dsl: &Arc<Dsl>| check_destroy_bookmarks(&dsl.parts, &checked);
        self.0.run_task(1, SpaceCheck::Reserved, check, move |dsl, tx| destroy_bookmarks_sync(&dsl.parts, &names, tx))
    }
}
