//! Livelists of clones: what they say is what the clones have for themselves, and what is destroyed through them is free.

use engine::dsl::NewSnapshots;
use engine::tunables::{Parameter, Parameters, Tunables};
use ondisk::feature::Feature;
use sim::places;
use sim::scenario::{Layout, Mix, RandomSteps, Rig};

/// Sublists of a few entries; lists that are kept however little is shared, unless the limits that come with the rig say else. No group ends by itself.
fn rig() -> (Rig, Parameters) {
    let tunables = Tunables { txg_timeout_ns: 3_600_000_000_000, ..Tunables::default() };
    tunables.parameters.set(Parameter::LivelistMaxEntries, "40").unwrap();
    tunables.parameters.set(Parameter::LivelistMinPercentShared, "0").unwrap();
    let parameters = tunables.parameters.clone();
    let mut rig = Rig::create_with(Layout { bytes: 512 << 20, ..Layout::default() }, &[("compression", "lz4")], tunables);
    rig.create_file_system("tank/a", &[("recordsize", "16384")]);
    let mut steps = RandomSteps::new(7, Mix::default());
    let mut actor = rig.actor("tank/a");
    (0..200).for_each(|_| steps.step(&mut actor));
    // Much that the clone shares.
    (0..40).for_each(|number| actor.file(&format!("kept{number}"), &sim::scenario::contents(number, 100_000, 0)));
    (rig, parameters)
}

#[track_caller]
fn take(rig: &Rig, name: &str) {
    let new = NewSnapshots { names: vec![name.to_owned()], properties: Vec::new() };
    assert!(rig.pool().engine().dsl.snapshot_verbs().create_snapshots(new).unwrap().is_empty(), "{name}");
}

fn clone(rig: &mut Rig, snapshot: &str, name: &str) {
    rig.pool().clone_dataset(snapshot, name, Vec::new()).unwrap();
    let model = rig.model(snapshot.split('@').next().unwrap()).clone();
    rig.set_model(name, model);
}

/// How many sublists a clone has; `None`: it has no list. What is alive on them is what the clone takes, if it has no snapshots.
fn sublists(rig: &Rig, name: &str, has_snapshots: bool, when: &str) -> Option<u64> {
    rig.pool().sync().unwrap();
    let dataset = rig.pool().engine().dsl.open_dataset(name).unwrap();
    let (space, sublists) = dataset.livelist().unwrap()?;
    if !has_snapshots {
        let counted = dataset.dir.space();
        assert_eq!((space.used, space.compressed), (counted.used, counted.compressed), "{when}: {name}");
        assert!(space.uncompressed <= counted.uncompressed, "{when}: {name}");
    }
    Some(sublists)
}

fn livelists(rig: &Rig) -> u64 {
    rig.pool().engine().dsl.meta.features.count(Feature::Livelist).unwrap()
}

#[test]
fn a_livelist_has_what_is_the_clones_own() {
    let (mut rig, _) = rig();
    take(&rig, "tank/a@s");
    clone(&mut rig, "tank/a@s", "tank/c");
    assert_eq!(sublists(&rig, "tank/c", false, "new"), Some(0));
    let (mut steps, mut most, mut has_snapshots) = (RandomSteps::new(8, Mix::default()), 0, false);
    let mut shrunk = false;
    for round in 0..24 {
        let mut actor = rig.actor("tank/c");
        (0..30).for_each(|_| steps.step(&mut actor));
        let now = sublists(&rig, "tank/c", has_snapshots, &format!("round {round}")).unwrap();
        shrunk |= now < most;
        most = most.max(now);
        match round {
            8 => {
                take(&rig, "tank/c@own");
                has_snapshots = true;
            }
            14 => {
                let refused = rig.pool().engine().dsl.snapshot_verbs().destroy_snapshots(vec!["tank/c@own".into()], false).unwrap();
                assert!(refused.is_empty(), "{refused:?}");
                has_snapshots = false;
            }
            _ => {}
        }
        if round % 6 == 5 {
            rig.judge_thoroughly(&format!("round {round}"));
            assert!(sublists(&rig, "tank/c", has_snapshots, "opened again").is_some());
        }
    }
    assert!(most > 3 && shrunk, "{most} sublists at the most, condensed: {shrunk}");
    // Destroyed through it, with another one beside it that was never written.
    clone(&mut rig, "tank/a@s", "tank/d");
    assert_eq!(livelists(&rig), 2);
    for name in ["tank/c", "tank/d"] {
        rig.destroy_file_system(name);
    }
    for _ in 0..4 {
        rig.pool().sync().unwrap();
    }
    assert_eq!((livelists(&rig), rig.pool().engine().dsl.has_background_frees().unwrap()), (0, false));
    rig.judge_thoroughly("destroyed");
}

