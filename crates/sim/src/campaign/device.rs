//! A disk in memory with faults that come and go.

#![allow(clippy::disallowed_methods)] // a device hangs by the real clock

use std::collections::BTreeSet;
use std::io;
use std::sync::Arc;
use std::time::Instant;

use disk::{Disk, DiskKind};
use ondisk::label::CONFIG_NVLIST_BYTES;
use ondisk::nvlist::NvList;
use parking_lot::{Mutex, RwLock};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

use crate::explore::disk::{Image, SECTOR};

/// Where the data of a device begins, behind two labels and the boot area.
const DATA_START: u64 = 4 << 20;
/// What the first label says of the pool.
const LABEL_DESCRIPTION: std::ops::Range<usize> = 16 << 10..128 << 10;
/// Two labels at its end.
const LABELS_END: u64 = 512 << 10;

/// What is wrong with a disk now.
#[derive(Debug, Clone, Default)]
pub(super) struct Faults {
    /// It does not answer.
    pub(super) gone: bool,
    /// These sectors cannot be read until they are written.
    pub(super) latent: BTreeSet<u64>,
    /// One read of so many has a bit turned; 0: none.
    pub(super) flips: u32,
    /// So many of the next writes of data go elsewhere.
    pub(super) misdirected: u32,
    /// Of so many of the next writes of data only a part is stored.
    pub(super) torn: u32,
    /// So many of the next writes of data have a bit turned.
    pub(super) turned: u32,
    /// So many of the next flushes fail, and what was written since the last one is gone.
    pub(super) forgetful: u32,
    /// It does not answer until then.
    pub(super) hangs_until: Option<Instant>,
}

struct State {
    /// What reads give.
    now: Image,
    /// What a loss of power leaves for sure.
    safe: Image,
    /// Writes that are not safe, in their order; `true`: this one is.
    pending: Vec<(u64, Vec<u8>, bool)>,
    faults: Faults,
    random: ChaCha8Rng,
}

/// A disk in memory with faults.
pub struct Device {
    name: String,
    size: u64,
    /// guards: nobody is within an I/O of any disk of the pool while the power goes
    power: Arc<RwLock<()>>,
    state: Mutex<State>,
}

impl Device {
    /// An empty one. `power` is shared by all disks of a pool.
    pub(super) fn new(name: String, size: u64, power: Arc<RwLock<()>>, seed: u64) -> Arc<Device> {
        let random = ChaCha8Rng::seed_from_u64(seed);
        let state = State { now: Image::default(), safe: Image::default(), pending: Vec::new(), faults: Faults::default(), random };
        Arc::new(Device { name, size, power, state: Mutex::new(state) })
    }

    /// The disk after the power went and came: of what was not flushed each write is there, is not, or is torn.
    pub(super) fn after_power_cut(&self, power: Arc<RwLock<()>>) -> Arc<Device> {
        let mut state = self.state.lock();
        let mut image = state.safe.clone();
        let pending = std::mem::take(&mut state.pending);
        for (offset, data, is_safe) in &pending {
            let fate = if *is_safe { 0 } else { state.random.random_range(0..5) };
            for (sector, bytes) in data.chunks(SECTOR).enumerate() {
                if fate < 2 || (fate == 2 && state.random.random()) {
                    image.write(offset + (sector * SECTOR) as u64, bytes);
                }
            }
        }
        let (faults, random) = (state.faults.clone(), ChaCha8Rng::seed_from_u64(state.random.random()));
        let state = State { now: image.clone(), safe: image, pending: Vec::new(), faults, random };
        Arc::new(Device { name: self.name.clone(), size: self.size, power, state: Mutex::new(state) })
    }

    /// A copy with the contents of now, and without faults.
    pub(super) fn copy(&self) -> Arc<Device> {
        let now = self.state.lock().now.clone();
        let state = State { safe: now.clone(), now, pending: Vec::new(), faults: Faults::default(), random: ChaCha8Rng::seed_from_u64(1) };
        Arc::new(Device { name: self.name.clone(), size: self.size, power: Arc::default(), state: Mutex::new(state) })
    }

    /// The contents now.
    pub(super) fn image(&self) -> Image {
        self.state.lock().now.clone()
    }

    /// Changes what is wrong with it.
    pub(super) fn set(&self, change: impl FnOnce(&mut Faults)) {
        change(&mut self.state.lock().faults);
    }

    /// Does it answer?
    pub(super) fn is_gone(&self) -> bool {
        self.state.lock().faults.gone
    }

    /// Does its first label say that it is part of a pool?
    pub(super) fn has_label(&self) -> bool {
        let mut label = vec![0; LABEL_DESCRIPTION.end - LABEL_DESCRIPTION.start];
        self.state.lock().now.read(LABEL_DESCRIPTION.start as u64, &mut label);
        NvList::decode(&label[..CONFIG_NVLIST_BYTES]).is_ok_and(|config| config.u64("txg") != Some(0))
    }

    /// Random offsets of sectors of data that were written.
    pub(super) fn written(&self, count: usize) -> Vec<u64> {
        let mut state = self.state.lock();
        let mut used: Vec<u64> = state.now.chunks().map(|(at, _)| at).filter(|at| (DATA_START..self.size - LABELS_END).contains(at)).collect();
        used.sort_unstable();
        if used.is_empty() {
            return Vec::new();
        }
        (0..count).map(|_| used[state.random.random_range(0..used.len())] + state.random.random_range(0..8) * SECTOR as u64).collect()
    }

