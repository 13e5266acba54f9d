//! Blocks of the intent log, which have their pointers before they have contents.
//!
//! # Theory
//! Somebody waits for them. Blocks that lie one behind the other are one write: a disk that turns would let each wait for a turn of its
//! own (five turns for 64 writers of 8 KiB on a drive without a write cache).

use std::borrow::Cow;
use std::sync::Arc;

use ondisk::blkptr::{BlkPtr, BlockPointer};
use ondisk::dva::Dva;

use crate::bail;
use crate::zio::write::lies_as_it_is;
use crate::zio::{BlockIo, write_range_durable};
use crate::error::{Result, Within};
use crate::vdev::Class;

impl BlockIo {
    /// Writes the beginning of each of these blocks of the intent log, which have their pointers already. `durable`: makes just that
    /// durable, if it can be done by one write; says whether it was.
    ///
    /// # Errors
    /// `Invalid` when a pointer is to no plain block of that length, and those of the devices.
    pub fn write_log(self: &Arc<Self>, blocks: &[(BlkPtr, Vec<u8>)], durable: bool) -> Result<bool> {
        let mut parts: Vec<(Vec<Dva>, Cow<'_, [u8]>, bool, u64)> = Vec::new();
        for (bp, bytes) in blocks {
            let data = match bp.decode()? {
                BlockPointer::Data(data) if !data.is_gang() && data.physical_size >= bytes.len() as u64 => data,
                _ => bail!(Invalid, "{} bytes cannot be written to {bp}", bytes.len()),
            };
            let is_alone = !data.dvas().iter().all(|dva| lies_as_it_is(dva, data.physical_size));
            let mut bytes = Cow::Borrowed(bytes.as_slice());
            if is_alone {
                bytes.to_mut().resize(data.physical_size as usize, 0);
            }
            parts.push((data.dvas().to_vec(), bytes, is_alone, data.physical_birth));
        }
        let mut runs: Vec<LogRun<'_>> = Vec::new();
        for (dvas, bytes, is_alone, birth) in &parts {
            if *is_alone || runs.last_mut().is_none_or(|run| !run.takes(dvas, bytes)) {
                runs.push(LogRun::new(dvas, bytes, *birth));
            }
        }
        let at_once = durable && runs.len() == 1;
        let device = runs.first().and_then(|run| self.device(*run.dvas.first()?).ok());
        match device.as_ref().and_then(|device| device.beside_writes()).filter(|_| runs.len() > 1) {
            None => runs.iter().map(|run| self.write_log_run(&run.dvas, &run.parts, at_once, run.birth)).collect::<Vec<_>>(),
            Some(crew) => {
                let owned = runs.iter().map(|run| (run.dvas.clone(), run.parts.concat(), run.birth)).collect();
                let io = self.clone();
                crew.map(owned, move |(dvas, bytes, birth): (Vec<Dva>, Vec<u8>, u64)| io.write_log_run(&dvas, &[&bytes], at_once, birth))
            }
        }
        .into_iter()
        .collect::<Result<()>>()?;
        Ok(at_once)
    }

    /// When a device fails, that is the answer: there is another way to be safe.
    fn write_log_run(self: &Arc<Self>, dvas: &[Dva], parts: &[&[u8]], durable: bool, birth: u64) -> Result<()> {
        let write = |dva: &Dva| write_range_durable(&self.device(*dva)?, dva.offset, parts, birth).within(|| format!("block at {dva}"));
        let written = if durable { dvas.iter().try_for_each(write) } else { self.write_run(dvas, parts, (Class::SyncWrite, false), birth) };
        written.inspect_err(|_| self.avoid_log_device(dvas))
    }
}

/// What of an intent log lies one behind the other.
struct LogRun<'a> {
    /// Where it begins.
    dvas: Vec<Dva>,
    /// The last block, whose bytes may be less than its room.
    last: Vec<Dva>,
    /// The group in which the first was allocated.
    birth: u64,
    /// So many bytes.
    bytes: u64,
    parts: Vec<&'a [u8]>,
}

impl<'a> LogRun<'a> {
    fn new(dvas: &[Dva], bytes: &'a [u8], birth: u64) -> LogRun<'a> {
        LogRun { dvas: dvas.to_vec(), last: dvas.to_vec(), birth, bytes: bytes.len() as u64, parts: vec![bytes] }
    }

    /// Takes the next block, if it begins where the room of the last one ends, of which not much was left.
    fn takes(&mut self, dvas: &[Dva], bytes: &'a [u8]) -> bool {
        let left = |((next, last), first): ((&Dva, &Dva), &Dva)| {
            let follows = (next.vdev, next.offset) == (last.vdev, last.offset + last.allocated);
            next.offset.checked_sub(first.offset + self.bytes).filter(|left| follows && *left <= GAP.len() as u64)
        };
        let lefts: Option<Vec<u64>> = dvas.iter().zip(&self.last).zip(&self.dvas).map(left).collect();
        let Some(lefts) = lefts.filter(|lefts| dvas.len() == self.dvas.len() && lefts.windows(2).all(|two| two[0] == two[1])) else { return false };
        let gap = lefts.first().map_or(0, |left| *left as usize);
        self.parts.extend([&GAP[..gap], bytes]);
        self.bytes += (gap + bytes.len()) as u64;
        self.last = dvas.to_vec();
        true
    }
}

/// What is written between two blocks of the log: into the room of the first.
static GAP: [u8; 16 << 10] = [0; 16 << 10];

#[cfg(test)]
mod tests {
    use super::*;

    /// The room of one block is not all used, and another's block lies between two of ours: it must not be written over.
    #[test]
    fn only_our_own_room_is_written() {
        let (block, small) = ([1; 8192], [2; 512]);
        let mut run = LogRun::new(&[Dva::new(0, 1 << 20, 8192)], &block, 4);
        let behind = 8192 + (1 << 20);
        assert!(!run.takes(&[Dva::new(1, behind, 8192)], &small), "another vdev");
        assert!(!run.takes(&[Dva::new(0, behind + 4096, 8192)], &small), "there is something between");
        assert!(!run.takes(&[Dva::new(0, 0, 8192)], &small), "before it");
        assert!(run.takes(&[Dva::new(0, behind, 8192)], &small));
        assert!(run.takes(&[Dva::new(0, behind + 8192, 131_072)], &block));
        assert_eq!(run.bytes, 8192 + 8192 + 8192);
        assert_eq!(run.parts.iter().map(|part| part.len()).collect::<Vec<_>>(), [8192, 0, 512, 7680, 8192]);
        assert!(!run.takes(&[Dva::new(0, behind + 8192 + 131_072, 8192)], &small), "too much was left");
    }
}
