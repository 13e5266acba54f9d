//! Directories and files of which something is damaged.

use super::*;

/// A damaged link count made reading a directory free the file: its contents were lost, and its name led to the next file of that number.
#[test]
fn to_look_at_a_file_whose_links_are_damaged_does_not_free_it() {
    let (rig, fs) = new();
    let directory = fs.mkdir(fs.root(), b"d", 0o755, &root()).unwrap().inode;
    let inode = fs.create(directory, b"a", 0o100_644, 0, &root()).unwrap().inode;
    fs.write(inode, WriteMode::At(0), &[1; 10_000], &root()).unwrap();
    fs.forget(inode, 1);
    let held = fs.inode(inode).unwrap();
    let tx = OpenTx::assign(&fs.membership, 1 << 20).unwrap();
    held.edit(&tx).set(&[(Attribute::Links, &0u64.to_le_bytes())]).unwrap();
    drop(tx);
    held.leave();
    let again = rig.reopen_synced(&fs);
    assert_eq!(again.lookup(directory, b"a").unwrap_err().kind(), ErrorKind::Stale);
    assert_eq!(again.lookup_inode(inode).unwrap_err().kind(), ErrorKind::Stale);
    let again = rig.reopen_synced(&again);
    let held = again.inode_even_unlinked(inode).unwrap();
    assert_eq!(held.word(Attribute::Size).unwrap(), 10_000);
    held.leave();
    rig.check();
}

/// One entry that cannot be told hid those before it that were read together with it.
#[test]
fn a_directory_is_listed_up_to_the_damage() {
    const READ_TOGETHER: usize = 32;
    let mut among_others = 0;
    for salt in [1, 3, 5] {
        let (_rig, fs) = new();
        let directory = fs.mkdir_salted(fs.root(), b"d", 0o755, &root(), salt).unwrap().inode;
        for number in 0..100 {
            fs.create(directory, format!("{number}").as_bytes(), 0o100_644, 0, &root()).unwrap();
        }
        let zap = fs.inode(directory).unwrap().directory_zap().unwrap();
        let tx = OpenTx::assign(&fs.membership, 1 << 20).unwrap();
        zap.add(&tx, b"no/name", engine::zap::Integers::U64(&[2])).unwrap();
        drop(tx);
        let before: Vec<Vec<u8>> = zap.entries().unwrap().into_iter().map(|entry| entry.name).take_while(|name| name != b"no/name").collect();
        among_others += before.len() % READ_TOGETHER;
        let (mut names, mut next) = (Vec::new(), 2);
        let mut list = |from: u64| {
            fs.read_directory(directory, from, &mut |entry| {
                names.push(entry.name);
                next = entry.next;
                true
            })
        };
        assert_eq!(list(2).unwrap_err().kind(), ErrorKind::Corrupt);
        assert_eq!(names, before);
        // The next call meets it first.
        assert_eq!(fs.read_directory(directory, next, &mut |_| true).unwrap_err().kind(), ErrorKind::Corrupt);
    }
    assert_ne!(among_others, 0, "the entry was not the first of those that are read together");
}
