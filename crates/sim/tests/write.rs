//! The write path, with our own checker and the real `zdb` as judges. Everything here is fast; what takes long is in
//! `write_long.rs`.

use ondisk::feature::Feature;
use sim::scenario::{Layout, Mix, RandomSteps, Rig, contents};
use tarnfs::RenameMode;

#[test]
fn one_file() {
    let mut rig = Rig::create(Layout::default(), &[]);
    rig.judge("an empty pool");
    rig.actor("tank").file("a", b"hello");
    rig.judge("a small file");
    rig.actor("tank").write("a", 3, &contents(1, 1000, 0));
    rig.judge("one block");
    rig.actor("tank").write("a", 0, &contents(2, 1 << 20, 1));
    rig.judge("eight blocks");
    rig.actor("tank").write("a", 40 << 20, &contents(3, 300_000, 1));
    rig.judge("a hole and an indirect block");
    rig.actor("tank").truncate("a", 100_000);
    rig.judge("cut");
    rig.actor("tank").unlink("a");
    rig.judge("removed");
}

/// The first name of more than 255 bytes says on disk that the dataset has such names, and no other name does.
#[test]
fn long_names_are_said_to_be_there() {
    let mut rig = Rig::create(Layout::default(), &[("longname", "on")]);
    rig.create_file_system("tank/short", &[]);
    let datasets = |rig: &Rig| rig.pool().engine().dsl.meta.features.count(Feature::Longname);
    rig.actor("tank/short").file(&"s".repeat(255), b"short");
    rig.actor("tank").file(&"s".repeat(255), b"short");
    rig.judge("names of 255 bytes");
    assert_eq!(datasets(&rig), Some(0));
    rig.actor("tank").file(&"l".repeat(256), b"long");
    rig.judge("a name of 256 bytes");
    assert_eq!(datasets(&rig), Some(1));
    rig.actor("tank").file(&"l".repeat(1023), b"longest");
    rig.judge("a name of 1023 bytes");
    assert_eq!(datasets(&rig), Some(1));
}

#[test]
fn names() {
    let mut rig = Rig::create(Layout::default(), &[]);
    let mut actor = rig.actor("tank");
    actor.mkdir("d");
    actor.mkdir("d/e");
    actor.mkdir("x");
    for number in 0..10 {
        actor.file(&format!("d/f{number}"), &contents(number, 5000, 1));
    }
    actor.symlink("s", b"d/f0");
    actor.symlink("long", &[b't'; 3000]);
    actor.special("fifo", 0o010_600, 0);
    actor.special("null", 0o020_666, 1 << 20 | 3);
    actor.link("d/f0", "x/hard");
    rig.judge("made");
    let mut actor = rig.actor("tank");
    actor.rename("d/f1", "d/g1", RenameMode::NoReplace);
    actor.rename("d/f2", "x/g2", RenameMode::Replace);
    actor.rename("d/f3", "d/f4", RenameMode::Replace);
    actor.rename("d/e", "x/e", RenameMode::Replace);
    actor.rename("d/f5", "x/e", RenameMode::Exchange);
    actor.rename("s", "long", RenameMode::Exchange);
    actor.unlink("d/f0");
    rig.judge("renamed");
    let mut actor = rig.actor("tank");
    actor.remove_all("d");
    actor.remove_all("x");
    actor.unlink("s");
    actor.unlink("long");
    actor.unlink("fifo");
    actor.unlink("null");
    rig.judge("removed");
}

