//! Pools that the real OpenZFS made, written by us: in each of their file systems files are made, changed, renamed and
//! removed, old ones and new ones. Afterwards our checker and the real `zdb` find nothing wrong, and what was not touched
//! is still what the manifest says.
//!
//! The two pools of the project are in every run; all others take long:
//! `cargo test -p sim --test golden_write -- --ignored` (`TARN_GOLDEN=name,name` runs only these).

use std::collections::BTreeSet;

use sim::golden::replayed::{AFTER_REPLAY, WITH_LOG, is_of_replay, now};
use sim::golden::{Compare, DatasetRecord, FileRecord, FileType, Golden, compare, elsewhere, findings, open_images, unpack};
use sim::places;
use sim::scenario::{Rig, contents};
use tarnfs::{CloneRange, Credentials, ErrorKind, FileSystem, InodeNumber, RenameMode, SetAttributes, WriteMode, XattrMode};

/// The directory of new files.
const OURS: &str = "tarn-wrote-this";

/// One file system that is being edited.
struct Editor<'a> {
    fs: &'a FileSystem,
    user: Credentials,
    /// Old paths that are no longer what the manifest says.
    touched: BTreeSet<Vec<u8>>,
}

impl Editor<'_> {
    fn inode(&self, path: &str) -> InodeNumber {
        path.split('/').filter(|name| !name.is_empty() && *name != ".").fold(self.fs.root(), |at, name| {
            let stat = self.fs.lookup(at, name.as_bytes()).unwrap_or_else(|error| panic!("{path}: {error}"));
            self.fs.forget(stat.inode, 1);
            stat.inode
        })
    }

    fn file(&self, directory: InodeNumber, name: &str, data: &[u8]) -> InodeNumber {
        let stat = self.fs.create(directory, name.as_bytes(), 0o100_644, 0, &self.user).unwrap_or_else(|error| panic!("{name}: {error}"));
        self.fs.write(stat.inode, WriteMode::At(0), data, &self.user).unwrap_or_else(|error| panic!("{name}: {error}"));
        self.fs.forget(stat.inode, 1);
        stat.inode
    }

    /// New files of all kinds, in a new directory.
    fn add(&mut self, seed: u64, count: u64) {
        self.touched.insert(".".into());
        let fs = self.fs;
        let stat = fs.mkdir(fs.root(), OURS.as_bytes(), 0o755, &self.user).unwrap_or_else(|error| panic!("mkdir: {error}"));
        fs.forget(stat.inode, 1);
        let ours = stat.inode;
        for number in 0..count {
            let length = [0, 10, 500, 5000, 60_000, 140_000][number as usize % 6];
            let inode = self.file(ours, &format!("f{number}"), &contents(seed + number, length, number as u8 % 3));
            if number % 4 == 0 {
                fs.setxattr(inode, b"user.tarn", &contents(number, 60 * number as usize, 0), XattrMode::Create).unwrap();
            }
            if number % 5 == 0 {
                let set = SetAttributes { uid: Some(1000 + number as u32), gid: Some(77), mode: Some(0o4711), ..SetAttributes::default() };
                fs.setattr(inode, &set, &self.user).unwrap();
            }
        }
        let large = self.file(ours, "large", &contents(seed, 20_000 * count as usize, 0));
        fs.truncate(large, 50 << 20, &self.user).unwrap();
        fs.write(large, WriteMode::At(40 << 20), b"far", &self.user).unwrap();
        fs.symlink(ours, b"link", &[b'l'; 200], &self.user).unwrap();
        let linked = fs.lookup(ours, b"f1").unwrap().inode;
        fs.link(linked, ours, b"hard").unwrap();
        let inner = fs.mkdir(ours, b"inner", 0o700, &self.user).unwrap().inode;
        fs.rename(ours, b"f2", inner, b"moved", RenameMode::NoReplace).unwrap();
        fs.rename(ours, b"f3", ours, b"f4", RenameMode::Replace).unwrap();
        fs.unlink(ours, b"f5").unwrap();
    }

    /// Old files are changed, renamed and removed. Some of them: those that have one name and are easy to find.
    fn change(&mut self, files: &[FileRecord]) {
        let plain = |file: &&FileRecord| file.kind == FileType::File && file.nlink == 1 && file.error.is_none() && file.xflags.is_none();
        let easy: Vec<&FileRecord> = files.iter().filter(plain).filter(|file| file.path.is_some()).collect();
        let step = (easy.len() / 24).max(1);
        for (number, file) in easy.iter().step_by(step).enumerate() {
            let path = file.path.as_deref().unwrap();
            let (parent, name) = path.rsplit_once('/').unwrap_or((".", path));
            self.touched.insert(path.into());
            self.touched.insert(parent.into());
            let (directory, inode) = (self.inode(parent), self.inode(path));
            let fs = self.fs;
            let what = format!("{path} ({number})");
            let done = match number % 8 {
                0 => fs.unlink(directory, name.as_bytes()),
                1 => fs.write(inode, WriteMode::Append, &contents(number as u64, 200_000, 0), &self.user).map(drop),
                2 => fs.truncate(inode, file.size / 2, &self.user),
                3 => fs.setxattr(inode, b"user.new", &[9; 900], XattrMode::Any),
                4 => fs.rename(directory, name.as_bytes(), fs.root(), format!("{OURS}/").trim_end_matches('/').replace("this", &format!("moved{number}")).as_bytes(), RenameMode::Replace),
                5 => fs.setattr(inode, &SetAttributes { uid: Some(4242), gid: Some(4243), ..SetAttributes::default() }, &self.user).map(drop),
                6 => fs.write(inode, WriteMode::At(file.size / 3), &contents(3, 1000, 1), &self.user).map(drop),
                _ => fs.punch_hole(inode, 0, file.size.max(2) / 2, &self.user),
            };
            done.unwrap_or_else(|error| panic!("{what}: {error}"));
        }
    }

    /// Every second old file is removed.
    fn empty(&mut self, files: &[FileRecord]) {
        let plain = |file: &&FileRecord| file.kind == FileType::File && file.nlink == 1;
        for path in files.iter().filter(plain).filter_map(|file| file.path.as_deref()).step_by(2) {
            let (parent, name) = path.rsplit_once('/').unwrap_or((".", path));
            self.touched.extend([path.into(), parent.into()]);
            self.fs.unlink(self.inode(parent), name.as_bytes()).unwrap_or_else(|error| panic!("{path}: {error}"));
        }
    }

    /// New files that share the blocks of old ones, where the pool can do that; written over in part, and their sources too.
    fn share(&mut self, files: &[FileRecord]) {
        self.touched.insert(".".into());
        let fs = self.fs;
        let plain = |file: &&FileRecord| file.kind == FileType::File && file.size < 1 << 30 && file.error.is_none() && file.path.is_some();
        for (number, file) in files.iter().filter(plain).take(40).enumerate() {
            let source = self.inode(file.path.as_deref().unwrap());
            let target = self.file(fs.root(), &format!("tarn-wrote-clone{number}"), b"");
            let range = CloneRange { source, from: 0, target, to: 0, length: file.size };
            let done = fs.clone_range(fs, &range, &self.user).unwrap_or_else(|error| panic!("{:?}: {error}", file.path));
            let read = fs.read(target, 0, done.min(1 << 20) as usize).unwrap();
            assert!(read == fs.read(source, 0, done.min(1 << 20) as usize).unwrap(), "{:?}: cloned", file.path);
            match number % 4 {
                0 => drop(fs.write(target, WriteMode::At(file.size / 2), &contents(number as u64, 3000, 0), &self.user).unwrap()),
                1 => fs.unlink(fs.root(), format!("tarn-wrote-clone{number}").as_bytes()).unwrap(),
                2 => fs.truncate(target, file.size / 3, &self.user).unwrap(),
                _ => {}
            }
        }
    }

    /// All that is in the file system is removed.
    fn remove_everything(&mut self, files: &[FileRecord]) {
        self.touched.extend(files.iter().map(|file| file.path_bytes().unwrap()));
        let mut names = Vec::new();
        self.fs.read_directory(self.fs.root(), 2, &mut |entry| { names.push(entry.name); true }).unwrap();
        for name in names {
            self.remove_all(self.fs.root(), &name);
        }
    }

    /// What is marked not to be removed stays, and the directories above it.
    fn remove_all(&self, directory: InodeNumber, name: &[u8]) {
        let stat = self.fs.lookup(directory, name).unwrap();
        let mut names = Vec::new();
        let done = if stat.kind() == tarnfs::FileKind::Directory {
            self.fs.read_directory(stat.inode, 2, &mut |entry| { names.push(entry.name); true }).unwrap();
            for name in names {
                self.remove_all(stat.inode, &name);
            }
            self.fs.rmdir(directory, name)
        } else {
            self.fs.unlink(directory, name)
        };
        assert!(done.as_ref().map_or_else(|error| matches!(error.kind(), ErrorKind::Denied | ErrorKind::NotEmpty), |()| true), "{}: {done:?}", name.escape_ascii());
        self.fs.forget(stat.inode, 1);
    }
}

