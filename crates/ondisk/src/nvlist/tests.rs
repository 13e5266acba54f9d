use super::*;
use proptest::prelude::*;

fn every_type() -> NvList {
    let mut inner = NvList::new();
    inner.set("a", 7);
    inner.set("text", "x");
    let mut list = NvList::new();
    list.set("boolean", Value::Boolean);
    list.set("byte", Value::Byte(200));
    list.set("int16", Value::Int16(-2));
    list.set("uint16", Value::UInt16(65_535));
    list.set("int32", Value::Int32(-3));
    list.set("uint32", Value::UInt32(u32::MAX));
    list.set("int64", Value::Int64(i64::MIN));
    list.set("uint64", u64::MAX);
    list.set("string", "hello");
    list.set("bytes", Value::ByteArray(vec![1, 2, 3, 4, 5]));
    list.set("int16s", Value::Int16Array(vec![-1, 1]));
    list.set("uint16s", Value::UInt16Array(vec![1, 65_535, 3]));
    list.set("int32s", Value::Int32Array(vec![-1]));
    list.set("uint32s", Value::UInt32Array(vec![1, 2]));
    list.set("int64s", Value::Int64Array(vec![-1, 2]));
    list.set("uint64s", vec![1u64, 2, 3]);
    list.set("strings", Value::StringArray(vec!["".into(), "abc".into()]));
    list.set("time", Value::HighResolutionTime(-5));
    list.set("list", inner.clone());
    list.set("lists", vec![inner.clone(), NvList::new(), inner]);
    list.set("truth", Value::BooleanValue(true));
    list.set("int8", Value::Int8(-8));
    list.set("uint8", Value::UInt8(255));
    list.set("truths", Value::BooleanArray(vec![true, false]));
    list.set("int8s", Value::Int8Array(vec![-1, 0, 1]));
    list.set("uint8s", Value::UInt8Array(vec![255, 0]));
    list.set("double", Value::Double(1.5));
    list.set("none", Value::UInt64Array(Vec::new()));
    list.set("no lists", Value::ListArray(Vec::new()));
    list.set(NvString::from_bytes(vec![0xff, 0xfe]), 1);
    list
}

#[test]
fn every_type_survives_both_encodings() {
    let list = every_type();
    for bytes in [list.encode_xdr(), list.encode_native()] {
        let (decoded, length) = NvList::decode_prefix(&bytes).unwrap();
        assert_eq!(decoded, list);
        assert_eq!(length, bytes.len());
        for cut in 0..bytes.len() {
            assert!(NvList::decode(&bytes[..cut]).is_err(), "cut at {cut}");
        }
    }
}

#[test]
fn xdr_is_what_openzfs_writes() {
    let mut list = NvList::new();
    list.set("version", 5000);
    let expected = [
        &[1u8, 1, 0, 0][..],           // XDR, little-endian host
        &[0, 0, 0, 0, 0, 0, 0, 1],     // version, unique names
        &[0, 0, 0, 36, 0, 0, 0, 32],   // size here, size in memory
        &[0, 0, 0, 7],                 // the name
        b"version\0",
        &[0, 0, 0, 8, 0, 0, 0, 1],     // uint64, one
        &[0, 0, 0, 0, 0, 0, 0x13, 0x88],
        &[0; 8],
    ]
    .concat();
    assert_eq!(list.encode_xdr(), expected);
}

#[test]
fn native_is_what_openzfs_writes() {
    let mut inner = NvList::new();
    inner.set("b", Value::Boolean);
    let mut list = NvList::new();
    list.set("l", inner);
    let expected = [
        &[0u8, 1, 0, 0][..],
        &[0, 0, 0, 0, 1, 0, 0, 0],
        &[48, 0, 0, 0, 2, 0, 0, 0, 1, 0, 0, 0, 19, 0, 0, 0], // size, name size, one element, a list
        b"l\0\0\0\0\0\0\0",
        &[0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0],
        &[24, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0],
        b"b\0\0\0\0\0\0\0",
        &[0; 4], // the inner list ends
        &[0; 4],
    ]
    .concat();
    assert_eq!(list.encode_native(), expected);
}

