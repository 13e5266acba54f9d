//! Devices that come and go under I/O.

use crate::error::ErrorKind;
use crate::host::RealHost;
use crate::vdev::map::Position;
use crate::vdev::*;
use crate::zio::{BlockDevice, write_range};
use disk::MemDisk;
use std::sync::Arc;

const SIZE: u64 = 64 << 20;

fn disk(name: &str) -> NewLeaf {
    NewLeaf { disk: Arc::new(MemDisk::new(name, SIZE)), path: name.to_owned(), whole_disk: false }
}

fn top_of(names: &[&str]) -> (VdevTree, Arc<TopVdev>) {
    let new = NewTop { leaves: names.iter().map(|name| disk(name)).collect(), ..NewTop::default() };
    let tree = VdevTree::create(&RealHost, vec![new], 4).unwrap();
    let top = tree.top(0).unwrap();
    (tree, top)
}

fn attach(tree: &VdevTree, top: &Arc<TopVdev>, old: u64, name: &str, kind: VdevKind) -> Arc<Leaf> {
    let (leaf, described) = tree.prepare_leaf(top, 1000 + old, disk(name));
    top.attach_leaf(old, &leaf, described, kind, 77).unwrap();
    leaf.note_missed(4, 30);
    leaf
}

/// All of a write went well but on `failed`.
fn settle(top: &Arc<TopVdev>, map: &IoMap, failed: &[u32]) -> bool {
    let answer = |at: Position| {
        let number = map.at(at).1.leaf.leaf;
        (at, if failed.contains(&number) { Err(crate::error!(Io, "broken")) } else { Ok(()) })
    };
    let done: Vec<_> = map.sides().map(|(at, ..)| answer(at)).collect();
    top.settle_write(map, &done)
}

#[test]
fn a_number_is_never_another_device() {
    let (tree, top) = top_of(&["a", "b"]);
    let guids: Vec<u64> = top.leaves().iter().map(|leaf| leaf.guid()).collect();
    let before = top.io_map(0, 512, 4).unwrap();
    let gone = top.detach_leaf(guids[0]).unwrap();
    assert_eq!((gone.number(), top.kind(), top.leaves().len()), (0, VdevKind::File, 1));
    let last = top.leaves()[0].clone();
    assert_eq!((last.number(), last.guid(), top.guid()), (1, top.config().guid, top.config().guid));
    let new = attach(&tree, &top, last.guid(), "c", VdevKind::Mirror);
    assert_eq!(new.number(), 2);
    // A write that began before: what failed has gone, or is still the same device.
    assert!(settle(&top, &before, &[0]));
    assert!(!last.is_behind());
    assert!(!settle(&top, &before, &[1]), "the only device that had it is gone");
    assert!(!last.is_behind(), "what nobody has is written again");
    assert_eq!(top.open_leaf(LeafId { vdev: 0, leaf: 0 }).err().map(|error| error.kind()), Some(ErrorKind::NoDevice));
    let device: Arc<dyn BlockDevice> = top.clone();
    write_range(&device, Class::AsyncWrite, 0, &[&[1; 512]], 4).unwrap();
    assert_eq!(top.io_map(0, 512, 4).unwrap().sides().map(|(.., side)| side.leaf.leaf).collect::<Vec<_>>(), [1, 2]);
}

#[test]
fn a_device_goes_only_if_the_others_have_everything() {
    let (tree, top) = top_of(&["a"]);
    let first = top.leaves()[0].clone();
    assert_eq!(top.detach_leaf(first.guid()).err().unwrap().kind(), ErrorKind::Unsupported);
    let new = attach(&tree, &top, first.guid(), "b", VdevKind::Replacing);
    assert_eq!((top.kind(), top.guid(), top.config().children.len()), (VdevKind::Replacing, 77, 2));
    assert_eq!(top.detach_leaf(first.guid()).err().unwrap().kind(), ErrorKind::Busy);
    // What was written before the new device came, and is judged afterwards.
    let map = top.io_map(0, 512, 4).unwrap();
    new.set_behind(false);
    assert!(settle(&top, &map, &[new.number()]));
    assert_eq!(top.detach_leaf(first.guid()).err().unwrap().kind(), ErrorKind::Busy, "a write failed on the new one");
    new.set_behind(false);
    top.detach_leaf(first.guid()).unwrap();
    assert_eq!((new.guid(), top.guid(), top.kind()), (77, 77, VdevKind::File));
    assert!(!settle(&top, &map, &[new.number()]));
}

#[test]
fn a_mark_from_before_does_not_count_what_came_or_went() {
    let (tree, top) = top_of(&["a", "b"]);
    let guids: Vec<u64> = top.leaves().iter().map(|leaf| leaf.guid()).collect();
    let mark = top.flush_mark();
    let new = attach(&tree, &top, guids[0], "c", VdevKind::Mirror);
    top.flush_since(&mark).unwrap();
    let failed = |number: u32| (number, Err(crate::error!(Io, "broken")));
    assert!(top.is_enough(&mark, vec![failed(0), (1, Ok(()))], "flushed").is_ok());
    assert!(top.is_enough(&mark, vec![failed(0), failed(1), (2, Ok(()))], "flushed").is_err(), "the new one had none of it");
    new.set_behind(false);
    top.detach_leaf(guids[1]).unwrap();
    assert!(top.is_enough(&mark, vec![failed(0), (1, Ok(()))], "flushed").is_err(), "the one that had it is gone");
}
