//! The verb.

use std::sync::Arc;

use ondisk::dsl::RedactBlockPhys;
use ondisk::feature::Feature;

use super::changed::changed;
use super::ranges::{Range, Ranges};
use crate::dmu::{Dnode, Objset};
use crate::dsl::{Dataset, Dsl, NewRedaction};
use crate::error::{ErrorKind, Result};
use crate::stream::send::sender::is_before;
use crate::{bail, error};

/// Makes the redaction bookmark `bookmark` (without the dataset's name) of a snapshot: what all of `others`, which were made of it, have changed.
///
/// # Errors
/// `NotFound`; `CrossDevice`: one of them is in another pool; `Invalid`: one is no descendant; `Conflict`: something is redacted itself; `Exists`, `TooBig`,
/// `NameTooLong`, `NotSupported` (the feature), `Mismatch` (there is half of another list of that name).
#[doc(alias = "dmu_redact_snap")]
pub fn redact(dsl: &Arc<Dsl>, snapshot: &str, bookmark: &str, others: &[String]) -> Result<()> {
    let pool = snapshot.split(['/', '@']).next().unwrap_or(snapshot);
    if let Some(other) = others.iter().find(|other| other.split(['/', '@']).next() != Some(pool)) {
        bail!(CrossDevice, "{other}: potentially invalid redaction snapshot; full dataset names required");
    }
    let base = dsl.open_dataset(snapshot)?;
    if !base.is_snapshot {
        bail!(Invalid, "{snapshot}: it is no snapshot");
    }
    let is_redacted = |dataset: &Dataset| dataset.features().contains(&Feature::RedactedDatasets);
    let redacted = || error!(Conflict, "attempted to redact redacted dataset or with respect to redacted dataset");
    if is_redacted(&base) {
        return Err(redacted());
    }
    let mut descendants = Vec::new();
    for other in others {
        let dataset = dsl.open_dataset(other)?;
        if !dataset.is_snapshot || !is_before(dsl, &dataset, &base, base.phys().creation_txg.get())? {
            bail!(Invalid, "{other}: redaction snapshot must be descendent of snapshot being redacted");
        }
        if is_redacted(&dataset) {
            return Err(redacted());
        }
        descendants.push(dataset);
    }
    let head = snapshot.split('@').next().unwrap_or(snapshot);
    let mut new = NewRedaction {
        name: format!("{head}#{bookmark}"),
        source: snapshot.to_owned(),
        snapshots: descendants.iter().map(|dataset| dataset.phys().guid.get()).collect(),
        blocks: Vec::new(),
    };
    // What cannot be made need not be looked for.
    dsl.snapshot_verbs().check_redaction(&new)?;
    let mut common = Ranges::all();
    for dataset in &descendants {
        common = common.common(&changed(dsl, dataset, base.phys().creation_txg.get())?);
    }
    new.blocks = blocks(&dsl.objset(&base)?, &common)?;
    dsl.snapshot_verbs().create_redaction(new)
}

/// The ranges in blocks of the objects that there are. Dictionaries and the like are not redacted.
#[doc(alias = "perform_redaction")]
fn blocks(objset: &Arc<Objset>, ranges: &Ranges) -> Result<Vec<RedactBlockPhys>> {
    let mut found = Vec::new();
    for range in ranges.iter() {
        let mut at = range.first.0.saturating_sub(1);
        while let Some(object) = objset.next_object(at)?.filter(|object| *object <= range.last.0) {
            let dnode = match objset.hold(object) {
                Err(error) if error.kind() == ErrorKind::NotFound => None,
                dnode => Some(dnode?),
            };
            if let Some(dnode) = dnode
                && !dnode.object_type().is_metadata()
            {
                part(&dnode, range, &mut found);
            }
            at = object;
        }
    }
    Ok(found)
}

/// The part of a range that is of one object.
fn part(dnode: &Dnode, range: &Range, found: &mut Vec<RedactBlockPhys>) {
    let (object, max) = (dnode.object(), dnode.max_block());
    let first = if range.first.0 < object { 0 } else { range.first.1 };
    let last = if range.last.0 > object { max } else { range.last.1.min(max) };
    let mut at = first;
    while at <= last {
        let count = (last - at + 1).min(RedactBlockPhys::COUNT_MAX);
        found.push(RedactBlockPhys::new(object, at, count, dnode.block_bytes()));
        at += count;
    }
}
