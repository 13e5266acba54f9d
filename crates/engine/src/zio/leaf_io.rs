//! I/Os of top-level vdevs, made as I/Os of leaves.
//!
//! # Theory
//! The vdev says what an I/O is in I/Os of its leaves, and what their answers are worth ([`crate::vdev::map`]). Here they
//! are made. A thread that waits for one I/O makes it itself. Several are made one after the other, or, where the
//! leaves are slow enough for that, by the pool's crew too: then what is read or written is owned by the I/O until all are done.
//!
//! # Path
//! Called by the stages that read and write blocks, and to look at a range without a checksum; calls [`BlockDevice`].

use std::borrow::Cow;
use std::sync::Arc;

use ondisk::dva::Dva;

use super::devices::BlockDevice;
use crate::error::{Error, ErrorKind, Result};
use crate::sync::Executor;
use crate::vdev::map::{Answer, Ask, Content, Position, Reading, Side, Verdict};
use crate::vdev::{Class, IoMap, LeafId, View};
use crate::{bail, error};

mod copy;

/// One place of a block that is being read, and what is known of the sides of its columns.
pub(super) struct PlaceRead {
    pub(super) device: Arc<dyn BlockDevice>,
    pub(super) dva: Dva,
    class: Class,
    map: IoMap,
    reading: Reading,
    /// Why the last side that could not be read could not be.
    failure: Option<Error>,
    /// The same of one whose device is there, and was when it was written.
    unread: Option<Error>,
}

/// A side that gave nothing, or something wrong.
pub(super) struct Damage {
    at: Position,
    pub(super) leaf: LeafId,
    /// It gave something.
    pub(super) was_read: bool,
    /// It was not there when that was written.
    pub(super) has_missed: bool,
}

impl PlaceRead {
    /// For `length` bytes at an address, written in the group `birth`.
    pub(super) fn new(device: Arc<dyn BlockDevice>, class: Class, dva: Dva, length: usize, birth: u64) -> Result<PlaceRead> {
        let map = device.io_map(dva.offset, length, birth)?;
        // Scans and rebuilds read every device, however slow it is.
        let may_leave_out = matches!(class, Class::SyncRead | Class::AsyncRead);
        let view = |leaf| {
            let view = device.view(leaf, birth);
            View { sits_out: view.sits_out && may_leave_out, ..view }
        };
        let reading = Reading::new(&map, dva.offset, view);
        Ok(PlaceRead { device, dva, class, map, reading, failure: None, unread: None })
    }

    /// Reads until the buffer is right. `false`: it cannot be made right from here.
    ///
    /// # Errors
    /// Nothing could be read at all, or those of `verify`.
    pub(super) fn find_right(&mut self, buf: &mut [u8], verify: &mut dyn FnMut(&[u8]) -> Result<bool>) -> Result<bool> {
        loop {
            let asks = self.reading.next(&self.map);
            if asks.is_empty() {
                break;
            }
            self.ask(asks, buf);
            if self.reading.solve(&self.map, buf, verify)? {
                self.device.after_read();
                return Ok(true);
            }
        }
        match self.failure.take() {
            Some(failure) if !self.reading.has_any() => Err(failure),
            None if !self.reading.has_any() => bail!(NoDevice, "vdev {}: no device can be read", self.dva.vdev),
            _ => Ok(false),
        }
    }

    /// Why a side could not be read that may have what no other has.
    pub(super) fn unread(&self) -> Option<&Error> {
        self.unread.as_ref()
    }

    /// Reads all sides that were not read and should have it.
    pub(super) fn look_at_others(&mut self) {
        self.ask(self.reading.others(), &mut []);
    }

