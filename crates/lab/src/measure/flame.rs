//! Where the processors' time goes while a workload runs: perf samples the whole machine, and a graph is made of it.
//!
//! # Theory
//!
//! A graph of everything, and one of the process that serves the file system, where one does. The kernel walks a program's stack by its frame
//! pointers, which a program has if it was built so: a graph of one that was not is told ([`HOW_TO_BUILD`]). The folded stacks are kept
//! beside each graph. Of two directories of them, made with two builds, [`compare`] makes a page that shows both builds side
//! by side, and their difference: drawn like the later one, red where it spends more than the earlier one did, blue where
//! less, both counts scaled to the same total.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::{BufReader, BufWriter};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use inferno::collapse::Collapse;
use inferno::collapse::perf::{Folder, Options};
use maud::{DOCTYPE, html};
use rustix::process::{Pid, Signal};

use crate::process;

/// Samples a second, by the clock, which virtual machines have too; no multiple of what timers tick in.
const RATE: &str = "199";
/// Frames of a stack that are kept: those of programs without frame pointers lead nowhere, in a hundred steps.
const DEEPEST: &str = "64";
/// Percent of the samples that a frame must have to be drawn.
const NARROWEST: f64 = 0.1;
const PATIENCE: Duration = Duration::from_secs(20);
/// Of the page that shows two builds; also the style of other pages.
const STYLE: &str = include_str!("../report/page.css");

/// How a program comes to have frame pointers.
const HOW_TO_BUILD: &str =
    "most of its stacks end at the first function: RUSTFLAGS='-C force-frame-pointers=yes' cargo build --release --target-dir target/frames";

/// What came of it.
pub struct Graph {
    pub svg: PathBuf,
    /// Why the graph of the process says little, if it does.
    pub remark: Option<String>,
}

/// perf at work.
pub struct Sampling {
    child: Child,
    data: PathBuf,
    process: Option<u32>,
}

/// What perf takes and this machine has not.
pub fn missing() -> Option<String> {
    process::find("perf").is_none().then(|| "perf is not installed (apt-get install linux-perf)".to_owned())
}

impl Sampling {
    /// Begins; the samples go into `directory`. `process` gets a graph of its own, too.
    pub fn start(directory: &Path, name: &str, process: Option<u32>) -> Result<Sampling> {
        if let Some(missing) = missing() {
            bail!(missing);
        }
        fs::create_dir_all(directory).with_context(|| format!("cannot make {}", directory.display()))?;
        let data = directory.join(format!("{name}.perf"));
        let mut command = process::command("perf");
        command
            .args(["record", "--quiet", "--event", "cpu-clock", "--all-cpus", "--call-graph", "fp", "--freq", RATE, "--output"])
            .arg(&data);
        let child = command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .process_group(0)
            .spawn()
            .context("cannot run perf")?;
        let mut sampling = Sampling { child, data, process };
        sampling.wait_until_it_samples()?;
        Ok(sampling)
    }

