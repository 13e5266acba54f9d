//! Changes blocks of a base, and makes the checksums right again.

use std::collections::BTreeMap;
use std::sync::Arc;

use disk::{Disk, DiskRef, MemDisk};
use ondisk::algorithm::Compression;
use ondisk::blkptr::{BLKPTR_BYTES, DataPointer};
use ondisk::label::{self, LABELS, START_BYTES};
use transform::checksum::{self, LABEL, embedded};
use transform::compress::{self, compress};

use super::{Base, Node, data_end, walk};
use crate::Input;

/// The most changes in one pool.
const CHANGES_MAX: usize = 24;
/// Numbers at which things go wrong.
const EDGES: [u64; 12] = [0, 1, 2, 0xff, 0x200, 0xffff, 0x1_0000, 1 << 31, 1 << 40, 1 << 62, 1 << 63, u64::MAX];

/// One change of some bytes.
#[derive(Debug, Clone, Copy)]
struct Change {
    /// Chooses what is done.
    kind: u8,
    /// Chooses where.
    place: u16,
    /// What.
    value: u64,
}

impl Change {
    fn take(input: &mut Input<'_>) -> Change {
        Change { kind: input.u8(), place: input.u16(), value: input.u64() }
    }

    /// Changes `bytes`, in which `words` are worth it.
    fn apply(self, bytes: &mut [u8], words: &[u32]) {
        if bytes.is_empty() {
            return;
        }
        let place = usize::from(self.place);
        // Mostly at a word that is in use; the upper bits of the value choose a byte of it.
        let mut at = match words.get(place.checked_rem(words.len()).unwrap_or(0)) {
            Some(word) if self.kind & 0x80 == 0 => *word as usize,
            _ => place * 8 % bytes.len(),
        };
        if self.kind & 0x40 != 0 {
            at = (at + (self.value >> 60) as usize % 8).min(bytes.len() - 1);
        }
        let mut put = |new: &[u8]| bytes[at..].iter_mut().zip(new).for_each(|(to, from)| *to = *from);
        match self.kind & 0x0f {
            0 => put(&[self.value as u8]),
            1 => put(&(self.value as u16).to_le_bytes()),
            2 => put(&(self.value as u32).to_le_bytes()),
            3 => put(&self.value.to_le_bytes()),
            4 | 5 => put(&EDGES[self.value as usize % EDGES.len()].to_le_bytes()),
            6 => put(&(EDGES[self.value as usize % EDGES.len()] as u16).to_le_bytes()),
            7 | 8 => bytes[at] ^= 1 << (self.value % 8),
            9 | 10 => bytes[at] = bytes[at].wrapping_add((self.value as u8 % 16).wrapping_sub(8)),
            11 => bytes[at..].iter_mut().take(self.value as usize % 512).for_each(|byte| *byte = 0),
            12 => bytes[at..].iter_mut().take(self.value as usize % 64).for_each(|byte| *byte = 0xff),
            // A pointer, a slot of a ZAP or a dnode in the place of another.
            _ => {
                let size = [8, 24, 64, BLKPTR_BYTES, 512][self.value as usize % 5];
                let from = (self.value >> 8) as usize % bytes.len() / size * size;
                let piece = bytes[from..].iter().take(size).copied().collect::<Vec<u8>>();
                let to = at / size * size;
                bytes[to..].iter_mut().zip(piece).for_each(|(to, from)| *to = from);
            }
        }
    }
}

/// The target of a change.
#[derive(Default)]
struct Changes {
    blocks: BTreeMap<usize, Vec<Change>>,
    uberblock: Vec<Change>,
    config: Vec<Change>,
}

impl Changes {
    fn take(base: &Base, input: &mut Input<'_>) -> Changes {
        let mut changes = Changes::default();
        for _ in 0..usize::from(input.u8()) % CHANGES_MAX {
            let chosen = input.u16();
            let change = Change::take(input);
            match chosen {
                0xfff0.. => changes.uberblock.push(change),
                0xffe0.. => changes.config.push(change),
                _ => changes.blocks.entry(usize::from(chosen) % base.nodes.len()).or_default().push(change),
            }
        }
        changes
    }
}

/// A pool that is being changed.
struct Rewrite<'a> {
    base: &'a Base,
    disks: Vec<MemDisk>,
    /// What is to be written: contents with the new pointers to what was written already.
    contents: BTreeMap<usize, Vec<u8>>,
    /// The end of what is free at the end of each device.
    ends: Vec<u64>,
    root: Option<[u8; BLKPTR_BYTES]>,
    salt: [u8; 32],
}

impl Base {
    /// The devices of the pool that the changes in `input` make.
    pub fn changed(&self, input: &mut Input<'_>) -> Vec<DiskRef> {
        let changes = Changes::take(self, input);
        let disks = self.devices.iter().map(|device| device.disk.snapshot()).collect();
        let ends = self.devices.iter().map(data_end).collect();
        let mut rewrite = Rewrite { base: self, disks, contents: BTreeMap::new(), ends, root: None, salt: self.salt() };
        for index in changes.blocks.keys() {
            rewrite.contents.insert(*index, self.nodes[*index].contents.clone());
        }
        // Blocks are in an order in which a pointer's target is done before the pointer is.
        while let Some((index, mut contents)) = rewrite.contents.pop_first() {
            let node = &self.nodes[index];
            for change in changes.blocks.get(&index).into_iter().flatten() {
                change.apply(&mut contents, &node.words);
            }
            let pointer = rewrite.write(node, &contents);
            rewrite.point(node, &pointer);
        }
        rewrite.labels(&changes);
        rewrite.disks.into_iter().map(|disk| Arc::new(disk) as DiskRef).collect()
    }