#[test]
fn attributes() {
    for (xattr, dnode) in [("sa", "legacy"), ("sa", "auto"), ("on", "legacy"), ("sa", "4k")] {
        let mut rig = Rig::create(Layout::default(), &[("xattr", xattr), ("dnodesize", dnode)]);
        let mut actor = rig.actor("tank");
        for number in 0..20 {
            let path = format!("f{number}");
            actor.file(&path, &contents(number, 3000, 1));
            actor.chmod(&path, 0o600 + number as u32);
            actor.chown(&path, 1000 + number as u32 % 3, 50);
            actor.utimens(&path, 1_000_000_000 + number as i64, 5);
            actor.setxattr(&path, "user.small", b"value");
            actor.setxattr(&path, "security.selinux", &[7; 200]);
        }
        rig.judge("small attributes");
        let mut actor = rig.actor("tank");
        for number in 0..20 {
            actor.setxattr(&format!("f{number}"), "user.large", &contents(number, 1000 * number as usize, 0));
        }
        actor.setxattr("f3", "user.huge", &contents(99, 60_000, 0));
        actor.setxattr("f3", "user.huge2", &contents(98, 65_536, 0));
        rig.judge("large attributes");
        let mut actor = rig.actor("tank");
        for number in 0..10 {
            actor.removexattr(&format!("f{number}"), "user.large");
        }
        actor.setxattr("f3", "user.huge", b"now small");
        actor.unlink("f4");
        actor.unlink("f14");
        rig.judge("large attributes removed");
        let mut actor = rig.actor("tank");
        actor.remove_all("f3");
        rig.judge("a file with an attribute directory removed");
    }
}

#[test]
fn holes_and_sizes() {
    let mut rig = Rig::create(Layout::default(), &[("recordsize", "16K")]);
    let mut actor = rig.actor("tank");
    actor.file("a", &contents(1, 3 << 20, 0));
    actor.file("zeros", &vec![0; 1 << 20]);
    actor.file("text", &contents(2, 100_000, 2));
    rig.judge("written");
    let mut actor = rig.actor("tank");
    actor.punch("a", 16 << 10, 64 << 10);
    actor.punch("a", 1_000_000, 333_333);
    actor.write("zeros", 500_000, b"not zero");
    actor.write("text", 20_000, &vec![0; 50_000]);
    rig.judge("punched");
    let mut actor = rig.actor("tank");
    actor.truncate("a", 100);
    actor.truncate("zeros", 5 << 30 >> 10);
    actor.truncate("text", 0);
    actor.write("a", 2 << 20, b"end");
    rig.judge("cut and extended");
    let mut actor = rig.actor("tank");
    actor.truncate("a", 0);
    actor.write("a", 0, &contents(4, 70_000, 1));
    rig.judge("emptied and written");
}

#[test]
fn unlinked_while_open() {
    let mut rig = Rig::create(Layout::default(), &[]);
    let mut actor = rig.actor("tank");
    let inode = actor.create_held("a");
    actor.write("a", 0, &contents(1, 1 << 20, 0));
    actor.unlink("a");
    actor.fs.sync_group().unwrap();
    assert_eq!(actor.fs.read(inode, (1 << 20) - 1, 10).unwrap().len(), 1);
    rig.judge_crash("an open file without a name");
    let fs = rig.pool().file_system("tank").unwrap();
    assert_eq!(fs.drain_delete_queue().unwrap(), 1);
    drop(fs);
    rig.judge("drained");
}

#[test]
fn random_operations() {
    let mut rig = Rig::create(Layout::default(), &[]);
    let mut steps = RandomSteps::new(1, Mix::default());
    for round in 0..4 {
        for step in 0..150 {
            steps.step(&mut rig.actor("tank"));
            if step % 50 == 49 {
                rig.sync();
            }
        }
        rig.judge(&format!("round {round}"));
    }
}

#[test]
fn a_pool_without_changes_writes_nothing() {
    let mut rig = Rig::create(Layout::default(), &[]);
    rig.actor("tank").file("a", &contents(1, 1 << 20, 0));
    rig.sync();
    rig.actor("tank").unlink("a");
    for _ in 0..3 {
        rig.sync();
    }
    let written = rig.pool().engine().uberblock().txg;
    for _ in 0..5 {
        rig.sync();
    }
    assert_eq!(rig.pool().engine().uberblock().txg, written);
    let allocator = rig.pool().engine().context.io.allocator().clone();
    let waiting = || allocator.space_use(engine::alloc::ClassKind::Normal).deferred;
    // What was freed last may be needed to go back, as long as nothing else was written.
    assert!(waiting() >= 1 << 20, "{} bytes wait", waiting());
    for _ in 0..4 {
        rig.pool().engine().write_group().unwrap();
    }
    assert!(waiting() < 1 << 20, "{} bytes wait", waiting());
    rig.judge("idle");
}

