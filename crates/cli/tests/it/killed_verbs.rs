//! The daemon is killed in the middle of a verb on datasets. The images satisfy our checker and the real `zdb`; the verb is done, as it is if its command
//! said so, or nothing of it is; what is freed in the background goes on.
//!
//! `VERB_KILLS=n VERB_SEED=s cargo test -p cli --test it killed_verbs`: so many kills of each verb.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Child, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

use crate::rig::{LIMIT, Rig, wait_for};

const FILES: u64 = 24;
const FILE_BYTES: usize = 100_000;
/// More blocks than are freed in one group.
const MANY_BLOCKS_BYTES: u64 = 60 << 20;

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |text| text.parse().unwrap_or_else(|_| panic!("{name}={text}: not a number")))
}

/// Files that say of which version they are.
fn fill(directory: &Path, version: u8) {
    for file in 0..FILES {
        let text = vec![version ^ file as u8; FILE_BYTES];
        fs::write(directory.join(format!("f{file}")), text).unwrap();
    }
}

/// The version that all files are of.
#[track_caller]
fn version_in(directory: &Path) -> u8 {
    let versions: Vec<u8> = (0..FILES).map(|file| {
        let path = directory.join(format!("f{file}"));
        let bytes = fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        assert!(bytes.len() == FILE_BYTES && bytes.iter().all(|byte| *byte == bytes[0]), "{}: a mixture", path.display());
        bytes[0] ^ file as u8
    }).collect();
    assert!(versions.iter().all(|version| *version == versions[0]), "{}: {versions:?}", directory.display());
    versions[0]
}

/// A pool whose daemon is killed.
struct Killed {
    rig: Rig,
    random: ChaCha8Rng,
    rounds: u64,
}

impl Killed {
    fn new() -> Option<Killed> {
        let rig = Rig::with_tank("img", 1 << 30, "-O compression=off -m @mnt")?;
        let (rounds, seed) = (number("VERB_KILLS", 2), number("VERB_SEED", rand::random_range(0..1 << 30)));
        println!("VERB_SEED={seed}");
        Some(Killed { rig, random: ChaCha8Rng::seed_from_u64(seed), rounds })
    }

    /// Kills the daemon while a command is under way; says whether the command had succeeded.
    fn kill_in(&mut self, mut command: Child, millis: u64) -> bool {
        thread::sleep(Duration::from_micros(self.random.random_range(0..millis * 1000)));
        self.kill();
        let status = wait_for(&mut command, LIMIT);
        self.recover();
        status.expect("a command hangs") == 0
    }

    fn kill(&self) {
        self.rig.kill();
        self.rig.unmount_all();
    }

    fn recover(&self) {
        self.rig.check("tank");
        self.rig.zdb_after_kill(&["img"]);
        self.rig.ok("zpool import -d @ tank");
    }

    fn exists(&self, name: &str) -> bool {
        self.rig.run(&format!("zfs list -H -o name {name}")).code == 0
    }

    fn finish(self) {
        self.rig.finish("tank", &["img"]);
    }
}

#[test]
fn a_rollback() {
    let Some(mut killed) = Killed::new() else { return };
    killed.rig.ok("zfs create tank/a");
    let directory = killed.rig.path("mnt/a");
    fill(&directory, 1);
    killed.rig.ok("zfs snapshot tank/a@s");
    for _ in 0..killed.rounds {
        fill(&directory, 2);
        killed.rig.ok("zpool sync tank");
        let command = killed.rig.start("zfs rollback tank/a@s");
        let done = killed.kill_in(command, 150);
        let found = version_in(&directory);
        assert!(found == 1 || (found == 2 && !done), "version {found}, done: {done}");
    }
    killed.finish();
}

