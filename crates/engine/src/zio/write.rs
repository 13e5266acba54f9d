//! Writing blocks: shape (compress, encrypt, checksum), place, issue.
//!
//! # Theory
//! Shaping and issuing of different blocks are independent. Workers shape, and issue when
//! nothing is left to shape; threads of the pool's crew, who mostly wait for devices, issue meanwhile. Only
//! allocation is in the order of the requests, so that a file is laid out in the order of its blocks: the worker that has shaped
//! a block allocates for as many of the next blocks in order as are shaped by then. Blocks that follow each other are issued
//! as one write when there is enough for a large one, or when no more is to come. How many writes a device is given at a time,
//! its queue decides.
//!
//! ```text
//! waiting ──shape──> shaped ──place, in order──> ready ──issue──> done
//! ```
//!
//! # Invariants
//! 1. A request that fails leaves nothing allocated.
//! 2. A block is written over in place only if it was born in this same txg and has exactly the same physical size.
//! 3. Nobody waits for one who panicked: all go home, and the thread that shared the work out panics too ([`super::executor`]).

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

use ondisk::algorithm::ChecksumAlgorithm;
use ondisk::blkptr::{BlkPtr, BlockPointer, DataPointer};
use ondisk::dva::Dva;
use ondisk::object_type::ObjectType;
use parking_lot::{Condvar, Mutex};

use super::block_io::BlockIo;
use super::devices::BlockDevice;
use super::WriteRequest;
use super::stages::compress_stage::ShapeRules;
use super::leaf_io::{write_blocks, write_range};
use super::stages::{Prepared, Sealed, prepare};
use crate::alloc::{ClassKind, Request};
use crate::bail;
use crate::error::{Error, ErrorKind, Result, Within};
use crate::vdev::Class;

/// Small blocks that follow each other are written together up to this size.
const RUN_BYTES_MAX: usize = 1 << 20;
/// And up to this number.
const RUN_BLOCKS_MAX: usize = 256;

/// What has a place and waits to be issued: beyond this who shapes issues too.
const READY_BYTES_MAX: usize = 8 << 20;

/// Of special devices this part is for metadata alone (`zfs_special_class_metadata_reserve_pct`).
const METADATA_RESERVE_PERCENT: u64 = 25;

/// Bytes that one thread shapes at a time, and that make a helper worth waking.
const TURN_BYTES: usize = 128 << 10;

/// Where a block may go.
#[derive(Debug, Clone, Copy)]
pub(super) struct Placement {
    pub(super) class: ClassKind,
    pub(super) copies: usize,
    pub(super) checksum: ChecksumAlgorithm,
    /// Half of the checksum is a MAC.
    pub(super) has_mac: bool,
    /// The place of the third copy is something else's in the pointer.
    pub(super) has_secrets: bool,
    pub(super) txg: u64,
}

/// A block that has a place.
struct Ready {
    index: usize,
    sealed: Sealed,
    dvas: Vec<Dva>,
    /// The bytes are on disk already: gang blocks are written while they are placed.
    issued: bool,
    /// The place is the block's own, of an earlier pass.
    reused: bool,
}

enum Stage {
    Waiting,
    Shaped(Sealed),
    Gone,
}

struct State {
    stages: Vec<Stage>,
    results: Vec<Option<Result<BlkPtr>>>,
    /// The next to be shaped, and the next to be placed.
    next_shape: usize,
    next_place: usize,
    /// Someone is placing: others leave it to him, as places are given in order.
    placing: bool,
    ready: VecDeque<Ready>,
    /// The bytes of those.
    ready_bytes: usize,
    done: usize,
    /// A bug ended somebody, and what he had in hand is never done.
    is_broken: bool,
}

struct Batch {
    io: Arc<BlockIo>,
    requests: Vec<WriteRequest>,
    rules: ShapeRules,
    salt: [u8; 32],
    /// It is the group's: when a device fails, the pool's repair is waited for. Else a caller waits for it.
    patient: bool,
    /// Others issue what is ready.
    has_issuers: bool,
    state: Mutex<State>,
    changed: Condvar,
}

