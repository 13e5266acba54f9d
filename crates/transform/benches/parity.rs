//! Parity and reconstruction beside OpenZFS's: the same columns and sizes as those of `raidz_test -B`.
//!
//! `RAIDZ_TEST="raidz_test"` (a command line) runs that program first and prints the ratio to the best of its implementations: of the data of one disk, MB/s.

#![allow(clippy::disallowed_methods)] // time is what is measured

use std::collections::BTreeMap;
use std::hint::black_box;
use std::process::Command;
use std::time::{Duration, Instant};

use transform::parity;

/// Columns of data, as `raidz_test` has by default.
const COLUMNS: usize = 8;
/// log2 of the bytes of a block, from and to.
const SIZES: std::ops::RangeInclusive<u32> = 14..=24;
/// How long each is repeated, and how often: the best counts.
const TIME: Duration = Duration::from_millis(40);
const TRIES: usize = 3;

/// The name in `raidz_test`, and which kinds of parity take part; reconstruction is of as many columns.
const METHODS: [(&str, &[usize], bool); 10] = [
    ("gen_p", &[0], false),
    ("gen_pq", &[0, 1], false),
    ("gen_pqr", &[0, 1, 2], false),
    ("rec_p", &[0], true),
    ("rec_q", &[1], true),
    ("rec_r", &[2], true),
    ("rec_pq", &[0, 1], true),
    ("rec_pr", &[0, 2], true),
    ("rec_qr", &[1, 2], true),
    ("rec_pqr", &[0, 1, 2], true),
];

fn main() {
    let theirs = std::env::var("RAIDZ_TEST").map(|command| best_of(&command)).unwrap_or_default();
    println!("{:>8} {:>9} {:>10} {:>10} {:>7}", "method", "bytes", "MB/s", "theirs", "ratio");
    let mut ratios: BTreeMap<&str, Vec<f64>> = BTreeMap::new();
    for (name, kinds, is_rebuilt) in METHODS {
        for size in SIZES {
            let column = (1_usize << size) / COLUMNS;
            let speed = speed_of(kinds, is_rebuilt, column);
            let of_theirs = theirs.get(&(name.to_owned(), 1_u64 << size));
            let shown = of_theirs.map_or(String::new(), |(speed, by)| format!("{speed:10.0} {by}"));
            let ratio = of_theirs.map(|(of_theirs, _)| speed / of_theirs);
            ratios.entry(name).or_default().extend(ratio);
            println!("{name:>8} {:>9} {speed:10.0} {} {shown}", 1_u64 << size, ratio.map_or(String::new(), |ratio| format!("{ratio:7.2}")));
        }
    }
    for (name, ratios) in ratios.iter().filter(|(_, ratios)| !ratios.is_empty()) {
        let mean = (ratios.iter().map(|ratio| ratio.ln()).sum::<f64>() / ratios.len() as f64).exp();
        let least = ratios.iter().copied().fold(f64::MAX, f64::min);
        println!("{name:>8}: mean ratio {mean:.2}, least {least:.2}");
    }
}

/// MB/s of one column.
fn speed_of(kinds: &[usize], is_rebuilt: bool, column: usize) -> f64 {
    let data: Vec<Vec<u8>> = (0..COLUMNS).map(|number| (0..column).map(|at| (at * 31 + number * 7 + (at >> 9)) as u8).collect()).collect();
    let all: Vec<&[u8]> = data.iter().map(Vec::as_slice).collect();
    let parity = parity::generate(parity::KINDS, &all, column);
    let given: Vec<(usize, &[u8])> = kinds.iter().map(|kind| (*kind, parity[*kind].as_slice())).collect();
    let known: Vec<Option<&[u8]>> = (0..COLUMNS).map(|number| (number >= kinds.len()).then_some(all[number])).collect();
    let mut places: Vec<Vec<u8>> = kinds.iter().map(|_| vec![1; column]).collect();
    let mut into: Vec<&mut [u8]> = places.iter_mut().map(Vec::as_mut_slice).collect();
    let mut once = || {
        if is_rebuilt {
            parity::rebuild_into(black_box(&given), black_box(&known), &mut into);
        } else {
            parity::generate_into(black_box(&all), &mut into);
        }
    };
    once();
    let tried = (0..TRIES).map(|_| {
        let (begin, mut times) = (Instant::now(), 0_u32);
        while begin.elapsed() < TIME {
            once();
            times += 1;
        }
        f64::from(times) * column as f64 / begin.elapsed().as_secs_f64() / 1e6
    });
    tried.fold(0.0, f64::max)
}

/// By method and bytes of a block: the best of `raidz_test`'s implementations, in MB/s, and which that is.
fn best_of(command: &str) -> BTreeMap<(String, u64), (f64, String)> {
    let mut words = command.split_whitespace();
    let program = words.next().expect("RAIDZ_TEST is a command");
    let output = Command::new(program).args(words).arg("-B").output().unwrap_or_else(|error| panic!("{program}: {error}"));
    assert!(output.status.success(), "{program}: {}", output.status);
    let mut best: BTreeMap<(String, u64), (f64, String)> = BTreeMap::new();
    for line in String::from_utf8_lossy(&output.stdout).lines() {
        let fields: Vec<&str> = line.split(',').map(str::trim).collect();
        let [implementation, method, _, bytes, speed, ..] = fields[..] else { continue };
        let (Ok(bytes), Ok(speed)) = (bytes.parse(), speed.parse::<f64>()) else { continue };
        // It counts in MiB.
        let speed = speed * 1.048_576;
        let of_method = best.entry((method.to_owned(), bytes)).or_insert((0.0, String::new()));
        if speed > of_method.0 {
            *of_method = (speed, implementation.to_owned());
        }
    }
    best
}
