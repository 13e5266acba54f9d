//! What users ask for and cannot be done is refused before anything is done: a change that fails in the sync thread stops the pool.

use ondisk::delegation::{GrantKey, Grantee, Reach};
use ondisk::dsl::RedactBlockPhys;
use ondisk::nvlist::NvList;
use ondisk::stream::{Begin, HEADER_SUBSTREAM, STREAM_MAGIC, StreamFeatures};

use super::*;
use crate::stream::{SendOptions, Sender};

/// With the snapshot `pool/a@s`.
fn with_snapshot() -> Rig {
    with_snapshot_without(None)
}

/// As [`with_snapshot`], and without a feature.
fn with_snapshot_without(missing: Option<Feature>) -> Rig {
    let rig = rig();
    let is_missing = |feature: &Feature| Some(*feature) == missing || missing.is_some_and(|missing| feature.info().depends_on.contains(&missing));
    rig.create_with(Feature::for_new_pools().filter(|feature| !is_missing(feature)).collect());
    rig.with_syncs(|dsl| dsl.create_dataset(new_dataset("pool/a"))).unwrap();
    let new = NewSnapshots { names: vec!["pool/a@s".into()], properties: Vec::new() };
    assert!(rig.with_syncs(|dsl| dsl.snapshot_verbs().create_snapshots(new)).unwrap().is_empty());
    rig
}

/// Another verb is done.
#[track_caller]
fn goes_on(rig: &Rig) {
    rig.with_syncs(|dsl| dsl.create_dataset(new_dataset("pool/other"))).unwrap();
    rig.with_syncs(|dsl| dsl.destroy_dataset("pool/other")).unwrap();
}

#[track_caller]
fn set(rig: &Rig, name: &str, bytes: usize) -> Result<()> {
    let change = (name.to_owned(), PropertyChange::Set(PropertyValue::Text("x".repeat(bytes))));
    rig.with_syncs(|dsl| dsl.set_properties("pool/a", vec![change]))
}

#[test]
fn tags_and_snapshots_that_are_named_twice() {
    let rig = with_snapshot();
    let twice = || vec!["pool/a@s".to_owned(), "pool/a@s".to_owned()];
    let hold = |names: Vec<String>, tag: &str| rig.with_syncs(|dsl| dsl.snapshot_verbs().hold_snapshots(names, tag.to_owned()));
    for tag in ["", "a\0b"] {
        assert_eq!(hold(vec!["pool/a@s".into()], tag).unwrap_err().kind(), ErrorKind::Invalid, "{tag:?}");
        goes_on(&rig);
    }
    let kinds = |refused: Refusals| refused.into_iter().map(|(_, error)| error.kind()).collect::<Vec<_>>();
    assert_eq!(kinds(hold(vec!["pool/a@s".into()], &"t".repeat(256)).unwrap()), [ErrorKind::TooBig]);
    assert_eq!(kinds(hold(twice(), "t").unwrap()), [ErrorKind::Exists]);
    goes_on(&rig);
    assert!(hold(vec!["pool/a@s".into()], &"t".repeat(255)).unwrap().is_empty());
    // It goes with the first release, and is not there for the second.
    assert!(rig.with_syncs(|dsl| dsl.snapshot_verbs().destroy_snapshots(twice(), true)).unwrap().is_empty());
    assert!(rig.with_syncs(|dsl| dsl.snapshot_verbs().release_snapshots(twice(), "t".repeat(255))).unwrap().is_empty());
    assert_eq!(rig.dsl().open_dataset("pool/a@s").err().map(|error| error.kind()), Some(ErrorKind::NotFound));
    goes_on(&rig);
    rig.check();
}

