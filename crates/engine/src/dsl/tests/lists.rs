//! Deadlists with many keys, and lists that cannot be read.

use super::*;

/// A deadlist with many keys is made by copying blocks, be the dictionary micro or fat; the entries are then all empty, in memory as on disk.
#[test]
fn long_deadlists_are_copied() {
    use deadlist::Deadlist;
    let rig = rig();
    rig.create();
    let dsl = rig.dsl();
    let meta = &dsl.meta;
    let shared = meta.features.count(Feature::EmptyBpobj).unwrap();
    let frees = Mutex::new(Vec::new());
    let tx = SyncTx::new(&rig.context, TXG_INITIAL + 1, 1, &frees);
    for count in [500_u64, 5000] {
        let list = Deadlist::open(meta, Deadlist::create(meta, &tx).unwrap()).unwrap();
        (0..count).for_each(|key| list.add_key(meta, key * 10, &tx).unwrap());
        list.insert(meta, &[pointer(5, 1), pointer(count * 5 + 1, 2), pointer(count * 10, 4)], &tx).unwrap();
        for (before, kept) in [(u64::MAX, count), (count * 9, count * 9 / 10), (count, count / 10)] {
            let copy = list.clone_keys(meta, before, &|| Ok(Vec::new()), &tx).unwrap();
            let keys: Vec<u64> = (0..kept).map(|key| key * 10).collect();
            let on_disk = Deadlist::open(meta, copy.object).unwrap();
            for known in [&copy, &on_disk] {
                let entries = known.entries(meta).unwrap();
                assert_eq!(entries.iter().map(|(key, _)| *key).collect::<Vec<_>>(), keys, "{count} keys, those before {before}");
                assert!(entries.iter().all(|(_, list)| list.is_shared_empty(meta)));
                assert_eq!(known.space(meta).unwrap(), Space::default());
            }
            assert_eq!(meta.features.count(Feature::EmptyBpobj).unwrap(), shared + count - 3 + kept);
            copy.insert(meta, &[pointer(7, 1)], &tx).unwrap();
            assert_eq!(Deadlist::open(meta, copy.object).unwrap().space_born_in(meta, 0, 10).unwrap().used, 512);
            Deadlist::destroy(meta, copy.object, &tx).unwrap();
        }
        assert_eq!(list.space(meta).unwrap().used, 7 * 512);
        let other = list.clone_keys(meta, u64::MAX, &|| Ok(Vec::new()), &tx).unwrap();
        other.insert(meta, &[pointer(15, 8), pointer(5, 16)], &tx).unwrap();
        list.absorb(meta, &other, &tx).unwrap();
        assert_eq!(list.space(meta).unwrap().used, 31 * 512);
        assert_eq!(meta.features.count(Feature::EmptyBpobj).unwrap(), shared + count - 4);
        Deadlist::destroy(meta, list.object, &tx).unwrap();
        assert_eq!(meta.features.count(Feature::EmptyBpobj).unwrap(), shared);
    }
    rig.next_txg();
    rig.check();
}

/// To list a ZAP finds what a cursor finds, in the same order, with the same positions; a copy has the same.
#[test]
fn a_listing_is_what_a_cursor_finds() {
    let rig = rig();
    rig.create();
    let dsl = rig.dsl();
    let mos = &dsl.meta.mos;
    let frees = Mutex::new(Vec::new());
    let tx = SyncTx::new(&rig.context, TXG_INITIAL + 1, 1, &frees);
    for count in [0_u64, 3, 700, 9000] {
        let object = mos.zap_create(ObjectType::DSL_PROPS, &tx).unwrap();
        (0..count).for_each(|number| mos.zap_add_u64(object, &format!("name {number}"), number, &tx).unwrap());
        (0..count).step_by(3).for_each(|number| assert!(mos.zap_remove(object, &format!("name {number}"), &tx).unwrap()));
        let copy = mos.zap_copy(object, 0, &tx).unwrap();
        for object in [object, copy] {
            let zap = mos.zap(object).unwrap();
            let mut cursor = crate::zap::Cursor::start();
            let one_by_one: Vec<_> = std::iter::from_fn(|| zap.next(&mut cursor).unwrap()).collect();
            assert_eq!(zap.entries().unwrap(), one_by_one, "{count}");
            let mut numbers = Vec::new();
            zap.each_number(&mut |name, value| {
                numbers.push((name.to_vec(), value));
                Ok(())
            })
            .unwrap();
            numbers.sort_unstable();
            let mut expected: Vec<_> = one_by_one.iter().map(|entry| (entry.name.clone(), entry.value.first())).collect();
            expected.sort_unstable();
            assert_eq!(numbers, expected, "{count}");
            assert_eq!((one_by_one.len() as u64, zap.len().unwrap()), (count - count.div_ceil(3), count - count.div_ceil(3)), "{count}");
        }
        mos.free(object, &tx).unwrap();
        mos.free(copy, &tx).unwrap();
    }
    rig.next_txg();
    rig.check();
}

