//! Transactions seen from outside and inside. What a crash leaves of them is the crash explorer's: `sim/tests/explore.rs`.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use engine::dmu::ObjsetSettings;
use engine::error::{ErrorKind, Result};
use ondisk::zap_hash;

use crate::zpl::attributes::acl::set_acl;
use crate::zpl::tests::rig::Rig;
use crate::zpl::{Credentials, Durability, FileSystem, NewFileSystem, RenameMode, SetAttributes, Transaction, WriteMode, XattrMode};

fn new() -> (Rig, Arc<FileSystem>) {
    let (rig, fs) = Rig::new(&NewFileSystem::default(), ObjsetSettings::dataset_default(true));
    (rig, Arc::new(fs))
}

fn root() -> Credentials {
    Credentials::root()
}

fn file(fs: &FileSystem, name: &str, data: &[u8]) -> u64 {
    let inode = fs.create(fs.root(), name.as_bytes(), 0o100_644, 0, &root()).unwrap().inode;
    fs.write(inode, WriteMode::At(0), data, &root()).unwrap();
    inode
}

fn names(fs: &FileSystem) -> Vec<String> {
    let mut names = Vec::new();
    fs.read_directory(fs.root(), 2, &mut |entry| {
        names.push(String::from_utf8(entry.name).unwrap());
        true
    })
    .unwrap();
    names.sort();
    names
}

fn listed(tx: &mut Transaction, at: u64) -> Vec<String> {
    tx.list(at).unwrap().into_iter().map(|entry| String::from_utf8(entry.name).unwrap()).collect()
}

fn kind<T>(result: Result<T>) -> ErrorKind {
    match result {
        Ok(_) => panic!("it succeeded"),
        Err(error) => error.kind(),
    }
}

#[test]
fn nobody_sees_it_before_the_commit_and_everybody_after() {
    let (_rig, fs) = new();
    let old = file(&fs, "old", &[1; 10_000]);
    file(&fs, "gone", b"x");
    let mut tx = fs.begin().unwrap();
    let at = tx.root();
    let made = tx.create(at, b"new", 0o100_600, 0, &root()).unwrap().inode;
    tx.write(made, 5000, b"hello").unwrap();
    tx.write(old, 4090, &[2; 20]).unwrap();
    tx.truncate(old, 9000).unwrap();
    tx.truncate(old, 9500).unwrap();
    tx.unlink(at, b"gone").unwrap();
    tx.mkdir(at, b"d", 0o755, &root()).unwrap();
    tx.rename(at, b"old", at, b"d2", RenameMode::Replace).unwrap();
    tx.setxattr(made, b"user.a", b"value", XattrMode::Any).unwrap();
    tx.setattr(made, &SetAttributes { mode: Some(0o640), ..SetAttributes::default() }).unwrap();

    // Inside: all of it.
    assert_eq!(listed(&mut tx, at), ["d", "d2", "new"]);
    let mut expected = vec![1; 9500];
    expected[4090..4110].fill(2);
    expected[9000..].fill(0);
    assert!(tx.read(old, 0, 20_000).unwrap() == expected);
    assert_eq!(tx.read(made, 4998, 100).unwrap(), b"\0\0hello");
    assert_eq!(tx.getxattr(made, b"user.a").unwrap(), b"value");
    assert_eq!(tx.getattr(at).unwrap().links, 3);
    // Outside: nothing.
    assert_eq!(names(&fs), ["gone", "old"]);
    assert_eq!(fs.read(old, 0, 20_000).unwrap(), [1; 10_000]);

    tx.commit(Durability::Soon).unwrap();
    assert_eq!(names(&fs), ["d", "d2", "new"]);
    assert!(fs.read(old, 0, 20_000).unwrap() == expected);
    let made = fs.lookup(fs.root(), b"new").unwrap();
    assert_eq!((made.size, made.mode, made.links), (5005, 0o100_640, 1));
    assert_eq!(fs.read(made.inode, 4998, 100).unwrap(), b"\0\0hello");
    assert_eq!(fs.getxattr(made.inode, b"user.a").unwrap(), b"value");
    assert_eq!(fs.getattr(fs.root()).unwrap().links, 3);
}

