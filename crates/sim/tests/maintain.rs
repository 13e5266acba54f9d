//! Features that this program keeps right without using them itself: golden pools that use them are written, and the
//! real `zdb` finds nothing wrong afterwards.

use engine::dsl::SpaceCheck;
use ondisk::dsl::{DATASET_FLAG_DEFER_DESTROY, DatasetPhys};
use ondisk::feature::{Feature, FeatureFlags, Support};
use sim::places;
use sim::scenario::{Rig, contents};

fn golden(name: &str) -> Option<Rig> {
    let rig = Rig::golden(name);
    if rig.is_none() {
        places::skipped(&format!("golden pool {name}: not found"));
    }
    rig
}

/// Without its key an encrypted dataset cannot be opened, nothing can be made below it, and it can be destroyed: its
/// blocks, which are found without the key, and its share of the key go.
#[test]
fn an_encrypted_dataset_is_destroyed_without_its_key() {
    let Some(mut rig) = golden("encrypt") else { return };
    let message = |result: Result<(), tarnfs::Error>| result.expect_err("no key is loaded").to_string();
    let opened = message(rig.pool().file_system("g_encrypt/pass/clone").map(drop));
    assert!(opened.contains("its key is not loaded"), "{opened}");
    let made = message(rig.pool().create_file_system("g_encrypt/pass/new", Vec::new()));
    assert!(made.contains("its parent is encrypted"), "{made}");
    let dataset = |rig: &Rig| rig.pool().engine().dsl.open_dataset("g_encrypt/pass/clone").is_ok();
    assert!(dataset(&rig));
    rig.pool().destroy_file_system("g_encrypt/pass/clone").expect("it has no snapshots");
    rig.sync();
    assert!(!dataset(&rig));
    rig.export();
    rig.check("encrypt: a clone destroyed");
    rig.zdb("encrypt: a clone destroyed", true);
}

/// As OpenZFS leaves a snapshot that is destroyed while it has clones (`zfs destroy -d`).
fn mark_for_destruction(rig: &mut Rig, snapshot: &str) {
    {
        let dsl = &rig.pool().engine().dsl;
        let object = dsl.open_dataset(snapshot).expect("it is there").object;
        let mark = move |dsl: &std::sync::Arc<engine::dsl::Dsl>, tx: &engine::dmu::SyncTx<'_>| {
            let mut record = dsl.meta.mos.bonus(object)?.to_vec();
            record[std::mem::offset_of!(DatasetPhys, flags)] |= DATASET_FLAG_DEFER_DESTROY as u8;
            dsl.meta.mos.set_bonus(object, &record, tx)
        };
        dsl.run_task(1, SpaceCheck::None, |_| Ok(()), mark).expect("it is marked");
    }
    rig.export();
    rig.import();
}

/// A snapshot that was destroyed while it had a clone stayed for ever when the clone was destroyed here. It goes too, but where somebody holds it, or a
/// bookmark counts on it.
#[test]
fn a_marked_snapshot_goes_with_its_last_clone() {
    for (name, snapshot, clone, goes) in [
        ("encrypt", "g_encrypt/pass@e", "g_encrypt/pass/clone", true),
        ("snap", "g_snap/livelist@l", "g_snap/lclone", true),
        ("snap", "g_snap/clone@c1", "g_snap/clone2", false),
    ] {
        let Some(mut rig) = golden(name) else { continue };
        mark_for_destruction(&mut rig, snapshot);
        let exists = |rig: &Rig, name: &str| rig.pool().engine().dsl.open_dataset(name).is_ok();
        assert!(exists(&rig, snapshot) && exists(&rig, clone));
        rig.pool().destroy_file_system(clone).unwrap_or_else(|error| panic!("{clone}: {error}"));
        rig.sync();
        assert_eq!((exists(&rig, snapshot), exists(&rig, clone)), (!goes, false), "{snapshot}");
        let what = format!("{snapshot} after {clone}");
        rig.export();
        rig.check(&what);
        rig.zdb(&what, true);
        rig.import();
        assert_eq!(exists(&rig, snapshot), !goes, "{snapshot}");
    }
}

/// What `zpool upgrade` enables.
fn features_of_an_upgrade() -> Vec<Feature> {
    let is_automatic = |feature: &Feature| !feature.info().flags.contains(FeatureFlags::NO_UPGRADE);
    Feature::all().filter(|feature| feature.info().support == Support::ReadWrite).filter(is_automatic).collect()
}

/// Files in a file system of their own, some changed, some removed.
fn work(rig: &mut Rig, dataset: &str, seed: u64) {
    let mut actor = rig.actor(dataset);
    actor.mkdir(&format!("d{seed}"));
    for number in 0..40 {
        actor.file(&format!("d{seed}/{number}"), &contents(seed + number, 3000 * number as usize, number as u8 % 3));
    }
    (0..40).step_by(3).for_each(|number| actor.unlink(&format!("d{seed}/{number}")));
    actor.punch(&format!("d{seed}/38"), 4096, 60_000);
    actor.setxattr(&format!("d{seed}/37"), "user.a", &contents(seed, 200, 0));
    rig.sync();
}

/// A pool of version 28 gets feature flags and then, still open, every feature: in each of these states it satisfies both
/// checkers, and so does what is written by the features' means. From the group on in which `hole_birth` was enabled holes
/// have a birth: one without it would count as older than the feature, and be missing from an incremental stream.
#[test]
fn old_pools_are_upgraded() {
    for (name, version) in [("v28", 28), ("nofeat", 5000)] {
        let Some(mut rig) = golden(name) else { continue };
        let root = rig.golden_pool().manifest.pool.name.clone();
        let (before, after) = (format!("{root}/before"), format!("{root}/after"));
        assert_eq!(rig.pool().engine().config().version, version);
        rig.create_file_system(&before, &[]);
        work(&mut rig, &before, 1);
        rig.pool().engine().raise_version(5000).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_eq!(rig.pool().engine().uberblock().version, 5000);
        work(&mut rig, &before, 2);
        rig.judge(&format!("{name}: features, none of them enabled"));
        let engine = rig.pool().engine().clone();
        assert!(!engine.context.io.features().hole_birth, "{name}: nobody enabled it");
        engine.enable_features(features_of_an_upgrade()).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert!(engine.context.io.features().hole_birth, "{name}: holes have no birth");
        drop(engine);
        work(&mut rig, &before, 3);
        rig.create_file_system(&after, &[("compression", "zstd"), ("checksum", "blake3"), ("recordsize", "1M"), ("dnodesize", "auto")]);
        work(&mut rig, &after, 4);
        rig.judge_thoroughly(&format!("{name}: all features"));
        work(&mut rig, &before, 5);
        rig.destroy_file_system(&after);
        rig.judge_crash(&format!("{name}: all features, a crash"));
    }
}