/// A deadlist from before pool version 26 has no keys. To destroy a snapshot whose blocks are on one is refused before anything changes: it stopped the pool.
#[test]
fn snapshots_with_old_deadlists_are_not_destroyed() {
    use bpobj::Bpobj;
    use deadlist::Deadlist;
    let rig = rig();
    rig.create();
    rig.with_syncs(|dsl| dsl.create_dataset(new_dataset("pool/a"))).unwrap();
    for name in ["pool/a@1", "pool/a@2", "pool/a@3"] {
        let new = crate::dsl::NewSnapshots { names: vec![name.into()], properties: Vec::new() };
        assert!(rig.with_syncs(|dsl| dsl.snapshot_verbs().create_snapshots(new)).unwrap().is_empty());
    }
    let dataset = rig.dsl().open_dataset("pool/a@2").unwrap();
    let make_old = move |dsl: &Arc<Dsl>, tx: &SyncTx<'_>| {
        let list = Bpobj::create(&dsl.meta, tx)?;
        Deadlist::destroy(&dsl.meta, dataset.deadlist().object, tx)?;
        let old = Arc::new(Deadlist::open(&dsl.meta, list.0)?);
        dataset.change(|state| {
            state.phys_mut().deadlist = list.0.into();
            state.set_deadlist(old);
        });
        Ok(())
    };
    rig.with_syncs(|dsl| dsl.run_task(1, SpaceCheck::None, |_| Ok(()), make_old)).unwrap();
    for (names, defer, refused) in [(["pool/a@1"].as_slice(), false, 1), (&["pool/a@2"], true, 1), (&["pool/a@1", "pool/a@2", "pool/a@3"], false, 2)] {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let refusals = rig.with_syncs(|dsl| dsl.snapshot_verbs().destroy_snapshots(names.clone(), defer)).unwrap();
        assert_eq!(refusals.len(), refused, "{names:?}: {refusals:?}");
        assert!(refusals.iter().all(|(_, error)| error.kind() == ErrorKind::NotSupported && error.to_string().contains("before pool version 26")), "{refusals:?}");
    }
    assert_eq!(rig.dsl().open_dataset("pool/a").unwrap().snapshots().unwrap().len(), 3);
}

/// The pointer to a block of an object of the MOS.
fn block_of(rig: &Rig, object: u64, number: u64) -> BlkPtr {
    let mut found = None;
    let root = *rig.root.lock();
    let walk = Traversal::new(&rig.context, 0, 0);
    walk.run(&root, &mut |block| {
        if (block.at.object, block.at.level, block.at.block) == (object, 0, number) {
            found = Some(*block.pointer);
        }
        Ok(ControlFlow::Continue(()))
    })
    .unwrap();
    found.unwrap()
}

