//! Keeps the memory of the whole process near its limit.
//!
//! # Theory
//! The caches know their own size and what is dirty. They do not know of the buffers of mounts, of blocks on their way
//! through compression, of what the allocator rounds up, and of what it keeps after a free. So a thread looks twice a
//! second at the memory of the process, and while that is too much the caches are told to shrink ([`MemoryPressure`]).
//! Memory that they give up is used again at once, but returned to the system late: so the pressure rises slowly.

use std::fs;
use std::thread;
use std::time::Duration;

use tarnfs::MemoryPressure;

/// How often to look.
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// The caches shrink from here on, in hundredths of the limit.
const SHRINK_AT: u64 = 108;
/// The caches may grow again below this, in hundredths of the limit.
const GROW_BELOW: u64 = 102;
/// The part of the excess that the caches give up each time.
const SHRINK_PART: u64 = 4;

/// Decides how far the caches shrink.
#[derive(Debug)]
struct Watch {
    /// The limit on the memory of the process.
    limit: u64,
    pressure: MemoryPressure,
}

impl Watch {
    /// One look: `resident` bytes are in memory.
    fn look(&self, resident: u64) {
        let hundredths = resident.saturating_mul(100) / self.limit.max(1);
        if hundredths >= SHRINK_AT {
            self.pressure.add_bytes((resident - self.limit) / SHRINK_PART, self.limit);
        } else if hundredths < GROW_BELOW {
            self.pressure.relax();
        }
    }
}

/// Bytes of this process in memory.
fn resident() -> Option<u64> {
    let text = fs::read_to_string("/proc/self/statm").ok()?;
    let pages: u64 = text.split(' ').nth(1)?.parse().ok()?;
    Some(pages * rustix::param::page_size() as u64)
}

/// Starts the thread that looks as long as the process lives.
pub(crate) fn watch(limit: u64, pressure: MemoryPressure) -> std::io::Result<()> {
    let watch = Watch { limit, pressure };
    let run = move || {
        loop {
            thread::sleep(LOOK_EVERY);
            resident().iter().for_each(|bytes| watch.look(*bytes));
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
        let watch = Watch { limit: 100 * MB, pressure: MemoryPressure::default() };
        let room = |watch: &Watch| watch.pressure.room_of(100 * MB).div_ceil(MB);
        watch.look(50 * MB);
        watch.look(107 * MB);
        assert_eq!(room(&watch), 100);
        watch.look(120 * MB);
        assert_eq!(room(&watch), 96);
        watch.look(110 * MB);
        assert_eq!(room(&watch), 93);
        // Never nothing at all.
        (0..100).for_each(|_| watch.look(300 * MB));
        assert_eq!(room(&watch), 25);
        watch.look(105 * MB);
        assert_eq!(room(&watch), 25);
        (0..1000).for_each(|_| watch.look(100 * MB));
        assert_eq!(room(&watch), 100);
    }

    #[test]
    fn this_process_is_in_memory() {
        assert!(resident().unwrap() > MB);
    }
}
