//! Disks in memory that remember in which order things came to them, and what a loss of power can leave of that.
//!
//! # Theory
//! All disks of a run write into one [`Recorder`]: writes, flushes, and notes of the workload (which operation began, which ended).
//! A cut is a place in that list. What a disk had flushed before the cut is there; each sector of what it was
//! given later is there or is not, whatever the others are. A later write over the same sector that is there hides the earlier one, so
//! every reordering has the same outcome as some choice of sectors.
//!
//! An [`Image`] shares its memory with the images it was copied from: a state of a pool of some megabytes costs microseconds.

use std::collections::HashMap;
use std::io;
use std::sync::Arc;

use disk::{Disk, DiskKind};
use parking_lot::Mutex;
use rand::Rng;
use rand_chacha::ChaCha8Rng;

/// Unit of sharing.
const CHUNK: usize = 4096;
/// The unit that is written whole or not at all.
pub const SECTOR: usize = 512;

/// The contents of a disk; what was never written is zero.
#[derive(Clone, Default)]
pub struct Image(HashMap<u64, Arc<[u8; CHUNK]>>);

impl Image {
    /// Fills `buf` from `offset`.
    pub fn read(&self, mut offset: u64, mut buf: &mut [u8]) {
        while !buf.is_empty() {
            let within = (offset % CHUNK as u64) as usize;
            let (now, later) = buf.split_at_mut((CHUNK - within).min(buf.len()));
            match self.0.get(&(offset / CHUNK as u64)) {
                Some(chunk) => now.copy_from_slice(&chunk[within..within + now.len()]),
                None => now.fill(0),
            }
            offset += now.len() as u64;
            buf = later;
        }
    }

    /// Puts `data` at `offset`.
    pub fn write(&mut self, mut offset: u64, mut data: &[u8]) {
        while !data.is_empty() {
            let within = (offset % CHUNK as u64) as usize;
            let (now, later) = data.split_at((CHUNK - within).min(data.len()));
            let chunk = self.0.entry(offset / CHUNK as u64).or_insert_with(|| Arc::new([0; CHUNK]));
            Arc::make_mut(chunk)[within..within + now.len()].copy_from_slice(now);
            offset += now.len() as u64;
            data = later;
        }
    }

    /// The chunks that were written, by offset.
    pub fn chunks(&self) -> impl Iterator<Item = (u64, &[u8])> {
        self.0.iter().map(|(index, chunk)| (index * CHUNK as u64, &chunk[..]))
    }
}

/// An event at the disks, or in the workload.
#[derive(Clone)]
pub enum Event {
    /// A disk was given this.
    Write {
        /// Which disk.
        disk: usize,
        /// Where to.
        offset: u64,
        /// What.
        data: Arc<[u8]>,
    },
    /// A disk has made everything durable that it was given before the flush began.
    Flush {
        /// Which disk.
        disk: usize,
        /// The number of the event that was the next one then: what came since may be durable or not.
        begun: usize,
    },
    /// A disk has made that one write durable: the event of this number.
    Durable {
        /// The write.
        write: usize,
    },
    /// The operation of this number begins.
    Begin(usize),
    /// It has returned, without an error.
    End(usize),
}

/// The events, in order.
#[derive(Default)]
pub struct Recorder(Mutex<Vec<Event>>);

impl Recorder {
    /// Appends; returns the number of the event.
    pub fn note(&self, event: Event) -> usize {
        let mut events = self.0.lock();
        events.push(event);
        events.len() - 1
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.0.lock().len()
    }

    /// All of them; none are left.
    pub fn take(&self) -> Vec<Event> {
        std::mem::take(&mut self.0.lock())
    }
}

/// The faults of a disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Vices {
    /// It is this disk that does.
    pub disk: usize,
    /// The write of this number fails, and all after it.
    pub write_error: Option<u64>,
    /// The read of this number fails; later ones succeed.
    pub read_error: Option<u64>,
    /// The flush of this number fails; later ones succeed.
    pub flush_error: Option<u64>,
    /// Every I/O takes up to this many microseconds.
    pub slow_us: u64,
}

/// A disk in memory.
pub struct SimDisk {
    name: String,
    number: usize,
    size: u64,
    image: Mutex<Image>,
    recorder: Option<Arc<Recorder>>,
    vices: Vices,
    /// guards: reads, writes, flushes so far
    counts: Mutex<[u64; 3]>,
}

impl SimDisk {
    /// Disk `number` of a pool with these contents.
    pub fn new(number: usize, size: u64, image: Image, recorder: Option<Arc<Recorder>>, vices: Vices) -> Arc<SimDisk> {
        let name = format!("/memory/d{number}");
        Arc::new(SimDisk { name, number, size, image: Mutex::new(image), recorder, vices, counts: Mutex::default() })
    }

    /// The contents now.
    pub fn image(&self) -> Image {
        self.image.lock().clone()
    }

