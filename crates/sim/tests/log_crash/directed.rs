//! Single stories of what an intent log must bring back.

use std::ops::ControlFlow;
use std::sync::Arc;

use engine::pool::Pool;
use engine::zil::{Extent, Replay, Zil, walk};
use tarnfs::zpl::{FileReplay, FileSystem};
use tarnfs::{CloneRange, Credentials, RenameMode, SetAttributes, WriteMode};

use crate::disk::CutDisk;
use crate::{DISK_BYTES, check, create, create_on, file_system, open, open_all, replay, zdb};

/// Work on a new pool, then a power cut at once, and what is there when the log has been replayed.
fn story(what: &str, work: impl FnOnce(&Arc<Pool>, &FileSystem), judge: impl FnOnce(&FileSystem)) {
    let disk = CutDisk::new(vec![0; DISK_BYTES]);
    let pool = create(&disk);
    let fs = file_system(&pool);
    // The commit that begins a log waits for the group in which it begins.
    let first = make(&fs, "first");
    fs.fsync(first).unwrap();
    work(&pool, &fs);
    let cut = disk.cut(0);
    pool.abandon();
    let disk = CutDisk::new(cut.image);
    let pool = open(&disk, false);
    // The claim reaches the disk, and the power goes once more.
    pool.sync_all().unwrap();
    let image = disk.cut(0).image;
    pool.abandon();
    let disk = CutDisk::new(image);
    let pool = open(&disk, true);
    check(&pool, &format!("{what}: claimed"));
    pool.abandon();
    let pool = open(&disk, false);
    let fs = file_system(&pool);
    fs.drain_delete_queue().unwrap();
    let replayed = replay(&pool, &fs, what);
    assert!(replayed.records > 0, "{what}: nothing was replayed");
    judge(&fs);
    fs.release_all();
    drop(fs);
    pool.sync_all().unwrap();
    check(&pool, &format!("{what}: replayed"));
    pool.export().unwrap();
    zdb(&disk.cut(0).image, what);
}

pub(crate) fn names(fs: &FileSystem) -> Vec<String> {
    let mut names = Vec::new();
    fs.read_directory(fs.root(), 2, &mut |entry| {
        names.push(String::from_utf8(entry.name.to_vec()).unwrap());
        true
    })
    .unwrap();
    names.sort();
    names
}

pub(crate) fn make(fs: &FileSystem, name: &str) -> u64 {
    fs.create(fs.root(), name.as_bytes(), 0o100_644, 0, &Credentials::root()).unwrap().inode
}

/// The clone and what it is of, the source removed afterwards; both synced to the log only.
#[test]
fn a_clone_whose_source_is_removed_keeps_its_blocks() {
    let contents: Vec<u8> = (0..700_000u32).flat_map(|number| number.wrapping_mul(2_654_435_761).to_le_bytes()).collect();
    let wanted = contents.clone();
    story(
        "a clone",
        move |pool, fs| {
            let source = make(fs, "source");
            fs.write(source, WriteMode::At(0), &contents, &Credentials::root()).unwrap();
            pool.sync_all().unwrap();
            let target = make(fs, "target");
            let range = CloneRange { source, from: 0, target, to: 0, length: contents.len() as u64 };
            let shared = fs.clone_range(fs, &range, &Credentials::root()).unwrap();
            assert_eq!(shared, contents.len() as u64);
            fs.unlink(fs.root(), b"source").unwrap();
            fs.forget(source, u64::MAX);
            fs.write(target, WriteMode::At(5), b"written", &Credentials::root()).unwrap();
            fs.fsync(target).unwrap();
        },
        move |fs| {
            assert_eq!(names(fs), ["first", "target"]);
            let target = fs.lookup(fs.root(), b"target").unwrap();
            let found = fs.read(target.inode, 0, wanted.len() + 1).unwrap();
            let mut wanted = wanted;
            wanted[5..12].copy_from_slice(b"written");
            assert!(found == wanted, "the clone has other contents");
        },
    );
}

