//! Pools on RAID-Z, with devices for metadata, for tables, for the log, with caches and spares: made, grown, used, and judged by the real zdb.

use std::fs;

use crate::rig::Rig;

const MIB: u64 = 1 << 20;

fn rig(images: usize) -> Option<(Rig, Vec<String>)> {
    let rig = Rig::new()?;
    let names: Vec<String> = (0..images).map(|number| format!("d{number}.img")).collect();
    names.iter().for_each(|name| drop(rig.image(name, 96 * MIB)));
    Some((rig, names))
}

/// `mnt/NAME` with contents that do not compress.
fn fill(rig: &Rig, name: &str, bytes: usize) -> Vec<u8> {
    let mut state = 88_172_645_463_325_252_u64.wrapping_add(bytes as u64);
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state as u8
    };
    let data: Vec<u8> = (0..bytes).map(|_| next()).collect();
    fs::write(rig.path(&format!("mnt/{name}")), &data).unwrap();
    data
}

fn zdb(rig: &Rig, names: &[String]) {
    rig.zdb(&names.iter().map(String::as_str).collect::<Vec<_>>());
}

#[test]
fn raidz_pools_are_made_and_grown() {
    let Some((rig, names)) = rig(9) else { return };
    for (kind, width) in [("raidz", 2), ("raidz1", 3), ("raidz2", 4), ("raidz3", 5)] {
        let devices: String = (0..width).map(|number| format!(" @d{number}.img")).collect();
        rig.ok(&format!("zpool create -f -O mountpoint=@mnt tank {kind}{devices}"));
        let parity = kind.strip_prefix("raidz").filter(|parity| !parity.is_empty()).unwrap_or("1");
        let status = rig.ok("zpool status tank");
        assert!(status.contains(&format!("\t  raidz{parity}-0  ")), "{status}");
        let kept = fill(&rig, "kept", 3_000_000);
        fill(&rig, "gone", 5_000_000);
        rig.ok("zpool sync tank");
        fs::remove_file(rig.path("mnt/gone")).unwrap();
        rig.ok("zpool export tank");
        zdb(&rig, &names[..width]);
        // As many devices as there are columns of parity may be away.
        let lost = parity.parse::<usize>().unwrap();
        let away = |name: &String| rig.path("away").join(name);
        fs::create_dir_all(rig.path("away")).unwrap();
        names[..lost].iter().for_each(|name| fs::rename(rig.path(name), away(name)).unwrap());
        rig.ok("zpool import -d @ tank");
        assert!(rig.ok("zpool status tank").contains("DEGRADED"));
        assert_eq!(fs::read(rig.path("mnt/kept")).unwrap(), kept, "{kind}");
        rig.ok("zpool export tank");
        names[..lost].iter().for_each(|name| fs::rename(away(name), rig.path(name)).unwrap());
        rig.ok("zpool import -d @ tank");
        rig.ok("zpool destroy tank");
    }
    rig.ok("zpool create -f -O mountpoint=@mnt tank raidz @d0.img @d1.img @d2.img");
    rig.refused("zpool add tank @d3.img", "mismatched replication level: pool uses raidz and new vdev is file");
    rig.refused("zpool add tank raidz2 @d3.img @d4.img @d5.img", "pool and new vdev with different redundancy, raidz and raidz vdevs, 1 vs. 2");
    rig.refused("zpool add tank mirror @d3.img @d4.img @d5.img", "pool and new vdev with different redundancy, raidz and mirror vdevs, 1 vs. 2 (3-way)");
    rig.refused("zpool add tank log raidz @d3.img @d4.img", "unsupported 'log' device: raidz");
    rig.refused("zpool add tank raidz1 @d3.img", "raidz1 requires at least 2 devices");
    rig.ok("zpool add tank raidz @d3.img @d4.img mirror @d5.img @d6.img");
    let kept = fill(&rig, "kept", 20_000_000);
    rig.ok("zpool add tank log mirror @d7.img @d8.img");
    let (list, status) = (rig.ok("zpool list -v tank"), rig.ok("zpool status tank"));
    for name in ["raidz1-0", "raidz1-1", "mirror-2", "mirror-3"] {
        assert!(list.contains(name) && status.contains(name), "{list}{status}");
    }
    rig.finish("tank", &names.iter().map(String::as_str).collect::<Vec<_>>());
    rig.ok("zpool import -d @ tank");
    assert_eq!(fs::read(rig.path("mnt/kept")).unwrap(), kept);
    rig.ok("zpool export tank");
}

