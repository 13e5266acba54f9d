//! The uberblock and its ring.
//!
//! # Theory
//! An uberblock is the root of a whole pool at one txg: the pointer to the meta object set, the txg, and the sum of all
//! vdev guids, by which an incomplete set of devices shows. Each label has a ring of them; txg `t` goes to slot `t`
//! modulo the slots, so that the newest is never overwritten by the next. The newest whole uberblock of all rings of
//! all devices *is* the pool: writing it is the commit of a txg.
//!
//! # On disk
//! 27 numbers of 64 bits in the byte order of the writer, which the magic shows; the root pointer's 16 numbers are in
//! the middle. A slot's last 40 bytes are its checksum, the rest is zero.

use crate::corruption::Corruption;
use crate::label::ByteOrder;
use std::cmp::Ordering;

/// Bytes of a block pointer.
const POINTER_BYTES: usize = 128;
/// No pool will ever get so far; what claims to has numbers that overflow when one is added.
const TXG_END: u64 = 1 << 62;

/// The root of a pool at one txg.
#[derive(Debug, Clone, PartialEq, Eq)]
#[doc(alias = "uberblock_t")]
pub struct Uberblock {
    /// The byte order it was written in.
    pub order: ByteOrder,
    /// The pool's version: 5000, or up to 28 without feature flags.
    #[doc(alias = "ub_version")]
    pub version: u64,
    /// The txg that it ends.
    #[doc(alias = "ub_txg")]
    pub txg: u64,
    /// The sum of the guids of all vdevs, inner ones too.
    #[doc(alias = "ub_guid_sum")]
    pub guid_sum: u64,
    /// When it was written, in seconds since 1970.
    #[doc(alias = "ub_timestamp")]
    pub timestamp: u64,
    /// The block pointer to the meta object set, its numbers little-endian.
    #[doc(alias = "ub_rootbp")]
    pub root: [u8; POINTER_BYTES],
    /// The highest version that the writer knew.
    #[doc(alias = "ub_software_version")]
    pub software_version: u64,
    /// Multihost protection; `None` if written before there was such a thing.
    pub multihost: Option<Multihost>,
    /// If this is a checkpoint: the txg it had when it was taken. Otherwise 0.
    #[doc(alias = "ub_checkpoint_txg")]
    pub checkpoint_txg: u64,
    /// The state of a RAIDZ expansion: an offset and what the scratch area holds.
    #[doc(alias = "ub_raidz_reflow_info")]
    pub raidz_reflow: RaidzReflow,
}

/// What a host says about itself, so that no two import one pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Multihost {
    /// Nanoseconds since the last heartbeat; 0 if protection is off.
    #[doc(alias = "ub_mmp_delay")]
    pub delay_ns: u64,
    /// Which of the following are valid, and they themselves, as stored.
    #[doc(alias = "ub_mmp_config")]
    pub config: u64,
}

impl Multihost {
    /// The magic number that says that these fields are there.
    #[doc(alias = "MMP_MAGIC")]
    pub const MAGIC: u64 = 0xa11c_ea11;

    /// Packs the interval between heartbeats (milliseconds), a number that tells heartbeats apart, and after how many
    /// missed intervals the pool is suspended.
    pub fn new(delay_ns: u64, interval_ms: u32, sequence: u16, fail_intervals: u16) -> Multihost {
        let interval = u64::from(interval_ms & 0x00ff_ffff) << 8;
        let config = 0b111 | interval | u64::from(sequence) << 32 | u64::from(fail_intervals) << 48;
        Multihost { delay_ns, config }
    }

    /// Milliseconds between heartbeats.
    pub fn interval_ms(&self) -> Option<u32> {
        (self.config & 1 != 0).then_some((self.config >> 8 & 0x00ff_ffff) as u32)
    }

    /// The number that tells heartbeats within one second apart.
    pub fn sequence(&self) -> Option<u16> {
        (self.config & 2 != 0).then_some((self.config >> 32 & 0xffff) as u16)
    }

    /// After how many missed intervals the pool is suspended.
    pub fn fail_intervals(&self) -> Option<u16> {
        (self.config & 4 != 0).then_some((self.config >> 48) as u16)
    }
}

/// How far a RAIDZ expansion is, as stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RaidzReflow(pub u64);

/// What has become of the scratch area of a RAIDZ expansion.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[doc(alias = "raidz_reflow_scratch_state_t")]
pub enum ScratchState {
    /// It was not used yet.
    NotInUse = 0,
    /// The first sectors are in it.
    Valid = 1,
    /// They are in their place.
    Synced = 2,
    /// They are in their place, since a pool was opened in the middle.
    SyncedOnImport = 3,
    /// Others have been moved since.
    SyncedReflow = 4,
}