/// OpenZFS holds what it sends, and lists these holds for the import after a crash. What the list says of anything else is of no consequence.
#[test]
fn temporary_holds_end_with_an_import() {
    let rig = with_snapshot();
    let names = || vec!["pool/a@s".to_owned()];
    let object = rig.dsl().open_dataset("pool/a@s").unwrap().object;
    let tags = ["keep", ".send-1-2", ".send-3-4"];
    for tag in tags {
        assert!(rig.with_syncs(|dsl| dsl.snapshot_verbs().hold_snapshots(names(), tag.into())).unwrap().is_empty());
    }
    let list = rig.with_syncs(|dsl| {
        dsl.run_task(1, SpaceCheck::None, |_| Ok(()), move |dsl, tx| {
            let mos = &dsl.meta.mos;
            let list = mos.zap_create(ObjectType::USERREFS, tx)?;
            mos.zap_add_u64(meta::key::DIRECTORY, meta::key::TMP_USERREFS, list, tx)?;
            for entry in [".send-1-2", ".send-3-4", ".send-5-6"].map(|tag| format!("{object:x}-{tag}")) {
                mos.zap_add_u64(list, &entry, 1, tx)?;
            }
            for entry in ["1-keep", "ffffffffffff-keep", "keep", "-", "x-keep"] {
                mos.zap_add_u64(list, entry, 1, tx)?;
            }
            Ok(list)
        })
    });
    let list = list.unwrap();
    let is_held = |tag: &str| {
        let dsl = rig.dsl();
        dsl.meta.mos.zap_contains(dsl.open_dataset("pool/a@s").unwrap().phys().user_holds.get(), tag).unwrap()
    };
    // Released by hand it is no more on the list.
    assert!(rig.with_syncs(|dsl| dsl.snapshot_verbs().release_snapshots(names(), ".send-3-4".into())).unwrap().is_empty());
    assert_eq!(rig.dsl().meta.mos.zap_count(list).unwrap(), 7);
    rig.with_syncs(|dsl| dsl.snapshot_verbs().release_temporary()).unwrap();
    assert_eq!((rig.dsl().meta.mos.zap_count(list).unwrap(), tags.map(is_held)), (0, [true, false, false]));
    goes_on(&rig);
}

/// On `casesensitivity=insensitive` two names that differ in case are one, as they are for OpenZFS.
#[test]
fn case_does_not_matter_to_snapshots_where_it_does_not_to_files() {
    let rig = rig();
    rig.create();
    let plain = |name: &str, case_insensitive: bool| NewDataset { case_insensitive, ..new_dataset(name) };
    rig.with_syncs(|dsl| dsl.create_dataset(plain("pool/a", true))).unwrap();
    rig.with_syncs(|dsl| dsl.create_dataset(plain("pool/b", false))).unwrap();
    let take = |name: &str| {
        let new = NewSnapshots { names: vec![name.into()], properties: Vec::new() };
        let refused = rig.with_syncs(|dsl| dsl.snapshot_verbs().create_snapshots(new)).unwrap();
        refused.iter().map(|(_, error)| error.kind()).collect::<Vec<_>>()
    };
    let names = |head: &str| {
        let snapshots = rig.dsl().open_dataset(head).unwrap().snapshots().unwrap();
        snapshots.into_iter().map(|(name, _)| name).collect::<Vec<_>>()
    };
    assert_eq!((take("pool/b@x"), take("pool/b@X"), names("pool/b")), (vec![], vec![], vec!["x".to_owned(), "X".to_owned()]));
    assert_eq!((take("pool/a@x"), take("pool/a@X"), names("pool/a")), (vec![], vec![ErrorKind::Exists], vec!["x".to_owned()]));
    let object = |name: &str| rig.dsl().open_dataset(name).unwrap().object;
    assert_eq!(object("pool/a@X"), object("pool/a@x"));
    assert_ne!(object("pool/b@X"), object("pool/b@x"));
    rig.with_syncs(|dsl| dsl.rename_snapshot("pool/a", "X", "Yes", false)).unwrap();
    assert_eq!(names("pool/a"), ["Yes"]);
    let both = || vec!["pool/a@yes".to_owned(), "pool/a@YES".to_owned()];
    assert!(rig.with_syncs(|dsl| dsl.snapshot_verbs().hold_snapshots(vec!["pool/a@yes".into()], "t".into())).unwrap().is_empty());
    assert!(rig.with_syncs(|dsl| dsl.snapshot_verbs().destroy_snapshots(both(), true)).unwrap().is_empty());
    // It goes with the first release, and is not there for the second.
    assert!(rig.with_syncs(|dsl| dsl.snapshot_verbs().release_snapshots(both(), "t".into())).unwrap().is_empty());
    assert!(names("pool/a").is_empty());
    goes_on(&rig);
}

