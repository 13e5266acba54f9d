//! Space, block by block.
//!
//! # Theory
//! Which blocks a version refers to, and when each was born, says everything that the pool keeps sums of. With what is born after the snapshot before a
//! version called new in it:
//!
//! ```text
//!   referenced          all blocks of the version
//!   written             the new ones
//!   used by a snapshot  the new ones that the next version has not
//!   used by the head    the head's that were born after what it was cloned from
//!   used by snapshots   the snapshots' that were born after that, and the head has not
//!   written@snapshot    the head's that were born after it
//! ```

use std::collections::HashMap;
use std::ops::ControlFlow;
use std::sync::Arc;

use engine::dsl::{Dataset, Dsl, Traversal};
use engine::error::Result;
use ondisk::dsl::UsedKind;

/// The blocks of one version: by vdev and offset; when it was born, and bytes.
type Blocks = HashMap<(u32, u64), (u64, u64)>;

fn blocks(dsl: &Dsl, version: &Dataset) -> Result<Blocks> {
    let mut found = Blocks::new();
    Traversal::new(&dsl.meta.context, version.object, 0).run(&version.phys().block, &mut |visited| {
        if let Some(dva) = visited.pointer.first_dva().filter(|_| !visited.pointer.is_embedded()) {
            found.insert((dva.vdev, dva.offset), (visited.pointer.logical_birth(), dsl.meta.space_of(visited.pointer).used));
        }
        Ok(ControlFlow::Continue(()))
    })?;
    Ok(found)
}

fn sum(blocks: &Blocks, counts: impl Fn(&(u32, u64), u64) -> bool) -> u64 {
    blocks.iter().filter(|(place, (birth, _))| counts(place, *birth)).map(|(_, (_, bytes))| bytes).sum()
}

fn differ(what: &str, recorded: u64, found: u64) -> std::result::Result<(), String> {
    if recorded == found { Ok(()) } else { Err(format!("{what}: the pool says {recorded}, its blocks say {found}")) }
}

/// Compares the sums of a file system and its snapshots with their blocks.
///
/// # Errors
/// The difference.
pub(super) fn compare(dsl: &Arc<Dsl>, head: &Arc<Dataset>) -> std::result::Result<(), String> {
    let text = |error: engine::error::Error| error.to_string();
    let mut versions = Vec::new();
    for (name, object) in head.snapshots().map_err(text)? {
        versions.push((name, dsl.dataset(object).map_err(text)?));
    }
    versions.push(("(the head)".to_owned(), head.clone()));
    let all: Vec<Blocks> = versions.iter().map(|(_, version)| blocks(dsl, version)).collect::<Result<_>>().map_err(text)?;
    for (at, (name, version)) in versions.iter().enumerate() {
        let (own, since) = (&all[at], version.phys().prev_snapshot_txg.get());
        differ(&format!("{name}: referenced"), version.referenced().used, sum(own, |_, _| true))?;
        differ(&format!("{name}: written"), version.written().map_err(text)?, sum(own, |_, birth| birth > since))?;
        let alone = sum(own, |place, birth| birth > since && all.get(at + 1).is_none_or(|next| !next.contains_key(place)));
        differ(&format!("{name}: unique"), version.unique_bytes(), alone)?;
    }
    let Some((of_head, of_snapshots)) = all.split_last() else { return Ok(()) };
    let since = head.dir.origin_txg();
    differ("used by the head", head.dir.used_by(UsedKind::Head), sum(of_head, |_, birth| birth > since))?;
    let mut of_all = Blocks::new();
    of_snapshots.iter().for_each(|blocks| of_all.extend(blocks));
    let by_snapshots = sum(&of_all, |place, birth| birth > since && !of_head.contains_key(place));
    differ("used by snapshots", head.dir.used_by(UsedKind::Snapshot), by_snapshots)?;
    for (name, snapshot) in &versions[..of_snapshots.len()] {
        let since = snapshot.phys().creation_txg.get();
        let recorded = head.written_since(snapshot).map_err(text)?.ok_or("it does not come from its snapshot")?;
        differ(&format!("written@{name}"), recorded, sum(of_head, |_, birth| birth > since))?;
    }
    if let (Some((first, _)), Some((last, _))) = (versions.first(), versions[..of_snapshots.len()].last()) {
        let name = head.dir.full_name();
        let freed = dsl.snapshot_verbs().space_would_free(&format!("{name}@{first}"), &format!("{name}@{last}")).map_err(text)?;
        differ("what destroying all snapshots would free", freed, by_snapshots)?;
    }
    sums(dsl, head)
}

/// What a directory uses is what its parts use, and its children are one of them.
fn sums(dsl: &Arc<Dsl>, head: &Arc<Dataset>) -> std::result::Result<(), String> {
    let dir = &head.dir;
    let kinds = [UsedKind::Head, UsedKind::Snapshot, UsedKind::Child, UsedKind::ChildReservation, UsedKind::RefReservation];
    differ("used", dir.space().used, kinds.map(|kind| dir.used_by(kind)).iter().sum())?;
    let children = dsl.children(dir).map_err(|error| error.to_string())?;
    let below: u64 = children.iter().map(|(_, child)| child.space().used).sum();
    // The pool's own directories are children of the root, too.
    if dir.parent().is_none() && dir.used_by(UsedKind::Child) >= below {
        return Ok(());
    }
    differ("used by children", dir.used_by(UsedKind::Child), below)
}