#[test]
fn what_is_given_up_was_never_there() {
    let (_rig, fs) = new();
    let old = file(&fs, "old", b"old");
    let failed = fs.transaction(Durability::Soon, |tx| {
        tx.write(old, 0, b"new")?;
        let at = tx.root();
        tx.create(at, b"a", 0o100_644, 0, &root())?;
        tx.unlink(at, b"missing")
    });
    assert_eq!(kind(failed), ErrorKind::NotFound);
    assert_eq!(names(&fs), ["old"]);
    assert_eq!(fs.read(old, 0, 10).unwrap(), b"old");
}

#[test]
fn who_comes_second_hears_of_it() {
    let (_rig, fs) = new();
    let (a, b) = (file(&fs, "a", b"a"), file(&fs, "b", b"b"));
    let directory = fs.mkdir(fs.root(), b"d", 0o755, &root()).unwrap().inode;
    type Body = fn(&mut Transaction, u64, u64) -> Result<()>;
    type Other = fn(&FileSystem, u64, u64) -> Result<()>;
    let change: Other = |fs, a, _| fs.write(a, WriteMode::At(0), b"z", &root()).map(drop);
    let make: Other = |fs, _, directory| fs.create(directory, b"n", 0o100_644, 0, &root()).map(drop);
    let remove: Other = |fs, _, directory| fs.unlink(directory, b"n");
    let cases: [(&str, Body, Other, bool); 8] = [
        ("both write", |tx, a, _| tx.write(a, 0, b"y"), change, true),
        ("read and written", |tx, a, d| tx.read(a, 0, 1).and_then(|_| tx.mkdir(d, b"q", 0o755, &root())).map(drop), change, true),
        ("another file", |tx, _, d| tx.mkdir(d, b"r", 0o755, &root()).map(drop), change, false),
        ("the same name", |tx, _, d| tx.create(d, b"n", 0o100_644, 0, &root()).map(drop), make, true),
        ("the same name removed", |tx, _, d| tx.unlink(d, b"n"), remove, true),
        ("another name", |tx, _, d| tx.mkdir(d, b"s", 0o755, &root()).map(drop), make, false),
        ("listed", |tx, a, d| tx.list(d).and_then(|_| tx.write(a, 0, b"w")), remove, true),
        ("it was looked for", |tx, a, d| tx.lookup(d, b"n").map(drop).or_else(|_| tx.write(a, 0, b"v")), make, true),
    ];
    for (what, body, other, conflict) in cases {
        let mut tx = fs.begin().unwrap();
        body(&mut tx, a, directory).unwrap_or_else(|error| panic!("{what}: {error}"));
        other(&fs, a, directory).unwrap_or_else(|error| panic!("{what}: {error}"));
        match tx.commit(Durability::Soon) {
            Ok(()) => assert!(!conflict, "{what}: no conflict"),
            Err(error) => assert!(conflict && error.kind() == ErrorKind::Conflict, "{what}: {error}"),
        }
    }
    // A read that would mix two states of the file system is refused at once.
    let mut tx = fs.begin().unwrap();
    tx.read(b, 0, 1).unwrap();
    fs.write(b, WriteMode::At(0), b"c", &root()).unwrap();
    assert_eq!(kind(tx.read(b, 0, 1)), ErrorKind::Conflict);
}

#[test]
fn its_size_is_bounded() {
    let (_rig, fs) = new();
    let a = file(&fs, "a", b"");
    let mut tx = fs.begin().unwrap();
    let error = (0..1000).find_map(|part| tx.write(a, part << 20, &vec![7; 1 << 20]).err()).expect("a limit");
    assert_eq!(error.kind(), ErrorKind::TooBig);
    assert!(error.to_string().contains("transaction_bytes_max"), "{error}");
    let mut tx = fs.begin().unwrap();
    let at = tx.root();
    let error = (0..20_000).find_map(|number| tx.create(at, format!("n{number}").as_bytes(), 0o100_644, 0, &root()).err()).expect("a limit");
    assert_eq!(error.kind(), ErrorKind::TooBig);
    assert!(error.to_string().contains("transaction_names_max"), "{error}");
    drop(tx);
    assert_eq!(names(&fs), ["a"]);
}

