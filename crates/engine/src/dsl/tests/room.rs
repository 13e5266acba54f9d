//! Promises of space, where little is left.

use super::*;
use crate::dsl::props::prop_sync::check_properties;

const FILE_BYTES: usize = 3 << 20;

/// With `pool/a`, that has a file of [`FILE_BYTES`].
fn with_file() -> Rig {
    let rig = rig();
    rig.create();
    make(&rig, "pool/a");
    rig
}

/// A file system that has a file of [`FILE_BYTES`].
fn make(rig: &Rig, name: &'static str) {
    rig.with_syncs(|dsl| dsl.create_dataset(new_dataset(name))).unwrap();
    let objset = objset_of(rig, name);
    let member = Membership::single(objset.clone());
    let tx = OpenTx::assign(&member, FILE_BYTES as u64).unwrap();
    let mut data = vec![0; FILE_BYTES];
    ChaCha8Rng::seed_from_u64(2).fill(&mut data[..]);
    objset.hold(1).unwrap().write(&tx, 0, &data).unwrap();
    drop(tx);
    rig.next_txg();
}

fn objset_of(rig: &Rig, name: &str) -> Arc<Objset> {
    let dsl = rig.dsl();
    dsl.objset(&dsl.open_dataset(name).unwrap()).unwrap()
}

#[track_caller]
fn assert_for_now(asked: &Result<(), Refusal>) {
    assert!(matches!(asked, Err(Refusal::ForNow(error)) if error.kind() == ErrorKind::NoSpace), "{asked:?}");
}

/// A removed file was no longer counted as soon as its group was being written, and what it had had was promised again; but it could not be used before the group was on
/// disk, and often not then. The next group found no place, and the pool stopped.
#[test]
fn what_is_freed_is_not_promised_before_its_group_is_on_disk() {
    let rig = with_file();
    let (dsl, objset) = (rig.dsl(), objset_of(&rig, "pool/a"));
    let used = dsl.root_dir().unwrap().phys().used_bytes.get();
    // Half of it is kept back, and a fourth of that can be promised: the pool is full.
    dsl.set_pool_space(PoolSpace { capacity: 2 * used, ..PoolSpace::default() });
    let wanted = 5 << 18;
    let member = Membership::single(objset.clone());
    let tx = OpenTx::assign_freeing(&member).unwrap();
    objset.free(&tx, 1).unwrap();
    drop(tx);
    let groups = &rig.context.groups;
    let txg = groups.quiesce();
    assert_eq!(groups.begin_sync(), Some(txg));
    let frees = Mutex::new(Vec::new());
    let tx = SyncTx::new(&rig.context, txg, 1, &frees);
    *rig.root.lock() = dsl.sync_pass(&tx).unwrap();
    assert!(dsl.root_dir().unwrap().phys().used_bytes.get() + (FILE_BYTES as u64) < used + (1 << 20), "nothing was freed");
    assert_for_now(&objset.owner().reserve(groups.open_txg(), wanted));
    rig.free_blocks(&frees, txg);
    rig.sync_from(txg, 2);
    groups.end_sync(txg, Ok(()));
    objset.owner().reserve(groups.open_txg(), wanted).unwrap();
    dsl.clear_in_flight(groups.open_txg());
    drop(objset);
    rig.check();
}

/// A reservation paid for what was written over the file that it was made for, in whatever amount: that there must be a place for it, too, until the old can be used again,
/// nobody looked at, and the pool stopped.
#[test]
fn what_a_reservation_pays_for_needs_a_place() {
    let rig = with_file();
    rig.with_syncs(|dsl| dsl.create_dataset(new_dataset("pool/b"))).unwrap();
    let reserved = vec![("refreservation".to_owned(), PropertyChange::Set(PropertyValue::Number(64 << 20)))];
    rig.with_syncs(|dsl| dsl.set_properties("pool/a", reserved)).unwrap();
    let (dsl, a, b) = (rig.dsl(), objset_of(&rig, "pool/a"), objset_of(&rig, "pool/b"));
    // Of that, 32 MiB are kept back.
    dsl.set_pool_space(PoolSpace { capacity: METASLABS * METASLAB_BYTES, free: 100 << 20, ..PoolSpace::default() });
    let txg = rig.context.groups.open_txg();
    a.owner().reserve(txg, 30 << 20).unwrap();
    for other in [&a, &b] {
        assert_for_now(&other.owner().reserve(txg, 10 << 20));
    }
    a.owner().settle(txg, 30 << 20, 0);
    b.owner().reserve(txg, 10 << 20).unwrap();
    dsl.clear_in_flight(txg);
    let refused = a.owner().reserve(txg, 40 << 20);
    assert!(matches!(&refused, Err(Refusal::Final(error)) if error.kind() == ErrorKind::NoSpace), "{refused:?}");
    a.owner().reserve(txg, 30 << 20).unwrap();
    dsl.clear_in_flight(txg);
    drop((a, b));
    rig.check();
}

