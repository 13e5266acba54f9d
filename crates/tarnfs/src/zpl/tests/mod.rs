//! The POSIX layer on a disk in memory.

mod acl;
mod damaged;
mod direct;
mod halves;
mod memory;
mod model;
mod quota;
pub(super) mod rig;
mod spelling;

use engine::dmu::{ObjsetSettings, OpenTx};
use engine::error::ErrorKind;
use ondisk::sa::Attribute;
use ondisk::znode;

use super::*;
use rig::Rig;

fn root() -> Credentials {
    Credentials::root()
}

fn new() -> (Rig, FileSystem) {
    Rig::new(&NewFileSystem::default(), ObjsetSettings::dataset_default(true))
}

fn file(fs: &FileSystem, name: &str) -> Stat {
    fs.create(fs.root(), name.as_bytes(), 0o100_644, 0, &root()).unwrap()
}

fn names(fs: &FileSystem, directory: InodeNumber) -> Vec<String> {
    let mut names = Vec::new();
    fs.read_directory(directory, 0, &mut |entry| {
        names.push(String::from_utf8(entry.name).unwrap());
        true
    })
    .unwrap();
    names
}

#[test]
fn a_new_file_has_the_attributes_that_openzfs_gives() {
    let (_rig, fs) = new();
    let stat = file(&fs, "a");
    let dnode = fs.objset().hold(stat.inode).unwrap();
    // As zdb shows a file made by OpenZFS 2.4 with mode 0644: a bonus of 176 bytes, flags 840800000004.
    assert_eq!(dnode.bonus().len(), 176);
    assert_eq!(stat.flags, 0x8408_0000_0004);
    // Layout 2 is the first one, that of directories and files; layouts 0 and 1 are never written.
    assert_eq!(&dnode.bonus()[..8], &[0x5a, 0x50, 0x2f, 0, 2, 0x04, 24, 0]);
    assert_eq!((stat.links, stat.size, stat.mode), (1, 0, 0o100_644));
    let root = fs.getattr(fs.root()).unwrap();
    assert_eq!((root.links, root.size, root.flags), (2, 3, 0x8408_0000_0144));
    assert_eq!(file_owner(dnode.bonus_type(), &dnode.bonus()).unwrap().user, 0);
}

#[test]
fn contents_survive_a_reopen_and_blocks_grow() {
    let (rig, fs) = new();
    let inode = file(&fs, "a").inode;
    fs.write(inode, WriteMode::At(0), b"hello", &root()).unwrap();
    assert_eq!(fs.getattr(inode).unwrap().block_size, 512);
    fs.write(inode, WriteMode::At(3), &[7; 3000], &root()).unwrap();
    assert_eq!(fs.getattr(inode).unwrap().block_size, 3072);
    rig.sync(fs.objset());
    fs.write(inode, WriteMode::Append, &[8; 200_000], &root()).unwrap();
    assert_eq!(fs.getattr(inode).unwrap().block_size, 128 << 10);
    rig.sync(fs.objset());
    let again = rig.reopen();
    let stat = again.lookup(again.root(), b"a").unwrap();
    assert_eq!(stat.size, 203_003);
    let bytes = again.read(stat.inode, 0, 1 << 20).unwrap();
    assert_eq!(&bytes[..3], b"hel");
    assert!(bytes[3..3003].iter().all(|&byte| byte == 7));
    assert!(bytes[3003..].iter().all(|&byte| byte == 8));
    rig.check();
}

#[test]
fn a_removed_file_lives_as_long_as_it_is_open() {
    let (rig, fs) = new();
    let inode = file(&fs, "a").inode;
    fs.write(inode, WriteMode::At(0), &[1; 100_000], &root()).unwrap();
    rig.sync(fs.objset());
    fs.unlink(fs.root(), b"a").unwrap();
    rig.sync(fs.objset());
    assert_eq!(fs.read(inode, 99_999, 10).unwrap(), [1]);
    assert_eq!(fs.getattr(inode).unwrap().links, 0);
    // A crash now leaves it in the delete queue, which the next mount empties.
    let after_crash = rig.reopen();
    assert_eq!(after_crash.drain_delete_queue().unwrap(), 1);
    fs.forget(inode, 1);
    assert_eq!(fs.getattr(inode).unwrap_err().kind(), ErrorKind::NotFound);
    rig.sync(fs.objset());
    assert_eq!(rig.reopen().drain_delete_queue().unwrap(), 0);
    rig.check();
}

/// The hidden directory is gone, and the file still names it.
#[test]
fn a_file_whose_hidden_directory_was_removed_can_be_used() {
    let (rig, fs) = new();
    let inode = file(&fs, "a").inode;
    fs.setxattr(inode, b"user.large", &[7; 40_000], XattrMode::Any).unwrap();
    rig.sync(fs.objset());
    let hidden = fs.inode(inode).unwrap().maybe_word(Attribute::ExtendedAttributes).unwrap().unwrap();
    let tx = OpenTx::assign_freeing(&fs.membership).unwrap();
    fs.objset().free(&tx, hidden).unwrap();
    drop(tx);
    rig.sync(fs.objset());
    let fs = rig.reopen();
    assert!(fs.listxattr(inode).unwrap().is_empty());
    assert_eq!(fs.getxattr(inode, b"user.large").unwrap_err().kind(), ErrorKind::NoAttribute);
    fs.setxattr(inode, b"user.large", &[8; 40_000], XattrMode::Create).unwrap();
    assert_eq!(fs.getxattr(inode, b"user.large").unwrap(), [8; 40_000]);
    fs.unlink(fs.root(), b"a").unwrap();
    fs.forget(inode, u64::MAX);
}

