//! What is left of a dataset that is destroyed: nothing, whatever stops the walk through its blocks on the way.

use ondisk::bpobj::{BlockBookmarkPhys, DESTROYED_OBJSET};
use ondisk::dsl::{dataset_field, number_key};

use super::*;
use crate::zap::Zap;
use crate::zio::Bookmark;

/// `files` files of one block each, in as many blocks of dnodes as that takes; `empty` more that have no block.
fn many(name: &str, files: u32, empty: u32) -> NewDataset {
    let fill: Fill = Box::new(move |objset, tx| {
        let spec = DnodeSpec::new(ObjectType::PLAIN_FILE_CONTENTS, 4096).with_bonus(ObjectType::SA, 64);
        let mut random = ChaCha8Rng::seed_from_u64(2);
        for _ in 0..files {
            let mut data = vec![0; 4096];
            random.fill(&mut data[..]);
            objset.allocate(tx, &spec)?.write(tx, 0, &data)?;
        }
        (0..empty).try_for_each(|_| objset.allocate(tx, &spec).map(drop))
    });
    NewDataset { fill, ..new_dataset(name) }
}

/// All blocks of a dataset, as they are freed.
fn blocks(rig: &Rig, name: &str) -> Vec<(BlkPtr, Bookmark)> {
    let root = rig.dsl().open_dataset(name).unwrap().phys().block;
    let mut all = Vec::new();
    let walk = Traversal::new(&rig.context, 1, 0).children_first();
    walk.run(&root, &mut |block| {
        all.push((*block.pointer, block.at));
        Ok(ControlFlow::Continue(()))
    })
    .unwrap();
    all
}

fn is_dnodes(at: &Bookmark) -> bool {
    at.object == 0 && at.level == 0
}

/// Changes something in the sync thread.
fn change<T: Send + 'static>(rig: &Rig, work: impl FnOnce(&Arc<Dsl>, &SyncTx<'_>) -> Result<T> + Send + 'static) -> T {
    rig.with_syncs(|dsl| dsl.run_task(1, SpaceCheck::None, |_| Ok(()), work)).unwrap()
}

fn mos_objects(rig: &Rig) -> Vec<u64> {
    let (dsl, mut objects, mut at) = (rig.dsl(), Vec::new(), 0);
    while let Some(next) = dsl.meta.mos.0.next_object(at).unwrap() {
        objects.push(next);
        at = next;
    }
    objects
}

fn is_freeing(rig: &Rig) -> bool {
    rig.dsl().has_background_frees().unwrap()
}

/// Txgs until nothing is left to free.
fn free_all(rig: &Rig) -> u32 {
    for txgs in 0..500 {
        if !is_freeing(rig) {
            return txgs;
        }
        rig.next_txg();
    }
    panic!("freeing has no end");
}

/// OpenZFS stops before it frees a block of dnodes when all below that is free, and notes it as a block of object 0. What is
/// below it must not be freed again: somebody else may have it by then.
#[test]
fn a_walk_goes_on_where_openzfs_stopped() {
    let rig = rig();
    rig.create();
    rig.with_syncs(|dsl| dsl.create_dataset(many("pool/a", 70, 0))).unwrap();
    let root = rig.dsl().open_dataset("pool/a").unwrap().phys().block;
    let all: Vec<Bookmark> = blocks(&rig, "pool/a").into_iter().map(|(_, at)| at).collect();
    assert!(all.iter().filter(|at| is_dnodes(at)).count() >= 3);
    for (index, stopped) in all.iter().enumerate().filter(|(_, at)| at.level == 0) {
        let resume = BlockBookmarkPhys {
            objset: DESTROYED_OBJSET.into(),
            object: stopped.object.into(),
            level: 0.into(),
            block: stopped.block.into(),
        };
        let mut seen = Vec::new();
        let walk = Traversal::new(&rig.context, 1, 0).children_first().resume(&resume);
        walk.run(&root, &mut |block| {
            seen.push(block.at);
            Ok(ControlFlow::Continue(()))
        })
        .unwrap();
        assert_eq!(seen, all[index..], "stopped at {stopped:?}");
    }
}

