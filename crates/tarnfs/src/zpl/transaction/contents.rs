//! Changing one file in a transaction.

use engine::bail;
use engine::error::{ErrorKind, Result};
use ondisk::znode;

use super::node::{Node, PIECE};
use super::{NodeId, OWN, Transaction};
use crate::zpl::{AclKind, SetAttributes, SetTime, Stat, XattrMode};

/// Bytes that a change of attributes counts as.
const ATTRIBUTE_BYTES: u64 = 512;
/// Largest value of an extended attribute.
const XATTR_BYTES_MAX: usize = 65_536;
const XATTR_NAME_MAX: usize = 255;
const TYPE_MASK: u32 = 0o170_000;

impl Transaction {
    /// A file that is to be changed: it must be as it was when the transaction first looked at it.
    fn load_to_change(&mut self, id: NodeId) -> Result<&mut Node> {
        let node = self.load(id)?;
        node.depends |= node.base.is_some();
        if node.stat.flags & (znode::FLAG_IMMUTABLE | znode::FLAG_APPEND_ONLY) != 0 {
            bail!(Denied, "inode {id} is marked not to be changed");
        }
        self.depend(id)?;
        Ok(self.nodes.get_mut(&id).expect("it was loaded"))
    }

    /// Whether a file may be changed at all.
    ///
    /// # Errors
    /// `Denied` for files that are marked; `Conflict`.
    pub fn check_changeable(&mut self, id: NodeId) -> Result<()> {
        self.load_to_change(id).map(|_| ())
    }

    /// Writes.
    ///
    /// # Errors
    /// `TooBig` beyond what a transaction may hold; `Denied` for files that are marked; `Conflict`.
    pub fn write(&mut self, id: NodeId, offset: u64, data: &[u8]) -> Result<()> {
        self.load_to_change(id)?.check_regular()?;
        if data.is_empty() {
            return Ok(());
        }
        let Some(end) = offset.checked_add(data.len() as u64).filter(|end| *end <= i64::MAX as u64) else {
            bail!(TooBig, "a file cannot be as large as {offset} and {} bytes", data.len());
        };
        let size = PIECE as u64;
        let node = &self.nodes[&id];
        let new = (offset / size..=(end - 1) / size).filter(|number| !node.patch.pieces.contains_key(number)).count() as u64;
        self.check_size(new * size)?;
        let mut left = data;
        let mut at = offset;
        while !left.is_empty() {
            let (number, within) = (at / size, (at % size) as usize);
            let (now, later) = left.split_at((PIECE - within).min(left.len()));
            if !self.nodes[&id].patch.pieces.contains_key(&number) {
                // What is overwritten as a whole need not be read.
                let piece = if now.len() == PIECE { Box::new([0; PIECE]) } else { self.whole_piece(id, number)? };
                self.nodes.get_mut(&id).expect("it was loaded").patch.pieces.insert(number, piece);
                self.bytes += size;
            }
            let node = self.nodes.get_mut(&id).expect("it was loaded");
            node.patch.pieces.get_mut(&number).expect("it was put there")[within..within + now.len()].copy_from_slice(now);
            (left, at) = (later, at + now.len() as u64);
        }
        self.depend(id)?;
        let now = self.fs.now();
        let node = self.nodes.get_mut(&id).expect("it was loaded");
        node.patch.exists = true;
        node.stat.size = node.stat.size.max(end);
        node.touch(now);
        Ok(())
    }

    /// Sets the size.
    ///
    /// # Errors
    /// Those of [`Transaction::write`].
    pub fn truncate(&mut self, id: NodeId, size: u64) -> Result<()> {
        let now = self.fs.now();
        let node = self.load_to_change(id)?;
        node.check_regular()?;
        if size > i64::MAX as u64 {
            bail!(TooBig, "a file cannot have {size} bytes");
        }
        let (first_gone, within) = (size.div_ceil(PIECE as u64), (size % PIECE as u64) as usize);
        let gone = node.patch.pieces.split_off(&first_gone).len();
        if within > 0 && let Some(last) = node.patch.pieces.get_mut(&(size / PIECE as u64)) {
            last[within..].fill(0);
        }
        node.patch.exists = true;
        node.patch.kept = node.patch.kept.min(size);
        node.stat.size = size;
        node.touch(now);
        self.bytes -= (gone * PIECE) as u64;
        Ok(())
    }

    /// Makes a range zeros.
    ///
    /// # Errors
    /// Those of [`Transaction::write`].
    pub fn zero(&mut self, id: NodeId, offset: u64, length: u64) -> Result<()> {
        let size = self.load_to_change(id)?.stat.size;
        let length = length.min(size.saturating_sub(offset));
        self.check_size(length)?;
        self.write(id, offset, &vec![0; usize::try_from(length).unwrap_or(usize::MAX)])
    }

