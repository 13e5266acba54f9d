//! The operations, asked as the kernel asks them, without a mount.

use fuse::protocol::InitFlags;
use fuse::{
    Attr, Context, DirectoryWriter, Entry, Errno, Fallocate, Filesystem, Negotiated, OpenedFlags, Read, Result, SetAttr, SetTime, Timestamp,
    Write, WriteFlags,
};

use super::contents::CHUNK;
use super::memory::MemoryFs;

const ROOT: u64 = fuse::ROOT_NODE;
const LIMIT: u64 = 8 << 20;
const USER: Context = Context { unique: 1, uid: 7, gid: 8, pid: 9, other_group: None };

fn filesystem() -> MemoryFs {
    let filesystem = MemoryFs::new(LIMIT, LIMIT / 4, false);
    filesystem.init(&Negotiated { minor: 45, flags: InitFlags::empty(), max_write: 1 << 20 });
    filesystem
}

fn file(filesystem: &MemoryFs, parent: u64, name: &str) -> u64 {
    filesystem.create(&USER, parent, name.as_bytes(), 0o644, 0, libc::O_RDWR as u32).unwrap().entry.node
}

fn directory(filesystem: &MemoryFs, parent: u64, name: &str) -> u64 {
    filesystem.mkdir(&USER, parent, name.as_bytes(), 0o755, 0).unwrap().node
}

fn write(filesystem: &MemoryFs, node: u64, offset: u64, data: &[u8]) -> Result<usize> {
    filesystem.write(&USER, &Write { node, handle: 0, offset, flags: 0, write_flags: WriteFlags::empty() }, data)
}

fn read(filesystem: &MemoryFs, node: u64, offset: u64, len: usize) -> Vec<u8> {
    let mut out = vec![0xee; len];
    let len = filesystem.read(&USER, &Read { node, handle: 0, offset, flags: 0 }, &mut out).unwrap();
    out.truncate(len);
    out
}

fn attr(filesystem: &MemoryFs, node: u64) -> Result<Attr> {
    Ok(filesystem.getattr(&USER, node, None)?.attr)
}

fn find(filesystem: &MemoryFs, parent: u64, name: &str) -> Option<Entry> {
    filesystem.lookup(&USER, parent, name.as_bytes()).ok().filter(|entry| entry.node != 0)
}

fn rename(filesystem: &MemoryFs, (parent, name): (u64, &str), (to, new): (u64, &str), flags: u32) -> Result<()> {
    filesystem.rename(&USER, parent, name.as_bytes(), to, new.as_bytes(), flags)
}

fn used(filesystem: &MemoryFs) -> u64 {
    let space = filesystem.statfs(&USER, ROOT).unwrap();
    (space.blocks - space.blocks_free) * u64::from(space.fragment_size)
}

/// Against a plain row of bytes: places around the ends of chunks, holes, cuts.
#[test]
fn contents_are_what_was_written() {
    let filesystem = filesystem();
    let node = file(&filesystem, ROOT, "file");
    let mut model: Vec<u8> = Vec::new();
    let whole = CHUNK as u64;
    let steps = [(0, 10), (5, 4000), (whole - 3, 6), (3 * whole + 100, CHUNK), (2 * whole, 1), (10, 2 * CHUNK), (4096, 4096), (whole / 4 - 1, 2)];
    for (number, (offset, len)) in steps.into_iter().enumerate() {
        let data: Vec<u8> = (0..len).map(|at| (at * 7 + number) as u8 | 1).collect();
        assert_eq!(write(&filesystem, node, offset, &data).unwrap(), len);
        let end = offset as usize + len;
        model.resize(model.len().max(end), 0);
        model[offset as usize..end].copy_from_slice(&data);
        assert_eq!(read(&filesystem, node, 0, model.len() + 10), model, "write {number}");
        assert_eq!(attr(&filesystem, node).unwrap().size, model.len() as u64);
    }
    for len in [3 * CHUNK + 50, 2 * CHUNK, CHUNK + 1, 3 * CHUNK, 100, 5000] {
        let changes = SetAttr { size: Some(len as u64), ..SetAttr::default() };
        assert_eq!(filesystem.setattr(&USER, node, &changes).unwrap().attr.size, len as u64);
        model.resize(len, 0);
        assert_eq!(read(&filesystem, node, 0, len + 10), model, "cut to {len}");
    }
    assert_eq!(read(&filesystem, node, 4990, 100).len(), 10);
    assert_eq!(read(&filesystem, node, 5000, 100).len(), 0);
}

