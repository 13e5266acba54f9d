//! Snapshots: each reads as its file system was when it was taken, whatever happens to the file system and to other snapshots.
//!
//! In these tests no group ends by itself.

use std::collections::BTreeMap;

use engine::dsl::{NewBookmark, NewSnapshots};
use engine::error::ErrorKind;
use engine::tunables::Tunables;
use ondisk::dsl::UsedKind;
use ondisk::feature::Feature;
use sim::scenario::{Layout, Mix, Model, RandomSteps, Rig};

const HEADS: [&str; 3] = ["tank", "tank/a", "tank/a/b"];

fn rig() -> Rig {
    let tunables = Tunables { txg_timeout_ns: 3_600_000_000_000, ..Tunables::default() };
    let mut rig = Rig::create_with(Layout { bytes: 512 << 20, ..Layout::default() }, &[("compression", "lz4")], tunables);
    rig.create_file_system("tank/a", &[("recordsize", "16384")]);
    rig.create_file_system("tank/a/b", &[("dnodesize", "1")]);
    rig
}

#[track_caller]
fn take(rig: &Rig, names: &[String]) {
    let new = NewSnapshots { names: names.to_vec(), properties: Vec::new() };
    let refusals = rig.pool().engine().dsl.snapshot_verbs().create_snapshots(new).unwrap_or_else(|error| panic!("{names:?}: {error}"));
    assert!(refusals.is_empty(), "{refusals:?}");
}

/// Snapshots that are there, with what is in them.
type Taken = BTreeMap<String, Model>;

fn take_of_all(rig: &mut Rig, taken: &mut Taken, short: &str) {
    let names: Vec<String> = HEADS.iter().map(|head| format!("{head}@{short}")).collect();
    take(rig, &names);
    for (head, name) in HEADS.iter().zip(names) {
        taken.insert(name, rig.model(head).clone());
    }
}

fn compare(rig: &Rig, taken: &Taken, what: &str) {
    for (name, model) in taken {
        let fs = rig.pool().file_system(name).unwrap_or_else(|error| panic!("{what}: {name}: {error}"));
        model.compare(&fs, &format!("{what}: {name}"));
        fs.release_all();
    }
}

fn judge(rig: &mut Rig, what: &str) {
    rig.export();
    rig.check(what);
    rig.zdb(what, false);
    rig.import();
}

#[test]
fn snapshots_keep_what_was_there() {
    let mut rig = rig();
    let mut steps = RandomSteps::new(1, Mix::default());
    let mut taken = Taken::new();
    for round in 0..6 {
        for head in HEADS {
            let mut actor = rig.actor(head);
            (0..60).for_each(|_| steps.step(&mut actor));
        }
        take_of_all(&mut rig, &mut taken, &format!("s{round}"));
        compare(&rig, &taken, &format!("round {round}"));
        if round % 3 == 2 {
            judge(&mut rig, &format!("after round {round}"));
            compare(&rig, &taken, &format!("imported after round {round}"));
        }
    }
}

#[track_caller]
fn destroy(rig: &Rig, names: &[String]) {
    let refusals = rig.pool().engine().dsl.snapshot_verbs().destroy_snapshots(names.to_vec(), false).unwrap_or_else(|error| panic!("{names:?}: {error}"));
    assert!(refusals.is_empty(), "{refusals:?}");
}

fn free_all(rig: &Rig) {
    for _ in 0..500 {
        if !rig.pool().engine().dsl.has_background_frees().unwrap() {
            return;
        }
        rig.sync();
    }
    panic!("freeing has no end");
}

