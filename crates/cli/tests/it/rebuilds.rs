//! Sequential rebuilds and distributed spares under a mount: `zpool attach -s`, `zpool replace -s`, `zpool replace POOL DISK draid2-0-0`, and their words.

use std::fs;
use std::time::{Duration, Instant};

use crate::rig::Rig;

const MIB: u64 = 1 << 20;

fn rig(images: usize) -> Option<Rig> {
    let rig = Rig::new()?;
    (0..images).for_each(|number| drop(rig.image(&format!("d{number}.img"), 128 * MIB)));
    Some(rig)
}

fn bytes(round: u32) -> Vec<u8> {
    (0..90_000_u32 + round).map(|at| (at.wrapping_mul(2_654_435_761) >> 13) as u8 ^ round as u8).collect()
}

fn fill(rig: &Rig) {
    (0..80).for_each(|round| fs::write(rig.path(&format!("mnt/f{round}")), bytes(round)).unwrap());
}

fn check(rig: &Rig) {
    (0..80).for_each(|round| assert!(fs::read(rig.path(&format!("mnt/f{round}"))).unwrap() == bytes(round), "f{round}"));
}

fn status(rig: &Rig) -> String {
    rig.ok("zpool status tank")
}

/// What happens by itself happens within a moment.
fn wait_for(rig: &Rig, what: &str, is_so: impl Fn(&str) -> bool) {
    let begun = Instant::now();
    while !is_so(&status(rig)) {
        assert!(begun.elapsed() < Duration::from_secs(90), "{what} does not happen: {}", status(rig));
        std::thread::sleep(Duration::from_millis(100));
    }
}

#[test]
fn a_side_comes_by_a_rebuild_and_a_scrub_follows() {
    let Some(rig) = rig(3) else { return };
    rig.ok("zpool create -O mountpoint=@mnt tank @d0.img");
    fill(&rig);
    rig.ok("zpool attach -s -w tank @d0.img @d1.img");
    let shown = status(&rig);
    assert!(shown.contains("  scan: resilvered (mirror-0) ") && shown.contains("with 0 errors on"), "{shown}");
    wait_for(&rig, "the scrub", |shown| shown.contains("  scan: scrub repaired 0B in "));
    let json = rig.ok("zpool status -j --json-int tank");
    assert!(json.contains("\"rebuild_stats\"") && json.contains("\"state\":\"COMPLETE\""), "{json}");
    let history = rig.ok("zpool history -i tank");
    assert!(history.contains("rebuild vdev_id=0 ") && history.contains(" started") && history.contains(" complete"), "{history}");
    let events = rig.ok("zpool events -v tank");
    assert!(events.contains("resilver_finish") && events.matches("resilver_type = \"sequential\"").count() == 2, "{events}");
    rig.ok("zpool replace -s -w tank @d0.img @d2.img");
    assert!(!status(&rig).contains("d0.img"));
    check(&rig);
    rig.ok("zpool wait -t scrub,resilver,replace tank");
    rig.ok("zpool export tank");
    rig.zdb(&["d1.img", "d2.img"]);
    rig.ok("zpool import -d @ tank");
    check(&rig);
    rig.ok("zpool destroy tank");
}

#[test]
fn what_has_no_rebuilds_says_so() {
    let Some(rig) = rig(5) else { return };
    let (old, new) = (rig.text("d0.img"), rig.text("d4.img"));
    rig.ok("zpool create -f tank raidz @d0.img @d1.img @d2.img");
    rig.refused("zpool replace -s tank @d0.img @d4.img", &format!("cannot replace {old} with {new}: only mirror and dRAID vdevs support sequential reconstruction"));
    rig.refused("zpool attach -s tank raidz1-0 @d4.img", "raidz_expansion does not support sequential reconstruction");
    rig.ok("zpool destroy tank");
    rig.ok("zpool create -f -o feature@device_rebuild=disabled tank @d0.img");
    rig.refused("zpool attach -s tank @d0.img @d4.img", "device_rebuild feature must be enabled in order to use sequential reconstruction");
    rig.ok("zpool destroy tank");
}

