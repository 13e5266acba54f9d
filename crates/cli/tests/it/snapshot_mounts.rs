//! Snapshots that are mounted by themselves, and file systems in two places.

use std::fs;
use std::os::unix::fs::MetadataExt;

use sim::golden::{Compare, Golden, MountedPool, compare};
use sim::places::skipped;

use crate::rig::Rig;

/// Golden pools with snapshots that this version reads.
const GOLDEN: &[&str] = &[
    "snap", "streams", "bclone", "checkpoint", "dedup-fast", "dedup-legacy", "degraded-mir", "errors", "gang-a12", "gang-a9", "holes",
    "mirror2", "mirror3", "mirrors", "nofeat", "quota", "remove", "rewrite", "single-a12", "single-a9", "stripe2", "stripe4", "upgraded",
    "v28", "xattr",
];

/// Mounts every snapshot of one golden pool by the helper of `mount(8)`, and returns how many there are and what differs.
fn snapshots_of(rig: &Rig, golden: &Golden) -> (u64, u64, Vec<String>) {
    let (pool, images) = (&golden.manifest.pool.name, golden.directory().display());
    rig.ok(&format!("zpool import -f -N -o readonly=on -d {images} {pool}"));
    let mut manifest = golden.manifest.clone();
    manifest.datasets.retain(|dataset| {
        let has_key = dataset.props.get("encryption").is_some_and(|value| value.value() != "off");
        dataset.kind == "snapshot" && dataset.files.is_some() && !has_key && dataset.mount_error.is_none()
    });
    let mut mounts = Vec::new();
    for (at, dataset) in manifest.datasets.iter().enumerate() {
        let place = format!("{}-{at}", golden.name);
        fs::create_dir(rig.path(&place)).unwrap();
        rig.ok(&format!("mount {} @{place}", dataset.name));
        mounts.push((dataset.name.clone(), rig.path(&place)));
    }
    let report = compare(&MountedPool::new(pool, mounts), &manifest, Compare::MOUNTED).unwrap();
    rig.ok(&format!("zpool export {pool}"));
    assert_eq!(rig.mounts(), Vec::<std::path::PathBuf>::new(), "an export unmounts snapshots");
    assert_eq!(report.datasets as usize, manifest.datasets.len());
    (report.datasets, report.files_compared, report.differences)
}

