//! Discovery, on pools of our own making and on pools made by OpenZFS.

use super::import::{Candidate, discover, discover_before, select};
use crate::error::ErrorKind;
use crate::host::RealHost;
use crate::pool::config::pool_config::{PoolConfig, PoolState};
use crate::vdev::label::{DeviceLabels, LabelSync, init_labels, retire_labels, sync_labels, write_uberblock};
use crate::vdev::{Leaf, NewLeaf, NewTop, TopVdev, VdevState, VdevTree, key};
use disk::{Disk, DiskRef, MemDisk};
use ondisk::label as layout;
use ondisk::nvlist::NvList;
use ondisk::uberblock::Uberblock;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

const SIZE: u64 = 64 << 20;

/// Two top-level vdevs: d0, and a mirror of d1 and d2; committed up to txg 5.
fn make_pool(name: &str) -> (VdevTree, PoolConfig, Vec<Arc<MemDisk>>) {
    let disks: Vec<Arc<MemDisk>> = (0..3).map(|i| Arc::new(MemDisk::new(format!("{name}-d{i}"), SIZE))).collect();
    let leaf = |i: usize| NewLeaf { disk: disks[i].clone(), path: format!("/{name}/d{i}"), whole_disk: false };
    let top = |leaves| NewTop { leaves, ashift: None, ..NewTop::default() };
    let tops = vec![top(vec![leaf(0)]), top(vec![leaf(1), leaf(2)])];
    let tree = VdevTree::create(&RealHost, tops, 4).unwrap();
    let config = PoolConfig::new(name, tree.guid(), 5000);
    for top in tree.tops() {
        for leaf in &top.leaves() {
            init_labels(&*leaf.disk().unwrap(), &config.first_label(&tree, &top, leaf, 4)).unwrap();
        }
        top.update_config(|config| config.set(key::METASLAB_ARRAY, 9));
    }
    commit(&tree, &config, 5);
    (tree, config, disks)
}

fn commit(tree: &VdevTree, config: &PoolConfig, txg: u64) {
    let tops = tree.tops();
    let uberblock = Uberblock { txg, version: 5000, guid_sum: tree.guid_sum(), ..Uberblock::empty() };
    let sync = LabelSync {
        uberblock: &uberblock,
        dirty: &tops,
        uberblock_tops: &tops,
        multihost: false,
        config: &|top, leaf| config.label(tree, top, leaf, txg),
    };
    sync_labels(&sync).unwrap();
}

fn refs(disks: &[Arc<MemDisk>]) -> Vec<DiskRef> {
    disks.iter().map(|disk| disk.clone() as DiskRef).collect()
}

#[test]
fn a_pool_is_put_together_from_its_labels() {
    let (tree, config, disks) = make_pool("tank");
    let (_, _, others) = make_pool("other");
    let found = discover([refs(&disks), refs(&others), vec![Arc::new(MemDisk::new("blank", SIZE))]].concat());
    assert_eq!(found.iter().map(|c| c.config.name.as_str()).collect::<Vec<_>>(), ["other", "tank"]);
    let candidate = select(&found, "tank", false).unwrap();
    assert_eq!(candidate.config, PoolConfig { txg: 5, has_vdev_zaps: false, ..config.clone() });
    assert_eq!(candidate.uberblock().txg, 5);
    assert_eq!(candidate.missing_tops, []);
    let opened = candidate.open_tree().unwrap();
    opened.check_complete().unwrap();
    assert_eq!(opened.guid_sum(), candidate.uberblock().guid_sum);
    assert_eq!(opened.tops()[1].config().to_label(), tree.tops()[1].config().to_label());
    assert_eq!(select(&found, &tree.guid().to_string(), false).unwrap().config.name, "tank");
    assert_eq!(select(&found, "tank", true).map(|_| ()).unwrap_err().kind(), ErrorKind::NotFound);
}