/// By hand, and by itself when a disk is found broken; then the disk is replaced, and the spare is free again.
#[test]
fn a_distributed_spare_stands_in() {
    let Some(rig) = rig(9) else { return };
    rig.ok("zpool create -f -O mountpoint=@mnt tank draid1:3d:7c:1s @d0.img @d1.img @d2.img @d3.img @d4.img @d5.img @d6.img mirror @d7.img @d8.img");
    fill(&rig);
    let spare = |shown: &str| shown.lines().filter(|line| line.contains("draid1-0-0")).map(|line| line.split_whitespace().skip(1).collect::<Vec<_>>().join(" ")).collect::<Vec<_>>();
    assert_eq!(spare(&status(&rig)), ["AVAIL"]);
    rig.refused("zpool replace tank @d7.img draid1-0-0", "dRAID spares can only replace child devices in their parent's dRAID vdev");
    rig.refused("zpool attach tank @d7.img draid1-0-0", "dRAID spares can only be used to replace primary vdevs");
    rig.refused("zpool detach tank draid1-0-0", "cannot detach draid1-0-0: device is reserved as a hot spare");
    rig.ok("zpool replace -s -w tank @d2.img draid1-0-0");
    assert_eq!(spare(&status(&rig)), ["ONLINE 0 0 0", "INUSE currently in use"]);
    rig.refused("zpool replace tank @d3.img draid1-0-0", "draid1-0-0 is busy");
    rig.ok("zpool wait -t scrub,resilver tank");
    rig.ok("zpool detach tank draid1-0-0");
    assert_eq!(spare(&status(&rig)), ["AVAIL"]);
    check(&rig);
    rig.ok("zpool offline -f tank @d3.img");
    wait_for(&rig, "the spare comes in by itself", |shown| spare(shown).len() == 2 && shown.contains("resilvered (draid1:3d:7c:1s-0)"));
    rig.ok("zpool wait -t scrub,resilver tank");
    rig.ok("zpool offline tank @d5.img");
    check(&rig);
    rig.ok("zpool online tank @d5.img");
    rig.ok("zpool wait -t resilver tank");
    rig.ok("zpool export tank");
    rig.zdb(&["d0.img", "d1.img", "d2.img", "d3.img", "d4.img", "d5.img", "d6.img", "d7.img", "d8.img"]);
    rig.ok("zpool import -d @ tank");
    assert_eq!(spare(&status(&rig)), ["ONLINE 0 0 0", "INUSE currently in use"]);
    check(&rig);
    rig.image("e.img", 128 * MIB);
    rig.ok("zpool replace -w tank @d3.img @e.img");
    wait_for(&rig, "the spare is free again", |shown| spare(shown) == ["AVAIL"] && !shown.contains("spare-"));
    check(&rig);
    rig.ok("zpool export tank");
    rig.zdb(&["d0.img", "d1.img", "d2.img", "e.img", "d4.img", "d5.img", "d6.img", "d7.img", "d8.img"]);
    rig.ok("zpool import -d @ tank");
    check(&rig);
    rig.ok("zpool destroy tank");
}

#[test]
fn scrubs_of_some_days_and_of_errors_say_what_is_wrong() {
    let Some(rig) = rig(1) else { return };
    rig.ok("zpool create -O mountpoint=@mnt tank @d0.img");
    fill(&rig);
    rig.refused("zpool scrub -S yesterday tank", "Failed to parse the date.");
    rig.refused("zpool scrub -S 2026-11-20 -E 2026-11-10 tank", "end date has to be later than start date");
    rig.refused("zpool scrub -C -S 2026-11-20 tank", "start/end date is available only with normal scrub");
    rig.ok("zpool scrub -w -S 2001-01-01 -E 2002-01-01 tank");
    rig.ok("zpool scrub -w -S 2001-01-01 tank");
    rig.ok("zpool scrub -e tank");
    assert!(!status(&rig).contains("error blocks"), "nothing is damaged");
    rig.refused("zpool scrub -s tank", "there is no active scrub");
    rig.ok("zpool destroy tank");
}

/// Two of them, one after the other: the second is whole although the device is out of use for which the first stands in. And one stays for good, a spare of its vdev as before.
#[test]
fn distributed_spares_lie_on_one_another() {
    let Some(rig) = rig(8) else { return };
    let create = "zpool create -f -O mountpoint=@mnt tank draid1:3d:8c:2s @d0.img @d1.img @d2.img @d3.img @d4.img @d5.img @d6.img @d7.img";
    let said = rig.command(create).env("TARN_AGENT", "off").output().unwrap();
    assert!(said.status.success(), "{said:?}");
    fill(&rig);
    for number in [0, 1] {
        rig.ok(&format!("zpool offline -f tank @d{number}.img"));
        rig.ok(&format!("zpool replace -w tank @d{number}.img draid1-0-{number}"));
    }
    rig.ok("zpool detach tank @d1.img");
    rig.ok("zpool scrub -w tank");
    let shown = status(&rig);
    assert!(shown.contains("scan: scrub repaired 0B"), "nothing is left to resilver: {shown}");
    assert_eq!(shown.matches("INUSE     currently in use").count(), 2, "{shown}");
    rig.ok("zpool export tank");
    rig.zdb(&["d0.img", "d2.img", "d3.img", "d4.img", "d5.img", "d6.img", "d7.img"]);
    rig.ok("zpool import -d @ tank");
    assert_eq!(status(&rig).matches("INUSE     currently in use").count(), 2);
    check(&rig);
    rig.ok("zpool destroy tank");
}