/// What is shared takes no room, and the replay wanted room for all of it: where that much was not left, the clone and all that was synced after it were lost.
#[test]
fn a_clone_is_replayed_where_a_copy_has_no_room() {
    use rand::{RngCore, SeedableRng};
    const PIECE: usize = 1 << 20;
    const PIECES: usize = 24;
    let mut contents = vec![0; PIECES * PIECE];
    rand_chacha::ChaCha8Rng::seed_from_u64(11).fill_bytes(&mut contents);
    let wanted = contents.clone();
    story(
        "a clone in a pool without room for a copy",
        move |pool, fs| {
            let source = make(fs, "source");
            for (number, piece) in contents.chunks(PIECE).enumerate() {
                fs.write(source, WriteMode::At((number * PIECE) as u64), piece, &Credentials::root()).unwrap();
                pool.sync_all().unwrap();
            }
            let target = make(fs, "target");
            let range = CloneRange { source, from: 0, target, to: 0, length: contents.len() as u64 };
            assert_eq!(fs.clone_range(fs, &range, &Credentials::root()).unwrap(), contents.len() as u64);
            fs.fsync(target).unwrap();
            fs.fsync(make(fs, "later")).unwrap();
        },
        move |fs| {
            assert_eq!(names(fs), ["first", "later", "source", "target"]);
            let target = fs.lookup(fs.root(), b"target").unwrap();
            assert!(fs.read(target.inode, 0, wanted.len() + 1).unwrap() == wanted, "the clone has other contents");
        },
    );
}

#[test]
fn a_rename_that_leaves_a_whiteout_is_replayed_as_one() {
    story(
        "a whiteout",
        |_, fs| {
            let file = make(fs, "below");
            fs.write(file, WriteMode::At(0), b"contents", &Credentials::root()).unwrap();
            fs.rename_leaving(fs.root(), b"below", fs.root(), b"above", RenameMode::Replace, Some(&Credentials::root())).unwrap();
            fs.fsync(file).unwrap();
        },
        |fs| {
            assert_eq!(names(fs), ["above", "below", "first"]);
            let (above, below) = (fs.lookup(fs.root(), b"above").unwrap(), fs.lookup(fs.root(), b"below").unwrap());
            assert_eq!((below.mode, below.device), (0o020_000, 0));
            assert_eq!(fs.read(above.inode, 0, 100).unwrap(), b"contents");
        },
    );
}

/// Names are synced with any file; a second name, as a new one, must not lead to less than what was there when it was given (xfstests generic/066).
#[test]
fn a_link_leads_to_what_its_file_was() {
    story(
        "a link",
        |pool, fs| {
            let file = make(fs, "file");
            fs.setxattr(file, b"user.old", b"value", tarnfs::XattrMode::Any).unwrap();
            pool.sync_all().unwrap();
            fs.write(file, WriteMode::At(0), b"contents", &Credentials::root()).unwrap();
            fs.removexattr(file, b"user.old").unwrap();
            fs.link(file, fs.root(), b"published").unwrap();
            let other = make(fs, "other");
            fs.fsync(other).unwrap();
        },
        |fs| {
            assert_eq!(names(fs), ["file", "first", "other", "published"]);
            let file = fs.lookup(fs.root(), b"published").unwrap();
            assert_eq!(fs.read(file.inode, 0, 100).unwrap(), b"contents");
            assert!(fs.getxattr(file.inode, b"user.old").is_err());
        },
    );
}

