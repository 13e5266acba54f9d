//! `cargo xtask oracle ztest`: OpenZFS's own stress program, on pools of its making that we check, and on pools of ours.
//!
//! # Theory
//! ztest does everything at random to a pool, with many threads, and kills itself now and then; it knows what its objects must
//! hold. It needs no kernel: `../shared/oracle/golden/ztest` runs it beside us. The pools that it leaves have datasets that no
//! file system would make (encrypted ones, clones, holes, every checksum): our checker has to find nothing in them. And it can be
//! told to use a pool that is there: one of ours. What it cannot be told is to make no parity, so RAID-Z is one disk wide.

use std::fs::{self, File};
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};
use sim::oracle::{OracleResult, zdb_check};
use sim::places;

use crate::mounted::tarn;

/// The name that it gives its pool, and looks for.
const POOL: &str = "ztest";
/// Mirrors instead of RAID-Z.
const LAYOUT: [&str; 6] = ["-K", "raidz", "-r", "1", "-m", "2"];
const BYTES: u64 = 256 << 20;

/// `seconds` for each of both.
pub(crate) fn run(seconds: u64) -> Result<()> {
    let Some(script) = places::in_shared("oracle/golden/ztest") else {
        places::skipped("ztest: ../shared/oracle is not there");
        return Ok(());
    };
    let place = std::env::temp_dir().join(format!("tarn-ztest-{}", std::process::id()));
    let tarn = tarn()?;
    for (what, is_ours) in [("a pool that ztest made", false), ("a pool that we made", true)] {
        let directory = place.join(if is_ours { "ours" } else { "theirs" });
        fs::create_dir_all(&directory)?;
        if is_ours {
            make(&tarn, &directory)?;
        }
        let mut command = Command::new(&script);
        command.arg("-s").arg(seconds.to_string()).arg(&directory).args(LAYOUT);
        if is_ours {
            command.arg("-E");
        }
        let output = command.output().with_context(|| script.display().to_string())?;
        let log = directory.join("ztest.log");
        ensure!(output.status.success(), "ztest on {what}: {}; see {}", output.status, log.display());
        let said = fs::read_to_string(&log).unwrap_or_default();
        check(&tarn, &directory).with_context(|| format!("{what}, after ztest; see {}", directory.display()))?;
        println!("{what}: {}; nothing wrong", said.lines().last().unwrap_or("it says nothing").trim());
    }
    fs::remove_dir_all(&place)?;
    Ok(())
}

/// A pool as ztest names things: `ztest.0a` and so on.
fn make(tarn: &Path, directory: &Path) -> Result<()> {
    let images: Vec<String> = (0..4).map(|number| directory.join(format!("{POOL}.{number}a")).display().to_string()).collect();
    for image in &images {
        File::create(image)?.set_len(BYTES)?;
    }
    let words = ["zpool", "create", "-f", "-m", "none", POOL, "mirror", &images[0], &images[1], "mirror", &images[2], &images[3]];
    for words in [&words[..], &["zpool", "export", POOL]] {
        let output = Command::new(tarn).args(words).env("TARN_SOCKET", directory.join("sock")).output()?;
        ensure!(output.status.success(), "tarn {}: {}", words.join(" "), String::from_utf8_lossy(&output.stderr));
    }
    Ok(())
}

/// Our checker, and for comparison the real zdb.
fn check(tarn: &Path, directory: &Path) -> Result<()> {
    let output = Command::new(tarn).args(["zdb", "-e", "-p"]).arg(directory).args(["-bcc", POOL]).env("TARN_SOCKET", directory.join("sock")).output()?;
    if !output.status.success() {
        bail!("tarn zdb: {}\n{}{}", output.status, String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    }
    let mut images = Vec::new();
    for entry in fs::read_dir(directory)? {
        let path = entry?.path();
        if path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("ztest.") && name != "ztest.log") {
            images.push(path);
        }
    }
    images.sort();
    match zdb_check(&images.iter().map(std::path::PathBuf::as_path).collect::<Vec<_>>()) {
        OracleResult::Clean => Ok(()),
        OracleResult::Wrong(output) => bail!("the real zdb: {output}"),
        OracleResult::Unavailable(reason) => bail!("the oracle cannot be asked: {reason}"),
    }
}