enum Work {
    Shape(Range<usize>),
    Place,
    Issue(Vec<Ready>),
    Wait,
    End,
}

impl BlockIo {
    /// Writes blocks; the results are in the order of the requests. The pointers have a fill count of one, which is for
    /// the caller to change. Where the new pointer differs from `previous`, freeing what was there is the caller's too.
    pub fn write_many(self: &Arc<Self>, requests: Vec<WriteRequest>, txg: u64) -> Vec<Result<BlkPtr>> {
        self.write_batch(requests, txg, true)
    }

    /// As [`BlockIo::write_many`], for a caller that holds a group: when a device fails or there is no room in one piece, that is the answer.
    /// (A thread that waited for the pool's repair with a group held kept everybody else from the next one.)
    /// The caller waits, for an `fsync` or a write around the cache: so devices take it before what groups write.
    pub fn try_write_many(self: &Arc<Self>, requests: Vec<WriteRequest>, txg: u64) -> Vec<Result<BlkPtr>> {
        self.write_batch(requests, txg, false)
    }

    fn write_batch(self: &Arc<Self>, requests: Vec<WriteRequest>, txg: u64, patient: bool) -> Vec<Result<BlkPtr>> {
        let count = requests.len();
        // A small batch is done before another thread would have woken up.
        let bytes: usize = requests.iter().map(|request| request.data.len()).sum();
        // Some of the crew is left for others: for the sides of mirrors.
        let issuers = if self.devices().is_slow() { count.saturating_sub(1) } else { bytes / RUN_BYTES_MAX }.min(self.crew().workers() / 2);
        let rules = self.shape_rules(txg);
        let state = State {
            stages: (0..count).map(|_| Stage::Waiting).collect(),
            results: (0..count).map(|_| None).collect(),
            next_shape: 0,
            next_place: 0,
            placing: false,
            ready: VecDeque::new(),
            ready_bytes: 0,
            done: 0,
            is_broken: false,
        };
        let (state, changed) = (Mutex::new(state), Condvar::new());
        let batch = Arc::new(Batch { io: Arc::clone(self), requests, rules, salt: self.salt(), patient, has_issuers: issuers > 0, state, changed });
        let (shared, issued) = (Arc::clone(&batch), Arc::clone(&batch));
        let issuers = self.crew().lend(issuers, move || issued.issue_all());
        self.writers().share(bytes / TURN_BYTES, move || shared.work());
        issuers.finish();
        let results = std::mem::take(&mut batch.state.lock().results);
        results.into_iter().map(|result| result.unwrap_or_else(|| bail!(Io, "a block was not written"))).collect()
    }

    /// Writes one block.
    ///
    /// # Errors
    /// `NoSpace` when it fits nowhere, not even in pieces; `Io` when a device refused it.
    pub fn write(self: &Arc<Self>, request: WriteRequest, txg: u64) -> Result<BlkPtr> {
        self.write_many(vec![request], txg).pop().unwrap_or_else(|| bail!(Io, "a block was not written"))
    }

    /// Writes the same bytes of the group `birth` at every address.
    ///
    /// # Errors
    /// Those of the devices, with the address.
    pub(super) fn write_copies(&self, dvas: &[Dva], bytes: &[u8], birth: u64) -> Result<()> {
        self.write_run(dvas, &[bytes], (Class::AsyncWrite, true), birth)
    }