/// File systems of the manifest that can be written.
fn writable(golden: &Golden) -> Vec<DatasetRecord> {
    let is = |dataset: &DatasetRecord, property: &str, word: &str| dataset.props.get(property).is_some_and(|value| value.value() == word);
    let is_closed = |dataset: &DatasetRecord| is(dataset, "readonly", "on") || !is(dataset, "encryption", "off");
    let datasets = golden.manifest.datasets.iter();
    datasets.filter(|dataset| dataset.kind == "filesystem" && dataset.mount_error.is_none() && !is_closed(dataset)).cloned().collect()
}

/// What was not touched is what the manifest says; of a pool whose log was replayed since `start`, what that may make of it.
fn unchanged(rig: &Rig, touched: &BTreeSet<(String, String)>, replayed_since: Option<u64>, what: &str) -> u64 {
    let golden = rig.golden_pool();
    let pool = open_images(&golden.images).unwrap_or_else(|error| panic!("{what}: {error:#}"));
    let how = if replayed_since.is_some() { AFTER_REPLAY } else { Compare::STRICT };
    let report = compare(pool.as_ref(), &golden.manifest, how).unwrap_or_else(|error| panic!("{what}: {error:#}"));
    let is_ours = |line: &str| {
        let Some((dataset, rest)) = line.split_once(": ") else { return false };
        let path = rest.split(": ").next().unwrap_or(rest);
        // The hidden directory is made by the mount, not by the library.
        let is_control = path == ".zfs" || path.starts_with(".zfs/");
        is_control || touched.contains(&(dataset.to_owned(), path.to_owned())) || path.contains("tarn-wrote-")
    };
    assert!(report.differences_found as usize == report.differences.len(), "{what}: {} differences", report.differences_found);
    let differences: Vec<&String> = report.differences.iter().filter(|line| !is_ours(line) && !replayed_since.is_some_and(|start| is_of_replay(line, start))).collect();
    let shown = differences.iter().take(20).fold(String::new(), |shown, line| format!("{shown}\n    {line}"));
    assert!(differences.is_empty(), "{what}: {} files that nobody touched are different:{shown}", differences.len());
    report.files_compared
}