#[test]
fn names_are_as_posix_wants_them() {
    let (_rig, fs) = new();
    file(&fs, "a", b"a");
    let d = fs.mkdir(fs.root(), b"d", 0o755, &root()).unwrap().inode;
    fs.create(d, b"inside", 0o100_644, 0, &root()).unwrap();
    let mut tx = fs.begin().unwrap();
    let at = tx.root();
    assert_eq!(kind(tx.create(at, b"a", 0o100_644, 0, &root())), ErrorKind::Exists);
    assert_eq!(kind(tx.create(at, b"x/y", 0o100_644, 0, &root())), ErrorKind::Invalid);
    assert_eq!(kind(tx.unlink(at, b"d")), ErrorKind::IsDirectory);
    assert_eq!(kind(tx.rmdir(at, b"a")), ErrorKind::NotDirectory);
    assert_eq!(kind(tx.rmdir(at, b"d")), ErrorKind::NotEmpty);
    assert_eq!(kind(tx.rename(at, b"d", d, b"below", RenameMode::Replace)), ErrorKind::Invalid);
    assert_eq!(kind(tx.rename(at, b"a", at, b"d", RenameMode::Replace)), ErrorKind::IsDirectory);
    assert_eq!(kind(tx.rename(at, b"a", d, b"inside", RenameMode::NoReplace)), ErrorKind::Exists);
    tx.unlink(d, b"inside").unwrap();
    assert_eq!(kind(tx.lookup(d, b"inside")), ErrorKind::NotFound);
    tx.rename(at, b"a", at, b"d", RenameMode::Exchange).unwrap();
    assert_eq!(tx.lookup(at, b"a").unwrap().inode, d);
    tx.rmdir(at, b"a").unwrap();
    assert_eq!(kind(tx.create(d, b"z", 0o100_644, 0, &root())), ErrorKind::NotFound);
    let link = tx.symlink(at, b"l", b"d", &root()).unwrap();
    assert_eq!(tx.readlink(link.inode).unwrap(), b"d");
    tx.link(link.inode, at, b"m").unwrap();
    assert_eq!(tx.getattr(link.inode).unwrap().links, 2);
    tx.commit(Durability::Soon).unwrap();
    assert_eq!(names(&fs), ["d", "l", "m"]);
    let l = fs.lookup(fs.root(), b"l").unwrap();
    assert_eq!((l.links, fs.readlink(l.inode).unwrap()), (2, b"d".to_vec()));
}

/// What was allowed may be forbidden meanwhile: that is a conflict, and nothing has happened.
#[test]
fn what_is_forbidden_meanwhile_is_a_conflict() {
    let (_rig, fs) = new();
    let make = |name: &[u8], at: u64| fs.mkdir(at, name, 0o755, &root()).unwrap().inode;
    let (d, e) = (make(b"d", fs.root()), make(b"e", fs.root()));
    let f = make(b"f", e);
    let mark = |inode, on: bool| {
        let flags = if on { (ondisk::znode::FLAG_IMMUTABLE, 0) } else { (0, ondisk::znode::FLAG_IMMUTABLE) };
        fs.setattr(inode, &SetAttributes { flags: Some(flags), ..SetAttributes::default() }, &root()).unwrap();
    };
    let mut tx = fs.begin().unwrap();
    tx.create(d, b"n", 0o100_644, 0, &root()).unwrap();
    mark(d, true);
    assert_eq!(kind(tx.commit(Durability::Soon)), ErrorKind::Conflict);
    mark(d, false);
    // Two moves that would make a circle.
    let mut tx = fs.begin().unwrap();
    let at = tx.root();
    tx.rename(at, b"d", f, b"d", RenameMode::Replace).unwrap();
    fs.rename(fs.root(), b"e", d, b"e", RenameMode::Replace).unwrap();
    assert_eq!(kind(tx.commit(Durability::Soon)), ErrorKind::Conflict);
    // The directory is gone.
    let mut tx = fs.begin().unwrap();
    tx.create(f, b"n", 0o100_644, 0, &root()).unwrap();
    fs.rmdir(e, b"f").unwrap();
    assert!(matches!(kind(tx.commit(Durability::Soon)), ErrorKind::Conflict | ErrorKind::NotFound));
    assert!(fs.objset().context().groups.failure().is_none());
}

