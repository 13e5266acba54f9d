//! Operations on names, of which any read may fail: each is done whole or not at all.

use engine::error::Result;
use ondisk::zap_leaf;

use super::*;

/// Names enough for a directory of several leaves.
const NAMES: usize = 300;

/// What there is: each directory with its size and links, each name with what it names and how many names that has; files without one.
fn state(fs: &FileSystem) -> Vec<String> {
    let mut lines = Vec::new();
    let mut directories = vec![(String::new(), fs.root())];
    while let Some((path, directory)) = directories.pop() {
        let stat = fs.getattr(directory).unwrap();
        lines.push(format!("{path}/ {} {}", stat.size, stat.links));
        fs.read_directory(directory, 2, &mut |entry| {
            let path = format!("{path}/{}", String::from_utf8_lossy(&entry.name));
            let stat = fs.getattr(entry.inode).expect("a name leads to a file");
            if entry.kind == FileKind::Directory {
                directories.push((path.clone(), entry.inode));
            }
            lines.push(format!("{path} {} {}", entry.inode, stat.links));
            true
        })
        .unwrap();
    }
    lines.extend(fs.left_behind().unwrap().iter().map(|object| format!("without a name: {object}")));
    lines.sort();
    lines
}

fn name(number: usize) -> Vec<u8> {
    format!("{number:050}").into_bytes()
}

type Operation = fn(&FileSystem, &[InodeNumber; 2]) -> Result<()>;

const OPERATIONS: [(&str, Operation); 11] = [
    ("create", |fs, [a, _]| {
        let stat = fs.create(*a, b"new", 0o100_644, 0, &root())?;
        fs.forget(stat.inode, 1);
        Ok(())
    }),
    ("mkdir", |fs, [a, _]| {
        let stat = fs.mkdir(*a, b"new", 0o755, &root())?;
        fs.forget(stat.inode, 1);
        Ok(())
    }),
    ("link", |fs, [a, b]| {
        let inode = fs.lookup(*a, &name(7))?.inode;
        fs.forget(inode, 1);
        let stat = fs.link(inode, *b, b"new")?;
        fs.forget(stat.inode, 1);
        Ok(())
    }),
    ("unlink", |fs, [a, _]| fs.unlink(*a, &name(8))),
    ("unlink one of two", |fs, [a, _]| fs.unlink(*a, b"second")),
    ("rmdir", |fs, [a, _]| fs.rmdir(*a, b"empty")),
    ("rename", |fs, [a, b]| fs.rename(*a, &name(9), *b, b"new", RenameMode::Replace)),
    ("rename over", |fs, [a, b]| fs.rename(*a, &name(10), *b, &name(NAMES + 10), RenameMode::Replace)),
    ("rename a directory over", |fs, [a, b]| fs.rename(*a, b"empty", *b, b"empty", RenameMode::Replace)),
    ("exchange", |fs, [a, b]| fs.rename(*a, &name(11), *b, b"empty", RenameMode::Exchange)),
    ("whiteout", |fs, [a, b]| fs.rename_leaving(*a, &name(12), *b, &name(NAMES + 12), RenameMode::Replace, Some(&root()))),
];

fn prepared() -> (Rig, [InodeNumber; 2]) {
    let (rig, fs) = new();
    let directories = ["a", "b"].map(|name| fs.mkdir(fs.root(), name.as_bytes(), 0o755, &root()).unwrap().inode);
    let [a, b] = directories;
    for number in 0..NAMES {
        fs.create(a, &name(number), 0o100_644, 0, &root()).unwrap();
        fs.create(b, &name(NAMES + number), 0o100_644, 0, &root()).unwrap();
    }
    fs.link(fs.lookup(a, &name(1)).unwrap().inode, a, b"second").unwrap();
    for directory in directories {
        fs.mkdir(directory, b"empty", 0o755, &root()).unwrap();
    }
    rig.sync(fs.objset());
    (rig, directories)
}

/// One block of the delete queue could not be read, say: the name was gone and the file had no place in the queue, or it had
/// a new name and kept the old one.
#[test]
fn an_operation_on_names_is_done_whole_or_not_at_all_whatever_cannot_be_read() {
    assert!(NAMES * 5 > 2 * zap_leaf::chunk_count(14), "several leaves");
    for (what, operation) in OPERATIONS {
        let (mut failed, mut nth) = (0, 0);
        loop {
            // The first reads are those of the files themselves; to make an object reads many more.
            nth += if nth < 4 { 1 } else { 1 + nth / 8 };
            let (rig, directories) = prepared();
            let before = state(&rig.reopen());
            // Nothing stays in memory for longer than it is used.
            let fs = rig.reopen();
            let crowd = rig.context.cache.hold(1 << 40);
            rig.context.cache.set_limit(0);
            rig.disk.faults.fail_reads_from(nth);
            let reads = rig.disk.faults.reads();
            let result = operation(&fs, &directories);
            let was_hit = rig.disk.faults.reads() >= reads + nth;
            rig.disk.faults.break_reads(false);
            drop(crowd);
            rig.context.cache.set_limit(4 << 20);
            assert!(rig.context.groups.failure().is_none(), "{what}, read {nth}: the pool stopped");
            if result.is_err() {
                failed += 1;
                assert_eq!(state(&fs), before, "{what}, read {nth}: {result:?}");
                operation(&fs, &directories).unwrap_or_else(|error| panic!("{what}, after read {nth} had failed: {error}"));
            }
            let after = state(&fs);
            assert_ne!(after, before, "{what}, read {nth}");
            rig.sync(fs.objset());
            drop(fs);
            assert_eq!(state(&rig.reopen()), after, "{what}, read {nth}");
            rig.check();
            if !was_hit {
                break;
            }
        }
        assert!(failed > 1, "{what}: {failed} reads failed");
    }
}
