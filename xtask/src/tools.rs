//! `cargo xtask tools`: the tools that people replicate and prune snapshots with, unmodified, on links named `zfs` and `zpool`.
//!
//! # Theory
//! Each goes through a normal cycle on two pools of its own: takes snapshots, prunes them, replicates in full and incrementally, goes on after a
//! stream that broke off, and a file comes back from a snapshot (`xtask/tools`, a few lines of shell for each, which compare what came out). The tools
//! are fetched as they are published and are unpacked, never installed: Debian's package of sanoid would bring another `zfs` along. What cannot be
//! fetched, or is a program that is not installed (httm), is passed over, aloud. Afterwards the real zdb judges both pools.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context, Result, bail};
use sim::oracle::{OracleResult, zdb_check};

use crate::mounted::tarn;
use crate::words::Words;

pub(crate) const HELP: &str = "\
cargo xtask tools [--dir DIRECTORY] [NAME...]
                                     sanoid, syncoid, zfs-autobackup, zfs-auto-snapshot, bzfs, pyznap, a shell that browses snapshots, and
                                     httm and zxfer if they are installed; as root, with a network
";

const COMMON: &str = include_str!("../tools/common");

/// How a tool is fetched into a directory; the shell's words.
const DEBIAN: &str = "apt-get download -qq sanoid libconfig-inifiles-perl libcapture-tiny-perl && for package in *.deb; do dpkg -x $package .; done";
/// Of a section of Debian that few machines have.
const CONTRIB: &str = "mkdir -p lists/partial && echo \"deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] http://deb.debian.org/debian stable contrib\" >sources && \
    only=\"-qq -o Dir::Etc::sourcelist=$PWD/sources -o Dir::Etc::sourceparts=- -o Dir::State::lists=$PWD/lists\" && apt-get update $only && \
    apt-get download $only zfs-auto-snapshot && dpkg -x zfs-auto-snapshot*.deb .";
const PYPI: &str = "python3 -m pip download -q --no-deps zfs-autobackup && python3 -m zipfile -e zfs_autobackup*.whl python";

const BZFS: &str = "python3 -m pip download -q --no-deps bzfs && python3 -m zipfile -e bzfs*.whl python";
const PYZNAP: &str = "python3 -m pip download -q --no-deps pyznap && python3 -m zipfile -e pyznap*.whl python";

/// A crate of which the making takes minutes: one that is there already is run.
const INSTALLED: &str = "found=$(command -v httm) || { echo 'no httm in $PATH: cargo install httm' >&2; exit 1; }; mkdir -p bin && ln -sf $found bin/httm";

const ZXFER: &str = "found=$(command -v zxfer) || { echo 'no zxfer in $PATH' >&2; exit 1; }; mkdir -p bin && ln -sf $found bin/zxfer";

/// Name, what runs, how it is fetched.
const TOOLS: [(&str, &str, &str); 9] = [
    ("sanoid", include_str!("../tools/sanoid"), DEBIAN),
    ("syncoid", include_str!("../tools/syncoid"), DEBIAN),
    ("zfs-autobackup", include_str!("../tools/zfs-autobackup"), PYPI),
    ("zfs-auto-snapshot", include_str!("../tools/zfs-auto-snapshot"), CONTRIB),
    ("bzfs", include_str!("../tools/bzfs"), BZFS),
    ("pyznap", include_str!("../tools/pyznap"), PYZNAP),
    ("zxfer", include_str!("../tools/zxfer"), ZXFER),
    ("httm", include_str!("../tools/httm"), INSTALLED),
    ("browse", include_str!("../tools/browse"), ""),
];

const IMAGES: [&str; 2] = ["a.img", "b.img"];
/// Seconds for a tool.
const LIMIT: &str = "600";

pub(crate) fn run(arguments: &[&str]) -> Result<()> {
    let mut words = Words::new(arguments);
    let directory = words.value("--dir")?.map_or_else(std::env::temp_dir, PathBuf::from).join(format!("tools-{}", std::process::id()));
    let wanted = words.rest();
    if !rustix::process::geteuid().is_root() {
        sim::places::skipped("tools: root is needed");
        return Ok(());
    }
    let mut failed = Vec::new();
    for (name, script, fetch) in TOOLS {
        if !wanted.is_empty() && !wanted.contains(&name) {
            continue;
        }
        let place = directory.join(name);
        fs::create_dir_all(&place)?;
        if let Err(why) = fetched(&place.join("tool"), fetch) {
            sim::places::skipped(&format!("{name}: it cannot be fetched: {}", why.to_string().trim_end()));
            continue;
        }
        let begin = Instant::now();
        let verdict = cycle(&place, script);
        println!("{name}: {} ({:.1} s)", if verdict.is_ok() { "works" } else { "FAILED" }, begin.elapsed().as_secs_f64());
        if let Err(error) = verdict {
            println!("{error:#}");
            failed.push(name);
        }
    }
    if !failed.is_empty() {
        bail!("failed: {} (what they left is in {})", failed.join(", "), directory.display());
    }
    fs::remove_dir_all(&directory)?;
    Ok(())
}

fn fetched(place: &Path, fetch: &str) -> Result<()> {
    fs::create_dir_all(place)?;
    let output = Command::new("bash").args(["-c", fetch]).current_dir(place).stdin(Stdio::null()).output()?;
    if output.status.success() { Ok(()) } else { bail!("{}", String::from_utf8_lossy(&output.stderr)) }
}

/// One tool's cycle, on a daemon of its own.
fn cycle(place: &Path, script: &str) -> Result<()> {
    let (links, work, socket) = (place.join("bin"), place.join("work"), place.join("socket"));
    for made in [&links, &work, &socket] {
        fs::create_dir_all(made)?;
    }
    fs::set_permissions(&socket, fs::Permissions::from_mode(0o700))?;
    let program = tarn()?.canonicalize()?;
    for name in ["tarn", "zfs", "zpool"] {
        symlink(&program, links.join(name))?;
    }
    let path = std::env::var("PATH").unwrap_or_default();
    let shell = |script: &str| {
        let mut command = Command::new("timeout");
        command.args([LIMIT, "bash", "-c", script]).stdin(Stdio::null()).current_dir(&work);
        command.env("PATH", format!("{}:{path}", links.display())).env("TARN_SOCKET", socket.join("s"));
        command.env("WORK", &work).env("TOOLS", place.join("tool"));
        command
    };
    let output = shell(&format!("{COMMON}\n{script}")).output().context("bash cannot be started")?;
    let ended = shell("zpool export tanka && zpool export tankb || { zpool destroy -f tanka; zpool destroy -f tankb; false; }").output()?;
    if !output.status.success() || !ended.status.success() {
        let texts = [output.stdout, output.stderr, ended.stderr].map(|text| String::from_utf8_lossy(&text).into_owned());
        bail!("{}", texts.concat());
    }
    for image in IMAGES {
        match zdb_check(&[&work.join(image)]) {
            OracleResult::Clean => {}
            OracleResult::Unavailable(reason) => sim::places::skipped(&format!("zdb: {reason}")),
            OracleResult::Wrong(said) => bail!("{image}: zdb finds\n{said}"),
        }
    }
    Ok(())
}