/// A reader that was kept waiting between two files saw one as it was before a commit and the other as it was after it, and only its own commit
/// would have told (found by the next test, on a busy machine).
#[test]
fn what_was_never_there_together_is_not_seen() {
    let (_rig, fs) = new();
    let [a, b, c] = ["a", "b", "c"].map(|name| file(&fs, name, b"old"));
    let change = |files: &[crate::InodeNumber], names: &[&[u8]]| {
        let change = |tx: &mut Transaction| {
            files.iter().try_for_each(|inode| tx.write(*inode, 0, b"new"))?;
            let at = tx.root();
            names.iter().try_for_each(|name| tx.create(at, name, 0o100_644, 0, &root()).map(drop))
        };
        fs.transaction(Durability::Soon, change).unwrap();
    };
    let mut tx = fs.begin().unwrap();
    assert_eq!(tx.read(a, 0, 3).unwrap(), b"old");
    change(&[a, b], &[]);
    assert_eq!(kind(tx.read(b, 0, 3)), ErrorKind::Conflict);
    // Names, too.
    let mut tx = fs.begin().unwrap();
    let at = tx.root();
    assert_eq!(kind(tx.lookup(at, b"x")), ErrorKind::NotFound);
    change(&[], &[b"x", b"y"]);
    assert_eq!(kind(tx.lookup(at, b"y")), ErrorKind::Conflict);
    // Or a file and a name.
    let mut tx = fs.begin().unwrap();
    assert_eq!(tx.read(a, 0, 3).unwrap(), b"new");
    change(&[a], &[b"z"]);
    assert_eq!(kind(tx.lookup(at, b"z")), ErrorKind::Conflict);
    // What others do elsewhere does not matter, and is seen.
    let mut tx = fs.begin().unwrap();
    tx.write(a, 0, b"our").unwrap();
    change(&[c], &[b"other"]);
    assert_eq!(tx.read(c, 0, 3).unwrap(), b"new");
    assert!(tx.lookup(at, b"other").is_ok());
    tx.commit(Durability::Soon).unwrap();
    assert_eq!(fs.read(a, 0, 3).unwrap(), b"our");
}

/// Two threads count in two files, others look: no count is lost, and nobody ever sees the two differ.
#[test]
#[allow(clippy::disallowed_methods)] // what is tested is what threads do to each other
fn counts_are_not_lost_and_not_seen_by_halves() {
    const ROUNDS: u64 = 60;
    let (_rig, fs) = new();
    let (a, b) = (file(&fs, "a", &[0; 8]), file(&fs, "b", &[0; 8]));
    let (over, looks) = (AtomicBool::new(false), AtomicU64::new(0));
    let number = |bytes: Vec<u8>| u64::from_le_bytes(bytes.try_into().unwrap());
    let retry = |body: &dyn Fn(&mut Transaction) -> Result<()>| loop {
        match fs.transaction(Durability::Soon, body) {
            Err(error) if error.kind() == ErrorKind::Conflict => std::thread::yield_now(),
            other => return other.unwrap(),
        }
    };
    std::thread::scope(|scope| {
        let counters: Vec<_> = (0..2)
            .map(|_| {
                scope.spawn(|| {
                    for _ in 0..ROUNDS {
                        retry(&|tx| {
                            for inode in [a, b] {
                                let next = number(tx.read(inode, 0, 8)?) + 1;
                                tx.write(inode, 0, &next.to_le_bytes())?;
                            }
                            Ok(())
                        });
                    }
                })
            })
            .collect();
        scope.spawn(|| {
            // At least once, however late this thread begins.
            let mut more = true;
            while more {
                more = !over.load(Ordering::Relaxed);
                retry(&|tx| {
                    let (one, two) = (number(tx.read(a, 0, 8)?), number(tx.read(b, 0, 8)?));
                    assert_eq!(one, two, "a half of a transaction");
                    looks.fetch_add(1, Ordering::Relaxed);
                    Ok(())
                });
            }
        });
        counters.into_iter().for_each(|counter| counter.join().unwrap());
        over.store(true, Ordering::Relaxed);
    });
    assert_eq!(number(fs.read(a, 0, 8).unwrap()), 2 * ROUNDS);
    assert!(looks.into_inner() > 0);
}