#[test]
fn a_livelist_is_given_up_where_it_would_be_wrong_or_does_not_pay() {
    let (mut rig, parameters) = rig();
    take(&rig, "tank/a@s");
    clone(&mut rig, "tank/a@s", "tank/c");
    let mut steps = RandomSteps::new(9, Mix::default());
    let write = |rig: &mut Rig, name: &str, steps: &mut RandomSteps| {
        let mut actor = rig.actor(name);
        (0..30).for_each(|_| steps.step(&mut actor));
        rig.pool().sync().unwrap();
    };
    write(&mut rig, "tank/c", &mut steps);
    take(&rig, "tank/c@two");
    clone(&mut rig, "tank/c@two", "tank/d");
    write(&mut rig, "tank/d", &mut steps);
    write(&mut rig, "tank/c", &mut steps);
    assert!(sublists(&rig, "tank/c", true, "cloned").is_some() && sublists(&rig, "tank/d", false, "cloned").is_some());
    rig.judge_thoroughly("a clone of a clone");
    rig.pool().engine().dsl.promote_dataset("tank/d").unwrap();
    assert_eq!((sublists(&rig, "tank/c", true, "promoted"), sublists(&rig, "tank/d", true, "promoted"), livelists(&rig)), (None, None, 0));
    write(&mut rig, "tank/c", &mut steps);
    rig.judge_thoroughly("promoted");
    // Rolled back: of a clone with a snapshot of its own.
    clone(&mut rig, "tank/a@s", "tank/e");
    write(&mut rig, "tank/e", &mut steps);
    take(&rig, "tank/e@own");
    let model = rig.model("tank/e").clone();
    write(&mut rig, "tank/e", &mut steps);
    assert!(sublists(&rig, "tank/e", true, "before").is_some());
    rig.export();
    rig.import();
    rig.pool().roll_back("tank/e", Some("own")).unwrap();
    rig.set_model("tank/e", model);
    assert_eq!((sublists(&rig, "tank/e", true, "rolled back"), livelists(&rig)), (None, 0));
    write(&mut rig, "tank/e", &mut steps);
    rig.judge_thoroughly("rolled back");
    // Little is shared.
    clone(&mut rig, "tank/a@s", "tank/f");
    write(&mut rig, "tank/f", &mut steps);
    assert!(sublists(&rig, "tank/f", false, "shares").is_some());
    parameters.set(Parameter::LivelistMinPercentShared, "100").unwrap();
    write(&mut rig, "tank/f", &mut steps);
    assert_eq!((sublists(&rig, "tank/f", false, "shares little"), livelists(&rig)), (None, 0));
    rig.judge_thoroughly("given up");
}

/// OpenZFS's own list, gone on with.
#[test]
fn a_golden_livelist_goes_on() {
    let Some(mut rig) = Rig::golden("snap") else { return places::skipped("golden pool snap: not found") };
    let clone = "g_snap/clone2";
    let before = livelists(&rig);
    assert!(sublists(&rig, clone, false, "as it came").is_some() && before > 0, "the golden pool has a livelist");
    let fs = rig.pool().file_system(clone).unwrap();
    let user = tarnfs::Credentials::root();
    for number in 0..4_u64 {
        let file = fs.create(fs.root(), format!("new{number}").as_bytes(), 0o100_644, 0, &user).unwrap().inode;
        fs.write(file, tarnfs::WriteMode::At(0), &sim::scenario::contents(number, 3000, 0), &user).unwrap();
        if number % 2 == 1 {
            fs.unlink(fs.root(), format!("new{}", number - 1).as_bytes()).unwrap();
        }
        assert_eq!(sublists(&rig, clone, false, &format!("file {number}")), Some(1), "file {number}");
    }
    fs.release_all();
    drop(fs);
    rig.export();
    rig.check("gone on with");
    rig.zdb("gone on with", true);
    rig.import();
    rig.pool().destroy_file_system(clone).unwrap();
    for _ in 0..4 {
        rig.pool().sync().unwrap();
    }
    assert!(!rig.pool().engine().dsl.has_background_frees().unwrap());
    rig.export();
    rig.check("destroyed");
    rig.zdb("destroyed", true);
}