/// Once each step of 128 MiB of it was freed in a transaction of its own: 2^36 of them.
#[test]
fn a_file_that_ends_at_the_end_of_numbers_is_cut_soon() {
    let (rig, fs) = new();
    let inode = file(&fs, "a").inode;
    let last = i64::MAX as u64;
    fs.write(inode, WriteMode::At(0), &[1; 300_000], &root()).unwrap();
    fs.write(inode, WriteMode::At(last - 10), &[2; 10], &root()).unwrap();
    fs.write(inode, WriteMode::At(1 << 61), &[3; 10], &root()).unwrap();
    rig.sync(fs.objset());
    fs.truncate(inode, 1 << 62, &root()).unwrap();
    rig.sync(fs.objset());
    assert_eq!(fs.read(inode, (1 << 61) + 9, 10).unwrap()[..2], [3, 0]);
    fs.truncate(inode, 200_000, &root()).unwrap();
    rig.sync(fs.objset());
    assert_eq!(fs.read(inode, 199_999, 10).unwrap(), [1]);
    fs.truncate(inode, last, &root()).unwrap();
    rig.sync(fs.objset());
    fs.unlink(fs.root(), b"a").unwrap();
    fs.forget(inode, u64::MAX);
    rig.sync(fs.objset());
    rig.check();
}

/// Zeros that are compressed are a hole on disk, but until they were there they were data: a program that looks for holes in what it has just written (`cp`,
/// OpenZFS's own test of mapped files) found none. Where nothing is compressed they stay data.
#[test]
fn zeros_that_are_not_on_disk_yet_are_the_holes_that_they_will_be() {
    const RECORD: u64 = 128 << 10;
    for (compression, is_hole) in [(15, true), (2, false)] {
        let settings = ObjsetSettings { compression, ..ObjsetSettings::dataset_default(true) };
        let (rig, fs) = Rig::new(&NewFileSystem::default(), settings);
        let inode = file(&fs, "a").inode;
        fs.write(inode, WriteMode::At(0), &vec![1; 4 * RECORD as usize], &root()).unwrap();
        rig.sync(fs.objset());
        // A whole record, and one in two writes.
        fs.write(inode, WriteMode::At(RECORD), &vec![0; RECORD as usize], &root()).unwrap();
        fs.write(inode, WriteMode::At(2 * RECORD), &vec![0; RECORD as usize / 2], &root()).unwrap();
        let found = || (fs.seek(inode, 0, Seek::Hole).unwrap(), fs.seek(inode, RECORD, Seek::Data).unwrap());
        assert_eq!(found(), if is_hole { (Some(RECORD), Some(2 * RECORD)) } else { (Some(4 * RECORD), Some(RECORD)) });
        fs.write(inode, WriteMode::At(2 * RECORD + RECORD / 2), &vec![0; RECORD as usize / 2], &root()).unwrap();
        for _ in 0..2 {
            assert_eq!(found(), if is_hole { (Some(RECORD), Some(3 * RECORD)) } else { (Some(4 * RECORD), Some(RECORD)) });
            rig.sync(fs.objset());
        }
    }
}

#[test]
fn holes_read_as_zeros_and_are_found() {
    let (rig, fs) = new();
    let inode = file(&fs, "a").inode;
    fs.write(inode, WriteMode::At(0), &[1; 512 << 10], &root()).unwrap();
    fs.punch_hole(inode, 100_000, 300_000, &root()).unwrap();
    fs.truncate(inode, 1 << 20, &root()).unwrap();
    for _ in 0..2 {
        assert_eq!(fs.seek(inode, 0, Seek::Hole).unwrap(), Some(128 << 10));
        assert_eq!(fs.seek(inode, 200_000, Seek::Data).unwrap(), Some(384 << 10));
        assert_eq!(fs.seek(inode, 400_000, Seek::Hole).unwrap(), Some(512 << 10));
        assert_eq!(fs.seek(inode, 600_000, Seek::Data).unwrap(), None);
        let bytes = fs.read(inode, 0, 2 << 20).unwrap();
        assert_eq!(bytes.len(), 1 << 20);
        assert!(bytes[100_000..400_000].iter().all(|&byte| byte == 0));
        assert!(bytes[..100_000].iter().chain(&bytes[400_000..512 << 10]).all(|&byte| byte == 1));
        rig.sync(fs.objset());
    }
    rig.check();
}

/// A hole behind which somebody writes at the same time, and makes the file longer: the file got its old size back, and what was written was lost.
#[test]
fn a_hole_does_not_make_a_file_shorter() {
    let (rig, fs) = new();
    let inode = file(&fs, "a").inode;
    fs.write(inode, WriteMode::At(0), &[1; 300 << 10], &root()).unwrap();
    let held = fs.inode(inode).unwrap();
    // The writer is in its transaction; a writer that comes later waits for room.
    let tx = OpenTx::assign(&fs.membership, 1 << 20).unwrap();
    rig.context.dirty.add(tx.txg() + 1, 1 << 40);
    std::thread::scope(|scope| {
        scope.spawn(|| fs.punch_hole(inode, 100 << 10, 200 << 10, &root()).unwrap());
        std::thread::sleep(std::time::Duration::from_millis(100));
        held.contents.dnode.write(&tx, 384 << 10, &[2; 10]).unwrap();
        held.edit(&tx).set(&[(Attribute::Size, &((384u64 << 10) + 10).to_le_bytes())]).unwrap();
        rig.context.dirty.clear(tx.txg() + 1);
    });
    drop((tx, held));
    rig.sync(fs.objset());
    let again = rig.reopen();
    assert_eq!(again.getattr(inode).unwrap().size, (384 << 10) + 10);
    assert_eq!(again.read(inode, 384 << 10, 100).unwrap(), [2; 10]);
    rig.check();
}

