//! Requests: the kernel's, by FUSE, and those of commands, by the control socket.

use std::time::Duration;

use fuse::dispatch::{Outcome, Request, SMALL_REPLY, handle};
use fuse::protocol::InHeader;
use fuse::{
    Attributes, Context, CopyRange, DirectoryPlusWriter, DirectoryWriter, Entry, EntryKind, Errno, ExtendedAttribute, Filesystem,
    Ioctl, Read, SetAttr, Write,
};
use tarnfs::control::wire::{read_message, write_message};
use tarnfs::control::{PoolScan, Reply};
use zerocopy::{FromBytes, IntoBytes};

/// Uses everything that a request says, and has nothing.
struct Sink;

impl Filesystem for Sink {
    fn lookup(&self, _: &Context, _: u64, name: &[u8]) -> fuse::Result<Entry> {
        assert!(!name.contains(&0));
        Ok(Entry::negative(Duration::from_millis(1)))
    }

    fn setattr(&self, _: &Context, _: u64, changes: &SetAttr) -> fuse::Result<Attributes> {
        let _ = format!("{changes:?}");
        Err(Errno::ENOENT)
    }

    fn symlink(&self, _: &Context, _: u64, name: &[u8], target: &[u8]) -> fuse::Result<Entry> {
        assert!(!name.contains(&0) && !target.contains(&0));
        Err(Errno::EROFS)
    }

    fn rename(&self, _: &Context, _: u64, name: &[u8], _: u64, new_name: &[u8], _: u32) -> fuse::Result<()> {
        assert!(!name.contains(&0) && !new_name.contains(&0));
        Ok(())
    }

    fn read(&self, _: &Context, read: &Read, out: &mut [u8]) -> fuse::Result<usize> {
        out.fill(7);
        Ok(out.len().min(read.offset as usize))
    }

    fn write(&self, _: &Context, _: &Write, data: &[u8]) -> fuse::Result<usize> {
        Ok(data.len())
    }

    fn readdir(&self, _: &Context, _: u64, _: u64, offset: u64, out: &mut DirectoryWriter<'_>) -> fuse::Result<()> {
        while out.push(offset, out.len() as u64, EntryKind(8), b"some name") {}
        Ok(())
    }

    fn readdirplus(&self, _: &Context, _: u64, _: u64, offset: u64, out: &mut DirectoryPlusWriter<'_>) -> fuse::Result<()> {
        let entry = Entry::negative(Duration::ZERO);
        while out.has_room(4) {
            assert!(out.push(offset, b"name", &entry));
        }
        Ok(())
    }

    fn setxattr(&self, _: &Context, _: u64, attribute: &ExtendedAttribute<'_>) -> fuse::Result<()> {
        assert!(!attribute.name.contains(&0) && attribute.value.len() < 1 << 20);
        Ok(())
    }

    fn getxattr(&self, _: &Context, _: u64, name: &[u8], _: &mut [u8]) -> fuse::Result<usize> {
        Ok(name.len())
    }

    fn ioctl(&self, _: &Context, _: u64, ioctl: &Ioctl<'_>, out: &mut [u8]) -> fuse::Result<(i32, usize)> {
        Ok((0, ioctl.input.len().min(out.len())))
    }

    fn copy_file_range(&self, _: &Context, _: u64, copy: &CopyRange) -> fuse::Result<u64> {
        Ok(copy.length)
    }
}

pub(super) fn fuse(bytes: &[u8]) {
    let Ok((header, body)) = InHeader::read_from_prefix(bytes) else { return };
    let Ok(request) = Request::parse(&header, body) else { return };
    let _ = fuse::dispatch::is_heavy(&request);
    let mut out = vec![0; if request.has_long_reply() { 4096 } else { SMALL_REPLY }];
    match handle(&Sink, &request, &mut out) {
        Outcome::Reply(length) => assert!(length <= out.len()),
        Outcome::Error(_) | Outcome::Silent => {}
    }
}

pub(super) fn fuse_seeds() -> Vec<Vec<u8>> {
    let seed = |opcode: u32| {
        let header = InHeader { len: 0, opcode, unique: 7, node: 1, uid: 0, gid: 0, pid: 1, extension_words: 0, padding: 0 };
        let body: Vec<u8> = (0..80u8).map(|n| n % 5).chain(*b"one\0two\0and more of it").collect();
        [header.as_bytes(), &body].concat()
    };
    (1..54).map(seed).collect()
}

pub(super) fn wire(bytes: &[u8]) {
    let mut stream = bytes;
    while let Ok(Some(request)) = read_message::<tarnfs::control::Request>(&mut stream) {
        let mut packed = Vec::new();
        write_message(&mut packed, &request).expect("memory takes all");
        assert_eq!(read_message(&mut packed.as_slice()).ok().flatten(), Some(request));
    }
    let _ = read_message::<Reply>(&mut &*bytes);
}

pub(super) fn wire_seeds() -> Vec<Vec<u8>> {
    use tarnfs::control::Request;
    let requests = [
        Request::Ping,
        Request::Quit,
        Request::PoolScan(PoolScan { paths: vec!["/dev".into()], destroyed: false }),
        Request::MountList,
    ];
    let mut seeds: Vec<Vec<u8>> = Vec::new();
    for request in requests {
        let mut packed = Vec::new();
        write_message(&mut packed, &request).expect("memory takes all");
        seeds.push(packed);
    }
    seeds
}