fn write(name: &str) {
    let start = now();
    let Some(rig) = Rig::golden(name) else {
        places::skipped(&format!("golden pool {name}: not found"));
        return;
    };
    // Of a full pool one can only take away.
    let phases: &[&str] = if name == "full" { &["empty"] } else { &["add", "change", "remove"] };
    write_in_phases(rig, name, phases, WITH_LOG.contains(&name).then_some(start), true);
}

/// After each phase the pool is judged, by the real zdb too where it has nothing to say against the pool as it was.
fn write_in_phases(mut rig: Rig, name: &str, phases: &[&str], replayed_since: Option<u64>, zdb: bool) {
    let datasets = writable(rig.golden_pool());
    assert!(!datasets.is_empty(), "{name}: no file system can be written");
    let mut touched = BTreeSet::new();
    for &phase in phases {
        let what = format!("{name}: {phase}");
        for (number, dataset) in datasets.iter().enumerate() {
            let fs = rig.pool().file_system(&dataset.name).unwrap_or_else(|error| panic!("{what}: {}: {error}", dataset.name));
            let mut editor = Editor { fs: &fs, user: Credentials::root(), touched: BTreeSet::new() };
            match phase {
                "add" => editor.add(number as u64, (120 / datasets.len() as u64).max(8)),
                "empty" => editor.empty(dataset.files.as_deref().unwrap_or_default()),
                "change" => editor.change(dataset.files.as_deref().unwrap_or_default()),
                "clone" => editor.share(dataset.files.as_deref().unwrap_or_default()),
                "everything" => editor.remove_everything(dataset.files.as_deref().unwrap_or_default()),
                _ => editor.remove_all(fs.root(), OURS.as_bytes()),
            }
            // As the comparison shows paths.
            touched.extend(editor.touched.iter().map(|path| (dataset.name.clone(), path.escape_ascii().to_string())));
            fs.release_all();
        }
        rig.export();
        if zdb {
            rig.check(&what);
            rig.zdb(&what, phase == "change");
        }
        let compared = unchanged(&rig, &touched, replayed_since, &what);
        rig.import();
        places::say(&format!("golden write: {what}: {} file systems written, {compared} files compared, clean", datasets.len()));
    }
}