#[test]
fn space_is_bounded_and_comes_back() {
    let filesystem = filesystem();
    let node = file(&filesystem, ROOT, "large");
    let data = vec![1; CHUNK];
    let full = (0..).map(|number| write(&filesystem, node, number * CHUNK as u64, &data)).take_while(Result::is_ok).count();
    assert_eq!(full as u64, LIMIT / CHUNK as u64);
    let other = file(&filesystem, ROOT, "other");
    assert_eq!(write(&filesystem, other, 0, b"x"), Err(Errno::ENOSPC));
    // What has no room leaves nothing that could be read later.
    assert_eq!((attr(&filesystem, other).unwrap().size, used(&filesystem)), (0, LIMIT));
    assert_eq!(write(&filesystem, node, u64::MAX - 1, b"abc"), Err(Errno::EFBIG));
    filesystem.unlink(&USER, ROOT, b"large").unwrap();
    assert_eq!(used(&filesystem), LIMIT, "the kernel has it open, perhaps");
    filesystem.forget(node, 1);
    assert_eq!((used(&filesystem), attr(&filesystem, node).err()), (0, Some(Errno::ESTALE)));
    assert_eq!(write(&filesystem, other, 0, b"x"), Ok(1));
    assert!(attr(&filesystem, other).unwrap().blocks > 0);
}

#[test]
fn a_file_lives_while_it_has_a_name_or_is_known() {
    let filesystem = filesystem();
    let node = file(&filesystem, ROOT, "first");
    write(&filesystem, node, 0, b"text").unwrap();
    assert_eq!(filesystem.link(&USER, node, ROOT, b"second").unwrap().attr.links, 2);
    assert_eq!(filesystem.link(&USER, node, ROOT, b"second").err(), Some(Errno::EEXIST));
    filesystem.unlink(&USER, ROOT, b"first").unwrap();
    filesystem.forget(node, 2);
    assert_eq!(find(&filesystem, ROOT, "second").unwrap().attr.links, 1, "nobody knows it, but it has a name");
    filesystem.unlink(&USER, ROOT, b"second").unwrap();
    assert_eq!((read(&filesystem, node, 0, 9), attr(&filesystem, node).unwrap().links), (b"text".to_vec(), 0), "unlinked while open");
    assert_eq!(filesystem.unlink(&USER, ROOT, b"second"), Err(Errno::ENOENT));
    filesystem.forget(node, 1);
    assert_eq!(attr(&filesystem, node).err(), Some(Errno::ESTALE));
    let unnamed = filesystem.tmpfile(&USER, ROOT, 0o600, 0, libc::O_RDWR as u32).unwrap().entry;
    assert_eq!((unnamed.attr.links, unnamed.node), (0, node), "the number is free again");
    filesystem.forget(unnamed.node, 1);
    let again = filesystem.mknod(&USER, ROOT, b"fifo", libc::S_IFIFO | 0o600, 0, 0).unwrap();
    assert!(again.node == node && again.generation > unnamed.generation, "and its next bearer is told from it");
    assert_eq!((again.attr.mode, again.attr.uid, again.attr.gid), (libc::S_IFIFO | 0o600, 7, 8));
}

