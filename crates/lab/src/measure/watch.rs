//! What the disks do while a workload runs: the columns of `iostat -xn`, each second.
//!
//! # Theory
//!
//! The kernel counts, for each block device, requests, sectors, the time that requests took, the time in which there
//! was at least one, and the sum over time of how many there were. Differences over an interval give the columns.
//! Solaris counts requests that wait in the host (`wait`, `wsvc_t`, `%w`) apart from those that the device has (`actv`,
//! `asvc_t`, `%b`); Linux does not, so here the former are 0 and the latter are both together.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use crate::target::Target;

/// Between two samples.
const INTERVAL: Duration = Duration::from_secs(1);
/// The last sample of a round is not taken if it would be shorter than this.
const SHORTEST: Duration = Duration::from_millis(50);

/// The columns of `iostat -xn` for one device over one interval.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DeviceUse {
    pub device: String,
    pub reads_per_second: f64,
    pub writes_per_second: f64,
    pub read_kilobytes_per_second: f64,
    pub written_kilobytes_per_second: f64,
    /// Requests that there were at a time, on average.
    pub active: f64,
    /// Milliseconds that one took.
    pub service_milliseconds: f64,
    /// Percentage of the time in which there was at least one.
    pub busy_percent: f64,
}

impl DeviceUse {
    /// The head of the table.
    pub const HEAD: &'static str = "    r/s    w/s   kr/s   kw/s wait actv wsvc_t asvc_t  %w  %b device";

    /// A line of the table.
    pub fn line(&self) -> String {
        format!(
            "{:7.1}{:7.1}{:7.1}{:7.1}{:5.1}{:5.1}{:7.1}{:7.1}{:4.0}{:4.0} {}",
            self.reads_per_second,
            self.writes_per_second,
            self.read_kilobytes_per_second,
            self.written_kilobytes_per_second,
            0.0,
            self.active,
            0.0,
            self.service_milliseconds,
            0.0,
            self.busy_percent,
            self.device
        )
    }
}

#[derive(Debug, Clone, Copy, Default, PartialEq)]
struct Counters {
    reads: u64,
    sectors_read: u64,
    writes: u64,
    sectors_written: u64,
    milliseconds_of_requests: u64,
    milliseconds_busy: u64,
    milliseconds_weighted: u64,
}

/// The `stat` file of a block device; see the kernel's `Documentation/block/stat.rst`.
fn parse(stat: &str) -> Option<Counters> {
    let numbers: Vec<u64> = stat.split_whitespace().map_while(|word| word.parse().ok()).collect();
    let at = |index: usize| numbers.get(index).copied();
    Some(Counters {
        reads: at(0)?,
        sectors_read: at(2)?,
        writes: at(4)?,
        sectors_written: at(6)?,
        milliseconds_of_requests: at(3)? + at(7)?,
        milliseconds_busy: at(9)?,
        milliseconds_weighted: at(10)?,
    })
}

fn read(device: &str) -> Counters {
    fs::read_to_string(Path::new("/sys/class/block").join(device).join("stat"))
        .ok()
        .and_then(|stat| parse(&stat))
        .unwrap_or_default()
}

fn difference(device: &str, from: Counters, to: Counters, seconds: f64) -> DeviceUse {
    let per_second = |from: u64, to: u64| to.saturating_sub(from) as f64 / seconds;
    let requests = (to.reads.saturating_sub(from.reads) + to.writes.saturating_sub(from.writes)) as f64;
    let milliseconds = to.milliseconds_of_requests.saturating_sub(from.milliseconds_of_requests) as f64;
    DeviceUse {
        device: device.to_owned(),
        reads_per_second: per_second(from.reads, to.reads),
        writes_per_second: per_second(from.writes, to.writes),
        read_kilobytes_per_second: per_second(from.sectors_read, to.sectors_read) / 2.0,
        written_kilobytes_per_second: per_second(from.sectors_written, to.sectors_written) / 2.0,
        active: per_second(from.milliseconds_weighted, to.milliseconds_weighted) / 1000.0,
        service_milliseconds: if requests > 0.0 { milliseconds / requests } else { 0.0 },
        busy_percent: (per_second(from.milliseconds_busy, to.milliseconds_busy) / 10.0).min(100.0),
    }
}

