//! A disk that remembers which writes are not safe yet, and can be cut at any of them.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use disk::{Disk, DiskKind};
use parking_lot::Mutex;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

/// See [`CutDisk::slow_us`].
pub(crate) const TURNS_US: u64 = 4000;

/// A write since the last flush.
struct Pending {
    offset: usize,
    bytes: Vec<u8>,
    durable: bool,
}

struct State {
    current: Vec<u8>,
    /// What a flush has made safe.
    stable: Vec<u8>,
    pending: Vec<Pending>,
    /// So many more writes, then the power goes, with what seed.
    fuse: Option<(u64, u64)>,
    cut: Option<Cut>,
    /// So many writes came.
    writes: u64,
    /// Writes fail from now on.
    broken: bool,
}

/// What the power failure left.
pub(crate) struct Cut {
    pub(crate) image: Vec<u8>,
    /// What the test had done by then (see [`CutDisk::progress`]).
    pub(crate) progress: usize,
}

/// See the module.
pub(crate) struct CutDisk {
    state: Mutex<State>,
    size: u64,
    /// The test's own count of what it was told is done.
    pub(crate) progress: AtomicUsize,
    /// Durable writes take a while before they come, not all of them as long: so many microseconds at most. From [`TURNS_US`] on it is like a
    /// disk that turns and has no write cache.
    pub(crate) slow_us: AtomicU64,
    /// The durable writes under way, and of those at one time the most.
    pub(crate) under_way: Mutex<(usize, usize)>,
    /// The largest durable write, in bytes.
    pub(crate) largest: AtomicUsize,
    /// Places are worth to be prepared; which were.
    pub(crate) gains: AtomicBool,
    pub(crate) prepared: Mutex<Vec<(u64, u64)>>,
    /// A holder keeps writes from coming that are not durable by themselves: those of groups.
    pub(crate) groups: Mutex<()>,
    /// The power goes behind the next durable write.
    pub(crate) cut_when_durable: AtomicBool,
    /// Happens during the next flush.
    pub(crate) at_flush: Mutex<Option<Box<dyn FnOnce() + Send>>>,
    /// The next flush fails, and what was to be flushed is gone.
    pub(crate) loses: AtomicBool,
}

impl CutDisk {
    pub(crate) fn new(image: Vec<u8>) -> Arc<Self> {
        let size = image.len() as u64;
        let state = State { current: image.clone(), stable: image, pending: Vec::new(), fuse: None, cut: None, writes: 0, broken: false };
        Arc::new(CutDisk { state: Mutex::new(state), size, progress: AtomicUsize::new(0), slow_us: AtomicU64::new(0), under_way: Mutex::default(), largest: AtomicUsize::new(0), gains: AtomicBool::new(false), prepared: Mutex::default(), groups: Mutex::default(), cut_when_durable: AtomicBool::new(false), at_flush: Mutex::default(), loses: AtomicBool::new(false) })
    }

    /// The power goes after so many more writes.
    pub(crate) fn arm(&self, writes: u64, seed: u64) {
        self.state.lock().fuse = Some((writes, seed));
    }

    /// How many writes came.
    pub(crate) fn writes(&self) -> u64 {
        self.state.lock().writes
    }

    /// From now on no write succeeds.
    pub(crate) fn break_down(&self) {
        self.state.lock().broken = true;
    }

    /// It is in order again.
    pub(crate) fn mend(&self) {
        self.state.lock().broken = false;
    }

    /// The power goes now, unless it has gone before.
    pub(crate) fn cut(&self, seed: u64) -> Cut {
        let mut state = self.state.lock();
        if state.cut.is_none() {
            state.cut = Some(self.leftover(&state, seed));
        }
        state.cut.take().unwrap()
    }

    /// What is safe, and of the rest some writes, some of them in part.
    fn leftover(&self, state: &State, seed: u64) -> Cut {
        let mut random = ChaCha8Rng::seed_from_u64(seed);
        let keep = random.random_range(0..=100u32);
        let mut image = state.stable.clone();
        for write in &state.pending {
            let kept = if write.durable || random.random_range(0..100) < keep {
                write.bytes.len()
            } else if random.random_range(0..4) == 0 {
                random.random_range(0..=write.bytes.len() / 512) * 512
            } else {
                0
            };
            image[write.offset..write.offset + kept].copy_from_slice(&write.bytes[..kept]);
        }
        Cut { image, progress: self.progress.load(Ordering::SeqCst) }
    }

