//! Synchronous writers, from one to many: the published fio job, run by the real fio.
//!
//! # Theory
//!
//! Each thread writes its own file in calls of 8 K, each of which waits for stable storage. One writer measures the
//! latency of the device and of the way to it; many measure how well the file system lets them share a commit. The job
//! is the published one, word for word, with its time as a parameter.

use std::fs;
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Result, bail};

use super::fio;
use super::{Figure, MOST_SECONDS, MOST_THREADS, Parameter, Parameters, Published, Round, Workload};
use crate::process;
use crate::watch;

/// The workload.
pub struct SyncSweep {
    parameters: Parameters,
}

const PARAMETERS: [Parameter; 3] = [
    Parameter::scaled("seconds", "how long each number of threads runs", 60, 1).at_most(MOST_SECONDS),
    Parameter::fixed("from", "threads at first", 1).at_most(MOST_THREADS),
    Parameter::fixed("to", "threads at last; they double", 1024).at_most(MOST_THREADS),
];

/// How many disks it was published on.
pub const DISKS: [usize; 4] = [1, 2, 4, 8];

/// Of each number of disks, before and after the rework of the commit.
const SYSTEMS: [[&str; 2]; 4] =
    [["before:1", "after:1"], ["before:2", "after:2"], ["before:4", "after:4"], ["before:8", "after:8"]];

