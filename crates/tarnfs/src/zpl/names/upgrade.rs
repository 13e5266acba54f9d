//! A newer version of a file system that is there.
//!
//! # Theory
//! What a version brought is in what is written from then on: names with types, access control lists with domains, attributes in layouts. What was
//! written before is read as it is; each file says by its bonus how its attributes are kept. So the version is one number in the master node, and the
//! dictionary of attributes beside it.

use std::sync::Arc;

use engine::dmu::{Membership, Objset, OpenTx};
use engine::error;
use engine::error::Result;
use engine::zap::{Zap, ZapSpec};
use ondisk::object_type::ObjectType;
use ondisk::znode;

/// More than what is written for it.
const BYTES: u64 = 1 << 17;

/// Raises the version of the file system in an object set that nobody uses. Returns what it was.
///
/// # Errors
/// The object set is no file system, or cannot be written.
#[doc(alias = "zfs_set_version")]
pub(crate) fn raise_version(objset: &Arc<Objset>, version: u64) -> Result<u64> {
    let master = Zap::open(objset, znode::MASTER_NODE)?;
    let was = master.lookup_u64(znode::VERSION_NAME)?.ok_or_else(|| error!(Corrupt, "the file system has no version"))?;
    let has_attributes = master.lookup_u64(znode::SA_ATTRS_NAME)?.is_some();
    if was >= version {
        return Ok(was);
    }
    let membership = Membership::single(objset.clone());
    let tx = OpenTx::assign(&membership, BYTES)?;
    if version >= znode::VERSION_SA && !has_attributes {
        let attributes = Zap::create(objset, &tx, &ZapSpec::new(ObjectType::SA_MASTER_NODE))?;
        master.add_u64(&tx, znode::SA_ATTRS_NAME, attributes.object())?;
    }
    master.update_u64(&tx, znode::VERSION_NAME, version)?;
    Ok(was)
}
