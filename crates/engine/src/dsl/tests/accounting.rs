//! Ids and names that share a hash: a dictionary has no room for all of them. The pool does not stop for that.

use std::collections::HashMap;

use ondisk::delegation::{GrantKey, Grantee, Reach};

use super::*;
use crate::dmu::USED_BY_PROJECT;
use crate::zap::Zap;

/// Ids whose names of eight digits, and those with the same prefix, share the upper 16 bits of their hashes, whatever the salt is: the hash of
/// a name is that of its first half and zeros, and that of its second half behind the same digits, and one constant.
fn ids_of_one_hash(count: usize, name: impl Fn(u64) -> String) -> Vec<u64> {
    let upper = |id: u64| ondisk::zap_hash::hash_name(0, 0, name(id).as_bytes()) >> 48;
    let mut by_hash: HashMap<u64, Vec<u64>> = HashMap::new();
    for high in (0x1000..0x1_0000_u64).map(|high| high << 16) {
        by_hash.entry(upper(high)).or_default().push(high);
    }
    let mut ids = Vec::new();
    for low in 0..0x1_0000_u64 {
        ids.extend(by_hash.get(&upper(0x1000_0000 | low)).into_iter().flatten().map(|high| high | low));
    }
    ids.truncate(count);
    ids
}

/// Anybody may give his files such projects: the dictionary has no room for all of them, and the group that was to count them could not be
/// written. What was not counted in is not counted out.
#[test]
fn ids_of_one_hash_do_not_stop_the_pool() {
    let ids = ids_of_one_hash(300, |id| format!("{id:x}"));
    let hash = |id: u64| ondisk::zap_hash::hash_name(0x1234_5678_9abc_def1, 0, format!("obj-{id:x}").as_bytes()) >> 48;
    assert!(ids.len() == 300 && ids.iter().all(|id| hash(*id) == hash(ids[0])));
    let rig = rig();
    rig.create();
    let of_projects = ids.clone();
    let fill: Fill = Box::new(move |objset, tx| {
        let spec = DnodeSpec::new(ObjectType::PLAIN_FILE_CONTENTS, 4096).with_bonus(ObjectType::SA, 64);
        for id in of_projects {
            let mut bonus = vec![0; 64];
            bonus[..8].copy_from_slice(&id.to_le_bytes());
            objset.allocate(tx, &spec)?.set_bonus(tx, bonus);
        }
        Ok(())
    });
    rig.with_syncs(|dsl| dsl.create_dataset(NewDataset { fill, ..new_dataset("pool/a") })).unwrap();
    rig.next_txg();
    let dsl = rig.dsl();
    let objset = dsl.objset(&dsl.open_dataset("pool/a").unwrap()).unwrap();
    let counted = || -> Vec<(Vec<u8>, u64)> {
        let entries = Zap::open(&objset, USED_BY_PROJECT).unwrap().entries().unwrap();
        entries.into_iter().map(|entry| (entry.name, entry.value.first())).collect()
    };
    let before = counted();
    assert!((200..2 * ids.len()).contains(&before.len()), "{} entries", before.len());
    let member = Membership::single(objset.clone());
    let tx = OpenTx::assign(&member, 4 << 20).unwrap();
    let mut at = 0;
    while let Some(object) = objset.next_object(at).unwrap() {
        objset.free(&tx, object).unwrap();
        at = object;
    }
    drop(tx);
    rig.next_txg();
    let left = counted();
    assert!(left.is_empty(), "{left:x?}");
    rig.check();
}