/// Files without blocks cost something too: the blocks that they stand in.
#[test]
fn destroying_many_empty_files_takes_several_txgs() {
    let rig = rig();
    rig.create();
    rig.with_syncs(|dsl| dsl.create_dataset(many("pool/a", 0, 640))).unwrap();
    let dsl = rig.dsl();
    // Those that pass before its thread is seen to have ended free something, too.
    let mut txgs = 0;
    std::thread::scope(|scope| {
        let destroyer = scope.spawn(|| dsl.destroy_dataset("pool/a"));
        while !destroyer.is_finished() {
            rig.next_txg();
            txgs += u32::from(is_freeing(&rig));
        }
        destroyer.join().unwrap().unwrap();
    });
    drop(dsl);
    rig.check();
    txgs += free_all(&rig);
    assert!(txgs > 5, "{txgs} txgs");
    rig.check();
    assert!(!rig.dsl().meta.features.is_active(Feature::AsyncDestroy));
}

/// Some block cannot be read, and a device is missing that may have it: the others of that dataset are freed up to there, other datasets as a whole; and all of it when the block
/// is there again. The pool does not stop for that.
#[test]
fn a_damaged_block_does_not_stop_the_pool() {
    let rig = rig();
    rig.create();
    for (victim, level) in [(0, 0), (1, 0), (2, 0), (0, 1)] {
        for (name, files) in [("pool/a", 70), ("pool/b", 40), ("pool/c", 40)] {
            rig.with_syncs(|dsl| dsl.create_dataset(many(name, files, 0))).unwrap();
        }
        let all = blocks(&rig, "pool/a");
        let (bp, at) = all.iter().filter(|(_, at)| at.object == 0 && at.level == level).nth(victim).unwrap();
        let good = rig.damage(bp);
        rig.with_syncs(|dsl| dsl.destroy_dataset("pool/a")).unwrap();
        rig.with_syncs(|dsl| dsl.destroy_dataset("pool/b")).unwrap();
        free_all(&rig);
        // It is behind one that cannot be freed.
        rig.with_syncs(|dsl| dsl.destroy_dataset("pool/c")).unwrap();
        free_all(&rig);
        let dsl = rig.dsl();
        let tree = bptree::Bptree(dsl.meta.mos.zap_u64(1, "bptree_obj").unwrap().unwrap());
        let left = tree.entries(&dsl.meta).unwrap();
        assert_eq!(left.len(), 3);
        assert_eq!(left.iter().map(|entry| entry.birth_txg.get() == u64::MAX).collect::<Vec<_>>(), [false, true, true], "{at}");
        assert_eq!(dsl.meta.features.count(Feature::AsyncDestroy), Some(1));
        drop(dsl);
        rig.repair(bp, &good);
        rig.check();
        rig.reopen();
        assert!(is_freeing(&rig));
        free_all(&rig);
        let dsl = rig.dsl();
        assert_eq!(dsl.meta.features.count(Feature::AsyncDestroy), Some(0));
        let free = dsl.find_child(&dsl.root_dir().unwrap(), FREE_DIR).unwrap().unwrap();
        assert_eq!(free.space(), Space::default());
        drop((dsl, free));
        rig.check();
    }
}

