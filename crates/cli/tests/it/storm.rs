//! Commands beside one another, and what they say.

use std::thread;

use crate::rig::{Rig, Said};

const ADMINISTRATORS: usize = 6;
const ROUNDS: usize = 6;
/// Fewer names than administrators: they get in each other's way.
const NAMES: usize = 3;

/// What one of them does, in rounds that begin elsewhere for each.
const WORDS: [&str; 9] = [
    "zfs create tank/NAME",
    "zfs set atime=off tank/NAME",
    "zfs unmount tank/NAME",
    "zfs rename tank/NAME tank/OTHER",
    "zfs mount tank/OTHER",
    "zfs set mountpoint=@mnt/else-NAME tank/OTHER",
    "zfs set readonly=on tank/OTHER",
    "zfs inherit mountpoint tank/OTHER",
    "zfs destroy tank/OTHER",
];

fn administer(rig: &Rig, who: usize) -> Vec<(String, Said)> {
    let name = |number: usize| format!("n{}", number % NAMES);
    let mut said = Vec::new();
    for step in 0..ROUNDS * WORDS.len() {
        let (own, other) = (name(who + step / WORDS.len()), name(who + step / WORDS.len() + 1));
        let words = WORDS[(step + who * 4) % WORDS.len()].replace("NAME", &own).replace("OTHER", &other);
        let answer = rig.run(&words);
        said.push((words, answer));
    }
    said
}

/// In a storm of commands some said no more than "No such file or directory (os error 2)": of what, nobody could know. Whatever comes in between, a command
/// that fails names what it failed at, in words; the numbers of errors are for programs.
#[test]
fn errors_of_commands_name_the_thing() {
    let Some(rig) = Rig::new() else { return };
    rig.image("a.img", 256 << 20);
    rig.ok("zpool create -O mountpoint=@mnt tank @a.img");
    let all: Vec<(String, Said)> = thread::scope(|scope| {
        let rig = &rig;
        let threads: Vec<_> = (0..ADMINISTRATORS).map(|who| scope.spawn(move || administer(rig, who))).collect();
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    });
    for (words, said) in &all {
        // (What was made and is gone before it could be mounted was made all the same.)
        assert!(said.code == 0 || !said.err.is_empty(), "{words}: {said:?}");
        assert!(!said.err.contains("os error"), "{words}: {said:?}");
        // OpenZFS says in a line of its own that a file system was created but not mounted; why, and which, is in another.
        let names = said.err.contains("tank/n") || said.err.contains(&rig.text("mnt"));
        assert!(said.err.is_empty() || names, "{words}: names nothing: {said:?}");
    }
    let failed = all.iter().filter(|(_, said)| said.code != 0).count();
    assert!(failed > 0 && failed < all.len(), "{failed} of {} failed: they were not in each other's way", all.len());
    rig.ok("zpool export tank");
    rig.zdb(&["a.img"]);
}

/// Where a mount fails, the command says what was to be mounted, and why in words. (A file in its way, and one below that.)
#[test]
fn a_mount_that_fails_is_named() {
    let Some(rig) = Rig::new() else { return };
    rig.image("a.img", 128 << 20);
    rig.ok("zpool create -O mountpoint=none tank @a.img");
    std::fs::write(rig.path("file"), "in the way").unwrap();
    for place in ["file", "file/below"] {
        rig.ok("zfs create -o mountpoint=none tank/a");
        for words in [format!("zfs set mountpoint=@{place} tank/a"), "zfs mount tank/a".to_owned()] {
            let said = rig.run(&words);
            assert!(said.err.lines().all(|line| line.contains("tank/a") && !line.contains("os error")), "{words}: {said:?}");
            assert!(said.code != 0 && said.err.starts_with("cannot mount 'tank/a': "), "{words}: {said:?}");
        }
        rig.ok("zfs destroy tank/a");
    }
    rig.ok("zpool export tank");
}

/// `zpool sync` is where scripts wait before they ask how much space a file takes; for a second afterwards they were told what it had been before.
#[test]
fn the_space_of_a_file_is_known_after_a_sync() {
    use std::os::unix::fs::MetadataExt;
    let Some(rig) = Rig::new() else { return };
    rig.image("a.img", 128 << 20);
    rig.ok("zpool create -O mountpoint=@mnt -O compression=off tank @a.img");
    let path = rig.path("mnt/f");
    for (round, kib) in [200u64, 1000, 3000].into_iter().enumerate() {
        std::fs::write(&path, vec![round as u8 + 1; kib as usize * 1024]).unwrap();
        let _before = std::fs::metadata(&path).unwrap().blocks();
        rig.ok("zpool sync tank");
        let blocks = std::fs::metadata(&path).unwrap().blocks();
        assert!(blocks * 512 >= kib * 1024, "{blocks} blocks of a file of {kib} KiB");
    }
    rig.ok("zpool export tank");
    rig.zdb(&["a.img"]);
}