#[test]
fn a_big_endian_native_list_is_read() {
    let bytes = [
        &[0u8, 0, 0, 0][..],
        &[0, 0, 0, 0, 0, 0, 0, 1],
        &[0, 0, 0, 32, 0, 2, 0, 0, 0, 0, 0, 1, 0, 0, 0, 8],
        b"n\0\0\0\0\0\0\0",
        &[0, 0, 0, 0, 0, 0, 1, 2],
        &[0; 4],
    ]
    .concat();
    assert_eq!(NvList::decode(&bytes).unwrap().u64("n"), Some(258));
}

#[test]
fn set_moves_a_name_to_the_end_and_replace_does_not() {
    let mut list = NvList::new();
    list.set("a", 1);
    list.set("b", 2);
    list.replace("a", 3);
    let names = |l: &NvList| l.iter().map(|(n, _)| n.to_string()).collect::<Vec<_>>();
    assert_eq!(names(&list), ["a", "b"]);
    list.set("a", 4);
    assert_eq!(names(&list), ["b", "a"]);
    assert_eq!(list.u64("a"), Some(4));
    assert!(list.remove("a") && !list.remove("a"));
}

#[test]
fn what_is_too_deep_is_refused() {
    for (depth, fits) in [(DEPTH_MAX, true), (DEPTH_MAX + 1, false)] {
        let mut list = NvList::new();
        for _ in 0..depth {
            let mut outer = NvList::new();
            outer.set("in", list);
            list = outer;
        }
        assert_eq!(list.depth(), depth);
        assert_eq!(NvList::decode(&list.encode_xdr()).is_ok(), fits);
        assert_eq!(NvList::decode(&list.encode_native()).is_ok(), fits);
    }
}

#[test]
fn a_huge_count_does_not_allocate() {
    let mut list = NvList::new();
    list.set("n", vec![1u64]);
    let mut bytes = list.encode_xdr();
    let count_at = 4 + 8 + 8 + 8 + 4;
    for at in [count_at, count_at + 4] {
        bytes[at..at + 4].copy_from_slice(&[0x7f, 0xff, 0xff, 0xff]);
    }
    assert_eq!(NvList::decode(&bytes).unwrap_err().field, "count");
}

fn any_value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        any::<u64>().prop_map(Value::UInt64),
        any::<i16>().prop_map(Value::Int16),
        any::<Vec<u8>>().prop_map(Value::ByteArray),
        any::<Vec<u8>>().prop_map(Value::UInt8Array),
        any::<Vec<i8>>().prop_map(Value::Int8Array),
        any::<Vec<u64>>().prop_map(Value::UInt64Array),
        ".{0,20}".prop_map(|s| Value::String(s.into())),
        proptest::collection::vec(".{0,9}", 0..4)
            .prop_map(|v| Value::StringArray(v.into_iter().map(NvString::from).collect())),
        Just(Value::Boolean),
    ];
    leaf.prop_recursive(4, 32, 4, |inner| {
        let list = proptest::collection::vec((".{0,9}", inner), 0..4)
            .prop_map(|pairs| pairs.into_iter().map(|(n, v)| (n.into(), v)).collect::<NvList>());
        prop_oneof![list.clone().prop_map(Value::List), proptest::collection::vec(list, 0..3).prop_map(Value::ListArray)]
    })
}

proptest! {
    #[test]
    fn any_list_survives(pairs in proptest::collection::vec((".{0,12}", any_value()), 0..8)) {
        let list: NvList = pairs.into_iter().map(|(n, v)| (NvString::from(n), v)).collect();
        prop_assert_eq!(&NvList::decode(&list.encode_xdr()).unwrap(), &list);
        prop_assert_eq!(&NvList::decode(&list.encode_native()).unwrap(), &list);
    }

    #[test]
    fn no_bytes_make_it_panic(mut bytes in proptest::collection::vec(any::<u8>(), 0..300), native in any::<bool>()) {
        let _ = NvList::decode(&bytes);
        if bytes.len() >= 8 {
            bytes[..8].copy_from_slice(&[u8::from(!native), 1, 0, 0, 0, 0, 0, 0]);
            let _ = NvList::decode(&bytes);
        }
    }

    #[test]
    fn one_wrong_byte_does_not_make_it_panic(at in 0usize..2000, value in any::<u8>(), native in any::<bool>()) {
        let list = every_type();
        let mut bytes = if native { list.encode_native() } else { list.encode_xdr() };
        let at = at % bytes.len();
        bytes[at] = value;
        let _ = NvList::decode(&bytes);
    }
}