    /// Writes blocks of the group `birth` that follow each other, the first of which has these addresses; `how`: as a write of which class, and whether the pool's repair is
    /// waited for if no device takes it.
    pub(super) fn write_run(&self, dvas: &[Dva], blocks: &[&[u8]], how: (Class, bool), birth: u64) -> Result<()> {
        let devices: Vec<_> = dvas.iter().map(|dva| Ok((*dva, self.device(*dva)?))).collect::<Result<_>>()?;
        let crew = devices.iter().find_map(|(_, device)| device.beside_writes()).filter(|_| devices.len() > 1);
        match crew {
            None => devices.iter().try_for_each(|(dva, device)| write_place(device, *dva, blocks, how, birth))?,
            Some(crew) => {
                let owned = blocks.concat();
                let write = move |(dva, device): (Dva, Arc<dyn BlockDevice>)| write_place(&device, dva, &[&owned], how, birth);
                crew.map(devices, write).into_iter().collect::<Result<()>>()?;
            }
        }
        let bytes: usize = blocks.iter().map(|block| block.len()).sum();
        self.counters.writes.add((blocks.len() * dvas.len()) as u64);
        self.counters.written_bytes.add((bytes * dvas.len()) as u64);
        Ok(())
    }

    /// Writes blocks that have their places one behind the other in every copy.
    fn write_ready(&self, run: &[Ready], patient: bool, birth: u64) -> Result<()> {
        let [first, ..] = run else { return Ok(()) };
        let class = if patient { Class::AsyncWrite } else { Class::SyncWrite };
        let bytes = |ready: &'_ Ready| -> u64 { ready.sealed.contents.bytes().len() as u64 };
        let blocks: Vec<&[u8]> = run.iter().map(|ready| ready.sealed.contents.bytes()).collect();
        if run.len() == 1 || first.dvas.iter().all(|dva| lies_as_it_is(dva, bytes(first))) {
            return self.write_run(&first.dvas, &blocks, (class, patient), birth);
        }
        for copy in 0..first.dvas.len() {
            let dva = first.dvas[copy];
            let device = self.device(dva)?;
            let placed: Vec<(u64, &[u8])> = run.iter().zip(&blocks).map(|(ready, bytes)| (ready.dvas[copy].offset, *bytes)).collect();
            patiently(&device, dva, patient, || write_blocks(&device, class, &placed, birth))?;
        }
        self.counters.writes.add((run.len() * first.dvas.len()) as u64);
        self.counters.written_bytes.add(run.iter().map(bytes).sum::<u64>() * first.dvas.len() as u64);
        Ok(())
    }

    /// The class for a block of so many physical bytes.
    #[doc(alias = "spa_preferred_class")]
    fn class_of(&self, request: &WriteRequest, physical: usize) -> ClassKind {
        let exists = |class| !self.allocator().class_groups(class).is_empty();
        if request.object_type == ObjectType::DDT_ZAP && exists(ClassKind::Dedup) {
            return ClassKind::Dedup;
        }
        let is_metadata = request.object_type.is_metadata() || request.level > 0;
        let is_small = physical as u64 <= request.small_bytes;
        if (is_metadata || is_small) && exists(ClassKind::Special) && (is_metadata || self.has_room_for_small()) {
            ClassKind::Special
        } else {
            ClassKind::Normal
        }
    }

    /// Special devices have more than what is kept for metadata alone.
    fn has_room_for_small(&self) -> bool {
        let allocator = self.allocator();
        let (space, taken) = (allocator.space_use(ClassKind::Special), allocator.taken(ClassKind::Special));
        space.allocated + taken < space.space / 100 * (100 - METADATA_RESERVE_PERCENT)
    }

    fn placement(&self, request: &WriteRequest, sealed: &Sealed, txg: u64) -> Placement {
        let copies = usize::from(request.copies).clamp(1, 3);
        let is_sealed = sealed.secrets.is_some();
        Placement {
            class: self.class_of(request, sealed.contents.bytes().len()),
            copies,
            checksum: sealed.checksum_algorithm,
            has_mac: is_sealed && request.object_type != ObjectType::OBJSET,
            has_secrets: is_sealed && request.level == 0 && request.object_type.is_encrypted(),
            txg,
        }
    }
}

