//! Verbs on datasets that somebody uses: they are refused in OpenZFS's words and change nothing, or what uses the dataset goes on.

use std::fs;
use std::io::Write;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};

use crate::rig::Rig;

fn rig() -> Option<Rig> {
    Rig::with_tank("disk", 512 << 20, "-R @m -O mountpoint=/tank")
}

/// A program whose working directory is in a file system.
struct Sitter(Child);

impl Sitter {
    fn new(rig: &Rig, directory: &str) -> Sitter {
        let mut command = Command::new("sleep");
        command.arg("1000").current_dir(rig.path(directory)).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        Sitter(command.spawn().unwrap())
    }
}

impl Drop for Sitter {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn what_is_mounted_and_used() {
    let Some(rig) = rig() else { return };
    for name in ["tank/a", "tank/a/b", "tank/a/c", "tank/a/b/d"] {
        rig.ok(&format!("zfs create {name}"));
    }
    fs::write(rig.path("m/tank/a/b/d/file"), "contents").unwrap();
    rig.ok("zfs snapshot -r tank/a@s");
    let mounts = "tank/a\tyes\ntank/a/b\tyes\ntank/a/b/d\tyes\ntank/a/c\tyes\n";
    let listed = |name: &str| rig.ok(&format!("zfs list -H -r -o name,mounted {name}"));
    assert_eq!(listed("tank/a"), mounts);
    {
        let _sitter = Sitter::new(&rig, "m/tank/a/b/d");
        let busy = format!("cannot unmount '{}': pool or dataset is busy", rig.text("m/tank/a/b/d"));
        rig.refused("zfs rename tank/a tank/z", &busy);
        assert_eq!(listed("tank/a"), mounts, "a refused rename changes no mount");
        rig.refused("zfs rename tank/a/b tank/z", &busy);
        rig.refused("zfs destroy -r tank/a/b/d", &busy);
        rig.refused("zfs set mountpoint=/elsewhere tank/a/b", "");
        rig.refused("zfs unmount tank/a", "");
        rig.refused("zpool export tank", "");
        assert_eq!(listed("tank/a"), mounts);
        assert_eq!(fs::read_to_string(rig.path("m/tank/a/b/d/file")).unwrap(), "contents");
        // Those that need no unmount.
        rig.ok("zfs snapshot -r tank/a@t");
        rig.ok("zfs rename -r tank/a@t u");
        rig.ok("zfs rename -u tank/a/c tank/a/e");
        rig.ok("zfs rename tank/a/e tank/a/c");
        rig.ok("zfs rollback tank/a/b/d@u");
        rig.ok("zfs destroy -r tank/a@u");
    }
    rig.ok("zfs rename tank/a tank/z");
    assert_eq!(listed("tank/z"), mounts.replace("tank/a", "tank/z"));
    assert_eq!(fs::read_to_string(rig.path("m/tank/z/b/d/file")).unwrap(), "contents");
    assert!(!rig.path("m/tank/a/b").exists());
    rig.ok("zfs destroy -r tank/z");
    rig.finish("tank", &["disk"]);
}

/// An export that is refused leaves some mounts and makes the others again: what was mounted later is still later, so that it is unmounted first.
#[test]
fn mounts_keep_their_order() {
    let Some(rig) = rig() else { return };
    for name in ["a", "b", "b/x", "b/y", "c", "d", "e", "e/x"] {
        rig.ok(&format!("zfs create tank/{name}"));
    }
    // In the directory of another one, and over one.
    rig.ok("zfs create -o overlay=on -o mountpoint=/tank/b/x/over tank/over");
    rig.ok("zfs create -o overlay=on -o mountpoint=/tank/a tank/cover");
    let mounts = || rig.ok("zfs mount").lines().map(str::to_owned).collect::<Vec<_>>();
    let before = mounts();
    for places in [&["b/y", "c"][..], &["a"], &["b/x", "e/x", "d"], &["e"]] {
        let sitters: Vec<Sitter> = places.iter().map(|place| Sitter::new(&rig, &format!("m/tank/{place}"))).collect();
        rig.refused("zpool export tank", "is busy");
        let after = mounts();
        let places: Vec<usize> = after.iter().map(|mount| before.iter().position(|other| other == mount).expect("it was there")).collect();
        // First what stayed, then what was made again.
        let falls = places.windows(2).filter(|pair| pair[0] > pair[1]).count();
        assert!(falls <= 1 && after.len() == before.len(), "{before:#?} became {after:#?}");
        drop(sitters);
        rig.ok("zfs unmount -a");
        assert_eq!(mounts(), Vec::<String>::new());
        for name in ["tank", "tank/a", "tank/b", "tank/b/x", "tank/b/y", "tank/c", "tank/d", "tank/e", "tank/e/x", "tank/over", "tank/cover"] {
            rig.ok(&format!("zfs mount {name}"));
        }
        assert_eq!(mounts(), before);
    }
    rig.finish("tank", &["disk"]);
}

#[test]
fn what_is_being_sent() {
    let Some(rig) = rig() else { return };
    rig.ok("zfs create tank/a");
    let mut file = fs::File::create(rig.path("m/tank/a/big")).unwrap();
    (0..300_u32).for_each(|number| file.write_all(&vec![number as u8; 100_000]).unwrap());
    drop(file);
    rig.ok("zfs snapshot tank/a@old");
    rig.ok("zfs snapshot tank/a@s");
    rig.ok("zfs snapshot tank/a@t");
    // Nobody reads what it sends.
    let mut sender = rig.command("zfs send tank/a@s").stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let busy = "cannot destroy snapshot tank/a@s: dataset is busy";
    std::io::Read::read_exact(sender.stdout.as_mut().unwrap(), &mut [0; 1]).unwrap();
    rig.refused("zfs destroy tank/a@s", busy);
    rig.refused("zfs destroy -d tank/a@s", busy);
    rig.refused("zfs destroy tank/a@old,s,t", busy);
    assert_eq!(rig.ok("zfs list -H -o name -t snapshot tank/a"), "tank/a@old\ntank/a@s\ntank/a@t\n", "all of them, or none");
    rig.refused("zfs rollback -r tank/a@old", "");
    let mut rest = Vec::new();
    std::io::Read::read_to_end(sender.stdout.as_mut().unwrap(), &mut rest).unwrap();
    assert!(sender.wait().unwrap().success() && rest.len() > 30_000_000);
    rig.wait("the stream lets go", || rig.run("zfs destroy tank/a@s").code == 0);
    rig.finish("tank", &["disk"]);
}

/// Each of two writers sees a file that only grows, whichever of the two file systems has the snapshots.
#[test]
fn promoted_while_both_are_written() {
    let Some(rig) = rig() else { return };
    rig.ok("zfs create tank/a");
    fs::write(rig.path("m/tank/a/both"), [1; 200_000]).unwrap();
    rig.ok("zfs snapshot tank/a@s");
    rig.ok("zfs clone tank/a@s tank/b");
    let is_over = AtomicBool::new(false);
    let written = std::thread::scope(|scope| {
        let writers: Vec<_> = ["a", "b"].into_iter().map(|name| {
            let (rig, is_over) = (&rig, &is_over);
            scope.spawn(move || {
                let mut count = 0_u32;
                while !is_over.load(Ordering::Relaxed) {
                    let path = rig.path("m/tank").join(name).join(format!("n{}", count % 50));
                    fs::write(&path, count.to_string().repeat(3000)).unwrap();
                    assert_eq!(fs::read_to_string(&path).unwrap(), count.to_string().repeat(3000));
                    count += 1;
                }
                count
            })
        }).collect();
        for round in 0..8 {
            let name = if round % 2 == 0 { "b" } else { "a" };
            rig.ok(&format!("zfs promote tank/{name}"));
            rig.ok(&format!("zfs snapshot tank/{name}@r{round}"));
            assert_eq!(rig.get("tank/a", "origin").contains("tank/b@"), name == "b");
        }
        is_over.store(true, Ordering::Relaxed);
        writers.into_iter().map(|writer| writer.join().unwrap()).collect::<Vec<_>>()
    });
    assert!(written.iter().all(|count| *count > 0), "{written:?}");
    for name in ["a", "b"] {
        assert_eq!(fs::read(rig.path("m/tank").join(name).join("both")).unwrap(), [1; 200_000]);
    }
    rig.finish("tank", &["disk"]);
}