/// The one way to stop in the middle of a commit is to stop the pool: half of a transaction must not reach the disk.
#[test]
fn a_change_that_cannot_be_done_stops_the_pool() {
    let (_rig, fs) = new();
    let mut tx = fs.begin().unwrap();
    let at = tx.root();
    tx.create(at, b"first", 0o100_644, 0, &root()).unwrap();
    tx.create(at, b"second", 0o100_644, 0, &root()).unwrap();
    tx.fail_at = Some(1);
    let error = tx.commit(Durability::Soon).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Suspended);
    assert!(fs.objset().context().groups.failure().is_some());
    assert_eq!(kind(fs.mkdir(fs.root(), b"later", 0o755, &root())), ErrorKind::Suspended);
}

/// Found by the crash explorer: the commit wanted to remove an attribute that the file had never had outside of the transaction, could
/// not, and the pool was stopped for it.
#[test]
fn an_attribute_that_was_set_and_removed_was_never_there() {
    let (_rig, fs) = new();
    let inode = file(&fs, "f", b"x");
    fs.setxattr(inode, b"user.old", b"1", XattrMode::Any).unwrap();
    let mut tx = fs.begin().unwrap();
    for name in [&b"user.new"[..], b"user.old"] {
        tx.setxattr(inode, name, b"2", XattrMode::Any).unwrap();
        tx.removexattr(inode, name).unwrap();
        assert_eq!(kind(tx.getxattr(inode, name)), ErrorKind::NoAttribute);
        assert_eq!(kind(tx.removexattr(inode, name)), ErrorKind::NoAttribute);
    }
    tx.setxattr(inode, b"user.other", b"3", XattrMode::Any).unwrap();
    tx.commit(Durability::Soon).unwrap();
    assert_eq!(fs.listxattr(inode).unwrap(), [b"user.other"]);
}

/// It was promised two blocks for each file, however many were touched: more was written than there was room for.
#[test]
fn room_is_asked_for_every_block_that_is_touched() {
    let (_rig, fs) = new();
    let record = fs.objset().settings().record_bytes;
    let inode = file(&fs, "a", &vec![1; 50 * record as usize]);
    let mut tx = fs.begin().unwrap();
    for number in 0..50 {
        tx.write(inode, number * record + 7, b"x").unwrap();
        tx.write(inode, number * record + record / 2, b"x").unwrap();
    }
    assert!(tx.room() >= 50 * record, "{}", tx.room());
    assert!(tx.room() < 60 * record, "{}", tx.room());
}

/// A commit that could not be done, although nothing had been refused before, stopped the pool.
fn commits_or_is_refused(fs: &Arc<FileSystem>, expected: ErrorKind, body: impl FnOnce(&mut Transaction) -> Result<()>) {
    assert_eq!(kind(fs.transaction(Durability::Soon, body)), expected);
    fs.transaction(Durability::Soon, |tx| tx.create(tx.root(), b"afterwards", 0o100_644, 0, &root()).map(drop)).unwrap();
    fs.unlink(fs.root(), b"afterwards").unwrap();
}

#[test]
fn two_spellings_of_one_name_do_not_stop_the_pool() {
    let new = NewFileSystem { case: 1, ..NewFileSystem::default() };
    let (_rig, fs) = Rig::new(&new, ObjsetSettings::dataset_default(true));
    let fs = Arc::new(fs);
    let refused = fs.transaction(Durability::Soon, |tx| {
        let at = tx.root();
        tx.create(at, b"name", 0o100_644, 0, &root())?;
        tx.create(at, b"NAME", 0o100_644, 0, &root()).map(drop)
    });
    assert_eq!(kind(refused), ErrorKind::NotSupported);
    file(&fs, "afterwards", b"x");
}

#[test]
fn what_is_new_comes_into_no_other_project() {
    let (_rig, fs) = new();
    let project = fs.mkdir(fs.root(), b"project", 0o755, &root()).unwrap().inode;
    let mark = SetAttributes { project: Some(7), flags: Some((ondisk::znode::FLAG_PROJECT_INHERIT, 0)), ..SetAttributes::default() };
    fs.setattr(project, &mark, &root()).unwrap();
    file(&fs, "old", b"x");
    commits_or_is_refused(&fs, ErrorKind::CrossDevice, |tx| {
        let at = tx.root();
        tx.create(at, b"new", 0o100_644, 0, &root())?;
        tx.rename(at, b"new", project, b"new", RenameMode::Replace)
    });
    commits_or_is_refused(&fs, ErrorKind::CrossDevice, |tx| {
        let made = tx.create(tx.root(), b"new", 0o100_644, 0, &root())?.inode;
        tx.link(made, project, b"new").map(drop)
    });
    commits_or_is_refused(&fs, ErrorKind::CrossDevice, |tx| {
        let inside = tx.mkdir(project, b"inside", 0o755, &root())?.inode;
        tx.rename(tx.root(), b"old", inside, b"old", RenameMode::Replace)
    });
    // What was made inside may move there.
    fs.transaction(Durability::Soon, |tx| {
        let inside = tx.mkdir(project, b"inside", 0o755, &root())?.inode;
        assert_eq!(tx.create(project, b"new", 0o100_644, 0, &root())?.project, 7);
        tx.rename(project, b"new", inside, b"new", RenameMode::Replace)
    })
    .unwrap();
    let inside = fs.lookup(project, b"inside").unwrap();
    assert_eq!((inside.project, fs.lookup(inside.inode, b"new").unwrap().project), (7, 7));
}

