//! Messages to the kernel that no request asked for: what it must no longer believe.
//!
//! Never call these from inside an operation on the same inode: the kernel may hold that inode's lock while it waits
//! for the reply, and the notification waits for the lock.

use std::io::IoSlice;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use zerocopy::IntoBytes;

use crate::protocol::{DeleteOut, EXPIRE_ONLY, InvalEntryOut, InvalInodeOut, NOTIFY_DELETE, NOTIFY_INC_EPOCH, NOTIFY_INVAL_ENTRY, NOTIFY_INVAL_INODE, OutHeader};
use crate::{Errno, Result};

/// Sends notifications to one mount.
#[derive(Clone, Debug)]
pub struct Notifier {
    pub(crate) device: Arc<OwnedFd>,
}

impl Notifier {
    /// Sends them into a descriptor, in the place of a mount.
    pub fn into(device: OwnedFd) -> Notifier {
        Notifier { device: Arc::new(device) }
    }

    /// Forget cached attributes of a node and, from `offset` on, `length` bytes of data (0: to the end; negative offset: attributes only).
    pub fn inval_inode(&self, node: u64, offset: i64, length: i64) -> Result<()> {
        let body = InvalInodeOut { node, offset, length };
        self.send(NOTIFY_INVAL_INODE, &[body.as_bytes()])
    }

    /// Forget what `name` in `parent` resolves to.
    pub fn inval_entry(&self, parent: u64, name: &[u8]) -> Result<()> {
        self.entry(parent, name, 0)
    }

    /// Look `name` in `parent` up again at its next use, keeping it if it is still the same.
    pub fn expire_entry(&self, parent: u64, name: &[u8]) -> Result<()> {
        self.entry(parent, name, EXPIRE_ONLY)
    }

    /// `name` in `parent`, which was `child`, is gone.
    pub fn delete(&self, parent: u64, child: u64, name: &[u8]) -> Result<()> {
        let name_len = u32::try_from(name.len()).map_err(|_| Errno::ENAMETOOLONG)?;
        let body = DeleteOut { parent, child, name_len, padding: 0 };
        self.send(NOTIFY_DELETE, &[body.as_bytes(), name, b"\0"])
    }

    /// Look every name up again at its next use. `EINVAL` where the kernel is older than Linux 6.16.
    pub fn forget_names(&self) -> Result<()> {
        self.send(NOTIFY_INC_EPOCH, &[])
    }

    fn entry(&self, parent: u64, name: &[u8], flags: u32) -> Result<()> {
        let name_len = u32::try_from(name.len()).map_err(|_| Errno::ENAMETOOLONG)?;
        let body = InvalEntryOut { parent, name_len, flags };
        self.send(NOTIFY_INVAL_ENTRY, &[body.as_bytes(), name, b"\0"])
    }

    /// A node or name that the kernel does not have cached is no error.
    fn send(&self, code: i32, parts: &[&[u8]]) -> Result<()> {
        let len = size_of::<OutHeader>() + parts.iter().map(|part| part.len()).sum::<usize>();
        let header = OutHeader { len: u32::try_from(len).map_err(|_| Errno::EINVAL)?, error: code, unique: 0 };
        let mut slices = vec![IoSlice::new(header.as_bytes())];
        slices.extend(parts.iter().map(|part| IoSlice::new(part)));
        match rustix::io::writev(&*self.device, &slices) {
            Ok(_) | Err(rustix::io::Errno::NOENT) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}
