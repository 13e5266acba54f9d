//! Pools that gain features, and counters of requests, while programs work on the mount.

use std::fs::{self, OpenOptions};
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{JoinHandle, spawn};

use std::io::Write;
use std::sync::Arc;

use sim::golden::Golden;
use sim::places::skipped;

use crate::rig::Rig;

const MIB: u64 = 1 << 20;

/// A program that writes small files and syncs each, until it is told to end.
struct Busy {
    ends: Arc<AtomicBool>,
    written: Arc<AtomicU64>,
    thread: Option<JoinHandle<()>>,
    place: PathBuf,
}

fn content(number: u64) -> Vec<u8> {
    (0..3000 + number % 5000).map(|at| (at * 7 + number) as u8).collect()
}

impl Busy {
    fn start(place: PathBuf) -> Busy {
        let (ends, written) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let (told, counted, below) = (Arc::clone(&ends), Arc::clone(&written), place.clone());
        let thread = spawn(move || {
            while !told.load(Ordering::SeqCst) {
                let number = counted.load(Ordering::SeqCst);
                let path = below.join(format!("busy-{number}"));
                let mut file = OpenOptions::new().write(true).create_new(true).custom_flags(libc::O_DSYNC).open(path).unwrap();
                file.write_all(&content(number)).unwrap();
                counted.store(number + 1, Ordering::SeqCst);
            }
        });
        Busy { ends, written, thread: Some(thread), place }
    }

    /// Waits until more has been written.
    fn goes_on(&self, rig: &Rig) {
        let before = self.written.load(Ordering::SeqCst);
        rig.wait("the program beside it goes on", || self.written.load(Ordering::SeqCst) > before + 2);
    }

    /// Ends it, and looks at everything that it wrote.
    fn end(mut self) {
        self.ends.store(true, Ordering::SeqCst);
        self.thread.take().unwrap().join().unwrap();
        let count = self.written.load(Ordering::SeqCst);
        assert!(count > 0);
        for number in 0..count {
            assert!(fs::read(self.place.join(format!("busy-{number}"))).unwrap() == content(number), "busy-{number} is not what was written");
        }
    }
}

#[test]
fn features_are_enabled_while_the_pool_is_used() {
    let Some(rig) = Rig::new() else { return };
    rig.image("a.img", 256 * MIB);
    rig.ok("zpool create -d -O mountpoint=@mnt bare @a.img");
    let state = |feature: &str| rig.ok(&format!("zpool get -H -o value feature@{feature} bare")).trim().to_owned();
    let busy = Busy::start(rig.path("mnt"));
    assert_eq!(state("lz4_compress"), "disabled");
    rig.refused("zfs create -o recordsize=1M bare/large", "must be upgraded to set this property");
    let listed = rig.ok("zpool upgrade");
    assert!(listed.contains("POOL  FEATURE\n---------------\nbare\n      async_destroy\n"), "{listed}");
    rig.ok("zpool set feature@lz4_compress=enabled bare");
    assert!(matches!(state("lz4_compress").as_str(), "enabled" | "active"));
    rig.ok("zpool set compatibility=legacy bare");
    rig.refused("zpool upgrade bare", "cannot upgrade 'bare': its property 'compatibility' allows no features");
    rig.ok("zpool set compatibility=off bare");
    busy.goes_on(&rig);
    let said = rig.ok("zpool upgrade bare");
    assert!(said.contains("Enabled the following features on 'bare':\n  async_destroy\n") && !said.contains("  lz4_compress\n"), "{said}");
    // Found here: a command was in the history some seconds later only.
    assert!(rig.ok("zpool history bare").trim_end().ends_with(" zpool upgrade bare"));
    busy.goes_on(&rig);
    assert!(rig.ok("zpool upgrade bare").contains("Pool 'bare' already has all supported and requested features enabled."));
    assert!(rig.ok("zpool upgrade").contains("Every feature flags pool has all supported and requested features enabled."));
    rig.ok("zfs create -o recordsize=1M -o compression=zstd bare/large");
    let long: Vec<u8> = (0..4_u32 << 20).map(|at| (at.wrapping_mul(at) >> 7) as u8).collect();
    fs::write(rig.path("mnt/large/file"), &long).unwrap();
    rig.ok("zpool sync bare");
    assert_eq!((state("large_blocks"), state("zstd_compress")), ("active".to_owned(), "active".to_owned()));
    busy.goes_on(&rig);
    busy.end();
    assert!(fs::read(rig.path("mnt/large/file")).unwrap() == long);
    rig.ok("zpool export bare");
    rig.zdb(&["a.img"]);
    rig.check("bare");
}