    /// Changes what is stored: these sectors, or with `None` all data.
    pub(super) fn damage(&self, sectors: Option<&[u64]>) {
        let mut state = self.state.lock();
        let sectors = match sectors {
            Some(sectors) => sectors.to_vec(),
            None => {
                let data = DATA_START..self.size - LABELS_END;
                let chunks: Vec<u64> = state.now.chunks().map(|(at, _)| at).filter(|at| data.contains(at)).collect();
                chunks.into_iter().flat_map(|at| (0..8).map(move |sector| at + sector * SECTOR as u64)).collect()
            }
        };
        for at in sectors {
            let mut bytes = [0; SECTOR];
            state.now.read(at, &mut bytes);
            let mask = state.random.random_range(1..=255);
            bytes.iter_mut().for_each(|byte| *byte ^= mask);
            state.now.write(at, &bytes);
            state.safe.write(at, &bytes);
        }
    }

    fn check(&self, faults: &Faults, offset: u64, length: usize) -> io::Result<()> {
        if faults.gone {
            return Err(io::Error::other(format!("{} does not answer", self.name)));
        }
        if offset.checked_add(length as u64).is_none_or(|end| end > self.size) {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        Ok(())
    }

    /// Waits while the device hangs.
    fn hang(&self) {
        let until = self.state.lock().faults.hangs_until;
        if let Some(left) = until.and_then(|until| until.checked_duration_since(Instant::now())) {
            std::thread::sleep(left);
        }
    }

    fn put(&self, mut data: Vec<u8>, mut offset: u64, is_safe: bool) -> io::Result<()> {
        self.hang();
        let _power = self.power.read();
        let mut state = self.state.lock();
        self.check(&state.faults, offset, data.len())?;
        let is_data = offset >= DATA_START && offset + (data.len() as u64) <= self.size - LABELS_END;
        if is_data && state.faults.misdirected > 0 {
            state.faults.misdirected -= 1;
            let room = (self.size - LABELS_END - DATA_START - data.len() as u64) / 4;
            offset = DATA_START + state.random.random_range(0..room) / SECTOR as u64 * SECTOR as u64;
        }
        if is_data && state.faults.torn > 0 {
            state.faults.torn -= 1;
            let sectors = data.len() / SECTOR;
            data.truncate(state.random.random_range(0..=sectors) * SECTOR);
        }
        if is_data && state.faults.turned > 0 && !data.is_empty() {
            state.faults.turned -= 1;
            let (at, bit) = (state.random.random_range(0..data.len()), state.random.random_range(0..8));
            data[at] ^= 1 << bit;
        }
        for sector in 0..data.len().div_ceil(SECTOR) as u64 {
            state.faults.latent.remove(&(offset / SECTOR as u64 + sector));
        }
        state.now.write(offset, &data);
        state.pending.push((offset, data, is_safe));
        Ok(())
    }
}

impl Disk for Device {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        self.hang();
        let _power = self.power.read();
        let mut state = self.state.lock();
        self.check(&state.faults, offset, buf.len())?;
        let first = offset / SECTOR as u64;
        if state.faults.latent.range(first..first + buf.len().div_ceil(SECTOR) as u64).next().is_some() {
            return Err(io::Error::other(format!("{}: a sector cannot be read", self.name)));
        }
        state.now.read(offset, buf);
        let flips = state.faults.flips;
        if flips > 0 && offset >= DATA_START && !buf.is_empty() && state.random.random_range(0..flips) == 0 {
            let at = state.random.random_range(0..buf.len());
            buf[at] ^= 1 << state.random.random_range(0..8);
        }
        Ok(())
    }

    fn write_at(&self, buf: &[u8], offset: u64) -> io::Result<()> {
        self.put(buf.to_vec(), offset, false)
    }

    fn write_vectored_at(&self, bufs: &[&[u8]], offset: u64) -> io::Result<()> {
        self.put(bufs.concat(), offset, false)
    }

    fn write_durable_at(&self, bufs: &[&[u8]], offset: u64) -> io::Result<()> {
        self.put(bufs.concat(), offset, true)
    }

    fn flush(&self) -> io::Result<()> {
        self.hang();
        let _power = self.power.read();
        let mut state = self.state.lock();
        self.check(&state.faults, 0, 0)?;
        if state.faults.forgetful > 0 {
            state.faults.forgetful -= 1;
            let (forgotten, safe) = (std::mem::take(&mut state.pending), state.safe.clone());
            state.now = safe;
            // Durable writes have been acknowledged.
            for (offset, data, _) in forgotten.into_iter().filter(|(.., is_safe)| *is_safe) {
                state.now.write(offset, &data);
                state.safe.write(offset, &data);
            }
            return Err(io::Error::other(format!("{}: a flush failed", self.name)));
        }
        for (offset, data, _) in std::mem::take(&mut state.pending) {
            state.safe.write(offset, &data);
        }
        Ok(())
    }

    fn discard(&self, _offset: u64, _length: u64) -> io::Result<()> {
        Ok(())
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