/// Somebody who may write a program that runs as its owner takes that from it, as everywhere; the log gave it back.
#[test]
fn set_id_bits_that_a_write_took_do_not_come_back() {
    let user = Credentials { uid: 1000, gid: 1000, ..Credentials::root() };
    story(
        "set-id bits",
        |pool, fs| {
            let programs = ["written", "cut", "with a hole"].map(|name| make(fs, name));
            for program in programs {
                fs.write(program, WriteMode::At(0), &[1; 1000], &Credentials::root()).unwrap();
                fs.setattr(program, &SetAttributes { mode: Some(0o6777), ..SetAttributes::default() }, &Credentials::root()).unwrap();
            }
            pool.sync_all().unwrap();
            fs.write(programs[0], WriteMode::At(0), b"mine now", &user).unwrap();
            fs.truncate(programs[1], 10, &user).unwrap();
            fs.punch_hole(programs[2], 0, 100, &user).unwrap();
            programs.iter().for_each(|program| fs.fsync(*program).unwrap());
        },
        |fs| {
            for name in ["written", "cut", "with a hole"] {
                assert_eq!(fs.lookup(fs.root(), name.as_bytes()).unwrap().mode, 0o100_777, "{name}");
            }
        },
    );
}

/// Gives a file an access control list that says more than a mode.
fn give_list(fs: &FileSystem, file: u64) {
    use ondisk::acl::{ALLOW, AccessEntry, trivial};
    let mut entries = trivial(0o777, false);
    entries.insert(0, AccessEntry { kind: ALLOW, flags: 0, mask: 1, who: 1000, object_types: None });
    let record = [ondisk::zil::RecordType::AclV0 as u64, 0, 0, 0, file, entries.len() as u64];
    let mut bytes: Vec<u8> = record.iter().flat_map(|word| word.to_le_bytes()).collect();
    for entry in entries {
        bytes.extend((entry.who as u32).to_le_bytes());
        bytes.extend(entry.mask.to_le_bytes());
        bytes.extend([entry.flags, entry.kind].iter().flat_map(|half| half.to_le_bytes()));
    }
    FileReplay(fs).replay(ondisk::zil::Record::decode(&bytes).unwrap(), None).unwrap();
}

/// What a write or a chown takes of the mode was replayed as a chmod, which replaces the list.
#[test]
fn what_takes_set_id_bits_leaves_the_list() {
    let user = Credentials { uid: 1000, gid: 1000, ..Credentials::root() };
    let root = Credentials::root();
    story(
        "a list",
        |pool, fs| {
            let [written, given] = ["written", "given"].map(|name| make(fs, name));
            for program in [written, given] {
                fs.setattr(program, &SetAttributes { mode: Some(0o4777), ..SetAttributes::default() }, &root).unwrap();
                give_list(fs, program);
            }
            pool.sync_all().unwrap();
            fs.write(written, WriteMode::At(0), b"mine now", &user).unwrap();
            fs.setattr(given, &SetAttributes { uid: Some(1000), ..SetAttributes::default() }, &root).unwrap();
            [written, given].iter().for_each(|program| fs.fsync(*program).unwrap());
        },
        |fs| {
            let [written, given] = ["written", "given"].map(|name| fs.lookup(fs.root(), name.as_bytes()).unwrap());
            assert_eq!((written.mode, given.mode, given.uid), (0o100_777, 0o100_777, 1000));
            assert_eq!([written, given].map(|stat| stat.flags & ondisk::znode::FLAG_ACL_TRIVIAL), [0, 0], "the lists are replaced");
        },
    );
}

/// Extended attributes that are files: nobody syncs these, only the file that they are of.
#[test]
fn an_attribute_that_is_a_file_is_synced_with_its_file() {
    let value = vec![7; 50_000];
    let wanted = value.clone();
    story(
        "an attribute in a file",
        move |_, fs| {
            let file = make(fs, "file");
            fs.setxattr(file, b"user.large", &value, tarnfs::XattrMode::Any).unwrap();
            // That has no record, and waits for the group. What comes later is in the log.
            fs.fsync(file).unwrap();
            fs.fsync(make(fs, "later")).unwrap();
        },
        move |fs| {
            fs.lookup(fs.root(), b"later").unwrap();
            let file = fs.lookup(fs.root(), b"file").unwrap();
            assert!(fs.getxattr(file.inode, b"user.large").unwrap() == wanted);
        },
    );
}