#[test]
fn names_that_no_bookmark_has() {
    let rig = with_snapshot();
    let destroy = |names: &[&str]| {
        let names = names.iter().map(|name| (*name).to_owned()).collect();
        rig.with_syncs(|dsl| dsl.snapshot_verbs().destroy_bookmarks(names))
    };
    let long = format!("pool/a#{}", "x".repeat(255));
    for name in ["pool/a#b/c", "pool/a@s#x", "pool/a#", "pool/a", "pool/a#..", long.as_str()] {
        assert!(destroy(&[name]).is_err(), "{name}");
        // What is not there is passed over, and does not hide what is wrong.
        assert!(destroy(&["pool/none#x", "pool/a#none", name]).is_err(), "{name}");
        goes_on(&rig);
    }
    destroy(&["pool/none#x", "pool/a#none"]).unwrap();
    let new = vec![NewBookmark { name: "pool/a#b".into(), source: "pool/a@s".into() }];
    assert!(rig.with_syncs(|dsl| dsl.snapshot_verbs().create_bookmarks(new)).unwrap().is_empty());
    destroy(&["pool/a#b", "pool/a#b"]).unwrap();
    goes_on(&rig);
}

/// The lists of the clone lose the key of the snapshot with the last bookmark of the one head, and then with that of the other.
#[test]
fn bookmarks_that_were_copied_to_a_clone_go_in_any_order() {
    for order in [["pool/a#x", "pool/c#y"], ["pool/c#y", "pool/a#x"]] {
        let rig = with_snapshot();
        let bookmark = |name: &str, source: &str| {
            let new = vec![NewBookmark { name: name.into(), source: source.into() }];
            assert!(rig.with_syncs(|dsl| dsl.snapshot_verbs().create_bookmarks(new)).unwrap().is_empty());
        };
        bookmark("pool/a#x", "pool/a@s");
        let new = NewSnapshots { names: vec!["pool/a@t".into()], properties: Vec::new() };
        assert!(rig.with_syncs(|dsl| dsl.snapshot_verbs().create_snapshots(new)).unwrap().is_empty());
        let clone = NewClone { name: "pool/c".into(), snapshot: "pool/a@t".into(), properties: Vec::new() };
        rig.with_syncs(|dsl| dsl.clone_dataset(clone)).unwrap();
        assert!(rig.with_syncs(|dsl| dsl.snapshot_verbs().destroy_snapshots(vec!["pool/a@s".into()], false)).unwrap().is_empty());
        bookmark("pool/c#y", "pool/a#x");
        for name in order {
            rig.with_syncs(|dsl| dsl.snapshot_verbs().destroy_bookmarks(vec![name.into()])).unwrap();
            goes_on(&rig);
        }
    }
}

/// A snapshot that was received redacted is bookmarked with a list of what for, which needs a feature of its own.
#[test]
fn a_bookmark_of_what_is_redacted_needs_its_feature() {
    let rig = with_snapshot_without(Some(Feature::RedactionBookmarks));
    let snapshot = rig.dsl().open_dataset("pool/a@s").unwrap();
    rig.with_syncs(|dsl| dsl.run_task(1, SpaceCheck::None, |_| Ok(()), move |_, tx| snapshot.activate_feature(Feature::RedactedDatasets, tx))).unwrap();
    let new = vec![NewBookmark { name: "pool/a#b".into(), source: "pool/a@s".into() }];
    let refused = rig.with_syncs(|dsl| dsl.snapshot_verbs().create_bookmarks(new)).unwrap();
    assert_eq!(refused.iter().map(|(_, error)| error.kind()).collect::<Vec<_>>(), [ErrorKind::NotSupported]);
    goes_on(&rig);
}

/// With a snapshot of a volume, and the redaction bookmark `pool/v#b` of it.
fn with_redaction(blocks: Vec<RedactBlockPhys>) -> Rig {
    let rig = rig();
    rig.create();
    rig.with_syncs(|dsl| dsl.create_dataset(NewDataset { objset_type: ObjsetType::Volume, ..new_dataset("pool/v") })).unwrap();
    let taken = NewSnapshots { names: vec!["pool/v@s".into()], properties: Vec::new() };
    assert!(rig.with_syncs(|dsl| dsl.snapshot_verbs().create_snapshots(taken)).unwrap().is_empty());
    let new = NewRedaction { name: "pool/v#b".into(), source: "pool/v@s".into(), snapshots: vec![7], blocks };
    rig.with_syncs(|dsl| dsl.snapshot_verbs().create_redaction(new)).unwrap();
    rig
}