impl RaidzReflow {
    /// Up to where, in bytes, data is laid out in the new way.
    pub fn offset(self) -> u64 {
        (self.0 & ((1 << 55) - 1)) << 9
    }

    /// 0: the scratch area is not in use, 1: it holds data, 2 and more: done with it.
    pub fn scratch_state(self) -> u64 {
        self.0 >> 55
    }

    /// The first sectors are in the scratch area, as their place may have been written over in part.
    pub fn is_in_scratch(self) -> bool {
        self.scratch_state() == ScratchState::Valid as u64
    }

    /// Data is laid out in the new way up to `offset` bytes.
    pub fn new(state: ScratchState, offset: u64) -> RaidzReflow {
        RaidzReflow((state as u64) << 55 | offset >> 9 & ((1 << 55) - 1))
    }
}

impl Uberblock {
    /// The magic number.
    #[doc(alias = "UBERBLOCK_MAGIC")]
    pub const MAGIC: u64 = 0x00ba_b10c;
    /// Bytes in a slot that are not padding or checksum.
    pub const BYTES: usize = 216;

    /// An uberblock with nothing in it, in our byte order.
    pub fn empty() -> Uberblock {
        Uberblock {
            order: ByteOrder::Little,
            version: 0,
            txg: 0,
            guid_sum: 0,
            timestamp: 0,
            root: [0; POINTER_BYTES],
            software_version: 0,
            multihost: None,
            checkpoint_txg: 0,
            raidz_reflow: RaidzReflow(0),
        }
    }

    /// Reads the uberblock at the start of a slot, or the copy of one that a checkpoint keeps. Its checksum is the
    /// caller's business.
    pub fn decode(slot: &[u8]) -> Result<Uberblock, Corruption> {
        let bytes = slot.first_chunk::<{ Self::BYTES }>().ok_or(bad("length", slot.len() as u64))?;
        let (words, _) = bytes.as_chunks::<8>();
        let magic = words.first().map_or(0, |w| u64::from_le_bytes(*w));
        let order = match magic {
            Self::MAGIC => ByteOrder::Little,
            other if other.swap_bytes() == Self::MAGIC => ByteOrder::Big,
            other => return Err(bad("magic", other)),
        };
        let mut words = words.iter().map(|w| order.u64(*w)).skip(1);
        let mut next = || words.next().unwrap_or(0);
        let (version, txg, guid_sum, timestamp) = (next(), next(), next(), next());
        if txg >= TXG_END {
            return Err(bad("txg", txg));
        }
        let mut root = [0; POINTER_BYTES];
        root.as_chunks_mut::<8>().0.iter_mut().for_each(|w| *w = next().to_le_bytes());
        let software_version = next();
        let (magic, delay_ns, config) = (next(), next(), next());
        let multihost = (magic == Multihost::MAGIC).then_some(Multihost { delay_ns, config });
        let (checkpoint_txg, raidz_reflow) = (next(), RaidzReflow(next()));
        Ok(Uberblock {
            order,
            version,
            txg,
            guid_sum,
            timestamp,
            root,
            software_version,
            multihost,
            checkpoint_txg,
            raidz_reflow,
        })
    }

    /// The bytes at the start of a slot, in the byte order [`Uberblock::order`].
    pub fn encode(&self) -> [u8; Self::BYTES] {
        let multihost = self.multihost.unwrap_or_default();
        let multihost_magic = if self.multihost.is_some() { Multihost::MAGIC } else { 0 };
        let head = [Self::MAGIC, self.version, self.txg, self.guid_sum, self.timestamp];
        let tail = [
            self.software_version,
            multihost_magic,
            multihost.delay_ns,
            multihost.config,
            self.checkpoint_txg,
            self.raidz_reflow.0,
        ];
        let root = self.root.as_chunks::<8>().0.iter().map(|w| u64::from_le_bytes(*w));
        let mut out = [0; Self::BYTES];
        let words = head.into_iter().chain(root).chain(tail);
        for (bytes, word) in out.as_chunks_mut::<8>().0.iter_mut().zip(words) {
            *bytes = self.order.bytes(word);
        }
        out
    }

    /// As the MOS keeps it for a checkpoint: numbers, in the order of this machine.
    pub fn to_words(&self) -> Vec<u64> {
        let little = Uberblock { order: ByteOrder::Little, ..self.clone() };
        little.encode().as_chunks::<8>().0.iter().map(|word| u64::from_le_bytes(*word)).collect()
    }

