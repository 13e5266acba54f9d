//! Hot spares that stand in for devices, under a mount: put there, back in reserve, there for good, shared by pools; judged by the real zdb.

use std::fs;
use std::time::{Duration, Instant};

use crate::rig::Rig;

const MIB: u64 = 1 << 20;

fn rig(images: usize) -> Option<Rig> {
    let rig = Rig::new()?;
    (0..images).for_each(|number| drop(rig.image(&format!("d{number}.img"), 96 * MIB)));
    Some(rig)
}

/// The rows of an image in `zpool status`: the words of each.
fn rows(rig: &Rig, pool: &str, image: &str) -> Vec<String> {
    let status = rig.ok(&format!("zpool status -P {pool}"));
    let is_row = |line: &&str| line.split_whitespace().next().is_some_and(|word| word.ends_with(image));
    status.lines().filter(is_row).map(|line| line.split_whitespace().skip(1).collect::<Vec<_>>().join(" ")).collect()
}

/// The state of a spare in the list of spares.
fn spare(rig: &Rig, pool: &str, image: &str) -> String {
    rows(rig, pool, image).pop().unwrap_or_default()
}

fn has(rig: &Rig, pool: &str, words: &str) -> bool {
    rig.ok(&format!("zpool status {pool}")).contains(words)
}

/// What happens by itself happens within a moment.
fn wait_for(what: &str, is_so: impl Fn() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < Duration::from_secs(60), "{what} does not happen");
        std::thread::sleep(Duration::from_millis(100));
    }
}

fn resilvered(rig: &Rig, pool: &str) {
    rig.ok(&format!("zpool wait -t resilver {pool}"));
}

fn fill(rig: &Rig) {
    for round in 0..60_u32 {
        fs::write(rig.path(&format!("mnt/f{round}")), vec![round as u8; 100_000 + round as usize]).unwrap();
    }
}

fn check(rig: &Rig) {
    for round in 0..60_u32 {
        assert_eq!(fs::read(rig.path(&format!("mnt/f{round}"))).unwrap(), vec![round as u8; 100_000 + round as usize], "f{round}");
    }
}

/// Exported, judged, imported.
fn judge(rig: &Rig, pool: &str, images: &[&str]) {
    rig.ok(&format!("zpool export {pool}"));
    rig.zdb(images);
    rig.ok(&format!("zpool import -d @ {pool}"));
}

#[test]
fn a_spare_stands_in_and_goes_back() {
    let Some(rig) = rig(5) else { return };
    let (all, d1, d2, d3) = (["d0.img", "d1.img", "d2.img", "d3.img"], rig.text("d1.img"), rig.text("d2.img"), rig.text("d3.img"));
    for layout in ["mirror @d0.img @d1.img", "raidz @d0.img @d1.img @d4.img", "@d1.img"] {
        let of_layout: Vec<&str> = all.into_iter().chain(["d4.img"]).filter(|image| ["d2.img", "d3.img"].contains(image) || layout.contains(image)).collect();
        rig.ok(&format!("zpool create -f -O mountpoint=@mnt tank {layout} spare @d2.img @d3.img"));
        fill(&rig);
        for verb in ["detach", "offline", "online"] {
            let refused = format!("cannot {verb} {d2}: device is reserved as a hot spare");
            rig.refused(&format!("zpool {verb} tank @d2.img"), &refused);
        }
        rig.ok("zpool replace tank @d1.img @d2.img");
        assert!(has(&rig, "tank", "spare-"), "{layout}");
        assert_eq!(spare(&rig, "tank", "d2.img"), "INUSE currently in use");
        assert!(rig.ok("zpool history -i tank").contains(&format!("spare in vdev={d2} for vdev={d1}")));
        assert!(rig.ok("zpool events tank").contains("sysevent.fs.zfs.vdev_spare"));
        rig.refused("zpool remove tank @d2.img", "Pool busy");
        rig.refused("zpool replace tank @d1.img @d2.img", &format!("{d2} is busy"));
        rig.refused("zpool replace tank @d1.img @d3.img", "already in replacing/spare config; wait for completion or use 'zpool detach'");
        resilvered(&rig, "tank");
        judge(&rig, "tank", &of_layout);
        assert_eq!(rows(&rig, "tank", "d2.img"), ["ONLINE 0 0 0", "INUSE currently in use"]);
        check(&rig);
        // One spare takes the place of another.
        rig.refused("zpool replace tank @d2.img @d2.img", "is part of active pool 'tank'");
        rig.ok("zpool replace tank @d2.img @d3.img");
        wait_for("the first spare goes", || rows(&rig, "tank", "d2.img") == ["AVAIL"]);
        assert_eq!(spare(&rig, "tank", "d3.img"), "INUSE currently in use");
        judge(&rig, "tank", &of_layout);
        rig.ok("zpool detach tank @d3.img");
        assert!(!has(&rig, "tank", "spare-"));
        assert_eq!((rows(&rig, "tank", "d3.img"), rows(&rig, "tank", "d2.img")), (vec!["AVAIL".to_owned()], vec!["AVAIL".to_owned()]));
        judge(&rig, "tank", &of_layout);
        assert_eq!(spare(&rig, "tank", "d3.img"), "AVAIL", "its label says so");
        rig.refused("zpool create other @d3.img", "is reserved as a hot spare for pool tank");
        rig.ok("zpool replace tank @d1.img @d3.img");
        assert!(has(&rig, "tank", &d3));
        check(&rig);
        rig.ok("zpool destroy tank");
    }
}

