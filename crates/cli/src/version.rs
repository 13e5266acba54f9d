//! `version`: which program this is, in the form that tools look for.
//!
//! Tools read the first line as `zfs-X.Y.Z` and decide by it which options exist; so the number is that of the OpenZFS
//! whose commands these are, and our own follows.

use serde_json::json;

use crate::session::{Outcome, Session, say};
use crate::text::getopt::Options;
use crate::text::json;

/// Whose words, flags and formats these are.
const OPENZFS: &str = "2.4.3";

fn release() -> String {
    format!("{OPENZFS}-tarn-{}", env!("CARGO_PKG_VERSION"))
}

/// Prints the two lines.
pub(crate) fn print(session: &mut Session<'_>) -> u8 {
    let release = release();
    say!(session, "zfs-{release}");
    say!(session, "zfs-kmod-{release}");
    0
}

/// `zpool version`, `zfs version`
pub(crate) fn run(session: &mut Session<'_>, words: &[String], program: &str) -> Outcome {
    let mut options = Options::new(words, "j", &[("json", 'j')]);
    let mut as_json = false;
    for option in options.by_ref() {
        option.map_err(|wrong| session.misuse(wrong))?;
        as_json = true;
    }
    if !options.operands().is_empty() {
        return Err(session.misuse("too many arguments"));
    }
    if !as_json {
        return Ok(print(session));
    }
    let release = release();
    let mut object = json::envelope(&format!("{program} version"));
    object.insert("zfs_version".into(), json!({ "userland": format!("zfs-{release}"), "kernel": format!("zfs-kmod-{release}") }));
    json::print(session, object);
    Ok(0)
}
