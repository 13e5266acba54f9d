//! How much memory the daemon uses, and how much it does at a time.
//!
//! `TARN_CACHE` is the number of bytes that it may have in memory for all pools together, as `512M`, `4G` or a plain
//! number; the default is an eighth of the machine's memory. Most of it is for blocks. Data that waits to be written,
//! cached inodes, and the buffers of the mounts count too. `zfs_arc_max` and `zfs_arc_min` change it while the daemon runs ([`crate::parameters`]).
//!
//! `TARN_LOG_COMMITS` is the number of commits of an intent log that may be under way at a time. With 1 each commit
//! waits for the one before: a way to measure what concurrency gains.

use tarnfs::Tunables;

use crate::memory::surroundings::Surroundings;

/// The variable for the cache.
const VARIABLE: &str = "TARN_CACHE";
/// The variable for the commits.
const COMMITS: &str = "TARN_LOG_COMMITS";
/// The default cache's part of the memory. It is small because the kernel caches files as well.
const PART: u64 = 8;
/// What the program itself and the buffers of a busy mount take.
const BUFFERS_BYTES: u64 = 48 << 20;
/// The largest part of a small cache that is set aside for them.
const BUFFERS_PART: u64 = 4;
/// The limit on open descriptors, if we may raise it.
const FILES: u64 = 1 << 19;
/// The smallest useful cache.
const CACHE_BYTES_MIN: u64 = 64 << 20;

/// The limits that the environment asks for, and the bytes that the whole process may have in memory.
pub(crate) fn of_environment() -> Result<(Tunables, u64), String> {
    let cache_bytes = match std::env::var(VARIABLE) {
        Ok(text) => parse_cache(&text).ok_or_else(|| format!("{VARIABLE}={text}: a size is expected, as 512M or 4G, of {} MB at least", CACHE_BYTES_MIN >> 20))?,
        Err(_) => (memory_bytes() / PART).max(CACHE_BYTES_MIN),
    };
    let processors = std::thread::available_parallelism().map_or(2, usize::from);
    let for_blocks = cache_bytes - BUFFERS_BYTES.min(cache_bytes / BUFFERS_PART);
    let mut tunables = Tunables::for_machine(for_blocks, processors);
    if let Ok(text) = std::env::var(COMMITS) {
        tunables.log_commits_max = parse_count(&text).ok_or_else(|| format!("{COMMITS}={text}: a number from 1 on is expected"))?;
    }
    Ok((tunables, cache_bytes))
}

/// Raises the limits that the shell of the first caller has set. Each mounted dataset takes a descriptor, of which a
/// shell allows 1024 by default; and a limit on the size of files would end the daemon at a write to a disk.
pub(crate) fn raise() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    for (resource, wanted) in [(Resource::Nofile, Some(FILES)), (Resource::Fsize, None)] {
        let allowed = getrlimit(resource);
        // The superuser may have more than was allowed, others as much.
        let more = wanted.zip(allowed.maximum).map(|(wanted, maximum)| wanted.max(maximum));
        let tries = [Rlimit { current: more, maximum: more }, Rlimit { current: allowed.maximum, maximum: allowed.maximum }];
        if !tries.into_iter().any(|limit| setrlimit(resource, limit).is_ok()) {
            tracing::warn!(?resource, ?allowed, "the limit cannot be raised");
        }
    }
}

fn parse_count(text: &str) -> Option<usize> {
    text.trim().parse().ok().filter(|count| *count > 0)
}

fn parse_cache(text: &str) -> Option<u64> {
    tarnfs::control::parse_size(text.trim()).ok().filter(|bytes| *bytes >= CACHE_BYTES_MIN)
}

/// Memory of the machine, or of the container that we are in.
fn memory_bytes() -> u64 {
    let info = rustix::system::sysinfo();
    let machine = info.totalram.saturating_mul(u64::from(info.mem_unit.max(1)));
    let container = Surroundings::default().groups().iter().map(|group| group.limit).min();
    machine.min(container.unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_caches_are_refused() {
        for (text, bytes) in [("67108864", 64 << 20), ("512M", 512 << 20), ("512mb", 512 << 20), (" 4GiB ", 4 << 30), ("1t", 1 << 40), ("1.5G", 3 << 29)] {
            assert_eq!(parse_cache(text), Some(bytes), "{text}");
        }
        for text in ["", "G", "63M", "4 G", "-1G", "99999999999T", "4X"] {
            assert_eq!(parse_cache(text), None, "{text}");
        }
    }

    #[test]
    fn counts_begin_at_one() {
        assert_eq!(["1", " 64 ", "0", "-1", "many"].map(parse_count), [Some(1), Some(64), None, None, None]);
    }

    #[test]
    fn there_is_some_memory() {
        assert!(memory_bytes() > CACHE_BYTES_MIN);
    }
}
