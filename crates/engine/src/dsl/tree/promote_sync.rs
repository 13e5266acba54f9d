//! Promotion: a clone and the file system that it was cloned from change places.
//!
//! # Theory
//! A tree of snapshots has one line that is the directory's own, and clones that branch off it. Promotion says which of two lines goes on where
//! they part: the clone gets the shared snapshots, its origin the newest of them, and the file system that had them becomes a clone of that one.
//!
//! ```text
//!   fs     s1 --- s2 --- s3 --- head             clone  s1 --- s2 --- head
//!                  \                      ->                     \
//!   clone           head                         fs               s3 --- head
//! ```
//!
//! No block moves, and no deadlist: each belongs to a version, whichever directory that is in. What changes is names, which directory the
//! shared snapshots are in, who is whose next one, and so for whom space is counted.
//!
//! # On disk
//! `ondisk::dsl::DirPhys` (`origin`, `clones`), `ondisk::dsl::DatasetPhys` (`dir`, `next_snapshot`, `next_clones`, `unique_bytes`)

use std::sync::Arc;

use ondisk::dsl::{DATASET_FLAG_NO_PROMOTE, DIR_FLAG_USED_BREAKDOWN, UsedKind, dir_field, number_key};
use ondisk::object_type::ObjectType;

use super::dir::Dir;
use super::names::NAME_BYTES_MAX;
use super::rename_sync::available_after_leaving;
use crate::canary::Canary;
use crate::dmu::SyncTx;
use crate::dsl::counts::{Limited, adjust_count, check_limits, common_ancestor};
use crate::dsl::dataset::Dataset;
use crate::dsl::dataset::livelist_sync::remove_livelist;
use crate::dsl::dsl::Parts;
use crate::dsl::keys::root_sync::{may_take_place, take_root_sync};
use crate::dsl::meta::{Space, SpaceDelta};
use crate::dsl::snapshots::bookmark_moves_sync::{check_bookmarks_move, move_bookmarks_sync};
use crate::dsl::tasks::sync_tasks::cannot;
use crate::error::{ErrorKind, Result};
use crate::{bail, error};

/// From this pool version on directories list the clones of their snapshots.
const DIR_CLONES_VERSION: u64 = 26;
/// A line of versions is not longer, but in a damaged pool.
const LINE_MAX: usize = 1 << 24;

/// The datasets that take part in a promotion. Lines are newest first.
pub(in crate::dsl) struct Promotion {
    clone: Arc<Dataset>,
    /// The snapshots that move: the clone's origin and those before it.
    shared: Vec<Arc<Dataset>>,
    /// The clone's head and its own snapshots.
    of_clone: Vec<Arc<Dataset>>,
    /// The head that it was cloned from, and that one's snapshots after the origin.
    of_origin: Vec<Arc<Dataset>>,
    /// What the file system that it was cloned from is a clone of itself: often the empty snapshot; none in old pools.
    grand_origin: Option<Arc<Dataset>>,
    /// What is counted for the clone from now on.
    moved: Space,
}

impl Promotion {
    fn origin(&self) -> Result<&Arc<Dataset>> {
        self.shared.first().ok_or_else(|| error!(Corrupt, "the clone has no origin"))
    }

    fn origin_head(&self) -> Result<&Arc<Dataset>> {
        self.of_origin.first().ok_or_else(|| error!(Corrupt, "the origin has no head"))
    }

    /// The clone's first version after the origin.
    fn first_of_clone(&self) -> Result<&Arc<Dataset>> {
        self.of_clone.last().ok_or_else(|| error!(Corrupt, "the clone has no head"))
    }
}

/// The versions from `last` back to the one after `before`.
fn line(parts: &Parts, before: u64, last: u64) -> Result<Vec<Arc<Dataset>>> {
    let (mut found, mut at) = (Vec::new(), last);
    while at != before && at != 0 {
        let dataset = parts.tree.dataset(at)?;
        at = dataset.phys().prev_snapshot.get();
        found.push(dataset);
        if found.len() > LINE_MAX {
            bail!(Corrupt, "dataset {last}: its snapshots do not end");
        }
    }
    Ok(found)
}