/// A file of several blocks is cut to nothing and gets one block of an odd size, while another writes far behind that and waits for both.
#[test]
fn a_block_of_an_odd_size_stays_the_only_one() {
    let (rig, fs) = new();
    let inode = file(&fs, "a").inode;
    fs.write(inode, WriteMode::At(0), &[1; 300 << 10], &root()).unwrap();
    let settings = fs.objset().settings();
    fs.objset().set_settings(ObjsetSettings { record_bytes: 1 << 20, ..settings });
    let held = fs.inode(inode).unwrap();
    let reader = held.contents.lock_to_read(0..1);
    let in_turn = || std::thread::sleep(std::time::Duration::from_millis(100));
    std::thread::scope(|scope| {
        scope.spawn(|| fs.truncate(inode, 0, &root()).unwrap());
        in_turn();
        scope.spawn(|| fs.truncate(inode, 200_001, &root()).unwrap());
        in_turn();
        scope.spawn(|| fs.write(inode, WriteMode::At(3 << 20), b"far", &root()).unwrap());
        in_turn();
        drop(reader);
    });
    assert!(held.contents.dnode.block_bytes().is_power_of_two(), "{} blocks of {} bytes", held.contents.dnode.max_block() + 1, held.contents.dnode.block_bytes());
    drop(held);
    rig.sync(fs.objset());
    let again = rig.reopen();
    assert_eq!(again.read(inode, (3 << 20) - 1, 10).unwrap(), b"\0far");
    rig.check();
}

/// `chattr +a`: what is there stays. The kernel does not know of the mark when it lets a hole be punched.
#[test]
fn no_hole_is_punched_in_what_may_only_grow() {
    let (_rig, fs) = new();
    for mark in [znode::FLAG_APPEND_ONLY, znode::FLAG_IMMUTABLE] {
        let inode = file(&fs, &format!("{mark}")).inode;
        fs.write(inode, WriteMode::At(0), &[1; 1000], &root()).unwrap();
        fs.setattr(inode, &SetAttributes { flags: Some((mark, 0)), ..SetAttributes::default() }, &root()).unwrap();
        assert_eq!(fs.punch_hole(inode, 0, 1000, &root()).unwrap_err().kind(), ErrorKind::Denied);
        assert_eq!(fs.read(inode, 0, 1000).unwrap(), [1; 1000]);
    }
}

#[test]
fn large_extended_attributes_go_to_the_spill_block_and_to_the_directory() {
    let (rig, fs) = new();
    let inode = file(&fs, "a").inode;
    let sizes = [("user.small", 10), ("security.selinux", 300), ("user.listed", 30_000), ("user.large", 50_000)];
    for (name, size) in sizes {
        fs.setxattr(inode, name.as_bytes(), &vec![size as u8; size], XattrMode::Create).unwrap();
        rig.sync(fs.objset());
    }
    assert_eq!(fs.setxattr(inode, b"user.small", b"", XattrMode::Create).unwrap_err().kind(), ErrorKind::Exists);
    let again = rig.reopen();
    let stat = again.lookup(again.root(), b"a").unwrap();
    assert_eq!(again.listxattr(stat.inode).unwrap().len(), 4);
    for (name, size) in sizes {
        assert_eq!(again.getxattr(stat.inode, name.as_bytes()).unwrap(), vec![size as u8; size], "{name}");
    }
    rig.check();
    for (name, _) in sizes {
        fs.removexattr(inode, name.as_bytes()).unwrap();
    }
    assert_eq!(fs.getxattr(inode, b"user.small").unwrap_err().kind(), ErrorKind::NoAttribute);
    fs.unlink(fs.root(), b"a").unwrap();
    fs.forget(inode, 1);
    rig.sync(fs.objset());
    rig.check();
}

#[test]
fn old_versions_are_written_in_their_own_form() {
    for version in 1..=4 {
        let (rig, fs) = Rig::new(&NewFileSystem { version, ..NewFileSystem::default() }, ObjsetSettings::dataset_default(true));
        let inode = file(&fs, "a").inode;
        assert_eq!(fs.objset().hold(inode).unwrap().bonus().len(), znode::ZNODE_SIZE);
        fs.symlink(fs.root(), b"short", b"target", &root()).unwrap();
        fs.symlink(fs.root(), b"long", &[b't'; 600], &root()).unwrap();
        fs.setattr(inode, &SetAttributes { mode: Some(0o600), uid: Some(5), ..SetAttributes::default() }, &root()).unwrap();
        fs.setxattr(inode, b"user.a", b"value", XattrMode::Any).unwrap();
        fs.mkdir(fs.root(), b"d", 0o755, &root()).unwrap();
        rig.sync(fs.objset());
        let again = rig.reopen();
        let stat = again.lookup(again.root(), b"a").unwrap();
        assert_eq!((stat.mode, stat.uid), (0o100_600, 5));
        assert_eq!(again.getxattr(stat.inode, b"user.a").unwrap(), b"value");
        for (name, target) in [("short", b"target".to_vec()), ("long", vec![b't'; 600])] {
            let link = again.lookup(again.root(), name.as_bytes()).unwrap();
            assert_eq!(again.readlink(link.inode).unwrap(), target);
        }
        rig.check();
    }
}

