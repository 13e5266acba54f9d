//! Verbs on single devices under a mount: `zpool attach`, `detach`, `replace`, `offline`, `online`, `clear`, `reopen`, `split`, and their words.

use std::fs;

use crate::rig::Rig;

const MIB: u64 = 1 << 20;

fn rig_with(images: &[(&str, u64)]) -> Option<Rig> {
    let rig = Rig::new()?;
    for (name, mib) in images {
        rig.image(name, mib * MIB);
    }
    Some(rig)
}

/// The state of a device in `zpool status`.
fn state(rig: &Rig, image: &str) -> String {
    let status = rig.ok("zpool status -P tank");
    let row = status.lines().find(|line| line.split_whitespace().next().is_some_and(|word| word.ends_with(image)));
    row.and_then(|row| row.split_whitespace().nth(1)).unwrap_or_else(|| panic!("{image}: {status}")).to_owned()
}

#[test]
fn a_disk_becomes_a_mirror_and_a_disk_again() {
    let Some(rig) = rig_with(&[("a.img", 128), ("b.img", 128), ("small.img", 70)]) else { return };
    rig.ok("zpool create -O mountpoint=@mnt tank @a.img");
    fs::write(rig.path("mnt/first"), vec![1; 1 << 20]).unwrap();
    let (a, b, small) = (rig.text("a.img"), rig.text("b.img"), rig.text("small.img"));
    rig.refused("zpool attach tank", "missing <device> specification");
    rig.refused("zpool attach tank @a.img", "missing <new_device> specification");
    rig.refused("zpool attach tank @a.img @b.img @c.img", "too many arguments");
    rig.refused("zpool attach tank @none.img @b.img", &format!("cannot attach {b} to {}: no such device in pool", rig.text("none.img")));
    rig.refused("zpool attach tank @a.img @small.img", &format!("cannot attach {small} to {a}: device is too small"));
    rig.refused("zpool attach tank @a.img @a.img", "is part of active pool 'tank'");
    rig.refused("zpool detach tank @a.img", &format!("cannot detach {a}: only applicable to mirror and replacing vdevs"));
    rig.ok("zpool attach tank @a.img @b.img");
    assert!(rig.ok("zpool status tank").contains("mirror-0"));
    rig.refused("zpool create other @b.img", "is part of active pool 'tank'");
    fs::write(rig.path("mnt/second"), vec![2; 1 << 20]).unwrap();
    rig.ok("zpool detach tank @b.img");
    assert!(!rig.ok("zpool status tank").contains("mirror-0"));
    assert!(rig.ok("zpool history -i tank").contains("vdev attach"));
    // It is nobody's now.
    rig.ok("zpool create other @b.img");
    rig.ok("zpool destroy other");
    assert_eq!(fs::read(rig.path("mnt/second")).unwrap(), vec![2; 1 << 20]);
    rig.ok("zpool export tank");
    rig.zdb(&["a.img"]);
}

/// `attach -w` and `replace -w` came back before the resilver had begun: a user who took the old disk away then lost what was not copied.
#[test]
fn what_is_waited_for_has_happened() {
    let Some(rig) = rig_with(&[("a.img", 128), ("b.img", 128), ("c.img", 128)]) else { return };
    rig.ok("zpool create -O mountpoint=@mnt tank @a.img");
    for round in 0..300_u32 {
        fs::write(rig.path(&format!("mnt/f{round}")), vec![round as u8; 30_000]).unwrap();
    }
    rig.ok("zpool attach -w tank @a.img @b.img");
    let status = rig.ok("zpool status tank");
    assert!(status.contains("resilvered") && !status.contains("in progress"), "{status}");
    let events = rig.ok("zpool events -v tank");
    assert_eq!(events.matches("resilver_type = \"healing\"").count(), 2, "{events}");
    rig.ok("zpool detach tank @a.img");
    rig.ok("zpool replace -w tank @b.img @c.img");
    assert!(!rig.ok("zpool status tank").contains("replacing"));
    fs::write(rig.path("b.img"), []).unwrap();
    rig.ok("zpool scrub -w tank");
    assert!(rig.ok("zpool status tank").contains("errors: No known data errors"));
    rig.ok("zpool export tank");
    rig.zdb(&["c.img"]);
}

