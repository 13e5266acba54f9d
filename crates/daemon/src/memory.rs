//! Keeps the memory of the whole process near what was configured.
//!
//! # Theory
//! The caches know what they keep, and what is dirty. They do not know of the buffers of mounts, of blocks on their way through
//! compression, of what the allocator rounds up, and of what it keeps because it was freed a moment ago. So somebody looks, some
//! times a second, at what the process has in memory. If that is too much, the allocator first returns what it keeps free (which
//! is not done earlier: to touch new memory costs more than to fill it). If it is still too much, the caches are told to do with less
//! ([`MemoryPressure`]), until it is not.

use std::fs;
use std::thread;
use std::time::Duration;

use tarnfs::MemoryPressure;

/// How often to look, where there is much in memory, and where there is not.
const LOOK_EVERY: Duration = Duration::from_millis(50);
const LOOK_SELDOM: Duration = Duration::from_millis(500);
/// In hundredths of what was configured: from here on it is looked often; the allocator returns memory; the caches do with less.
const LOOK_AT: u64 = 75;
const RETURN_AT: u64 = 106;
const SHRINK_AT: u64 = 104;
/// Below this the caches may have more again.
const GROW_BELOW: u64 = 98;

/// Has the allocator return what it keeps free.
pub type ReturnMemory = fn();

/// What is decided each time.
#[derive(Debug)]
struct Watch {
    /// What was configured.
    limit: u64,
    pressure: MemoryPressure,
    return_memory: ReturnMemory,
}

impl Watch {
    /// Looks once, by `resident`; returns after what time to look again.
    fn look(&self, resident: impl Fn() -> Option<u64>) -> Duration {
        let hundredths = |bytes: u64| bytes.saturating_mul(100) / self.limit.max(1);
        let Some(mut now) = resident() else { return LOOK_SELDOM };
        if hundredths(now) >= RETURN_AT {
            (self.return_memory)();
            now = resident().unwrap_or(now);
        }
        if hundredths(now) >= SHRINK_AT {
            // All that is too much, at once: it takes a while until the caches have given it up.
            self.pressure.add_bytes(now - self.limit, self.limit);
        } else if hundredths(now) < GROW_BELOW {
            self.pressure.relax();
        }
        if hundredths(now) >= LOOK_AT { LOOK_EVERY } else { LOOK_SELDOM }
    }
}

/// Bytes of this process in memory.
fn resident() -> Option<u64> {
    let text = fs::read_to_string("/proc/self/statm").ok()?;
    let pages: u64 = text.split(' ').nth(1)?.parse().ok()?;
    Some(pages * rustix::param::page_size() as u64)
}

/// Looks as long as the process lives.
pub(crate) fn watch(limit: u64, pressure: MemoryPressure, return_memory: ReturnMemory) -> std::io::Result<()> {
    let watch = Watch { limit, pressure, return_memory };
    let run = move || {
        loop {
            thread::sleep(watch.look(resident));
        }
    };
    thread::Builder::new().name("memory".to_owned()).spawn(run).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MB: u64 = 1 << 20;

    #[test]
    fn the_caches_do_with_less_while_there_is_too_much_and_have_it_back_afterwards() {
        let watch = Watch { limit: 100 * MB, pressure: MemoryPressure::default(), return_memory: || () };
        let room = |watch: &Watch| watch.pressure.room_of(100 * MB) / MB;
        assert_eq!(watch.look(|| Some(50 * MB)), LOOK_SELDOM);
        assert_eq!(watch.look(|| Some(103 * MB)), LOOK_EVERY);
        assert_eq!(room(&watch), 100);
        watch.look(|| Some(120 * MB));
        assert_eq!(room(&watch), 80);
        watch.look(|| Some(110 * MB));
        assert_eq!(room(&watch), 70);
        // Never nothing at all.
        (0..100).for_each(|_| drop(watch.look(|| Some(300 * MB))));
        assert_eq!(room(&watch), 25);
        watch.look(|| Some(100 * MB));
        assert_eq!(room(&watch), 25);
        (0..1000).for_each(|_| drop(watch.look(|| Some(90 * MB))));
        assert_eq!(room(&watch), 100);
    }

    #[test]
    fn this_process_is_in_memory() {
        assert!(resident().unwrap() > MB);
    }
}
