//! What a pool of a campaign consists of, and how fast its scans are.

use std::sync::Arc;

use engine::tunables::{Parameter, Tunables};
use engine::vdev::{DraidColumns, NewLeaf, NewTop};
use rand::Rng;
use rand::seq::IndexedRandom;
use rand_chacha::ChaCha8Rng;

use super::device::Device;

/// Little: files are to be read from the disks.
const CACHE_BYTES: u64 = 2 << 20;
/// Columns and parity of RAID-Z.
const RAIDZ: [(usize, u8); 7] = [(3, 1), (4, 1), (5, 1), (4, 2), (6, 2), (5, 3), (7, 3)];
/// Children, parity, columns of data, and spares.
const DRAID: [(usize, u8, u64, u64); 5] = [(6, 1, 3, 1), (5, 1, 2, 1), (8, 2, 4, 1), (9, 2, 3, 2), (7, 3, 2, 1)];

/// How vdevs hold their data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Mirror,
    Raidz,
    Draid(DraidColumns),
}

/// What a pool consists of.
#[derive(Debug, Clone, Copy)]
pub(super) struct Shape {
    pub(super) kind: Kind,
    pub(super) tops: usize,
    /// Sides, or columns, of each.
    pub(super) columns: usize,
    /// 0: a mirror.
    pub(super) parity: u8,
    pub(super) ashift: u32,
    /// Of each device.
    pub(super) bytes: u64,
    /// Scans, rebuilds and the like do a little in each group, and groups are written when somebody asks.
    pub(super) is_stepwise: bool,
}

impl Shape {
    pub(super) fn random(random: &mut ChaCha8Rng) -> Shape {
        let (tops, ashift, is_stepwise) = (1 + random.random_range(0..4) / 3, *[9, 12].choose(random).expect("one of two"), random.random());
        let (kind, columns, parity) = match random.random_range(0..3) {
            0 => (Kind::Mirror, random.random_range(2..4), 0),
            1 => {
                let (columns, parity) = *RAIDZ.choose(random).expect("a shape");
                (Kind::Raidz, columns, parity)
            }
            _ => {
                let (columns, parity, data, spares) = *DRAID.choose(random).expect("a shape");
                (Kind::Draid(DraidColumns { data, spares }), columns, parity)
            }
        };
        // Of mirrors one may go.
        let tops = if kind == Kind::Mirror { random.random_range(1..4) } else { tops };
        let bytes = if matches!(kind, Kind::Draid(_)) { 96 << 20 } else { 64 << 20 };
        Shape { kind, tops, columns, parity, ashift, bytes, is_stepwise }
    }

    /// A vdev of these devices.
    pub(super) fn new_top<'a>(&self, devices: impl Iterator<Item = &'a Arc<Device>>) -> NewTop {
        let leaf = |device: &Arc<Device>| NewLeaf { disk: device.clone(), path: disk::Disk::name(&**device).to_owned(), whole_disk: false };
        let draid = if let Kind::Draid(columns) = self.kind { Some(columns) } else { None };
        NewTop { leaves: devices.map(leaf).collect(), parity: self.parity, draid, ashift: Some(self.ashift), ..NewTop::default() }
    }

    /// The limits of the pool.
    pub(super) fn tunables(&self, random: &mut ChaCha8Rng) -> Tunables {
        if !self.is_stepwise {
            return fast();
        }
        let tunables = Tunables { scan_hastens: false, scan_blocks_max: random.random_range(8..200), txg_timeout_ns: u64::MAX / 4, ..fast() };
        let bytes = (random.random_range(2..32) * 65536).to_string();
        for parameter in [Parameter::RebuildMaxSegment, Parameter::RemoveMaxCopyBytes, Parameter::RemoveMaxSegment] {
            tunables.parameters.set(parameter, &bytes).expect("a number");
        }
        tunables
    }
}

/// The limits of a pool whose scans take the time that they take.
pub(super) fn fast() -> Tunables {
    Tunables { cache_bytes_max: CACHE_BYTES, ..Tunables::default() }
}
