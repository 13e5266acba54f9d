//! Verbs of pools as OpenZFS's own tests use them: each of these was refused, or did something else.

use std::fs;
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::Duration;

use crate::rig::Rig;

const MIB: u64 = 1 << 20;

/// The value of a pool's property.
#[track_caller]
fn get(rig: &Rig, pool: &str, property: &str) -> String {
    rig.ok(&format!("zpool get -H -o value {property} {pool}")).trim_end().to_owned()
}

/// A cache file is what the pool was when it was written. Devices added since were not looked for, so the pool could not be imported with it.
#[test]
fn a_cache_file_from_before_an_addition_finds_the_pool() {
    let Some(rig) = Rig::new() else { return };
    for name in ["a.img", "b.img", "c.img"] {
        rig.image(name, 128 * MIB);
    }
    rig.ok("zpool create -o cachefile=@cache -O mountpoint=none tank @a.img");
    fs::copy(rig.path("cache"), rig.path("old")).unwrap();
    rig.ok("zpool add tank mirror @b.img @c.img -f");
    rig.ok("zpool export tank");
    rig.ok("zpool import -c @old -o cachefile=@cache -N tank");
    let status = rig.ok("zpool status -P tank");
    assert!(["a.img", "b.img", "c.img"].iter().all(|name| status.contains(&rig.text(name))), "{status}");
    // As OpenZFS, giving a pool up leaves it in the file.
    rig.ok("zpool export -F tank");
    rig.ok("zpool import -c @cache -N tank");
    rig.ok("zpool export tank");
}

/// A device that has another name in its directory now was not found by a cache file, which knows the old one.
#[test]
fn a_cache_file_finds_devices_that_were_renamed() {
    let Some(rig) = Rig::new() else { return };
    for name in ["a.img", "b.img"] {
        rig.image(name, 128 * MIB);
    }
    fs::create_dir(rig.path("beside")).unwrap();
    rig.image("beside/other.img", 128 * MIB);
    rig.ok("zpool create -O mountpoint=none other @beside/other.img");
    rig.ok("zpool export other");
    fs::rename(rig.path("beside/other.img"), rig.path("other.img")).unwrap();
    rig.ok("zpool create -o cachefile=@cache -O mountpoint=none tank mirror @a.img @b.img");
    fs::copy(rig.path("cache"), rig.path("old")).unwrap();
    rig.ok("zpool export tank");
    for name in ["a.img", "b.img"] {
        fs::rename(rig.path(name), rig.path(&format!("{name}_new"))).unwrap();
    }
    let found = rig.ok("zpool import -c @old");
    assert!(
        found.contains("pool: tank") && !found.contains("other"),
        "what is in the directory beside it was not asked for: {found}"
    );
    rig.ok("zpool import -c @old -N tank");
    assert_eq!(get(&rig, "tank", "health"), "ONLINE");
    let status = rig.ok("zpool status -P tank");
    assert!(status.contains(&rig.text("a.img_new")) && status.contains(&rig.text("b.img_new")), "{status}");
    rig.ok("zpool export tank");
}

