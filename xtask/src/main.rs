//! `cargo xtask`: everything that CI and developers run beyond `cargo test`.
#![allow(clippy::disallowed_methods)] // real programs and clocks: outside of the engine

mod explore;
mod pjdfstest;
mod fsx;
mod mounted;
mod programs;
mod requests;
mod tools;
mod words;
mod xfstests;
mod ztest;
mod zts;
mod fuzz;

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::{Context, Result, bail, ensure};

const HELP: &str = "\
cargo xtask tidy                     the rules that no compiler checks
cargo xtask ci                       all that must pass before a change is taken: tidy, clippy, tests
cargo xtask oracle [IMAGE...]        the real zdb judges these images, or the pools that our tests write
cargo xtask oracle --kernel IMAGE... the real kernel module imports, scrubs and writes a copy of the pool (minutes)
cargo xtask oracle vm [WORD|DIR...]  pools of ours in every state (those whose names have a WORD in them, or are given as
                                     directories of images) go to the kernel module and come back; a table (an hour)
cargo xtask oracle streams           streams of ours, of every kind, received by the kernel module and compared (minutes)
cargo xtask oracle space             what the kernel module says of space after each of some verbs, and how the tables that are kept differ from it
cargo xtask oracle ztest [SECONDS] [LAYOUT]
                                     OpenZFS's stress program makes a pool, we write it, it goes on with it; it is checked each time (root);
                                     with mirrors, raidz, expansion and draid
cargo xtask fuzz TARGET [SECONDS]    a fuzz target under libFuzzer, for a minute or as long as given; no such target: lists them
cargo xtask golden                   lists the golden pools
cargo xtask golden NAME [DIRECTORY]  describes a golden pool, unpacks its images into DIRECTORY
cargo xtask pjdfstest [--on NAME]    the POSIX test suite on a fresh pool and on ext4, and the differences (root; or on one, NAME)
";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let done = match arguments.split_first() {
        Some((&"tidy", [])) => tidy(),
        Some((&"ci", [])) => ci(),
        Some((&"oracle", ["vm", wanted @ ..])) => peer(wanted),
        Some((&"oracle", ["streams"])) => mounted::tarn().and_then(|tarn| sim::peer::streams::run(&root().join("target/streams"), &tarn)),
        Some((&"oracle", ["space"])) => sim::peer::space::run(&root().join("target/space")),
        Some((&"oracle", ["ztest"])) => ztest::run(60, None),
        Some((&"oracle", ["ztest", seconds, only @ ..])) => seconds.parse().context("SECONDS").and_then(|seconds| ztest::run(seconds, only.first().copied())),
        Some((&"oracle", images)) => oracle(images),
        Some((&"fuzz", [name])) => fuzz::run(&root(), name, 60),
        Some((&"fuzz", [name, seconds])) => {
            seconds.parse().context("SECONDS").and_then(|seconds| fuzz::run(&root(), name, seconds))
        }
        Some((&"golden", [])) => list_golden(),
        Some((&"golden", [name])) => golden(name, None),
        Some((&"explore", words)) => explore::run(words),
        Some((&"fsx", words)) => fsx::run(words),
        Some((&"programs", words)) => programs::run(words),
        Some((&"requests", words)) => requests::run(words),
        Some((&"tools", words)) => tools::run(words),
        Some((&"xfstests", words)) => xfstests::run(words),
        Some((&"zts", words)) => zts::run(words),
        Some((&"golden", [name, directory])) => golden(name, Some(Path::new(directory))),
        Some((&"pjdfstest", [])) => pjdfstest::run(None),
        Some((&"pjdfstest", ["--on", name])) => pjdfstest::run(Some(name)),
        _ => {
            print!("{HELP}{}{}{}{}{}{}{}", explore::HELP, fsx::HELP, xfstests::HELP, zts::HELP, programs::HELP, tools::HELP, requests::HELP);
            return ExitCode::from(u8::from(!arguments.is_empty() && arguments != ["help"]));
        }
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("xtask: {error:#}");
            ExitCode::FAILURE
        }
    }
}

