use proptest::prelude::*;

use super::*;

fn sample() -> DataPointer {
    let dvas = [Dva::new(0, 0x4000, 0x1000), Dva::new(1, 0x1c00_4000, 0x1000)];
    let mut pointer = DataPointer::new(&dvas, ObjectType::OBJSET, 0, 77);
    pointer.logical_size = 4096;
    pointer.physical_size = 512;
    pointer.compression = Compression::Lz4;
    pointer.checksum = [0xa, 0xb, 0xc, 0xd];
    pointer.fill = 55;
    pointer
}

#[test]
fn words_are_where_the_format_has_them() {
    let raw = sample().encode();
    let word = |index: usize| u64::from_le_bytes(raw.as_bytes()[index * 8..index * 8 + 8].try_into().unwrap());
    assert_eq!(word(0), 8);
    assert_eq!(word(1), 0x20);
    assert_eq!(word(2), (1 << 32) | 8);
    // Little-endian; type 11; fletcher4 (7); lz4 (15); one sector on disk; eight sectors of contents.
    assert_eq!(word(6), (1 << 63) | (11 << 48) | (7 << 40) | (15 << 32) | 7);
    assert_eq!((word(7), word(8), word(9), word(10), word(11)), (0, 0, 0, 77, 55));
    assert_eq!((word(12), word(15)), (0xa, 0xd));
    assert_eq!(raw.decode(), Ok(BlockPointer::Data(sample())));
    assert_eq!(
        raw.to_string(),
        "DVA[0]=<0:4000:1000> DVA[1]=<1:1c004000:1000> [L0 DMU objset] fletcher4 lz4 unencrypted LE contiguous unique \
         double size=1000L/200P birth=77L/77P fill=55 \
         cksum=000000000000000a:000000000000000b:000000000000000c:000000000000000d"
    );
}

#[test]
fn a_hole_of_birth_zero_is_all_zeros() {
    let hole = Hole { object_type: ObjectType::DNODE, level: 1, logical_size: 16384, logical_birth: 0 };
    assert_eq!(hole.encode(), BlkPtr::ZERO);
    assert!(BlkPtr::ZERO.is_hole() && BlkPtr::ZERO.fill() == 0 && BlkPtr::ZERO.physical_size() == 0);
    let born = Hole { logical_birth: 9, ..hole };
    assert_eq!(born.encode().decode(), Ok(BlockPointer::Hole(born)));
    assert_eq!(born.encode().to_string(), "HOLE [L1 DMU dnode] size=4000L birth=9L");
}

#[test]
fn embedded_contents_go_around_properties_and_birth() {
    let payload: Vec<u8> = (1..=112).collect();
    let pointer = EmbeddedPointer::new(&payload, Compression::Lz4, 8192, ObjectType::PLAIN_FILE_CONTENTS, 0, 0x1122);
    let raw = pointer.encode();
    assert_eq!(raw.as_bytes()[0], 1);
    assert_eq!(raw.as_bytes()[56], 49);
    assert_eq!(raw.as_bytes()[80..88], 0x1122_u64.to_le_bytes());
    assert_eq!(raw.as_bytes()[127], 112);
    assert!(!raw.is_hole() && raw.is_embedded());
    assert_eq!((raw.logical_size(), raw.physical_size(), raw.fill()), (8192, 0, 1));
    let Ok(BlockPointer::Embedded(decoded)) = raw.decode() else { panic!("not embedded: {raw}") };
    assert_eq!(decoded.payload(), payload);
    assert_eq!(decoded, pointer);
    assert_eq!(raw.to_string(), "EMBEDDED [L0 ZFS plain file] et=0 lz4 size=2000L/70P birth=4386L");
}

#[test]
fn an_encrypted_pointer_keeps_its_parameters() {
    let mut pointer = sample();
    pointer.object_type = ObjectType::PLAIN_FILE_CONTENTS;
    pointer.protection = Protection::Encrypted { salt: 1, iv: 2, iv_tail: 3 };
    let raw = pointer.encode();
    assert_eq!(raw.decode(), Ok(BlockPointer::Data(pointer)));
    assert_eq!((raw.fill(), raw.allocated_size(), raw.dvas().count()), (55, 0x2000, 2));
}

#[test]
fn a_rewritten_block_was_born_when_it_was_rewritten() {
    let mut pointer = sample();
    pointer.physical_birth = 99;
    assert_eq!(pointer.encode().birth(), 77);
    pointer.rewritten = true;
    assert_eq!(pointer.encode().birth(), 99);
    assert_eq!(pointer.encode().decode(), Ok(BlockPointer::Data(pointer)));
}

