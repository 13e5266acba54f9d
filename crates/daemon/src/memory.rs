//! Keeps the memory of the whole process near its limit.
//!
//! # Theory
//! The caches know their own size and what is dirty. They do not know of the buffers of mounts, of blocks on their way
//! through compression, of what the allocator rounds up, and of what it keeps after a free. So a thread looks twice a
//! second at the memory of the process, and while that is too much the caches are told to shrink ([`MemoryPressure`]).
//! It looks at the control groups of the process (their limits hold for the caches at once, less a quarter for the rest of the process), at what the machine has
//! left, and at how long processes wait for memory, too: before the kernel must kill, the caches shrink, down to `zfs_arc_min`.
//! Memory that they give up is used again at once, but returned to the system late: so the pressure rises slowly.

use std::fs;
use std::thread;
use std::time::Duration;

use tarnfs::Tunables;

use surroundings::{Limited, Surroundings};

pub(crate) mod surroundings;

/// How often to look.
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// The caches shrink from here on, in hundredths of the limit.
const SHRINK_AT: u64 = 108;
/// The caches may grow again below this, in hundredths of the limit.
const GROW_BELOW: u64 = 102;
/// The part of the excess that the caches give up each time.
const SHRINK_PART: u64 = 4;

/// A group that uses more than these hundredths of its limit is near its end,
const GROUP_FULL: u64 = 90;
/// a machine that uses more than these.
const MACHINE_FULL: u64 = 95;
/// The part of a group's limit that the caches leave to the rest of the process.
const GROUP_REST: u64 = 4;
/// Hundredths of the time in which everybody waits for memory that are too many.
const STALLED: u64 = 10;

/// Decides how far the caches shrink.
#[derive(Debug)]
struct Watch {
    /// The limit on the memory of the process.
    limit: u64,
    limits: Tunables,
}

impl Watch {
    /// One look: `resident` bytes are in memory.
    fn look(&self, resident: u64, around: &Surroundings) {
        let pressure = &self.limits.memory_pressure;
        let groups = around.groups();
        pressure.set_cap(groups.iter().map(|group| group.limit - group.limit / GROUP_REST).min().unwrap_or(u64::MAX));
        // The kernel would kill or wait for its disks: no part of it, but all at once.
        let near = |of: &Limited, hundredths: u64| of.used.saturating_sub(of.limit / 100 * hundredths);
        let by_groups = groups.iter().map(|group| near(group, GROUP_FULL)).max().unwrap_or(0);
        let by_machine = around.machine().map_or(0, |machine| near(&machine, MACHINE_FULL));
        let by_stalls = if around.stalled() >= STALLED { self.limit / 8 } else { 0 };
        let urgent = by_groups.max(by_machine).max(by_stalls);
        let hundredths = resident.saturating_mul(100) / self.limit_now().max(1);
        if urgent > 0 {
            pressure.add_bytes(urgent, self.limits.cache_bytes_now());
        } else if hundredths >= SHRINK_AT {
            pressure.add_bytes((resident - self.limit_now()) / SHRINK_PART, self.limit);
        } else if hundredths < GROW_BELOW {
            pressure.relax();
        }
        self.limits.obey_cache_limits();
    }

    /// What the process may have while the caches may have more, or less, than at first.
    fn limit_now(&self) -> u64 {
        let (at_first, now) = (self.limits.cache_bytes_max, self.limits.cache_bytes_now());
        (self.limit.saturating_add(now)).saturating_sub(at_first)
    }
}

/// Bytes of this process in memory.
fn resident() -> Option<u64> {
    let text = fs::read_to_string("/proc/self/statm").ok()?;
    let pages: u64 = text.split(' ').nth(1)?.parse().ok()?;
    Some(pages * rustix::param::page_size() as u64)
}

/// Starts the thread that looks as long as the process lives.
pub(crate) fn watch(limit: u64, limits: &Tunables) -> std::io::Result<()> {
    let watch = Watch { limit, limits: limits.clone() };
    let around = Surroundings::default();
    let run = move || {
        loop {
            thread::sleep(LOOK_EVERY);
            resident().iter().for_each(|bytes| watch.look(*bytes, &around));
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
        let (directory, watch) = rig();
        let watch = Looking(&watch, Surroundings::at(directory.path()));
        let room = |watch: &Looking<'_>| watch.room();
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

    fn rig() -> (tempfile::TempDir, Watch) {
        let limits = Tunables { cache_bytes_max: 100 * MB, ..Tunables::default() };
        (tempfile::tempdir().unwrap(), Watch { limit: 100 * MB, limits })
    }

    struct Looking<'a>(&'a Watch, Surroundings);

    impl Looking<'_> {
        fn look(&self, resident: u64) {
            self.0.look(resident, &self.1);
        }

        fn room(&self) -> u64 {
            self.0.limits.memory_pressure.room_of(100 * MB).div_ceil(MB)
        }
    }

    fn write(directory: &tempfile::TempDir, path: &str, text: &str) {
        let path = directory.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    #[test]
    fn the_caches_are_within_the_limit_of_the_group_as_soon_as_it_changes() {
        let (directory, watch) = rig();
        let looking = Looking(&watch, Surroundings::at(directory.path()));
        let group = |limit: u64, used: u64| {
            write(&directory, "sys/fs/cgroup/g/memory.max", &(limit * MB).to_string());
            write(&directory, "sys/fs/cgroup/g/memory.current", &(used * MB).to_string());
            looking.look(20 * MB);
            looking.room()
        };
        let press = |times: u64, limit: u64| (0..times).for_each(|_| assert!(group(limit, if limit > 100 { 100 } else { limit }) > 0));
        write(&directory, "proc/self/cgroup", "0::/g\n");
        assert_eq!([group(1000, 100), group(80, 50), group(40, 10)], [100, 60, 30]);
        // Others in the group take the rest of it.
        assert!(group(80, 79) <= 54);
        press(100, 80);
        assert_eq!(looking.room(), 15, "a quarter stays");
        watch.limits.parameters.set(tarnfs::Parameter::ArcMin, &(5 * MB).to_string()).unwrap();
        press(100, 80);
        assert_eq!(looking.room(), 5);
        press(1000, 1000);
        assert_eq!(looking.room(), 100);
    }

    #[test]
    fn a_machine_that_has_little_left_gets_memory_back() {
        let (directory, watch) = rig();
        let looking = Looking(&watch, Surroundings::at(directory.path()));
        write(&directory, "proc/meminfo", "MemTotal: 1024000 kB\nMemAvailable: 102400 kB\n");
        looking.look(50 * MB);
        assert_eq!(looking.room(), 100);
        write(&directory, "proc/meminfo", "MemTotal: 1024000 kB\nMemAvailable: 20480 kB\n");
        looking.look(50 * MB);
        assert!((69..=71).contains(&looking.room()), "{}: 30 MB less than a twentieth is there", looking.room());
        write(&directory, "proc/meminfo", "MemTotal: 1024000 kB\nMemAvailable: 102400 kB\n");
        write(&directory, "proc/pressure/memory", "full avg10=30.00 avg60=0.00 avg300=0.00 total=9\n");
        let before = looking.room();
        looking.look(50 * MB);
        assert!(looking.room() < before);
    }

    #[test]
    fn this_process_is_in_memory() {
        assert!(resident().unwrap() > MB);
    }
}
