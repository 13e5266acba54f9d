//! The fuzz targets under libFuzzer. `TARN_TARGET` is the name of one; `cargo xtask fuzz` sets everything up.

#![no_main]

use std::path::Path;
use std::sync::OnceLock;

use fuzz::target::{self, Target};

static TARGET: OnceLock<&'static Target> = OnceLock::new();

fn target() -> &'static Target {
    TARGET.get_or_init(|| {
        let name = std::env::var("TARN_TARGET").unwrap_or_default();
        target::find(&name).unwrap_or_else(|| {
            let names: Vec<&str> = target::TARGETS.iter().map(|target| target.name).collect();
            eprintln!("TARN_TARGET={name:?} is none of: {}", names.join(" "));
            std::process::exit(2)
        })
    })
}

/// Writes the seeds where `TARN_SEEDS` says, so that libFuzzer starts from them. (To make them makes what the target needs.)
fn initialize() {
    let seeds = (target().seeds)();
    let Some(place) = std::env::var_os("TARN_SEEDS") else { return };
    for (number, seed) in seeds.into_iter().enumerate() {
        let path = Path::new(&place).join(format!("seed-{number:03}"));
        if let Err(error) = std::fs::write(&path, seed) {
            eprintln!("{}: {error}", path.display());
            std::process::exit(2);
        }
    }
}

libfuzzer_sys::fuzz_target!(init: initialize(), |bytes: &[u8]| target().run(bytes));
