//! What a replay of the intent log may make differently from the manifest of a golden pool.

use super::compare::Compare;

/// The pools with an unreplayed log.
pub const WITH_LOG: [&str; 2] = ["zil", "slog"];

/// How such a pool is compared once its log was replayed: the manifest was made before the replay was on disk, so that what is
/// allocated was not final.
pub const AFTER_REPLAY: Compare = Compare { allocated: false, ..Compare::STRICT };

/// Seconds since 1970.
#[allow(clippy::disallowed_methods)] // it is compared with what a real replay has stored
pub fn now() -> u64 {
    std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

/// mtime and ctime of what a replay changes are those of the replay, here as there: not before `start`. And what the log made of
/// POSIX ACLs kept as files (`xattr=dir`) is empty; the kernel, which looks into it, says EIO instead.
pub fn is_of_replay(line: &str, start: u64) -> bool {
    is_time(line, start) || is_empty_acl(line)
}

fn is_time(line: &str, start: u64) -> bool {
    let ours = line.rsplit_once("!= (").and_then(|(_, ours)| ours.split(',').next()?.parse::<u64>().ok());
    (line.contains(": mtime ") || line.contains(": ctime ")) && ours.is_some_and(|ours| ours >= start)
}

fn is_empty_acl(line: &str) -> bool {
    line.contains("system.posix_acl") && line.replace("error:EIO", "").split_once(" != ").is_some_and(|(one, other)| one.ends_with(other))
}