#[test]
fn a_list_that_stays_does_not_stop_the_pool() {
    use ondisk::acl::{self, AccessEntry};
    let (_rig, fs) = new();
    let old = file(&fs, "old", b"x");
    let directory = fs.mkdir(fs.root(), b"d", 0o755, &root()).unwrap().inode;
    for inode in [old, directory] {
        let inode = fs.inode(inode).unwrap();
        let mode = inode.stat().unwrap().mode;
        let mut entries = acl::trivial(mode.into(), false);
        let flags = acl::FILE_INHERIT | acl::DIRECTORY_INHERIT;
        entries.insert(0, AccessEntry { kind: acl::ALLOW, flags, mask: 1, who: 1000, object_types: None });
        let tx = engine::dmu::OpenTx::assign(&fs.membership, 1 << 20).unwrap();
        set_acl(&fs.files, &mut inode.edit(&tx), mode, &entries).unwrap();
    }
    let acl_rules = crate::zpl::AclRules { mode: acl::ModeRule::Restricted, ..Default::default() };
    fs.set_options(crate::zpl::MountOptions { acl_rules, ..fs.options() });
    let set = SetAttributes { mode: Some(0o600), ..SetAttributes::default() };
    commits_or_is_refused(&fs, ErrorKind::Denied, |tx| tx.setattr(old, &set).map(drop));
    fs.transaction(Durability::Soon, |tx| {
        let made = tx.create(directory, b"new", 0o100_644, 0, &root())?.inode;
        tx.setattr(made, &set).map(drop)
    })
    .unwrap();
    assert_eq!(fs.lookup(directory, b"new").unwrap().mode, 0o100_600);
}

#[test]
fn attributes_in_files_do_not_stop_the_pool() {
    for utf8_only in [false, true] {
        let (_rig, fs) = Rig::new(&NewFileSystem { utf8_only, ..NewFileSystem::default() }, ObjsetSettings::dataset_default(true));
        let fs = Arc::new(fs);
        fs.set_options(crate::zpl::MountOptions { xattr_in_attributes: false, ..fs.options() });
        let inode = file(&fs, "a", b"x");
        fs.transaction(Durability::Soon, |tx| tx.setxattr(inode, b"user.a/b", b"value", XattrMode::Any)).unwrap();
        assert_eq!(fs.getxattr(inode, b"user.a/b").unwrap(), b"value");
        if utf8_only {
            commits_or_is_refused(&fs, ErrorKind::NotText, |tx| tx.setxattr(inode, b"user.\xff", b"value", XattrMode::Any));
        }
    }
}

/// Names of 12 bytes whose hashes share so many bits, whatever the salt: a CRC is linear, so what changes no bit of it alone changes none in a sum.
fn names_of_one_hash(bits: u32, count: usize) -> Vec<Vec<u8>> {
    let flip = |name: &mut [u8; 12], bit: usize| name[bit / 4] ^= 1 << (bit % 4);
    let hash = |name: &[u8]| zap_hash::index(zap_hash::hash_name(1, 0, name), bits);
    let plain = [0x60; 12];
    // Which bits of the hash each bit of the name changes, and which bits of the name were taken together for that.
    let mut rows: Vec<(u64, u64)> = Vec::new();
    let mut kernel = Vec::new();
    for bit in 0..48 {
        let mut name = plain;
        flip(&mut name, bit);
        let (mut changes, mut bits) = (hash(&name) ^ hash(&plain), 1u64 << bit);
        for (other, others) in &rows {
            if changes & (1 << other.ilog2()) != 0 {
                (changes, bits) = (changes ^ other, bits ^ others);
            }
        }
        if changes == 0 { kernel.push(bits) } else { rows.push((changes, bits)) }
    }
    (0..count)
        .map(|number| {
            let bits = kernel.iter().enumerate().filter(|(at, _)| number >> at & 1 == 1).fold(0, |bits, (_, more)| bits ^ more);
            let mut name = plain;
            (0..48).filter(|bit| bits >> bit & 1 == 1).for_each(|bit| flip(&mut name, bit));
            name.to_vec()
        })
        .collect()
}