#[test]
fn directories_move_but_not_into_themselves() {
    let (_rig, fs) = new();
    let a = fs.mkdir(fs.root(), b"a", 0o755, &root()).unwrap().inode;
    let b = fs.mkdir(a, b"b", 0o755, &root()).unwrap().inode;
    assert_eq!(fs.rename(fs.root(), b"a", b, b"c", RenameMode::Replace).unwrap_err().kind(), ErrorKind::Invalid);
    assert_eq!(fs.rename(fs.root(), b"a", a, b"c", RenameMode::Replace).unwrap_err().kind(), ErrorKind::Invalid);
    fs.rename(a, b"b", fs.root(), b"b", RenameMode::NoReplace).unwrap();
    assert_eq!((fs.getattr(fs.root()).unwrap().links, fs.getattr(a).unwrap().links), (4, 2));
    assert_eq!(fs.getattr(b).unwrap().parent, fs.root());
    // One empty directory replaces the other; one with entries stays.
    let inside = fs.create(a, b"f", 0o100_644, 0, &root()).unwrap().inode;
    assert_eq!(fs.rename(fs.root(), b"b", fs.root(), b"a", RenameMode::Replace).unwrap_err().kind(), ErrorKind::NotEmpty);
    assert_eq!(fs.rmdir(fs.root(), b"a").unwrap_err().kind(), ErrorKind::NotEmpty);
    fs.rename(fs.root(), b"b", a, b"f", RenameMode::Exchange).unwrap();
    assert_eq!((fs.getattr(fs.root()).unwrap().links, fs.getattr(a).unwrap().links), (3, 3));
    assert_eq!((fs.getattr(inside).unwrap().parent, fs.getattr(b).unwrap().parent), (fs.root(), a));
    assert_eq!(names(&fs, fs.root()).len(), 4);
    assert_eq!(fs.rename(fs.root(), b"a", fs.root(), b"b", RenameMode::Replace).unwrap_err().kind(), ErrorKind::NotDirectory);
    assert_eq!(fs.rename(fs.root(), b"b", fs.root(), b"a", RenameMode::Replace).unwrap_err().kind(), ErrorKind::IsDirectory);
    fs.unlink(fs.root(), b"b").unwrap();
    fs.rmdir(a, b"f").unwrap();
    fs.rmdir(fs.root(), b"a").unwrap();
    assert_eq!((fs.getattr(fs.root()).unwrap().links, fs.getattr(fs.root()).unwrap().size), (2, 2));
}

#[test]
fn links_count() {
    let (rig, fs) = new();
    let inode = file(&fs, "a").inode;
    let directory = fs.mkdir(fs.root(), b"d", 0o755, &root()).unwrap().inode;
    assert_eq!(fs.link(inode, directory, b"b").unwrap().links, 2);
    assert_eq!(fs.link(directory, fs.root(), b"x").unwrap_err().kind(), ErrorKind::Denied);
    fs.unlink(fs.root(), b"a").unwrap();
    assert_eq!(fs.getattr(inode).unwrap().links, 1);
    let unnamed = fs.create_unnamed(fs.root(), 0o600, &root()).unwrap();
    assert_eq!(unnamed.links, 0);
    assert_eq!(fs.link(unnamed.inode, fs.root(), b"named").unwrap().links, 1);
    rig.sync(fs.objset());
    assert_eq!(rig.reopen().drain_delete_queue().unwrap(), 0);
}

#[test]
fn names_are_compared_as_the_dataset_says() {
    let new = NewFileSystem { case: 1, normalization: 0x10, utf8_only: true, ..NewFileSystem::default() };
    let (_rig, fs) = Rig::new(&new, ObjsetSettings::dataset_default(true));
    let inode = file(&fs, "Straße é").inode;
    assert_eq!(fs.lookup(fs.root(), "STRAßE e\u{301}".as_bytes()).unwrap().inode, inode);
    assert_eq!(fs.create(fs.root(), "straße é".as_bytes(), 0o100_644, 0, &root()).unwrap_err().kind(), ErrorKind::Exists);
    assert_eq!(fs.create(fs.root(), b"\xff", 0o100_644, 0, &root()).unwrap_err().kind(), ErrorKind::NotText);
    assert_eq!(fs.lookup(fs.root(), b"\xff").unwrap_err().kind(), ErrorKind::NotText);
    fs.rename(fs.root(), "straße é".as_bytes(), fs.root(), "STRASSE".as_bytes(), RenameMode::Replace).unwrap();
    fs.rename(fs.root(), b"strasse", fs.root(), b"Strasse", RenameMode::Replace).unwrap();
    assert_eq!(names(&fs, fs.root()), [".", "..", "Strasse"]);
    fs.unlink(fs.root(), b"sTRASSE").unwrap();
}