/// Writes to one place.
fn write_place(device: &Arc<dyn BlockDevice>, dva: Dva, blocks: &[&[u8]], (class, patient): (Class, bool), birth: u64) -> Result<()> {
    patiently(device, dva, patient, || write_range(device, class, dva.offset, blocks, birth))
}

/// `patient`: if no device takes it, the pool's repair is waited for.
fn patiently(device: &Arc<dyn BlockDevice>, dva: Dva, patient: bool, write: impl Fn() -> Result<()>) -> Result<()> {
    loop {
        match write() {
            Err(error) if patient && device.wait_after(&error) => {}
            written => return written.within(|| format!("block at {dva}")),
        }
    }
}

impl Batch {
    /// Works until nothing is left to do. Every worker and the one who waits run this.
    fn work(&self) {
        let _alarm = Alarm(self);
        loop {
            match self.next() {
                Work::Shape(some) => {
                    let shaped: Vec<_> = some.clone().map(|index| prepare(&self.requests[index], self.rules, &self.salt)).collect();
                    let mut state = self.state.lock();
                    for (index, shaped) in some.zip(shaped) {
                        match shaped {
                            Ok(Prepared::Pointer(pointer)) => Self::finish(&mut state, index, Ok(pointer)),
                            Ok(Prepared::Sealed(sealed)) => state.stages[index] = Stage::Shaped(sealed),
                            Err(error) => Self::finish(&mut state, index, Err(error)),
                        }
                    }
                    self.changed.notify_all();
                }
                Work::Place => self.place_in_order(),
                Work::Issue(run) => self.issue_run(&run),
                Work::Wait => {}
                Work::End => return,
            }
        }
    }

    fn finish(state: &mut State, index: usize, result: Result<BlkPtr>) {
        state.stages[index] = Stage::Gone;
        state.results[index] = Some(result);
        state.done += 1;
    }

    /// Issues what is ready until all is done: the crew runs this.
    fn issue_all(&self) {
        let _alarm = Alarm(self);
        let mut state = self.state.lock();
        while !state.is_broken && state.done < self.requests.len() {
            match self.issue_next(&mut state, RUN_BYTES_MAX) {
                Some(run) => {
                    drop(state);
                    self.issue_run(&run);
                    state = self.state.lock();
                }
                None => self.changed.wait(&mut state),
            }
        }
    }

    fn issue_run(&self, run: &[Ready]) {
        let results = self.issue(run);
        let mut state = self.state.lock();
        for (ready, result) in run.iter().zip(results) {
            Self::finish(&mut state, ready.index, result);
        }
        self.changed.notify_all();
    }

    /// What is most urgent: give places, else shape, else get bytes to the disks, few and large ones.
    fn next(&self) -> Work {
        let mut state = self.state.lock();
        if state.is_broken {
            return Work::End;
        }
        let enough = if self.has_issuers { READY_BYTES_MAX } else { RUN_BYTES_MAX };
        if state.ready_bytes >= enough
            && let Some(run) = self.issue_next(&mut state, enough)
        {
            return Work::Issue(run);
        }
        if !state.placing && self.can_place(&mut state) {
            state.placing = true;
            return Work::Place;
        }
        if state.next_shape < self.requests.len() {
            let some = self.some_from(state.next_shape);
            state.next_shape = some.end;
            return Work::Shape(some);
        }
        if let Some(run) = self.issue_next(&mut state, RUN_BYTES_MAX) {
            return Work::Issue(run);
        }
        if state.done == self.requests.len() {
            return Work::End;
        }
        self.changed.wait(&mut state);
        Work::Wait
    }

    /// The next write, if so much is ready, or all there is: what others are shaping or placing just now may belong to the same write.
    fn issue_next(&self, state: &mut State, enough: usize) -> Option<Vec<Ready>> {
        let can_place = self.can_place(state);
        let all_placed = !can_place && !state.placing && state.next_place == self.requests.len();
        if !all_placed && state.ready_bytes < enough {
            return None;
        }
        let run = take_run(&mut state.ready)?;
        state.ready_bytes -= run.iter().map(|ready| ready.sealed.contents.bytes().len()).sum::<usize>();
        Some(run)
    }