/// A scrub of OpenZFS that was interrupted does not look for what is gone.
#[test]
fn a_scan_forgets_a_destroyed_dataset() {
    let rig = rig();
    rig.create();
    for name in ["pool/a", "pool/b"] {
        rig.with_syncs(|dsl| dsl.create_dataset(new_dataset(name))).unwrap();
    }
    let object = |name: &str| rig.dsl().open_dataset(name).unwrap().object;
    let (a, b) = (object("pool/a"), object("pool/b"));
    let words = move |queue: u64| {
        let mut words = [7; 24];
        (words[0], words[1], words[2]) = (1, 1, queue);
        words[19..23].copy_from_slice(&[a, 5, 0, 9]);
        words
    };
    let queue = change(&rig, move |dsl, tx| {
        let mos = &dsl.meta.mos;
        let queue = mos.zap_create(ObjectType::SCAN_QUEUE, tx)?;
        for dataset in [a, b] {
            mos.zap_add_u64(queue, &number_key(dataset), 3, tx)?;
        }
        mos.zap_set_numbers(1, "scan", &words(queue), tx)?;
        Ok(queue)
    });
    rig.with_syncs(|dsl| dsl.destroy_dataset("pool/a")).unwrap();
    let mos = rig.dsl().meta.mos.clone();
    let mut expected = words(queue);
    expected[19..23].copy_from_slice(&[u64::MAX, 0, 0, 0]);
    // It is not to be visited again.
    expected[23] &= !1;
    assert_eq!(mos.zap_get(1, "scan").unwrap().unwrap().to_u64s(), expected);
    let left: Vec<_> = mos.zap_entries(queue).unwrap().into_iter().map(|(name, _)| name).collect();
    assert_eq!(left, [number_key(b)]);
}

/// Whatever OpenZFS hung on a dataset goes with it.
#[test]
fn nothing_of_a_destroyed_dataset_is_left_in_the_mos() {
    let rig = rig();
    rig.create();
    change(&rig, |dsl, tx| dsl.meta.features.enable(&dsl.meta.mos, Feature::ObsoleteCounts, tx));
    let live = |rig: &Rig| {
        rig.next_txg();
        mos_objects(rig)
    };
    let mut before = Vec::new();
    // The first round leaves what is made once for all.
    for _ in 0..2 {
        before = live(&rig);
        rig.with_syncs(|dsl| dsl.create_dataset(new_dataset("pool/a"))).unwrap();
        change(&rig, |dsl, tx| {
            let (mos, dataset) = (&dsl.meta.mos, dsl.dataset_by_name("pool/a")?);
            let (all, of_user) = (mos.zap_create(ObjectType::DSL_PERMS, tx)?, mos.zap_create(ObjectType::DSL_PERMS, tx)?);
            mos.zap_add_u64(of_user, "mount", 0, tx)?;
            mos.zap_add_u64(all, "ul$1000", of_user, tx)?;
            dsl.parts.ledger.change_dir(&dataset.dir, |state| state.phys_mut().delegations = all.into());
            dsl.meta.zapify(dataset.object, tx)?;
            let list = deadlist::Deadlist::create(&dsl.meta, tx)?;
            deadlist::Deadlist::open(&dsl.meta, list)?.add_key(&dsl.meta, 0, tx)?;
            mos.zap_add_u64(dataset.object, dataset_field::REMAP_DEADLIST, list, tx)?;
            dsl.meta.features.increment(mos, Feature::ObsoleteCounts, tx)
        });
        rig.with_syncs(|dsl| dsl.destroy_dataset("pool/a")).unwrap();
        free_all(&rig);
    }
    assert_eq!(live(&rig), before);
    assert_eq!(rig.dsl().meta.features.count(Feature::ObsoleteCounts), Some(0));
    rig.check();
}

/// OpenZFS counts a file from when its dnode says so, which may be before all of a set are counted.
#[test]
fn a_file_that_is_counted_stays_counted() {
    let rig = rig();
    rig.create();
    let dsl = rig.dsl();
    let dataset = dsl.open_dataset("pool").unwrap();
    let objset = dsl.objset(&dataset).unwrap();
    let count = || Zap::open(&objset, crate::dmu::USED_BY_USER).unwrap().lookup_u64("obj-5").unwrap();
    assert_eq!(count(), Some(1));
    let set = objset.clone();
    change(&rig, move |_, tx| {
        set.set_flags(tx, set.flags() & !ondisk::objset::FLAG_USER_OBJECT_ACCOUNTING_COMPLETE);
        Ok(())
    });
    let member = Membership::single(objset.clone());
    let tx = OpenTx::assign(&member, 1 << 20).unwrap();
    objset.hold(1).unwrap().write(&tx, 1 << 20, &[7; 4096]).unwrap();
    drop(tx);
    rig.next_txg();
    assert_eq!(count(), Some(1));
}