/// `zpool create -o version=N` was refused for all but 5000.
#[test]
fn pools_of_old_versions_are_made() {
    let Some(rig) = Rig::new() else { return };
    for version in [1, 3, 10, 15, 21, 24, 26, 28] {
        rig.image("a.img", 128 * MIB);
        rig.ok(&format!("zpool create -o version={version} -O mountpoint=@mnt old @a.img"));
        assert_eq!(get(&rig, "old", "version"), version.to_string());
        for line in rig.ok("zpool get -H -o property,value all old").lines().filter(|line| line.starts_with("feature@")) {
            assert!(line.ends_with("\tdisabled"), "version {version}: {line}");
        }
        let content: Vec<u8> = (0..300_000_u32).map(|at| (at.wrapping_mul(at) >> 9) as u8).collect();
        fs::create_dir(rig.path("mnt/dir")).unwrap();
        fs::write(rig.path("mnt/dir/file"), &content).unwrap();
        rig.ok("zfs create old/below");
        fs::write(rig.path("mnt/below/file"), &content).unwrap();
        rig.ok("zpool export old");
        rig.zdb(&["a.img"]);
        rig.check("old");
        rig.ok("zpool import -d @ old");
        assert!(fs::read(rig.path("mnt/dir/file")).unwrap() == content, "version {version}");
        if version >= 26 {
            rig.ok("zpool upgrade old");
        }
        fs::write(rig.path("mnt/new"), &content).unwrap();
        rig.ok("zpool export old");
        rig.zdb(&["a.img"]);
        fs::remove_file(rig.path("a.img")).unwrap();
    }
    rig.image("a.img", 128 * MIB);
    rig.refused("zpool create -o version=29 old @a.img", "is invalid");
    rig.refused("zpool create -o version=28 -o feature@lz4_compress=enabled old @a.img", "cannot be specified together");
}

/// The first boot properties came with version 6; `bootfs` was accepted on a pool of version 1.
#[test]
fn an_old_pool_has_no_boot_file_system() {
    let Some(rig) = Rig::new() else { return };
    rig.image("a.img", 128 * MIB);
    rig.image("b.img", 128 * MIB);
    rig.ok("zpool create -o version=5 -O mountpoint=none old @a.img");
    rig.refused("zpool set bootfs=old old", "pool must be upgraded to set this property or value");
    rig.ok("zpool create -o version=6 -O mountpoint=none newer @b.img");
    rig.ok("zpool set bootfs=newer newer");
    rig.ok("zpool export -a");
}

/// `compatibility` with files was refused. Now what they name together is enabled, by `create` and by `upgrade`, and nothing else.
#[test]
fn a_pool_keeps_to_the_features_of_its_compatibility_files() {
    let Some(rig) = Rig::new() else { return };
    rig.image("a.img", 128 * MIB);
    fs::write(rig.path("one"), "# features\nasync_destroy, lz4_compress # more\nempty_bpobj\n").unwrap();
    fs::write(rig.path("two"), "lz4_compress\nasync_destroy\nlarge_blocks\n").unwrap();
    fs::write(rig.path("bad"), "lz4_compress\nno_such_feature\n").unwrap();
    let both = format!("{},{}", rig.text("one"), rig.text("two"));
    let enabled = || -> Vec<String> {
        let all = rig.ok("zpool get -H -o property,value all tank");
        let features = all.lines().filter_map(|line| line.strip_prefix("feature@")).filter_map(|line| line.split_once('\t'));
        features.filter(|(_, state)| *state != "disabled").map(|(name, _)| name.to_owned()).collect()
    };
    rig.ok(&format!("zpool create -o compatibility={both} -O mountpoint=none tank @a.img"));
    assert_eq!(enabled(), ["async_destroy", "lz4_compress"]);
    assert_eq!(get(&rig, "tank", "compatibility"), both);
    assert!(!rig.ok("zpool status tank").contains("features are not enabled"), "it has all that it may have");
    rig.refused("zpool set feature@large_blocks=enabled tank", "compatibility");
    rig.ok("zpool set compatibility=@two tank");
    assert!(rig.ok("zpool status tank").contains("features are not enabled"), "it may have more");
    assert!(rig.ok("zpool upgrade tank").contains("large_blocks"));
    let names = enabled();
    assert!(names.contains(&"large_blocks".to_owned()) && !names.contains(&"empty_bpobj".to_owned()), "{names:?}");
    assert!(!rig.ok("zpool status tank").contains("features are not enabled"));
    for (file, words) in [("bad", "no_such_feature"), ("none", "none")] {
        rig.refused(&format!("zpool set compatibility=@{file} tank"), words);
        rig.image("b.img", 128 * MIB);
        rig.refused(&format!("zpool create -o compatibility=@{file} other @b.img"), words);
        fs::remove_file(rig.path("b.img")).unwrap();
    }
    rig.ok("zpool export tank");
    rig.zdb(&["a.img"]);
}

