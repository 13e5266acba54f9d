//! Whether a head and its hidden child may change places, at the end of a stream.
//!
//! # Path
//! `end_sync.rs` asks; `dsl/dataset/swap_sync.rs` does it.

use std::sync::Arc;

use crate::dsl::dataset::Dataset;
use crate::error;
use crate::error::Result;

/// One transaction may go beyond a refquota by so much: so may what is received.
const QUOTA_SLACK: u64 = 64 << 20;
/// What a byte may take on disk at the most.
const INFLATION: u64 = 24;

/// Whether they can change places. `force`: changes of the head are given up.
#[doc(alias = "dsl_dataset_clone_swap_check_impl")]
pub(in crate::dsl) fn check_swap(clone: &Arc<Dataset>, head: &Arc<Dataset>, force: bool) -> Result<()> {
    let name = head.dir.full_name();
    let before = |dataset: &Dataset| dataset.prev().map(|prev| prev.object);
    if clone.is_snapshot || head.is_snapshot || clone.dir.parent().is_none_or(|parent| parent.object != head.dir.object) {
        return Err(error!(Invalid, "'{name}' and '{}' cannot change places", clone.dir.full_name()));
    }
    if !force && before(clone) != before(head) {
        return Err(error!(Modified, "destination {name} has been modified\nsince most recent snapshot"));
    }
    if !force && let Some(prev) = head.prev() && super::checks::modified_since(head, &prev)? {
        return Err(error!(Modified, "destination {name} has been modified\nsince most recent snapshot"));
    }
    let limits = head.limits();
    let claimed = |unique: u64| limits.reserved().min(unique);
    let more = claimed(limits.unique()).saturating_sub(claimed(clone.limits().unique()));
    if more > 0 && more > head.room().available(&head.dir, true) {
        return Err(error!(NoSpace, "'{name}': out of space"));
    }
    let slack = QUOTA_SLACK * INFLATION;
    if limits.quota() != 0 && clone.limits().referenced() > limits.quota().saturating_add(slack) {
        return Err(error!(Quota, "destination {name} space quota exceeded."));
    }
    Ok(())
}