/// The object of its list would be given to something else in the middle of the stream, and what was to be left out be sent.
#[test]
fn a_bookmark_that_a_stream_is_sent_by_stays() {
    let rig = with_redaction(vec![RedactBlockPhys::new(1, 0, 1, 128 << 10)]);
    let destroy = || rig.with_syncs(|dsl| dsl.snapshot_verbs().destroy_bookmarks(vec!["pool/v#b".into()])).map_err(|error| error.kind());
    let by_it = SendOptions { redact: Some("b".into()), ..SendOptions::default() };
    for (from, options) in [(None, &by_it), (Some("pool/v#b"), &SendOptions::default())] {
        let sender = Sender::new(&rig.dsl(), "pool/v@s", from, options).unwrap();
        assert_eq!(destroy(), Err(ErrorKind::Busy), "from {from:?}");
        drop(sender);
        goes_on(&rig);
    }
    destroy().unwrap();
    assert_eq!(rig.dsl().snapshot_verbs().bookmark_to_send("pool/v", "b").err().map(|error| error.kind()), Some(ErrorKind::NotFound));
    goes_on(&rig);
}

/// An entry that is not in its place would hide those behind it.
#[test]
fn redaction_lists_without_order_are_not_sent_by() {
    let entry = |object, block| RedactBlockPhys::new(object, block, 1, 128 << 10);
    for blocks in [vec![entry(0, 0)], vec![entry(u64::MAX, 0)], vec![entry(2, 0), entry(1, 0)], vec![entry(1, 1), entry(1, 0)]] {
        let rig = with_redaction(blocks.clone());
        let options = SendOptions { redact: Some("b".into()), ..SendOptions::default() };
        let sender = Sender::new(&rig.dsl(), "pool/v@s", None, &options).unwrap();
        let refused = sender.send(&mut Vec::new(), &|| false).expect_err("it is sent");
        assert_eq!(refused.kind(), ErrorKind::Corrupt, "{blocks:?}: {refused}");
    }
}

/// The pool's own directories have no head, or one that no file system is.
#[test]
fn what_the_pool_keeps_for_itself_stays() {
    let rig = with_snapshot();
    let key = GrantKey { to: Grantee::Everyone, reach: Reach::Local, of_sets: false };
    for own in ["pool/$MOS", "pool/$FREE", "pool/$ORIGIN"] {
        let refused = rig.with_syncs(|dsl| dsl.rename_dataset(own, "pool/x")).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Invalid, "{own}: {refused}");
        goes_on(&rig);
    }
    for own in ["pool/$MOS", "pool/$FREE", "pool/a@s"] {
        let grants = vec![GrantChange { key: key.clone(), permissions: vec!["create".into()] }];
        let refused = rig.with_syncs(|dsl| dsl.change_grants(own, grants, false)).unwrap_err();
        assert!(matches!(refused.kind(), ErrorKind::NotFound | ErrorKind::Invalid), "{own}: {refused}");
        goes_on(&rig);
    }
}

/// A received value is stored under a longer name.
#[test]
fn names_of_properties_that_are_too_long_when_received() {
    let rig = with_snapshot();
    let receive = |bytes: usize| {
        let change = (format!("a:{}", "x".repeat(bytes - 2)), PropertyChange::Receive(PropertyValue::Text("x".into())));
        rig.with_syncs(|dsl| dsl.set_properties("pool/a", vec![change]))
    };
    for bytes in [250, 255, 256] {
        assert_eq!(receive(bytes).unwrap_err().kind(), ErrorKind::NameTooLong, "{bytes}");
        goes_on(&rig);
    }
    receive(249).unwrap();
    set(&rig, &format!("a:{}", "x".repeat(253)), 1).unwrap();
    assert_eq!(set(&rig, "a:\0", 1).unwrap_err().kind(), ErrorKind::Invalid);
    goes_on(&rig);
}

