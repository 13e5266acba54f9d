//! Requests made by hand, well formed and not.
use super::*;

struct Probe;

impl Filesystem for Probe {
    fn lookup(&self, _: &Context, _: u64, name: &[u8]) -> Result<Entry> {
        assert!(name != b"panic", "asked to");
        Ok(Entry::negative(Duration::from_millis(1500)))
    }

    fn read(&self, _: &Context, _: &Read, out: &mut [u8]) -> Result<usize> {
        out.fill(7);
        Ok(out.len())
    }

    fn getxattr(&self, _: &Context, _: u64, _: &[u8], out: &mut [u8]) -> Result<usize> {
        if let Some(out) = out.get_mut(..3) {
            out.copy_from_slice(b"abc");
        }
        Ok(3)
    }

    fn rename(&self, _: &Context, _: u64, name: &[u8], _: u64, new_name: &[u8], flags: u32) -> Result<()> {
        if name == b"a" && new_name == b"b" && flags == 1 { Ok(()) } else { Err(Errno::EXDEV) }
    }
}

fn header(opcode: u32) -> InHeader {
    InHeader { opcode, node: 1, ..InHeader::default() }
}

fn call(opcode: u32, body: &[u8], out: &mut [u8]) -> Outcome {
    let header = header(opcode);
    match Request::parse(&header, body) {
        Ok(request) => handle(&Probe, &request, out),
        Err(errno) => Outcome::Error(errno),
    }
}

#[test]
fn good_requests() {
    let out = &mut [0u8; SMALL_REPLY];
    assert_eq!(call(1, b"x\0", out), Outcome::Reply(128));
    assert_eq!(EntryOut::read_from_prefix(out).unwrap().0.entry_valid_ns, 500_000_000);
    let read = ReadIn { size: 9, ..ReadIn::default() };
    assert_eq!(call(15, read.as_bytes(), out), Outcome::Reply(9));
    assert_eq!((out[8], out[9]), (7, 0));
    let rename = [Rename2In { flags: 1, ..Rename2In::default() }.as_bytes(), b"a\0b\0"].concat();
    assert_eq!(call(45, &rename, out), Outcome::Reply(0));
}

#[test]
fn attribute_sizes() {
    let out = &mut [0u8; SMALL_REPLY];
    let ask = |size: u32| [GetXattrIn { size, padding: 0 }.as_bytes(), b"user.a\0"].concat();
    assert_eq!(call(22, &ask(0), out), Outcome::Reply(8));
    assert_eq!(out[0], 3);
    assert_eq!(call(22, &ask(2), out), Outcome::Error(Errno::ERANGE));
    assert_eq!(call(22, &ask(3), out), Outcome::Reply(3));
}

#[test]
fn a_group_of_the_caller_follows_the_names() {
    let group = |payload: &[u8], words: u16| {
        let header = InHeader { extension_words: words, ..header(Opcode::MkDir as u32) };
        other_group(&Request { header: &header, opcode: Opcode::MkDir, fixed: &[], payload })
    };
    let extension = |kind: u32, size: u32, groups: &[u32]| {
        let words = [size, kind, groups.len() as u32].into_iter().chain(groups.iter().copied());
        words.flat_map(u32::to_ne_bytes).collect::<Vec<u8>>()
    };
    let one = [b"a name\0".to_vec(), extension(EXTENSION_GROUPS, 16, &[777])].concat();
    assert_eq!(group(&one, 2), Some(777));
    assert_eq!(group(&one, 0), None);
    let behind = [b"x\0".to_vec(), extension(31, 16, &[5]), extension(EXTENSION_GROUPS, 16, &[9])].concat();
    assert_eq!(group(&behind, 4), Some(9));
    // What is cut short, or says that it is longer than all there is, has none.
    for (payload, words) in [(&one[..19], 1), (&one[..], 9), (&extension(EXTENSION_GROUPS, 0, &[1])[..], 2), (&extension(EXTENSION_GROUPS, u32::MAX, &[1])[..], 2)] {
        assert_eq!(group(payload, words), None);
    }
    assert_eq!(group(&[extension(EXTENSION_GROUPS, 12, &[]), vec![0; 4]].concat(), 2), None);
}

#[test]
fn bad_requests_are_answered() {
    let out = &mut [0u8; SMALL_REPLY];
    assert_eq!(call(1, b"no end", out), Outcome::Error(Errno::EINVAL));
    assert_eq!(call(1, b"panic\0", out), Outcome::Error(Errno::EIO));
    assert_eq!(call(15, &[0; 39], out), Outcome::Error(Errno::EINVAL));
    assert_eq!(call(9999, &[], out), Outcome::Error(Errno::ENOSYS));
    let read = ReadIn { size: u32::MAX, ..ReadIn::default() };
    assert_eq!(call(15, read.as_bytes(), out), Outcome::Error(Errno::EINVAL));
    let write = WriteIn { size: 5, ..WriteIn::default() };
    assert_eq!(call(16, &[write.as_bytes(), b"four"].concat(), out), Outcome::Error(Errno::EINVAL));
}

/// No bytes may panic the decoder itself: a panic would be answered `EIO`, which no method of `Probe` returns but for one name.
#[test]
fn no_bytes_panic() {
    let seed = 0x5eed_f05e_u64;
    println!("seed {seed:#x}");
    let mut state = seed;
    let mut random = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as u32
    };
    let out = &mut vec![0u8; 4096];
    for _ in 0..20_000 {
        let body: Vec<u8> = (0..random() % 128).map(|_| (random() & 0xff) as u8).collect();
        let opcode = random() % 60;
        let outcome = call(opcode, &body, out);
        assert!(opcode == 26 || outcome != Outcome::Error(Errno::EIO), "opcode {opcode} {body:?}");
    }
}