#[test]
fn names_of_one_hash_are_refused_before_anything_happens() {
    let names = names_of_one_hash(28, 300);
    assert!(names.iter().all(|name| zap_hash::hash_name(77, 0, name) == zap_hash::hash_name(77, 0, &names[0])));
    let (rig, fs) = new();
    let after = |what: &str| {
        // The pool goes on.
        file(&fs, what, b"x");
        rig.sync(&fs.objset);
        assert_eq!(fs.lookup(fs.root(), what.as_bytes()).unwrap().size, 1);
    };
    // In a directory that is there, in one that the same transaction makes, and as extended attributes of a file.
    let mut tx = fs.begin().unwrap();
    let at = tx.root();
    for name in &names {
        tx.create(at, name, 0o100_644, 0, &root()).unwrap();
    }
    assert_eq!(kind(tx.commit(Durability::Soon)), ErrorKind::NoSpace);
    after("1");
    let mut tx = fs.begin().unwrap();
    let made = tx.mkdir(at, b"d", 0o755, &root()).unwrap().inode;
    for name in &names {
        tx.create(made, name, 0o100_644, 0, &root()).unwrap();
    }
    assert_eq!(kind(tx.commit(Durability::Soon)), ErrorKind::NoSpace);
    after("2");
    fs.set_options(crate::zpl::MountOptions { xattr_in_attributes: false, ..fs.options() });
    let mut tx = fs.begin().unwrap();
    let made = tx.create(at, b"f", 0o100_644, 0, &root()).unwrap().inode;
    for name in &names {
        tx.setxattr(made, &[b"user.", name.as_slice()].concat(), b"v", XattrMode::Any).unwrap();
    }
    assert_eq!(kind(tx.commit(Durability::Soon)), ErrorKind::NoSpace);
    after("3");
    assert!(fs.lookup(fs.root(), b"d").is_err() && fs.lookup(fs.root(), b"f").is_err());
    // One by one there is room for some, and a transaction knows of those.
    let fit = names.iter().take_while(|name| fs.create(fs.root(), name, 0o100_644, 0, &root()).is_ok()).count();
    assert!((100..300).contains(&fit), "{fit}");
    let mut tx = fs.begin().unwrap();
    tx.create(at, &names[fit], 0o100_644, 0, &root()).unwrap();
    assert_eq!(kind(tx.commit(Durability::Soon)), ErrorKind::NoSpace);
    after("4");
    // Half of them come in one transaction, into a directory of their own.
    let mut tx = fs.begin().unwrap();
    let made = tx.mkdir(at, b"d", 0o755, &root()).unwrap().inode;
    for name in names.iter().take(100) {
        tx.create(made, name, 0o100_644, 0, &root()).unwrap();
    }
    tx.commit(Durability::Soon).unwrap();
    rig.sync(&fs.objset);
    assert_eq!(fs.getattr(fs.lookup(fs.root(), b"d").unwrap().inode).unwrap().size, 102);
    rig.check();
}

#[test]
fn a_directory_that_cannot_become_a_larger_one_keeps_its_names() {
    let names = names_of_one_hash(16, 1000);
    let (rig, fs) = new();
    let made = names.iter().take_while(|name| fs.create(fs.root(), name, 0o100_644, 0, &root()).is_ok()).count();
    assert!(made >= 100, "{made}");
    // A long name needs the other form of a directory. Whether it finds room or not, the others are there.
    let long = [b'n'; 100];
    let size = 2 + made as u64 + u64::from(fs.create(fs.root(), &long, 0o100_644, 0, &root()).is_ok());
    assert!(names[..made].iter().all(|name| fs.lookup(fs.root(), name).is_ok()));
    assert_eq!(fs.getattr(fs.root()).unwrap().size, size);
    rig.sync(&fs.objset);
    rig.check();
}