/// A list of which a block cannot be read: what was visited before that was free, and was still on the list, to be freed again when the pool was next opened.
#[test]
fn what_is_freed_of_a_damaged_list_is_not_on_it() {
    use bpobj::Bpobj;
    let rig = rig();
    rig.create();
    let frees = Mutex::new(Vec::new());
    let tx = || SyncTx::new(&rig.context, rig.context.groups.open_txg(), 1, &frees);
    let (top, long) = {
        let (dsl, tx) = (rig.dsl(), tx());
        let (top, long) = (Bpobj::create(&dsl.meta, &tx).unwrap(), Bpobj::create(&dsl.meta, &tx).unwrap());
        top.append(&dsl.meta, &(0..5).map(|n| pointer(10 + n, 1)).collect::<Vec<_>>(), &tx).unwrap();
        long.append(&dsl.meta, &(0..3000).map(|n| pointer(100 + n, 2)).collect::<Vec<_>>(), &tx).unwrap();
        top.adopt(&dsl.meta, long, &tx).unwrap();
        (top, long)
    };
    rig.next_txg();
    let all = births(top, &rig.dsl().meta);
    assert_eq!(all.len(), 3005);
    rig.reopen();
    let first = block_of(&rig, long.0, 0);
    let good = rig.damage(&first);
    let mut freed = Vec::new();
    for _ in 0..2 {
        let drained = top.drain(&rig.dsl().meta, &tx(), |bp, _| {
            freed.push(bp.birth());
            Ok(ControlFlow::Continue(()))
        });
        assert!(drained.unwrap_err().is_loss());
        rig.next_txg();
        rig.reopen();
        assert_eq!(freed, all[..3005 - 1024]);
        assert_eq!(top.space(&rig.dsl().meta).unwrap().used, 1024 * 1024);
    }
    rig.repair(&first, &good);
    let dsl = rig.dsl();
    let meta = &dsl.meta;
    let drained = top.drain(meta, &tx(), |bp, _| {
        freed.push(bp.birth());
        Ok(ControlFlow::Continue(()))
    });
    assert!(drained.unwrap());
    assert_eq!(freed, all);
    assert_eq!(top.space(meta).unwrap(), Space::default());
    top.destroy(meta, &tx()).unwrap();
    rig.next_txg();
    rig.check();
}

/// The livelist of a clone cannot be read. Each group in which the clone was written stopped the pool, though the clone needs no list.
#[test]
fn a_damaged_livelist_is_given_up() {
    use deadlist::Deadlist;
    use ondisk::dsl::dir_field::LIVELIST;
    let rig = rig();
    rig.create();
    let random = |blocks: usize, seed: u64| {
        let mut data = vec![0_u8; blocks * 4096];
        ChaCha8Rng::seed_from_u64(seed).fill(&mut data[..]);
        data
    };
    let data = random(600, 1);
    let fill: Fill = Box::new(move |objset, tx| {
        let spec = DnodeSpec::new(ObjectType::PLAIN_FILE_CONTENTS, 4096).with_bonus(ObjectType::SA, 64);
        objset.allocate(tx, &spec)?.write(tx, 0, &data)
    });
    rig.with_syncs(|dsl| dsl.create_dataset(NewDataset { fill, ..new_dataset("pool/a") })).unwrap();
    let new = crate::dsl::NewSnapshots { names: vec!["pool/a@1".into()], properties: Vec::new() };
    assert!(rig.with_syncs(|dsl| dsl.snapshot_verbs().create_snapshots(new)).unwrap().is_empty());
    let clone = NewClone { name: "pool/b".into(), snapshot: "pool/a@1".into(), properties: Vec::new() };
    rig.with_syncs(|dsl| dsl.clone_dataset(clone)).unwrap();
    let write = |seed: u64| {
        let dsl = rig.dsl();
        let objset = dsl.objset(&dsl.open_dataset("pool/b").unwrap()).unwrap();
        let member = Membership::single(objset.clone());
        let tx = OpenTx::assign(&member, 1 << 20).unwrap();
        objset.hold(1).unwrap().write(&tx, 0, &random(40, seed)).unwrap();
        drop(tx);
        rig.next_txg();
    };
    let livelist = || {
        let dsl = rig.dsl();
        let dir = dsl.open_dataset("pool/b").unwrap().dir.object;
        dsl.meta.mos.zap_u64(dir, LIVELIST).unwrap()
    };
    write(2);
    let list = livelist().unwrap();
    let parts = Deadlist::open(&rig.dsl().meta, list).unwrap().lists(&rig.dsl().meta).unwrap();
    rig.damage(&block_of(&rig, parts[0].0, 0));
    write(3);
    assert_eq!(livelist(), None);
    assert_eq!(rig.dsl().meta.features.count(Feature::Livelist), Some(0));
    write(4);
    rig.with_syncs(|dsl| dsl.destroy_dataset("pool/b")).unwrap();
}