#[test]
fn directories_and_links() {
    let filesystem = filesystem();
    let outer = directory(&filesystem, ROOT, "outer");
    let inner = directory(&filesystem, outer, "inner");
    assert_eq!((attr(&filesystem, ROOT).unwrap().links, attr(&filesystem, outer).unwrap().links), (3, 3));
    assert_eq!(filesystem.rmdir(&USER, ROOT, b"outer"), Err(Errno::ENOTEMPTY));
    assert_eq!(filesystem.mkdir(&USER, ROOT, b"outer", 0o755, 0).err(), Some(Errno::EEXIST));
    assert_eq!(filesystem.mkdir(&USER, ROOT, &[b'x'; 256], 0o755, 0).err(), Some(Errno::ENAMETOOLONG));
    let link = filesystem.symlink(&USER, inner, b"link", b"../there").unwrap();
    assert_eq!((filesystem.readlink(&USER, link.node).unwrap(), link.attr.size), (b"../there".to_vec(), 8));
    assert!(find(&filesystem, ROOT, "absent").is_none());
    // A listing that goes on where it was full, while a name before that goes.
    for number in 0..40 {
        file(&filesystem, inner, &format!("file-{number}"));
    }
    let (mut space, mut listed, mut from) = (vec![0; 400], 0, 0);
    loop {
        let mut out = DirectoryWriter::new(&mut space);
        filesystem.readdir(&USER, inner, 0, from, &mut out).unwrap();
        let len = out.len();
        if len == 0 {
            break;
        }
        let mut at = 0;
        while at < len {
            let word = |at: usize| u64::from_le_bytes(*space[at..].first_chunk().unwrap());
            from = word(at + 8);
            at += 24 + (word(at + 16) as u32 as usize).next_multiple_of(8);
            listed += 1;
        }
        let _ = filesystem.unlink(&USER, inner, b"file-0");
    }
    assert_eq!(listed, 43, "itself, the one above, a link, 40 files");
    filesystem.unlink(&USER, inner, b"link").unwrap();
    (1..40).for_each(|number| filesystem.unlink(&USER, inner, format!("file-{number}").as_bytes()).unwrap());
    filesystem.rmdir(&USER, outer, b"inner").unwrap();
    assert_eq!((attr(&filesystem, inner).unwrap().links, attr(&filesystem, outer).unwrap().links), (0, 2));
}

#[test]
fn renames() {
    let filesystem = filesystem();
    let (one, two) = (directory(&filesystem, ROOT, "one"), directory(&filesystem, ROOT, "two"));
    let (a, b) = (file(&filesystem, one, "a"), file(&filesystem, two, "b"));
    let below = directory(&filesystem, one, "below");
    let number = |parent, name| find(&filesystem, parent, name).map(|entry| entry.node);
    assert_eq!(rename(&filesystem, (one, "a"), (two, "b"), libc::RENAME_NOREPLACE), Err(Errno::EEXIST));
    rename(&filesystem, (one, "a"), (two, "b"), libc::RENAME_EXCHANGE).unwrap();
    assert_eq!((number(one, "a"), number(two, "b")), (Some(b), Some(a)));
    rename(&filesystem, (two, "b"), (one, "a"), 0).unwrap();
    assert_eq!((number(one, "a"), number(two, "b"), attr(&filesystem, b).unwrap().links), (Some(a), None, 0));
    rename(&filesystem, (one, "a"), (one, "c"), 0).unwrap();
    assert_eq!((number(one, "a"), number(one, "c")), (None, Some(a)));
    rename(&filesystem, (one, "below"), (two, "below"), 0).unwrap();
    assert_eq!((attr(&filesystem, one).unwrap().links, attr(&filesystem, two).unwrap().links, number(two, "below")), (2, 3, Some(below)));
    // Another name of the same file: nothing happens.
    filesystem.link(&USER, a, two, b"also").unwrap();
    rename(&filesystem, (one, "c"), (two, "also"), 0).unwrap();
    assert_eq!((number(one, "c"), number(two, "also")), (Some(a), Some(a)));
    assert_eq!(rename(&filesystem, (one, "absent"), (two, "x"), 0), Err(Errno::ENOENT));
    assert_eq!(rename(&filesystem, (one, "c"), (two, "x"), libc::RENAME_WHITEOUT), Err(Errno::EINVAL));
    let full = directory(&filesystem, ROOT, "full");
    file(&filesystem, full, "x");
    assert_eq!(rename(&filesystem, (two, "below"), (ROOT, "full"), 0), Err(Errno::ENOTEMPTY));
    assert_eq!(number(two, "below"), Some(below), "and nothing of it was done");
    filesystem.unlink(&USER, full, b"x").unwrap();
    rename(&filesystem, (two, "below"), (ROOT, "full"), 0).unwrap();
    assert_eq!((number(ROOT, "full"), attr(&filesystem, ROOT).unwrap().links, attr(&filesystem, two).unwrap().links), (Some(below), 5, 2));
}