#[test]
fn who_still_knows_a_destroyed_dataset_cannot_open_it() {
    let rig = rig();
    rig.create();
    rig.with_syncs(|dsl| dsl.create_dataset(new_dataset("pool/a"))).unwrap();
    let dataset = rig.dsl().open_dataset("pool/a").unwrap();
    rig.with_syncs(|dsl| dsl.destroy_dataset("pool/a")).unwrap();
    let error = rig.dsl().objset(&dataset).err().expect("must be refused");
    assert_eq!(error.kind(), ErrorKind::NotFound, "{error}");
}

/// What a receive had left was destroyed by its name: by then it could be gone, which was in the way of the next stream, or another could have the name.
#[test]
fn what_a_receive_left_is_destroyed_and_no_other_of_its_name() {
    use ondisk::stream::{Begin, HEADER_SUBSTREAM, STREAM_MAGIC};
    let rig = rig();
    rig.create();
    let begin = Begin { magic: STREAM_MAGIC, version_info: HEADER_SUBSTREAM, objset_type: ObjsetType::FileSystem.number() as u32, to_guid: 7, ..Begin::zeroed() };
    let head = StreamHead { begin, list: ondisk::nvlist::NvList::new() };
    let leave = || {
        let target = ReceiveTarget { dataset: "pool/new".into(), snapshot: "s".into(), ..ReceiveTarget::default() };
        rig.with_syncs(|dsl| dsl.receiving().begin_receive(target, &head)).unwrap().dataset.clone()
    };
    let destroy = |left: &Arc<Dataset>| rig.with_syncs(|dsl| dsl.destroy_unfinished(left)).unwrap();
    let left = leave();
    destroy(&left);
    assert!(rig.dsl().open_dataset("pool/new").is_err());
    destroy(&left);
    rig.with_syncs(|dsl| dsl.create_dataset(new_dataset("pool/new"))).unwrap();
    destroy(&left);
    assert!(rig.dsl().open_dataset("pool/new").is_ok(), "another one was destroyed");
    rig.with_syncs(|dsl| dsl.destroy_dataset("pool/new")).unwrap();
    drop(leave());
    // A stream of the same name destroys it.
    drop(leave());
    rig.with_syncs(|dsl| dsl.receiving().destroy_inconsistent()).unwrap();
    rig.check();
}

/// A file system was opened, changed and closed when its destruction waited for its group: with that group it went, and with it what the next one had changed, before
/// that was on disk.
#[test]
fn what_a_later_group_changed_is_not_destroyed_with_an_earlier_one() {
    let rig = rig();
    rig.create();
    rig.with_syncs(|dsl| dsl.create_dataset(new_dataset("pool/a"))).unwrap();
    rig.next_txg();
    let dsl = rig.dsl();
    let groups = &rig.context.groups;
    let txg = groups.open_txg();
    let was_there = std::thread::scope(|scope| {
        let destroyer = scope.spawn(|| dsl.destroy_dataset("pool/a"));
        while !dsl.has_tasks(txg) && !destroyer.is_finished() {
            std::thread::yield_now();
        }
        assert_eq!(groups.quiesce(), txg);
        let member = Membership::single(dsl.objset(&dsl.open_dataset("pool/a").unwrap()).unwrap());
        let tx = OpenTx::assign(&member, 1 << 20).unwrap();
        member.objset().hold(1).unwrap().write(&tx, 0, &[7; 4096]).unwrap();
        drop(tx);
        drop(member);
        assert_eq!(groups.begin_sync(), Some(txg));
        rig.sync(txg);
        groups.end_sync(txg, Ok(()));
        let was_there = dsl.open_dataset("pool/a").is_ok();
        while !destroyer.is_finished() {
            rig.next_txg();
        }
        destroyer.join().unwrap().unwrap();
        was_there
    });
    assert!(was_there, "it went with a group before the one that changed it");
    assert!(dsl.open_dataset("pool/a").is_err());
    drop(dsl);
    free_all(&rig);
    rig.check();
}
