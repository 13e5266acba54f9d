//! What a round cost beside its time: processor seconds, memory, bytes that went to the device.
//!
//! # Theory
//!
//! A file system in the kernel spends its time in the caller's system calls, in kernel threads and in interrupts; one
//! in user space in a process of its own. What both have in common is the machine: all the processor time that was not
//! idle. So this counts the machine's, and the file system's own processes beside it where there are any. On a machine
//! that does something else as well, the machine's figure has that in it too.

use std::fs;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::target::Target;

/// Ticks of `/proc` in a second. The kernel shows 100 to user space, on every architecture that matters.
const TICKS_PER_SECOND: f64 = 100.0;

/// What one round cost.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct Cost {
    /// Of all processors together, by any process.
    pub machine_seconds: f64,
    /// Of the file system's own processes.
    pub process_seconds: Option<f64>,
    /// The most memory that these held at once between the beginning and the end. Nothing where that is not known, or the process is fsperf's own.
    pub process_peak_bytes: Option<u64>,
    /// What these gave to the devices below.
    pub written_bytes: Option<u64>,
}

#[derive(Debug, Clone, Copy, Default)]
struct Reading {
    process: Option<u32>,
    machine_ticks: u64,
    process_ticks: Option<u64>,
    peak_bytes: Option<u64>,
    written_bytes: Option<u64>,
}

/// Reads the counters at both ends of a round.
pub struct Meter {
    begin: Reading,
    /// The process whose mark of the most memory was set back.
    peak_of: Option<u32>,
}

/// Busy ticks in the first line of `/proc/stat`: all but idle and waiting for I/O.
fn busy_ticks(stat: &str) -> u64 {
    let numbers = stat.lines().next().unwrap_or_default().split_whitespace().skip(1);
    let numbers: Vec<u64> = numbers.map_while(|word| word.parse().ok()).collect();
    // user nice system idle iowait irq softirq steal; what follows is counted in user already.
    [0, 1, 2, 5, 6].iter().filter_map(|index| numbers.get(*index)).sum()
}

/// User and system ticks in `/proc/PID/stat`, whose second word may hold blanks and brackets.
fn process_ticks(stat: &str) -> Option<u64> {
    let after_name = stat.rsplit_once(')')?.1;
    let words: Vec<&str> = after_name.split_whitespace().collect();
    // utime and stime are words 14 and 15; the third is the first after the name.
    Some(words.get(11)?.parse::<u64>().ok()? + words.get(12)?.parse::<u64>().ok()?)
}

/// A line `name: number` of `/proc/PID/status` or `/proc/PID/io`.
fn field(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
    line.split_whitespace().next()?.parse().ok()
}

/// Sectors written, in the `stat` file of a block device.
fn device_written_bytes(device: &Path) -> Option<u64> {
    let stat = fs::read_to_string(Path::new("/sys/class/block").join(device.file_name()?).join("stat")).ok()?;
    stat.split_whitespace().nth(6)?.parse::<u64>().ok().map(|sectors| sectors * 512)
}

/// Sets the kernel's mark of the most memory that the process ever held to what it holds now: it lives longer than a round, and so
/// does the mark. False where the kernel does not do that, or not for us.
fn set_back_peak(process: u32) -> bool {
    fs::write(format!("/proc/{process}/clear_refs"), "5").is_ok()
}

fn read(target: &dyn Target) -> Reading {
    let machine_ticks = busy_ticks(&fs::read_to_string("/proc/stat").unwrap_or_default());
    let mut reading = Reading { machine_ticks, process: target.process(), ..Reading::default() };
    if let Some(process) = reading.process {
        let of = |file: &str| fs::read_to_string(format!("/proc/{process}/{file}")).unwrap_or_default();
        reading.process_ticks = process_ticks(&of("stat"));
        reading.peak_bytes = field(&of("status"), "VmHWM").map(|kilobytes| kilobytes * 1024);
        reading.written_bytes = field(&of("io"), "write_bytes");
    }
    if !target.devices().is_empty() {
        reading.written_bytes = target.devices().iter().map(|device| device_written_bytes(device)).sum();
    }
    reading
}

