//! What a run shows while it goes on: how far it is, how long it will still take, what the disks do.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use indicatif::{ProgressBar, ProgressStyle};
use lab::flame::{self, Sampling};
use lab::watch::DeviceUse;
use lab::workload::rounds::{Observer, Progress};
use parking_lot::Mutex;

/// Of a workload's part of the bar.
const PARTS: u64 = 1000;
/// Before each line of `zpool iostat`, which has columns of its own.
const POOL: &str = "  zpool iostat | ";

pub(crate) struct LookingOn {
    bar: ProgressBar,
    /// guards: the file for samples, if there is one and it can be written
    samples: Mutex<Option<File>>,
    to_terminal: bool,
    /// guards: the workload that runs, and what is said of it
    state: Mutex<State>,
    flames: Option<PathBuf>,
    /// guards: perf, while a round is measured
    sampling: Mutex<Option<(Sampling, String)>>,
}

#[derive(Default)]
struct State {
    workload: u64,
    words: String,
}

impl LookingOn {
    pub(crate) fn new(samples: Option<&Path>, flames: Option<&Path>, workloads: usize) -> Result<LookingOn> {
        if let (Some(_), Some(missing)) = (flames, flame::missing()) {
            bail!("--flames: {missing}");
        }
        let style = ProgressStyle::with_template("{bar:24} {percent:>3}%  {elapsed} gone, {eta} to go  {wide_msg}")?;
        let bar = ProgressBar::new(workloads as u64 * PARTS).with_style(style);
        let to_terminal = samples.is_some_and(|path| path == Path::new("-"));
        let file = match samples.filter(|_| !to_terminal) {
            Some(path) => Some(File::create(path).with_context(|| format!("--watch: cannot write {}", path.display()))?),
            None => None,
        };
        let flames = flames.map(Path::to_owned);
        Ok(LookingOn { bar, samples: Mutex::new(file), to_terminal, state: Mutex::default(), flames, sampling: Mutex::default() })
    }

    /// A workload begins.
    pub(crate) fn workload(&self, number: usize) {
        self.state.lock().workload = number as u64;
    }

    /// A line that stays, above the bar.
    pub(crate) fn say(&self, text: &str) {
        self.bar.suspend(|| lab::outln!("{text}"));
    }

    /// The same for what is not as it was asked for: never among figures that somebody else reads.
    pub(crate) fn complain(&self, text: &str) {
        self.bar.suspend(|| lab::errln!("{text}"));
    }

    /// Lines for a user that watches. If they cannot be kept any more, that is said once.
    fn watched(&self, text: &str) {
        if self.to_terminal {
            self.say(text);
        }
        let mut samples = self.samples.lock();
        if let Some(file) = samples.as_mut()
            && let Err(error) = writeln!(file, "{text}")
        {
            *samples = None;
            drop(samples);
            self.complain(&format!("--watch: nothing more is kept: {error}"));
        }
    }

    /// The bar goes away.
    pub(crate) fn over(&self) {
        self.bar.finish_and_clear();
    }
}

impl Observer for LookingOn {
    fn turn(&self, progress: &Progress<'_>) {
        let words = format!("{} on {}", progress.workload, progress.target);
        let workload = {
            let mut state = self.state.lock();
            state.words.clone_from(&words);
            state.workload
        };
        self.bar.set_position(workload * PARTS + u64::from(progress.done) * PARTS / u64::from(progress.total.max(1)));
        self.bar.set_message(words.clone());
        self.watched(&format!("{words}\n{}", DeviceUse::HEAD));
    }

    fn begin(&self, workload: &'static str, target: &str, process: Option<u32>) {
        let Some(directory) = &self.flames else { return };
        // Later rounds replace earlier ones.
        let name = format!("{workload}-{target}").replace('/', "_");
        match Sampling::start(directory, &name, process) {
            Ok(sampling) => *self.sampling.lock() = Some((sampling, format!("{workload} on {target}"))),
            Err(error) => self.complain(&format!("no flame graph: {error:#}")),
        }
    }

    fn end(&self) {
        let sampling = self.sampling.lock().take();
        let Some((sampling, title)) = sampling else { return };
        match sampling.graph(&title) {
            Ok(graph) => graph.remark.iter().for_each(|remark| self.complain(&format!("the flame graph of {title}, its own process: {remark}"))),
            Err(error) => self.complain(&format!("no flame graph of {title}: {error:#}")),
        }
    }

    fn wants_pool_lines(&self) -> bool {
        self.samples.lock().is_some() || self.to_terminal
    }

    fn pool_line(&self, line: &str) {
        self.watched(&format!("{POOL}{line}"));
    }

    fn sample(&self, sample: &[DeviceUse]) {
        let sum = |of: fn(&DeviceUse) -> f64| sample.iter().map(of).sum::<f64>() / 1024.0;
        let (read, written) = (sum(|device| device.read_kilobytes_per_second), sum(|device| device.written_kilobytes_per_second));
        self.bar.set_message(format!("{}  disk: {read:.0} MB/s read, {written:.0} MB/s written", self.state.lock().words));
        let lines: Vec<String> = sample.iter().map(DeviceUse::line).collect();
        if !lines.is_empty() {
            self.watched(&lines.join("\n"));
        }
    }
}