    /// As many of the next requests as are worth one turn under the lock.
    fn some_from(&self, start: usize) -> Range<usize> {
        let mut bytes = 0;
        let rest = self.requests[start..].iter();
        let more = rest.take_while(|request| {
            let first = bytes == 0;
            bytes += request.data.len();
            first || bytes <= TURN_BYTES
        });
        start..start + more.count()
    }

    /// Passes by blocks that need no place.
    fn can_place(&self, state: &mut State) -> bool {
        while matches!(state.stages.get(state.next_place), Some(Stage::Gone)) {
            state.next_place += 1;
        }
        matches!(state.stages.get(state.next_place), Some(Stage::Shaped(_)))
    }

    fn place_in_order(&self) {
        loop {
            let (index, sealed) = {
                let mut state = self.state.lock();
                if !self.can_place(&mut state) {
                    state.placing = false;
                    self.changed.notify_all();
                    return;
                }
                let index = state.next_place;
                state.next_place += 1;
                match std::mem::replace(&mut state.stages[index], Stage::Gone) {
                    Stage::Shaped(sealed) => (index, sealed),
                    Stage::Waiting | Stage::Gone => continue,
                }
            };
            let placed = self.place(index, sealed);
            let mut state = self.state.lock();
            match placed {
                Ok(ready) => {
                    state.ready_bytes += ready.sealed.contents.bytes().len();
                    state.ready.push_back(ready);
                }
                Err(error) => Self::finish(&mut state, index, Err(error)),
            }
            self.changed.notify_all();
        }
    }

    fn place(&self, index: usize, sealed: Sealed) -> Result<Ready> {
        let request = &self.requests[index];
        let bytes = sealed.contents.bytes();
        let placement = self.io.placement(request, &sealed, self.rules.txg);
        if let Some(dvas) = self.own_place(request, bytes.len(), &placement) {
            return Ok(Ready { index, sealed, dvas, issued: false, reused: true });
        }
        if let Some(dvas) = self.own_gang(request, bytes, &placement)? {
            return Ok(Ready { index, sealed, dvas, issued: true, reused: true });
        }
        let wanted = Request::new(placement.class, bytes.len() as u64, placement.copies, placement.txg);
        let (dvas, issued) = match self.io.allocator().allocate(&wanted) {
            Ok(dvas) => (dvas, false),
            Err(error) if self.patient && error.kind() == ErrorKind::NoSpace && bytes.len() > self.io.unit() => {
                (self.io.write_gang(&bytes[..sealed.physical_bytes as usize], &placement).within(|| format!("block {}", request.bookmark))?, true)
            }
            Err(error) => return Err(error.within(format!("block {}", request.bookmark))),
        };
        Ok(Ready { index, sealed, dvas, issued, reused: false })
    }

    /// The addresses of the block of an earlier pass, if it can be written over (invariant 2).
    fn own_place(&self, request: &WriteRequest, physical: usize, placement: &Placement) -> Option<Vec<Dva>> {
        let previous = &request.previous;
        let same = request.rewrite
            && previous.birth() == placement.txg
            && previous.physical_size() == physical as u64
            && !previous.is_gang()
            && !previous.is_dedup()
            && !previous.uses_encryption();
        let dvas: Vec<Dva> = previous.dvas().collect();
        (same && dvas.len() == placement.copies).then_some(dvas)
    }

    /// Writes over the gang block of an earlier pass, if that can be done (invariant 2).
    fn own_gang(&self, request: &WriteRequest, bytes: &[u8], placement: &Placement) -> Result<Option<Vec<Dva>>> {
        let previous = &request.previous;
        if !request.rewrite || !previous.is_gang() || previous.uses_encryption() || previous.physical_size() != bytes.len() as u64 {
            return Ok(None);
        }
        match previous.decode()? {
            BlockPointer::Data(pointer) if pointer.dvas().len() >= placement.copies => self.io.rewrite_gang(&pointer, bytes, placement),
            _ => Ok(None),
        }
    }

