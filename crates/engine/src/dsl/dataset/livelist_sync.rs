//! A head's livelist, if it is a clone: what is noted while it is written, and when the list is given up.

use std::sync::Arc;

use ondisk::blkptr::BlkPtr;
use ondisk::dsl::UsedKind;

use super::Dataset;
use super::state::DatasetState;
use crate::dmu::SyncTx;
use crate::dsl::dead::livelist_sync::{Livelist, take_away};
use crate::dsl::meta::Space;
use crate::error::Result;
use crate::tunables::Parameter;

/// The livelist of a head that is in memory, and what the group has for it.
#[derive(Debug)]
pub(in crate::dsl) struct OpenLivelist {
    list: Arc<Livelist>,
    born: Vec<BlkPtr>,
    freed: Vec<BlkPtr>,
    /// Blocks were lost: it no longer says what is there.
    is_wrong: bool,
}

impl OpenLivelist {
    /// Nothing has happened yet.
    pub(super) fn new(list: Livelist) -> OpenLivelist {
        OpenLivelist { list: Arc::new(list), born: Vec::new(), freed: Vec::new(), is_wrong: false }
    }
}

impl DatasetState {
    /// A block was born (or freed), in a head that is a clone of a snapshot of `origin_txg`. What its pointer holds needs not be freed.
    pub(super) fn note_for_livelist(&mut self, bp: &BlkPtr, is_freed: bool, origin_txg: u64) {
        if let Some(livelist) = &mut self.livelist
            && bp.birth() > origin_txg
            && !bp.is_embedded()
        {
            if is_freed { livelist.freed.push(*bp) } else { livelist.born.push(*bp) }
        }
    }

    /// Blocks were lost that the list has.
    pub(super) fn livelist_is_wrong(&mut self) {
        if let Some(livelist) = &mut self.livelist {
            livelist.is_wrong = true;
        }
    }
}

/// A head has been written: its list learns what was born and freed. `is_first`: it was not written before in this group. A list that cannot be read is
/// given up: a walk frees as much.
pub(super) fn sync_livelist(head: &Dataset, is_first: bool, tx: &SyncTx<'_>) -> Result<()> {
    let (list, born, freed, is_wrong) = {
        let mut state = head.state.lock();
        let Some(livelist) = &mut state.livelist else { return Ok(()) };
        (livelist.list.clone(), std::mem::take(&mut livelist.born), std::mem::take(&mut livelist.freed), livelist.is_wrong)
    };
    if is_wrong || shares_little(head) {
        return remove_livelist(head, tx);
    }
    match list.note(head.meta(), &born, &freed, is_first, tx) {
        Err(error) if tx.context.io.is_lost(&error) => {
            tracing::error!("{}: its livelist is given up: {error}", head.dir.full_name());
            remove_livelist(head, tx)
        }
        noted => noted,
    }
}

/// Whether the list does not pay: of what the head refers to, little is its origin's.
#[doc(alias = "dsl_livelist_should_disable")]
fn shares_little(head: &Dataset) -> bool {
    let referenced = u128::from(head.referenced().used);
    let shared = referenced.saturating_sub(head.dir.used_by(UsedKind::Head).into());
    referenced != 0 && shared * 100 / referenced <= head.meta().context.tunables.now(Parameter::LivelistMinPercentShared).into()
}

/// The space of what is alive on a head's list, if it has one, and how many sublists there are.
pub(super) fn livelist_of(head: &Dataset) -> Result<Option<(Space, u64)>> {
    let list = head.state.lock().livelist.as_ref().map(|livelist| livelist.list.clone());
    list.map(|list| list.extent(head.meta())).transpose()
}

/// A head gives its list up, not the blocks on it.
pub(in crate::dsl) fn remove_livelist(head: &Dataset, tx: &SyncTx<'_>) -> Result<()> {
    head.state.lock().livelist = None;
    take_away(head.meta(), head.dir.object, true, tx)
}

/// The list of a head that is to be destroyed, which has it no more: its object, the group before the first one that it knows of, and the space of what is
/// alive on it. `None`: there is none that has all of what is counted.
pub(in crate::dsl) fn give_livelist(head: &Dataset, tx: &SyncTx<'_>) -> Result<Option<(u64, u64, Space)>> {
    let Some(OpenLivelist { list, .. }) = head.state.lock().livelist.take() else { return Ok(None) };
    let (object, first, space) = match list.sum(head.meta()) {
        Err(error) if tx.context.io.is_lost(&error) => {
            tracing::error!("{}: its livelist is not used: {error}", head.dir.full_name());
            return take_away(head.meta(), head.dir.object, true, tx).map(|()| None);
        }
        sum => sum?,
    };
    let counted = head.dir.space();
    let is_complete = (space.used, space.compressed) == (counted.used, counted.compressed) && space.uncompressed <= counted.uncompressed;
    take_away(head.meta(), head.dir.object, !is_complete, tx)?;
    if !is_complete {
        tracing::warn!("{}: its livelist is not complete ({space:?} of {counted:?}), and not used", head.dir.full_name());
    }
    Ok(is_complete.then_some((object, first, space)))
}
