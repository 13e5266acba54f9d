//! Where things are outside the crates: the workspace, and the material that judges it.
//!
//! # Theory
//! The golden pools and the oracle are far larger than the project, so they are not in it: they lie beside it, in
//! `../shared` as seen from the workspace root, or where `TARN_SHARED` says. A test that needs them and does not find
//! them says so aloud, with [`skipped`], and goes on.

use std::io::Write;
use std::path::{Path, PathBuf};

/// The root of the workspace.
pub fn workspace_root() -> PathBuf {
    // This crate is <root>/crates/sim.
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.ancestors().nth(2).unwrap_or(here).to_path_buf()
}

/// The material beside the project, if it is there: `TARN_SHARED`, or `../shared` of the workspace root.
pub fn shared() -> Option<PathBuf> {
    let path = match std::env::var_os("TARN_SHARED") {
        Some(path) => PathBuf::from(path),
        None => workspace_root().join("../shared"),
    };
    path.is_dir().then_some(path)
}

/// `path` below [`shared`], if it exists.
pub fn in_shared(path: &str) -> Option<PathBuf> {
    shared().map(|root| root.join(path)).filter(|path| path.exists())
}

/// Tells the world that something was not tested. The harness throws away what `eprintln!` of a passing test prints, but
/// not what is written to the stream itself.
pub fn skipped(what: &str) {
    let _ = std::io::stderr().write_all(format!("SKIPPED: {what}\n").as_bytes());
}

/// Prints a closing line of a test, past the harness as [`skipped`] does: what was compared is part of the result.
pub fn say(line: &str) {
    let _ = std::io::stdout().write_all(format!("{line}\n").as_bytes());
}
