//! Random reads and writes, mixed 60 to 40, in pieces of 128 K on files of 3 GB: the real fio.
//!
//! What was published does not say how many jobs there were, nor which engine; both are parameters here, or plain reads
//! and writes.

use std::fs;
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Result};
use serde_json::Value;

use super::fio;
use super::{Figure, LONGEST_CALL, MOST_SECONDS, MOST_THREADS, Parameter, Parameters, Published, Round, Workload, described};
use crate::process;

/// The workload.
pub struct FioMixed {
    parameters: Parameters,
}

const PARAMETERS: [Parameter; 5] = [
    Parameter::scaled("size", "bytes of each job's file", 3 << 30, 1 << 20),
    Parameter::fixed("jobs", "jobs, each with a file of its own", 1).at_most(MOST_THREADS),
    Parameter::fixed("reads", "percentage of reads", 60).at_least(0).at_most(100),
    Parameter::fixed("block", "bytes in a call", 128 << 10).at_least(512).at_most(LONGEST_CALL),
    Parameter::scaled("seconds", "how long it runs", 60, 2).at_most(MOST_SECONDS),
];

const fn published(figure: &'static str, system: &'static str, value: f64) -> Published {
    Published { figure, system, value }
}

static PUBLISHED: [Published; 6] = [
    published("random reads", "ZFS", 21_400.0),
    published("random reads", "ext4", 11_300.0),
    published("random reads", "XFS", 15_100.0),
    published("random writes", "ZFS", 15_700.0),
    published("random writes", "ext4", 6_910.0),
    published("random writes", "XFS", 8_440.0),
];

/// Operations a second of one direction.
fn rate(report: &Value, direction: &str) -> Result<f64> {
    report["jobs"][0][direction]["iops"].as_f64().with_context(|| format!("fio's report has no jobs[0].{direction}.iops"))
}

impl Default for FioMixed {
    fn default() -> Self {
        Self::new()
    }
}

impl FioMixed {
    /// The published parameters.
    pub fn new() -> FioMixed {
        FioMixed { parameters: Parameters::new(&PARAMETERS) }
    }

    fn words(&self, round: &Round<'_>) -> Vec<String> {
        let value = |name: &str| self.parameters.get(name);
        vec![
            "--name=mixed".to_owned(),
            "--ioengine=psync".to_owned(),
            "--rw=randrw".to_owned(),
            "--group_reporting".to_owned(),
            "--time_based".to_owned(),
            "--fallocate=none".to_owned(),
            // By itself fio has the kernel drop what it has of the file, again and again: that empties the cache of some file systems, and of none that has its own.
            "--invalidate=0".to_owned(),
            "--output-format=json".to_owned(),
            format!("--rwmixread={}", value("reads")),
            format!("--bs={}", value("block")),
            format!("--size={}", value("size")),
            format!("--numjobs={}", value("jobs")),
            format!("--runtime={}", value("seconds")),
            format!("--randseed={}", round.seed),
            format!("--directory={}", round.directory.display()),
        ]
    }
}

impl Workload for FioMixed {
    described!("fio-mixed", "random reads and writes, 60 to 40, of 128K on a file of 3 GB (fio)");

    fn published(&self) -> &'static [Published] {
        &PUBLISHED
    }

    fn space_bytes(&self) -> u64 {
        self.parameters.get("size").saturating_mul(self.parameters.get("jobs")).saturating_mul(2).saturating_add(1 << 30)
    }

    fn missing(&self) -> Option<String> {
        process::find("fio").is_none().then(|| "fio is not installed (apt-get install fio)".to_owned())
    }

    /// The files are laid out by fio itself, before its clock runs; here already, so that ours does not run either.
    fn prepare(&self, round: &Round<'_>) -> Result<()> {
        let mut command = process::command("fio");
        command.args(self.words(round)).arg("--create_only=1").stdin(Stdio::null());
        process::attended_success(&mut command, Duration::from_secs(3600)).map(drop)
    }

    fn measure(&self, round: &Round<'_>) -> Result<Vec<Figure>> {
        let report = round.directory.join("report.json");
        let mut command = process::command("fio");
        command.args(self.words(round)).arg(format!("--output={}", report.display())).stdin(Stdio::null());
        let limit = Duration::from_secs(self.parameters.get("seconds").saturating_mul(4).saturating_add(120));
        process::attended_success(&mut command, limit)?;
        let report = fio::report(&fs::read_to_string(&report)?)?;
        let mut figures = vec![
            Figure::rate("random reads", "/s", rate(&report, "read")?),
            Figure::rate("random writes", "/s", rate(&report, "write")?),
        ];
        for (direction, of, part) in
            [("read", "a read", self.parameters.get("reads")), ("write", "a write", 100 - self.parameters.get("reads"))]
        {
            // Of nothing there are no percentiles.
            if part > 0 {
                figures.extend(fio::percentiles(&report, direction, of)?);
            }
        }
        Ok(figures)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::target::{HostDirectory, Target};
    use sim::places::skipped;

    /// The calls themselves, as strace sees them: six reads of ten, 128 K each, at multiples of that.
    #[test]
    fn what_fio_does() {
        let mut mixed = FioMixed::new();
        let (Some(strace), None) = (process::find("strace"), mixed.missing()) else {
            skipped("the system calls of fio-mixed: strace or fio is not installed");
            return;
        };
        mixed.parameters_mut().set("size", 64 << 20).unwrap();
        let host = HostDirectory::new("host", &std::env::temp_dir()).unwrap();
        let trace = host.directory().join("trace");
        let round = Round::new(&host, host.directory(), 0, 3);
        let mut command = std::process::Command::new(strace);
        command.args(["-f", "-e", "trace=pread64,pwrite64", "-o"]).arg(&trace).arg("fio");
        let words = mixed.words(&round);
        process::succeed(command.args(words.iter().filter(|word| *word != "--time_based")).arg("--number_ios=400")).unwrap();
        let trace = fs::read_to_string(&trace).unwrap();
        let calls = |name: &str| trace.lines().filter(|line| line.contains(name) && line.contains(", 131072, ")).count();
        let (reads, writes) = (calls("pread64("), calls("pwrite64("));
        assert!(reads + writes >= 400 && (0.5..0.7).contains(&(reads as f64 / (reads + writes) as f64)), "{reads} {writes}");
    }

    #[test]
    fn fio_is_given_the_published_parameters() {
        let host = HostDirectory::new("host", &std::env::temp_dir()).unwrap();
        let words = FioMixed::new().words(&Round::new(&host, host.directory(), 0, 3));
        for word in ["--rw=randrw", "--rwmixread=60", "--bs=131072", "--size=3221225472", "--fallocate=none"] {
            assert!(words.iter().any(|given| given == word), "{word}: {words:?}");
        }
    }

    #[test]
    fn the_report_is_read() {
        let report: Value = serde_json::json!({"jobs": [{"write": {"iops": 12.5}}]});
        assert_eq!(rate(&report, "write").unwrap(), 12.5);
        assert!(rate(&report, "read").is_err());
    }
}