#[test]
fn a_promotion() {
    let Some(mut killed) = Killed::new() else { return };
    killed.rig.ok("zfs create tank/a");
    fill(&killed.rig.path("mnt/a"), 1);
    killed.rig.ok("zfs snapshot tank/a@s");
    killed.rig.ok("zfs clone tank/a@s tank/c");
    fill(&killed.rig.path("mnt/a"), 2);
    fill(&killed.rig.path("mnt/c"), 3);
    killed.rig.ok("zpool sync tank");
    let mut owner = "tank/a";
    for _ in 0..killed.rounds {
        let clone = if owner == "tank/a" { "tank/c" } else { "tank/a" };
        let command = killed.rig.start(&format!("zfs promote {clone}"));
        let done = killed.kill_in(command, 100);
        let origin = killed.rig.get(owner, "origin");
        assert!(origin == format!("{clone}@s") || (origin == "-" && !done), "the origin of {owner}: {origin}, done: {done}");
        owner = if origin == "-" { owner } else { clone };
        let other = if owner == "tank/a" { "tank/c" } else { "tank/a" };
        assert_eq!(killed.rig.get(other, "origin"), format!("{owner}@s"));
        assert_eq!((version_in(&killed.rig.path("mnt/a")), version_in(&killed.rig.path("mnt/c"))), (2, 3));
        let directory = format!("mnt/{}/.zfs/snapshot/s", owner.trim_start_matches("tank/"));
        assert_eq!(version_in(&killed.rig.path(&directory)), 1);
    }
    killed.finish();
}

/// Counts, in one file system after the other, until it is over or the daemon is dead.
fn count_up(directories: [&Path; 2], is_over: &AtomicBool) {
    let open = |directory: &Path| File::options().write(true).open(directory.join("count"));
    let Ok(files) = directories.map(open).into_iter().collect::<Result<Vec<File>, _>>() else { return };
    for count in 1_u64.. {
        if is_over.load(Ordering::Relaxed) || files.iter().any(|file| file.write_all_at(&count.to_le_bytes(), 0).is_err()) {
            return;
        }
    }
}

#[test]
fn recursive_snapshots_under_load() {
    let Some(mut killed) = Killed::new() else { return };
    let names = ["tank", "tank/a", "tank/b", "tank/b/c"];
    names[1..].iter().for_each(|name| drop(killed.rig.ok(&format!("zfs create {name}"))));
    let (one, two) = (killed.rig.path("mnt/a"), killed.rig.path("mnt/b/c"));
    for directory in [&one, &two] {
        fs::write(directory.join("count"), 0_u64.to_le_bytes()).unwrap();
    }
    for round in 0..killed.rounds {
        let is_over = AtomicBool::new(false);
        let done = thread::scope(|scope| {
            scope.spawn(|| count_up([&one, &two], &is_over));
            thread::sleep(Duration::from_millis(30));
            killed.rig.ok(&format!("zfs snapshot -r tank@before{round}"));
            let command = killed.rig.start(&format!("zfs snapshot -r tank@s{round}"));
            let done = killed.kill_in(command, 120);
            is_over.store(true, Ordering::Relaxed);
            done
        });
        for (short, must) in [(format!("before{round}"), true), (format!("s{round}"), done)] {
            let there: Vec<bool> = names.iter().map(|name| killed.exists(&format!("{name}@{short}"))).collect();
            assert!(there.iter().all(|is_there| *is_there == there[0]) && (there[0] || !must), "@{short}: {there:?}, done: {must}");
            if there[0] {
                let count = |directory: &Path| {
                    let bytes = fs::read(directory.join(format!(".zfs/snapshot/{short}/count"))).unwrap();
                    bytes.try_into().map(u64::from_le_bytes).expect("eight bytes")
                };
                let (first, second) = (count(&one), count(&two));
                assert!(first == second || first == second + 1, "@{short} is not of one moment: {first}, {second}");
            }
        }
    }
    killed.finish();
}

/// A receive that reads its stream from a file.
fn receive(rig: &Rig, words: &str, stream: &Path) -> Child {
    let input = File::open(stream).unwrap();
    rig.command(words).stdin(input).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
}

