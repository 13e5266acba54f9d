//! What snapshots cost where there are many already, and many files. Nothing is asserted about time: the figures are printed.
//!
//! `SNAPSHOTS=10000 FILES=1000000 cargo test --release -p sim --test many_snapshots -- --ignored --nocapture`

use std::time::{Duration, Instant};

use engine::dsl::NewSnapshots;
use engine::tunables::Tunables;
use sim::scenario::{Layout, Rig};
use tarnfs::{Credentials, WriteMode};

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

fn take(rig: &Rig, name: String) {
    let new = NewSnapshots { names: vec![name], properties: Vec::new() };
    assert!(rig.pool().engine().dsl.snapshot_verbs().create_snapshots(new).unwrap().is_empty());
}

fn timed<T>(work: impl FnOnce() -> T) -> (T, Duration) {
    let begin = Instant::now();
    let result = work();
    (result, begin.elapsed())
}

/// The middle one, and the slowest.
fn figures(mut times: Vec<Duration>) -> String {
    times.sort();
    format!("{:.1} ms, the slowest {:.1} ms", times[times.len() / 2].as_secs_f64() * 1e3, times[times.len() - 1].as_secs_f64() * 1e3)
}

/// Milliseconds of processors that this process has taken: what is left of a figure on a machine that does other things.
fn processor_ms() -> u64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let fields: Vec<i64> = stat.rsplit(')').next().unwrap_or_default().split_whitespace().filter_map(|word| word.parse().ok()).collect();
    // After the state, all fields are numbers; those of the user and the system are the eleventh and twelfth, in hundredths of a second.
    fields.get(10..12).map_or(0, |times| times.iter().sum::<i64>().unsigned_abs() * 10)
}

/// A file system with many snapshots, each of another state, and the verbs on them.
fn run(snapshots: u64, files: u64) {
    let tunables = Tunables { txg_timeout_ns: 3_600_000_000_000, ..Tunables::default() };
    let bytes = (1 << 30) + snapshots * snapshots * 150 + files * 6000;
    let mut rig = Rig::create_with(Layout { bytes: bytes.next_multiple_of(1 << 20), ..Layout::default() }, &[("compression", "lz4")], tunables);
    rig.create_file_system("tank/a", &[]);
    let fs = rig.pool().file_system("tank/a").unwrap();
    let user = Credentials::root();
    for at in 0..files {
        fs.create(fs.root(), format!("file{at}").as_bytes(), 0o100_644, 0, &user).unwrap();
        if at % 100_000 == 99_999 {
            rig.sync();
        }
    }
    let file = fs.create(fs.root(), b"written", 0o100_644, 0, &user).unwrap().inode;
    rig.sync();
    let mut times = Vec::new();
    let mut taken = (0, processor_ms());
    for at in 0..snapshots {
        fs.write(file, WriteMode::At(0), format!("{at}").as_bytes(), &user).unwrap();
        times.push(timed(|| take(&rig, format!("tank/a@s{at}"))).1);
        if (at + 1).is_power_of_two() || at + 1 == snapshots {
            let last = times.len().saturating_sub(100);
            let now = processor_ms();
            let each = (now - taken.1) as f64 / (at + 1 - taken.0) as f64;
            println!("a snapshot with {} there, {files} files: {}; of processors {each:.1} ms", at + 1, figures(times[last..].to_vec()));
            taken = (at + 1, now);
        }
    }
    drop(fs);
    let dsl = &rig.pool().engine().dsl;
    let listed = timed(|| dsl.open_dataset("tank/a").unwrap().snapshots().unwrap().len());
    println!("{} snapshots are named in {:.0} ms", listed.0, listed.1.as_secs_f64() * 1e3);
    let doomed: Vec<String> = (snapshots / 4..(snapshots / 4 + 1000).min(snapshots * 3 / 4)).map(|at| format!("tank/a@s{at}")).collect();
    let before = processor_ms();
    let (count, destroyed) = (doomed.len(), timed(|| dsl.snapshot_verbs().destroy_snapshots(doomed, false).unwrap()));
    assert!(destroyed.0.is_empty(), "{:?}", destroyed.0);
    println!("{count} snapshots are destroyed in {:.0} ms, of processors {} ms", destroyed.1.as_secs_f64() * 1e3, processor_ms() - before);
    take(&rig, "tank/a@last".into());
    rig.export();
    rig.check("many snapshots");
}

#[test]
fn snapshots_of_a_file_system_with_some_there_and_some_files() {
    run(150, 300);
}

#[test]
#[ignore = "takes minutes: SNAPSHOTS, FILES"]
fn snapshots_of_a_file_system_with_many_there_and_many_files() {
    run(number("SNAPSHOTS", 10_000), number("FILES", 100_000));
}