#[test]
fn what_is_missing_is_named() {
    let (tree, _, disks) = make_pool("tank");
    let half = discover(refs(&disks[..2])).pop().unwrap().open_tree().unwrap();
    half.check_complete().unwrap();
    assert_eq!(half.state(), VdevState::Degraded);
    assert_eq!(half.guid_sum(), tree.guid_sum());
    let without_mirror = discover(refs(&disks[..1])).pop().unwrap();
    assert_eq!(without_mirror.missing_tops, [1]);
    let error = without_mirror.open_tree().unwrap().check_complete().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NoDevice);
    assert!(error.message().contains("vdev 1"), "{error}");
}

#[test]
fn a_label_newer_than_the_uberblock_does_not_count() {
    let (tree, config, disks) = make_pool("tank");
    // A crash after the even labels of txg 6 and before its uberblocks: d0 only has labels 0 and 2 of it.
    let renamed = PoolConfig { name: "renamed".to_owned(), ..config };
    let top = tree.top(0).unwrap();
    let before = disks[0].snapshot();
    commit(&tree, &renamed, 6);
    let after = disks[0].snapshot();
    let torn = MemDisk::new("torn", SIZE);
    for (label, source) in [&after, &before, &after, &before].into_iter().enumerate() {
        let at = layout::label_offset(SIZE, label);
        let mut bytes = vec![0; layout::LABEL_BYTES as usize];
        source.read_at(&mut bytes, at).unwrap();
        before.read_at(&mut bytes[layout::RING_OFFSET as usize..], at + layout::RING_OFFSET).unwrap();
        torn.write_at(&bytes, at).unwrap();
    }
    assert_eq!(top.leaves().len(), 1);
    let candidate = discover(vec![Arc::new(torn)]).pop().unwrap();
    assert_eq!((candidate.uberblock().txg, candidate.config.name.as_str()), (5, "tank"));
}

/// `disk`, with the labels of these numbers as `newer` has them, and those rings.
fn torn(disk: &MemDisk, newer: &MemDisk, configs: &[usize], rings: &[usize]) -> DiskRef {
    let torn = disk.snapshot();
    let ring_at = layout::RING_OFFSET;
    for label in 0..layout::LABELS {
        let at = layout::label_offset(SIZE, label);
        for (parts, offset, length) in [(configs, 0, ring_at), (rings, ring_at, layout::LABEL_BYTES - ring_at)] {
            if parts.contains(&label) {
                let mut bytes = vec![0; length as usize];
                newer.read_at(&mut bytes, at + offset).unwrap();
                torn.write_at(&bytes, at + offset).unwrap();
            }
        }
    }
    Arc::new(torn)
}

/// Power went while `zpool reguid` wrote the labels: some devices had the new guid, others the old one. The first were taken for another pool, and
/// both lacked a device.
#[test]
fn a_pool_that_was_being_given_another_guid_is_found() {
    let (tree, config, disks) = make_pool("tank");
    let old = tree.guid();
    let before: Vec<MemDisk> = disks.iter().map(|disk| disk.snapshot()).collect();
    tree.update_root_config(|root| root.guid = 77);
    commit(&tree, &PoolConfig { guid: 77, ..config }, 6);
    let after: Vec<MemDisk> = disks.iter().map(|disk| disk.snapshot()).collect();
    let (even, all): (&[usize], &[usize]) = (&[0, 2], &[0, 1, 2, 3]);
    // Of each device: which labels and which rings are new. And which guid counts.
    let states: [([(&[usize], &[usize]); 3], u64, u64); 7] = [
        ([(&[0], &[]), (&[], &[]), (&[], &[])], old, 5),
        ([(even, &[]), (&[], &[]), (&[], &[])], old, 5),
        ([(even, &[]), (even, &[]), (&[2], &[])], old, 5),
        ([(even, &[]), (even, &[]), (even, &[])], old, 5),
        ([(even, &[]), (even, &[1]), (even, &[])], 77, 6),
        ([(even, all), (even, all), (even, all)], 77, 6),
        ([(all, all), (&[0, 1, 2], all), (even, all)], 77, 6),
    ];
    for (number, (parts, guid, txg)) in states.into_iter().enumerate() {
        let devices = (0..3).map(|at| torn(&before[at], &after[at], parts[at].0, parts[at].1)).collect();
        let found = discover(devices);
        assert_eq!(found.len(), 1, "state {number}: one pool");
        let candidate = &found[0];
        assert_eq!((candidate.config.guid, candidate.uberblock().txg, candidate.missing_tops.len()), (guid, txg, 0), "state {number}");
        let tree = candidate.open_tree().unwrap();
        tree.check_complete().unwrap();
        assert_eq!(tree.guid_sum(), candidate.uberblock().guid_sum, "state {number}");
    }
    // Copies of a pool, one of which was given its guid long ago, are two pools.
    let copies = refs(&disks).into_iter().chain(before.into_iter().map(|disk| Arc::new(disk) as DiskRef)).collect();
    assert_eq!(discover(copies).len(), 2);
}

