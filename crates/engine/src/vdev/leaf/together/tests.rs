//! Neighbours that wait while another I/O is under way.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::{Duration, Instant};

use disk::{Disk, MemDisk, Request, Watch, WatchedDisk};
use parking_lot::{Condvar, Mutex};

use super::super::queue::Class;
use super::super::{Leaf, Reason, VdevState};
use crate::tunables::{Parameter, Tunables};
use ondisk::label::START_BYTES;

const BLOCK: usize = 8192;

/// Keeps the first I/O until it is let go, and notes where the others are and how long.
struct Held {
    noted: Mutex<Vec<(u64, usize)>>,
    is_open: Mutex<bool>,
    opened: Condvar,
    /// I/Os of more than a block fail.
    refuses_long: bool,
}

impl Held {
    fn note(&self, offset: u64, length: usize) -> std::io::Result<()> {
        self.noted.lock().push((offset - START_BYTES, length));
        let mut is_open = self.is_open.lock();
        while !*is_open {
            self.opened.wait(&mut is_open);
        }
        if self.refuses_long && length > BLOCK { Err(std::io::Error::other("a bad sector")) } else { Ok(()) }
    }
}

impl Watch for Held {
    fn before(&self, request: Request) -> std::io::Result<()> {
        match request {
            Request::Read(range) | Request::Write(range) => self.note(range.start, (range.end - range.start) as usize),
            Request::Flush | Request::Discard(_) => Ok(()),
        }
    }
}

/// One I/O is under way, and those of the given blocks wait: what the device is then asked for, and the leaf.
#[allow(clippy::disallowed_methods)] // this test is about threads
fn beside_one(class: Class, blocks: &[u64], refuses_long: bool) -> (Vec<(u64, usize)>, Leaf) {
    let memory = Arc::new(MemDisk::new("d", 64 << 20));
    let held = Held { noted: Mutex::default(), is_open: Mutex::new(false), opened: Condvar::new(), refuses_long };
    let disk = Arc::new(WatchedDisk::new(memory.clone(), held));
    let held = &disk.watch;
    for block in 0..64_u64 {
        memory.write_at(&[block as u8; BLOCK], START_BYTES + block * BLOCK as u64).unwrap();
    }
    let leaf = Leaf::new(0, 1, "d".into(), Some(disk.clone()), VdevState::Online, Reason::None, Arc::new(AtomicU64::new(4)));
    let limits = Tunables::default();
    limits.parameters.set(Parameter::AsyncReadMax, "1").unwrap();
    limits.parameters.set(Parameter::AsyncWriteMax, "1").unwrap();
    leaf.set_limits(&limits);
    let one = |block: u64| {
        let mut buf = [block as u8 + 100; BLOCK];
        match class {
            Class::AsyncWrite => leaf.write(class, block * BLOCK as u64, &[&buf[..1000], &buf[1000..]]).unwrap(),
            _ => leaf.read(class, block * BLOCK as u64, &mut buf).unwrap(),
        }
        assert_eq!(buf, [if class == Class::AsyncWrite { block as u8 + 100 } else { block as u8 }; BLOCK], "block {block}");
    };
    let until = |is_so: &dyn Fn() -> bool| {
        let begun = Instant::now();
        while !is_so() {
            assert!(begun.elapsed() < Duration::from_secs(60), "it does not come so far");
            std::thread::sleep(Duration::from_millis(1));
        }
    };
    std::thread::scope(|scope| {
        scope.spawn(|| one(63));
        until(&|| held.noted.lock().len() == 1);
        let one = &one;
        for block in blocks {
            scope.spawn(move || one(*block));
        }
        until(&|| leaf.waiting() == blocks.len());
        *held.is_open.lock() = true;
        held.opened.notify_all();
    });
    let noted = held.noted.lock()[1..].to_vec();
    for block in blocks.iter().filter(|_| class == Class::AsyncWrite) {
        let mut back = [0; BLOCK];
        memory.read_at(&mut back, START_BYTES + block * BLOCK as u64).unwrap();
        assert_eq!(back, [*block as u8 + 100; BLOCK]);
    }
    (noted, leaf)
}

fn place(first: u64, blocks: usize) -> (u64, usize) {
    (first * BLOCK as u64, blocks * BLOCK)
}

#[test]
fn reads_that_wait_are_one_and_small_gaps_are_read_too() {
    let (noted, leaf) = beside_one(Class::AsyncRead, &[3, 1, 6, 2, 30], false);
    assert_eq!(noted.iter().copied().collect::<HashSet<_>>(), HashSet::from([place(1, 6), place(30, 1)]));
    assert_eq!(leaf.stats.reads.load(std::sync::atomic::Ordering::Relaxed), 3);
    assert_eq!(leaf.waiting(), 0);
}

#[test]
fn writes_that_wait_are_one_without_gaps() {
    let (noted, _) = beside_one(Class::AsyncWrite, &[3, 1, 6, 2, 7], false);
    assert_eq!(noted.iter().copied().collect::<HashSet<_>>(), HashSet::from([place(1, 3), place(6, 2)]));
}

/// One bad sector is not the fault of its neighbours.
#[test]
fn each_is_made_alone_where_they_fail_together() {
    for class in [Class::AsyncRead, Class::AsyncWrite] {
        let (noted, leaf) = beside_one(class, &[3, 1, 2], true);
        let mut alone: Vec<_> = noted.iter().filter(|(_, length)| *length == BLOCK).collect();
        alone.sort_unstable();
        assert_eq!(alone, [&place(1, 1), &place(2, 1), &place(3, 1)]);
        assert_eq!(noted.len(), 4);
        assert_eq!(leaf.state(), VdevState::Online, "{class:?}");
    }
}