#[test]
fn pools_of_the_project_can_be_written() {
    write("xattr");
    write("acl");
    write("v1");
    write("noalloc");
}

/// Pools, and the feature for which one may not be written by us.
const OTHERS: &[(&str, Option<&str>)] = &[
    ("single-a9", None),
    ("single-a12", None),
    ("compress", None),
    ("checksum", None),
    ("recordsize", None),
    ("dnodesize", None),
    ("mirror2", None),
    ("mirror3", None),
    ("mirrors", None),
    ("stripe2", None),
    ("stripe4", None),
    ("nofeat", None),
    ("v28", None),
    ("upgraded", None),
    ("labels", None),
    ("uberblock", None),
    ("bigdir", None),
    ("holes", None),
    ("copies", None),
    ("names", None),
    ("quota", None),
    ("crash", None),
    ("cache", None),
    ("spare", None),
    ("resilver", None),
    ("rewrite", None),
    ("full", None),
    ("disktype", None),
    ("dedup-legacy", None),
    ("remove", None),
    ("encrypt", None),
    ("streams", None),
    ("gang-a9", None),
    ("gang-a12", None),
    ("snap", None),
    ("special", None),
    ("zvol", None),
    ("dedup-fast", None),
    ("bclone", None),
    ("checkpoint", None),
    ("zil", None),
    ("raidz1", None),
    ("raidz2", None),
    ("raidz3", None),
    ("expand", None),
    ("expand-part", None),
    ("draid2", None),
    ("slog", None),
];