#[test]
fn ids_follow_the_directory_and_set_id_bits_go() {
    let (_rig, fs) = new();
    let user = Credentials { uid: 1000, gid: 1000, groups: vec![7], umask: 0 };
    let directory = fs.mkdir(fs.root(), b"d", 0o777, &root()).unwrap().inode;
    let set = SetAttributes { mode: Some(0o2777), gid: Some(50), ..SetAttributes::default() };
    fs.setattr(directory, &set, &root()).unwrap();
    let made = fs.create(directory, b"f", 0o102_755, 0, &user).unwrap();
    assert_eq!((made.uid, made.gid, made.mode), (1000, 50, 0o100_755));
    assert_eq!(fs.mkdir(directory, b"s", 0o755, &user).unwrap().mode, 0o042_755);
    let set = SetAttributes { mode: Some(0o6755), ..SetAttributes::default() };
    assert_eq!(fs.setattr(made.inode, &set, &root()).unwrap().mode, 0o106_755);
    fs.write(made.inode, WriteMode::At(0), b"x", &user).unwrap();
    assert_eq!(fs.getattr(made.inode).unwrap().mode, 0o100_755);
    assert_eq!(fs.getattr(made.inode).unwrap().flags & 0x104, 0x104);
    // Room for what is there already changes nothing else (xfstests generic/683).
    for keep_size in [true, false] {
        fs.setattr(made.inode, &set, &root()).unwrap();
        fs.allocate(made.inode, 0, 1, keep_size, &root()).unwrap();
        assert_eq!(fs.getattr(made.inode).unwrap().mode, 0o106_755);
        fs.allocate(made.inode, 0, 1, keep_size, &user).unwrap();
        assert_eq!(fs.getattr(made.inode).unwrap().mode, 0o100_755);
    }
}

/// Only those of regular files went, but pipes, sockets and devices can have set-id bits too.
#[test]
fn a_new_owner_takes_set_id_bits_from_all_but_directories() {
    let (_rig, fs) = new();
    let set = SetAttributes { mode: Some(0o6755), ..SetAttributes::default() };
    let given = SetAttributes { uid: Some(1000), ..SetAttributes::default() };
    for kind in [0o010_000, 0o020_000, 0o060_000, 0o100_000, 0o140_000] {
        let inode = fs.create(fs.root(), format!("{kind:o}").as_bytes(), kind | 0o755, 0x103, &root()).unwrap().inode;
        assert_eq!(fs.setattr(inode, &set, &root()).unwrap().mode, kind | 0o6755);
        assert_eq!(fs.setattr(inode, &given, &root()).unwrap().mode, kind | 0o755);
    }
    let directory = fs.mkdir(fs.root(), b"d", 0o755, &root()).unwrap().inode;
    fs.setattr(directory, &set, &root()).unwrap();
    assert_eq!(fs.setattr(directory, &given, &root()).unwrap().mode, 0o046_755);
}

#[test]
fn a_file_without_project_gets_one_in_its_fixed_place() {
    let (rig, fs) = Rig::new(&NewFileSystem { project_ids: false, ..NewFileSystem::default() }, ObjsetSettings::dataset_default(true));
    // The root was made without; a file made under the option has one from the start.
    assert_eq!(fs.getattr(fs.root()).unwrap().flags & znode::FLAG_PROJECT_ID, 0);
    let set = SetAttributes { project: Some(77), ..SetAttributes::default() };
    for inode in [fs.root(), file(&fs, "a").inode] {
        assert_eq!(fs.setattr(inode, &set, &root()).unwrap().project, 77);
        let dnode = fs.objset().hold(inode).unwrap();
        assert_eq!(file_owner(dnode.bonus_type(), &dnode.bonus()).unwrap().project, 77);
    }
    rig.sync(fs.objset());
    assert_eq!(rig.reopen().getattr(fs.root()).unwrap().project, 77);
}

#[test]
#[allow(clippy::disallowed_methods)] // this test is about threads
fn many_threads_at_once() {
    many_threads(new());
}

/// Two files got the number of one object, and shared contents, links and attributes from then on: while a maker of files read a block of objects, one that was
/// in memory only was written to it and given up, and seemed to be free. Once in thousands of runs on a busy machine; with threads that pause in 1 of 30.
#[test]
fn many_threads_at_once_in_little_memory() {
    #[cfg(debug_assertions)]
    let _pauses = parking_lot::counting::pause(200);
    for _ in 0..if cfg!(debug_assertions) { 60 } else { 1 } {
        let (rig, fs) = new();
        rig.crowd();
        many_threads((rig, fs));
    }
}

/// Tells a thread to stop when this is dropped, also by a panic, which else would wait for that thread.
struct Stops<'a>(&'a std::sync::atomic::AtomicBool);

impl Drop for Stops<'_> {
    fn drop(&mut self) {
        self.0.store(true, std::sync::atomic::Ordering::Relaxed);
    }
}

