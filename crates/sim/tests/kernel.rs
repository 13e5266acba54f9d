//! Pools that the kernel module made just for this, with blocks that no snapshot holds: what we free in them is freed, on
//! removed vdevs, in deduplication tables, among clones. The real `zdb` judges after each step.
//!
//! The virtual machine takes some minutes, so these run when asked for: `cargo test -p sim --test kernel -- --ignored`.
//! `TARN_KERNEL_POOLS=DIR` keeps the pools in DIR, and takes them from there if they are there.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use engine::vdev::VdevKind;
use ondisk::feature::Feature;
use ondisk::indirect::OBSOLETE_MAP;
use ondisk::space_map::SpaceMapHeader;
use sha2::{Digest, Sha256};
use sim::places;
use sim::scenario::{Rig, contents};
use tarnfs::{CloneRange, Credentials, FileSystem, InodeNumber, WriteMode};

const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/kernel/make-pools.sh");

/// The directory with the pools; made once for all tests.
fn pools() -> Option<&'static Path> {
    static POOLS: OnceLock<Option<PathBuf>> = OnceLock::new();
    let make = || {
        let chosen = std::env::var_os("TARN_KERNEL_POOLS").map(PathBuf::from);
        let directory = chosen.unwrap_or_else(|| std::env::temp_dir().join(format!("tarn-kernel-pools-{}", std::process::id())));
        if directory.join("brtold.sums").exists() {
            return Some(directory);
        }
        let run = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/oracle/vm/run");
        if !run.exists() {
            places::skipped("pools of the kernel module: no virtual machine (../shared/oracle/vm/run)");
            return None;
        }
        let status = Command::new(run).args(["-t", "1200", "-o"]).arg(&directory).arg(SCRIPT).status();
        assert!(status.is_ok_and(|status| status.success()), "the virtual machine has made no pools");
        Some(directory)
    };
    POOLS.get_or_init(make).as_deref()
}

/// A pool, and the sums of its files by dataset and path.
struct Made {
    rig: Rig,
    name: &'static str,
    sums: BTreeMap<(String, String), String>,
}

fn open(name: &'static str) -> Option<Made> {
    let directory = pools()?;
    let listed = std::fs::read_dir(directory).expect("the pools");
    let mut images: Vec<PathBuf> = listed.map(|entry| entry.expect("an image").path()).collect();
    images.retain(|path| path.file_name().is_some_and(|file| file.to_string_lossy().starts_with(&format!("{name}-d"))));
    images.sort();
    let text = std::fs::read_to_string(directory.join(format!("{name}.sums"))).expect("its sums");
    let sums = text.lines().map(|line| {
        let (sum, path) = line.split_once("  ./").expect("a sum and a path");
        let (dataset, path) = path.split_once('/').expect("a file in a dataset");
        ((format!("{name}/{dataset}"), path.to_owned()), sum.to_owned())
    });
    let sums = sums.collect();
    let made = Made { rig: Rig::copy_of(name, &images), name, sums };
    made.compare();
    Some(made)
}

fn inode(fs: &FileSystem, path: &str) -> InodeNumber {
    path.split('/').fold(fs.root(), |at, name| {
        let found = fs.lookup(at, name.as_bytes()).unwrap_or_else(|error| panic!("{path}: {error}")).inode;
        fs.forget(found, 1);
        found
    })
}

fn read(fs: &FileSystem, path: &str) -> Vec<u8> {
    let file = inode(fs, path);
    let size = fs.getattr(file).expect("a file").size as usize;
    fs.read(file, 0, size).unwrap_or_else(|error| panic!("{path}: {error}"))
}

impl Made {
    fn fs(&self, dataset: &str) -> std::sync::Arc<FileSystem> {
        self.rig.pool().file_system(dataset).unwrap_or_else(|error| panic!("{dataset}: {error}"))
    }

    /// Every file is what it was.
    fn compare(&self) {
        for ((dataset, path), sum) in &self.sums {
            let found = hex::encode(Sha256::digest(read(&self.fs(dataset), path)));
            assert_eq!(found, *sum, "{dataset}/{path}");
        }
    }

    /// Removes the files whose path is chosen.
    fn remove(&mut self, chosen: impl Fn(&str) -> bool) {
        let gone: Vec<_> = self.sums.keys().filter(|(_, path)| chosen(path)).cloned().collect();
        for (dataset, path) in gone {
            let fs = self.fs(&dataset);
            let (parent, name) = path.rsplit_once('/').map_or((fs.root(), path.as_str()), |(parent, name)| (inode(&fs, parent), name));
            fs.unlink(parent, name.as_bytes()).unwrap_or_else(|error| panic!("{dataset}/{path}: {error}"));
            self.sums.remove(&(dataset, path));
        }
    }

