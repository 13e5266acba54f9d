//! Several I/Os of one device made as one, each in the memory of its caller.
//!
//! Called by a leaf for what its queue took together; calls `disk`.

use std::io;
use std::sync::Arc;

use disk::{Borrowed, DiskRef};

use super::queue::Waiting;

/// The memory of all, while they wait for it.
fn borrow(all: &[Arc<Waiting>]) -> io::Result<Vec<Borrowed<'_>>> {
    let borrowed: Option<Vec<_>> = all.iter().map(|one| one.loan.as_ref()?.borrow()).collect();
    borrowed.ok_or_else(|| io::Error::other("an I/O does not wait any more"))
}

/// From the first to the end of the last, in bytes.
pub(in crate::vdev) fn length(all: &[Arc<Waiting>]) -> usize {
    match (all.first(), all.last()) {
        (Some(first), Some(last)) => (last.wanted.end() - first.wanted.at) as usize,
        _ => 0,
    }
}

/// Reads all of it at once, and what lies between.
pub(in crate::vdev) fn read(disk: &DiskRef, all: &[Arc<Waiting>]) -> io::Result<()> {
    let Some(first) = all.first() else { return Ok(()) };
    let apart = |pair: &[Arc<Waiting>]| (pair[1].wanted.at - pair[0].wanted.end()) as usize;
    let mut gaps: Vec<Vec<u8>> = all.windows(2).map(|pair| vec![0; apart(pair)]).collect();
    let mut borrowed = borrow(all)?;
    let mut gaps = gaps.iter_mut();
    let mut bufs: Vec<&mut [u8]> = Vec::new();
    for one in &mut borrowed {
        bufs.extend(one.bufs_mut());
        bufs.extend(gaps.next().map(Vec::as_mut_slice).filter(|gap| !gap.is_empty()));
    }
    disk.read_vectored_at(&mut bufs, first.wanted.at)
}

/// Writes all of it at once.
pub(in crate::vdev) fn write(disk: &DiskRef, all: &[Arc<Waiting>]) -> io::Result<()> {
    let Some(first) = all.first() else { return Ok(()) };
    let borrowed = borrow(all)?;
    let bufs: Vec<&[u8]> = borrowed.iter().flat_map(Borrowed::bufs).collect();
    disk.write_vectored_at(&bufs, first.wanted.at)
}

#[cfg(test)]
mod tests;
