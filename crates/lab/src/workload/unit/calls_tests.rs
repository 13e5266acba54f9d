//! Every call of each test: what is opened and how, sizes, offsets, order, syncs, through a storage that writes them down.

use std::path::Path;
use std::sync::{Arc, Mutex};

use anyhow::Result;

use super::*;
use crate::storage::{Handle, Host, Storage};
use crate::target::{HostDirectory, Target};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Call {
    Open(Open),
    Read(u64),
    Write(u64),
    ReadAt(u64, u64),
    WriteAt(u64, u64),
    Rewind,
    Sync,
}

type Log = Arc<Mutex<Vec<Call>>>;

/// The host's files, and what was done to them.
struct Recorder {
    host: HostDirectory,
    log: Log,
}

struct Recorded(Box<dyn Handle>, Log);

impl Recorded {
    fn note(&self, call: Call) {
        self.1.lock().unwrap().push(call);
    }
}

impl Handle for Recorded {
    fn read(&self, buffer: &mut [u8]) -> Result<usize> {
        self.note(Call::Read(buffer.len() as u64));
        self.0.read(buffer)
    }

    fn write(&self, piece: &[u8]) -> Result<()> {
        self.note(Call::Write(piece.len() as u64));
        self.0.write(piece)
    }

    fn read_exact_at(&self, buffer: &mut [u8], offset: u64) -> Result<()> {
        self.note(Call::ReadAt(buffer.len() as u64, offset));
        self.0.read_exact_at(buffer, offset)
    }

    fn write_all_at(&self, piece: &[u8], offset: u64) -> Result<()> {
        self.note(Call::WriteAt(piece.len() as u64, offset));
        self.0.write_all_at(piece, offset)
    }

    fn rewind(&self) -> Result<()> {
        self.note(Call::Rewind);
        self.0.rewind()
    }

    fn sync(&self) -> Result<()> {
        self.note(Call::Sync);
        self.0.sync()
    }
}

impl Storage for Recorder {
    fn open(&self, path: &Path, how: Open) -> Result<Box<dyn Handle>> {
        self.log.lock().unwrap().push(Call::Open(how));
        Ok(Box::new(Recorded(Host.open(path, how)?, Arc::clone(&self.log))))
    }

    fn remove_file(&self, path: &Path) -> Result<()> {
        Host.remove_file(path)
    }

    fn make_directory(&self, path: &Path) -> Result<()> {
        Host.make_directory(path)
    }

    fn remove_directory(&self, path: &Path) -> Result<()> {
        Host.remove_directory(path)
    }
}

impl Target for Recorder {
    fn name(&self) -> &'static str {
        "recorder"
    }

    fn directory(&self) -> &Path {
        self.host.directory()
    }

    fn drop_caches(&self) -> Result<()> {
        Ok(())
    }

    fn description(&self) -> String {
        String::new()
    }

    fn storage(&self) -> &dyn Storage {
        self
    }
}

/// The calls of the timed part of test `id`, with a file of so many megabytes of which so many are moved.
fn calls(id: u8, file: u64, moved: u64) -> Vec<Call> {
    let target = Recorder { host: HostDirectory::new("recorder", &std::env::temp_dir()).unwrap(), log: Log::default() };
    let mut unit = Unit::new(TESTS.iter().find(|test| test.id == id).unwrap(), 1 << 30);
    unit.parameters.set("bytes", moved << 20).unwrap();
    if unit.parameters.iter().any(|parameter| parameter.name == "file") {
        unit.parameters.set("file", file << 20).unwrap();
    }
    let round = Round::new(&target, target.directory(), 0, 1);
    unit.prepare(&round).unwrap();
    target.log.lock().unwrap().clear();
    unit.run(&round).unwrap();
    target.log.lock().unwrap().clone()
}

fn repeated(call: Call, times: usize) -> Vec<Call> {
    vec![call; times]
}

#[test]
fn files_are_made_and_read_in_calls_of_the_published_size() {
    let one = [vec![Call::Open(Open::Create)], repeated(Call::Write(MIB), 3)].concat();
    assert_eq!(calls(1, 3, 3), one);
    assert_eq!(calls(2, 1, 1), [vec![Call::Open(Open::CreateSynchronous)], repeated(Call::Write(128 << 10), 8)].concat());
    for id in [4, 5] {
        assert_eq!(calls(id, 1, 1), [vec![Call::Open(Open::Existing)], repeated(Call::Read(32 << 10), 32)].concat());
    }
    assert_eq!(calls(6, 1, 1), [vec![Call::Open(Open::ExistingSynchronous)], repeated(Call::Write(32 << 10), 32)].concat());
    let pass = [vec![Call::Rewind], repeated(Call::Read(MIB), 2)].concat();
    assert_eq!(calls(8, 2, 2), [vec![Call::Open(Open::CreateAndRead)], repeated(Call::Write(MIB), 2), pass.clone(), pass].concat());
}