/// An attribute that was a file came into the list of its file: the removal was logged with the names, the new value with the file. After an `fsync` of another
/// file the log had the one without the other, and the attribute was gone.
#[test]
fn an_attribute_that_changes_its_place_is_not_lost_on_the_way() {
    let new_ones_in_list = |fs: &FileSystem, listed| fs.set_options(tarnfs::zpl::MountOptions { xattr_in_attributes: listed, ..fs.options() });
    story(
        "an attribute that moves",
        |pool, fs| {
            let file = make(fs, "file");
            new_ones_in_list(fs, false);
            fs.setxattr(file, b"user.a", b"old", tarnfs::XattrMode::Any).unwrap();
            pool.sync_all().unwrap();
            new_ones_in_list(fs, true);
            fs.setxattr(file, b"user.a", b"new", tarnfs::XattrMode::Any).unwrap();
            fs.fsync(make(fs, "other")).unwrap();
        },
        |fs| {
            let file = fs.lookup(fs.root(), b"file").unwrap();
            assert_eq!(fs.getxattr(file.inode, b"user.a").unwrap(), b"new");
        },
    );
}

/// `touch` and `fallocate` pass on a file that may only grow. Their records say less, and were refused: what came after them was lost.
#[test]
fn what_passed_on_a_marked_file_is_replayed() {
    story(
        "a file that may only grow",
        |pool, fs| {
            let file = make(fs, "file");
            let set = |set| fs.setattr(file, &set, &Credentials::root()).map(drop).unwrap();
            set(SetAttributes { flags: Some((ondisk::znode::FLAG_APPEND_ONLY, 0)), ..SetAttributes::default() });
            pool.sync_all().unwrap();
            set(SetAttributes { modification_time: Some(tarnfs::SetTime::Now), ..SetAttributes::default() });
            fs.allocate(file, 0, 100_000, false, &Credentials::root()).unwrap();
            fs.fsync(file).unwrap();
            fs.fsync(make(fs, "later")).unwrap();
        },
        |fs| {
            assert_eq!(names(fs), ["file", "first", "later"]);
            assert_eq!(fs.lookup(fs.root(), b"file").unwrap().size, 100_000);
        },
    );
}

/// Beside the removal of a file that of one of its attributes may be logged later, from a directory that went with the file. The replay ended there, and what
/// followed was lost.
#[test]
fn a_name_in_a_directory_that_is_gone_is_passed_over() {
    story(
        "a removal too late",
        |pool, fs| {
            let file = make(fs, "file");
            fs.set_options(tarnfs::zpl::MountOptions { xattr_in_attributes: false, ..fs.options() });
            fs.setxattr(file, b"user.a", b"value", tarnfs::XattrMode::Any).unwrap();
            let hidden = fs.raw_xattrs(file).unwrap().directory.unwrap();
            pool.sync_all().unwrap();
            fs.unlink(fs.root(), b"file").unwrap();
            {
                let member = engine::dmu::Membership::single(fs.objset().clone());
                let tx = engine::dmu::OpenTx::assign(&member, 4096).unwrap();
                let record = [[0u8; 32].as_slice(), &hidden.to_le_bytes(), b"user.a\0"].concat();
                Zil::of(fs.objset()).log(&tx, ondisk::zil::RecordType::Remove as u64, None, record);
            }
            fs.forget(file, u64::MAX);
            fs.fsync(make(fs, "later")).unwrap();
        },
        |fs| assert_eq!(names(fs), ["first", "later"]),
    );
}

/// Makes a file of 5,000 bytes `byte`, and syncs it.
fn make_synced(fs: &FileSystem, name: &str, byte: u8) {
    let file = make(fs, name);
    fs.write(file, WriteMode::At(0), &[byte; 5000], &Credentials::root()).unwrap();
    fs.fsync(file).unwrap();
}