/// What was promised to a file system below counted against the limits of the one above, which are of that one alone: with much of a refquota left its writers were told
/// that it is exceeded, and its own reservation was taken for used up.
#[test]
fn promises_below_do_not_count_for_a_dataset_of_its_own() {
    let rig = with_file();
    rig.with_syncs(|dsl| dsl.create_dataset(new_dataset("pool/a/below"))).unwrap();
    let number = |name: &str, number| (name.to_owned(), PropertyChange::Set(PropertyValue::Number(number)));
    let limits = vec![number("refquota", 20 << 20), number("refreservation", 16 << 20)];
    rig.with_syncs(|dsl| dsl.set_properties("pool/a", limits)).unwrap();
    let (dsl, a, below) = (rig.dsl(), objset_of(&rig, "pool/a"), objset_of(&rig, "pool/a/below"));
    let txg = rig.context.groups.open_txg();
    below.owner().reserve(txg, 24 << 20).unwrap();
    // Nothing is left but what is reserved.
    let used = dsl.root_dir().unwrap().phys().used_bytes.get();
    dsl.set_pool_space(PoolSpace { capacity: 2 * used, free: METASLABS * METASLAB_BYTES, ..PoolSpace::default() });
    assert_for_now(&below.owner().reserve(txg, 1 << 20));
    a.owner().reserve(txg, 1 << 20).unwrap();
    // Its own count.
    a.owner().reserve(txg, 10 << 20).unwrap();
    a.owner().settle(txg, 10 << 20, 18 << 20);
    let own = a.owner().reserve(txg, 1 << 20);
    assert!(matches!(&own, Err(Refusal::ForNow(error)) if error.kind() == ErrorKind::Quota), "{own:?}");
    a.owner().settle(txg, 18 << 20, 0);
    a.owner().reserve(txg, 1 << 20).unwrap();
    dsl.clear_in_flight(txg);
    a.owner().reserve(txg, 1 << 20).unwrap();
    dsl.clear_in_flight(txg);
    drop((a, below));
    rig.check();
}

/// Each of several snapshots that are taken together found the same room for what its file system has to reserve anew.
#[test]
fn snapshots_taken_together_need_room_together() {
    let rig = with_file();
    make(&rig, "pool/b");
    let reserved = || vec![("refreservation".to_owned(), PropertyChange::Set(PropertyValue::Number(FILE_BYTES as u64)))];
    for name in ["pool/a", "pool/b"] {
        rig.with_syncs(|dsl| dsl.set_properties(name, reserved())).unwrap();
    }
    let dsl = rig.dsl();
    let used = dsl.root_dir().unwrap().phys().used_bytes.get();
    let left = FILE_BYTES as u64 + (1 << 20);
    // Half of it is kept back.
    dsl.set_pool_space(PoolSpace { capacity: 2 * (used + left), free: METASLABS * METASLAB_BYTES, ..PoolSpace::default() });
    let take = |names: &[&str]| {
        let new = NewSnapshots { names: names.iter().map(|name| (*name).to_owned()).collect(), properties: Vec::new() };
        let refusals = rig.with_syncs(|dsl| dsl.snapshot_verbs().create_snapshots(new)).unwrap();
        refusals.into_iter().map(|(_, error)| error.kind()).collect::<Vec<_>>()
    };
    assert_eq!(take(&["pool/a@s", "pool/b@s"]), [ErrorKind::NoSpace]);
    assert!(dsl.open_dataset("pool/a@s").is_err() && dsl.open_dataset("pool/b@s").is_err());
    assert!(take(&["pool/a@s"]).is_empty());
    assert_eq!(take(&["pool/b@s"]), [ErrorKind::NoSpace]);
}

/// In a pool so full that hardly anything but freeing is allowed, a reservation could not be given up, which would have made room.
#[test]
fn a_reservation_is_given_up_where_only_freeing_goes_on() {
    let rig = with_file();
    let set = |name: &str, value: PropertyValue| {
        let changes = vec![(name.to_owned(), PropertyChange::Set(value))];
        rig.with_syncs(|dsl| dsl.set_properties("pool/a", changes))
    };
    set("refreservation", PropertyValue::Number(24 << 20)).unwrap();
    let dsl = rig.dsl();
    let used = dsl.root_dir().unwrap().phys().used_bytes.get();
    // A fourth of it, and then an eighth, are kept back. Each change is taken to need 1.5 MiB.
    dsl.set_pool_space(PoolSpace { capacity: (used + (1 << 20)) / 3 * 4, free: METASLABS * METASLAB_BYTES, ..PoolSpace::default() });
    assert_eq!(set("user:a", PropertyValue::Text("x".into())).unwrap_err().kind(), ErrorKind::NoSpace);
    set("refreservation", PropertyValue::Number(0)).unwrap();
    set("user:a", PropertyValue::Text("x".into())).unwrap();
    rig.check();
}

/// A quota was refused for what had just been removed, as the group that frees it was not on disk yet. The sync thread knows what is used.
#[test]
fn what_is_being_freed_is_in_no_quotas_way() {
    let rig = with_file();
    let (dsl, objset) = (rig.dsl(), objset_of(&rig, "pool/a"));
    let quota = |bytes| vec![("quota".to_owned(), PropertyChange::Set(PropertyValue::Number(bytes)))];
    let checked = |is_known| check_properties(&dsl.parts, "pool/a", &quota(2 << 20), is_known).map_err(|error| error.kind());
    assert_eq!([checked(false), checked(true)], [Err(ErrorKind::NoSpace); 2]);
    let member = Membership::single(objset.clone());
    let tx = OpenTx::assign_freeing(&member).unwrap();
    objset.free(&tx, 1).unwrap();
    drop(tx);
    assert_eq!([checked(false), checked(true)], [Ok(()), Err(ErrorKind::NoSpace)]);
    rig.with_syncs(|dsl| dsl.set_properties("pool/a", quota(2 << 20))).unwrap();
    let too_much = vec![("reservation".to_owned(), PropertyChange::Set(PropertyValue::Number(1 << 50)))];
    let refused = rig.with_syncs(|dsl| dsl.set_properties("pool/a", too_much));
    assert_eq!(refused.map_err(|error| error.kind()), Err(ErrorKind::NoSpace));
    drop((member, objset));
    rig.check();
}