#[test]
fn a_spare_stays_for_good() {
    let Some(rig) = rig(5) else { return };
    for layout in ["mirror @d0.img @d1.img", "@d1.img"] {
        rig.ok(&format!("zpool create -f -O mountpoint=@mnt tank {layout} spare @d2.img"));
        fill(&rig);
        rig.ok("zpool replace tank @d1.img @d2.img");
        resilvered(&rig, "tank");
        rig.ok("zpool detach tank @d1.img");
        let status = rig.ok("zpool status tank");
        assert!(!status.contains("spares") && !status.contains("spare-") && status.contains("d2.img") && !status.contains("d1.img"), "{status}");
        let images: &[&str] = if layout.contains("d0") { &["d0.img", "d2.img"] } else { &["d2.img"] };
        judge(&rig, "tank", images);
        check(&rig);
        // It is nobody's any more, and can be a spare.
        rig.ok("zpool add tank spare @d1.img");
        rig.ok("zpool replace -w tank @d2.img @d1.img");
        rig.ok("zpool detach tank @d1.img");
        rig.ok("zpool destroy tank");
    }
    // A device and a spare for it, replaced by another device: the spare goes back by itself.
    for layout in ["mirror @d0.img @d1.img", "raidz2 @d0.img @d1.img @d4.img"] {
        rig.ok(&format!("zpool create -f -O mountpoint=@mnt tank {layout} spare @d2.img"));
        fill(&rig);
        rig.ok("zpool offline tank @d1.img");
        fs::write(rig.path("mnt/more"), vec![1; 1 << 20]).unwrap();
        rig.ok("zpool replace tank @d1.img @d2.img");
        resilvered(&rig, "tank");
        rig.refused("zpool replace tank @d2.img @d3.img", "can only be replaced by another hot spare");
        rig.ok("zpool replace -w tank @d1.img @d3.img");
        wait_for("the spare goes back", || rows(&rig, "tank", "d2.img") == ["AVAIL"]);
        let status = rig.ok("zpool status tank");
        assert!(!status.contains("spare-") && !status.contains("d1.img") && status.contains("d3.img") && status.contains("state: ONLINE"), "{status}");
        let images: &[&str] = if layout.contains("d4") { &["d0.img", "d3.img", "d4.img", "d2.img"] } else { &["d0.img", "d3.img", "d2.img"] };
        judge(&rig, "tank", images);
        check(&rig);
        rig.ok("zpool scrub -w tank");
        assert!(has(&rig, "tank", "errors: No known data errors"));
        rig.ok("zpool destroy tank");
    }
    rig.ok("zpool create -f -O mountpoint=@mnt tank @d0.img log @d1.img spare @d2.img");
    rig.refused("zpool replace tank @d1.img @d2.img", "cannot replace a log with a spare");
}

#[test]
fn pools_share_a_spare() {
    let Some(rig) = rig(5) else { return };
    rig.ok("zpool create -f -O mountpoint=@mnt one mirror @d0.img @d1.img spare @d4.img");
    rig.ok("zpool create -f -m none two mirror @d2.img @d3.img spare @d4.img");
    fill(&rig);
    rig.ok("zpool replace one @d1.img @d4.img");
    resilvered(&rig, "one");
    assert_eq!(spare(&rig, "two", "d4.img"), "INUSE in use by pool 'one'");
    assert_eq!(spare(&rig, "one", "d4.img"), "INUSE currently in use");
    rig.refused("zpool replace two @d3.img @d4.img", &format!("{} is busy", rig.text("d4.img")));
    rig.refused("zpool export one", "'one' has an active shared spare which could be used by other pools once 'one' is exported.");
    rig.ok("zpool export two");
    rig.zdb(&["d2.img", "d3.img"]);
    rig.ok("zpool export one");
    rig.zdb(&["d0.img", "d1.img", "d4.img"]);
    rig.ok("zpool import -d @ two");
    rig.ok("zpool import -d @ one");
    assert_eq!(spare(&rig, "two", "d4.img"), "INUSE in use by pool 'one'");
    rig.ok("zpool detach one @d4.img");
    assert_eq!((spare(&rig, "one", "d4.img").as_str(), spare(&rig, "two", "d4.img").as_str()), ("AVAIL", "AVAIL"));
    rig.ok("zpool replace two @d3.img @d4.img");
    resilvered(&rig, "two");
    assert_eq!(spare(&rig, "one", "d4.img"), "INUSE in use by pool 'two'");
    // For good: no spare of any pool.
    rig.ok("zpool detach two @d3.img");
    assert!(!has(&rig, "two", "spares") && !has(&rig, "one", "spares"));
    check(&rig);
    rig.ok("zpool export one");
    rig.ok("zpool export two");
    rig.zdb(&["d0.img", "d1.img"]);
    rig.zdb(&["d2.img", "d4.img"]);
}