#[test]
fn a_pool_of_every_kind() {
    let Some((rig, names)) = rig(13) else { return };
    let devices = "raidz2 @d0.img @d1.img @d2.img @d3.img special mirror @d4.img @d5.img @d12.img dedup mirror @d6.img @d7.img @d11.img log @d8.img cache @d9.img spare @d10.img";
    let text = |number: usize| rig.text(&names[number]);
    let layout = [
        "would create 'tank' with the following layout:\n\n\ttank\n\t  raidz2\n".to_owned(),
        (0..4).map(|number| format!("\t    {}\n", text(number))).collect(),
        format!("\tdedup\n\t  mirror\n\t    {}\n\t    {}\n\t    {}\n", text(6), text(7), text(11)),
        format!("\tspecial\n\t  mirror\n\t    {}\n\t    {}\n\t    {}\n", text(4), text(5), text(12)),
        format!("\tlogs\n\t  {}\n\tcache\n\t  {}\n\tspares\n\t  {}\n", text(8), text(9), text(10)),
    ];
    assert_eq!(rig.ok(&format!("zpool create -n -O mountpoint=@mnt tank {devices}")), layout.concat());
    rig.ok(&format!("zpool create -o ashift=12 -O mountpoint=@mnt -O special_small_blocks=16K tank {devices}"));
    let kept = fill(&rig, "kept", 6_000_000);
    let small = fill(&rig, "small", 3000);
    fs::copy(rig.path("mnt/kept"), rig.path("mnt/twice")).unwrap();
    rig.ok("zpool sync tank");
    let status = rig.ok("zpool status tank");
    let heads: Vec<&str> = ["raidz2-0", "dedup", "mirror-2", "special", "mirror-1", "logs", "cache", "spares"].into_iter().filter(|head| status.contains(head)).collect();
    assert_eq!(heads.len(), 8, "{status}");
    assert!(status.contains(&format!("\t  {}", text(10))) && status.contains("AVAIL"), "{status}");
    let list = rig.ok("zpool list -vHp tank");
    let allocated = |name: &str| list.lines().find(|line| line.split('\t').any(|field| field == name)).and_then(|line| line.split('\t').filter(|field| !field.is_empty()).nth(2)).and_then(|field| field.parse::<u64>().ok());
    assert!(allocated("mirror-1").is_some_and(|bytes| bytes > 0), "metadata goes where it belongs: {list}");
    assert!(rig.ok("zpool get -H -o value feature@allocation_classes tank").starts_with("active"));
    // Nobody else gets the devices.
    rig.refused("zpool create other @d10.img", "is reserved as a hot spare for pool tank");
    rig.refused("zpool create other @d9.img", "is part of unknown pool 'tank'");
    rig.refused("zpool create -f other @d9.img", "is part of unknown pool 'tank'");
    rig.refused("zpool labelclear -f @d10.img", "is a member");
    rig.refused("zpool labelclear -f @d9.img", "is a member");
    rig.ok("zpool export tank");
    zdb(&rig, &names);

    rig.ok("zpool import -d @ tank");
    assert!(rig.ok("zpool status tank").contains("AVAIL"));
    rig.ok("zpool remove tank @d10.img");
    rig.ok("zpool remove tank d9.img");
    let status = rig.ok("zpool status tank");
    assert!(!status.contains("spares") && !status.contains("cache"), "{status}");
    rig.ok("zpool labelclear @d10.img");
    rig.ok("zpool add tank spare @d10.img cache @d9.img");
    let status = rig.ok("zpool status tank");
    assert!(status.contains("spares") && status.contains("cache"), "{status}");
    assert!(rig.ok("zpool history -i tank").contains(&format!("vdev remove tank vdev (spare) {}", text(10))));
    for (name, data) in [("kept", &kept), ("twice", &kept), ("small", &small)] {
        assert_eq!(&fs::read(rig.path(&format!("mnt/{name}"))).unwrap(), data, "{name}");
    }
    rig.ok("zpool export tank");
    zdb(&rig, &names);
    rig.ok("zpool labelclear @d9.img");
}