    /// Which of two uberblocks is newer. Of two with one txg (written by hosts that saw different halves of a mirror)
    /// it is the later one, and then the one with the higher heartbeat number.
    pub fn compare_age(&self, other: &Uberblock) -> Ordering {
        let sequence = |u: &Uberblock| u.multihost.and_then(|m| m.sequence()).unwrap_or(0);
        let key = |u: &Uberblock| (u.txg, u.timestamp, sequence(u));
        key(self).cmp(&key(other))
    }
}

fn bad(field: &'static str, found: u64) -> Corruption {
    Corruption::new("uberblock", field, found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn example(order: ByteOrder) -> Uberblock {
        let mut root = [0; POINTER_BYTES];
        for (i, byte) in root.iter_mut().enumerate() {
            *byte = i as u8;
        }
        Uberblock {
            order,
            version: 5000,
            txg: 44,
            guid_sum: u64::MAX - 1,
            timestamp: 1_795_172_816,
            root,
            software_version: 5000,
            multihost: Some(Multihost::new(5, 1000, 7, 10)),
            checkpoint_txg: 3,
            raidz_reflow: RaidzReflow(1 << 55 | 8),
        }
    }

    #[test]
    fn it_survives_in_both_orders() {
        for order in [ByteOrder::Little, ByteOrder::Big] {
            let uberblock = example(order);
            assert_eq!(Uberblock::decode(&uberblock.encode()), Ok(uberblock));
        }
        let little = example(ByteOrder::Little).encode();
        assert_eq!(little[..8], [0x0c, 0xb1, 0xba, 0, 0, 0, 0, 0]);
        assert_eq!(little[16], 44);
        assert_eq!(little[40..48], [0, 1, 2, 3, 4, 5, 6, 7]);
        assert_eq!(little[200], 3);
        assert_eq!(example(ByteOrder::Big).encode()[40..48], [7, 6, 5, 4, 3, 2, 1, 0]);
    }

    #[test]
    fn it_is_kept_as_numbers() {
        let uberblock = example(ByteOrder::Big);
        let words = uberblock.to_words();
        assert_eq!((words.len(), words[0], words[2], words[25]), (27, Uberblock::MAGIC, 44, 3));
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        assert_eq!(Uberblock::decode(&bytes), Ok(Uberblock { order: ByteOrder::Little, ..uberblock }));
    }

    /// Found by the fuzzer: the group after the last number there is.
    #[test]
    fn a_txg_that_nobody_can_reach_is_damage() {
        let mut uberblock = Uberblock { txg: u64::MAX, ..example(ByteOrder::Little) };
        assert!(Uberblock::decode(&uberblock.encode()).is_err());
        uberblock.txg = TXG_END - 1;
        assert!(Uberblock::decode(&uberblock.encode()).is_ok());
    }

    #[test]
    fn the_packed_fields_come_apart() {
        let multihost = Multihost::new(0, 1000, 7, 10);
        assert_eq!(multihost.config, 0x000a_0007_0003_e807);
        assert_eq!(
            (multihost.interval_ms(), multihost.sequence(), multihost.fail_intervals()),
            (Some(1000), Some(7), Some(10))
        );
        assert_eq!(Multihost::default().sequence(), None);
        let reflow = RaidzReflow(1 << 55 | 8);
        assert_eq!((reflow.offset(), reflow.scratch_state()), (4096, 1));
    }

    #[test]
    fn the_newest_is_by_txg_then_time_then_sequence() {
        let base = example(ByteOrder::Little);
        let newer = |change: fn(&mut Uberblock)| {
            let mut other = base.clone();
            change(&mut other);
            assert_eq!(other.compare_age(&base), Ordering::Greater);
        };
        newer(|u| {
            u.txg += 1;
            u.timestamp -= 1;
        });
        newer(|u| u.timestamp += 1);
        newer(|u| u.multihost = Some(Multihost::new(0, 1, 8, 1)));
        assert_eq!(base.compare_age(&base), Ordering::Equal);
    }

    proptest! {
        #[test]
        fn any_bytes_with_a_magic_come_back(mut bytes in proptest::collection::vec(any::<u8>(), 0..300), big: bool) {
            let order = if big { ByteOrder::Big } else { ByteOrder::Little };
            if bytes.len() >= 8 {
                bytes[..8].copy_from_slice(&order.bytes(Uberblock::MAGIC));
            }
            match Uberblock::decode(&bytes) {
                Ok(uberblock) => {
                    let again = uberblock.encode();
                    prop_assert_eq!(&again[..176], &bytes[..176]);
                    prop_assert_eq!(Uberblock::decode(&again), Ok(uberblock));
                }
                Err(corruption) if corruption.field == "txg" => prop_assert!(corruption.found >= TXG_END),
                Err(corruption) => {
                    prop_assert!(bytes.len() < Uberblock::BYTES);
                    prop_assert_eq!(corruption.found, bytes.len() as u64);
                }
            }
        }
    }
}