#[test]
fn a_stale_copy_of_a_device_loses() {
    let (tree, config, disks) = make_pool("tank");
    let stale = disks[0].snapshot();
    commit(&tree, &PoolConfig { state: PoolState::Exported, ..config }, 9);
    let mut all = refs(&disks);
    all.insert(0, Arc::new(stale));
    let candidate = discover(all).pop().unwrap();
    assert_eq!(candidate.devices.len(), 3);
    assert!(candidate.devices.iter().all(|device| device.txg == 9 && device.labels == 4));
    assert_eq!(candidate.config.state, PoolState::Exported);
    assert_eq!(candidate.uberblocks.iter().map(|u| u.txg).collect::<Vec<_>>(), [9, 5]);
    assert!(!candidate.is_in_use_elsewhere(1));
}

/// It was used where it came first, and had not the blocks of the newest state.
#[test]
fn a_stale_copy_with_the_same_label_loses() {
    let (tree, config, disks) = make_pool("tank");
    let stale = Arc::new(disks[0].snapshot());
    write_uberblock(&*stale, 9, &Uberblock { txg: 7, version: 5000, ..Uberblock::empty() }).unwrap();
    // A group in which the configuration does not change.
    let (tops, uberblock) = (tree.tops(), Uberblock { txg: 9, version: 5000, guid_sum: tree.guid_sum(), ..Uberblock::empty() });
    let label = |top: &TopVdev, leaf: &Leaf| config.label(&tree, top, leaf, 9);
    sync_labels(&LabelSync { uberblock: &uberblock, dirty: &[], uberblock_tops: &tops, multihost: false, config: &label }).unwrap();
    for place in [0, disks.len()] {
        let mut all = refs(&disks);
        all.insert(place, stale.clone());
        let candidate = discover(all).pop().unwrap();
        assert_eq!(candidate.devices.len(), 3);
        assert!(candidate.devices.iter().all(|device| device.txg == 5 && device.uberblock_txgs.contains(&9)), "place {place}");
        assert_eq!(candidate.uberblocks.iter().map(|uberblock| uberblock.txg).collect::<Vec<_>>(), [9, 5], "place {place}");
    }
}

/// A replaced device is no part of the pool any more, and can still be had where one goes back to a group in which it was.
#[test]
fn a_device_that_left_is_used_by_those_who_go_back() {
    let (tree, config, disks) = make_pool("tank");
    let guid = tree.tops()[1].leaves()[1].guid();
    commit(&tree, &config, 9);
    retire_labels(&*disks[2]).unwrap();
    assert!(discover(refs(&disks[2..])).is_empty(), "no pool is found by it");
    let now = discover(refs(&disks)).pop().unwrap();
    assert_eq!((now.devices.len(), now.device_map().get(guid).is_some()), (2, false));
    assert_eq!(now.names_of_left(), ["tank-d2"]);
    let before = discover_before(refs(&disks), 8).pop().unwrap();
    assert_eq!((before.devices.len(), before.disks().len()), (2, 3));
    assert_eq!(before.device_map().get(guid).map(|disk| disk.name().to_owned()).as_deref(), Some("tank-d2"));
}