#[test]
fn an_old_pool_becomes_a_new_one_while_it_is_used() {
    let Some(rig) = Rig::new() else { return };
    let Some(golden) = Golden::find("v28").unwrap() else { return skipped("golden pool v28: not found") };
    fs::copy(&golden.images[0], rig.path("d0.img")).unwrap();
    rig.ok("zpool import -d @d0.img -R @alt g_v28");
    let old = fs::read_dir(rig.path("alt/g_v28/zpl5")).unwrap().count();
    let busy = Busy::start(rig.path("alt/g_v28/zpl5"));
    let listed = rig.ok("zpool upgrade");
    assert!(listed.contains("VER  POOL\n---  ------------\n28   g_v28\n"), "{listed}");
    assert!(rig.ok("zpool upgrade -V 27 g_v28").contains("Pool 'g_v28' is already formatted using more current version '28'."));
    assert!(rig.ok("zpool upgrade -V 28 g_v28").contains("Pool 'g_v28' is already formatted using version 28."));
    rig.refused("zpool upgrade -V 29 g_v28", "invalid version '29'");
    assert_eq!(rig.ok("zpool get -H -o value version g_v28"), "28\n");
    busy.goes_on(&rig);
    let said = rig.ok("zpool upgrade -a");
    assert!(said.contains("Successfully upgraded 'g_v28' from version 28 to feature flags.\nEnabled the following features on 'g_v28':\n"), "{said}");
    assert_eq!(rig.ok("zpool get -H -o value version g_v28"), "-\n");
    busy.goes_on(&rig);
    assert!(rig.ok("zpool upgrade -a").contains("All pools are already formatted using feature flags."));
    assert!(rig.ok("zpool history g_v28").contains(" zpool upgrade -a\n"));
    busy.end();
    assert!(fs::read_dir(rig.path("alt/g_v28/zpl5")).unwrap().count() > old);
    rig.ok("zpool export g_v28");
    rig.zdb(&["d0.img"]);
    rig.ok("zpool import -d @d0.img -N g_v28");
    rig.ok("zpool export g_v28");
}

/// The version was raised first, and the property looked at after it.
#[test]
fn a_pool_that_is_to_stay_old_stays_so() {
    let Some(rig) = Rig::new() else { return };
    rig.image("a.img", 128 * MIB);
    rig.ok("zpool create -o version=28 -o compatibility=legacy -O mountpoint=none old @a.img");
    let version = || rig.ok("zpool get -H -o value version old");
    for words in ["zpool upgrade -a", "zpool upgrade old"] {
        rig.refused(words, "cannot upgrade 'old': its property 'compatibility' allows no features");
        assert_eq!(version(), "28\n", "{words}");
    }
    let list = rig.path("list");
    fs::write(&list, "async_destroy\n").unwrap();
    rig.ok("zpool set compatibility=@list old");
    fs::write(&list, "no_such_feature\n").unwrap();
    rig.refused("zpool upgrade -a", "names 'no_such_feature', which is no feature");
    fs::remove_file(&list).unwrap();
    rig.refused("zpool upgrade -a", "cannot upgrade 'old': compatibility: ");
    assert_eq!(version(), "28\n");
    fs::write(&list, "async_destroy\n").unwrap();
    let said = rig.ok("zpool upgrade -a");
    assert!(said.contains("Enabled the following features on 'old':\n  async_destroy\n\n"), "{said}");
    rig.finish("old", &["a.img"]);
}

/// Rows of numbers, by their first word.
fn rows(text: &str) -> Vec<(String, Vec<u64>)> {
    let numbers = |words: std::str::Split<'_, char>| words.map(|word| if word == "-" { 0 } else { word.parse().unwrap_or_else(|_| panic!("{word}: {text}")) }).collect();
    text.lines()
        .filter(|line| line.contains('\t'))
        .map(|line| {
            let mut words = line.split('\t');
            (words.next().unwrap().to_owned(), numbers(words))
        })
        .collect()
}

#[test]
fn requests_are_counted_while_they_come() {
    let Some(rig) = Rig::new() else { return };
    for name in ["a.img", "b.img"] {
        rig.image(name, 256 * MIB);
    }
    rig.ok("zpool create -O mountpoint=@mnt -O compression=off tank mirror @a.img @b.img");
    let busy = Busy::start(rig.path("mnt"));
    busy.goes_on(&rig);
    rig.ok("zpool sync tank");
    // Sizes of requests: columns of single and joined ones, synchronous reads and writes first.
    let sizes = rows(&rig.ok("zpool iostat -Hp -r tank"));
    assert_eq!(sizes.iter().map(|(size, _)| size.parse::<u64>().unwrap()).collect::<Vec<_>>(), (9..=24).map(|bit| 1 << bit).collect::<Vec<u64>>());
    assert!(sizes.iter().all(|(_, counts)| counts.len() == 14));
    let sum = |rows: &[(String, Vec<u64>)], column: usize| rows.iter().map(|(_, counts)| counts[column]).sum::<u64>();
    let written = sum(&sizes, 2) + sum(&sizes, 3) + sum(&sizes, 6) + sum(&sizes, 7);
    assert!(written >= 8, "a few files were made durable, and a group was written: {sizes:?}");
    // Latencies: each write of the pool is in one row.
    let latencies = rows(&rig.ok("zpool iostat -Hp -w tank"));
    assert!(latencies.iter().all(|(_, counts)| counts.len() == 11) && sum(&latencies, 1) >= written, "{latencies:?}");
    let averages = rows(&rig.ok("zpool iostat -Hp -l -q -v tank"));
    assert_eq!(averages.len(), 4, "{averages:?}");
    assert!(averages.iter().all(|(_, numbers)| numbers.len() == 6 + 11 + 14), "{averages:?}");
    assert!(averages[2].1[7] > 0 && averages[3].1[7] > 0, "the mean time of a write, of both halves: {averages:?}");
    // Counts go up only, and again and again means since the last time.
    busy.goes_on(&rig);
    assert!(sum(&rows(&rig.ok("zpool iostat -Hp -w tank")), 1) > sum(&latencies, 1));
    let twice = rows(&rig.ok("zpool iostat -y -Hp tank 0.3 3"));
    assert_eq!(twice.len(), 3, "{twice:?}");
    assert!(twice.iter().any(|(_, numbers)| numbers[3] > 0), "the program writes all the time: {twice:?}");
    busy.end();
    rig.ok("zpool export tank");
    rig.zdb(&["a.img", "b.img"]);
}