    fn destroy_snapshot(&self, name: &str) {
        let refused = self.rig.pool().engine().dsl.snapshot_verbs().destroy_snapshots(vec![name.to_owned()], false).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert!(refused.is_empty(), "{name}: {refused:?}");
    }

    /// New contents in every dataset.
    fn write(&mut self, seed: u64) {
        let datasets: std::collections::BTreeSet<String> = self.sums.keys().map(|(dataset, _)| dataset.clone()).collect();
        for dataset in datasets {
            let fs = self.fs(&dataset);
            for number in 0..6 {
                let data = contents(seed + number, 1 + 50_000 * number as usize, number as u8 % 3);
                let name = format!("new{seed}-{number}");
                let file = fs.create(fs.root(), name.as_bytes(), 0o100_644, 0, &Credentials::root()).expect("a new file").inode;
                fs.write(file, WriteMode::At(0), &data, &Credentials::root()).expect("its contents");
                fs.forget(file, 1);
                self.sums.insert((dataset.clone(), name), hex::encode(Sha256::digest(&data)));
            }
        }
    }

    /// Shares blocks: the file at `from` of a dataset becomes the one at `to` of another.
    fn clone_file(&mut self, from: (&str, &str), to: (&str, &str)) {
        let (source_fs, target_fs) = (self.fs(from.0), self.fs(to.0));
        let source = inode(&source_fs, from.1);
        let length = source_fs.getattr(source).expect("the source").size;
        let target = target_fs.create(target_fs.root(), to.1.as_bytes(), 0o100_644, 0, &Credentials::root()).expect("a new file").inode;
        let range = CloneRange { source, from: 0, target, to: 0, length };
        let done = target_fs.clone_range(&source_fs, &range, &Credentials::root()).unwrap_or_else(|error| panic!("{from:?}: {error}"));
        assert_eq!(done, length, "{from:?} is shared whole");
        target_fs.forget(target, 1);
        let sum = self.sums[&(from.0.to_owned(), from.1.to_owned())].clone();
        assert_eq!(hex::encode(Sha256::digest(read(&target_fs, to.1))), sum, "{to:?} before it is on disk");
        self.sums.insert((to.0.to_owned(), to.1.to_owned()), sum);
    }

    fn judge(&mut self, what: &str) {
        let what = format!("{}: {what}", self.name);
        self.rig.sync();
        self.compare();
        self.rig.export();
        self.rig.check(&what);
        self.rig.zdb(&what, true);
        self.rig.import();
        self.compare();
        places::say(&format!("kernel: {what}: {} files, clean", self.sums.len()));
    }

    fn uses(&self, feature: Feature) -> u64 {
        self.rig.pool().engine().dsl.meta.features.count(feature).unwrap_or(0)
    }
}

#[test]
#[ignore = "a virtual machine"]
fn blocks_of_removed_vdevs_are_freed() {
    let Some(mut made) = open("removed") else { return };
    let obsolete = |made: &Made| {
        let engine = made.rig.pool().engine();
        let bytes = engine.vdevs.tops().into_iter().filter(|top| top.kind() == VdevKind::Indirect).map(|top| {
            let map = engine.dsl.meta.mos.zap_u64(top.zap(), OBSOLETE_MAP).expect("its ZAP");
            map.map_or(0, |map| SpaceMapHeader::decode(&engine.dsl.meta.mos.bonus(map).expect("a space map")).expect("its header").allocated)
        });
        bytes.collect::<Vec<_>>()
    };
    let before = obsolete(&made);
    assert_eq!(before.len(), 2);
    made.remove(|path| path.ends_with(['1', '4']));
    made.write(1);
    made.judge("some removed");
    let after = obsolete(&made);
    assert!(after.iter().zip(&before).all(|(after, before)| after > before), "obsolete bytes: {before:?}, then {after:?}");
    made.remove(|path| !path.starts_with("new"));
    made.judge("all removed");
}

