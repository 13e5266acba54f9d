//! Lines of versions in pools that the real OpenZFS made: clones, promotions there and back, rollbacks. Every version of every dataset is read
//! before and after, and the checker and the real `zdb` judge each step.

use std::collections::BTreeMap;
use std::sync::Arc;

use sim::places;
use sim::scenario::{Rig, contents};
use tarnfs::{Credentials, ErrorKind, FileKind, FileSystem, InodeNumber, Pool, WriteMode};

/// Paths, with the size and a digest of what is there.
type Tree = BTreeMap<String, (u64, u64)>;

fn digest(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |sum, byte| (sum ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3))
}

fn walk(fs: &FileSystem, directory: InodeNumber, path: &str, tree: &mut Tree) {
    let mut entries = Vec::new();
    let list = fs.read_directory(directory, 0, &mut |entry| {
        entries.push((String::from_utf8_lossy(&entry.name).into_owned(), entry.inode, entry.kind));
        true
    });
    list.unwrap_or_else(|error| panic!("{path}: {error}"));
    for (name, inode, kind) in entries.into_iter().filter(|(name, ..)| name != "." && name != "..") {
        let path = format!("{path}/{name}");
        match kind {
            FileKind::Directory => walk(fs, inode, &path, tree),
            FileKind::Regular => {
                let size = fs.getattr(inode).unwrap_or_else(|error| panic!("{path}: {error}")).size;
                let data = fs.read(inode, 0, size.min(1 << 20) as usize).unwrap_or_else(|error| panic!("{path}: {error}"));
                tree.insert(path, (size, digest(&data)));
            }
            _ => drop(tree.insert(path, (0, 0))),
        }
    }
}

fn tree(pool: &Pool, name: &str) -> Tree {
    let fs = pool.file_system(name).unwrap_or_else(|error| panic!("{name}: {error}"));
    let mut tree = Tree::new();
    walk(&fs, fs.root(), "", &mut tree);
    tree
}

/// Every snapshot that is a file system's, by its guid, with its name and contents.
fn snapshots(pool: &Pool) -> BTreeMap<u64, (String, Tree)> {
    let dsl = &pool.engine().dsl;
    let (mut found, mut waiting) = (BTreeMap::new(), vec![dsl.root_dir().unwrap()]);
    while let Some(dir) = waiting.pop() {
        waiting.extend(dsl.children(&dir).unwrap().into_iter().map(|(_, child)| child));
        let head = dsl.open_dataset(&dir.full_name()).unwrap();
        if dir.crypto_key != 0 || pool.file_system(&dir.full_name()).is_err() {
            continue;
        }
        for (name, object) in head.snapshots().unwrap() {
            let full = format!("{}@{name}", dir.full_name());
            let guid = dsl.dataset(object).unwrap().phys().guid.get();
            found.insert(guid, (full.clone(), tree(pool, &full)));
        }
    }
    found
}

fn same(before: &BTreeMap<u64, (String, Tree)>, after: &BTreeMap<u64, (String, Tree)>, when: &str) {
    for (guid, (name, tree)) in before {
        let (now, found) = after.get(guid).unwrap_or_else(|| panic!("{when}: {name} is gone"));
        assert!(tree == found, "{when}: {name}, now {now}, has other contents");
    }
}

fn write(fs: &Arc<FileSystem>, name: &str, seed: u64, bytes: usize) {
    let user = Credentials::root();
    let file = fs.create(fs.root(), name.as_bytes(), 0o100_644, 0, &user).unwrap().inode;
    fs.write(file, WriteMode::At(0), &contents(seed, bytes, 0), &user).unwrap();
}

/// Removes some, writes over some, adds some.
fn change(pool: &Pool, name: &str, seed: u64) {
    let fs = pool.file_system(name).unwrap();
    let mut files = Vec::new();
    let list = fs.read_directory(fs.root(), 0, &mut |entry| {
        files.push((entry.name.clone(), entry.inode, entry.kind));
        true
    });
    list.unwrap();
    for (number, (file, inode, _)) in files.into_iter().filter(|(.., kind)| *kind == FileKind::Regular).enumerate() {
        match number % 3 {
            0 => fs.unlink(fs.root(), &file).unwrap(),
            1 => drop(fs.write(inode, WriteMode::At(0), &contents(seed, 40_000, 0), &Credentials::root())),
            _ => {}
        }
    }
    write(&fs, &format!("added-{seed}"), seed, 300_000);
    fs.release_all();
}

/// Closes the pool, has it judged, and opens it again.
fn judge(rig: &mut Rig, when: &str) {
    let pool = rig.pool().clone();
    pool.sync().unwrap();
    let report = pool.check(true, &|_| ()).unwrap();
    assert!(report.is_clean(), "{when}: {:?}", report.findings);
    drop(pool);
    rig.export();
    rig.check(when);
    rig.zdb(when, true);
    rig.import();
}

fn golden(name: &str) -> Option<(Rig, String)> {
    let Some(rig) = Rig::golden(name) else {
        places::skipped(&format!("golden pool {name}: not found"));
        return None;
    };
    let pool = rig.pool().name();
    Some((rig, pool))
}