fn send(rig: &Rig, words: &str, stream: &Path) {
    let status = rig.command(words).stdin(Stdio::null()).stdout(File::create(stream).unwrap()).status().unwrap();
    assert!(status.success(), "{words}");
}

#[test]
fn a_receive() {
    let Some(mut killed) = Killed::new() else { return };
    killed.rig.ok("zfs create tank/a");
    fill(&killed.rig.path("mnt/a"), 1);
    killed.rig.ok("zfs snapshot tank/a@s");
    fill(&killed.rig.path("mnt/a"), 2);
    killed.rig.ok("zfs snapshot tank/a@t");
    let [whole, more, rest] = ["whole", "more", "rest"].map(|name| killed.rig.path(name));
    send(&killed.rig, "zfs send tank/a@s", &whole);
    send(&killed.rig, "zfs send -i tank/a@s tank/a@t", &more);
    for round in 0..killed.rounds {
        let command = receive(&killed.rig, "zfs receive tank/r", &whole);
        let done = killed.kill_in(command, 400);
        assert!(killed.exists("tank/r@s") || !done, "it was received");
        assert_eq!(killed.exists("tank/r@s"), killed.exists("tank/r"), "half received, and seen");
        if !killed.exists("tank/r") {
            assert_eq!(wait_for(&mut receive(&killed.rig, "zfs receive tank/r", &whole), LIMIT), Some(0));
        }
        // Over what is there, and to be resumed.
        let command = receive(&killed.rig, "zfs receive -s -F tank/r", &more);
        let done = killed.kill_in(command, 400);
        if !killed.exists("tank/r@t") {
            assert!(!done, "it was received");
            assert_eq!(version_in(&killed.rig.path("mnt/r")), 1, "half received, and seen");
            let token = killed.rig.get("tank/r", "receive_resume_token");
            if token == "-" {
                fs::copy(&more, &rest).unwrap();
            } else {
                send(&killed.rig, &format!("zfs send -t {token}"), &rest);
            }
            assert_eq!(wait_for(&mut receive(&killed.rig, "zfs receive -s -F tank/r", &rest), LIMIT), Some(0), "round {round}");
        }
        assert_eq!(version_in(&killed.rig.path("mnt/r")), 2);
        killed.rig.ok("zfs destroy -r tank/r");
    }
    killed.finish();
}

#[test]
fn what_is_freed_in_the_background_goes_on() {
    let Some(mut killed) = Killed::new() else { return };
    for round in 0..killed.rounds {
        killed.rig.ok("zfs create -o recordsize=512 -o checksum=off tank/many");
        let file = File::create(killed.rig.path("mnt/many/blocks")).unwrap();
        let chunk: Vec<u8> = (0..1 << 20).map(|byte: u32| (byte / 512 + round as u32) as u8 | 1).collect();
        (0..MANY_BLOCKS_BYTES >> 20).for_each(|at| file.write_all_at(&chunk, at << 20).unwrap());
        drop(file);
        killed.rig.ok("zpool sync tank");
        if round % 2 == 0 {
            killed.rig.ok("zfs destroy tank/many");
            let command = killed.rig.start("zpool sync tank");
            killed.kill_in(command, 300);
            assert!(!killed.exists("tank/many"), "it was destroyed");
        } else {
            let command = killed.rig.start("zfs destroy tank/many");
            let done = killed.kill_in(command, 300);
            if killed.exists("tank/many") {
                assert!(!done, "it was destroyed");
                killed.rig.ok("zfs destroy tank/many");
            }
        }
        // Progress, until nothing is left.
        let freeing = || killed.rig.ok("zpool get -Hp -o value freeing tank").trim().parse::<u64>().unwrap();
        let left = std::cell::Cell::new(freeing());
        println!("round {round}: {} bytes are being freed after the import", left.get());
        killed.rig.wait("the end of the freeing", || {
            let now = freeing();
            assert!(now <= left.get(), "{now} bytes to be freed, after {}", left.get());
            left.set(now);
            now == 0
        });
    }
    killed.finish();
}
