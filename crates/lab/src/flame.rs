//! Where the processors' time goes while a workload runs: perf samples the whole machine, and a graph is made of it.
//!
//! The folded stacks are kept beside each graph, so that any tool for their differences can be used on two runs.

use std::fs::{self, File};
use std::io::{BufReader, BufWriter};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use inferno::collapse::Collapse;
use inferno::collapse::perf::{Folder, Options};
use rustix::process::{Pid, Signal};
use std::os::unix::process::CommandExt;

use crate::process;

/// Samples a second, by the clock, which virtual machines have too; no multiple of what timers tick in.
const RATE: &str = "199";
const PATIENCE: Duration = Duration::from_secs(20);

/// perf at work.
pub struct Sampling {
    child: Child,
    data: PathBuf,
}

/// What perf takes and this machine has not.
pub fn missing() -> Option<String> {
    process::find("perf").is_none().then(|| "perf is not installed (apt-get install linux-perf)".to_owned())
}

impl Sampling {
    /// Begins; the samples go into `directory`.
    pub fn start(directory: &Path, name: &str) -> Result<Sampling> {
        if let Some(missing) = missing() {
            bail!(missing);
        }
        fs::create_dir_all(directory).with_context(|| format!("cannot make {}", directory.display()))?;
        let data = directory.join(format!("{name}.perf"));
        let mut command = process::command("perf");
        command.args(["record", "--quiet", "--event", "cpu-clock", "--all-cpus", "--call-graph", "fp", "--freq", RATE, "--output"]).arg(&data);
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).process_group(0).spawn().context("cannot run perf")?;
        Ok(Sampling { child, data })
    }

    fn end(&mut self) -> Result<()> {
        if let Some(process) = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw) {
            let _ = rustix::process::kill_process(process, Signal::INT);
        }
        if process::wait(&mut self.child, PATIENCE)?.is_none() {
            self.child.kill()?;
            self.child.wait()?;
            bail!("perf did not end");
        }
        Ok(())
    }

    /// Ends, and makes the graph: `NAME.folded` and `NAME.svg`.
    pub fn graph(mut self, title: &str) -> Result<PathBuf> {
        self.end()?;
        let (script, folded, svg) = (self.data.with_extension("script"), self.data.with_extension("folded"), self.data.with_extension("svg"));
        let output = process::attended_success(process::command("perf").args(["script", "--input"]).arg(&self.data).stdin(Stdio::null()), PATIENCE * 6)?;
        fs::write(&script, output.stdout)?;
        let collapsed = Folder::from(Options::default()).collapse_file(Some(&script), BufWriter::new(File::create(&folded)?));
        fs::remove_file(&script)?;
        fs::remove_file(&self.data)?;
        collapsed.context("cannot fold what perf sampled")?;
        ensure!(fs::metadata(&folded)?.len() > 0, "perf took no samples");
        let mut options = inferno::flamegraph::Options::default();
        options.title = title.to_owned();
        inferno::flamegraph::from_reader(&mut options, BufReader::new(File::open(&folded)?), BufWriter::new(File::create(&svg)?)).context("cannot draw")?;
        Ok(svg)
    }
}

impl Drop for Sampling {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_busy_machine_has_a_graph() {
        let scratch = tempfile::tempdir().unwrap();
        let Ok(sampling) = Sampling::start(scratch.path(), "busy") else {
            eprintln!("SKIPPED: flame graphs: {}", missing().unwrap_or_default());
            return;
        };
        let began = std::time::Instant::now();
        while began.elapsed() < Duration::from_millis(1200) {
            std::hint::black_box(began);
        }
        match sampling.graph("busy") {
            Ok(svg) => assert!(fs::read_to_string(svg).unwrap().contains("<svg")),
            Err(error) => eprintln!("SKIPPED: flame graphs: perf cannot sample here: {error:#}"),
        }
        assert!(!scratch.path().join("busy.script").exists());
    }
}