/// Counts from its beginning on.
pub struct Watch {
    devices: Vec<String>,
    begin: Instant,
    first: Vec<Counters>,
    last: (Instant, Vec<Counters>),
}

impl Watch {
    /// Begins.
    pub fn start(devices: &[String]) -> Watch {
        let begin = Instant::now();
        let first: Vec<Counters> = devices.iter().map(|device| read(device)).collect();
        Watch { devices: devices.to_vec(), begin, last: (begin, first.clone()), first }
    }

    fn since(&self, begin: Instant, from: &[Counters], now: &[Counters]) -> Vec<DeviceUse> {
        let seconds = begin.elapsed().as_secs_f64().max(1e-3);
        let pairs = self.devices.iter().zip(from.iter().zip(now));
        pairs.map(|(device, (from, to))| difference(device, *from, *to, seconds)).collect()
    }

    /// What was done since the last sample.
    pub fn sample(&mut self) -> Vec<DeviceUse> {
        let now: Vec<Counters> = self.devices.iter().map(|device| read(device)).collect();
        let sample = self.since(self.last.0, &self.last.1, &now);
        self.last = (Instant::now(), now);
        sample
    }

    /// The averages since the beginning.
    pub fn average(&self) -> Vec<DeviceUse> {
        let now: Vec<Counters> = self.devices.iter().map(|device| read(device)).collect();
        self.since(self.begin, &self.first, &now)
    }
}

/// Does `work`, calls `each` with a sample every second meanwhile, and returns the averages too.
pub fn during<T>(devices: &[String], each: &(dyn Fn(&[DeviceUse]) + Sync), work: impl FnOnce() -> T) -> (T, Vec<DeviceUse>) {
    std::thread::scope(|scope| {
        let (over, ended) = mpsc::channel::<()>();
        let watcher = scope.spawn(move || {
            let mut watch = Watch::start(devices);
            loop {
                let ended = ended.recv_timeout(INTERVAL) != Err(RecvTimeoutError::Timeout);
                if !ended || watch.last.0.elapsed() > SHORTEST {
                    each(&watch.sample());
                }
                if ended {
                    return watch.average();
                }
            }
        });
        let outcome = work();
        drop(over);
        (outcome, watcher.join().unwrap_or_default())
    })
}

/// The block device, or partition, that holds `path`.
fn device_of(path: &Path) -> Option<String> {
    let number = fs::metadata(path).ok()?.dev();
    let (major, minor) = (rustix::fs::major(number), rustix::fs::minor(number));
    let link = fs::read_link(format!("/sys/dev/block/{major}:{minor}")).ok()?;
    Some(link.file_name()?.to_str()?.to_owned())
}

/// The target's own devices, or else the one that its files lie on.
pub fn devices(target: &dyn Target) -> Vec<String> {
    let own: Vec<String> = target.devices().iter().filter_map(|device| Some(device.file_name()?.to_str()?.to_owned())).collect();
    if !own.is_empty() {
        return own;
    }
    let beneath = target.beneath();
    device_of(beneath).or_else(|| device_of(beneath.parent()?)).into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_columns_of_iostat() {
        let from = parse("100 0 1000 50 10 0 80 5 0 40 55 0 0 0 0").unwrap();
        let to = parse("300 0 5000 250 30 0 480 25 2 1040 2055 0 0 0 0").unwrap();
        let made = difference("sda", from, to, 2.0);
        assert_eq!((made.reads_per_second, made.writes_per_second), (100.0, 10.0));
        assert_eq!((made.read_kilobytes_per_second, made.written_kilobytes_per_second), (1000.0, 100.0));
        assert_eq!((made.active, made.service_milliseconds, made.busy_percent), (1.0, 1.0, 50.0));
        assert_eq!(made.line(), "  100.0   10.0 1000.0  100.0  0.0  1.0    0.0    1.0   0  50 sda");
        assert_eq!(parse("1 2 3"), None);
    }

    #[test]
    fn samples_come_while_work_is_done() {
        let seen = std::sync::Mutex::new(0);
        let count = |_: &[DeviceUse]| *seen.lock().unwrap() += 1;
        let (outcome, _) = during(&[], &count, || {
            std::thread::sleep(Duration::from_millis(1100));
            7
        });
        assert_eq!((outcome, *seen.lock().unwrap()), (7, 2));
    }
}
