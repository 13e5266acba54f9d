//! `zpool checkpoint`, `initialize`, `trim`, and properties of vdevs, under a mount: what they do, and their words.

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

#[test]
fn a_pool_goes_back_to_its_checkpoint() {
    let Some(rig) = rig_with(&[("a.img", 128), ("b.img", 128)]) else { return };
    rig.ok("zpool create -O mountpoint=@mnt tank mirror @a.img @b.img");
    fs::write(rig.path("mnt/kept"), vec![1; 4 << 20]).unwrap();
    rig.refused("zpool checkpoint -w tank", "--wait only valid when --discard also specified");
    rig.refused("zpool checkpoint -d tank", "cannot discard checkpoint in 'tank': checkpoint does not exist");
    rig.refused("zpool checkpoint tank/a", "'zpool checkpoint' doesn't work on datasets.");
    rig.ok("zpool checkpoint tank");
    rig.refused("zpool checkpoint tank", "cannot checkpoint 'tank': checkpoint exists");
    rig.refused("zpool reguid tank", "cannot reguid 'tank': checkpoint exists");
    rig.refused("zpool detach tank @b.img", "checkpoint exists");
    rig.refused("zpool split tank half", "checkpoint exists");
    fs::remove_file(rig.path("mnt/kept")).unwrap();
    fs::write(rig.path("mnt/new"), vec![2; 4 << 20]).unwrap();
    rig.ok("zpool sync tank");
    assert!(rig.ok("zpool status tank").contains("\ncheckpoint: created "));
    let kept: u64 = rig.ok("zpool get -Hp -o value checkpoint tank").trim().parse().unwrap();
    assert!(kept >= 4 << 20, "{kept}");
    rig.ok("zpool export tank");
    rig.zdb(&["a.img", "b.img"]);
    rig.ok("zpool import -d @ --rewind-to-checkpoint tank");
    assert_eq!(fs::read(rig.path("mnt/kept")).unwrap(), vec![1; 4 << 20]);
    assert!(!rig.path("mnt/new").exists() && !rig.ok("zpool status tank").contains("checkpoint:"));
    rig.ok("zpool checkpoint tank");
    fs::remove_file(rig.path("mnt/kept")).unwrap();
    rig.ok("zpool checkpoint -d -w tank");
    assert!(!rig.ok("zpool status tank").contains("checkpoint:"));
    let history = rig.ok("zpool history -i tank");
    assert!(history.contains("spa checkpoint") && history.contains("finished discarding checkpointed state from the pool"), "{history}");
    rig.ok("zpool export tank");
    rig.zdb(&["a.img", "b.img"]);
    rig.refused("zpool import -d @ --rewind-to-checkpoint tank", "cannot import 'tank': checkpoint does not exist");
}

#[test]
fn free_space_is_initialized_and_trimmed() {
    let Some(rig) = rig_with(&[("a.img", 128), ("b.img", 128)]) else { return };
    rig.ok("zpool create -O mountpoint=@mnt tank mirror @a.img @b.img");
    fs::write(rig.path("mnt/file"), vec![3; 4 << 20]).unwrap();
    let (a, b) = (rig.text("a.img"), rig.text("b.img"));
    rig.refused("zpool initialize", "missing pool name argument");
    rig.refused("zpool initialize -c -s tank", "-s cannot be combined with other options");
    rig.refused("zpool initialize -a tank", "-a cannot be combined with individual pools or vdevs");
    rig.refused("zpool trim -w -c tank", "-w cannot be used with -c or -s options");
    rig.refused("zpool initialize tank @none.img", &format!("cannot initialize '{}': no such device in pool", rig.text("none.img")));
    rig.refused("zpool initialize -c tank @a.img", &format!("cannot initialize '{a}': there is no active initialization"));
    rig.refused("zpool trim -s tank @b.img", &format!("cannot trim '{b}': there is no active trim"));
    rig.refused("zpool trim -d tank @b.img", &format!("cannot trim '{b}': trim operations are not supported by this device"));
    assert_eq!(rig.ok("zpool status -it tank").matches("  (uninitialized)  (untrimmed)").count(), 2);
    rig.ok("zpool initialize -w tank");
    assert_eq!(rig.ok("zpool status -i tank").matches("  (100% initialized, completed at ").count(), 2);
    rig.ok("zpool trim -w tank @a.img");
    let status = rig.ok("zpool status -t tank");
    assert!(status.matches("  (100% trimmed, completed at ").count() == 1 && status.contains("(untrimmed)"), "{status}");
    rig.ok("zpool wait -t initialize,trim tank");
    rig.ok("zpool export tank");
    rig.ok("zpool import -d @ tank");
    assert_eq!(rig.ok("zpool status -i tank").matches("100% initialized").count(), 2);
    rig.ok("zpool initialize -u tank");
    assert_eq!(rig.ok("zpool status -i tank").matches("(uninitialized)").count(), 2);
    assert_eq!(fs::read(rig.path("mnt/file")).unwrap(), vec![3; 4 << 20]);
    rig.ok("zpool export tank");
    rig.zdb(&["a.img", "b.img"]);
}

