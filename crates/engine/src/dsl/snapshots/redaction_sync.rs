//! Bookmarks that say what of their snapshot is not to be sent.
//!
//! # On disk
//! [`RedactionListPhys`] in the bonus of a MOS object or, where OpenZFS had too many guids, in its spill block; the object's data are [`RedactBlockPhys`].

use std::sync::Arc;

use ondisk::dnode::Dnode;
use ondisk::dsl::{RedactBlockPhys, RedactionListPhys};
use ondisk::feature::Feature;
use ondisk::object_type::ObjectType;
use zerocopy::IntoBytes;
use zerocopy::byteorder::{LittleEndian, U64};

use super::bookmark_verbs_sync::{NewBookmark, add_counted, find, parse, phys_of};
use crate::bail;
use crate::dmu::SyncTx;
use crate::dsl::dsl::Parts;
use crate::dsl::mos::Mos;
use crate::error::{Result, Within};

/// Bytes of a block of a list.
const BLOCK_BYTES: u64 = 128 << 10;
/// What a bonus buffer of the smallest dnode with one pointer has room for.
fn bonus_bytes_max() -> usize {
    Dnode::bonus_bytes_max(1, 1)
}

/// What is to be made.
#[derive(Debug, Clone)]
pub struct NewRedaction {
    /// `pool/a#bookmark`
    pub name: String,
    /// `pool/a@snapshot`
    pub source: String,
    /// The guids of the snapshots that say what is redacted.
    pub snapshots: Vec<u64>,
    /// What is redacted, in the order of objects and blocks.
    pub blocks: Vec<RedactBlockPhys>,
}

impl NewRedaction {
    fn bonus(&self) -> Vec<u8> {
        let head = RedactionListPhys {
            last_object: u64::MAX.into(),
            last_block: u64::MAX.into(),
            entries: (self.blocks.len() as u64).into(),
            snapshots: (self.snapshots.len() as u64).into(),
        };
        let guids: Vec<U64<LittleEndian>> = self.snapshots.iter().map(|guid| U64::new(*guid)).collect();
        [head.as_bytes(), guids.as_bytes()].concat()
    }

    /// The list of that name that somebody left unfinished.
    fn unfinished(&self, parts: &Parts) -> Result<Option<u64>> {
        let (head, short) = parse(parts, &self.name)?;
        let exists = || crate::error!(Exists, "{}: bookmark exists", self.name);
        let Some((phys, _)) = find(parts, &head, short)? else { return Ok(None) };
        let list = phys.redaction_list.get();
        if list == 0 {
            return Err(exists());
        }
        let bonus = redaction_bonus(&parts.meta.mos, list)?;
        let theirs = RedactionListPhys::from_bonus(&bonus).within(|| &self.name)?;
        let guids = RedactionListPhys::snapshot_guids(&bonus).within(|| &self.name)?;
        if guids.len() != self.snapshots.len() || self.snapshots.iter().any(|guid| !guids.contains(guid)) {
            bail!(Mismatch, "attempted to resume redaction  with a mismatched redaction list");
        }
        if (theirs.last_object.get(), theirs.last_block.get()) == (u64::MAX, u64::MAX) {
            return Err(exists());
        }
        Ok(Some(list))
    }

    /// Whether the guids fit into a bonus buffer: more of them would need a spill block, for which a MOS object with three pointers has no room here.
    pub(super) fn check_fits(&self) -> Result<()> {
        if size_of::<RedactionListPhys>() + 8 * self.snapshots.len() > bonus_bytes_max() {
            bail!(TooBig, "too many redaction snapshots specified");
        }
        Ok(())
    }

    #[doc(alias = "dsl_bookmark_create_redacted_check")]
    pub(super) fn check(&self, parts: &Parts) -> Result<()> {
        if !parts.meta.features.is_enabled(Feature::RedactionBookmarks) {
            bail!(NotSupported, "redaction bookmarks feature not enabled");
        }
        self.check_fits()?;
        match self.unfinished(parts) {
            Ok(Some(_)) => Ok(()),
            Ok(None) => NewBookmark { name: self.name.clone(), source: self.source.clone() }.check(parts),
            Err(error) => Err(error),
        }
    }

    /// Makes it. Checked before.
    #[doc(alias = "dsl_bookmark_create_redacted_sync")]
    pub(super) fn create_sync(&self, parts: &Parts, tx: &SyncTx<'_>) -> Result<()> {
        let mos = &parts.meta.mos;
        if let Some(list) = self.unfinished(parts)? {
            mos.write(list, 0, self.blocks.as_bytes(), tx)?;
            let bonus = self.bonus();
            return mos.set_bonus(list, &bonus[..size_of::<RedactionListPhys>()], tx);
        }
        let (head, short) = parse(parts, &self.name)?;
        let snapshot = parts.tree.dataset_by_name(&self.source)?;
        let mut phys = phys_of(parts, &snapshot)?;
        let list = self.write_list(parts, tx)?;
        phys.redaction_list = list.into();
        add_counted(parts, &head, short, &phys, tx)?;
        let details = format!("name={short} creation_txg={} target_snap={} redact_obj={list}", phys.creation_txg, snapshot.object);
        parts.record_dataset_event(&head, "bookmark", &details, tx)
    }

    /// Makes the list: its object.
    pub(super) fn write_list(&self, parts: &Parts, tx: &SyncTx<'_>) -> Result<u64> {
        let mos = &parts.meta.mos;
        let bonus = self.bonus();
        let kind = ObjectType::UINT64_METADATA;
        let list = mos.allocate(kind, BLOCK_BYTES, kind, bonus.len(), tx)?;
        parts.meta.features.increment(mos, Feature::RedactionBookmarks, tx)?;
        mos.set_bonus(list, &bonus, tx)?;
        if !self.blocks.is_empty() {
            mos.write(list, 0, self.blocks.as_bytes(), tx)?;
        }
        Ok(list)
    }
}

/// The head of a redaction list, with the guids of the snapshots that it is for.
///
/// # Errors
/// It cannot be read.
pub fn redaction_bonus(mos: &Mos, list: u64) -> Result<Arc<Vec<u8>>> {
    let bonus = mos.bonus(list)?;
    if !bonus.is_empty() {
        return Ok(bonus);
    }
    Ok(mos.0.hold(list)?.spill()?.unwrap_or(bonus))
}
