//! Small things that OpenZFS's own tests found to be otherwise.

use crate::rig::{LIMIT, Rig, run_for};

const MIB: u64 = 1 << 20;

/// With `POSIXLY_CORRECT` options come before operands, as the C library reads them for OpenZFS; they were taken everywhere.
#[test]
fn options_end_where_posix_says() {
    let Some(rig) = Rig::new() else { return };
    rig.image("a.img", 64 * MIB);
    rig.ok("zpool create -O mountpoint=none tank @a.img");
    assert!(rig.ok("zfs get all tank -H").starts_with("tank\t"));
    for words in ["zfs get all -r", "zfs get all -r tank"] {
        let said = run_for(rig.command(words).env("POSIXLY_CORRECT", "1"), LIMIT).expect("it ends");
        assert_ne!(said.code, 0, "{words}: {said:?}");
    }
    let said = run_for(rig.command("zfs get -H all tank").env("POSIXLY_CORRECT", "1"), LIMIT).expect("it ends");
    assert!(said.code == 0 && said.out.starts_with("tank\t"), "{said:?}");
    rig.ok("zpool export tank");
}

/// Any text was taken for options of sharing, which OpenZFS would have to read later.
#[test]
fn options_of_sharing_are_checked() {
    let Some(rig) = Rig::new() else { return };
    rig.image("a.img", 64 * MIB);
    rig.ok("zpool create -O mountpoint=none tank @a.img");
    for words in [
        "zfs set sharenfs=junk,,, tank",
        "zfs set sharenfs= tank",
        "zfs set sharesmb=x tank",
        "zfs create -o sharenfs=sss tank/a",
    ] {
        rig.refused(words, "cannot be set to invalid options");
    }
    assert_eq!(rig.get("tank", "sharenfs"), "off");
    // What is right is kept for OpenZFS.
    for value in ["rw=10.0.0.0/24,no_root_squash", "on"] {
        assert_eq!(rig.run(&format!("zfs set sharenfs={value} tank")).code, 0);
        assert_eq!(rig.get("tank", "sharenfs"), value);
    }
    rig.ok("zfs set sharenfs=off tank");
    rig.ok("zpool export tank");
}
