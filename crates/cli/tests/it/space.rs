//! Space, byte for byte: after each of some verbs every sum is what OpenZFS's kernel module counts, and the verbs say what it says (`sim::peer::space`).

use std::fs;
use std::process::Command;
use std::time::Duration;

use sim::peer::space::{Pool, differences, put_script, said, values};
use sim::places::{say, skipped};

use crate::rig::{Rig, run_for};

/// Longer than all steps take on a busy machine.
const LIMIT: Duration = Duration::from_secs(900);
/// Differences that are printed.
const TOLD: usize = 80;

fn compare(pool: Pool, image: &str) {
    let Some(rig) = Rig::new() else { return };
    for directory in ["files", "out", "devices", "mounts", "bin"] {
        fs::create_dir(rig.path(directory)).unwrap();
    }
    put_script(&rig.path("files")).unwrap();
    if pool == Pool::Golden && !rig.path("files/d0.img").exists() {
        return skipped("golden pool snap: not found");
    }
    for name in ["zfs", "zpool"] {
        std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_tarn"), rig.path("bin").join(name)).unwrap();
    }
    let mut command = Command::new("bash");
    command.arg(rig.path("files/guest.sh")).env("TARN_SOCKET", rig.path("sock")).env("TARN_LOG", "info").env("PAUSE", "0").env("ONLY", pool.name());
    command.env("PATH", format!("{}:{}", rig.text("bin"), std::env::var("PATH").unwrap_or_default()));
    for (name, directory) in [("FILES", "files"), ("OUT", "out"), ("D", "devices"), ("M", "mounts")] {
        command.env(name, rig.path(directory));
    }
    let ended = run_for(&mut command, LIMIT).unwrap_or_else(|| panic!("the script hangs\n{}", rig.log()));
    assert!(ended.code == 0, "{ended:?}\n{}", rig.log());
    let ours = said(&fs::read_to_string(rig.path("out").join(format!("{}.said", pool.name()))).unwrap()).unwrap();
    let lines = differences(pool, &ours, &pool.expected().unwrap());
    say(&format!("space, {}: {} steps, {} values, {} differ from OpenZFS", pool.name(), ours.len(), values(&ours), lines.len()));
    assert!(lines.is_empty(), "{} differ:\n{}", lines.len(), lines.iter().take(TOLD).cloned().collect::<Vec<_>>().join("\n"));
    assert!(values(&ours) > 10_000, "the table is not whole");
    rig.zdb(&[image]);
}

#[test]
fn space_of_a_golden_pool_is_what_openzfs_counts() {
    compare(Pool::Golden, "devices/space/d0.img");
}

#[test]
fn space_of_a_new_pool_is_what_openzfs_counts() {
    compare(Pool::Fresh, "devices/fresh.img");
}
