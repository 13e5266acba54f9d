//! `cargo xtask fuzz`: the fuzz targets under libFuzzer.
//!
//! # Theory
//! libFuzzer needs code that tells it which branches were taken. The compiler can do that on the stable toolchain too: it is a
//! pass of LLVM, which only has to be named. The flags are for the target alone, not for build scripts, hence `--target`.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};

const TARGET: &str = if cfg!(target_arch = "aarch64") { "aarch64-unknown-linux-gnu" } else { "x86_64-unknown-linux-gnu" };
/// Branches, with a counter and an address for each, and what was compared with what.
const COVERAGE: [&str; 5] = [
    "-Cpasses=sancov-module",
    "-Cllvm-args=-sanitizer-coverage-level=4",
    "-Cllvm-args=-sanitizer-coverage-inline-8bit-counters",
    "-Cllvm-args=-sanitizer-coverage-pc-table",
    "-Cllvm-args=-sanitizer-coverage-trace-compares",
];

/// Builds the fuzzer and runs the target `name` for `seconds`. What it learnt and what it found stays in `fuzz/target`.
pub(crate) fn run(root: &Path, name: &str, seconds: u64) -> Result<()> {
    let place = root.join("fuzz");
    let built = Command::new("cargo")
        .args(["build", "--release", "--target", TARGET])
        .current_dir(&place)
        .env("RUSTFLAGS", COVERAGE.join(" "))
        .status();
    ensure!(built.context("cargo cannot be run")?.success(), "the fuzzer was not built");
    let (corpus, seeds, findings) =
        (place.join("target/corpus").join(name), place.join("target/seeds").join(name), place.join("target/findings").join(name));
    for directory in [&corpus, &seeds, &findings] {
        std::fs::create_dir_all(directory).with_context(|| directory.display().to_string())?;
    }
    let status = Command::new(place.join("target").join(TARGET).join("release/fuzzer"))
        .args([&corpus, &seeds])
        .arg(format!("-max_total_time={seconds}"))
        .arg(format!("-artifact_prefix={}/", findings.display()))
        .args(["-max_len=2048", "-timeout=60", "-rss_limit_mb=4096", "-print_final_stats=1"])
        .envs([("TARN_TARGET", name.as_ref()), ("TARN_SEEDS", seeds.as_os_str())])
        .status()
        .context("the fuzzer cannot be run")?;
    ensure!(status.success(), "{name}: {status}; what it found is in {}", findings.display());
    Ok(())
}