/// OpenZFS mounts any snapshot by `mount -t zfs POOL/FS@SNAP DIR`; here the `@` was refused.
#[test]
fn snapshots_of_golden_pools_are_mounted_as_openzfs_left_them() {
    let Some(rig) = Rig::new() else { return };
    let only = std::env::var("TARN_GOLDEN").ok();
    let (mut snapshots, mut files, mut wrong) = (0, 0, Vec::new());
    for name in GOLDEN.iter().filter(|name| only.as_ref().is_none_or(|only| only.split(',').any(|one| one == **name))) {
        match Golden::find(name).unwrap() {
            Some(golden) => {
                let (found, compared, differences) = snapshots_of(&rig, &golden);
                (snapshots, files) = (snapshots + found, files + compared);
                wrong.extend(differences.into_iter().take(10).map(|line| format!("{name}: {line}")));
            }
            None => skipped(&format!("{name}: that golden pool is not here")),
        }
    }
    println!("{snapshots} snapshots with {files} files were mounted and compared");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// A mounted snapshot has the numbers of its files, is read-only whatever is asked for, and is unmounted by `umount` and export.
#[test]
fn a_snapshot_is_a_file_system_of_its_own() {
    let Some(rig) = Rig::new() else { return };
    rig.image("a.img", 256 << 20);
    rig.ok("zpool create -O mountpoint=@mnt tank @a.img");
    rig.ok("zfs create tank/a");
    fs::write(rig.path("mnt/a/file"), "before").unwrap();
    rig.ok("zfs snapshot tank/a@one");
    fs::write(rig.path("mnt/a/file"), "after, and longer").unwrap();
    for place in ["snap", "again"] {
        fs::create_dir(rig.path(place)).unwrap();
    }
    rig.ok("mount -o rw tank/a@one @snap");
    assert_eq!(fs::read_to_string(rig.path("snap/file")).unwrap(), "before");
    let (living, kept) = (fs::metadata(rig.path("mnt/a/file")).unwrap(), fs::metadata(rig.path("snap/file")).unwrap());
    assert_eq!((living.ino(), kept.size()), (kept.ino(), 6));
    assert_ne!(living.dev(), kept.dev());
    for error in [fs::write(rig.path("snap/file"), "x"), fs::create_dir(rig.path("snap/d")), fs::remove_file(rig.path("snap/file"))] {
        assert_eq!(error.unwrap_err().kind(), std::io::ErrorKind::ReadOnlyFilesystem);
    }
    assert!(!rig.path("snap/.zfs").exists());
    rig.refused("mount tank/a@one @snap", "already mounted");
    rig.ok("mount tank/a@one @again");
    assert_eq!(fs::read_to_string(rig.path("again/file")).unwrap(), "before");
    // `zfs mount` and `zfs unmount` are not for snapshots, in OpenZFS's words.
    rig.refused("zfs mount tank/a@one", "cannot open 'tank/a@one': snapshot delimiter '@' is not expected here");
    rig.refused("mount tank/a@none @again", "cannot open 'tank/a@none': dataset does not exist");
    assert!(!rig.ok("zfs mount").contains('@'));
    // The file system may go and come, and be renamed, without it.
    rig.ok("zfs unmount tank/a");
    assert_eq!(fs::read_to_string(rig.path("snap/file")).unwrap(), "before");
    rig.ok("zfs mount tank/a");
    rustix::mount::unmount(rig.path("again").as_path(), rustix::mount::UnmountFlags::empty()).unwrap();
    assert!(!rig.is_mounted("again") && rig.is_mounted("snap"));
    rig.ok("zpool export tank");
    assert_eq!(rig.mounts(), Vec::<std::path::PathBuf>::new());
    rig.zdb(&["a.img"]);
}

/// A snapshot that was mounted by hand was unmounted although it was not destroyed then: because of a hold on another one, or because it was only marked.
#[test]
fn what_is_to_destroy_snapshots_unmounts_none() {
    let Some(rig) = Rig::with_tank("a.img", 64 << 20, "-O mountpoint=@mnt") else { return };
    rig.ok("zfs create tank/a");
    fs::write(rig.path("mnt/a/file"), "before").unwrap();
    rig.ok("zfs snapshot tank/a@one");
    rig.ok("zfs snapshot tank/a@two");
    rig.ok("zfs hold keep tank/a@two");
    fs::create_dir(rig.path("snap")).unwrap();
    rig.ok("mount tank/a@one @snap");
    for words in ["tank/a@one,two", "tank/a@one", "-d tank/a@one"] {
        rig.refused(&format!("zfs destroy {words}"), "cannot destroy snapshot tank/a@one: dataset is busy");
        assert_eq!(fs::read_to_string(rig.path("snap/file")).unwrap(), "before");
    }
    assert_eq!(rig.ok("zfs list -H -o name -t snapshot"), "tank/a@one\ntank/a@two\n");
    rig.finish("tank", &["a.img"]);
}

/// Two places of one file system are one to programs: what is written, made, renamed or given other attributes in one is at once so in the other.
#[test]
fn two_places_of_a_file_system_agree() {
    let Some(rig) = Rig::new() else { return };
    rig.image("a.img", 256 << 20);
    rig.ok("zpool create -O mountpoint=@mnt tank @a.img");
    rig.ok("zfs create -o mountpoint=legacy tank/a");
    for place in ["one", "two"] {
        fs::create_dir(rig.path(place)).unwrap();
        rig.ok(&format!("mount tank/a @{place}"));
    }
    for (here, there) in [("one", "two"), ("two", "one")] {
        let (own, other) = (|name: &str| rig.path(&format!("{here}/{name}")), |name: &str| rig.path(&format!("{there}/{name}")));
        assert!(!other("new").exists(), "the kernel remembers that there is none");
        fs::write(own("new"), "first").unwrap();
        assert_eq!(fs::read_to_string(other("new")).unwrap(), "first");
        fs::write(own("new"), "second, longer").unwrap();
        assert_eq!(fs::read_to_string(other("new")).unwrap(), "second, longer");
        assert_eq!(fs::metadata(other("new")).unwrap().len(), 14);
        fs::set_permissions(own("new"), std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
        assert_eq!(fs::metadata(other("new")).unwrap().mode() & 0o777, 0o600);
        assert_eq!(fs::metadata(own("new")).unwrap().ino(), fs::metadata(other("new")).unwrap().ino());
        fs::rename(own("new"), own("renamed")).unwrap();
        assert!(!other("new").exists() && other("renamed").exists());
        fs::hard_link(own("renamed"), other("linked")).unwrap_err();
        fs::remove_file(other("renamed")).unwrap();
        assert!(!own("renamed").exists());
    }
    rig.ok("zpool export tank");
    rig.zdb(&["a.img"]);
}

/// In `.zfs/snapshot`, `mkdir` takes a snapshot and `mv` renames one, also while somebody is in it; only the superuser may.
#[test]
fn snapshots_are_made_and_renamed_by_their_directory() {
    let Some(rig) = Rig::new() else { return };
    rig.image("a.img", 256 << 20);
    rig.ok("zpool create -O mountpoint=@mnt tank @a.img");
    rig.ok("zfs create tank/a");
    fs::write(rig.path("mnt/a/file"), "before").unwrap();
    let snapshots = rig.path("mnt/a/.zfs/snapshot");
    let listed = || {
        let mut names: Vec<String> = fs::read_dir(&snapshots).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    };
    assert_eq!(listed(), Vec::<String>::new());
    fs::create_dir(snapshots.join("one")).unwrap();
    fs::write(rig.path("mnt/a/file"), "after, and longer").unwrap();
    assert_eq!(fs::read_to_string(snapshots.join("one/file")).unwrap(), "before");
    assert_eq!(listed(), ["one"]);
    assert_eq!(rig.ok("zfs list -H -o name -t snapshot"), "tank/a@one\n");
    let changed: i64 = rig.get("tank/a", "snapshots_changed").parse().unwrap();
    let shown = fs::metadata(&snapshots).unwrap();
    assert_eq!((shown.mtime(), shown.ctime(), shown.nlink()), (changed, changed, 3));
    assert_eq!(fs::create_dir(snapshots.join("one")).unwrap_err().kind(), std::io::ErrorKind::AlreadyExists);
    assert_eq!(fs::create_dir(snapshots.join("b@d")).unwrap_err().raw_os_error(), Some(libc::EILSEQ));
    // A listing that the kernel remembers has what a command has made since.
    rig.ok("zfs snapshot tank/a@two");
    assert_eq!(listed(), ["one", "two"]);
    let open = fs::File::open(snapshots.join("one/file")).unwrap();
    fs::create_dir(rig.path("own")).unwrap();
    rig.ok("mount tank/a@one @own");
    fs::rename(snapshots.join("one"), snapshots.join("uno")).unwrap();
    assert_eq!(std::io::read_to_string(&open).unwrap(), "before");
    assert_eq!(listed(), ["two", "uno"]);
    assert_eq!(fs::read_to_string(snapshots.join("uno/file")).unwrap(), "before");
    assert!(fs::rename(snapshots.join("uno"), snapshots.join("two")).is_err());
    assert!(fs::rename(snapshots.join("uno"), rig.path("mnt/a/uno")).is_err());
    rig.ok("zfs rename tank/a@uno tank/a@eins");
    rig.wait("the old name's end", || !snapshots.join("uno").exists());
    assert_eq!(fs::read_to_string(snapshots.join("eins/file")).unwrap(), "before");
    assert_eq!(fs::read_to_string(rig.path("own/file")).unwrap(), "before");
    drop(open);
    // `rmdir` destroys.
    fs::create_dir(snapshots.join("gone")).unwrap();
    fs::remove_dir(snapshots.join("gone")).unwrap();
    assert_eq!(fs::remove_dir(snapshots.join("gone")).unwrap_err().kind(), std::io::ErrorKind::NotFound);
    assert_eq!(listed(), ["eins", "two"]);
    rig.ok("zpool export tank");
    assert_eq!(rig.mounts(), Vec::<std::path::PathBuf>::new());
    rig.zdb(&["a.img"]);
}