    /// How many writes came.
    pub fn writes(&self) -> u64 {
        self.counts.lock()[1]
    }

    fn count(&self, which: usize, failing: Option<u64>, and_after: bool) -> io::Result<()> {
        let mut counts = self.counts.lock();
        counts[which] += 1;
        let nth = counts[which];
        drop(counts);
        if self.vices.slow_us > 0 {
            // Different for each, and the same in each run.
            let pause = nth.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
            std::thread::sleep(std::time::Duration::from_micros(pause % self.vices.slow_us));
        }
        match failing {
            Some(at) if nth == at || (and_after && nth > at) => Err(io::Error::other(format!("simulated: I/O {nth} of kind {which}"))),
            _ => Ok(()),
        }
    }

    fn put(&self, data: Vec<u8>, offset: u64) -> io::Result<Option<usize>> {
        self.count(1, self.vices.write_error, true)?;
        if offset.checked_add(data.len() as u64).is_none_or(|end| end > self.size) {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let mut image = self.image.lock();
        image.write(offset, &data);
        let event = Event::Write { disk: self.number, offset, data: data.into() };
        Ok(self.recorder.as_ref().map(|recorder| recorder.note(event)))
    }
}

/// From here on a disk is as slow as one that turns.
const TURNS_US: u64 = 2000;

impl Disk for SimDisk {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        self.count(0, self.vices.read_error, false)?;
        if offset.checked_add(buf.len() as u64).is_none_or(|end| end > self.size) {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        self.image.lock().read(offset, buf);
        Ok(())
    }

    fn write_at(&self, buf: &[u8], offset: u64) -> io::Result<()> {
        self.put(buf.to_vec(), offset).map(drop)
    }

    fn write_vectored_at(&self, bufs: &[&[u8]], offset: u64) -> io::Result<()> {
        self.put(bufs.concat(), offset).map(drop)
    }

    fn write_durable_at(&self, bufs: &[&[u8]], offset: u64) -> io::Result<()> {
        if let (Some(write), Some(recorder)) = (self.put(bufs.concat(), offset)?, &self.recorder) {
            recorder.note(Event::Durable { write });
        }
        Ok(())
    }

    fn flush(&self) -> io::Result<()> {
        let begun = self.recorder.as_ref().map_or(0, |recorder| recorder.count());
        self.count(2, self.vices.flush_error, false)?;
        if let Some(recorder) = &self.recorder {
            recorder.note(Event::Flush { disk: self.number, begun });
        }
        Ok(())
    }

    fn discard(&self, _offset: u64, _length: u64) -> io::Result<()> {
        Ok(())
    }

    /// One that is so slow looks like a disk that turns, for which the log and the writes of groups go other ways.
    fn has_write_cache(&self) -> bool {
        self.vices.slow_us < TURNS_US
    }

    fn size_bytes(&self) -> u64 {
        self.size
    }

    fn sector_bytes(&self) -> u64 {
        SECTOR as u64
    }

    fn kind(&self) -> DiskKind {
        DiskKind::File
    }

    fn name(&self) -> &str {
        &self.name
    }
}

/// The fate of writes that were not flushed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Keep {
    /// Nothing of it is there.
    Nothing,
    /// All of it is.
    Everything,
    /// Only the last write to any disk is there.
    Newest,
    /// All is there but the oldest write to each disk.
    AllButOldest,
    /// Each write is there, is not, or is torn, as the random numbers say.
    Some,
}

/// The images after a cut, made step by step along one list of events.
pub struct Cutter<'a> {
    events: &'a [Event],
    at: usize,
    /// The durable contents.
    images: Vec<Image>,
    /// Writes that are not.
    pending: Vec<usize>,
    /// Of those that are, the ones that came after the first that is not: what is older does not show where they are.
    over: Vec<usize>,
    /// A disk that lies: this many flushes do nothing.
    deaf: u64,
}

impl<'a> Cutter<'a> {
    /// Before the first event. `deaf`: flushes do nothing, as long as fewer than so many came.
    pub fn new(events: &'a [Event], images: Vec<Image>, deaf: u64) -> Self {
        Cutter { events, at: 0, images, pending: Vec::new(), over: Vec::new(), deaf }
    }

    /// Goes on to just before event `cut`, which is not behind where it is.
    pub fn advance(&mut self, cut: usize) {
        while self.at < cut {
            match &self.events[self.at] {
                Event::Write { .. } => self.pending.push(self.at),
                Event::Flush { .. } | Event::Durable { .. } if self.deaf > 0 => self.deaf -= 1,
                Event::Flush { disk, begun } => {
                    let is_of_it = |write: &usize| matches!(&self.events[*write], Event::Write { disk: written, .. } if written == disk) && write < begun;
                    let (durable, pending): (Vec<usize>, Vec<usize>) = std::mem::take(&mut self.pending).into_iter().partition(is_of_it);
                    self.pending = pending;
                    self.merged(&durable).into_iter().for_each(|write| self.apply(write));
                    self.forget_over();
                }
                Event::Durable { write } => {
                    self.pending.retain(|pending| pending != write);
                    self.over.push(*write);
                    self.over.sort_unstable();
                    self.apply(*write);
                    self.forget_over();
                }
                Event::Begin(_) | Event::End(_) => {}
            }
            self.at += 1;
        }
    }