#[test]
fn a_side_is_offline_and_online() {
    let Some(rig) = rig_with(&[("a.img", 128), ("b.img", 128)]) else { return };
    rig.ok("zpool create -O mountpoint=@mnt tank mirror @a.img @b.img");
    rig.ok("zpool offline tank @b.img");
    assert_eq!((state(&rig, "b.img").as_str(), state(&rig, "a.img").as_str()), ("OFFLINE", "ONLINE"));
    rig.refused("zpool offline tank @a.img", &format!("cannot offline {}: no valid replicas", rig.text("a.img")));
    rig.refused("zpool offline tank nothing", "cannot offline nothing: no such device in pool");
    rig.refused("zpool offline tank", "missing device name");
    fs::write(rig.path("mnt/file"), vec![3; 4 << 20]).unwrap();
    rig.ok("zpool export tank");
    rig.zdb(&["a.img", "b.img"]);
    rig.ok("zpool import -d @ tank");
    assert_eq!(state(&rig, "b.img"), "OFFLINE");
    rig.ok("zpool online tank @b.img");
    assert_eq!(state(&rig, "b.img"), "ONLINE");
    rig.refused("zpool online tank nothing", "couldn't find device \"nothing\" in pool \"tank\"");
    rig.ok("zpool offline -f tank @b.img");
    assert_eq!(state(&rig, "b.img"), "FAULTED");
    let said = rig.ok("zpool online tank @b.img");
    assert!(said.contains("onlined, but remains in faulted state\nuse 'zpool clear' to restore a faulted device"), "{said}");
    rig.ok("zpool clear tank @b.img");
    assert_ne!(state(&rig, "b.img"), "FAULTED");
    // Its file goes, and comes back.
    fs::rename(rig.path("b.img"), rig.path("b.away")).unwrap();
    rig.ok("zpool reopen tank");
    fs::write(rig.path("mnt/more"), vec![4; 1 << 20]).unwrap();
    rig.ok("zpool sync tank");
    assert!(rig.ok("zpool status tank").contains("UNAVAIL"));
    fs::rename(rig.path("b.away"), rig.path("b.img")).unwrap();
    rig.ok("zpool reopen tank");
    assert_eq!(state(&rig, "b.img"), "ONLINE");
    assert_eq!(fs::read(rig.path("mnt/file")).unwrap(), vec![3; 4 << 20]);
    rig.ok("zpool export tank");
    rig.zdb(&["a.img", "b.img"]);
}

/// A mirror can become as large as its smallest side; what a side has beyond is its own.
#[test]
fn what_devices_have_grown_by_is_shown() {
    let Some(rig) = rig_with(&[("a.img", 128), ("b.img", 128)]) else { return };
    rig.ok("zpool create -O mountpoint=@mnt tank mirror @a.img @b.img");
    let of_pool = || rig.ok("zpool get -Hpo value expandsize tank").trim().to_owned();
    let of = |vdev: &str| rig.ok(&format!("zpool get -Hpo value expandsize tank {vdev}")).trim().to_owned();
    let grow = |name: &str| fs::File::options().write(true).open(rig.path(name)).unwrap().set_len(384 << 20).unwrap();
    assert_eq!([of_pool(), of("mirror-0"), of("@a.img")], ["-", "-", "-"]);
    grow("a.img");
    assert_eq!([of_pool(), of("@a.img")], ["-", "-"], "nobody has looked");
    rig.ok("zpool reopen tank");
    let more = (256 << 20).to_string();
    assert_eq!([of_pool(), of("mirror-0"), of("@a.img"), of("@b.img")], ["-", "-", &more, "-"]);
    grow("b.img");
    rig.ok("zpool reopen tank");
    assert_eq!([of_pool(), of("mirror-0"), of("@a.img"), of("@b.img")], [more.as_str(); 4]);
    assert!(rig.ok("zpool list -Ho expandsize tank").contains("256M"));
    let before: u64 = rig.ok("zpool list -Hpo size tank").trim().parse().unwrap();
    rig.ok("zpool online -e tank @a.img @b.img");
    assert_eq!([of_pool(), of("mirror-0"), of("@a.img")], ["-", "-", "-"]);
    assert_eq!(rig.ok("zpool list -Hpo size tank").trim().parse::<u64>().unwrap(), before + (256 << 20));
    rig.ok("zpool export tank");
    rig.zdb(&["a.img", "b.img"]);
}

/// All devices go, and somebody looks; they come back, and somebody looks again.
#[test]
fn a_pool_of_which_nothing_is_left_is_reopened() {
    let Some(rig) = rig_with(&[("a.img", 128), ("b.img", 128)]) else { return };
    rig.ok("zpool create -O mountpoint=@mnt -o failmode=continue -O primarycache=metadata tank mirror @a.img @b.img");
    fs::write(rig.path("mnt/file"), vec![3; 4 << 20]).unwrap();
    rig.ok("zpool sync tank");
    let names = ["a.img", "b.img"];
    fs::create_dir(rig.path("away")).unwrap();
    names.iter().for_each(|name| fs::rename(rig.path(name), rig.path("away").join(name)).unwrap());
    rig.command("zpool reopen tank").output().unwrap();
    let status = rig.ok("zpool status tank");
    assert_eq!((status.matches("UNAVAIL").count() >= 3, status.contains("ONLINE")), (true, false), "{status}");
    assert!(fs::read(rig.path("mnt/file")).is_err());
    names.iter().for_each(|name| fs::rename(rig.path("away").join(name), rig.path(name)).unwrap());
    rig.ok("zpool reopen tank");
    rig.ok("zpool clear tank");
    names.iter().for_each(|name| assert_eq!(state(&rig, name), "ONLINE"));
    assert_eq!(fs::read(rig.path("mnt/file")).unwrap(), vec![3; 4 << 20]);
    fs::write(rig.path("mnt/more"), vec![4; 1 << 20]).unwrap();
    rig.ok("zpool export tank");
    rig.zdb(&names);
}