fn many_threads((rig, fs): (Rig, FileSystem)) {
    let stop = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..4)
            .map(|number| {
                let fs = &fs;
                scope.spawn(move || {
                    let own = fs.mkdir(fs.root(), format!("t{number}").as_bytes(), 0o755, &root()).unwrap().inode;
                    for step in 0..150u64 {
                        let name = format!("f{}", step % 17);
                        let shared = format!("shared{}", step % 5);
                        match fs.create(own, name.as_bytes(), 0o100_644, 0, &root()) {
                            Ok(stat) => {
                                fs.write(stat.inode, WriteMode::At(step * 1000), &[number; 5000], &root()).unwrap();
                                fs.forget(stat.inode, 1);
                            }
                            Err(error) => {
                                assert_eq!(error.kind(), ErrorKind::Exists, "{error}");
                                fs.unlink(own, name.as_bytes()).unwrap();
                            }
                        }
                        match fs.create(fs.root(), shared.as_bytes(), 0o100_644, 0, &root()) {
                            Ok(stat) => fs.forget(stat.inode, 1),
                            Err(_) => drop(fs.rename(fs.root(), shared.as_bytes(), own, b"moved", RenameMode::Replace)),
                        }
                        if let Ok(stat) = fs.lookup(fs.root(), shared.as_bytes()) {
                            drop(fs.link(stat.inode, own, format!("l{step}").as_bytes()).map(|stat| fs.forget(stat.inode, 1)));
                            drop(fs.setxattr(stat.inode, b"user.x", &[1; 200], XattrMode::Any));
                            fs.forget(stat.inode, 1);
                        }
                    }
                })
            })
            .collect();
        let stops = Stops(&stop);
        let (rig, objset, stop) = (&rig, fs.objset(), &stop);
        let syncer = scope.spawn(move || {
            while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                rig.sync(objset);
            }
        });
        for worker in workers {
            worker.join().unwrap();
        }
        drop(stops);
        syncer.join().unwrap();
    });
    rig.sync(fs.objset());
    rig.check();
    // What the directories say, and what the attributes say, is one and the same.
    let again = rig.reopen();
    assert_eq!(again.drain_delete_queue().unwrap(), 0);
    let mut links = std::collections::BTreeMap::new();
    let mut todo = vec![again.root()];
    while let Some(directory) = todo.pop() {
        let (mut entries, mut directories) = (0, 0);
        again
            .read_directory(directory, 2, &mut |entry| {
                entries += 1;
                if entry.kind == FileKind::Directory {
                    directories += 1;
                    todo.push(entry.inode);
                } else {
                    *links.entry(entry.inode).or_insert(0) += 1;
                }
                true
            })
            .unwrap();
        let stat = again.getattr(directory).unwrap();
        assert_eq!((stat.size, stat.links), (entries + 2, directories + 2));
    }
    for (inode, links) in links {
        assert_eq!(again.getattr(inode).unwrap().links, links);
    }
}

/// A thread that comes late to free a file must not free the one that has its number by now.
#[test]
fn a_file_is_freed_once() {
    let (rig, fs) = new();
    let old = file(&fs, "a").inode;
    fs.write(old, WriteMode::At(0), b"old", &root()).unwrap();
    rig.sync(fs.objset());
    fs.unlink(fs.root(), b"a").unwrap();
    let late = fs.load_inode(old).unwrap();
    fs.forget(old, 1);
    rig.sync(fs.objset());
    let new = fs.create_unnamed(fs.root(), 0o600, &root()).unwrap();
    assert_eq!(new.inode, old);
    fs.write(new.inode, WriteMode::At(0), b"new", &root()).unwrap();
    fs.free_unlinked(&late).unwrap();
    assert_eq!(fs.read(new.inode, 0, 10).unwrap(), b"new");
    rig.sync(fs.objset());
    assert_eq!(rig.reopen().left_behind().unwrap(), [new.inode]);
    assert_eq!(fs.read(new.inode, 0, 10).unwrap(), b"new");
    fs.forget(new.inode, 1);
    rig.sync(fs.objset());
    rig.check();
}

/// As Linux has it: what was read last when it was changed last is due for another access time.
#[test]
fn the_first_read_of_a_new_file_is_an_access() {
    let (_rig, fs) = new();
    let stat = file(&fs, "a");
    assert_eq!(stat.access_time, stat.change_time);
    fs.read(stat.inode, 0, 10).unwrap();
    let first = fs.getattr(stat.inode).unwrap().access_time;
    assert!(first > stat.change_time);
    fs.read(stat.inode, 0, 10).unwrap();
    assert_eq!(fs.getattr(stat.inode).unwrap().access_time, first);
}

/// `ln -sfn` makes a link under another name and renames it: not possible where files inherit a project, which links have none of.
#[test]
fn a_symbolic_link_is_renamed_in_its_directory() {
    let (_rig, fs) = new();
    let directory = fs.mkdir(fs.root(), b"d", 0o755, &root()).unwrap().inode;
    let mark = SetAttributes { project: Some(7), flags: Some((znode::FLAG_PROJECT_INHERIT, 0)), ..SetAttributes::default() };
    fs.setattr(directory, &mark, &root()).unwrap();
    fs.symlink(directory, b"old", b"target", &root()).unwrap();
    fs.symlink(directory, b"new", b"other", &root()).unwrap();
    fs.rename(directory, b"new", directory, b"old", RenameMode::Replace).unwrap();
    fs.symlink(directory, b"new", b"target", &root()).unwrap();
    fs.rename(directory, b"new", directory, b"old", RenameMode::Exchange).unwrap();
    assert_eq!(fs.readlink(fs.lookup(directory, b"new").unwrap().inode).unwrap(), b"other");
}

/// OpenZFS cannot look such a name up, nor remove it.
#[test]
fn a_name_that_cannot_be_normalised_is_refused() {
    for (case, normalization) in [(1, 0), (2, 0), (0, 0x10)] {
        let (_rig, fs) = Rig::new(&NewFileSystem { case, normalization, ..NewFileSystem::default() }, ObjsetSettings::dataset_default(true));
        assert_eq!(fs.create(fs.root(), b"\xff", 0o100_644, 0, &root()).unwrap_err().kind(), ErrorKind::NotSupported);
    }
    let (_rig, fs) = new();
    fs.create(fs.root(), b"\xff", 0o100_644, 0, &root()).unwrap();
}