    /// Sides are read one after the other by the thread that waits; where leaves are slow, by the crew too. Single sectors that lie one behind the other are
    /// read together.
    fn ask(&mut self, mut asks: Vec<Ask>, buf: &mut [u8]) {
        let crew = if asks.len() > 1 { self.device.beside_reads() } else { None };
        if self.map.widths.is_empty() && crew.is_none() {
            return asks.into_iter().for_each(|ask| self.ask_one(ask, buf));
        }
        asks.sort_by_key(|ask| place(&self.map, ask.at));
        let runs: Vec<Vec<Ask>> = asks.chunk_by(|one, next| follows(&self.map, one.at, next.at)).map(<[Ask]>::to_vec).collect();
        let of = |run: &Vec<Ask>| {
            let (leaf, offset, _) = place(&self.map, run[0].at);
            (leaf, offset, run.iter().map(|ask| self.map.at(ask.at).0.length).sum())
        };
        let (device, class) = (self.device.clone(), self.class);
        let read = move |(leaf, offset, length): (LeafId, u64, usize)| {
            let mut bytes = vec![0; length];
            device.read_leaf(leaf, class, offset, &mut bytes).map(|()| bytes)
        };
        let found = Executor::map_with(crew.as_ref(), runs.iter().map(of).collect(), read);
        for (run, found) in runs.into_iter().zip(found) {
            match found {
                Ok(mut bytes) => {
                    for ask in run {
                        let rest = bytes.split_off(self.map.at(ask.at).0.length);
                        self.reading.answer(ask.at, Answer::Bytes(std::mem::replace(&mut bytes, rest)));
                    }
                }
                Err(error) if run.len() == 1 => self.note(run[0].at, Err(error)),
                Err(_) => run.into_iter().for_each(|ask| self.ask_one(ask, buf)),
            }
        }
    }

    fn ask_one(&mut self, ask: Ask, buf: &mut [u8]) {
        let (column, side) = self.map.at(ask.at);
        let range = column.range().filter(|_| ask.in_place);
        let answer = match range {
            Some(range) => self.device.read_leaf(side.leaf, self.class, side.offset, &mut buf[range]).map(|()| Answer::InPlace),
            None => {
                let mut bytes = vec![0; column.length];
                self.device.read_leaf(side.leaf, self.class, side.offset, &mut bytes).map(|()| Answer::Bytes(bytes))
            }
        };
        self.note(ask.at, answer);
    }

    fn note(&mut self, at: Position, answer: Result<Answer>) {
        let answer = answer.unwrap_or_else(|error| {
            if error.kind() == ErrorKind::Io && !self.reading.has_missed(at) {
                self.unread = Some(error.clone());
            }
            self.failure = Some(error);
            Answer::Failed
        });
        self.reading.answer(at, answer);
    }

    /// Where the buffer has to be `right` (`None`: nobody knows), the sides that are not; with `missed`, also those that were not asked as they
    /// have missed it.
    pub(super) fn damages(&self, right: Option<&[u8]>, verify: &mut dyn FnMut(&[u8]) -> Result<bool>, missed: bool) -> Vec<Damage> {
        let verdicts = match right {
            Some(right) => self.reading.verdicts(&self.map, right, verify),
            None => self.reading.verdicts_of_lost(&self.map),
        };
        let is_damaged = |at: Position, verdict: Verdict| match verdict {
            Verdict::Wrong | Verdict::Missing => true,
            Verdict::NotAsked => missed && self.reading.is_behind(at),
            Verdict::Right => false,
        };
        let damaged = verdicts.into_iter().filter(|(at, verdict)| is_damaged(*at, *verdict));
        damaged
            .map(|(at, verdict)| Damage {
                at,
                leaf: self.map.at(at).1.leaf,
                was_read: verdict == Verdict::Wrong,
                has_missed: self.reading.has_missed(at),
            })
            .collect()
    }

    /// Is it read for a scan?
    pub(super) fn is_scan(&self) -> bool {
        self.class == Class::Scrub
    }

    /// Was something wrong? Then all other sides are worth a look.
    pub(super) fn is_suspicious(&self) -> bool {
        self.reading.is_suspicious()
    }