/// Random snapshots go while others come. What is left reads as it was; the estimate of what comes free is what comes free; at the end
/// nothing is used but the file systems.
#[test]
fn snapshots_are_destroyed_in_any_order() {
    let mut rig = rig();
    let mut steps = RandomSteps::new(2, Mix { write_bytes: 60_000, file_bytes: 300_000, ..Mix::default() });
    let mut taken = Taken::new();
    for round in 0..12 {
        for head in HEADS {
            let mut actor = rig.actor(head);
            (0..25).for_each(|_| steps.step(&mut actor));
        }
        take_of_all(&mut rig, &mut taken, &format!("s{round:02}"));
        if round % 4 == 1 {
            let dsl = &rig.pool().engine().dsl;
            let new = HEADS.iter().map(|head| NewBookmark { name: format!("{head}#b{round:02}"), source: format!("{head}@s{round:02}") });
            assert!(dsl.snapshot_verbs().create_bookmarks(new.collect()).unwrap().is_empty());
        }
        if round > 3 {
            let names: Vec<String> = taken.keys().cloned().collect();
            let mut doomed: Vec<String> = (0..4).map(|_| names[steps.below(names.len())].clone()).collect();
            doomed.sort();
            doomed.dedup();
            destroy(&rig, &doomed);
            doomed.iter().for_each(|name| drop(taken.remove(name)));
            free_all(&rig);
        }
        compare(&rig, &taken, &format!("round {round}"));
        if round % 4 == 3 {
            judge(&mut rig, &format!("after destroying in round {round}"));
        }
    }
    for head in HEADS {
        let dsl = &rig.pool().engine().dsl;
        let mine: Vec<String> = dsl.open_dataset(head).unwrap().snapshots().unwrap().into_iter().map(|(name, _)| format!("{head}@{name}")).collect();
        let (Some(first), Some(last)) = (mine.first(), mine.last()) else { continue };
        let by_snapshots = || dsl.open_dataset(head).unwrap().dir.used_by(UsedKind::Snapshot);
        assert_eq!(dsl.snapshot_verbs().space_would_free(first, last).unwrap(), by_snapshots(), "{head}");
        destroy(&rig, &mine);
        assert_eq!(by_snapshots(), 0, "{head}");
    }
    let dsl = rig.pool().engine().dsl.clone();
    dsl.snapshot_verbs().destroy_bookmarks(HEADS.iter().flat_map(|head| (0..12).map(move |round| format!("{head}#b{round:02}"))).collect()).unwrap();
    free_all(&rig);
    for head in HEADS {
        let dataset = dsl.open_dataset(head).unwrap();
        assert_eq!(dataset.unique_bytes(), dataset.referenced().used, "{head}");
        assert_eq!(dataset.dir.used_by(UsedKind::Head), dataset.referenced().used, "{head}");
    }
    for feature in [Feature::Bookmarks, Feature::BookmarkWritten, Feature::BookmarkV2] {
        assert!(!dsl.meta.features.is_active(feature), "{}", feature.name());
    }
    drop(dsl);
    judge(&mut rig, "after all were destroyed");
}

#[test]
fn what_is_held_stays() {
    let mut rig = rig();
    take_of_all(&mut rig, &mut Taken::new(), "one");
    let dsl = rig.pool().engine().dsl.clone();
    let name = || vec!["tank/a@one".to_owned()];
    assert!(dsl.snapshot_verbs().hold_snapshots(name(), "keep".into()).unwrap().is_empty());
    assert_eq!(dsl.snapshot_verbs().hold_snapshots(name(), "keep".into()).unwrap()[0].1.kind(), ErrorKind::Exists);
    let both = vec!["tank@one".to_owned(), "tank/a@one".to_owned()];
    assert_eq!(dsl.snapshot_verbs().destroy_snapshots(both, false).unwrap()[0].1.kind(), ErrorKind::Busy);
    assert!(dsl.open_dataset("tank@one").is_ok(), "all or none");
    assert!(dsl.snapshot_verbs().destroy_snapshots(name(), true).unwrap().is_empty());
    assert!(dsl.open_dataset("tank/a@one").is_ok(), "it is held");
    assert!(dsl.snapshot_verbs().release_snapshots(name(), "keep".into()).unwrap().is_empty());
    assert_eq!(dsl.open_dataset("tank/a@one").unwrap_err().kind(), ErrorKind::NotFound);
    drop(dsl);
    judge(&mut rig, "after a release");
}

#[test]
fn all_of_them_or_none() {
    let mut rig = rig();
    take_of_all(&mut rig, &mut Taken::new(), "one");
    let names = |names: &[&str]| NewSnapshots { names: names.iter().map(|name| (*name).to_owned()).collect(), properties: Vec::new() };
    let dsl = rig.pool().engine().dsl.clone();
    let refusals = dsl.snapshot_verbs().create_snapshots(names(&["tank@two", "tank/a@one", "tank/none@two"])).unwrap();
    let kinds: Vec<_> = refusals.iter().map(|(name, error)| (name.as_str(), error.kind())).collect();
    assert_eq!(kinds, [("tank/a@one", ErrorKind::Exists), ("tank/none@two", ErrorKind::NotFound)]);
    assert_eq!(dsl.open_dataset("tank@two").unwrap_err().kind(), ErrorKind::NotFound);
    let twice = dsl.snapshot_verbs().create_snapshots(names(&["tank@two", "tank@three"])).unwrap_err();
    assert_eq!(twice.kind(), ErrorKind::CrossDevice, "{twice}");
    // Two that are asked for at the same time end in two groups.
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let dsl = dsl.clone();
            scope.spawn(move || assert!(dsl.snapshot_verbs().create_snapshots(names(&[&format!("tank@t{thread}")])).unwrap().is_empty()));
        }
    });
    let mut txgs: Vec<u64> = dsl.open_dataset("tank").unwrap().snapshots().unwrap().iter().map(|(_, object)| dsl.dataset_record(*object).unwrap().creation_txg.get()).collect();
    txgs.dedup();
    assert_eq!(txgs.len(), 5);
    drop(dsl);
    judge(&mut rig, "after all or none");
}