/// In a file system of an older ZFS some attributes are in no registry. One that an old file got had a number there that nobody knew.
#[test]
fn an_attribute_that_an_old_file_gets_is_registered() {
    let (rig, fs) = new();
    let inode = file(&fs, "a").inode;
    let find = |fs: &FileSystem| {
        let open = |object| engine::zap::Zap::open(fs.objset(), object).unwrap();
        let tables = open(open(znode::MASTER_NODE).get_u64(znode::SA_ATTRS_NAME).unwrap());
        open(tables.get_u64(ondisk::sa::REGISTRY_NAME).unwrap())
    };
    let name = ondisk::sa::ATTRIBUTES[Attribute::ExtendedAttributeList as usize].name;
    let tx = OpenTx::assign(&fs.membership, 1 << 20).unwrap();
    find(&fs).remove(&tx, name).unwrap();
    drop(tx);
    rig.sync(fs.objset());
    let fs = rig.reopen();
    fs.setxattr(inode, b"user.a", b"value", XattrMode::Any).unwrap();
    assert!(find(&fs).contains(name).unwrap());
}

/// A crash while a value is moved from the hidden directory to the list, or back, leaves it in both.
#[test]
fn an_attribute_that_is_removed_is_gone_from_both_places() {
    let (_rig, fs) = new();
    let inode = file(&fs, "a").inode;
    fs.setxattr(inode, b"user.a", b"new", XattrMode::Any).unwrap();
    fs.write_xattr_file(&fs.inode(inode).unwrap(), b"user.a", b"old").unwrap();
    assert_eq!(fs.getxattr(inode, b"user.a").unwrap(), b"new");
    fs.removexattr(inode, b"user.a").unwrap();
    assert_eq!(fs.getxattr(inode, b"user.a").unwrap_err().kind(), ErrorKind::NoAttribute);
}

/// A new value of an attribute in a file is there whole or not at all: there were two transactions, and no value in between.
#[test]
fn an_attribute_in_a_file_is_replaced_at_once() {
    let (rig, fs) = new();
    fs.set_options(MountOptions { xattr_in_attributes: false, ..fs.options() });
    let inode = file(&fs, "a").inode;
    fs.setxattr(inode, b"user.a", &[1; 60_000], XattrMode::Any).unwrap();
    rig.sync(fs.objset());
    let stop = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for number in 0..400 {
                fs.setxattr(inode, b"user.a", &vec![number as u8; 1 + number * 100], XattrMode::Any).unwrap();
            }
            stop.store(true, std::sync::atomic::Ordering::Relaxed);
        });
        while !stop.load(std::sync::atomic::Ordering::Relaxed) {
            rig.sync(fs.objset());
            let value = rig.reopen().getxattr(inode, b"user.a").unwrap();
            assert!(!value.is_empty() && value.iter().all(|byte| *byte == value[0]), "{} bytes", value.len());
        }
    });
    rig.sync(fs.objset());
    assert_eq!(rig.reopen().getxattr(inode, b"user.a").unwrap().len(), 39_901);
    rig.check();
}

/// A damaged pool can have a file whose dnode has three block pointers: attributes that had to be laid out anew ended the program.
#[test]
fn a_dnode_without_room_for_attributes_is_damage() {
    let (_rig, fs) = new();
    let sample = file(&fs, "a").inode;
    let bonus = fs.objset().hold(sample).unwrap().bonus();
    let words = [Attribute::Mode, Attribute::Size, Attribute::Generation, Attribute::Uid, Attribute::Gid, Attribute::Parent, Attribute::Flags];
    let tx = OpenTx::assign(&fs.membership, 1 << 20).unwrap();
    let numbers: Vec<u16> = words.iter().map(|word| fs.files.tables().number(*word)).collect();
    let layout = fs.files.tables().layout_number(fs.objset(), &tx, &numbers).unwrap();
    let dnode = fs.objset().allocate(&tx, &engine::dmu::DnodeSpec::new(ondisk::object_type::ObjectType::PLAIN_FILE_CONTENTS, 512)).unwrap();
    dnode.set_bonus_type(&tx, ondisk::object_type::ObjectType::SA);
    let mut bytes = bonus[..64].to_vec();
    ondisk::sa::write_header(&mut bytes, layout, &[]);
    dnode.set_bonus(&tx, bytes);
    let inode = fs.load_inode(dnode.object()).unwrap();
    assert_eq!(inode.word(Attribute::Mode).unwrap(), 0o100_644);
    let error = inode.edit(&tx).set(&[(Attribute::ChangeTime, &[0; 16])]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corrupt);
}

/// Of a large file the end was freed first, in groups of its own, and its size changed at last: a user that lost power between, or could not read
/// some indirect block, had a file of the old size with zeros where data had been.
#[test]
fn a_file_that_is_cut_in_steps_is_never_longer_than_its_contents() {
    let (rig, fs) = Rig::new(&NewFileSystem::default(), ObjsetSettings { record_bytes: 512, ..ObjsetSettings::dataset_default(true) });
    let inode = file(&fs, "f").inode;
    // More pointers, and checksums that differ more, than the smallest cache holds when they are compressed.
    let data: Vec<u8> = (0..72 << 20).map(|at: u32| ((at / 512 + 1).wrapping_mul(0x9e37_79b1) >> (at % 4 * 8)) as u8 | 1).collect();
    for (number, piece) in data.chunks(1 << 20).enumerate() {
        fs.write(inode, WriteMode::At((number as u64) << 20), piece, &root()).unwrap();
        rig.sync(fs.objset());
    }
    drop(fs);
    let (mut nth, mut between) = (1, 0);
    loop {
        let fs = rig.reopen();
        rig.context.cache.set_limit(0);
        fs.getattr(inode).unwrap();
        rig.disk.faults.fail_reads_from(nth);
        let result = fs.truncate(inode, 100, &root());
        rig.disk.faults.break_reads(false);
        rig.context.cache.set_limit(4 << 20);
        nth += 1 + nth / 2;
        if result.is_ok() {
            break;
        }
        rig.sync(fs.objset());
        drop(fs);
        let fs = rig.reopen();
        let size = fs.getattr(inode).unwrap().size;
        between += u32::from(size < data.len() as u64);
        assert_eq!(fs.seek(inode, 0, Seek::Hole).unwrap(), Some(size), "a hole where data were");
        let end = size.saturating_sub(5000);
        assert!(fs.read(inode, end, data.len()).unwrap() == data[end as usize..size as usize], "{size} bytes, and not those that were there");
    }
    assert!(between > 0, "no error came between two steps");
}