/// Files are written and synced, alternately before and after the log device breaks down, if it does.
fn with_log_device(breaks: bool) {
    let (disk, log) = (CutDisk::new(vec![0; DISK_BYTES]), CutDisk::new(vec![0; DISK_BYTES]));
    let pool = create_on(&disk, Some(&log));
    let fs = file_system(&pool);
    // The first one waits for a group, the second one finds a block that is too small.
    for name in ["first", "second"] {
        make_synced(&fs, name, 1);
    }
    let (before, of_log) = (disk.writes(), log.writes());
    for number in 0..10u8 {
        if breaks && number == 5 {
            assert_eq!((disk.writes(), log.writes()), (before, of_log + 5), "a synchronous write is one write, to the log device");
            log.break_down();
        }
        make_synced(&fs, &format!("file{number}"), number);
    }
    if !breaks {
        assert_eq!((disk.writes(), log.writes()), (before, of_log + 10), "a synchronous write is one write, to the log device");
    }
    let (image, log_image) = (disk.cut(0).image, log.cut(0).image);
    pool.abandon();
    let disks = [CutDisk::new(image), CutDisk::new(log_image)];
    let pool = open_all(&disks, false);
    let fs = file_system(&pool);
    let replayed = replay(&pool, &fs, "a log device");
    assert!(breaks || replayed.records >= 20, "{replayed:?}");
    for number in 0..10u8 {
        let file = fs.lookup(fs.root(), format!("file{number}").as_bytes()).unwrap_or_else(|error| panic!("file{number}: {error}"));
        assert!(fs.read(file.inode, 0, 6000).unwrap() == [number; 5000], "file{number}");
    }
    fs.release_all();
    drop(fs);
    pool.sync_all().unwrap();
    check(&pool, "with a log device: replayed");
    pool.export().unwrap();
}

/// What an import could not replay is to be found in the pool's history later.
#[test]
fn what_a_replay_loses_is_in_the_history() {
    use engine::dsl::history::field;
    let disk = CutDisk::new(vec![0; DISK_BYTES]);
    let pool = create(&disk);
    let fs = file_system(&pool);
    let kept = make(&fs, "kept");
    fs.fsync(kept).unwrap();
    {
        let member = engine::dmu::Membership::single(fs.objset().clone());
        let tx = engine::dmu::OpenTx::assign(&member, 4096).unwrap();
        // A record of a kind that nobody knows.
        Zil::of(fs.objset()).log(&tx, 77, None, vec![0; 32]);
    }
    let lost = make(&fs, "lost");
    fs.fsync(lost).unwrap();
    let image = disk.cut(0).image;
    pool.abandon();
    let pool = tarnfs::Pool::import_disks(vec![CutDisk::new(image)], tarnfs::ImportOptions::default()).unwrap();
    let fs = pool.file_system("tank").unwrap();
    assert_eq!(names(&fs), ["kept"]);
    fs.release_all();
    drop(fs);
    let dsl = &pool.engine().dsl;
    dsl.wait_for_tasks().unwrap();
    let records = dsl.history.read(&dsl.meta).unwrap();
    let told: Vec<_> = records.iter().filter(|record| record.str(field::EVENT) == Some("log replay")).collect();
    let [told] = told.as_slice() else { panic!("{} records of it", told.len()) };
    let details = told.str(field::DETAILS).unwrap();
    assert!(details.contains("cannot be replayed, and those after it are lost"), "{details}");
    assert_eq!(told.str(field::DATASET), Some("tank"));
    check(pool.engine(), "a replay that ended early");
    pool.export().unwrap();
}

/// A record that cannot be done ended the replay, and only the daemon's log had a word of it.
#[test]
fn what_a_replay_loses_is_told() {
    struct Failing<'a>(&'a FileSystem, std::cell::Cell<u32>);
    impl Replay for Failing<'_> {
        fn replay(&self, record: ondisk::zil::Record<'_>, data: Option<&[u8]>) -> engine::error::Result<()> {
            self.1.set(self.1.get() + 1);
            if self.1.get() > 2 {
                return Err(engine::error::Error::new(engine::error::ErrorKind::Corrupt, "a test cannot do it".to_owned()));
            }
            FileReplay(self.0).replay(record, data)
        }
    }
    let disk = CutDisk::new(vec![0; DISK_BYTES]);
    let pool = create_on(&disk, None);
    let fs = file_system(&pool);
    for name in ["a", "b", "c", "d"] {
        let file = make(&fs, name);
        fs.fsync(file).unwrap();
    }
    let image = disk.cut(0).image;
    pool.abandon();
    let pool = open_all(&[CutDisk::new(image)], false);
    let fs = file_system(&pool);
    let done = Zil::of(fs.objset()).replay(fs.objset(), &|| pool.sync_all(), &Failing(&fs, 0.into())).unwrap();
    let lost = done.lost.expect("it says so");
    assert!(lost.contains("those after it are lost: a test cannot do it"), "{lost}");
    assert_eq!(done.records, 2);
    fs.release_all();
    drop(fs);
    check(&pool, "a replay that ended early");
    pool.export().unwrap();
}

