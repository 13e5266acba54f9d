//! What a mount costs when there are many.

use std::fs;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::rig::{Rig, run_for};

/// Threads of a daemon, whatever is mounted, when nothing happens.
const THREADS_MAX: u64 = 100;
/// Memory of the daemon for each mounted file system.
const BYTES_MAX: u64 = 50 << 10;
/// Commands beside one another that make file systems.
const MAKERS: usize = 8;
/// The import of ten thousand.
const IMPORT_SECONDS: f64 = 20.0;
/// The least that there is: what it has of ten thousand mounts counts as theirs, and is an eighth of what they may take.
const CACHE: &str = "64M";
const LIMIT: Duration = Duration::from_secs(600);

/// A number in `/proc/PID/status`.
fn status(rig: &Rig, word: &str) -> u64 {
    let text = fs::read_to_string(format!("/proc/{}/status", rig.daemon().as_raw_nonzero())).unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix(word)?.strip_prefix(':')).unwrap();
    line.split_whitespace().next().unwrap().parse().unwrap()
}

/// Bytes in memory and locked.
fn memory(rig: &Rig) -> u64 {
    (status(rig, "VmRSS") + status(rig, "VmLck")) << 10
}

/// Milliseconds of the processors' time that the daemon and the processes it has waited for have taken.
fn cpu(rig: &Rig) -> u64 {
    let text = fs::read_to_string(format!("/proc/{}/stat", rig.daemon().as_raw_nonzero())).unwrap();
    let rest = text.rsplit_once(") ").unwrap().1;
    let ticks: u64 = rest.split(' ').skip(11).take(4).map(|word| word.parse::<u64>().unwrap()).sum();
    ticks * 1000 / rustix::param::clock_ticks_per_second()
}

fn make(rig: &Rig, count: usize) {
    let next = AtomicUsize::new(0);
    thread::scope(|scope| {
        for _ in 0..MAKERS {
            scope.spawn(|| {
                let numbers = std::iter::repeat_with(|| next.fetch_add(1, Ordering::Relaxed)).take_while(|number| *number < count);
                numbers.for_each(|number| drop(rig.ok(&format!("zfs create -u tank/fs{number}"))));
            });
        }
    });
}

/// Makes so many file systems, imports them and looks; returns how long the import took, and the export.
fn many(rig: &Rig, count: usize) -> (f64, f64) {
    rig.image("a.img", 1 << 30 | (count as u64) << 18);
    let create = run_for(rig.command("zpool create -O mountpoint=@mnt tank @a.img").env("TARN_CACHE", CACHE), LIMIT);
    assert_eq!(create.map(|said| said.code), Some(0));
    make(rig, count);
    let timed = |words: &str| {
        let begun = Instant::now();
        let said = run_for(rig.command(words).env("TARN_CACHE", CACHE), LIMIT).unwrap_or_else(|| panic!("{words} hangs"));
        assert!(said.code == 0 && said.err.is_empty(), "{words}: {said:?}\n{}", rig.log());
        begun.elapsed().as_secs_f64()
    };
    timed("zpool export tank");
    // A daemon that has done nothing else: what its allocator keeps of earlier work is not what mounts take.
    rig.wait("the end of the daemon", || !rig.path("sock").exists());
    timed("zpool import -N -d @a.img tank");
    let (before, cpu_before) = (memory(rig), cpu(rig));
    timed("zfs mount -a");
    println!("{} ms of processors' time to mount them", cpu(rig) - cpu_before);
    assert_eq!(rig.mounts().len(), count + 1);
    let (threads, bytes) = (status(rig, "Threads"), memory(rig).saturating_sub(before) / count as u64);
    println!("{count} mounted: {threads} threads, {bytes} bytes each of {} MB", memory(rig) >> 20);
    assert!(threads <= THREADS_MAX, "{threads} threads for {count} mounts");
    assert!(bytes <= BYTES_MAX, "{bytes} bytes for each of {count} mounts");
    // Each of them is served, also when all are asked at once.
    let places = rig.mounts();
    thread::scope(|scope| {
        for part in places.chunks(places.len().div_ceil(MAKERS)) {
            scope.spawn(move || {
                for place in part {
                    fs::write(place.join("file"), place.as_os_str().as_encoded_bytes()).unwrap();
                    assert_eq!(fs::read(place.join("file")).unwrap(), place.as_os_str().as_encoded_bytes());
                }
            });
        }
    });
    println!("all used: {} threads, {} bytes each", status(rig, "Threads"), memory(rig).saturating_sub(before) / count as u64);
    assert!(status(rig, "Threads") <= THREADS_MAX, "{} threads after each was used", status(rig, "Threads"));
    let cpu_before = cpu(rig);
    timed("zfs unmount -a");
    println!("{} ms of processors' time to unmount them", cpu(rig) - cpu_before);
    assert!(rig.mounts().is_empty());
    timed("zfs mount -a");
    assert_eq!(rig.mounts().len(), count + 1);
    timed("zpool export tank");
    assert!(rig.mounts().is_empty());
    let import = timed("zpool import -d @a.img tank");
    assert_eq!(rig.mounts().len(), count + 1);
    assert_eq!(fs::read(rig.path("mnt/fs0/file")).unwrap(), rig.text("mnt/fs0").into_bytes());
    let export = timed("zpool export tank");
    println!("import {import:.1} s, export {export:.1} s");
    (import, export)
}

/// Each mount had threads and rings of its own: two hundred took 6,861 threads and 3 MB each, and a thousand could not be mounted.
#[test]
fn a_mount_costs_next_to_nothing() {
    let Some(rig) = Rig::new() else { return };
    many(&rig, 300);
    rig.zdb(&["a.img"]);
}

#[test]
#[ignore = "takes ten minutes"]
fn ten_thousand_mounts() {
    let Some(rig) = Rig::new() else { return };
    let (import, _) = many(&rig, 10_000);
    assert!(import < IMPORT_SECONDS, "the import took {import:.1} s");
}