/// `zpool create -O userquota@NAME=...` was refused, as were the other limits of owners.
#[test]
fn a_new_pool_has_the_quotas_that_it_was_made_with() {
    let Some(rig) = Rig::new() else { return };
    rig.image("a.img", 128 * MIB);
    rig.ok("zpool create -O userquota@root=10M -O groupquota@12=20M -O mountpoint=none tank @a.img");
    assert_eq!(rig.get("tank", "userquota@root"), (10 * MIB).to_string());
    assert_eq!(rig.get("tank", "groupquota@12"), (20 * MIB).to_string());
    rig.ok("zpool export tank");
    rig.image("b.img", 128 * MIB);
    rig.refused("zpool create -O userquota@no-such-user-here=10M other @b.img", "userquota@no-such-user-here");
    assert!(
        rig.ok("zpool list -H -o name").is_empty() || !rig.ok("zpool list -H -o name").contains("other"),
        "a pool that was refused is not there"
    );
}

/// The guid is what C's `strtoull` makes of the word: signs, leading zeros and spaces are fine, other words are not.
#[test]
fn a_guid_is_read_as_openzfs_reads_it() {
    let Some(rig) = Rig::new() else { return };
    rig.image("a.img", 128 * MIB);
    rig.ok("zpool create -O mountpoint=none tank @a.img");
    for (word, guid) in
        [("-1", "18446744073709551615"), ("314", "314"), ("0123", "123"), ("+7", "7"), ("-2", "18446744073709551614")]
    {
        rig.ok(&format!("zpool reguid -g {word} tank"));
        assert_eq!(get(&rig, "tank", "guid"), guid, "{word}");
    }
    for word in ["x", "1x", "0x10", "18446744073709551616", "-", "1.5"] {
        rig.refused(&format!("zpool reguid -g {word} tank"), "invalid GUID");
    }
    rig.ok("zpool export tank");
    rig.zdb(&["a.img"]);
}

/// A pool with `vdev_zaps_v2` has a ZAP of its root vdev, which the configuration in the MOS names. Ours had none.
#[test]
fn the_root_vdev_has_a_zap() {
    let Some(rig) = Rig::new() else { return };
    rig.image("a.img", 128 * MIB);
    rig.image("b.img", 128 * MIB);
    let root_zap = || -> Option<u64> {
        let config = rig.ok("zdb -e -p @ -C tank");
        config.lines().find_map(|line| line.trim().strip_prefix("com.klarasystems:vdev_zap_root: ")?.parse().ok())
    };
    rig.ok("zpool create -d -O mountpoint=none tank @a.img");
    rig.ok("zpool export tank");
    assert_eq!(root_zap(), None, "without the feature there is none");
    rig.ok("zpool import -d @ tank");
    rig.ok("zpool set feature@vdev_zaps_v2=enabled tank");
    assert_eq!(get(&rig, "tank", "feature@vdev_zaps_v2"), "active");
    rig.ok("zpool export tank");
    rig.zdb(&["a.img"]);
    let upgraded = root_zap();
    rig.ok("zpool import -d @ tank");
    rig.ok("zpool export tank");
    assert_eq!(root_zap(), upgraded, "it stays the same");
    assert!(upgraded.is_some(), "the feature makes it");
    fs::remove_file(rig.path("a.img")).unwrap();
    rig.ok("zpool create -O mountpoint=none tank @b.img");
    assert_eq!(get(&rig, "tank", "feature@vdev_zaps_v2"), "active");
    rig.ok("zpool export tank");
    let zap = root_zap().expect("a new pool has it");
    let shown = rig.ok(&format!("zdb -e -p @ -dddd tank {zap}"));
    assert!(shown.contains("zap"), "{shown}");
    rig.zdb(&["b.img"]);
}

