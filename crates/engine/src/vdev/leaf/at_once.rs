//! The same bytes written to several places of leaves at the same time, by one thread; without an io_uring one after the other.
//!
//! Called by zio for the sides of a mirror; calls the leaves and `disk`. What has to wait in the queue of its
//! leaf is written afterwards, when nothing of this is under way any more: nobody waits in one queue while he holds a turn in another.

use disk::BatchWrite;

use super::leaf::Begun;
use super::{Class, Leaf};
use crate::error::Result;

/// Writes to every place; the results are in their order.
pub(crate) fn write_at_once(places: &[(&Leaf, u64)], class: Class, bufs: &[&[u8]]) -> Vec<Result<()>> {
    if !places.first().is_some_and(|(leaf, _)| leaf.uses_ring()) {
        return places.iter().map(|(leaf, offset)| leaf.write(class, *offset, bufs)).collect();
    }
    let clocks: Vec<_> = places.iter().map(|(leaf, _)| move || leaf.traffic.now_ns()).collect();
    let begun: Vec<Option<Begun<'_>>> =
        places.iter().zip(&clocks).map(|((leaf, offset), clock)| leaf.begin_write(class, *offset, bufs, clock)).collect();
    let done = {
        let writes: Vec<BatchWrite<'_>> = begun.iter().flatten().map(|begun| begun.write(bufs)).collect();
        disk::write_batch(&writes, true)
    };
    let mut done = done.into_iter();
    let ended: Vec<Option<Result<()>>> = begun.into_iter().map(|begun| Some(begun?.end(done.next()?))).collect();
    let left = |((leaf, offset), ended): (&(&Leaf, u64), Option<Result<()>>)| ended.unwrap_or_else(|| leaf.write(class, *offset, bufs));
    places.iter().zip(ended).map(left).collect()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

    use disk::{Disk, MemDisk};
    use ondisk::label::START_BYTES;

    use super::super::{Reason, VdevState};
    use super::*;
    use crate::tunables::{Parameter, Tunables};

    /// More than may be under way on one leaf, a place that is not on the device, and a leaf without one.
    #[test]
    fn every_place_is_written_and_each_has_its_own_result() {
        for ring in ["0", "1"] {
            let disks = [0, 1].map(|_| Arc::new(MemDisk::new("d", 64 << 20)));
            let limits = Tunables::default();
            limits.parameters.set(Parameter::AsyncWriteMax, "1").unwrap();
            limits.parameters.set(Parameter::IoUring, ring).unwrap();
            let leaf = |disk: Option<disk::DiskRef>| {
                let leaf = Leaf::new(1, "d".into(), disk, VdevState::Online, Reason::None, Arc::new(AtomicU64::new(4)));
                leaf.set_limits(&limits);
                leaf
            };
            let (one, two, gone) = (leaf(Some(disks[0].clone())), leaf(Some(disks[1].clone())), leaf(None));
            let bytes = [[3; 4096], [4; 4096]];
            let places = [(&one, 0), (&one, 8192), (&two, 4096), (&two, 1 << 40), (&gone, 0), (&one, 32768)];
            let done = write_at_once(&places, Class::AsyncWrite, &[&bytes[0], &bytes[1]]);
            assert_eq!(done.iter().map(Result::is_ok).collect::<Vec<_>>(), [true, true, true, false, false, true]);
            for (leaf, disk, at) in [(&one, &disks[0], 0), (&one, &disks[0], 8192), (&two, &disks[1], 4096), (&one, &disks[0], 32768)] {
                let mut back = [[0; 4096]; 2];
                disk.read_at(back.as_flattened_mut(), START_BYTES + at).unwrap();
                assert_eq!(back, bytes);
                assert_eq!((leaf.stats.pending.load(Relaxed), leaf.waiting()), (0, 0));
            }
            assert_eq!((one.stats.writes.load(Relaxed), one.stats.written_bytes.load(Relaxed), two.stats.write_errors.load(Relaxed)), (3, 3 * 8192, 1));
        }
    }
}