    /// Changes attributes; the size too.
    ///
    /// # Errors
    /// Those of [`Transaction::write`]; `NotSupported` for flags and projects.
    pub fn setattr(&mut self, id: NodeId, set: &SetAttributes) -> Result<Stat> {
        if set.flags.is_some() || set.project.is_some() {
            bail!(NotSupported, "flags and projects cannot be changed in a transaction");
        }
        if let Some(size) = set.size {
            self.truncate(id, size)?;
        }
        let now = self.fs.now();
        if *set != (SetAttributes { size: set.size, ..SetAttributes::default() }) {
            self.check_size(ATTRIBUTE_BYTES)?;
            let fs = self.fs.clone();
            let node = self.load_to_change(id)?;
            if set.mode.is_some() && node.base.is_some() {
                fs.check_mode_may_change(id, node.stat.flags)?;
            }
            let first = node.attributes == SetAttributes::default();
            let time = |time| match time {
                SetTime::Now => now,
                SetTime::To(time) => time,
            };
            if let Some(mode) = set.mode {
                node.stat.mode = node.stat.mode & TYPE_MASK | mode & !TYPE_MASK;
                node.attributes.mode = Some(mode & !TYPE_MASK);
            }
            if let Some(uid) = set.uid {
                (node.stat.uid, node.attributes.uid) = (uid, Some(uid));
            }
            if let Some(gid) = set.gid {
                (node.stat.gid, node.attributes.gid) = (gid, Some(gid));
            }
            if let Some(access) = set.access_time {
                (node.stat.access_time, node.attributes.access_time) = (time(access), Some(SetTime::To(time(access))));
            }
            if let Some(modification) = set.modification_time {
                (node.stat.modification_time, node.attributes.modification_time) = (time(modification), Some(SetTime::To(time(modification))));
            }
            node.stat.change_time = set.change_time.unwrap_or(now);
            self.bytes += if first { ATTRIBUTE_BYTES } else { 0 };
        }
        Ok(self.load(id)?.stat.clone())
    }

    /// Sets an extended attribute.
    ///
    /// # Errors
    /// `Exists` or `NoAttribute`, as `mode` wants it; those of [`Transaction::write`].
    pub fn setxattr(&mut self, id: NodeId, name: &[u8], value: &[u8], mode: XattrMode) -> Result<()> {
        if value.len() > XATTR_BYTES_MAX {
            bail!(TooBig, "an extended attribute of {} bytes is larger than {XATTR_BYTES_MAX}", value.len());
        }
        if name.is_empty() || name.len() > XATTR_NAME_MAX || name.contains(&0) {
            bail!(Range, "a name of {} bytes for an extended attribute", name.len());
        }
        check_no_list(name)?;
        // It may have to go into a file, of which this is the name.
        self.fs.names.rules().check_new_text(name)?;
        let exists = match self.getxattr(id, name) {
            Ok(_) => true,
            Err(error) if error.kind() == ErrorKind::NoAttribute => false,
            Err(error) => return Err(error),
        };
        match (mode, exists) {
            (XattrMode::Create, true) => bail!(Exists, "inode {id} has the extended attribute {:?}", String::from_utf8_lossy(name)),
            (XattrMode::Replace, false) => bail!(NoAttribute, "inode {id} has no extended attribute {:?}", String::from_utf8_lossy(name)),
            _ => self.change_xattr(id, name, Some(value.to_vec())),
        }
    }

    /// Removes an extended attribute.
    ///
    /// # Errors
    /// `NoAttribute`; those of [`Transaction::write`].
    pub fn removexattr(&mut self, id: NodeId, name: &[u8]) -> Result<()> {
        check_no_list(name)?;
        self.getxattr(id, name)?;
        let in_base = id < OWN && match self.fs.getxattr(id, name) {
            Ok(_) => true,
            Err(error) if error.kind() == ErrorKind::NoAttribute => false,
            Err(error) => return Err(error),
        };
        self.change_xattr(id, name, None)?;
        if !in_base {
            // What the transaction itself had set needs no removal, and the commit could do none.
            self.load(id)?.xattrs.remove(name);
        }
        Ok(())
    }

    fn change_xattr(&mut self, id: NodeId, name: &[u8], value: Option<Vec<u8>>) -> Result<()> {
        let bytes = ATTRIBUTE_BYTES + value.as_ref().map_or(0, Vec::len) as u64;
        self.check_size(bytes)?;
        let now = self.fs.now();
        let node = self.load_to_change(id)?;
        node.stat.change_time = now;
        node.xattrs.insert(name.to_vec(), value);
        self.bytes += bytes;
        Ok(())
    }
}

fn check_no_list(name: &[u8]) -> Result<()> {
    if AclKind::of_name(name).is_some() {
        bail!(NotSupported, "access control lists cannot be changed in a transaction");
    }
    Ok(())
}