    /// Writes blocks that follow each other on disk. They all succeed or all fail.
    fn issue(&self, run: &[Ready]) -> Vec<Result<BlkPtr>> {
        let is_issued = run.first().is_none_or(|first| first.issued);
        let written = if is_issued { Ok(()) } else { self.io.write_ready(run, self.patient, self.rules.txg) };
        match written {
            Ok(()) => run.iter().map(|ready| Ok(self.pointer_to(ready))).collect(),
            Err(error) => run.iter().map(|ready| Err(self.undo(ready, error.clone()))).collect(),
        }
    }

    /// Gives back the place of a block that could not be written. What could not be given back is lost, not used twice.
    fn undo(&self, ready: &Ready, error: Error) -> Error {
        if !ready.reused && !ready.issued {
            for dva in &ready.dvas {
                if let Err(error) = self.io.allocator().unallocate(*dva, self.rules.txg) {
                    tracing::warn!(%error, %dva, "the space of a block that could not be written is lost");
                }
            }
        }
        error.within(format!("block {}", self.requests[ready.index].bookmark))
    }

    fn pointer_to(&self, ready: &Ready) -> BlkPtr {
        let (request, sealed) = (&self.requests[ready.index], &ready.sealed);
        let mut pointer = DataPointer::new(&ready.dvas, request.object_type, request.level, self.rules.txg);
        pointer.logical_size = sealed.logical_bytes;
        pointer.physical_size = sealed.physical_bytes;
        pointer.little_endian = sealed.little_endian;
        pointer.compression = sealed.compression;
        pointer.checksum_algorithm = sealed.checksum_algorithm;
        pointer.checksum = sealed.checksum;
        if let Some(secrets) = &sealed.secrets {
            pointer.set_secrets(secrets);
        }
        pointer.encode()
    }
}

/// Sends all others home when its owner panics (invariant 3).
struct Alarm<'a>(&'a Batch);

impl Drop for Alarm<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.state.lock().is_broken = true;
            self.0.changed.notify_all();
        }
    }
}

/// Takes the first block from the queue and those that follow it on disk in every copy, so that small blocks make one large write.
fn take_run(queue: &mut VecDeque<Ready>) -> Option<Vec<Ready>> {
    let first = queue.pop_front()?;
    let mut bytes = first.sealed.contents.bytes().len();
    let mut run = vec![first];
    while let (Some(last), Some(next)) = (run.last(), queue.front()) {
        bytes += next.sealed.contents.bytes().len();
        if bytes > RUN_BYTES_MAX || run.len() >= RUN_BLOCKS_MAX || !follows(last, next) {
            break;
        }
        run.extend(queue.pop_front());
    }
    Some(run)
}

/// Do the bytes of a block of this length lie there one behind the other? Where there is parity (or padding) its place is larger: where its bytes are
/// follows from its length.
pub(super) fn lies_as_it_is(dva: &Dva, length: u64) -> bool {
    dva.allocated == length
}

/// Has the next one its places behind those of the last?
fn follows(last: &Ready, next: &Ready) -> bool {
    let adjacent = |(before, after): (&Dva, &Dva)| before.vdev == after.vdev && before.offset + before.allocated == after.offset;
    let is_as_it_is = |ready: &Ready| ready.dvas.iter().all(|dva| lies_as_it_is(dva, ready.sealed.contents.bytes().len() as u64));
    !last.issued
        && !next.issued
        && last.reused == next.reused
        && last.dvas.len() == next.dvas.len()
        && is_as_it_is(last) == is_as_it_is(next)
        && last.dvas.iter().zip(&next.dvas).all(adjacent)
}