/// A user that may set properties, hold snapshots, or make anything else that has a name, chooses the name. That there is no room for one more was found by the
/// change itself, in the sync thread.
#[test]
fn names_of_one_hash_are_refused() {
    let rig = rig();
    rig.create();
    rig.with_syncs(|dsl| dsl.create_dataset(new_dataset("pool/a"))).unwrap();
    let ids = ids_of_one_hash(300, |id| format!("{id:x}"));
    let changes = |ids: &[u64]| -> Vec<(String, PropertyChange)> {
        ids.iter().map(|id| (format!("a:{id:x}"), PropertyChange::Set(PropertyValue::Text("1".into())))).collect()
    };
    let set = |ids: &[u64]| {
        let changes = changes(ids);
        rig.with_syncs(|dsl| dsl.set_properties("pool/a", changes))
    };
    set(&ids[..100]).unwrap();
    set(&ids[100..200]).unwrap();
    assert_eq!(set(&ids[200..]).unwrap_err().kind(), ErrorKind::NoSpace);
    // What is there can be changed.
    set(&ids[..100]).unwrap();
    rig.check();
    // Those of dictionaries that are made for them.
    let new = NewDataset { properties: changes(&ids), ..new_dataset("pool/b") };
    assert_eq!(rig.with_syncs(|dsl| dsl.create_dataset(new)).unwrap_err().kind(), ErrorKind::NoSpace);
    let snapshot = |properties| {
        let new = crate::dsl::NewSnapshots { names: vec!["pool/a@1".into()], properties };
        rig.with_syncs(|dsl| dsl.snapshot_verbs().create_snapshots(new))
    };
    assert_eq!(snapshot(changes(&ids)).unwrap_err().kind(), ErrorKind::NoSpace);
    assert!(snapshot(Vec::new()).unwrap().is_empty());
    let bookmark = |id: u64| NewBookmark { name: format!("pool/a#{id:x}"), source: "pool/a@1".into() };
    let new: Vec<_> = ids_of_one_hash(300, |id| format!("{id:X}")).into_iter().map(bookmark).collect();
    let refusals = rig.with_syncs(|dsl| dsl.snapshot_verbs().create_bookmarks(new)).unwrap();
    assert!(refusals.len() == 1 && refusals[0].1.kind() == ErrorKind::NoSpace, "{refusals:?}");
}

/// A user that may grant what they are granted chooses to whom, and the names of sets. So many that share a hash, in dictionaries that were made for them,
/// or under one key in several changes, were found by the sync thread.
#[test]
fn grants_of_one_hash_are_refused() {
    let rig = rig();
    rig.create();
    rig.with_syncs(|dsl| dsl.create_dataset(new_dataset("pool/a"))).unwrap();
    let grant = |name: &str, changes: Vec<GrantChange>| rig.with_syncs(|dsl| dsl.change_grants(name, changes, false)).map_err(|error| error.kind());
    // Ten digits each.
    let decimal = |id: u64| format!("{}{:05}", (id >> 16) + 10_000, id & 0xffff);
    let to_user = |id: &u64| {
        let key = GrantKey { to: Grantee::User(decimal(*id).parse().unwrap()), reach: Reach::Local, of_sets: false };
        GrantChange { key, permissions: vec!["create".into()] }
    };
    let users = ids_of_one_hash(300, decimal);
    assert_eq!(grant("pool/a", users.iter().map(to_user).collect()), Err(ErrorKind::NoSpace));
    let sets = ids_of_one_hash(300, |id| format!("{id:x}"));
    let of_sets = |to: Grantee, reach: Reach, ids: &[u64]| {
        let permissions = ids.iter().map(|id| format!("@{id:x}")).collect();
        GrantChange { key: GrantKey { to, reach, of_sets: true }, permissions }
    };
    let to_all = |ids: &[u64]| of_sets(Grantee::Everyone, Reach::Local, ids);
    assert_eq!(grant("pool/a", vec![to_all(&sets[..150]), to_all(&sets[150..])]), Err(ErrorKind::NoSpace));
    grant("pool/a", vec![to_all(&sets[..150]), to_all(&sets[..150])]).unwrap();
    // What the directories above grant to creators goes into one list.
    let to_creators = |ids: &[u64]| vec![of_sets(Grantee::Creator, Reach::Unsaid, ids)];
    grant("pool", to_creators(&sets[..150])).unwrap();
    grant("pool/a", to_creators(&sets[150..])).unwrap();
    rig.with_syncs(|dsl| dsl.create_dataset(new_dataset("pool/a/x"))).unwrap();
    rig.check();
}