pub(crate) fn root() -> PathBuf {
    sim::places::workspace_root()
}

fn tidy() -> Result<()> {
    let findings = xtask::tidy::run(&root())?;
    for line in findings.notes.iter().chain(&findings.violations) {
        println!("{line}");
    }
    ensure!(findings.violations.is_empty(), "{} places are not tidy", findings.violations.len());
    Ok(())
}

pub(crate) fn cargo(arguments: &[&str], environment: &[(&str, &str)]) -> Result<()> {
    println!("xtask: cargo {}", arguments.join(" "));
    let program = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let status = Command::new(program).args(arguments).envs(environment.iter().copied()).current_dir(root()).status();
    let status = status.context("cargo cannot be run")?;
    ensure!(status.success(), "cargo {}: {status}", arguments.join(" "));
    Ok(())
}

fn ci() -> Result<()> {
    tidy()?;
    cargo(&["clippy", "--workspace", "--all-targets", "--quiet", "--", "--deny", "warnings"], &[])?;
    cargo(&["test", "--workspace"], &[])
}

fn oracle(arguments: &[&str]) -> Result<()> {
    use sim::oracle::{OracleResult, import_real, zdb_check};
    let (kernel, images) = match arguments.split_first() {
        Some((&"--kernel", images)) => (true, images),
        _ => (false, arguments),
    };
    if images.is_empty() {
        ensure!(!kernel, "which images?");
        // Every test that writes ends with the oracle; here its absence is an error.
        return cargo(&["test", "--workspace"], &[("TARN_ORACLE", "required")]);
    }
    let images: Vec<&Path> = images.iter().map(Path::new).collect();
    let result = if kernel { import_real(&images, None) } else { zdb_check(&images) };
    match result {
        OracleResult::Clean => println!("clean"),
        OracleResult::Wrong(output) => bail!("{output}"),
        OracleResult::Unavailable(reason) => bail!("the oracle cannot be asked: {reason}"),
    }
    Ok(())
}

/// `TARN_PEER=DIR`: where pools, logs and manifests go. `TARN_PEER_BATCH`: pools for each boot of the machine.
fn peer(wanted: &[&str]) -> Result<()> {
    let place = std::env::var_os("TARN_PEER").map_or_else(|| root().join("target/peer"), PathBuf::from);
    let batch = std::env::var("TARN_PEER_BATCH").ok().and_then(|text| text.parse().ok()).unwrap_or(20);
    sim::peer::run(wanted, &place, batch)
}

fn list_golden() -> Result<()> {
    let places = [Some(root().join("crates/sim/golden")), sim::places::in_shared("oracle/golden/out")];
    for place in places.into_iter().flatten() {
        println!("{}:", place.display());
        let mut names: Vec<String> = Vec::new();
        for entry in std::fs::read_dir(&place)? {
            names.push(entry?.file_name().to_string_lossy().into_owned());
        }
        names.sort();
        println!("  {}", names.join(" "));
    }
    Ok(())
}

fn golden(name: &str, directory: Option<&Path>) -> Result<()> {
    let golden = sim::golden::Golden::find(name)?.with_context(|| format!("there is no golden pool {name}"))?;
    let manifest = &golden.manifest;
    println!("{name}: pool {}, made by {}, zdb: {}", manifest.pool.name, manifest.zfs, manifest.zdb);
    for note in &manifest.notes {
        println!("  {note}");
    }
    for image in &manifest.images {
        println!("  {} {} bytes, {}", image.file, image.size, image.state);
    }
    for dataset in &manifest.datasets {
        let files = dataset.files.as_ref().map_or(0, Vec::len);
        println!("  {} {} {files} files", dataset.kind, dataset.name);
    }
    if let Some(directory) = directory {
        std::fs::create_dir_all(directory)?;
        for image in &golden.images {
            let target = directory.join(image.file_name().context("an image has a name")?);
            // `cp` keeps the holes.
            let status = Command::new("cp").arg("--sparse=always").args([image, &target]).status()?;
            ensure!(status.success(), "{}: not copied", target.display());
            println!("  -> {}", target.display());
        }
    }
    Ok(())
}