    /// Writes what is right over what a side has, and returns how many bytes that was.
    pub(super) fn repair(&self, damage: &Damage, right: &[u8]) -> Result<u64> {
        let bytes = self.map.bytes_of(damage.at.row, damage.at.column, right);
        let (column, side) = self.map.at(damage.at);
        for Side { leaf, offset, .. } in [side].into_iter().chain(self.map.moved_to(column)) {
            self.device.write_leaf(leaf, Class::AsyncWrite, offset, &[&bytes])?;
        }
        Ok(bytes.len() as u64)
    }
}

/// Reads a range of a vdev from the best of its leaves that can be read, whatever is in it.
///
/// # Errors
/// Those of the leaves.
pub fn read_range(device: &Arc<dyn BlockDevice>, offset: u64, buf: &mut [u8], birth: u64) -> Result<()> {
    read_range_as(device, Class::SyncRead, offset, buf, birth)
}

/// The same of what nobody waits for yet.
///
/// # Errors
/// Those of the leaves.
pub(super) fn read_range_ahead(device: &Arc<dyn BlockDevice>, offset: u64, buf: &mut [u8], birth: u64) -> Result<()> {
    read_range_as(device, Class::AsyncRead, offset, buf, birth)
}

/// The same as a scan reads it: from all leaves.
#[cfg(test)]
pub(crate) fn scan_range(device: &Arc<dyn BlockDevice>, offset: u64, buf: &mut [u8], birth: u64) -> Result<()> {
    let mut place = PlaceRead::new(device.clone(), Class::Scrub, Dva::new(0, offset, buf.len() as u64), buf.len(), birth)?;
    place.find_right(buf, &mut |_| Ok(true))?;
    place.look_at_others();
    Ok(())
}

fn read_range_as(device: &Arc<dyn BlockDevice>, class: Class, offset: u64, buf: &mut [u8], birth: u64) -> Result<()> {
    let dva = Dva::new(0, offset, buf.len() as u64);
    PlaceRead::new(device.clone(), class, dva, buf.len(), birth)?.find_right(buf, &mut |_| Ok(true)).map(|_| ())
}

/// Writes the buffers one behind the other, of the group `birth`. It is done if all of it can be read again; leaves that failed are behind then.
///
/// # Errors
/// Those of the leaves.
pub fn write_range(device: &Arc<dyn BlockDevice>, class: Class, offset: u64, buffers: &[&[u8]], birth: u64) -> Result<()> {
    write_mapped(device, class, device.write_map(offset, length_of(buffers), birth)?, buffers)
}

/// Writes blocks, each at its offset, of the group `birth`: what lies one behind the other on a leaf is one write there. They are done together.
///
/// # Errors
/// Those of the leaves.
pub(crate) fn write_blocks(device: &Arc<dyn BlockDevice>, class: Class, blocks: &[(u64, &[u8])], birth: u64) -> Result<()> {
    let mut all = IoMap::default();
    for (offset, bytes) in blocks {
        // What is being moved is waited for, with what is held already: a mover that has begun waits for nobody.
        all.append(device.write_map(*offset, bytes.len(), birth)?);
    }
    write_mapped(device, class, all, &blocks.iter().map(|(_, bytes)| *bytes).collect::<Vec<_>>())
}

fn write_mapped(device: &Arc<dyn BlockDevice>, class: Class, map: IoMap, buffers: &[&[u8]]) -> Result<()> {
    let map = Arc::new(map);
    let done = write_sides(device, &map, buffers, move |device, leaf, offset, buffers| device.write_leaf(leaf, class, offset, buffers));
    if device.settle_write(&map, &done) { Ok(()) } else { Err(worst(done)) }
}