/// A block inside a claimed log that was damaged passed for the end of the log: what followed was lost without a word.
#[test]
fn a_log_that_is_damaged_after_it_was_claimed_says_so() {
    let disk = CutDisk::new(vec![0; DISK_BYTES]);
    let pool = create(&disk);
    let fs = file_system(&pool);
    for name in ["first", "a", "b", "c"] {
        fs.fsync(make(&fs, name)).unwrap();
    }
    let image = disk.cut(0).image;
    pool.abandon();
    let disk = CutDisk::new(image);
    let pool = open(&disk, false);
    pool.sync_all().unwrap();
    let mut places = Vec::new();
    {
        let objset = pool.dsl.objset(&pool.dsl.open_dataset("tank").unwrap()).unwrap();
        let header = ondisk::zil::LogHeader::from_bytes(&objset.zil_header()).unwrap();
        assert_ne!(header.claim_txg.get(), 0);
        walk(&objset.context().io, objset.dataset(), &header, Extent::Whole, &mut |block| {
            if block.records.is_some_and(|records| !records.is_empty()) {
                places.push(ondisk::label::START_BYTES + block.pointer.first_dva().unwrap().offset);
            }
            Ok(ControlFlow::Continue(()))
        })
        .unwrap();
    }
    // The last two: of "b" and of "c".
    let [.., damaged, _] = *places else { panic!("{} blocks", places.len()) };
    let damaged = damaged as usize;
    let mut image = disk.cut(0).image;
    pool.abandon();
    image[damaged..damaged + 512].iter_mut().for_each(|byte| *byte = !*byte);
    let pool = open(&CutDisk::new(image), false);
    let fs = file_system(&pool);
    let lost = replay(&pool, &fs, "a damaged log").lost.expect("it says so");
    assert!(lost.contains("is damaged behind record"), "{lost}");
    assert_eq!(names(&fs), ["a", "first"]);
    fs.release_all();
    drop(fs);
    pool.abandon();
}

/// A replay that a device broke off did not end: what was done afterwards passed for the record that had failed, and was in no log.
#[test]
fn what_is_done_after_a_replay_that_broke_off_passes_for_no_record() {
    struct Unreadable;
    impl Replay for Unreadable {
        fn replay(&self, _: ondisk::zil::Record<'_>, _: Option<&[u8]>) -> engine::error::Result<()> {
            Err(engine::error::Error::new(engine::error::ErrorKind::Io, "a test cannot read it".to_owned()))
        }
    }
    let disk = CutDisk::new(vec![0; DISK_BYTES]);
    let pool = create(&disk);
    let fs = file_system(&pool);
    for name in ["first", "promised"] {
        fs.fsync(make(&fs, name)).unwrap();
    }
    let image = disk.cut(0).image;
    pool.abandon();
    let pool = open(&CutDisk::new(image), false);
    let fs = file_system(&pool);
    let zil = Zil::of(fs.objset());
    let broken_off = zil.replay(fs.objset(), &|| pool.sync_all(), &Unreadable).expect_err("it cannot be read");
    assert_eq!(broken_off.kind(), engine::error::ErrorKind::Io);
    assert!(!zil.is_replaying());
    fs.setattr(fs.root(), &SetAttributes { mode: Some(0o711), ..SetAttributes::default() }, &Credentials::root()).unwrap();
    pool.sync_all().unwrap();
    let header = ondisk::zil::LogHeader::from_bytes(&fs.objset().zil_header()).unwrap();
    assert_eq!(header.replay_sequence.get(), 0, "the record passes for replayed");
    replay(&pool, &fs, "the second time");
    assert_eq!(names(&fs), ["first", "promised"]);
    fs.release_all();
    drop((zil, fs));
    pool.sync_all().unwrap();
    check(&pool, "a replay that broke off, and was done again");
    pool.export().unwrap();
}

