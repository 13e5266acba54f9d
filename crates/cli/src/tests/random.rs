//! Command lines that nobody would type: an answer, a complaint, but no panic.
//!
//! No word is a number that could be an interval, and no path exists: nothing is repeated, nothing outside is touched.

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use tarnfs::control::parse_size;

use super::fake::FakeBackend;
use super::run;
use crate::text::units::{nice_bytes, nice_number};

const LINES: usize = 20_000;

const VERBS: [&str; 36] = [
    "create",
    "destroy",
    "list",
    "get",
    "set",
    "inherit",
    "status",
    "import",
    "export",
    "mount",
    "unmount",
    "umount",
    "sync",
    "iostat",
    "history",
    "upgrade",
    "scrub",
    "clear",
    "reguid",
    "events",
    "snapshot",
    "rename",
    "userspace",
    "groupspace",
    "projectspace",
    "rollback",
    "clone",
    "promote",
    "hold",
    "holds",
    "bookmark",
    "diff",
    "allow",
    "add",
    "help",
    "-?",
];

const WORDS: [&str; 64] = [
    "tank",
    "tank/a",
    "tank/a@s",
    "tank@",
    "@",
    "#",
    "tank#b",
    "tank/",
    "//",
    "/",
    ".",
    "..",
    "-",
    "--",
    "",
    " ",
    "all",
    "name,used",
    ",",
    "=",
    "compression=lz4",
    "compression=",
    "=lz4",
    "recordsize=128k",
    "recordsize=-1",
    "quota=16E",
    "quota=none",
    "userquota@joe=1g",
    "user:p=v",
    "atime=\u{0}",
    "mountpoint=/nonexistent/m",
    "mountpoint=none",
    "1.5K",
    "10g",
    "-1",
    "1.5e9K",
    "quota=99999999999999999999",
    ".k",
    "1\u{b5}",
    "16EiB",
    "mirror",
    "raidz",
    "raidz9",
    "raidz2",
    "draid2:4d:1s",
    "draid:",
    "log",
    "cache",
    "spare",
    "special",
    "/nonexistent/disk",
    "nosuchdisk",
    "\u{1f980}",
    "a\u{301}",
    "tank/\u{e4}@\u{df}",
    "%",
    "tank/%recv",
    "ashift=12",
    "ashift=\u{661}",
    "feature@lz4_compress=enabled",
    "feature@=",
    "filesystem,snapshot",
    "local,none",
    "usedby",
];

const OPTIONS: [&str; 24] = [
    "-H",
    "-p",
    "-Hp",
    "-o",
    "-O",
    "-r",
    "-R",
    "-d",
    "-t",
    "-s",
    "-S",
    "-f",
    "-n",
    "-v",
    "-j",
    "-V",
    "-b",
    "-a",
    "--json",
    "--js",
    "--json-int",
    "-:",
    "-\u{e9}",
    "-x",
];

#[test]
fn no_line_panics() {
    let seed = std::env::var("TARN_SEED").map_or(7, |seed| seed.parse().expect("a number"));
    println!("seed {seed}; again: TARN_SEED={seed} cargo test -p cli no_line_panics");
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    for number in 0..LINES {
        let mut pick = |from: &[&'static str]| from[random.random_range(0..from.len())];
        let mut line = vec![pick(&["zpool", "zfs"]), pick(&VERBS)];
        for _ in 0..number % 7 {
            let word = if pick(&["a", "b"]) == "a" { pick(&OPTIONS) } else { pick(&WORDS) };
            line.push(word);
        }
        // The one command that has no end is not run.
        if line[1] == "events" && line.contains(&"-f") {
            continue;
        }
        let outcome = std::panic::catch_unwind(|| run(&mut FakeBackend::default(), &line).code);
        assert!(outcome.is_ok(), "{line:?} panicked");
    }
}

#[test]
fn no_size_panics() {
    let seed = 8;
    println!("seed {seed}");
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    let letters: Vec<char> = "0123456789....kKmMgGtTpPeEzZbBiI-+ e\u{b5}\u{661}".chars().collect();
    for _ in 0..200_000 {
        let text: String = (0..random.random_range(0..24)).map(|_| letters[random.random_range(0..letters.len())]).collect();
        if let Ok(size) = parse_size(&text) {
            let shown = (nice_number(size), nice_bytes(size));
            assert!(shown.0.len() <= 6 && shown.1.len() <= 6, "{text} is {shown:?}");
        }
        let number: u64 = random.random::<u64>() >> random.random_range(0..64);
        assert!(
            parse_size(&nice_number(number)).is_ok_and(|again| again.abs_diff(number) <= number / 50 + 1) || number > 15 << 60,
            "{number}"
        );
    }
}