    fn disk_of(&self, write: usize) -> Option<usize> {
        if let Event::Write { disk, .. } = &self.events[write] { Some(*disk) } else { None }
    }

    /// Nothing older is left to be written below these.
    fn forget_over(&mut self) {
        let mut over = std::mem::take(&mut self.over);
        over.retain(|write| self.pending.iter().any(|older| older < write && self.disk_of(*older) == self.disk_of(*write)));
        self.over = over;
    }

    /// These writes, and those over them, in their order.
    fn merged(&self, writes: &[usize]) -> Vec<usize> {
        let over = self.over.iter().filter(|write| writes.iter().any(|older| older < write && self.disk_of(*older) == self.disk_of(**write)));
        let mut merged: Vec<usize> = writes.iter().chain(over).copied().collect();
        merged.sort_unstable();
        merged
    }

    fn apply(&mut self, write: usize) {
        if let Event::Write { disk, offset, data } = &self.events[write] {
            self.images[*disk].write(*offset, data);
        }
    }

    /// How many writes are on their way.
    pub fn pending(&self) -> usize {
        self.pending.len()
    }

    /// The contents when the power comes back.
    pub fn cut(&self, keep: Keep, random: &mut ChaCha8Rng) -> Vec<Image> {
        let mut images = self.images.clone();
        let mut seen = vec![false; images.len()];
        for write in self.merged(&self.pending) {
            let Event::Write { disk, offset, data } = &self.events[write] else { continue };
            if self.over.contains(&write) {
                images[*disk].write(*offset, data);
                continue;
            }
            let first = !std::mem::replace(&mut seen[*disk], true);
            match keep {
                Keep::Nothing => {}
                Keep::Everything => images[*disk].write(*offset, data),
                Keep::Newest if self.pending.last() == Some(&write) => images[*disk].write(*offset, data),
                Keep::Newest => {}
                Keep::AllButOldest if first => {}
                Keep::AllButOldest => images[*disk].write(*offset, data),
                Keep::Some => match random.random_range(0..5) {
                    0 | 1 => images[*disk].write(*offset, data),
                    2 | 3 => {}
                    _ => tear(&mut images[*disk], *offset, data, random),
                },
            }
        }
        images
    }
}

/// Some sectors are there: the first ones, the last ones, or any.
fn tear(image: &mut Image, offset: u64, data: &[u8], random: &mut ChaCha8Rng) {
    let sectors = data.len().div_ceil(SECTOR);
    let (kind, border) = (random.random_range(0..3), random.random_range(0..sectors));
    for (sector, bytes) in data.chunks(SECTOR).enumerate() {
        let there = match kind {
            0 => sector < border,
            1 => sector > border,
            _ => random.random(),
        };
        if there {
            image.write(offset + (sector * SECTOR) as u64, bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng;

    use super::*;

    fn write(offset: u64, length: usize, byte: u8) -> Event {
        Event::Write { disk: 0, offset, data: vec![byte; length].into() }
    }

    fn found(events: &[Event], keep: Keep) -> [u8; 4] {
        let mut cutter = Cutter::new(events, vec![Image::default()], 0);
        cutter.advance(events.len());
        let images = cutter.cut(keep, &mut ChaCha8Rng::seed_from_u64(1));
        [0, 512, 1024, 1536].map(|at| {
            let mut byte = [0];
            images[0].read(at, &mut byte);
            byte[0]
        })
    }

    /// Zeros that were written where the log was to come, flushed after a block of it was there, made that block go.
    #[test]
    fn what_is_older_does_not_come_back_over_what_is_durable() {
        let mut events = vec![write(0, 2048, 1), write(512, 512, 2), Event::Durable { write: 1 }];
        assert_eq!(found(&events, Keep::Nothing), [0, 2, 0, 0]);
        assert_eq!(found(&events, Keep::Everything), [1, 2, 1, 1]);
        events.push(write(1024, 512, 3));
        assert_eq!(found(&events, Keep::Newest), [0, 2, 3, 0]);
        events.push(Event::Flush { disk: 0, begun: 3 });
        assert_eq!(found(&events, Keep::Nothing), [1, 2, 1, 1]);
        assert_eq!(found(&events, Keep::Everything), [1, 2, 3, 1]);
    }

    #[test]
    fn a_flush_is_of_what_came_before_it_began() {
        let events = [write(0, 512, 1), write(512, 512, 2), Event::Flush { disk: 0, begun: 1 }];
        assert_eq!(found(&events, Keep::Nothing), [1, 0, 0, 0]);
    }
}