/// Overwrites what is between the labels of an image.
fn spoil(rig: &Rig, image: &str) {
    use std::os::unix::fs::FileExt;
    let file = fs::OpenOptions::new().write(true).open(rig.path(image)).unwrap();
    let junk = vec![0xa5; 1 << 20];
    (5..90).for_each(|at| file.write_all_at(&junk, at * MIB).unwrap());
}

fn row(rig: &Rig, image: &str) -> String {
    rows(rig, "tank", image).into_iter().next().unwrap_or_default()
}

fn is_spare(rig: &Rig, image: &str, state: &str) -> bool {
    spare(rig, "tank", image).starts_with(state)
}

/// Nothing happens within a few seconds.
fn stays(what: &str, is_so: impl Fn() -> bool) {
    for _ in 0..40 {
        assert!(is_so(), "{what}");
        std::thread::sleep(Duration::from_millis(100));
    }
}

#[test]
fn a_suspect_device_gets_a_spare_by_itself() {
    let Some(rig) = rig(4) else { return };
    for layout in ["mirror @d0.img @d1.img", "raidz @d0.img @d1.img @d3.img"] {
        rig.ok(&format!("zpool create -f -O mountpoint=@mnt tank {layout} spare @d2.img"));
        fill(&rig);
        rig.ok("zpool sync tank");
        spoil(&rig, "d1.img");
        rig.ok("zpool scrub -w tank");
        wait_for("the spare comes in", || is_spare(&rig, "d2.img", "INUSE"));
        assert!(row(&rig, "d1.img").starts_with("DEGRADED") && row(&rig, "d1.img").ends_with("too many errors"), "{}", row(&rig, "d1.img"));
        resilvered(&rig, "tank");
        wait_for("the agent's events", || {
            let events = rig.ok("zpool events tank");
            ["ereport.fs.zfs.checksum", "resource.fs.zfs.statechange", "sysevent.fs.zfs.vdev_spare"].iter().all(|event| events.contains(event))
        });
        let images: Vec<&str> = ["d0.img", "d1.img", "d2.img", "d3.img"].into_iter().filter(|image| *image == "d2.img" || layout.contains(image)).collect();
        judge(&rig, "tank", &images);
        check(&rig);
        // Forgiven: the spare is not needed any more.
        rig.ok("zpool clear tank");
        wait_for("the spare goes back", || is_spare(&rig, "d2.img", "AVAIL"));
        assert!(!has(&rig, "tank", "spare-"));
        judge(&rig, "tank", &images);
        rig.ok("zpool destroy tank");
    }
}