/// The published operations a second: what the figure is called here, and before and after on each number of disks.
type Row = (&'static str, [[f64; 2]; 4]);

const RATES: [Row; 11] = [
    ("1 thread", [[167.0, 168.0], [312.0, 298.0], [303.0, 313.0], [293.0, 298.0]]),
    ("2 threads", [[170.0, 320.0], [311.0, 413.0], [329.0, 432.0], [290.0, 445.0]]),
    ("4 threads", [[324.0, 622.0], [457.0, 964.0], [469.0, 1004.0], [463.0, 1033.0]]),
    ("8 threads", [[596.0, 1048.0], [885.0, 1471.0], [945.0, 1587.0], [957.0, 1617.0]]),
    ("16 threads", [[1072.0, 1819.0], [1575.0, 2133.0], [1672.0, 2610.0], [1719.0, 2874.0]]),
    ("32 threads", [[1577.0, 3247.0], [2185.0, 3188.0], [2690.0, 4480.0], [2864.0, 5030.0]]),
    ("64 threads", [[3007.0, 5118.0], [2899.0, 5514.0], [4076.0, 5901.0], [4714.0, 7478.0]]),
    ("128 threads", [[4581.0, 6997.0], [4069.0, 9161.0], [5233.0, 8625.0], [6868.0, 10644.0]]),
    ("256 threads", [[6003.0, 7946.0], [7117.0, 12204.0], [6780.0, 14907.0], [8585.0, 15287.0]]),
    ("512 threads", [[7483.0, 7590.0], [10350.0, 13676.0], [10679.0, 20141.0], [10651.0, 23298.0]]),
    ("1024 threads", [[7487.0, 7746.0], [12674.0, 13809.0], [14746.0, 24070.0], [13142.0, 31477.0]]),
];

static PUBLISHED: [[[Published; 2]; 4]; 11] = {
    let mut all = [[[Published { figure: "", system: "", value: 0.0 }; 2]; 4]; 11];
    let mut row = 0;
    while row < 11 {
        let mut disks = 0;
        while disks < 4 {
            let mut age = 0;
            while age < 2 {
                all[row][disks][age] =
                    Published { figure: RATES[row].0, system: SYSTEMS[disks][age], value: RATES[row].1[disks][age] };
                age += 1;
            }
            disks += 1;
        }
        row += 1;
    }
    all
};

/// What was published for so many threads on so many disks: operations a second before and after.
pub fn published_rates(threads: u64, disks: usize) -> Option<(f64, f64)> {
    let (_, rates) = RATES.iter().find(|(name, _)| *name == label(threads))?;
    let [before, after] = rates[DISKS.iter().position(|number| *number == disks)?];
    Some((before, after))
}

/// What fio found with one number of threads.
#[derive(Debug, Clone, PartialEq)]
struct Cell {
    operations_per_second: f64,
    latency_microseconds: f64,
    percentiles: Vec<Figure>,
}

fn job(seconds: u64) -> String {
    let global = [
        "group_reporting",
        "clocksource=cpu",
        "ioengine=psync",
        "fallocate=none",
        "blocksize=8k",
        &format!("runtime={seconds}"),
        "time_based",
        "iodepth=1",
        "rw=write",
        "thread=0",
        "direct=0",
        "sync=1",
    ];
    format!("[global]\n{}\n\n[zfs-workload]\n", global.join("\n"))
}

/// Takes the figures out of fio's JSON, which older versions keep in microseconds and newer ones in nanoseconds.
fn parse(output: &str, threads: u64) -> Result<Cell> {
    let report = fio::report(output)?;
    let write = &report["jobs"][0]["write"];
    let operations_per_second = write["iops"].as_f64().context("fio's report has no jobs[0].write.iops")?;
    let latency = match (write["lat_ns"]["mean"].as_f64(), write["lat"]["mean"].as_f64()) {
        (Some(nanoseconds), _) => nanoseconds / 1000.0,
        (None, Some(microseconds)) => microseconds,
        (None, None) => bail!("fio's report has no mean latency"),
    };
    let percentiles = fio::percentiles(&report, "write", &label(threads))?;
    Ok(Cell { operations_per_second, latency_microseconds: latency, percentiles })
}

impl Default for SyncSweep {
    fn default() -> Self {
        Self::new()
    }
}

impl SyncSweep {
    /// The published parameters.
    pub fn new() -> SyncSweep {
        SyncSweep { parameters: Parameters::new(&PARAMETERS) }
    }

    fn threads(&self) -> impl Iterator<Item = u64> {
        let last = self.parameters.get("to");
        std::iter::successors(Some(self.parameters.get("from")), |threads| threads.checked_mul(2))
            .take_while(move |threads| *threads <= last)
    }

    fn cell(&self, round: &Round<'_>, threads: u64) -> Result<Cell> {
        let seconds = self.parameters.get("seconds");
        let file = round.directory.join("sync-sweep.fio");
        fs::write(&file, job(seconds))?;
        // So much can be written that a file fills the disk only if the disk is far faster than any is today.
        let size = format!("--size={}", 256 << 20);
        let report = round.directory.join("report.json");
        let mut command = process::command("fio");
        command.arg("--output-format=json").arg(format!("--numjobs={threads}")).arg(size);
        command
            .arg(format!("--directory={}", round.directory.display()))
            .arg(format!("--output={}", report.display()))
            .arg(&file);
        let limit = Duration::from_secs(seconds.saturating_mul(4).saturating_add(120));
        process::attended_success(command.stdin(Stdio::null()), limit).with_context(|| format!("fio with {threads} threads"))?;
        let cell = parse(&fs::read_to_string(&report)?, threads)?;
        for entry in fs::read_dir(round.directory)? {
            fs::remove_file(entry?.path())?;
        }
        Ok(cell)
    }
}

/// What the rate of so many threads is called.
pub fn label(threads: u64) -> String {
    if threads == 1 { "1 thread".to_owned() } else { format!("{threads} threads") }
}

impl Workload for SyncSweep {
    fn name(&self) -> &'static str {
        "sync-sweep"
    }

    fn about(&self) -> &'static str {
        "synchronous 8K writers, 1 to 1024, each on a file of its own (fio); published before and after a rework, on 1 to 8 disks"
    }

    fn parameters(&self) -> &Parameters {
        &self.parameters
    }

    fn parameters_mut(&mut self) -> &mut Parameters {
        &mut self.parameters
    }

    fn published(&self) -> &'static [Published] {
        PUBLISHED.as_flattened().as_flattened()
    }

    fn space_bytes(&self) -> u64 {
        self.parameters.get("to").saturating_mul(16 << 20)
    }

    fn missing(&self) -> Option<String> {
        process::find("fio").is_none().then(|| "fio is not installed (apt-get install fio)".to_owned())
    }

    fn measure(&self, round: &Round<'_>) -> Result<Vec<Figure>> {
        let (mut rates, mut latencies, mut busy, mut percentiles) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        let devices = watch::devices(round.target);
        for threads in self.threads() {
            let (cell, used) = watch::during(&devices, &|_| (), || self.cell(round, threads));
            let (cell, at) = (cell?, threads as f64);
            rates.push(Figure::rate(label(threads), "/s", cell.operations_per_second).on("operations", "threads", at));
            let latency = Figure::time(format!("{}, latency", label(threads)), "us", cell.latency_microseconds);
            latencies.push(latency.on("latency", "threads", at));
            percentiles.extend(cell.percentiles);
            if !used.is_empty() {
                let percent = used.iter().map(|device| device.busy_percent).sum::<f64>() / used.len() as f64;
                // A disk that is busier is neither better nor worse; the one that is idle waits for something else.
                busy.push(Figure::rate(format!("{}, busy", label(threads)), "%", percent).on("disk busy", "threads", at));
            }
        }
        rates.extend(latencies);
        rates.extend(busy);
        rates.extend(percentiles);
        Ok(rates)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::target::{HostDirectory, Target};
    use sim::places::skipped;

    #[test]
    fn both_ages_of_fio() {
        let new = r#"{"jobs":[{"write":{"iops":1234.5,"lat_ns":{"mean":81000.0},"clat_ns":{"max":9000,"percentile":{"50.000000":7000,"99.000000":8000,"99.900000":9000}}}}]}"#;
        let old = r#"fio: a warning
{"jobs":[{"write":{"iops":1234.5,"lat":{"mean":81.0},"clat":{"max":9,"percentile":{"50.000000":7,"99.000000":8,"99.900000":9}}}}]}"#;
        let percentiles = [("p50", 7.0), ("p99", 8.0), ("p99.9", 9.0), ("max", 9.0)]
            .map(|(name, value)| Figure::percentile("2 threads", name, value));
        let expected = Cell { operations_per_second: 1234.5, latency_microseconds: 81.0, percentiles: percentiles.to_vec() };
        assert_eq!((parse(new, 2).unwrap(), parse(old, 2).unwrap()), (expected.clone(), expected));
        assert!(parse("{}", 1).is_err() && parse("nonsense", 1).is_err());
    }

    /// Word for word.
    #[test]
    fn the_job_is_the_published_one() {
        let published = "[global]\ngroup_reporting\nclocksource=cpu\nioengine=psync\nfallocate=none\nblocksize=8k\nruntime=60\ntime_based\niodepth=1\n\
            rw=write\nthread=0\ndirect=0\nsync=1\n\n[zfs-workload]\n";
        assert_eq!(job(SyncSweep::new().parameters().get("seconds")), published);
    }

    #[test]
    fn threads_double() {
        let mut sweep = SyncSweep::new();
        assert_eq!(sweep.threads().collect::<Vec<_>>(), [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024]);
        sweep.parameters_mut().set("from", 3).unwrap();
        sweep.parameters_mut().set("to", 13).unwrap();
        assert_eq!(sweep.threads().map(label).collect::<Vec<_>>(), ["3 threads", "6 threads", "12 threads"]);
    }

    /// The calls themselves, as strace sees them: 8 K each, to a file opened O_SYNC.
    #[test]
    fn what_fio_does_with_the_job() {
        let (Some(strace), None) = (process::find("strace"), SyncSweep::new().missing()) else {
            skipped("the system calls of sync-sweep: strace or fio is not installed");
            return;
        };
        let host = HostDirectory::new("host", &std::env::temp_dir()).unwrap();
        let (file, trace) = (host.directory().join("job"), host.directory().join("trace"));
        fs::write(&file, job(1)).unwrap();
        let mut command = std::process::Command::new(strace);
        command.args(["-f", "-e", "trace=openat,pwrite64", "-o"]).arg(&trace);
        command
            .args(["fio", "--numjobs=2", "--size=64k", "--number_ios=8"])
            .arg(format!("--directory={}", host.directory().display()));
        process::succeed(command.arg(&file)).unwrap();
        let trace = fs::read_to_string(&trace).unwrap();
        let opened: Vec<&str> = trace.lines().filter(|line| line.contains("zfs-workload.") && line.contains("O_RDWR")).collect();
        let synchronous = opened.iter().filter(|line| line.contains("O_SYNC"));
        assert_eq!(synchronous.count(), 2, "{opened:#?}");
        let writes: Vec<&str> = trace.lines().filter(|line| line.contains("pwrite64(")).collect();
        assert!(writes.len() >= 16 && writes.iter().all(|line| line.contains(", 8192, ")), "{}", writes.len());
    }
}