/// A label with a good checksum can still say anything.
fn odd_config(random: &mut ChaCha8Rng, depth: u32) -> NvList {
    let names = [
        "version", "name", "state", "txg", "pool_guid", "guid", "vdev_children", "hole_array", "vdev_tree", "type", "id",
        "ashift", "asize", "metaslab_array", "metaslab_shift", "children", "features_for_read", "path", "is_log",
    ];
    let kinds = ["root", "mirror", "file", "disk", "hole", "missing", "raidz", "replacing", "spare", ""];
    let numbers = [0, 1, 2, 9, 12, 24, 34, 63, 64, 5000, 62_390_272, 1 << 62, u64::MAX];
    let mut list = NvList::new();
    for name in names {
        if random.random_bool(0.1) {
            continue;
        }
        let any = random.random_range(0..20);
        let number = numbers[random.random_range(0..numbers.len())];
        match (name, any) {
            (_, 0) => list.set(name, "text"),
            (_, 1) => list.set(name, vec![number; 3]),
            (_, 2) => list.set(name, NvList::new()),
            ("type", _) => list.set(name, kinds[random.random_range(0..kinds.len())]),
            ("name" | "path", _) => list.set(name, "x"),
            ("hole_array", _) => list.set(name, vec![number]),
            ("vdev_tree", _) if depth == 0 => list.set(name, odd_config(random, 1)),
            ("children", _) if depth < 4 => {
                let children: Vec<NvList> = (0..random.random_range(0..3)).map(|_| odd_config(random, depth + 1)).collect();
                list.set(name, children);
            }
            ("ashift", 3..18) => list.set(name, 9),
            ("guid" | "pool_guid" | "txg", 3..18) => list.set(name, 7),
            _ => list.set(name, number),
        }
    }
    list
}

#[test]
fn no_label_makes_it_panic() {
    let seed = 20_261_120;
    eprintln!("seed {seed}");
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    let (mut found, mut opened) = (0, 0);
    for round in 0..400 {
        let (_, _, disks) = make_pool("tank");
        let disk = &disks[0];
        // The uberblocks of a good pool, and one odd configuration in all labels.
        let mut config = odd_config(&mut random, 0);
        if round % 2 == 0 {
            config.set("pool_guid", 7);
            config.set("txg", 5);
            config.set("state", 0);
            config.set("version", 5000);
            config.set("name", "odd");
        }
        let mut rings = Vec::new();
        for label in 0..4 {
            let mut ring = vec![0; layout::RING_BYTES as usize];
            disk.read_at(&mut ring, layout::label_offset(SIZE, label) + layout::RING_OFFSET).unwrap();
            rings.push(ring);
        }
        init_labels(&**disk, &config).unwrap();
        for (label, ring) in rings.iter().enumerate() {
            disk.write_at(ring, layout::label_offset(SIZE, label) + layout::RING_OFFSET).unwrap();
        }
        for candidate in discover(vec![disk.clone()]) {
            found += 1;
            let _ = candidate.config.check_features_for_read();
            if let Ok(tree) = candidate.open_tree() {
                opened += 1;
                let _ = tree.check_complete();
                let (_, _) = (tree.status(), tree.allocation_units());
                for top in tree.tops() {
                    let _ = (top.metaslab_count(), top.layout().deflated_size(512), top.io_map(0, 512, 4));
                }
            }
        }
    }
    // The canary: if nothing gets through, nothing was tested.
    assert!(found > 50 && opened > 10, "{found} found, {opened} opened");
}