/// What is on the deadlists of a line and was born after `after`: space that its snapshots take.
fn dead_space(parts: &Parts, line: &[Arc<Dataset>], after: u64) -> Result<u64> {
    let mut sum = 0_u64;
    for dataset in line {
        sum = sum.saturating_add(dataset.deadlist().space_born_in(&parts.meta, after, u64::MAX)?.used);
    }
    Ok(sum)
}

/// What the shared snapshots brought: what the newest of them refers to, and all that died on the way there.
fn moved_space(parts: &Parts, shared: &[Arc<Dataset>], grand_origin: Option<&Dataset>) -> Result<Space> {
    let mut sum = shared.first().map_or(Space::default(), |origin| origin.referenced());
    // The very first snapshot of an old pool has no deadlist.
    for snapshot in shared.iter().filter(|snapshot| snapshot.phys().prev_snapshot.get() != 0) {
        sum.add(snapshot.deadlist().space(&parts.meta)?);
    }
    let before = grand_origin.map_or(Space::default(), |origin| origin.referenced());
    Ok(Space {
        used: sum.used.saturating_sub(before.used),
        compressed: sum.compressed.saturating_sub(before.compressed),
        uncompressed: sum.uncompressed.saturating_sub(before.uncompressed),
    })
}

/// The datasets that take part, if a clone can be promoted.
///
/// # Errors
/// `Invalid` (it is no clone), `Exists` (a snapshot or bookmark of that name is there; the last word of the message), `NameTooLong`, `Busy`, `NoSpace`.
#[doc(alias = "dsl_dataset_promote_check")]
pub(in crate::dsl) fn check_promote(parts: &Parts, name: &str) -> Result<Promotion> {
    let refuse = |why: &str, kind| cannot("promote", name, why, kind);
    let clone = parts.tree.dataset_by_name(name)?;
    if clone.is_snapshot {
        return Err(refuse("snapshots can not be promoted", ErrorKind::Invalid));
    }
    let Some(origin) = clone.origin()? else { return Err(refuse("not a cloned filesystem", ErrorKind::Invalid)) };
    if clone.phys().flags.get() & DATASET_FLAG_NO_PROMOTE != 0 {
        return Err(refuse("it must not be promoted", ErrorKind::Invalid));
    }
    if !may_take_place(parts, &clone.dir, &origin.dir)? {
        return Err(refuse("cannot promote dataset outside its encryption root", ErrorKind::Denied));
    }
    let grand = origin.dir.phys().origin.get();
    let grand_origin = if grand == 0 { None } else { Some(parts.tree.dataset(grand)?) };
    let shared = line(parts, grand, origin.object)?;
    let of_clone = line(parts, origin.object, clone.object)?;
    let of_origin = line(parts, origin.object, origin.dir.phys().head_dataset.get())?;
    for snapshot in &shared {
        if parts.objsets.is_open(snapshot) {
            return Err(refuse(&format!("snapshot '{}' is busy", snapshot.name()?), ErrorKind::Busy));
        }
    }
    check_names(name, &clone, &shared)?;
    let origin_head = of_origin.first().ok_or_else(|| error!(Corrupt, "{name}: its origin has no head"))?;
    check_bookmarks_move(&parts.meta, name, origin_head, &clone, origin.phys().creation_txg.get())?;
    let moved = moved_space(parts, &shared, grand_origin.as_deref())?;
    if available_after_leaving(parts, &clone.dir, &origin.dir, moved.used) < moved.used {
        return Err(refuse("out of space", ErrorKind::NoSpace));
    }
    let ancestor = common_ancestor(&origin.dir, &clone.dir);
    check_limits(parts, &clone.dir, shared.len() as u64, Limited::Snapshots, ancestor.as_deref())?;
    Ok(Promotion { clone, shared, of_clone, of_origin, grand_origin, moved })
}