impl Meter {
    /// Begins.
    pub fn start(target: &dyn Target) -> Meter {
        // fsperf's own process has the buffers of the workload in it.
        let process = target.process().filter(|process| *process != std::process::id());
        let peak_of = process.filter(|process| set_back_peak(*process));
        Meter { begin: read(target), peak_of }
    }

    /// Ends. Where another process serves the file system than at the beginning, what the first one did is not known, and nothing is told.
    pub fn stop(self, target: &dyn Target) -> Cost {
        let (begin, end) = (self.begin, read(target));
        let same = begin.process == end.process;
        let since = |begin: Option<u64>, end: Option<u64>| Some(end?.saturating_sub(begin?));
        let process_ticks = since(begin.process_ticks, end.process_ticks).filter(|_| same);
        let own_devices = !target.devices().is_empty();
        Cost {
            machine_seconds: end.machine_ticks.saturating_sub(begin.machine_ticks) as f64 / TICKS_PER_SECOND,
            process_seconds: process_ticks.map(|ticks| ticks as f64 / TICKS_PER_SECOND),
            process_peak_bytes: end.peak_bytes.filter(|_| self.peak_of.is_some() && self.peak_of == end.process),
            written_bytes: since(begin.written_bytes, end.written_bytes).filter(|_| same || own_devices),
        }
    }
}

#[cfg(test)]
mod tests {
    use sim::places::skipped;

    use super::*;
    use crate::target::Prepared;
    use crate::undo::Undo;

    fn served_by(process: u32) -> Prepared {
        Prepared::new("served", "", std::env::temp_dir(), || Ok(()), Undo::new()).served_by(move || Some(process))
    }

    fn peak_of(process: u32) -> u64 {
        let status = fs::read_to_string(format!("/proc/{process}/status")).unwrap();
        field(&status, "VmHWM").unwrap() * 1024
    }

    /// Of fsperf's own process, which a library without a mount is in, there is no figure.
    #[test]
    fn the_peak_of_memory_is_that_of_the_round() {
        let own = std::process::id();
        drop(std::hint::black_box(vec![1_u8; 256 << 20]));
        let before = peak_of(own);
        assert!(before >= 256 << 20, "{before}");
        if !set_back_peak(own) {
            skipped("the peak of memory: this kernel does not set it back (/proc/PID/clear_refs)");
            return;
        }
        // Other tests run in this process, too.
        let after = peak_of(own);
        assert!(after + (64 << 20) < before, "{after} {before}");
        let cost = Meter::start(&served_by(own)).stop(&served_by(own));
        assert!(cost.process_peak_bytes.is_none() && cost.process_seconds.is_some(), "{cost:?}");
        let mut other = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let cost = Meter::start(&served_by(other.id())).stop(&served_by(other.id()));
        let of_another = Meter::start(&served_by(own)).stop(&served_by(other.id()));
        other.kill().unwrap();
        other.wait().unwrap();
        assert!(cost.process_peak_bytes.is_some_and(|bytes| bytes > 0), "{cost:?}");
        assert_eq!(of_another.process_peak_bytes, None);
    }

    #[test]
    fn the_kernel_s_tables() {
        let stat = "cpu  100 20 30 4000 50 6 7 0 11 0\ncpu0 1 2 3\n";
        assert_eq!(busy_ticks(stat), 100 + 20 + 30 + 6 + 7);
        let stat = "42 (odd ) name) S 1 42 42 0 -1 4194560 1 2 3 4 250 50 0 0 20 0 3 0 99 1000 200";
        assert_eq!(process_ticks(stat), Some(300));
        assert_eq!(field("VmPeak:\t 9 kB\nVmHWM:\t  1234 kB\n", "VmHWM"), Some(1234));
        assert_eq!((process_ticks("no"), field("a: b", "a")), (None, None));
    }
}