/// A view showed the group of its maker, whatever the directory said; and where the transaction itself had said it, so did the files afterwards, as attributes
/// are changed last. (Found by the walk of callers beside ext4, `cli/tests/it/callers`.)
#[test]
fn a_directory_passes_its_group_on_as_it_is_in_the_transaction() {
    let (_rig, fs) = new();
    let joe = Credentials { uid: 7, gid: 7, groups: vec![50], umask: 0o022 };
    let team = fs.mkdir(fs.root(), b"team", 0o775, &root()).unwrap().inode;
    let shared = SetAttributes { mode: Some(0o2775), gid: Some(50), ..SetAttributes::default() };
    fs.setattr(team, &shared, &root()).unwrap();
    let alone = fs.mkdir(fs.root(), b"alone", 0o775, &root()).unwrap().inode;
    fs.setattr(alone, &shared, &root()).unwrap();

    let mut tx = fs.begin().unwrap();
    let at = tx.root();
    let new = tx.mkdir(at, b"new", 0o775, &joe).unwrap().inode;
    tx.setattr(new, &shared).unwrap();
    tx.setattr(alone, &SetAttributes { mode: Some(0o775), ..SetAttributes::default() }).unwrap();
    let mut expected = Vec::new();
    for (directory, gid, passed) in [(team, 50, 0o2000), (new, 50, 0o2000), (alone, 7, 0)] {
        let file = tx.create(directory, b"program", 0o102_755, 0, &joe).unwrap();
        let inner = tx.mkdir(directory, b"inner", 0o775, &joe).unwrap();
        let link = tx.symlink(directory, b"link", b"to", &joe).unwrap();
        let deep = tx.create(inner.inode, b"deep", 0o100_644, 0, &joe).unwrap();
        assert_eq!((file.gid, file.mode & 0o7777, link.gid, deep.gid), (gid, 0o2755, gid, gid));
        assert_eq!((inner.gid, inner.mode & 0o7777), (gid, 0o755 | passed));
        let name = tx.list(at).unwrap().into_iter().find(|entry| entry.node == directory).unwrap().name;
        expected.push((name, [file, inner, link], deep));
    }
    tx.commit(Durability::Soon).unwrap();
    for (name, stats, deep) in expected {
        let directory = fs.lookup(fs.root(), &name).unwrap().inode;
        for (entry, stat) in ["program", "inner", "link"].into_iter().zip(stats) {
            let now = fs.lookup(directory, entry.as_bytes()).unwrap();
            assert_eq!((now.mode, now.uid, now.gid), (stat.mode, stat.uid, stat.gid), "{entry} in {}", String::from_utf8_lossy(&name));
            if entry == "inner" {
                assert_eq!(fs.lookup(now.inode, b"deep").unwrap().gid, deep.gid);
            }
        }
    }
}

/// An operation changes several things, one after the other (a rename, the replaced file's links, names, the moved file's parent), and a caller that looked at a file for
/// the first time saw it in the middle of one. The commit found that, but until then the program had seen what never was.
#[test]
fn a_file_is_not_seen_in_the_middle_of_an_operation() {
    let (_rig, fs) = new();
    let inode = file(&fs, "a", b"x");
    let (begun, begins) = std::sync::mpsc::channel();
    let (looked, looks) = std::sync::mpsc::channel();
    std::thread::scope(|scope| {
        let fs = &fs;
        scope.spawn(move || {
            let inode = fs.inode(inode).unwrap();
            let tx = engine::dmu::OpenTx::assign(&fs.membership, 1 << 20).unwrap();
            let set_links = |links: u64| inode.edit(&tx).set(&[(ondisk::sa::Attribute::Links, &links.to_le_bytes())]).unwrap();
            set_links(7);
            begun.send(()).unwrap();
            // A caller that looks now either waits for the end of this, or is answered at once.
            let _ = looks.recv_timeout(std::time::Duration::from_millis(500));
            set_links(1);
        });
        begins.recv().unwrap();
        let mut tx = fs.begin().unwrap();
        let seen = tx.getattr(inode).map(|stat| stat.links);
        let _ = looked.send(());
        assert_eq!(seen.unwrap(), 1, "never was a file of seven names");
    });
}
