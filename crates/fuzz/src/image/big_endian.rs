//! An unreplayed intent log as a machine of the other byte order would have written it.
//!
//! # Theory
//! We do not have such a machine, and its logs are short-lived. But all that makes a log big-endian is known: a bit in the pointer to
//! each block, the byte order of the numbers in it, that of its checksum. So a log that OpenZFS wrote on an ordinary machine is turned
//! into one, block by block, and the rest of the pool is made to lead to it.

use std::collections::BTreeMap;
use std::sync::Arc;

use disk::{Disk, MemDisk};
use ondisk::blkptr::{BlkPtr, BlockPointer, DataPointer};
use ondisk::label::START_BYTES;
use ondisk::object_type::ObjectType;
use ondisk::zil::{ChainPhys, EMBEDDED_CHECKSUM_MAGIC, header_first_block, to_big_endian};
use transform::checksum::{ZILOG2, embedded};
use zerocopy::{FromBytes, IntoBytes};

use super::{Base, Device};

/// Where the log's header is in an object set's block, and the pointer in that.
const HEADER: std::ops::Range<usize> = 512..704;
const POINTER: std::ops::Range<usize> = 528..656;
const LINK_BYTES: usize = size_of::<ChainPhys>();
/// Magic and checksum of a block, in its link.
const MAGIC_AT: usize = 144;

/// The same pointer, to a block of the other byte order.
fn turned(pointer: &BlkPtr) -> BlkPtr {
    match pointer.decode() {
        Ok(BlockPointer::Data(mut data)) => {
            data.little_endian = false;
            data.encode()
        }
        _ => *pointer,
    }
}

fn swapped(bytes: &mut [u8]) {
    bytes.as_chunks_mut::<8>().0.iter_mut().for_each(|word| word.reverse());
}

impl Base {
    /// The devices of the same pool with big-endian logs, and how many blocks these have.
    pub fn with_big_endian_logs(&self) -> (Vec<Arc<MemDisk>>, usize) {
        let disks: Vec<MemDisk> = self.devices.iter().map(|device| device.disk.snapshot()).collect();
        let (mut contents, mut blocks) = (BTreeMap::new(), 0);
        for (index, node) in self.nodes.iter().enumerate().filter(|(_, node)| node.pointer.object_type == ObjectType::OBJSET) {
            let Some(first) = node.contents.get(HEADER).and_then(header_first_block) else { continue };
            let mut at = first;
            while let Some(next) = turn(&at, &self.devices, &disks) {
                blocks += 1;
                at = next;
            }
            let mut changed = node.contents.clone();
            changed[POINTER].copy_from_slice(turned(&first).as_bytes());
            contents.insert(index, changed);
        }
        (self.replaced(disks, contents).into_iter().map(Arc::new).collect(), blocks)
    }
}

/// Turns one block of a log; the pointer to the next. `None`: it was never written.
fn turn(pointer: &BlkPtr, devices: &[Device], disks: &[MemDisk]) -> Option<BlkPtr> {
    let Ok(BlockPointer::Data(data)) = pointer.decode() else { return None };
    assert_eq!(data.checksum_algorithm.number(), ZILOG2, "logs of this form only");
    let places = |data: &DataPointer| -> Vec<(usize, u64)> {
        let on = |dva: &ondisk::dva::Dva| devices.iter().position(|device| device.top == dva.vdev).expect("a device").to_owned();
        data.dvas().iter().map(|dva| (on(dva), dva.offset + START_BYTES)).collect()
    };
    let places = places(&data);
    let mut block = vec![0; data.physical_size as usize];
    disks[places[0].0].read_at(&mut block, places[0].1).expect("inside of the disk");
    if !embedded::verify_embedded(ZILOG2, &block, data.checksum) {
        return None;
    }
    let (mut link, _) = ChainPhys::read_from_prefix(&block).expect("it is long enough");
    let (next, used) = (link.next, link.used_bytes.get() as usize);
    link.next = turned(&next);
    block[..LINK_BYTES].copy_from_slice(link.as_bytes());
    swapped(&mut block[..LINK_BYTES]);
    let records = to_big_endian(&block[LINK_BYTES..used]);
    block[LINK_BYTES..used].copy_from_slice(&records);
    block[MAGIC_AT..MAGIC_AT + 8].copy_from_slice(&EMBEDDED_CHECKSUM_MAGIC.to_be_bytes());
    let sum = embedded::embedded(ZILOG2, &block, data.checksum).expect("a log block");
    assert!(sum.byteswap);
    for (index, word) in sum.computed.iter().enumerate() {
        let at = MAGIC_AT + 8 + 8 * index;
        block[at..at + 8].copy_from_slice(&word.to_be_bytes());
    }
    for (device, offset) in places {
        disks[device].write_at(&block, offset).expect("inside of the disk");
    }
    Some(next)
}