    /// The pool on `disks` with other contents of these blocks, which fit.
    pub(super) fn replaced(&self, disks: Vec<MemDisk>, contents: BTreeMap<usize, Vec<u8>>) -> Vec<MemDisk> {
        let ends = self.devices.iter().map(data_end).collect();
        let mut rewrite = Rewrite { base: self, disks, contents, ends, root: None, salt: self.salt() };
        while let Some((index, contents)) = rewrite.contents.pop_first() {
            let pointer = rewrite.write(&self.nodes[index], &contents);
            rewrite.point(&self.nodes[index], &pointer);
        }
        rewrite.labels(&Changes::default());
        rewrite.disks
    }

    /// The salt of the pool's checksums, which is in its object directory.
    fn salt(&self) -> [u8; 32] {
        let name = b"org.illumos:checksum_salt\0";
        let found = self
            .nodes
            .iter()
            .filter(|node| node.pointer.object_type == ondisk::object_type::ObjectType::OBJECT_DIRECTORY)
            .find_map(|node| {
                let leaf = ondisk::zap_leaf::Leaf::open(node.contents.as_slice()).ok()?;
                let entries = leaf.entries().ok()?;
                let entry = entries.iter().find(|entry| leaf.name(entry, 1).is_ok_and(|found| found == name))?;
                leaf.value(entry).ok()
            });
        found.and_then(|salt| salt.try_into().ok()).unwrap_or_default()
    }
}

impl Rewrite<'_> {
    /// Writes the contents of a block, where it was or, if it needs more room now, elsewhere.
    fn write(&mut self, node: &Node, contents: &[u8]) -> DataPointer {
        let mut pointer = node.pointer.clone();
        let mut physical = vec![0; pointer.physical_size as usize];
        let algorithm = walk::number(&pointer);
        let fits = match algorithm {
            compress::OFF => {
                physical.copy_from_slice(contents);
                true
            }
            _ => match compress(algorithm, compress::LEVEL_DEFAULT, contents, &mut physical) {
                Some(length) => {
                    physical[length..].fill(0);
                    true
                }
                None => false,
            },
        };
        if !fits {
            physical = contents.to_vec();
            pointer.compression = Compression::Off;
            pointer.physical_size = physical.len() as u64;
            let mut dva = pointer.dvas()[0];
            dva.allocated = pointer.physical_size.next_multiple_of(4096);
            dva.offset = self.take_end(dva.vdev, dva.allocated);
            pointer.set_dvas(&[dva]);
        }
        for dva in pointer.dvas() {
            for (device, disk) in self.base.devices.iter().zip(&self.disks).filter(|(device, _)| device.top == dva.vdev) {
                assert!(dva.offset < data_end(device));
                disk.write_at(&physical, dva.offset + START_BYTES).expect("inside of the disk");
            }
        }
        pointer.checksum =
            checksum::checksum(pointer.checksum_algorithm.number(), &physical, false, &self.salt).expect("of a known kind");
        pointer
    }

    fn take_end(&mut self, top: u32, bytes: u64) -> u64 {
        let mut place = 0;
        for (device, end) in self.base.devices.iter().zip(&mut self.ends).filter(|(device, _)| device.top == top) {
            *end = (end.min(&mut data_end(device)).saturating_sub(bytes)) & !4095;
            place = *end;
        }
        place
    }

    /// Makes everything that leads to a block lead to where it is now.
    fn point(&mut self, node: &Node, pointer: &DataPointer) {
        let raw = pointer.encode();
        for (parent, at) in &node.parents {
            let Some(parent) = parent else {
                self.root = Some(*raw.as_bytes());
                continue;
            };
            let contents = self.contents.entry(*parent).or_insert_with(|| self.base.nodes[*parent].contents.clone());
            contents[*at..*at + BLKPTR_BYTES].copy_from_slice(raw.as_bytes());
        }
    }

    fn labels(&self, changes: &Changes) {
        let mut uberblock = self.base.uberblock.clone();
        uberblock.root = self.root.unwrap_or(uberblock.root);
        let mut bytes = uberblock.encode().to_vec();
        changes.uberblock.iter().for_each(|change| change.apply(&mut bytes, &[]));
        for (device, disk) in self.base.devices.iter().zip(&self.disks) {
            let mut config = device.config.encode_xdr();
            changes.config.iter().for_each(|change| change.apply(&mut config, &[]));
            for index in 0..LABELS {
                let start = label::label_offset(disk.size_bytes(), index);
                let slot = device.ring.slot_offset(device.ring.slot_of(self.base.uberblock.txg, false));
                sealed(disk, &bytes, device.ring.slot_bytes(), start + slot);
                if !changes.config.is_empty() {
                    sealed(disk, &config, label::CONFIG_BYTES, start + label::CONFIG_OFFSET);
                }
            }
        }
    }
}

/// Writes a part of a label with its checksum.
fn sealed(disk: &MemDisk, bytes: &[u8], length: usize, at: u64) {
    let mut part = vec![0; length];
    let used = bytes.len().min(length - label::CHECKSUM_BYTES);
    part[..used].copy_from_slice(&bytes[..used]);
    embedded::seal(LABEL, &mut part, [at, 0, 0, 0]).expect("there is room");
    disk.write_at(&part, at).expect("inside of the disk");
}
