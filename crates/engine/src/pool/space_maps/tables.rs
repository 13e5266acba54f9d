//! The ZAPs that name space maps.

use crate::dmu::{ObjectId, Objset, SyncTx};
use crate::error::Result;
use ondisk::object_type::ObjectType;

/// The MOS's directory.
pub(super) const MOS_DIRECTORY: ObjectId = 1;
/// In the MOS's directory: the ZAP from txg to log space map.
pub(super) const LOG_TABLE: &str = "com.delphix:log_spacemap_zap";
/// In a top-level vdev's ZAP: the array of flush txgs.
pub(super) const FLUSH_TXGS: &str = "com.delphix:ms_unflushed_phys_txgs";