#[test]
fn attributes_and_set_ids() {
    let filesystem = filesystem();
    let node = file(&filesystem, ROOT, "file");
    let at = Timestamp { seconds: -5, nanoseconds: 6 };
    let changes = SetAttr { mode: Some(0o6755), mtime: Some(SetTime::At(at)), ..SetAttr::default() };
    let attr = filesystem.setattr(&USER, node, &changes).unwrap().attr;
    assert_eq!((attr.mode, attr.mtime), (libc::S_IFREG | 0o6755, at));
    write(&filesystem, node, 0, b"x").unwrap();
    assert_eq!(self::attr(&filesystem, node).unwrap().mode & 0o7777, 0o6755, "the kernel says when they must go");
    let kills = Write { node, handle: 0, offset: 0, flags: 0, write_flags: WriteFlags::KILL_SUIDGID };
    filesystem.write(&USER, &kills, b"y").unwrap();
    let after = self::attr(&filesystem, node).unwrap();
    assert!(after.mode & 0o7777 == 0o755 && after.mtime > at);
    assert_eq!(filesystem.getxattr(&USER, node, b"security.capability", &mut []), Err(Errno::ENODATA));
    let fallocate = Fallocate { handle: 0, offset: 100, length: 50, mode: 0 };
    filesystem.fallocate(&USER, node, &fallocate).unwrap();
    assert_eq!(self::attr(&filesystem, node).unwrap().size, 150);
    let punch = Fallocate { mode: (libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE) as u32, ..fallocate };
    assert_eq!(filesystem.fallocate(&USER, node, &punch), Err(Errno::EOPNOTSUPP));
}

/// As the daemon does it.
#[test]
fn durable_and_poured_files_go_past_the_cache() {
    let filesystem = filesystem();
    let (full, empty) = (file(&filesystem, ROOT, "full"), file(&filesystem, ROOT, "empty"));
    write(&filesystem, full, 0, b"x").unwrap();
    let is_direct = |node, flags: i32| filesystem.open(&USER, node, flags as u32, false).unwrap().flags.contains(OpenedFlags::DIRECT_IO);
    assert!(is_direct(full, libc::O_RDWR | libc::O_DSYNC) && is_direct(empty, libc::O_WRONLY));
    assert!(!is_direct(full, libc::O_WRONLY) && !is_direct(full, libc::O_RDONLY | libc::O_DSYNC) && !is_direct(empty, libc::O_RDWR));
    assert!(is_direct(full, libc::O_WRONLY | libc::O_TRUNC), "it is empty then");
    assert_eq!(attr(&filesystem, full).unwrap().size, 0);
    let created = |name: &[u8], flags: i32| filesystem.create(&USER, ROOT, name, 0o644, 0, flags as u32).unwrap().opened.flags;
    assert!(created(b"poured", libc::O_WRONLY).contains(OpenedFlags::DIRECT_IO | OpenedFlags::KEEP_CACHE | OpenedFlags::NO_FLUSH));
    assert!(!created(b"new", libc::O_WRONLY | libc::O_EXCL).contains(OpenedFlags::DIRECT_IO), "it will be read soon");
    // With a write-back cache the kernel keeps the times, which direct writes would not change.
    filesystem.init(&Negotiated { minor: 45, flags: InitFlags::WRITEBACK_CACHE, max_write: 1 << 20 });
    assert!(!is_direct(empty, libc::O_WRONLY));
}