/// A limit on counts in a pool without the feature.
#[test]
fn limits_need_their_feature() {
    let rig = with_snapshot_without(Some(Feature::FilesystemLimits));
    for limit in ["filesystem_limit", "snapshot_limit"] {
        let change = || vec![(limit.to_owned(), PropertyChange::Set(PropertyValue::Number(7)))];
        let refused = rig.with_syncs(|dsl| dsl.set_properties("pool/a", change())).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::NotSupported);
        let new = NewDataset { properties: change(), ..new_dataset("pool/b") };
        assert_eq!(rig.with_syncs(|dsl| dsl.create_dataset(new)).unwrap_err().kind(), ErrorKind::NotSupported);
        goes_on(&rig);
    }
}

/// It is marked to be destroyed while the stream comes in, and goes with the hidden child: its blocks were freed under a reader.
#[test]
fn a_receive_does_not_destroy_what_is_read() {
    let rig = with_snapshot();
    let snapshot = rig.dsl().open_dataset("pool/a@s").unwrap();
    let begin = Begin {
        magic: STREAM_MAGIC,
        version_info: HEADER_SUBSTREAM,
        objset_type: ObjsetType::FileSystem.number() as u32,
        from_guid: snapshot.phys().guid.get(),
        to_guid: 7,
        ..Begin::zeroed()
    };
    let head = StreamHead { begin, list: NvList::new() };
    let target = ReceiveTarget { dataset: "pool/a".into(), snapshot: "t".into(), ..ReceiveTarget::default() };
    let received = rig.with_syncs(|dsl| dsl.receiving().begin_receive(target, &head)).unwrap();
    assert!(rig.with_syncs(|dsl| dsl.snapshot_verbs().destroy_snapshots(vec!["pool/a@s".into()], true)).unwrap().is_empty());
    let reader = rig.dsl().objset(&snapshot).unwrap();
    let (refused, received) = rig.with_syncs(|dsl| dsl.receiving().end_receive(received, &head)).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Busy, "{refused}");
    assert!(rig.dsl().open_dataset("pool/a@s").is_ok(), "it is gone");
    drop(reader);
    let received = received.expect("nothing was changed");
    rig.with_syncs(|dsl| dsl.receiving().end_receive(received, &head)).map_err(|(error, _)| error).unwrap();
    assert_eq!(rig.dsl().open_dataset("pool/a@s").err().map(|error| error.kind()), Some(ErrorKind::NotFound));
    assert!(rig.dsl().open_dataset("pool/a@t").is_ok());
    goes_on(&rig);
}

/// What a dataset notes of a stream has to fit an entry of a dictionary.
#[test]
fn streams_that_say_too_much() {
    let rig = with_snapshot();
    let begin = |features: StreamFeatures| Begin {
        magic: STREAM_MAGIC,
        version_info: HEADER_SUBSTREAM | features.bits() << 2,
        objset_type: ObjsetType::FileSystem.number() as u32,
        to_guid: 7,
        ..Begin::zeroed()
    };
    let receive = |list: &str, guids: usize, key_bytes: usize| {
        let mut head = StreamHead { begin: begin(StreamFeatures::REDACTED), list: NvList::new() };
        head.list.set("redact_snaps", vec![1u64]);
        head.list.set(list, vec![1u64; guids]);
        let target = ReceiveTarget { dataset: "pool/new".into(), snapshot: "s".into(), resumable: true, key_location: Some("x".repeat(key_bytes)), ..ReceiveTarget::default() };
        let received = rig.with_syncs(|dsl| dsl.receiving().begin_receive(target, &head));
        received.and_then(|received| rig.with_syncs(|dsl| dsl.receiving().abandon_receive(received))).map_err(|error| error.kind())
    };
    for list in ["redact_snaps", "redact_from_snaps"] {
        assert_eq!(receive(list, 1025, 1), Err(ErrorKind::Unsupported), "{list}");
        goes_on(&rig);
        receive(list, 1024, 1).unwrap();
        goes_on(&rig);
    }
    assert_eq!(receive("redact_snaps", 1, 8192), Err(ErrorKind::TooBig));
    goes_on(&rig);
    receive("redact_snaps", 1, 8191).unwrap();
    receive("redact_snaps", 0, 1).unwrap();
    goes_on(&rig);
}