/// As [`write_range`], and makes just that durable.
///
/// # Errors
/// Those of the leaves.
pub fn write_range_durable(device: &Arc<dyn BlockDevice>, offset: u64, buffers: &[&[u8]], birth: u64) -> Result<()> {
    let map = Arc::new(device.write_map(offset, length_of(buffers), birth)?);
    let mark = device.flush_mark();
    let done = write_sides(device, &map, buffers, |device, leaf, offset, buffers| device.write_leaf_durable(leaf, offset, buffers));
    device.settle_write(&map, &done);
    device.is_durable(&mark, done.into_iter().map(|(at, done)| (map.at(at).1.leaf, done)).collect())
}

fn length_of(buffers: &[&[u8]]) -> usize {
    buffers.iter().map(|buffer| buffer.len()).sum()
}

type Done = Vec<(Position, Result<()>)>;

/// Writes every side. If that is enough to read it again, leaves that failed have missed it (`BlockDevice::settle_write`); what cannot
/// be read again is written again, or needed by nobody.
fn write_sides(
    device: &Arc<dyn BlockDevice>,
    map: &Arc<IoMap>,
    buffers: &[&[u8]],
    write: impl Fn(&dyn BlockDevice, LeafId, u64, &[&[u8]]) -> Result<()> + Send + Sync + 'static,
) -> Done {
    let sides: Vec<Position> = map.sides().map(|(at, ..)| at).collect();
    let crew = device.beside_writes().filter(|_| sides.len() > 1);
    if map.is_plain() && crew.is_none() {
        let one = |at: Position| {
            let side = map.at(at).1;
            (at, write(&**device, side.leaf, side.offset, buffers))
        };
        return sides.into_iter().map(one).collect();
    }
    let (owned, map, device) = (buffers.concat(), map.clone(), device.clone());
    let parity = map.parity_of(&owned);
    let done = Executor::map_with(crew.as_ref(), runs(&map, sides), move |run| {
        let bytes = |at: &Position| match map.at(*at).0.content {
            Content::Parity(number) => Cow::Borrowed(parity[at.row][number].as_slice()),
            Content::Data(_) => map.bytes_of(at.row, at.column, &owned),
        };
        let (side, parts) = (map.at(run[0]).1, run.iter().map(bytes).collect::<Vec<_>>());
        let done = write(&*device, side.leaf, side.offset, &parts.iter().map(|part| &**part).collect::<Vec<_>>());
        run.into_iter().map(|at| (at, done.clone())).collect::<Vec<_>>()
    });
    done.into_iter().flatten().collect()
}

/// What lies one behind the other on a leaf is one run: single sectors, and columns of several blocks.
fn runs(map: &IoMap, mut sides: Vec<Position>) -> Vec<Vec<Position>> {
    if map.rows.len() == 1 {
        return sides.into_iter().map(|at| vec![at]).collect();
    }
    sides.sort_by_key(|at| place(map, *at));
    sides.chunk_by(|one, next| follows(map, *one, *next)).map(<[Position]>::to_vec).collect()
}

/// The leaf, the offset and the length of a side.
fn place(map: &IoMap, at: Position) -> (LeafId, u64, usize) {
    let (column, side) = map.at(at);
    (side.leaf, side.offset, column.length)
}

/// Does the one end where the next begins?
fn follows(map: &IoMap, one: Position, next: Position) -> bool {
    let ((leaf, offset, length), (other, at, _)) = (place(map, one), place(map, next));
    leaf == other && at == offset.wrapping_add(length as u64)
}

/// Of several answers the error that says most.
fn worst(done: Done) -> Error {
    let mut errors: Vec<Error> = done.into_iter().filter_map(|(_, done)| done.err()).collect();
    let says_more = errors.iter().rposition(|error| error.kind() != ErrorKind::NoDevice);
    match says_more.or(errors.len().checked_sub(1)) {
        Some(index) => errors.swap_remove(index),
        None => error!(NoDevice, "a vdev without devices cannot be written"),
    }
}