/// Snapshots that know blocks by the addresses that they had before a vdev was removed, and what came after them by others: each goes, first, between others, last, of a clone, with a
/// bookmark; what nobody finds any more by the old ones is counted, as real zdb does.
#[test]
#[ignore = "a virtual machine"]
fn snapshots_of_moved_blocks_are_destroyed() {
    let Some(mut made) = open("remapped") else { return };
    let counts = made.uses(Feature::ObsoleteCounts);
    assert!(counts > 3, "{counts} uses: a map with its counts, and lists of moved blocks");
    for (round, snapshot) in ["a@s2", "b@s4", "c@s4", "a@s1", "b@s1", "a@s5", "c@s5", "b@s5", "a@s3", "b@s3"].into_iter().enumerate() {
        made.destroy_snapshot(&format!("remapped/{snapshot}"));
        if round % 3 == 0 {
            made.write(round as u64 * 10);
        }
        made.judge(&format!("without {snapshot}"));
    }
    made.sums.retain(|(dataset, _), _| dataset != "remapped/c");
    made.rig.destroy_file_system("remapped/c");
    made.judge("without the clone");
    made.destroy_snapshot("remapped/b@s2");
    made.remove(|path| path.starts_with('f'));
    made.judge("all removed");
}

fn deduplicated(name: &'static str) {
    let Some(mut made) = open(name) else { return };
    made.remove(|path| path.starts_with("third/") || path.starts_with("again/f3"));
    made.write(1);
    made.judge("some copies removed");
    made.remove(|path| path.starts_with("again/"));
    made.judge("all copies removed");
    made.clone_file((&format!("{name}/a"), "f4"), (&format!("{name}/c"), "cloned"));
    made.remove(|path| path == "f4" || path == "f9");
    made.judge("cloned, and the source removed");
    made.remove(|path| !path.starts_with("new"));
    made.judge("all removed");
    assert_eq!(made.uses(Feature::FastDedup), 0, "tables without entries are left");
}

#[test]
#[ignore = "a virtual machine"]
fn old_dedup_tables_count() {
    deduplicated("ddtold");
}

#[test]
#[ignore = "a virtual machine"]
fn new_dedup_tables_count() {
    deduplicated("ddtnew");
}

#[test]
#[ignore = "a virtual machine"]
fn dedup_logs_count() {
    deduplicated("ddtlog");
}

fn cloned(name: &'static str) {
    let Some(mut made) = open(name) else { return };
    assert!(made.uses(Feature::BlockCloning) > 0);
    let (a, b) = (format!("{name}/a"), format!("{name}/b"));
    made.remove(|path| path.starts_with("third/f1") || path == "f3" || path == "f14");
    made.judge("some clones and some sources removed");
    made.clone_file((&a, "f4"), (&a, "ours1"));
    made.clone_file((&a, "again/f14"), (&b, "ours2"));
    made.clone_file((&b, "f2"), (&b, "ours3"));
    made.clone_file((&b, "ours3"), (&b, "ours4"));
    made.remove(|path| path == "f4");
    made.judge("cloned by us");
    made.remove(|path| !path.starts_with("ours"));
    made.judge("only our clones left");
    made.remove(|_| true);
    made.judge("all removed");
    assert_eq!((made.uses(Feature::BlockCloning), made.uses(Feature::BlockCloningEndian)), (0, 0), "tables without entries are left");
}

/// A snapshot that OpenZFS destroyed while it had clones goes with the last of them.
#[test]
#[ignore = "a virtual machine"]
fn marked_snapshots_go_with_their_last_clone() {
    let Some(mut made) = open("deferred") else { return };
    let exists = |made: &Made, snapshot: &str| made.rig.pool().engine().dsl.open_dataset(&format!("deferred/{snapshot}")).is_ok();
    // Clone, the snapshot that goes with it, one that stays.
    for (round, (clone, goes, stays)) in [
        ("ofclone", "ca@1", "a@1"),
        ("ca", "a@1", "a@2"),
        ("cb", "b@2", "b@3"),
        ("later", "", "b@3"),
        ("cc", "c@3", "c@2"),
        ("cd", "", "d@2"),
        ("twin", "d@2", "d@3"),
        ("ce", "e@2", ""),
    ]
    .into_iter()
    .enumerate()
    {
        assert!([goes, stays].iter().all(|snapshot| snapshot.is_empty() || exists(&made, snapshot)), "before {clone} goes");
        let dataset = format!("deferred/{clone}");
        made.sums.retain(|(of, _), _| *of != dataset);
        made.rig.destroy_file_system(&dataset);
        made.judge(&format!("{clone} destroyed"));
        assert!(goes.is_empty() || !exists(&made, goes), "{goes} goes with {clone}");
        assert!(stays.is_empty() || exists(&made, stays), "{stays} stays when {clone} goes");
        made.write(round as u64 * 10);
    }
    made.remove(|path| !path.starts_with("new"));
    made.judge("the heads' files removed");
}

#[test]
#[ignore = "a virtual machine"]
fn clone_tables_count() {
    cloned("brtnew");
}

#[test]
#[ignore = "a virtual machine"]
fn old_clone_tables_count() {
    cloned("brtold");
}