#[test]
fn promotions_there_and_back() {
    let Some((mut rig, name)) = golden("snap") else { return };
    let before = snapshots(rig.pool());
    let name = |dataset: &str| format!("{name}/{dataset}");
    let space = |rig: &Rig, dataset: &str| rig.pool().engine().dsl.open_dataset(dataset).unwrap().dir.space();
    let at_first = [space(&rig, &name("a")), space(&rig, &name("clone"))];
    for round in 0..2 {
        for (clone, old) in [("clone", "a"), ("a", "clone")] {
            let when = format!("{clone} promoted, round {round}");
            change(rig.pool(), &name(clone), round);
            rig.pool().sync().unwrap();
            rig.pool().engine().dsl.promote_dataset(&name(clone)).unwrap_or_else(|error| panic!("{when}: {error}"));
            let origin = rig.pool().engine().dsl.open_dataset(&name(old)).unwrap().origin().unwrap().unwrap();
            assert_eq!(origin.dir.full_name(), name(clone), "{when}");
            drop(origin);
            same(&before, &snapshots(rig.pool()), &when);
            change(rig.pool(), &name(old), 10 + round);
            judge(&mut rig, &when);
            same(&before, &snapshots(rig.pool()), &when);
        }
    }
    // What was written since is theirs; what they were moves with the snapshots.
    let now = [space(&rig, &name("a")), space(&rig, &name("clone"))];
    assert!(now[0].used >= at_first[0].used && now[1].used >= at_first[1].used, "{at_first:?} {now:?}");
    // A clone of a clone, and one with a livelist.
    for clone in ["clone2", "lclone"] {
        rig.pool().engine().dsl.promote_dataset(&name(clone)).unwrap_or_else(|error| panic!("{clone}: {error}"));
        judge(&mut rig, &format!("{clone} promoted"));
        same(&before, &snapshots(rig.pool()), clone);
    }
}

#[test]
fn clones_of_every_snapshot_come_and_go() {
    let Some((mut rig, pool)) = golden("snap") else { return };
    let before = snapshots(rig.pool());
    let mut clones = Vec::new();
    for (number, (snapshot, tree_before)) in before.values().enumerate() {
        let name = format!("{pool}/new-{number}");
        rig.pool().clone_dataset(snapshot, &name, Vec::new()).unwrap_or_else(|error| panic!("{snapshot}: {error}"));
        assert!(tree(rig.pool(), &name) == *tree_before, "{name}: it is not what {snapshot} is");
        change(rig.pool(), &name, number as u64);
        clones.push(name);
    }
    assert!(clones.len() > 5, "{} snapshots", clones.len());
    judge(&mut rig, "clones of all snapshots, written");
    same(&before, &snapshots(rig.pool()), "cloned");
    for name in clones.iter().step_by(2) {
        rig.pool().engine().dsl.promote_dataset(name).unwrap_or_else(|error| panic!("{name}: {error}"));
    }
    judge(&mut rig, "every second one promoted");
    same(&before, &snapshots(rig.pool()), "promoted");
    let refused = rig.pool().destroy_file_system(&clones[0]).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Exists, "{refused}");
    for name in clones.iter().skip(1).step_by(2) {
        rig.pool().destroy_file_system(name).unwrap_or_else(|error| panic!("{name}: {error}"));
    }
    judge(&mut rig, "the others destroyed");
    same(&before, &snapshots(rig.pool()), "destroyed");
}

#[test]
fn rollbacks_of_every_dataset() {
    for golden_name in ["snap", "bclone", "nofeat"] {
        let Some((mut rig, _)) = golden(golden_name) else { continue };
        let before = snapshots(rig.pool());
        let mut rolled_back = 0;
        for round in 0..2 {
            let mut heads: std::collections::BTreeSet<String> = before.values().filter_map(|(name, _)| Some(name.split_once('@')?.0.to_owned())).collect();
            heads.retain(|head| !rig.pool().file_system(head).unwrap().is_read_only());
            for head in &heads {
                change(rig.pool(), head, round);
                if round == 1 {
                    rig.pool().sync().unwrap();
                }
                let in_use = rig.pool().file_system(head).unwrap();
                assert_eq!(rig.pool().roll_back(head, None).unwrap_err().kind(), ErrorKind::Busy);
                drop(in_use);
                rig.pool().roll_back(head, None).unwrap_or_else(|error| panic!("{golden_name}: {head}: {error}"));
                let newest = rig.pool().engine().dsl.open_dataset(head).unwrap().prev().unwrap().name().unwrap();
                assert!(tree(rig.pool(), head) == tree(rig.pool(), &newest), "{golden_name}: {head} is not what {newest} is");
                rolled_back += 1;
            }
            let when = format!("{golden_name}: rolled back, round {round}");
            judge(&mut rig, &when);
            same(&before, &snapshots(rig.pool()), &when);
            for head in &heads {
                change(rig.pool(), head, 20 + round);
            }
            judge(&mut rig, &format!("{when}, and written"));
        }
        places::say(&format!("branch: {golden_name}: {rolled_back} rollbacks"));
        let refused = rig.pool().roll_back(before.values().next().unwrap().0.split_once('@').unwrap().0, Some("none")).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::NotFound);
    }
}
