//! `cargo xtask programs`: programs that people use, on a mount of ours, each judging its own result.
//!
//! # Theory
//! Each is a few lines of shell that end with a comparison or a check of the program's own (`git fsck`, `PRAGMA integrity_check`,
//! `stress-ng --verify`). A program that is not installed is passed over, aloud. Afterwards the real zdb judges the pool.

use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Result, bail};

use crate::mounted::{Mounted, Pool};
use crate::words::Words;

pub(crate) const HELP: &str = "\
cargo xtask programs [--dir DIRECTORY] [NAME...]
                                     git, sqlite3, rsync, tar, cc, cargo, stress-ng, dbench on a mount
";

/// Name, the program that must be there, what to run in an empty directory of the mount. `$SOURCE` is a tree of files to work with.
const PROGRAMS: [(&str, &str, &str); 8] = [
    (
        "git",
        "git",
        "git clone -q --no-hardlinks $SOURCE a && cd a && git -c user.name=a -c user.email=a@b commit -q --allow-empty -m one && git gc -q --prune=now \
         && git fsck --strict && git status --porcelain | (! grep .) && cd .. && git clone -q a b && diff -r --exclude=.git a b",
    ),
    (
        "sqlite3",
        "sqlite3",
        "sqlite3 db 'PRAGMA journal_mode=WAL; CREATE TABLE t(i INTEGER PRIMARY KEY, v BLOB);' >/dev/null
         for n in 1 2 3; do (for i in $(seq 40); do echo \"PRAGMA busy_timeout=60000; INSERT INTO t(v) VALUES(randomblob(5000));\"; done | sqlite3 db >/dev/null) & done; wait
         test $(sqlite3 db 'SELECT count(*) FROM t') = 120 && sqlite3 db 'DELETE FROM t WHERE i%2; VACUUM; PRAGMA integrity_check;' | grep -qx ok",
    ),
    (
        "rsync",
        "rsync",
        "mkdir from && cp -a $SOURCE/crates from/ && ln -s crates from/link && ln from/crates/cli/Cargo.toml from/hard && setfattr -n user.x -v y from/hard \
         && truncate -s 5M from/sparse && mkfifo from/fifo && rsync -aHXS from/ to && rsync -aHXSc --itemize-changes from/ to | (! grep .) && diff -r --no-dereference \
         from/crates to/crates && test $(stat -c %h to/hard) = 2",
    ),
    (
        "tar",
        "tar",
        "tar -C $SOURCE -cf t.tar crates docs && mkdir x && tar --numeric-owner -xpf t.tar -C x && tar -C x --compare -f t.tar && rm -r x && test ! -e x",
    ),
    (
        "cc",
        "cc",
        "printf '#include <stdio.h>\\nint main(void){puts(\"made here\");return 0;}\\n' > a.c && cc -O2 -g -pipe -o a a.c && test \"$(./a)\" = 'made here' && strip a && ./a",
    ),
    (
        "cargo",
        "cargo",
        "cargo new -q --vcs none small && cd small && CARGO_TARGET_DIR=$PWD/target cargo -q run --offline | grep -q Hello && touch src/main.rs \
         && CARGO_TARGET_DIR=$PWD/target cargo -q test --offline",
    ),
    (
        "stress-ng",
        "stress-ng",
        "for s in hdd dir dirdeep dentry rename link symlink seek fallocate fpunch copy-file lockf flock mmap chmod utime xattr sync-file filename; do
           stress-ng --$s 2 --$s-ops 60 --timeout 20 --verify --quiet --temp-path . --mmap-file --mmap-bytes 4M --hdd-bytes 4M --seek-size 4M --fallocate-bytes 4M || exit 1
         done",
    ),
    ("dbench", "dbench", "dbench -t 5 -D . -s 3 >log 2>&1 || (tail -20 log; exit 1); grep -q Throughput log"),
];

fn has_program(name: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|directory| directory.join(name).is_file())
}

pub(crate) fn run(arguments: &[&str]) -> Result<()> {
    let mut words = Words::new(arguments);
    let directory = words.value("--dir")?.map_or_else(std::env::temp_dir, PathBuf::from).join(format!("programs-{}", std::process::id()));
    let wanted = words.rest();
    let mounted = Mounted::new(&directory, &Pool { bytes: 4 << 30, properties: &["xattr=sa".to_owned()], transport: "" })?;
    let mut failed = Vec::new();
    for (name, program, script) in PROGRAMS {
        if !wanted.is_empty() && !wanted.contains(&name) {
            continue;
        }
        if !has_program(program) {
            sim::places::skipped(&format!("{name}: there is no {program} here"));
            continue;
        }
        let place = mounted.path().join(name);
        std::fs::create_dir(&place)?;
        let begin = Instant::now();
        let output = Command::new("bash").args(["-c", script]).current_dir(&place).env("SOURCE", crate::root()).stdin(Stdio::null()).output()?;
        let verdict = if output.status.success() { "works" } else { "FAILED" };
        println!("{name}: {verdict} ({:.1} s)", begin.elapsed().as_secs_f64());
        if !output.status.success() {
            println!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
            failed.push(name);
        }
    }
    mounted.finish()?;
    if !failed.is_empty() {
        bail!("failed: {}", failed.join(", "));
    }
    Ok(())
}