/// The clone has no snapshots of the names of those that move to it, and room for those names.
fn check_names(name: &str, clone: &Dataset, shared: &[Arc<Dataset>]) -> Result<()> {
    let mut names = Vec::new();
    for snapshot in shared {
        let Some(short) = snapshot.snapshot_name()? else { continue };
        if clone.snapshot_object(&short)?.is_some() {
            return Err(cannot("promote", name, &format!("conflicting snapshot '{short}'"), ErrorKind::Exists));
        }
        if name.len() + 1 + short.len() > NAME_BYTES_MAX {
            return Err(cannot("promote", name, "snapshot name is too long", ErrorKind::NameTooLong));
        }
        names.push(short);
    }
    clone.meta().mos.zap(clone.phys().snapshot_names.get())?.check_room(&names)
}

/// Promotes a clone. Checked before.
#[doc(alias = "dsl_dataset_promote_sync")]
pub(in crate::dsl) fn promote_sync(parts: &Parts, name: &str, tx: &SyncTx<'_>) -> Result<()> {
    let all = check_promote(parts, name)?;
    let (origin, origin_head) = (all.origin()?.clone(), all.origin_head()?.clone());
    let (dir, old_dir) = (all.clone.dir.clone(), origin.dir.clone());
    take_root_sync(parts, &all.clone, &origin_head, tx)?;
    // Before anything moves: by which txgs the sums are cut.
    let old_txg = old_dir.origin_txg();
    let clone_snapshots = dead_space(parts, &all.shared, old_txg)?.saturating_add(dead_space(parts, &all.of_clone, old_txg)?);
    let origin_snapshots = dead_space(parts, &all.of_origin, origin.phys().creation_txg.get())?;
    let first = all.first_of_clone()?.clone();
    let unique = first.deadlist().space_born_in(&parts.meta, origin.phys().prev_snapshot_txg.get(), u64::MAX)?.used;
    let old_next = origin.phys().next_snapshot.get();
    origin.change(|state| {
        state.phys_mut().next_snapshot = first.object.into();
        state.phys_mut().unique_bytes = unique.into();
    });
    if origin.phys().next_clones.get() != 0 {
        replace_number(parts, origin.phys().next_clones.get(), first.object, old_next, tx)?;
    }
    let old_origin = old_dir.phys().origin;
    parts.ledger.change_dir(&dir, |state| state.phys_mut().origin = old_origin);
    dir.set_origin_txg(old_txg);
    parts.ledger.change_dir(&old_dir, |state| state.phys_mut().origin = origin.object.into());
    old_dir.set_origin_txg(origin.phys().creation_txg.get());
    let clones = swap_clones(parts, &all, &dir, &old_dir, &origin_head, tx)?;
    move_bookmarks_sync(parts, &origin_head, &all.clone, &origin, tx)?;
    for snapshot in &all.shared {
        move_snapshot(parts, snapshot, &all.clone, &origin_head, tx)?;
        if let Some((from, to)) = clones {
            move_clones(parts, snapshot, (from, to), old_next, tx)?;
        }
    }
    if tx.context.tunables.canary != Some(Canary::PromoteMovesNoSpace) {
        move_space(parts, (&dir, clone_snapshots), (&old_dir, origin_snapshots), all.moved);
    }
    remove_livelist(&all.clone, tx)?;
    remove_livelist(&origin_head, tx)?;
    parts.record_dataset_event(&all.clone, "promote", " ", tx)?;
    reload(parts, &all.shared, tx)?;
    parts.objsets.refresh_settings()
}

fn replace_number(parts: &Parts, list: u64, old: u64, new: u64, tx: &SyncTx<'_>) -> Result<()> {
    parts.meta.mos.zap_remove(list, &number_key(old), tx)?;
    parts.meta.mos.zap(list)?.add_int(tx, new)
}

/// The two heads change places in the lists of clones. Returns the lists of the old directory and the new one.
fn swap_clones(
    parts: &Parts,
    all: &Promotion,
    dir: &Arc<Dir>,
    old_dir: &Arc<Dir>,
    origin_head: &Dataset,
    tx: &SyncTx<'_>,
) -> Result<Option<(u64, u64)>> {
    let mos = &parts.meta.mos;
    let (from, Some(grand)) = (old_dir.phys().clones.get(), &all.grand_origin) else { return Ok(None) };
    if parts.meta.version() < DIR_CLONES_VERSION || from == 0 {
        return Ok(None);
    }
    mos.zap_remove(from, &number_key(all.clone.object), tx)?;
    let above = grand.dir.phys().clones.get();
    if above != 0 {
        replace_number(parts, above, origin_head.object, all.clone.object, tx)?;
    }
    let to = match dir.phys().clones.get() {
        0 => mos.zap_create(ObjectType::DSL_CLONES, tx)?,
        there => there,
    };
    parts.ledger.change_dir(dir, |state| state.phys_mut().clones = to.into());
    mos.zap(to)?.add_int(tx, origin_head.object)?;
    Ok(Some((from, to)))
}