/// Filled with small blocks in small sectors, then half of the files removed, all in one group: it ended the pool.
#[test]
fn a_full_pool_of_small_blocks_can_be_emptied() {
    let layout = Layout { bytes: 64 << 20, ashift: 9, ..Layout::default() };
    let mut rig = Rig::create(layout, &[("compression", "off"), ("recordsize", "8K")]);
    let mut files = 0;
    loop {
        let actor = rig.actor("tank");
        let stat = actor.fs.create(actor.fs.root(), format!("f{files}").as_bytes(), 0o100_644, 0, &actor.user);
        let data = contents(files, 1_000_000, 0);
        let wrote = stat.and_then(|stat| {
            let wrote = actor.fs.write(stat.inode, tarnfs::WriteMode::At(0), &data, &actor.user);
            actor.fs.forget(stat.inode, 1);
            wrote
        });
        match wrote {
            Ok(_) => rig.actor("tank").adopt(&format!("f{files}"), &data, 0o100_644),
            Err(error) => {
                assert_eq!(error.kind(), tarnfs::ErrorKind::NoSpace, "{error}");
                break;
            }
        }
        files += 1;
    }
    let mut actor = rig.actor("tank");
    let _ = actor.fs.unlink(actor.fs.root(), format!("f{files}").as_bytes());
    (0..files).step_by(2).for_each(|number| actor.unlink(&format!("f{number}")));
    rig.judge(&format!("half of {files} files removed from a full pool"));
}

/// To empty a file that is empty (`creat`, `>`), and to punch a hole, were refused when nothing else fitted (xfstests generic/275, 256).
#[test]
fn a_full_pool_lets_in_what_frees() {
    let mut rig = Rig::create(Layout { bytes: 64 << 20, ..Layout::default() }, &[("compression", "off")]);
    let actor = rig.actor("tank");
    let (fs, user) = (&actor.fs, &actor.user);
    let make = |name: &[u8]| fs.create(fs.root(), name, 0o100_644, 0, user).unwrap().inode;
    let (empty, large, filler) = (make(b"empty"), make(b"large"), make(b"filler"));
    fs.write(large, tarnfs::WriteMode::At(0), &contents(1, 1 << 20, 0), user).unwrap();
    let piece = contents(2, 4096, 0);
    for size in [1 << 20, 4096] {
        let piece = piece.repeat(size / piece.len());
        while fs.write(filler, tarnfs::WriteMode::Append, &piece, user).is_ok() {}
    }
    let error = fs.write(empty, tarnfs::WriteMode::At(0), &piece, user).unwrap_err();
    assert_eq!(error.kind(), tarnfs::ErrorKind::NoSpace, "{error}");
    fs.truncate(empty, 0, user).unwrap();
    fs.punch_hole(large, 0, 512 << 10, user).unwrap();
    fs.punch_hole(large, 600 << 10, 300 << 10, user).unwrap();
    for (name, inode) in [(b"empty".as_slice(), empty), (b"large", large), (b"filler", filler)] {
        fs.unlink(fs.root(), name).unwrap();
        fs.forget(inode, 1);
    }
    rig.set_model("tank", sim::scenario::Model::new());
    rig.judge("a full pool, emptied");
}

/// One call that writes more than the pool has room for is refused when the pool is full, not let in as a whole.
#[test]
fn a_large_write_is_not_one_transaction() {
    let mut rig = Rig::create(Layout { bytes: 64 << 20, ..Layout::default() }, &[("recordsize", "512"), ("compression", "off")]);
    let mut actor = rig.actor("tank");
    let inode = actor.create_held("large");
    let error = actor.fs.write(inode, tarnfs::WriteMode::At(0), &contents(1, 12 << 20, 0), &actor.user).unwrap_err();
    assert_eq!(error.kind(), tarnfs::ErrorKind::NoSpace, "{error}");
    actor.fs.forget(inode, 1);
    actor.fs.sync_group().unwrap();
    let space = actor.fs.space();
    println!("{space:?}");
    actor.fs.unlink(actor.fs.root(), b"large").unwrap();
    rig.set_model("tank", sim::scenario::Model::new());
    rig.judge("after a write that was too large");
}