#[test]
fn a_lost_device_gets_a_spare_by_itself() {
    let Some(rig) = rig(4) else { return };
    rig.ok("zpool create -f -O mountpoint=@mnt tank mirror @d0.img @d1.img spare @d2.img");
    fill(&rig);
    rig.ok("zpool offline tank @d1.img");
    stays("what is offline is left alone", || is_spare(&rig, "d2.img", "AVAIL"));
    rig.ok("zpool online tank @d1.img");
    rig.ok("zpool offline -f tank @d1.img");
    wait_for("the spare comes in", || is_spare(&rig, "d2.img", "INUSE"));
    resilvered(&rig, "tank");
    // It was taken away: not again.
    rig.ok("zpool detach tank @d2.img");
    stays("nothing is done twice", || is_spare(&rig, "d2.img", "AVAIL"));
    rig.ok("zpool replace tank @d1.img @d2.img");
    resilvered(&rig, "tank");
    fs::write(rig.path("mnt/more"), vec![7; 1 << 20]).unwrap();
    rig.ok("zpool clear tank @d1.img");
    wait_for("the spare goes back", || is_spare(&rig, "d2.img", "AVAIL"));
    assert_eq!(row(&rig, "d1.img"), "ONLINE 0 0 0");
    rig.ok("zpool export tank");
    rig.zdb(&["d0.img", "d1.img", "d2.img"]);
    // It is not there when the pool is imported, and comes back.
    fs::create_dir(rig.path("away")).unwrap();
    fs::rename(rig.path("d1.img"), rig.path("away/d1.img")).unwrap();
    rig.ok("zpool import -d @ tank");
    wait_for("the spare comes in", || is_spare(&rig, "d2.img", "INUSE"));
    fs::write(rig.path("mnt/more"), vec![8; 1 << 20]).unwrap();
    resilvered(&rig, "tank");
    // Something else in its place is not it.
    fs::write(rig.path("d1.img"), vec![0; 96 << 20]).unwrap();
    stays("another file is not it", || has(&rig, "tank", "UNAVAIL") && is_spare(&rig, "d2.img", "INUSE"));
    fs::remove_file(rig.path("d1.img")).unwrap();
    fs::rename(rig.path("away/d1.img"), rig.path("d1.img")).unwrap();
    wait_for("the spare goes back", || is_spare(&rig, "d2.img", "AVAIL"));
    assert_eq!(row(&rig, "d1.img"), "ONLINE 0 0 0");
    wait_for("the event", || rig.ok("zpool events tank").contains("sysevent.fs.zfs.vdev_online"));
    check(&rig);
    judge(&rig, "tank", &["d0.img", "d1.img", "d2.img"]);
    assert_eq!(fs::read(rig.path("mnt/more")).unwrap(), vec![8; 1 << 20]);
}

#[test]
fn two_pools_want_one_spare() {
    let Some(rig) = rig(5) else { return };
    rig.ok("zpool create -f -m none tank mirror @d0.img @d1.img spare @d4.img");
    rig.ok("zpool create -f -m none two mirror @d2.img @d3.img spare @d4.img");
    rig.ok("zpool offline -f tank @d1.img");
    rig.ok("zpool offline -f two @d3.img");
    let in_use = |pool: &str| spare(&rig, pool, "d4.img") == "INUSE currently in use";
    wait_for("the spare comes in", || in_use("tank") || in_use("two"));
    stays("it comes in once", || in_use("tank") != in_use("two"));
    for pool in ["tank", "two"] {
        resilvered(&rig, pool);
        rig.ok(&format!("zpool export -f {pool}"));
    }
    rig.zdb(&["d0.img", "d1.img"]);
}

/// A directory whose server does not answer, as long as this is there.
struct Hung<'a> {
    rig: &'a Rig,
    name: &'a str,
    mount: Option<fuse::Mount>,
}

impl<'a> Hung<'a> {
    fn over(rig: &'a Rig, name: &'a str) -> Hung<'a> {
        Hung { rig, name, mount: Some(fuse::Mount::new(&rig.path(name), &fuse::MountOptions::default()).unwrap()) }
    }
}

impl Drop for Hung<'_> {
    fn drop(&mut self) {
        // All that wait for it get an error.
        drop(self.mount.take());
        let _ = rustix::mount::unmount(self.rig.path(self.name), rustix::mount::UnmountFlags::DETACH);
    }
}

/// One thread looked at the devices of all pools, and waited for the server of a path: no other pool got a spare.
#[test]
fn a_path_that_hangs_keeps_no_other_pool_waiting() {
    let Some(rig) = rig(3) else { return };
    fs::create_dir(rig.path("far")).unwrap();
    rig.image("far/a.img", 96 * MIB);
    rig.ok("zpool create -f -m none far @far/a.img");
    rig.ok("zpool create -f -m none tank mirror @d0.img @d1.img spare @d2.img");
    let hung = Hung::over(&rig, "far");
    // By then somebody has looked there.
    std::thread::sleep(Duration::from_secs(3));
    rig.ok("zpool offline -f tank @d1.img");
    wait_for("the spare of another pool comes in", || is_spare(&rig, "d2.img", "INUSE"));
    drop(hung);
    resilvered(&rig, "tank");
    for pool in ["tank", "far"] {
        rig.ok(&format!("zpool export {pool}"));
    }
    rig.zdb(&["d0.img", "d1.img", "d2.img"]);
    rig.zdb(&["far/a.img"]);
}

#[test]
fn what_devices_grow_by_is_used() {
    let Some(rig) = rig(2) else { return };
    rig.ok("zpool create -f -m none -o autoexpand=on tank mirror @d0.img @d1.img");
    let size = || rig.ok("zpool get -Hp -o value size tank").trim().parse::<u64>().unwrap();
    let before = size();
    for image in ["d0.img", "d1.img"] {
        fs::OpenOptions::new().write(true).open(rig.path(image)).unwrap().set_len(256 * MIB).unwrap();
    }
    wait_for("the pool grows", || size() > before + 128 * MIB);
    rig.ok("zpool export tank");
    rig.zdb(&["d0.img", "d1.img"]);
}