/// The feature of zstd became active with the first block, where OpenZFS activates it with the property, and stayed so.
#[test]
fn zstd_is_active_with_the_property() {
    let Some(rig) = Rig::new() else { return };
    rig.image("a.img", 128 * MIB);
    rig.ok("zpool create -O mountpoint=none tank @a.img");
    let state = || get(&rig, "tank", "feature@zstd_compress");
    assert_eq!(state(), "enabled");
    rig.ok("zfs create -o compression=zstd-7 tank/new");
    assert_eq!(state(), "active");
    rig.ok("zfs destroy tank/new");
    assert_eq!(state(), "enabled");
    rig.ok("zfs create tank/set");
    rig.ok("zfs set compression=zstd tank/set");
    assert_eq!(state(), "active");
    rig.ok("zfs destroy tank/set");
    assert_eq!(state(), "enabled");
    rig.ok("zpool export tank");
    rig.zdb(&["a.img"]);
    rig.image("b.img", 128 * MIB);
    rig.ok("zpool create -O compression=zstd -O mountpoint=none lake @b.img");
    assert_eq!(get(&rig, "lake", "feature@zstd_compress"), "active");
    rig.ok("zpool export lake");
    rig.zdb(&["b.img"]);
}

/// The state of `zpool iostat 0.1`: its lines in short, repetitions left out.
fn chunks(text: &str) -> Vec<&str> {
    let mut all: Vec<&str> = Vec::new();
    for line in text.lines() {
        let word = match line.split_whitespace().next() {
            Some("no") => "none",
            Some("pool") => "heading",
            Some(name @ ("one" | "two")) => name,
            _ => continue,
        };
        if word == "heading" || all.last() != Some(&word) {
            all.push(word);
        }
    }
    all
}

/// `zpool iostat POOL INTERVAL` ended, or complained for ever, when its pool was exported, and printed no heading when the pool came back
/// beside another one.
#[test]
fn iostat_follows_pools_that_come_and_go() {
    let Some(rig) = Rig::new() else { return };
    rig.image("a.img", 128 * MIB);
    rig.image("b.img", 128 * MIB);
    rig.ok("zpool create -O mountpoint=none one @a.img");
    let watch = |words: &str| {
        let out = fs::File::create(rig.path("watched")).unwrap();
        let mut command: Command = rig.command(words);
        command.stdin(Stdio::null()).stdout(out.try_clone().unwrap()).stderr(out);
        command.spawn().unwrap()
    };
    let seen = || fs::read_to_string(rig.path("watched")).unwrap();
    let comes = |words: &[&str]| rig.wait(&format!("{words:?} after {:?}", chunks(&seen())), || chunks(&seen()).ends_with(words));
    let mut child = watch("zpool iostat one 0.1");
    comes(&["heading", "one"]);
    rig.ok("zpool export one");
    comes(&["one", "none"]);
    rig.ok("zpool create -O mountpoint=none two @b.img");
    sleep(Duration::from_millis(300));
    rig.ok("zpool import -d @a.img one");
    comes(&["none", "heading", "one"]);
    rig.ok("zpool export two");
    sleep(Duration::from_millis(300));
    let _ = child.kill();
    let _ = child.wait();
    assert_eq!(chunks(&seen()), ["heading", "one", "none", "heading", "one"], "{}", seen());
    // One pool that takes another's place has a heading of its own.
    let mut child = watch("zpool iostat 0.1");
    comes(&["heading", "one"]);
    rig.ok("zpool import -d @b.img two");
    comes(["heading", "one", "two"].as_slice().split_at(1).1);
    rig.ok("zpool export one");
    comes(&["heading", "two"]);
    rig.ok("zpool export two");
    comes(&["two", "none"]);
    let _ = child.kill();
    let _ = child.wait();
}
