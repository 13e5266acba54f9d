//! What `sync(1)` and `umount(8)` say is safe is safe.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::rig::{LIMIT, Rig, run_for};

const MIB: u64 = 1 << 20;

/// Runs somebody else's command; it must not hang.
#[track_caller]
pub(crate) fn others(program: &str, words: &[&str]) {
    let said = run_for(Command::new(program).args(words), LIMIT).unwrap_or_else(|| panic!("{program} {words:?} hung"));
    assert_eq!(said.code, 0, "{program} {words:?}: {}", said.err);
}

/// Is this a mount of ours whose `sync` and `umount` wait?
pub(crate) fn is_on_block_device(place: &Path) -> bool {
    fs::read_to_string("/proc/self/mounts").unwrap().contains(&format!(" {} fuseblk.tarn ", place.display()))
}

pub(crate) fn is_durable(rig: &Rig) -> bool {
    let durable = is_on_block_device(&rig.path("mnt"));
    if !durable {
        sim::places::skipped("sync and umount: that they wait takes root, Linux 6.18 and loop devices");
    }
    durable
}

/// Is it mounted in another mount namespace?
fn has_copies(rig: &Rig) -> bool {
    let (place, own) = (format!(" {} ", rig.text("mnt")), fs::read_link("/proc/self/ns/mnt").ok());
    let copied = |process: &Path| {
        fs::read_link(process.join("ns/mnt")).ok() != own && fs::read_to_string(process.join("mountinfo")).is_ok_and(|table| table.contains(&place))
    };
    fs::read_dir("/proc").unwrap().flatten().any(|process| copied(&process.path()))
}

/// The kernel told us nothing of `sync`, `syncfs` and `umount`, so that a crash lost what they had been asked to save.
#[test]
fn what_sync_and_umount_ended_survives_a_kill() {
    let Some(rig) = Rig::new() else { return };
    rig.image("a.img", 128 * MIB);
    rig.ok("zpool create -O mountpoint=@mnt tank @a.img");
    if !is_durable(&rig) {
        return;
    }
    let device = rustix::fs::stat(rig.path("mnt")).unwrap().st_dev;
    let device = format!("/sys/dev/block/{}:{}", rustix::fs::major(device), rustix::fs::minor(device));
    assert!(fs::exists(&device).unwrap(), "{device}");
    for (round, ending) in ["sync", "sync -f", "umount"].iter().enumerate() {
        let name = rig.path(&format!("mnt/file{round}"));
        fs::write(&name, format!("round {round}")).unwrap();
        fs::rename(&name, rig.path(&format!("mnt/renamed{round}"))).unwrap();
        match *ending {
            "sync" => others("sync", &[]),
            "sync -f" => others("sync", &["-f", &rig.text("mnt")]),
            // While somebody makes a mount namespace, as tests beside this one do, it has a copy of the mount, and `umount` ends nothing.
            _ => {
                others("umount", &[&rig.text("mnt")]);
                if has_copies(&rig) {
                    sim::places::skipped("what umount ends: another process made a copy of the mount");
                    break;
                }
            }
        }
        rig.kill();
        rig.unmount_all();
        if round == 0 {
            rig.wait("the end of the block device that the killed daemon had made", || !fs::exists(&device).unwrap());
        }
        rig.ok("zpool import -d @. tank");
        assert_eq!(fs::read_to_string(rig.path(&format!("mnt/renamed{round}"))).unwrap(), format!("round {round}"), "{ending}");
    }
    rig.ok("zpool export tank");
    rig.zdb(&["a.img"]);
}
