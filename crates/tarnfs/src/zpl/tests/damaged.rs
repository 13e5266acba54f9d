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