    fn write(&self, bufs: &[&[u8]], offset: u64, durable: bool) -> io::Result<()> {
        let bytes = bufs.concat();
        let offset = offset as usize;
        if !durable {
            drop(self.groups.lock());
        }
        let mut state = self.state.lock();
        if state.broken {
            return Err(io::Error::other("broken"));
        }
        state.writes += 1;
        state.current.get_mut(offset..offset + bytes.len()).ok_or(io::ErrorKind::UnexpectedEof)?.copy_from_slice(&bytes);
        state.pending.push(Pending { offset, bytes, durable });
        if let Some((left, seed)) = &mut state.fuse {
            if *left == 0 {
                // The write itself is under way: it may be lost although it would be durable when it returns.
                let seed = *seed;
                if let Some(last) = state.pending.last_mut() {
                    last.durable = false;
                }
                let cut = self.leftover(&state, seed);
                if let Some(last) = state.pending.last_mut() {
                    last.durable = durable;
                }
                state.fuse = None;
                state.cut = Some(cut);
            } else {
                *left -= 1;
            }
        }
        if durable && self.cut_when_durable.swap(false, Ordering::Relaxed) {
            state.cut = Some(self.leftover(&state, 0));
        }
        Ok(())
    }
}

impl Disk for CutDisk {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        let state = self.state.lock();
        let offset = offset as usize;
        buf.copy_from_slice(state.current.get(offset..offset + buf.len()).ok_or(io::ErrorKind::UnexpectedEof)?);
        Ok(())
    }

    fn write_at(&self, buf: &[u8], offset: u64) -> io::Result<()> {
        self.write(&[buf], offset, false)
    }

    fn write_vectored_at(&self, bufs: &[&[u8]], offset: u64) -> io::Result<()> {
        self.write(bufs, offset, false)
    }

    fn write_durable_at(&self, bufs: &[&[u8]], offset: u64) -> io::Result<()> {
        {
            let mut under_way = self.under_way.lock();
            under_way.0 += 1;
            under_way.1 = under_way.1.max(under_way.0);
        }
        self.largest.fetch_max(bufs.iter().map(|buf| buf.len()).sum(), Ordering::Relaxed);
        let slow_us = self.slow_us.load(Ordering::Relaxed);
        if slow_us > 0 {
            std::thread::sleep(Duration::from_micros(rand::random_range(0..slow_us)));
        }
        let written = self.write(bufs, offset, true);
        self.under_way.lock().0 -= 1;
        written
    }

    fn has_write_cache(&self) -> bool {
        self.slow_us.load(Ordering::Relaxed) < TURNS_US
    }

    fn flush(&self) -> io::Result<()> {
        let first = self.at_flush.lock().take();
        if let Some(first) = first {
            first();
        }
        let mut state = self.state.lock();
        if self.loses.swap(false, Ordering::Relaxed) {
            state.pending.clear();
            return Err(io::Error::other("lost"));
        }
        let State { stable, pending, .. } = &mut *state;
        for write in pending.drain(..) {
            stable[write.offset..write.offset + write.bytes.len()].copy_from_slice(&write.bytes);
        }
        Ok(())
    }

    fn gains_by_preparing(&self) -> bool {
        self.gains.load(Ordering::Relaxed)
    }

    fn prepare(&self, offset: u64, length: u64) -> io::Result<()> {
        self.prepared.lock().push((offset, length));
        self.write(&[&vec![0; length as usize]], offset, true)
    }

    fn discard(&self, _offset: u64, _length: u64) -> io::Result<()> {
        Ok(())
    }

    fn size_bytes(&self) -> u64 {
        self.size
    }

    fn sector_bytes(&self) -> u64 {
        512
    }

    fn kind(&self) -> DiskKind {
        DiskKind::File
    }

    fn name(&self) -> &str {
        "/cut"
    }
}