/// A shared snapshot gets its name in the clone.
fn move_snapshot(parts: &Parts, snapshot: &Arc<Dataset>, clone: &Arc<Dataset>, origin_head: &Arc<Dataset>, tx: &SyncTx<'_>) -> Result<()> {
    let mos = &parts.meta.mos;
    let (old, new) = (origin_head.phys().snapshot_names.get(), clone.phys().snapshot_names.get());
    let name = parts.tree.snapshot_names().name_of(mos, old, snapshot.object)?;
    mos.zap_remove(old, &name, tx)?;
    adjust_count(&parts.meta, &origin_head.dir, dir_field::SNAPSHOT_COUNT, -1, tx)?;
    mos.zap_add_u64(new, &name, snapshot.object, tx)?;
    adjust_count(&parts.meta, &clone.dir, dir_field::SNAPSHOT_COUNT, 1, tx)?;
    let dir = clone.dir.object;
    snapshot.change(|state| state.phys_mut().dir = dir.into());
    Ok(())
}

/// The other clones of a shared snapshot are listed where the snapshot is.
fn move_clones(parts: &Parts, snapshot: &Dataset, (from, to): (u64, u64), old_next: u64, tx: &SyncTx<'_>) -> Result<()> {
    let mos = &parts.meta.mos;
    let clones = snapshot.phys().next_clones.get();
    if clones == 0 {
        return Ok(());
    }
    for (_, value) in mos.zap_entries(clones)? {
        let object = value.first();
        // The line of the old head is there already.
        if object == old_next {
            continue;
        }
        let head = parts.tree.dataset(object)?.dir.phys().head_dataset.get();
        mos.zap_remove(from, &number_key(head), tx)?;
        mos.zap(to)?.add_int(tx, head)?;
    }
    Ok(())
}

/// Space that was counted for one directory is counted for the other. Each comes with what its snapshots take now.
fn move_space(parts: &Parts, (dir, snapshots): (&Arc<Dir>, u64), (old_dir, old_snapshots): (&Arc<Dir>, u64), moved: Space) {
    let more_of = |dir: &Dir, snapshots: u64| {
        let kept = dir.phys().flags.get() & DIR_FLAG_USED_BREAKDOWN != 0;
        if kept { snapshots.cast_signed().wrapping_sub(dir.used_by(UsedKind::Snapshot).cast_signed()) } else { 0 }
    };
    for (dir, snapshots, space) in [(dir, snapshots, moved.positive()), (old_dir, old_snapshots, moved.negative())] {
        let delta = more_of(dir, snapshots);
        parts.ledger.did_use(dir, UsedKind::Snapshot, SpaceDelta { used: delta, ..SpaceDelta::default() });
        parts.ledger.did_use(dir, UsedKind::Head, SpaceDelta { used: space.used.wrapping_sub(delta), ..space });
    }
}

/// The snapshots that moved are loaded anew, with their new directory, and heads get to know them.
fn reload(parts: &Parts, moved: &[Arc<Dataset>], tx: &SyncTx<'_>) -> Result<()> {
    parts.records.flush(&parts.meta.mos, tx)?;
    for snapshot in moved {
        parts.forget_dataset(snapshot.object);
    }
    for head in parts.tree.live_datasets().iter().filter(|dataset| !dataset.is_snapshot) {
        let Some(prev) = head.prev().filter(|prev| moved.iter().any(|snapshot| snapshot.object == prev.object)) else { continue };
        let anew = parts.tree.dataset(prev.object)?;
        head.change(|state| state.set_prev(Some(anew)));
    }
    Ok(())
}