    /// What is measured may be over before perf has begun: it writes the head of its file when it has its events.
    fn wait_until_it_samples(&mut self) -> Result<()> {
        let began = Instant::now();
        while fs::metadata(&self.data).map_or(0, |data| data.len()) == 0 {
            if let Some(status) = self.child.try_wait()? {
                bail!("perf cannot sample here: {status} (is kernel.perf_event_paranoid above -1?)");
            }
            if began.elapsed() > PATIENCE {
                bail!("perf does not begin");
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(())
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

    /// The stacks of all samples, or of those of a process, into `folded`, if there are any.
    fn fold(&self, process: Option<u32>, folded: PathBuf) -> Result<Option<PathBuf>> {
        let script = folded.with_extension("script");
        let mut command = process::command("perf");
        command.args(["script", "--max-stack", DEEPEST, "--input"]).arg(&self.data);
        if let Some(process) = process {
            command.args(["--pid", &process.to_string()]);
        }
        let output = process::attended_success(command.stdin(Stdio::null()), PATIENCE * 6)?;
        fs::write(&script, without_blanks(&output.stdout))?;
        let collapsed = Folder::from(Options::default()).collapse_file(Some(&script), BufWriter::new(File::create(&folded)?));
        fs::remove_file(&script)?;
        collapsed.context("cannot fold what perf sampled")?;
        fs::write(&folded, without_numbers(&fs::read_to_string(&folded)?))?;
        if fs::metadata(&folded)?.len() > 0 {
            return Ok(Some(folded));
        }
        fs::remove_file(folded)?;
        Ok(None)
    }

    /// Ends, and makes the graphs: `NAME.folded`, `NAME.svg`, and `NAME-process` of both.
    pub fn graph(mut self, title: &str) -> Result<Graph> {
        self.end()?;
        let folded = self.data.with_extension("folded");
        let own = self.process.map(|process| self.fold(Some(process), beside(&folded, "-process.folded")));
        let whole = self.fold(None, folded);
        fs::remove_file(&self.data)?;
        let mut remark = None;
        if let Some(own) = own.transpose()?.flatten() {
            draw(&own, &format!("{title}: the process that serves it"))?;
            remark = is_shallow(&fs::read_to_string(&own)?).then(|| HOW_TO_BUILD.to_owned());
        }
        Ok(Graph { svg: draw(&whole?.context("perf took no samples")?, title)?, remark })
    }
}

impl Drop for Sampling {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Whether most samples are of stacks with one function of the program's own, as those without frame pointers are.
fn is_shallow(folded: &str) -> bool {
    let (mut all, mut shallow) = (0, 0);
    for line in folded.lines() {
        let Some((stack, count)) = line.rsplit_once(' ') else { continue };
        let count: u64 = count.parse().unwrap_or(0);
        // After the thread's name; what the kernel does begins with how it was entered.
        let own = stack.split(';').skip(1).take_while(|frame| !frame.starts_with("entry_") && !frame.starts_with("asm_")).count();
        all += count;
        shallow += if own < 2 { count } else { 0 };
    }
    shallow * 2 > all
}

/// Threads that do the same, `zio-write-0` and `zio-write-1`, as one: which of them did how much differs from run to run, and would be all
/// that a difference shows.
fn without_numbers(folded: &str) -> String {
    let mut counts: BTreeMap<String, u64> = BTreeMap::new();
    for line in folded.lines() {
        let Some((stack, count)) = line.rsplit_once(' ') else { continue };
        let (thread, frames) = stack.split_once(';').unwrap_or((stack, ""));
        let name = thread.trim_end_matches(|c: char| c.is_ascii_digit() || ".-:/_".contains(c));
        let name = if name.is_empty() { thread } else { name };
        let stack = if frames.is_empty() { name.to_owned() } else { format!("{name};{frames}") };
        *counts.entry(stack).or_default() += count.parse::<u64>().unwrap_or(0);
    }
    counts.iter().map(|(stack, count)| format!("{stack} {count}\n")).collect()
}

/// `DIR/NAME` and an ending.
fn beside(path: &Path, ending: &str) -> PathBuf {
    path.with_file_name(format!("{}{ending}", path.file_stem().unwrap_or_default().to_string_lossy()))
}

fn draw(folded: &Path, title: &str) -> Result<PathBuf> {
    let svg = folded.with_extension("svg");
    let mut options = inferno::flamegraph::Options::default();
    options.title = title.to_owned();
    options.min_width = NARROWEST;
    inferno::flamegraph::from_reader(&mut options, BufReader::new(File::open(folded)?), BufWriter::new(File::create(&svg)?))
        .with_context(|| format!("cannot draw {}", folded.display()))?;
    Ok(svg)
}

/// The names of the folded stacks in a directory.
fn names(directory: &Path) -> Result<Vec<String>> {
    let entries = fs::read_dir(directory).with_context(|| format!("cannot read {}", directory.display()))?;
    let mut names = Vec::new();
    for entry in entries {
        let path = entry?.path();
        if path.extension() == Some(OsStr::new("folded")) {
            names.extend(path.file_stem().map(|stem| stem.to_string_lossy().into_owned()));
        }
    }
    // The process that serves comes before the machine that it serves on.
    names.sort_by_key(|name| (!name.ends_with("-process"), name.clone()));
    Ok(names)
}

/// One name of both directories: the earlier graph, the later one, the difference.
fn compare_one(before: &Path, after: &Path, directory: &Path, name: &str) -> Result<()> {
    let (old, new) = (before.join(format!("{name}.folded")), after.join(format!("{name}.folded")));
    for (from, when) in [(&old, "before"), (&new, "after")] {
        let copy = directory.join(format!("{name}-{when}.folded"));
        fs::copy(from, &copy).with_context(|| format!("cannot copy {}", from.display()))?;
        draw(&copy, &format!("{name}, {when}"))?;
        fs::remove_file(copy)?;
    }
    let difference = directory.join(format!("{name}-difference.folded"));
    let options = inferno::differential::Options { normalize: true, ..inferno::differential::Options::default() };
    inferno::differential::from_files(options, &old, &new, BufWriter::new(File::create(&difference)?))
        .with_context(|| format!("cannot compare {} with {}", old.display(), new.display()))?;
    draw(&difference, &format!("{name}: red is more than before, blue is less"))?;
    Ok(())
}

/// The page, and the graphs beside it, of all names that both directories have. Returns these.
///
/// # Errors
/// They have none in common, or a file cannot be read or written.
pub fn compare(before: &Path, after: &Path, directory: &Path) -> Result<Vec<String>> {
    let (old, mut both) = (names(before)?, names(after)?);
    both.retain(|name| old.contains(name));
    ensure!(
        !both.is_empty(),
        "{} and {} have no folded stacks of the same name (fsperf run --flames DIR makes them)",
        before.display(),
        after.display()
    );
    fs::create_dir_all(directory).with_context(|| format!("cannot make {}", directory.display()))?;
    both.iter().try_for_each(|name| compare_one(before, after, directory, name))?;
    fs::write(directory.join("index.html"), page(before, after, &both))?;
    Ok(both)
}

fn page(before: &Path, after: &Path, names: &[String]) -> String {
    let mut style = STYLE.to_owned();
    let _ = write!(style, "object {{ width: 100%; border: 1px solid var(--faint); background: #fff; }}");
    let shown = |name: &str, when: &str| {
        html! {
            figure {
                figcaption { (when) " (" a href={ (name) "-" (when) ".svg" } { "by itself" } ")" }
                object data={ (name) "-" (when) ".svg" } type="image/svg+xml" {}
            }
        }
    };
    html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                title { "fsperf: two builds in flames" }
                style { (maud::PreEscaped(style)) }
            }
            body {
                h1 { "On-CPU samples of two builds" }
                p { "Before: " code { (before.display()) } ". After: " code { (after.display()) } "." }
                p { "The difference is drawn like the later one: red took more of the samples than before, blue less." }
                @for name in names {
                    h2 { (name) }
                    div.grid { (shown(name, "before")) (shown(name, "after")) }
                    (shown(name, "difference"))
                }
            }
        }
    }
    .into_string()
}

/// What perf wrote, without blanks in the names of files: the folding takes a frame's last word for its file.
fn without_blanks(script: &str) -> String {
    const BEFORE_FILE: &str = " (/";
    let line = |line: &str| match line.find(BEFORE_FILE).filter(|_| line.starts_with(char::is_whitespace)) {
        Some(at) => format!("{} {}", &line[..at], line[at + 1..].replace(' ', "_")),
        None => line.to_owned(),
    };
    script.split('\n').map(line).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use sim::places::skipped;

    /// In a checkout below `/f x y` no frame of the program was in its own graph.
    #[test]
    fn files_may_have_blanks_in_their_names() {
        let script = "a b 12 [000] 1.0:  1 cycles:\n\t  55d0 <f as g>::h+0x1 (/f x y/lab)\n\t  7f00 i (/memfd:a (deleted))\n\t  9 j ([k])\n\n";
        let folded = "a b 12 [000] 1.0:  1 cycles:\n\t  55d0 <f as g>::h+0x1 (/f_x_y/lab)\n\t  7f00 i (/memfd:a_(deleted))\n\t  9 j ([k])\n\n";
        assert_eq!(without_blanks(script), folded);
    }

    #[test]
    fn a_busy_machine_has_a_graph() {
        let scratch = tempfile::tempdir().unwrap();
        let sampling = match Sampling::start(scratch.path(), "busy", Some(std::process::id())) {
            Ok(sampling) => sampling,
            Err(error) => return skipped(&format!("flame graphs: {error:#}")),
        };
        let began = Instant::now();
        while began.elapsed() < Duration::from_millis(1200) {
            std::hint::black_box(began);
        }
        match sampling.graph("busy") {
            Ok(graph) => {
                assert!(fs::read_to_string(graph.svg).unwrap().contains("<svg"));
                let own = fs::read_to_string(scratch.path().join("busy-process.folded")).unwrap();
                assert!(own.contains("a_busy_machine_has_a_graph"), "this very function was busy: {own}");
            }
            Err(error) => skipped(&format!("flame graphs: perf cannot sample here: {error:#}")),
        }
        assert!(!scratch.path().join("busy.script").exists());
    }

    #[test]
    fn threads_of_a_kind_are_one() {
        let folded = "zio-write-0;sum 3\nzio-write-1;sum 4\ntarn-fuse-q1.2;[unknown];read it 5\n42 6\nrustc 7\n";
        assert_eq!(without_numbers(folded), "42 6\nrustc 7\ntarn-fuse-q;[unknown];read it 5\nzio-write;sum 7\n");
    }

    /// Two thirds of what the daemon did while PostMark ran had no caller, and nothing said why.
    #[test]
    fn programs_without_frame_pointers_are_told() {
        let without = "fuse-crew;syscall;entry_SYSCALL_64_after_hwframe;do_syscall_64;x 60\nfuse-crew;copy 5\nfuse-crew;a;b;c 40\n";
        assert!(is_shallow(without));
        assert!(!is_shallow(&without.replace("syscall;", "a;b;syscall;")));
        assert!(!is_shallow(""));
    }

    /// Samples are scaled to the same total first, so that only shares differ.
    #[test]
    fn the_difference_of_two_builds() {
        let scratch = tempfile::tempdir().unwrap();
        let path = |name: &str| scratch.path().join(name);
        for (directory, stacks) in [("old", "tarn;sum 30\ntarn;copy 70\n"), ("new", "tarn;sum 120\ntarn;copy 80\n")] {
            fs::create_dir(path(directory)).unwrap();
            fs::write(path(directory).join("unit01-tarn.folded"), stacks).unwrap();
        }
        fs::write(path("new").join("only-new.folded"), "a;b 1\n").unwrap();
        assert_eq!(compare(&path("old"), &path("new"), &path("both")).unwrap(), ["unit01-tarn"]);
        let difference = fs::read_to_string(path("both").join("unit01-tarn-difference.folded")).unwrap();
        let mut lines: Vec<&str> = difference.lines().collect();
        lines.sort_unstable();
        assert_eq!(lines, ["tarn;copy 140 80", "tarn;sum 60 120"]);
        for name in ["before", "after", "difference"] {
            let svg = fs::read_to_string(path("both").join(format!("unit01-tarn-{name}.svg"))).unwrap();
            assert!(svg.contains("copy"), "{name}");
        }
        let page = fs::read_to_string(path("both").join("index.html")).unwrap();
        assert!(page.contains("unit01-tarn-difference.svg"));
        let error = compare(&path("old"), &path("both"), &path("none")).unwrap_err().to_string();
        assert!(error.contains("no folded stacks of the same name"), "{error}");
    }
}
