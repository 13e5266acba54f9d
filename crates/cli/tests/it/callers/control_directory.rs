//! The rights on `.zfs`, which is on no disk: all users may look, and none may change anything but the superuser, who takes snapshots.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;

use super::acts::{ACTS, Cell};
use super::people::everybody;
use crate::rig::Rig;

/// What only looks: it may succeed. `access` by root is about modes, and says yes to everything but running what nobody may run.
const LOOKS: &[&str] =
    &["open to read", "open unnoticed", "access to", "seek", "times left out", "xattr names", "xattr get", "mark read"];

fn shown(directory: &Path) -> (u32, u32, u32, Vec<String>) {
    let meta = fs::metadata(directory).unwrap();
    let names = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned()).collect();
    (meta.mode(), meta.uid(), meta.gid(), names)
}

#[test]
fn nobody_changes_the_control_directory() {
    let Some(rig) = Rig::new() else { return };
    fs::set_permissions(rig.path("."), fs::Permissions::from_mode(0o755)).unwrap();
    rig.image("a.img", 64 << 20);
    rig.ok("zpool create -O mountpoint=@mnt -O acltype=posix tank @a.img");
    let root = rig.path("mnt");
    fs::set_permissions(&root, fs::Permissions::from_mode(0o777)).unwrap();
    fs::write(root.join("source"), [b's'; 8192]).unwrap();
    let people = everybody();
    for (directory, name) in [(root.clone(), ".zfs"), (root.join(".zfs"), "snapshot")] {
        let cell = Cell { directory, name, source: root.join("source") };
        let mut before = shown(&cell.target());
        for act in ACTS {
            for caller in &people {
                let (own, run) = (cell.clone(), act.run);
                let answer = caller.act(move || run(&own));
                if act.name == "entry made: a directory" && name == "snapshot" && caller.name == "root" {
                    assert!(answer.is_ok(), "{answer:?}");
                    before = shown(&cell.target());
                    assert_eq!(before.3, ["d"]);
                    continue;
                }
                let looks = LOOKS.iter().any(|look| act.name.starts_with(look));
                assert!(answer.is_err() || looks, "{} by {} on {name}: {answer:?}", act.name, caller.name);
                assert_eq!(shown(&cell.target()), before, "{} by {}", act.name, caller.name);
                let _ = fs::remove_file(root.join("n"));
            }
        }
    }
    // A view has no such directory; what was made there under its name would be hidden for ever.
    let view = rig.ok(&format!("transaction begin -o {} tank", std::process::id())).trim_end().to_owned();
    let inside = Path::new(&view).join(".zfs");
    let kinds = [
        fs::create_dir(&inside),
        fs::write(&inside, ""),
        std::os::unix::fs::symlink("x", &inside),
        fs::hard_link(Path::new(&view).join("source"), &inside),
        fs::rename(Path::new(&view).join("source"), &inside),
    ];
    assert!(kinds.iter().all(Result::is_err), "{kinds:?}");
    fs::write(Path::new(&view).join("other"), "").unwrap();
    rig.ok(&format!("transaction commit {view}"));
    assert!(rig.path("mnt/other").exists() && rig.path("mnt/source").exists() && rig.path("mnt/.zfs/snapshot").is_dir());
    rig.ok("zpool export tank");
    rig.zdb(&["a.img"]);
}