/// A file's attributes in files of their own count towards the quotas of its owner, also after it was given away.
#[test]
fn extended_attributes_in_files_follow_their_file() {
    let (rig, fs) = new();
    fs.set_options(MountOptions { xattr_in_attributes: false, ..fs.options() });
    let inode = file(&fs, "f").inode;
    for name in ["user.a", "user.b"] {
        fs.setxattr(inode, name.as_bytes(), &[7; 3000], XattrMode::Any).unwrap();
    }
    fs.setattr(inode, &SetAttributes { uid: Some(1000), gid: Some(1001), project: Some(9), ..SetAttributes::default() }, &root()).unwrap();
    rig.sync(fs.objset());
    drop(fs);
    let fs = rig.reopen();
    let of_file = fs.inode(inode).unwrap();
    let directory = fs.xattr_directory(&of_file).unwrap().unwrap();
    let objects: Vec<InodeNumber> = directory.directory_zap().unwrap().entries().unwrap().iter().map(|entry| znode::entry_object(entry.value.first())).collect();
    assert_eq!(objects.len(), 2);
    for object in [directory.object].into_iter().chain(objects) {
        let stat = fs.inode(object).unwrap().stat().unwrap();
        assert_eq!((stat.uid, stat.gid, stat.project), (1000, 1001, 9), "object {object}");
    }
    rig.check();
}

/// They had no project, so that in a directory that passes its own on they could be linked nowhere, and moved to none of its directories.
#[test]
fn links_and_devices_inherit_the_project_too() {
    let (rig, fs) = new();
    let directory = fs.mkdir(fs.root(), b"d", 0o755, &root()).unwrap().inode;
    let mark = SetAttributes { project: Some(7), flags: Some((znode::FLAG_PROJECT_INHERIT, 0)), ..SetAttributes::default() };
    fs.setattr(directory, &mark, &root()).unwrap();
    let below = fs.mkdir(directory, b"below", 0o755, &root()).unwrap().inode;
    fs.symlink(directory, b"link", b"a target", &root()).unwrap();
    fs.create(directory, b"device", 0o020_600, 259, &root()).unwrap();
    fs.create(directory, b"pipe", 0o010_600, 0, &root()).unwrap();
    rig.sync(fs.objset());
    drop(fs);
    let fs = rig.reopen();
    for name in [&b"link"[..], b"device", b"pipe"] {
        let stat = fs.lookup(directory, name).unwrap();
        // As in OpenZFS: the project, but not the mark.
        assert_eq!((stat.project, stat.flags & znode::FLAG_PROJECT_INHERIT), (7, 0));
        fs.rename(directory, name, below, name, RenameMode::Replace).unwrap();
    }
    let link = fs.lookup(below, b"link").unwrap().inode;
    assert_eq!(fs.readlink(link).unwrap(), b"a target");
    assert_eq!(fs.lookup(below, b"device").unwrap().device, 259);
    rig.sync(fs.objset());
    rig.check();
}

/// A pool may come from somebody who wants `tarn fs cp` to write elsewhere: a name is no path.
#[test]
fn a_name_that_leads_out_of_its_directory_is_damage() {
    for name in [&b"a/../../etc/passwd"[..], b"..", b"."] {
        let (_rig, fs) = new();
        let inode = file(&fs, "a").inode;
        let root = fs.inode(fs.root()).unwrap();
        let tx = OpenTx::assign(&fs.membership, 1 << 20).unwrap();
        root.directory_zap().unwrap().add(&tx, name, engine::zap::Integers::U64(&[fs.entries().entry_value(inode, 0o100_644)])).unwrap();
        drop(tx);
        let mut names = Vec::new();
        let listed = fs.read_directory(fs.root(), 0, &mut |entry| {
            names.push(entry.name);
            true
        });
        assert_eq!(listed.unwrap_err().kind(), ErrorKind::Corrupt, "{names:?}");
    }
}

/// A backup program asks for it with `O_NOATIME`.
#[test]
fn a_read_can_go_unnoticed() {
    let (_rig, fs) = new();
    let before = file(&fs, "a");
    fs.write(before.inode, WriteMode::At(0), b"contents", &root()).unwrap();
    let mut buffer = [0; 8];
    assert_eq!(fs.read_as(before.inode, 0, &mut buffer, ReadManner { unnoticed: true, ..ReadManner::default() }).unwrap(), 8);
    assert_eq!((&buffer, fs.getattr(before.inode).unwrap().access_time), (b"contents", before.access_time));
    fs.read_into(before.inode, 0, &mut buffer).unwrap();
    assert!(fs.getattr(before.inode).unwrap().access_time > before.access_time);
}