/// Unpacks a pool made by OpenZFS, if the golden pools are there.
fn golden(name: &str) -> Option<(tempfile::TempDir, Vec<DiskRef>)> {
    let unpack = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/oracle/golden/unpack");
    if !unpack.exists() {
        eprintln!("skipped: no golden pools (golden pool {name})");
        return None;
    }
    let directory = tempfile::tempdir().unwrap();
    let status = Command::new(unpack).arg(name).arg(directory.path()).status().unwrap();
    assert!(status.success(), "unpack {name}");
    let disks = disk::find(&[PathBuf::from(directory.path())]);
    Some((directory, disks))
}

fn golden_candidate(name: &str) -> Option<(tempfile::TempDir, Candidate)> {
    let (directory, disks) = golden(name)?;
    let mut found = discover(disks);
    assert_eq!(found.len(), 1, "{name}");
    Some((directory, found.pop().unwrap()))
}

/// The last number after `name =` in what the real zdb said of the pool.
fn zdb_number(directory: &Path, name: &str) -> u64 {
    let text = std::fs::read_to_string(directory.join("zdb.txt")).unwrap();
    let line = text.lines().rev().find_map(|line| line.trim().strip_prefix(&format!("{name} = "))).unwrap();
    line.split(' ').next().unwrap().parse().unwrap()
}

#[test]
fn pools_of_openzfs_are_found_and_their_labels_are_written_as_they_were() {
    for name in ["mirror2", "stripe2", "v28", "slog", "single-a12", "special", "spare", "wholedisk", "crash", "degraded-mir"] {
        let Some((directory, candidate)) = golden_candidate(name) else { return };
        assert_eq!(candidate.config.name, format!("g_{}", name.replace('-', "_")));
        assert_eq!(candidate.missing_tops, [], "{name}");
        let tree = candidate.open_tree().unwrap();
        tree.check_complete().unwrap();
        assert_eq!(tree.guid_sum(), candidate.uberblock().guid_sum, "{name}");
        if name != "wholedisk" {
            // zdb looked for labels at the start of the image rather than of the partition.
            assert_eq!(candidate.uberblock().guid_sum, zdb_number(directory.path(), "guid_sum"), "{name}");
        }
        candidate.config.check_features_for_read().unwrap();
        for device in &candidate.devices {
            if device.txg != candidate.config.txg {
                continue;
            }
            let config = PoolConfig::from_nvlist(&device.config).unwrap();
            let tops = tree.tops();
            let top = tops.iter().find(|top| top.config().find(device.guid).is_some()).unwrap();
            let leaf = top.leaves().into_iter().find(|leaf| leaf.guid() == device.guid).unwrap();
            let ours = config.label(&tree, top, &leaf, device.txg);
            assert_eq!(ours, device.config, "{name}");
            // To the byte, as it is on disk.
            let bytes = ours.encode_xdr();
            let on_disk = (0..4).any(|label| {
                let mut found = vec![0; bytes.len()];
                let at = layout::label_offset(device.disk.size_bytes(), label) + layout::CONFIG_OFFSET;
                device.disk.read_at(&mut found, at).unwrap();
                found == bytes
            });
            assert!(on_disk, "{name}: {}", device.disk.name());
        }
    }
}

#[test]
fn a_pool_with_two_destroyed_labels_is_found() {
    let Some((_directory, candidate)) = golden_candidate("labels") else { return };
    assert_eq!(candidate.devices.len(), 1);
    assert_eq!(candidate.devices[0].labels, 2);
    assert_eq!(candidate.config.name, "g_labels");
    candidate.open_tree().unwrap().check_complete().unwrap();
}

#[test]
fn a_pool_with_destroyed_uberblocks_is_found() {
    let Some((directory, candidate)) = golden_candidate("uberblock") else { return };
    let labels = DeviceLabels::read(&*candidate.devices[0].disk);
    let ashift = candidate.vdev_tree.children[0].number(key::ASHIFT) as u32;
    let found = labels.uberblocks(ashift);
    assert!(found.iter().all(|f| f.uberblock.txg <= candidate.uberblock().txg));
    assert_eq!(candidate.uberblock().txg, zdb_number(directory.path(), "txg"));
}