/// A block that OpenZFS moved from a removed vdev has a new address in the file, and the old one in a snapshot. Shared under the new one,
/// zdb found a leak in the table of shared blocks: such blocks are copied.
#[test]
fn blocks_of_removed_vdevs_that_have_two_addresses_are_not_shared() {
    let Some(mut rig) = Rig::golden("remove") else { return places::skipped("golden pool remove: not found") };
    let datasets = writable(rig.golden_pool());
    let (mut shared, mut copied) = (0, 0);
    for dataset in &datasets {
        let fs = rig.pool().file_system(&dataset.name).unwrap();
        let user = Credentials::root();
        let mut targets = 0..;
        for file in dataset.files.as_deref().unwrap_or_default().iter().filter(|file| file.kind == FileType::File) {
            let Some(path) = &file.path else { continue };
            let source = path.split('/').fold(fs.root(), |directory, name| fs.lookup(directory, name.as_bytes()).unwrap().inode);
            let size = fs.getattr(source).unwrap().size;
            let name = format!("tarn-wrote-{}", targets.next().unwrap());
            let target = fs.create(fs.root(), name.as_bytes(), 0o100_644, 0, &user).unwrap().inode;
            let range = CloneRange { source, from: 0, target, to: 0, length: size };
            match fs.clone_range(&fs, &range, &user).unwrap() {
                0 => copied += u64::from(size > 0),
                _ => shared += 1,
            }
        }
        fs.release_all();
    }
    rig.export();
    rig.check("remove: cloned");
    rig.zdb("remove: cloned", true);
    places::say(&format!("golden write: remove: {shared} files shared, {copied} to be copied, clean"));
    assert!(shared > 0 && copied > 0, "{shared} shared, {copied} to be copied");
}

/// `zpool set allocating=off` on the second of three vdevs.
#[test]
fn nothing_new_goes_where_allocating_is_off() {
    let mut rig = Rig::golden("noalloc").expect("it is in the project");
    let used = |rig: &Rig| {
        let allocator = rig.pool().engine().context.io.allocator().clone();
        [0, 1, 2].map(|vdev| allocator.group(vdev).unwrap().space_use().allocated)
    };
    let before = used(&rig);
    let name = writable(rig.golden_pool())[0].name.clone();
    let fs = rig.pool().file_system(&name).unwrap();
    let mut editor = Editor { fs: &fs, user: Credentials::root(), touched: BTreeSet::new() };
    editor.add(1, 60);
    editor.file(fs.root(), "tarn-wrote-synced", &contents(2, 600_000, 0));
    fs.fsync(fs.root()).unwrap();
    fs.release_all();
    drop(fs);
    rig.export();
    rig.check("noalloc");
    rig.zdb("noalloc", true);
    rig.import();
    let after = used(&rig);
    assert!(after[0] > before[0] && after[2] > before[2] && after[1] <= before[1], "{before:?} became {after:?}");
}

/// The refusal names the feature.
fn refuse(name: &str, feature: &str) {
    let Ok(Some(golden)) = Golden::find(name) else { return places::skipped(&format!("golden pool {name}: not found")) };
    let options = tarnfs::ImportOptions { force: true, ..tarnfs::ImportOptions::default() };
    match tarnfs::Pool::import(&[golden.directory().to_owned()], &golden.manifest.pool.name, options) {
        Ok(_) => panic!("{name} is imported for writing, and uses {feature}"),
        Err(error) => assert!(error.to_string().contains(feature), "{name}: {error}"),
    }
    places::say(&format!("golden write: {name}: refused for {feature}"));
}

#[test]
#[ignore = "long"]
fn pools_of_openzfs_can_be_written() {
    let chosen = std::env::var("TARN_GOLDEN").ok();
    let chosen: Option<Vec<&str>> = chosen.as_deref().map(|names| names.split(',').collect());
    let mut wrong = Vec::new();
    for (name, refused) in OTHERS {
        if chosen.as_ref().is_some_and(|chosen| !chosen.contains(name)) {
            continue;
        }
        let run = || match refused {
            Some(feature) => refuse(name, feature),
            None => write(name),
        };
        if std::panic::catch_unwind(run).is_err() {
            places::say(&format!("golden write: {name}: WRONG"));
            wrong.push(*name);
        }
    }
    assert!(wrong.is_empty(), "wrong: {}", wrong.join(" "));
}

