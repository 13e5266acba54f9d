//! Requests that cannot be done, as anybody may send them: they are refused, and the pool goes on.

use super::*;

fn with_snapshot() -> Rig {
    let mut rig = Rig::new();
    let image = rig.image("a.img");
    rig.create("tank", &[&image], Vec::new()).unwrap();
    rig.make("tank/a", Vec::new()).unwrap();
    let take = rig.pools.snapshots_create(SnapshotsCreate { names: vec!["tank/a@s".into()], properties: Vec::new() }).unwrap();
    assert_eq!(take().unwrap(), []);
    rig
}

/// Another verb is done.
#[track_caller]
fn goes_on(rig: &mut Rig) {
    rig.make("tank/other", Vec::new()).unwrap();
    rig.pools.dataset_destroy(DatasetDestroy { names: vec!["tank/other".into()], defer: false, force: false }).unwrap();
}

/// `zfs hold '' tank/a@s` stopped the pool, and so did a bookmark with a `/` in its name that was to be destroyed.
#[test]
fn names_that_no_dictionary_can_hold() {
    let mut rig = with_snapshot();
    let tagged = |names: &[&str], tag: &str| SnapshotsTag { names: names.iter().map(|name| (*name).to_owned()).collect(), tag: tag.into() };
    let refused = rig.pools.snapshots_hold(tagged(&["tank/a@s"], "")).unwrap()();
    assert_eq!(refused.unwrap_err().kind, FailureKind::BadType);
    goes_on(&mut rig);
    let refused = rig.pools.snapshots_hold(tagged(&["tank/a@s", "tank/a@s"], "t")).unwrap()().unwrap();
    assert_eq!(refused.iter().map(|refusal| refusal.failure.kind).collect::<Vec<_>>(), [FailureKind::DatasetExists]);
    goes_on(&mut rig);
    for bookmark in ["tank/a#b/c", "tank/a#", "tank/a#b#c"] {
        let destroy = DatasetDestroy { names: vec![bookmark.into()], defer: false, force: false };
        assert!(rig.pools.dataset_destroy(destroy).is_err(), "{bookmark}");
        goes_on(&mut rig);
    }
    rig.export("tank");
}

/// What a vdev is said to be goes into a dictionary, too.
#[test]
fn properties_of_vdevs_that_are_too_long() {
    let mut rig = with_snapshot();
    let select = PoolSelect { name: Some("tank".into()), properties: Wanted::All };
    let guid = rig.pools.pool_status(select).unwrap().remove(0).root.children[0].guid;
    let set = |rig: &mut Rig, name: &str, value: String| {
        rig.pools.pool_device(PoolDevice { name: "tank".into(), verb: DeviceVerb::SetProperty { guid, setting: Setting::new(name, value) } }).map(|_| ())
    };
    assert_eq!(kind(set(&mut rig, "a:b", "x".repeat(8192))), FailureKind::BadProperty);
    assert_eq!(kind(set(&mut rig, &format!("a:{}", "x".repeat(254)), "x".into())), FailureKind::BadProperty);
    goes_on(&mut rig);
    set(&mut rig, "a:b", "x".repeat(8191)).unwrap();
    rig.export("tank");
}

/// Those that the pool has for itself are no business of a request.
#[test]
fn names_that_are_the_pool_s_own() {
    let mut rig = with_snapshot();
    let rename = DatasetRename { from: "tank/$MOS".into(), to: "tank/b".into(), parents: false, recursive: false, no_remount: true, force: false };
    assert_eq!(kind(rig.pools.dataset_rename(rename)), FailureKind::InvalidName);
    goes_on(&mut rig);
    let grant = GrantEdit { to: Grantee::Everyone, reach: Reach::Local, permissions: vec!["create".into()] };
    let allow = DatasetAllow { name: "tank/$MOS".into(), taken: false, changes: vec![grant] };
    assert_eq!(kind(rig.pools.dataset_allow(allow)), FailureKind::InvalidName);
    goes_on(&mut rig);
    let take = rig.pools.snapshots_create(SnapshotsCreate { names: vec!["tank/$ORIGIN@x".into()], properties: Vec::new() });
    assert_eq!(kind(take.map(drop)), FailureKind::InvalidName);
    rig.export("tank");
}

/// The version was raised before anything looked at the property, and no version is taken back.
#[test]
fn a_pool_that_is_to_stay_old_is_not_upgraded() {
    let mut rig = Rig::new();
    let image = rig.image("a.img");
    let (empty, missing) = (rig.directory.path().join("empty").display().to_string(), rig.directory.path().join("missing").display().to_string());
    std::fs::write(&empty, "# none\n").unwrap();
    let leaf = VdevSpec { kind: VdevKind::File, path: Some(image), class: AllocationClass::Normal, children: Vec::new() };
    let create = PoolCreate {
        name: "tank".into(),
        temporary_name: None,
        vdevs: vec![leaf],
        force: false,
        properties: vec![Setting::new("version", 26), Setting::new("compatibility", "legacy")],
        features: FeatureChoice::default(),
        dataset_properties: vec![Setting::new("mountpoint", "none")],
        command: CommandLine::default(),
    };
    rig.pools.pool_create(create).unwrap();
    let upgrade = |rig: &mut Rig, version| rig.pools.pool_upgrade(PoolUpgrade { name: "tank".into(), version });
    let version = |rig: &Rig| rig.pools.pool("tank").unwrap().engine().config().version;
    let (none, unknown) = (FailureKind::PoolNotSupported, FailureKind::BadProperty);
    for (compatibility, refused) in [("legacy", none), (empty.as_str(), none), (missing.as_str(), unknown)] {
        let settings = vec![Setting::new("compatibility", compatibility)];
        rig.pools.pool_set(PoolSet { name: "tank".into(), settings }).unwrap();
        for wanted in [28, 5000] {
            assert_eq!(kind(upgrade(&mut rig, wanted)), refused, "{compatibility}, version {wanted}");
            assert_eq!(version(&rig), 26, "{compatibility}, version {wanted}");
        }
    }
    rig.pools.pool_set(PoolSet { name: "tank".into(), settings: vec![Setting::new("compatibility", "off")] }).unwrap();
    upgrade(&mut rig, 28).unwrap();
    assert_eq!(version(&rig), 28);
    rig.export("tank");
}
