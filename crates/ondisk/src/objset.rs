//! The head of a set of objects.
//!
//! # On disk
//! ```text
//!    0 meta-dnode (512)   512 intent log header (192)   704 type (8)   712 flags (8)   720 portable MAC (32)
//!  752 local MAC (32)     784 padding
//! 1024 user-used dnode    1536 group-used dnode         (sets of version 2: 2048 bytes)
//! 2048 project-used dnode 2560 padding                  (sets of version 3: 4096 bytes)
//! ```

use crate::corruption::Corruption;
use crate::dnode::{DNODE_SLOT_BYTES, Dnode};

/// Bytes of the intent log's header.
pub const ZIL_HEADER_BYTES: usize = 192;
/// Where the intent log's header is.
pub const ZIL_HEADER_AT: usize = 512;

/// `OBJSET_FLAG_USERACCOUNTING_COMPLETE`: the user-used objects count every object.
pub const FLAG_USER_ACCOUNTING_COMPLETE: u64 = 1;
/// `OBJSET_FLAG_USEROBJACCOUNTING_COMPLETE`: they count the number of objects too.
pub const FLAG_USER_OBJECT_ACCOUNTING_COMPLETE: u64 = 2;
/// `OBJSET_FLAG_PROJECTQUOTA_COMPLETE`: the project-used object counts every object.
pub const FLAG_PROJECT_QUOTA_COMPLETE: u64 = 4;

/// The type of an object set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ObjsetType {
    /// None yet.
    None,
    /// The pool's own: the MOS.
    Meta,
    /// A file system.
    FileSystem,
    /// A volume.
    Volume,
    /// Another number.
    Other(u64),
}

impl ObjsetType {
    /// From `os_type`.
    pub fn from_number(number: u64) -> Self {
        match number {
            0 => ObjsetType::None,
            1 => ObjsetType::Meta,
            2 => ObjsetType::FileSystem,
            3 => ObjsetType::Volume,
            other => ObjsetType::Other(other),
        }
    }

    /// `os_type`.
    pub fn number(self) -> u64 {
        match self {
            ObjsetType::None => 0,
            ObjsetType::Meta => 1,
            ObjsetType::FileSystem => 2,
            ObjsetType::Volume => 3,
            ObjsetType::Other(other) => other,
        }
    }
}

/// How much of the structure a pool has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum ObjsetSize {
    /// 1024 bytes: before user accounting.
    V1,
    /// 2048 bytes: user and group accounting.
    V2,
    /// 4096 bytes: project accounting.
    V3,
}

/// The first version of pools that counts what users have.
const VERSION_USER_ACCOUNTING: u64 = 15;

impl ObjsetSize {
    /// The size of object sets that are made in a pool of this version.
    pub fn for_pool(version: u64) -> ObjsetSize {
        if version >= VERSION_USER_ACCOUNTING { ObjsetSize::V3 } else { ObjsetSize::V1 }
    }

    /// Bytes.
    pub fn bytes(self) -> usize {
        match self {
            ObjsetSize::V1 => 1024,
            ObjsetSize::V2 => 2048,
            ObjsetSize::V3 => 4096,
        }
    }
}

/// `objset_phys_t`, decoded.
#[derive(Debug, Clone)]
pub struct Objset {
    /// The object whose data are the dnodes.
    #[doc(alias = "os_meta_dnode")]
    pub meta: Dnode,
    /// The intent log's header, raw (see [`crate::zil`]).
    #[doc(alias = "os_zil_header")]
    pub zil_header: [u8; ZIL_HEADER_BYTES],
    /// The type of the set.
    #[doc(alias = "os_type")]
    pub objset_type: ObjsetType,
    /// `FLAG_*`.
    #[doc(alias = "os_flags")]
    pub flags: u64,
    /// Both MACs, raw: 32 bytes portable, 32 bytes local.
    pub macs: [u8; 64],
    /// Space used by user id.
    #[doc(alias = "os_userused_dnode")]
    pub user_used: Dnode,
    /// Space used by group id.
    #[doc(alias = "os_groupused_dnode")]
    pub group_used: Dnode,
    /// Space used by project id.
    #[doc(alias = "os_projectused_dnode")]
    pub project_used: Dnode,
    /// How much of it is on disk.
    pub size: ObjsetSize,
}

impl Objset {
    /// Decodes a little-endian block.
    ///
    /// # Errors
    /// A block of a length that is none of the three, or a dnode that cannot be.
    pub fn decode(bytes: &[u8]) -> Result<Self, Corruption> {
        let size = match bytes.len() {
            1024..2048 => ObjsetSize::V1,
            2048..4096 => ObjsetSize::V2,
            4096.. => ObjsetSize::V3,
            short => return Err(Corruption::new("objset", "length", short as u64)),
        };
        let dnode = |at: usize| match bytes.get(at..at + DNODE_SLOT_BYTES) {
            Some(slot) if !Dnode::peek_free(slot) => Dnode::decode(slot),
            _ => Ok(Dnode::free()),
        };
        let word = |at: usize| bytes.get(at..at + 8).and_then(|w| w.try_into().ok()).map_or(0, u64::from_le_bytes);
        let mut zil_header = [0; ZIL_HEADER_BYTES];
        zil_header.copy_from_slice(bytes.get(ZIL_HEADER_AT..ZIL_HEADER_AT + ZIL_HEADER_BYTES).unwrap_or(&[0; ZIL_HEADER_BYTES]));
        let mut macs = [0; 64];
        macs.copy_from_slice(bytes.get(720..784).unwrap_or(&[0; 64]));
        Ok(Objset {
            meta: dnode(0)?,
            zil_header,
            objset_type: ObjsetType::from_number(word(704)),
            flags: word(712),
            macs,
            user_used: if size >= ObjsetSize::V2 { dnode(1024)? } else { Dnode::free() },
            group_used: if size >= ObjsetSize::V2 { dnode(1536)? } else { Dnode::free() },
            project_used: if size >= ObjsetSize::V3 { dnode(2048)? } else { Dnode::free() },
            size,
        })
    }

    /// The authentication code that another pool can verify, too.
    #[doc(alias = "os_portable_mac")]
    pub fn portable_mac(&self) -> &[u8] {
        self.macs.get(..32).unwrap_or_default()
    }

    /// Encodes into as many bytes as `size` says.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = vec![0; self.size.bytes()];
        let mut put = |at: usize, bytes: &[u8]| {
            if let Some(place) = out.get_mut(at..at + bytes.len()) {
                place.copy_from_slice(bytes);
            }
        };
        let slot = |dnode: &Dnode| {
            let mut slot = vec![0; DNODE_SLOT_BYTES];
            dnode.encode(&mut slot);
            slot
        };
        put(0, &slot(&self.meta));
        put(ZIL_HEADER_AT, &self.zil_header);
        put(704, &self.objset_type.number().to_le_bytes());
        put(712, &self.flags.to_le_bytes());
        put(720, &self.macs);
        put(1024, &slot(&self.user_used));
        put(1536, &slot(&self.group_used));
        put(2048, &slot(&self.project_used));
        out
    }
}