/// Several pools may have the same spare, by the same guid.
#[test]
fn a_spare_is_shared() {
    let Some((rig, _)) = rig(4) else { return };
    rig.ok("zpool create -m none one @d0.img spare @d3.img");
    rig.refused("zpool add one spare @d3.img", "one or more vdevs refer to the same device");
    // What comes with it is not added either.
    rig.refused("zpool add one @d2.img spare @d3.img", "one or more vdevs refer to the same device");
    assert!(!rig.ok("zpool status one").contains("d2.img"));
    rig.ok("zpool create -m none two @d1.img spare @d3.img");
    let guid = |pool: &str| {
        let text = rig.ok(&format!("zpool status -g {pool}"));
        let line = text.lines().skip_while(|line| !line.contains("spares")).nth(1).unwrap_or_default().to_owned();
        line.split_whitespace().next().unwrap_or_default().to_owned()
    };
    assert_eq!(guid("one"), guid("two"));
    assert!(guid("one").len() > 10, "{}", guid("one"));
    rig.ok("zpool remove one @d3.img");
    rig.refused("zpool create -m none three @d3.img", "is reserved as a hot spare for pool two");
    rig.ok("zpool export one");
    rig.ok("zpool export two");
    rig.zdb(&["d1.img"]);
    rig.ok("zpool create -m none three @d3.img");
    rig.ok("zpool destroy three");
}

/// Slow devices sit out of reads, as an administrator says or by themselves, and are written and scrubbed as before.
#[test]
fn slow_devices_sit_out() {
    let Some((rig, names)) = rig(8) else { return };
    let devices: String = names[..6].iter().map(|name| format!(" @{name}")).collect();
    rig.ok(&format!("zpool create -f -O mountpoint=@mnt -O primarycache=metadata tank raidz2{devices} mirror @d6.img @d7.img"));
    let of = |property: &str, vdev: &str| rig.ok(&format!("zpool get -Hpo value {property} tank {vdev}")).trim().to_owned();
    let reads = |vdev: &str| of("read_ops", vdev).parse::<u64>().unwrap();
    rig.ok("zpool set autosit=on tank raidz2-0");
    for vdev in ["mirror-1", "@d6.img", "@d0.img", "root-0"] {
        rig.refused(&format!("zpool set autosit=on tank {vdev}"), "operation not supported");
    }
    ["raidz2-0", "@d6.img"].into_iter().for_each(|vdev| rig.refused(&format!("zpool set sit_out=on tank {vdev}"), "operation not supported"));
    let data = fill(&rig, "file", 20_000_000);
    ["@d1.img", "@d4.img", "@d4.img"].into_iter().for_each(|vdev| drop(rig.ok(&format!("zpool set sit_out=on tank {vdev}"))));
    rig.refused("zpool set sit_out=on tank @d0.img", "too many disks already sitting out");
    assert_eq!([of("sit_out", "@d1.img"), of("sit_out", "@d0.img"), of("autosit", "raidz2-0")], ["on", "off", "on"]);
    rig.ok("zpool export tank");
    rig.ok("zpool import -d @ tank");
    assert_eq!([of("sit_out", "@d1.img"), of("autosit", "raidz2-0")], ["off", "on"], "the one is not kept, the other is");
    ["@d1.img", "@d4.img"].into_iter().for_each(|vdev| drop(rig.ok(&format!("zpool set sit_out=on tank {vdev}"))));
    let before = ["@d0.img", "@d1.img", "@d4.img"].map(reads);
    assert!(fs::read(rig.path("mnt/file")).unwrap() == data);
    let after = ["@d0.img", "@d1.img", "@d4.img"].map(reads);
    assert!(after[0] > before[0] + 20 && after[1] == before[1] && after[2] == before[2], "{before:?} {after:?}");
    rig.ok("zpool scrub -w tank");
    assert!(reads("@d1.img") > after[1] + 20);
    // One that sits out is replaced, while another one is away.
    rig.ok("zpool offline tank @d0.img");
    assert!(fs::read(rig.path("mnt/file")).unwrap() == data);
    rig.image("new.img", 96 * MIB);
    rig.ok("zpool replace -w tank @d1.img @new.img");
    rig.ok("zpool online tank @d0.img");
    rig.ok("zpool wait -t resilver tank");
    assert_eq!([of("sit_out", "@new.img"), of("sit_out", "@d4.img")], ["off", "on"]);
    rig.ok("zpool clear tank");
    assert_eq!(of("sit_out", "@d4.img"), "off");
    rig.ok("zpool set sit_out=on tank @d4.img");
    rig.ok("zpool set sit_out=off tank @d4.img");
    rig.ok("zpool scrub -w tank");
    assert!(rig.ok("zpool status tank").contains("with 0 errors"));
    assert!(fs::read(rig.path("mnt/file")).unwrap() == data);
    rig.ok("zpool export tank");
    rig.zdb(&["d0.img", "new.img", "d2.img", "d3.img", "d4.img", "d5.img", "d6.img", "d7.img"]);
}