#[test]
fn nonsense_is_refused_by_name() {
    let refused = |change: fn(&mut BlkPtr)| {
        let mut raw = sample().encode();
        change(&mut raw);
        raw.decode().unwrap_err().field
    };
    assert_eq!(refused(|raw| raw.properties = bits::set(raw.properties.get(), 48, 8, 54).into()), "type");
    assert_eq!(refused(|raw| raw.properties = bits::set(raw.properties.get(), 32, 7, 17).into()), "compression");
    assert_eq!(refused(|raw| raw.properties = bits::set(raw.properties.get(), 40, 8, 15).into()), "checksum");
    assert_eq!(refused(|raw| raw.properties = bits::set(raw.properties.get(), 0, 16, 0x8000).into()), "logical size");
    assert_eq!(refused(|raw| raw.properties = bits::set(raw.properties.get(), 16, 16, 0x8000).into()), "physical size");
    assert_eq!(refused(|raw| raw.dvas[0].location = (1 << 32).into()), "first DVA");
}

proptest! {
    #[test]
    fn any_bytes_decode_or_are_refused(bytes in proptest::array::uniform32(any::<[u8; 4]>()), checked in any::<bool>()) {
        let mut raw = BlkPtr::from_bytes(bytes.as_flattened()).unwrap();
        if checked {
            // Make the fields that are checked valid, so that the rest is reached too.
            let word = bits::set(bits::set(raw.properties.get(), 48, 8, 19), 32, 7, 15);
            raw.properties = (bits::set(word, 40, 8, 0) & !0x8000_8000).into();
        }
        let _ = (raw.to_string(), raw.fill(), raw.birth(), raw.allocated_size(), raw.is_gang());
        if let Ok(pointer) = raw.decode() {
            let in_range = match &pointer {
                BlockPointer::Data(data) => data.dvas().iter().all(|dva| dva.offset < u64::MAX),
                BlockPointer::Redacted(_) | BlockPointer::Embedded(_) => true,
                BlockPointer::Hole(hole) => hole.logical_birth > 0,
            };
            if in_range {
                prop_assert_eq!(pointer.encode().decode(), Ok(pointer));
            }
        }
    }
}

/// Root pointers of pools that OpenZFS made, as they are on disk, and what its `zdb` prints of them.
const FROM_OPENZFS: [(&str, &str); 2] = [
    (
        "0800000000000000f09b0000000000000800000000000000b8350000000000000800000000000000380e0100000000000700070002070b80\
         00000000000000000000000000000000000000000000000055000000000000005900000000000000ae0e4a1c03000000f1c58b4ef30b0000\
         1d3e653213fb1600881c1d4fa51c7e1d",
        "DVA[0]=<0:137e000:1000> DVA[1]=<0:6b7000:1000> DVA[2]=<0:21c7000:1000> [L0 DMU objset] fletcher4 uncompressed \
         unencrypted LE contiguous unique triple size=1000L/1000P birth=85L/85P fill=89 \
         cksum=000000031c4a0eae:00000bf34e8bc5f1:0016fb1332653e1d:1d7e1ca54f1d1c88",
    ),
    (
        "0100000000000000ab880000000000000100000000000000fe2400000000000001000000000000000204010000000000070000000f070b80\
         000000000000000000000000000000000000000000000000540000000000000059000000000000002bfb1ab0090000005f169e41fb030000\
         ba7125eaf7d40000f8e99efd2b2b1e00",
        "DVA[0]=<0:1115600:200> DVA[1]=<0:49fc00:200> DVA[2]=<0:2080400:200> [L0 DMU objset] fletcher4 lz4 unencrypted LE \
         contiguous unique triple size=1000L/200P birth=84L/84P fill=89 \
         cksum=00000009b01afb2b:000003fb419e165f:0000d4f7ea2571ba:001e2b2bfd9ee9f8",
    ),
];

#[test]
fn pointers_of_openzfs_read_as_its_zdb_reads_them() {
    for (bytes, printed) in FROM_OPENZFS {
        let bytes: Vec<u8> =
            (0..bytes.len()).step_by(2).map(|at| u8::from_str_radix(&bytes[at..at + 2], 16).unwrap()).collect();
        let raw = BlkPtr::from_bytes(&bytes).unwrap();
        assert_eq!(raw.to_string(), printed);
        let pointer = raw.decode().unwrap();
        assert_eq!(pointer.encode().as_bytes()[..], bytes, "encoding must give the same bytes");
    }
}