#[test]
fn a_pool_is_split() {
    let Some(rig) = rig_with(&[("a.img", 128), ("b.img", 128), ("c.img", 128)]) else { return };
    rig.ok("zpool create -O mountpoint=@mnt tank @a.img");
    rig.refused("zpool split tank half", "Unable to split tank: Source pool must be composed only of mirrors");
    rig.ok("zpool destroy tank");
    rig.ok("zpool create -f -O mountpoint=@mnt tank mirror @a.img @b.img");
    fs::write(rig.path("mnt/file"), vec![5; 2 << 20]).unwrap();
    rig.refused("zpool split tank", "Missing new pool name");
    rig.refused("zpool split tank half @c.img", "Unable to split tank: Device list must include at most one disk from each mirror");
    let layout = rig.ok("zpool split -n tank half");
    assert_eq!(layout, format!("would create 'half' with the following layout:\n\n\thalf\n\t  {}\n", rig.text("b.img")));
    rig.ok("zpool split tank half");
    assert!(!rig.ok("zpool status tank").contains("mirror-0"));
    fs::write(rig.path("mnt/after"), b"only here").unwrap();
    rig.ok("zpool import -d @ -R @alt half");
    let other = rig.path("alt").join(rig.text("mnt").trim_start_matches('/'));
    assert_eq!(fs::read(other.join("file")).unwrap(), vec![5; 2 << 20]);
    assert!(!other.join("after").exists());
    assert_eq!(fs::read(rig.path("mnt/file")).unwrap(), vec![5; 2 << 20]);
    rig.ok("zpool export half");
    rig.ok("zpool export tank");
    rig.zdb(&["a.img"]);
    rig.zdb(&["b.img"]);
}

#[test]
fn a_file_that_has_grown_is_used_when_it_is_to_be() {
    let Some(rig) = rig_with(&[("a.img", 128)]) else { return };
    rig.ok("zpool create tank @a.img");
    let size = || rig.ok("zpool list -Hpo size tank").trim().parse::<u64>().unwrap();
    let before = size();
    fs::File::options().write(true).open(rig.path("a.img")).unwrap().set_len(256 * MIB).unwrap();
    rig.ok("zpool online tank @a.img");
    assert_eq!(size(), before);
    rig.ok("zpool online -e tank @a.img");
    assert!(size() > before + 100 * MIB, "{} {before}", size());
    rig.ok("zpool export tank");
    rig.zdb(&["a.img"]);
}

/// A device that another program has overwritten can be replaced by what is in its place, although the pool has it open.
#[test]
fn what_was_overwritten_is_replaced_in_its_place() {
    let Some(rig) = rig_with(&[("a.img", 96), ("b.img", 96)]) else { return };
    rig.ok("zpool create -O mountpoint=@mnt tank mirror @a.img @b.img");
    fs::write(rig.path("mnt/file"), vec![6; 4 << 20]).unwrap();
    rig.refused("zpool replace -f tank @b.img @b.img", "is part of active pool 'tank'");
    fs::write(rig.path("b.img"), vec![0; 96 << 20]).unwrap();
    rig.ok("zpool replace -wf tank @b.img @b.img");
    let status = rig.ok("zpool status tank");
    assert!(status.contains("state: ONLINE") && !status.contains("replacing"), "{status}");
    fs::write(rig.path("a.img"), vec![0; 96 << 20]).unwrap();
    rig.ok("zpool replace -wf tank @a.img @a.img");
    assert_eq!(fs::read(rig.path("mnt/file")).unwrap(), vec![6; 4 << 20]);
    rig.ok("zpool export tank");
    rig.zdb(&["a.img", "b.img"]);
}

/// Devices of the log stay where they are.
#[test]
fn a_pool_with_a_log_is_split() {
    let Some(rig) = rig_with(&[("a.img", 96), ("b.img", 96), ("log.img", 96)]) else { return };
    rig.ok("zpool create -O mountpoint=@mnt tank mirror @a.img @b.img log @log.img");
    let write = |name: &str| {
        let mut file = fs::File::create(rig.path(&format!("mnt/{name}"))).unwrap();
        std::io::Write::write_all(&mut file, &vec![7; 100_000]).unwrap();
        file.sync_all().unwrap();
    };
    write("before");
    rig.ok("zpool split -o comment=half tank half");
    write("after");
    rig.ok("zpool export tank");
    rig.ok("zpool import -N -d @ half");
    let status = rig.ok("zpool status half");
    assert!(status.contains("b.img") && !status.contains("log"), "{status}");
    assert_eq!(rig.ok("zpool get -H -o value comment half").trim(), "half");
    rig.ok("zpool export half");
    rig.zdb(&["a.img", "log.img"]);
    rig.zdb(&["b.img"]);
    rig.ok("zpool import -d @ half");
    assert_eq!(fs::read(rig.path("mnt/before")).unwrap(), vec![7; 100_000]);
    assert!(!rig.path("mnt/after").exists());
    rig.ok("zpool export half");
}