#[test]
fn vdevs_have_properties() {
    let Some(rig) = rig_with(&[("a.img", 128), ("b.img", 128), ("c.img", 128), ("d.img", 128)]) else { return };
    rig.ok("zpool create -O mountpoint=@mnt tank mirror @a.img @b.img mirror @c.img @d.img");
    let get = |what: &str| rig.ok(&format!("zpool get -Hp -o value {what}")).trim().to_owned();
    assert_eq!(get("numchildren tank mirror-0"), "2");
    assert_eq!(get("comment tank root"), "-");
    rig.ok("zpool set comment=hello tank mirror-0");
    rig.ok("zpool set org.me:place=shelf tank @a.img");
    let set = rig.run("zpool set checksum_n=5 tank @a.img");
    assert!(set.code == 0 && set.err.contains("has no effect here"), "{}", set.err);
    rig.refused("zpool set size=5 tank mirror-0", "cannot set property size for mirror-0 on tank: 'size' is readonly");
    rig.refused("zpool set nothing=5 tank mirror-0", "invalid property: 'nothing'");
    rig.refused("zpool set comment=a tank none", "cannot find 'none' in 'tank': device not in pool");
    rig.refused("zpool get size tank none", "Expected a list of vdevs in \"tank\", but got:\n\tnone");
    rig.ok("zpool set allocating=off tank mirror-0");
    rig.refused("zpool set allocating=off tank mirror-1", "invalid argument for this pool operation");
    fs::write(rig.path("mnt/file"), vec![3; 4 << 20]).unwrap();
    rig.ok("zpool sync tank");
    let used: u64 = get("allocated tank mirror-0").parse().unwrap();
    assert!(used < 2 << 20, "{used}");
    rig.ok("zpool export tank");
    rig.zdb(&["a.img", "b.img", "c.img", "d.img"]);
    rig.ok("zpool import -d @ tank");
    for (what, value) in [("comment tank mirror-0", "hello"), ("org.me:place tank @a.img", "shelf"), ("checksum_n tank @a.img", "5"), ("allocating tank mirror-0", "off")] {
        assert_eq!(get(what), value, "{what}");
    }
    rig.ok("zpool set allocating=on tank mirror-0");
    rig.ok("zpool set org.me:place= tank @a.img");
    assert_eq!((get("allocating tank mirror-0"), get("org.me:place tank @a.img")), ("on".to_owned(), "-".to_owned()));
    let all = rig.ok("zpool get -H -o name,property state tank all-vdevs");
    assert_eq!(all.lines().count(), 7, "{all}");
    assert!(all.starts_with("root-0\tstate\n"), "{all}");
    assert!(rig.ok("zpool get -j size tank all-vdevs").contains("\"vdevs\":{\"root-0\""));
    rig.ok("zpool export tank");
}