/// Sizes of the writes, and how many bytes lie before each sync.
fn writes_and_syncs(calls: &[Call]) -> (Vec<u64>, Vec<u64>) {
    let (mut sizes, mut syncs) = (Vec::new(), Vec::new());
    for call in calls {
        match call {
            Call::Write(bytes) => sizes.push(*bytes),
            Call::Sync => syncs.push(sizes.iter().sum::<u64>()),
            _ => {}
        }
    }
    (sizes, syncs)
}

#[test]
fn small_writes_are_spread_evenly_and_synced_every_ten_megabytes() {
    let (sizes, syncs) = writes_and_syncs(&calls(3, 25, 25));
    assert_eq!(sizes.iter().sum::<u64>(), 25 << 20);
    let (last, others) = sizes.split_last().unwrap();
    assert!(*last <= 8192 && others.iter().all(|bytes| (1024..=8192).contains(bytes)));
    // Uniform: the mean is in the middle, and each seventh of the range has its part.
    let mean = others.iter().sum::<u64>() as f64 / others.len() as f64;
    assert!((mean / 4608.0 - 1.0).abs() < 0.03, "{mean}");
    let mut parts = [0; 7];
    others.iter().for_each(|bytes| parts[((bytes - 1024) / 1024).min(6) as usize] += 1);
    assert!(parts.iter().all(|part| *part > others.len() / 14), "{parts:?}");
    let ten = 10 << 20;
    assert!(syncs.len() == 3 && (ten..ten + 8192).contains(&syncs[0]) && (ten..ten + 8192).contains(&(syncs[1] - syncs[0])));
    assert_eq!(syncs[2], 25 << 20);
    let seventh = calls(7, 2, 2);
    let (sizes, syncs) = writes_and_syncs(&seventh);
    assert_eq!((seventh[0], sizes.iter().sum::<u64>(), syncs), (Call::Open(Open::Existing), 2 << 20, Vec::new()));
    assert!(sizes.iter().rev().skip(1).all(|bytes| (1024..=8192).contains(bytes)));
}

fn offsets(calls: &[Call]) -> Vec<u64> {
    let offset = |call: &Call| match call {
        Call::ReadAt(_, offset) | Call::WriteAt(_, offset) => Some(*offset),
        _ => None,
    };
    calls.iter().filter_map(offset).collect()
}

/// All over the file, and hardly one of them twice.
fn assert_scattered(offsets: &[u64], file: u64, length: u64) {
    assert!(offsets.iter().all(|offset| offset + length <= file), "beyond the end");
    for eighth in 0..8 {
        let part = file / 8 * eighth..file / 8 * (eighth + 1);
        let count = offsets.iter().filter(|offset| part.contains(offset)).count();
        assert!(count * 16 > offsets.len(), "{count} of {} in eighth {eighth}", offsets.len());
    }
}

#[test]
fn random_8k_writes_are_aligned_and_one_sync_ends_them() {
    let all = calls(9, 8, 2);
    let writes = &all[1..all.len() - 1];
    assert_eq!((all[0], all[all.len() - 1], writes.len()), (Call::Open(Open::Existing), Call::Sync, 256));
    assert!(writes.iter().all(|call| matches!(call, Call::WriteAt(8192, offset) if offset % 8192 == 0)));
    assert_scattered(&offsets(writes), 8 << 20, 8192);
}

#[test]
fn three_reads_and_a_write_to_the_last_of_them() {
    let all = calls(12, 8, 4);
    assert_eq!(all[0], Call::Open(Open::Existing));
    assert_eq!(all.len(), 1 + 512);
    for four in all[1..].chunks(4) {
        let [Call::ReadAt(8192, _), Call::ReadAt(8192, _), Call::ReadAt(8192, last), Call::WriteAt(8192, written)] = four else {
            panic!("{four:?}")
        };
        assert_eq!((last, last % 8192), (written, 0));
    }
    assert_scattered(&offsets(&all), 8 << 20, 8192);
}

#[test]
fn short_pieces_lie_anywhere_one_thread_or_four_through_one_descriptor() {
    for (id, threads, open) in
        [(10, 1, Open::ExistingSynchronous), (11, 4, Open::ExistingSynchronous), (13, 4, Open::Existing), (14, 4, Open::Existing)]
    {
        let all = calls(id, 8, 1);
        assert_eq!((all[0], all.len()), (Call::Open(open), 1 + threads * 512), "test {id}");
        let is_write = id < 12;
        assert!(all[1..].iter().all(|call| match call {
            Call::WriteAt(2048, _) => is_write,
            Call::ReadAt(2048, _) => !is_write,
            _ => false,
        }));
        let offsets = offsets(&all);
        assert_scattered(&offsets, 8 << 20, 2048);
        let aligned = offsets.iter().filter(|offset| **offset % 512 == 0).count();
        assert!(aligned * 50 < offsets.len(), "test {id}: {aligned} of {} are aligned", offsets.len());
        let mut distinct = offsets.clone();
        distinct.sort_unstable();
        distinct.dedup();
        assert!(distinct.len() * 100 > offsets.len() * 99, "test {id}: threads repeat each other");
    }
}