/// What somebody else's pools are to be, found without a table: the datasets that have a key are locked, and what a mount hides or
/// shows (`.zfs`, ACLs with `acltype=off`) is not the library's.
fn read_elsewhere(golden: &Golden, name: &str) {
    let pool = open_images(&golden.images).unwrap_or_else(|error| panic!("{name}: {error:#}"));
    let is_replayed = golden.manifest.import.starts_with("read-write") && golden.manifest.zdb == "crash" && name.contains("zil");
    let report = compare(pool.as_ref(), &golden.manifest, Compare::LISTED).unwrap_or_else(|error| panic!("{name}: {error:#}"));
    let has = |property: &str, value: &str| golden.manifest.datasets.iter().any(|dataset| dataset.props.get(property).is_some_and(|found| found.value() == value));
    let is_of_mount = |line: &str| {
        has("snapdir", "visible") && (line.contains(".zfs") || line.contains(": .: nlink")) || has("acltype", "off") && line.contains("system.posix_acl")
    };
    let wrong: Vec<&String> = report.differences.iter().filter(|line| !is_of_mount(line)).collect();
    let (files, bytes, locked, properties) = (report.files_compared, report.bytes_compared, report.locked, report.properties_compared);
    let verdict = if is_replayed { "before its replay" } else if wrong.is_empty() { "same" } else { "DIFFERENT" };
    places::say(&format!("elsewhere: {name}: {verdict}: {files} files, {bytes} bytes, {locked} locked, {properties} properties, {} differences, {} of the mount", wrong.len(), report.differences.len() - wrong.len()));
    let found = findings(&golden.images).unwrap_or_else(|error| panic!("{name}: {error:#}"));
    let shown: Vec<&String> = if is_replayed { Vec::new() } else { wrong.into_iter().take(40).collect() };
    assert!(found.is_empty() && shown.is_empty(), "{name}: {shown:#?} {} findings: {:#?}", found.len(), found.iter().take(20).collect::<Vec<_>>());
}

fn write_elsewhere(golden: Golden, name: &str) {
    let start = now();
    let options = tarnfs::ImportOptions { force: true, read_only: false, ..tarnfs::ImportOptions::default() };
    match tarnfs::Pool::import(&[golden.directory().to_owned()], &golden.manifest.pool.name, options) {
        Ok(pool) => pool.export().unwrap_or_else(|error| panic!("{name}: export: {error}")),
        Err(error) => return places::say(&format!("elsewhere: {name}: not written: {error}")),
    }
    let replayed_since = (golden.manifest.zdb == "crash").then_some(start);
    let is_whole = !matches!(golden.manifest.zdb.as_str(), "degraded" | "errors");
    let phases: &[&str] = match name {
        _ if golden.manifest.zdb == "errors" => return,
        _ if name.contains("full") => &["empty", "everything"],
        _ => &["add", "clone", "change", "everything"],
    };
    write_in_phases(Rig::of_golden(golden), name, phases, replayed_since, is_whole);
}

/// `TARN_GOLDEN_DIR=DIR`: all pools in DIR, as `GOLDEN_OUT=DIR ../shared/oracle/golden/make` puts them there (`TARN_GOLDEN=name,name`:
/// these), are read, checked and written.
#[test]
#[ignore = "needs TARN_GOLDEN_DIR"]
fn pools_elsewhere_can_be_read_and_written() {
    let Some(places) = elsewhere().unwrap() else { return places::skipped("pools elsewhere: TARN_GOLDEN_DIR is not set") };
    let mut wrong = Vec::new();
    for path in places {
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        let unpacked = || unpack(&path).unwrap_or_else(|error| panic!("{name}: {error:#}"));
        let read = std::panic::catch_unwind(|| read_elsewhere(&unpacked(), &name)).is_ok();
        let written = std::panic::catch_unwind(|| write_elsewhere(unpacked(), &name)).is_ok();
        if !read || !written {
            places::say(&format!("elsewhere: {name}: WRONG"));
            wrong.push(name);
        }
    }
    assert!(wrong.is_empty(), "wrong: {}", wrong.join(" "));
}