/// A log device that had failed once was not used again before the pool was imported again, whatever `zpool clear` said.
#[test]
fn a_log_device_that_was_repaired_is_used_again() {
    let (disk, log) = (CutDisk::new(vec![0; DISK_BYTES]), CutDisk::new(vec![0; DISK_BYTES]));
    let pool = create_on(&disk, Some(&log));
    let fs = file_system(&pool);
    let sync = |name: &str| make_synced(&fs, name, 1);
    ["a", "b", "c"].into_iter().for_each(sync);
    log.break_down();
    ["d", "e", "f"].into_iter().for_each(sync);
    log.mend();
    let before = log.writes();
    ["g", "h"].into_iter().for_each(sync);
    assert_eq!(log.writes(), before, "nobody has said that it was repaired");
    pool.clear_errors(None);
    // Those on the way, and the first that finds a chain elsewhere.
    pool.sync_all().unwrap();
    for name in 0..40 {
        sync(&format!("i{name}"));
    }
    assert!(log.writes() > before + 20, "{} writes after {before}", log.writes());
    fs.release_all();
    drop(fs);
    check(&pool, "a log device that was repaired");
    pool.export().unwrap();
}

#[test]
fn a_log_device_takes_the_synchronous_writes() {
    with_log_device(false);
}

#[test]
fn a_log_device_that_breaks_down_is_done_without() {
    with_log_device(true);
}

/// A program makes a name and then syncs another file, which is on disk already. OpenZFS makes the name safe; we returned at once, because
/// nothing of that file was left to do (found by the crash explorer, `random:48385357440 129.9`).
#[test]
fn an_fsync_of_a_file_on_disk_makes_names_safe_too() {
    story(
        "a clean file",
        |pool, fs| {
            let clean = make(fs, "clean");
            pool.sync_all().unwrap();
            make(fs, "name");
            fs.fsync(clean).unwrap();
        },
        |fs| assert_eq!(names(fs), ["clean", "first", "name"]),
    );
}

/// The file of the attribute was made, and its value came in another record, which the log may have lost.
#[test]
fn an_attribute_in_a_file_is_there_with_its_value_or_not_at_all() {
    for writes in 0..12 {
        let disk = CutDisk::new(vec![0; DISK_BYTES]);
        let pool = create(&disk);
        let fs = file_system(&pool);
        fs.set_options(tarnfs::zpl::MountOptions { xattr_in_attributes: false, ..fs.options() });
        let first = make(&fs, "first");
        fs.fsync(first).unwrap();
        disk.arm(writes, writes);
        for name in [&b"user.a"[..], b"user.b"] {
            fs.setxattr(first, name, &[7; 20_000], tarnfs::XattrMode::Any).unwrap();
        }
        fs.setxattr(first, b"user.a", &[8; 9000], tarnfs::XattrMode::Any).unwrap();
        fs.fsync(first).unwrap();
        let cut = disk.cut(writes);
        fs.release_all();
        drop(fs);
        pool.abandon();
        let disk = CutDisk::new(cut.image);
        let pool = open(&disk, false);
        let fs = file_system(&pool);
        fs.drain_delete_queue().unwrap();
        replay(&pool, &fs, "an attribute in a file");
        for name in fs.listxattr(first).unwrap() {
            let value = fs.getxattr(first, &name).unwrap();
            assert!(value == [7; 20_000] || value == [8; 9000], "{}: {} bytes", String::from_utf8_lossy(&name), value.len());
        }
        fs.release_all();
        drop(fs);
        pool.abandon();
    }
}
