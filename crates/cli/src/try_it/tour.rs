//! The tour itself, step by step.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result};
use indicatif::{ProgressBar, ProgressStyle};
use jiff::Timestamp;
use lab::comparator::tarn::{Layout, Pool};
use lab::interrupt;
use lab::process;
use lab::record::{Record, System};
use lab::report::table;
use lab::report::verdicts::Verdicts;
use lab::statistics;
use lab::system;
use lab::target::{HostDirectory, Prepared, Target};
use lab::undo::{self, Undo};
use lab::workload::rounds::{self, Observer, Plan, Progress};
use lab::workload::{Workload, unit};
use lab::{errln, out, outln};

use super::tree::{Bounds, Tree};
use super::{Arguments, check, place};
use crate::text::units::nice_bytes;

mod healing;

const POOL: &str = "try";
const DISKS: usize = 3;
const DISK_BYTES: u64 = 8 << 30;
/// The most bytes that are copied.
const BOUNDS: Bounds = Bounds { files: 20_000, bytes: 256 << 20 };
/// A larger tree has at least this many files, or we look for another one.
const LARGE_FILES: usize = 2_000;
const PROPERTIES: &str = "used,logicalused,compressratio,compression,checksum,recordsize,mountpoint";

/// The tour's things, in the order in which they go away.
struct Tour {
    pool: std::rc::Rc<Pool>,
    directory: PathBuf,
    /// Something was not as it should be.
    faults: usize,
    step: usize,
    started: Timestamp,
}

fn seconds_since(started: Timestamp) -> f64 {
    Timestamp::now().duration_since(started).as_secs_f64()
}

/// Runs `work` and says how long it took.
fn timed<T>(work: impl FnOnce() -> Result<T>) -> Result<(T, f64)> {
    let started = Timestamp::now();
    let value = work()?;
    Ok((value, seconds_since(started)))
}

fn bar(length: u64, template: &str) -> Result<ProgressBar> {
    let bar = ProgressBar::new(length);
    bar.set_style(ProgressStyle::with_template(template)?.progress_chars("=> "));
    Ok(bar)
}

/// Shows a command as one would type it.
fn show(command: &Command) {
    let words = command.get_args().map(|word| word.to_string_lossy().into_owned());
    outln!("   $ tarn {}", words.collect::<Vec<_>>().join(" "));
}

fn indent(text: &str) {
    for line in text.lines() {
        outln!("   {line}");
    }
}

/// Runs the tour. `false` if something was not as it should be; then it has been told.
pub(super) fn run(arguments: &Arguments) -> Result<bool> {
    place::expect_fuse()?;
    let parent = place::parent(arguments.parent.as_deref())?;
    let mut undo = Undo::new();
    let directory = undo::scratch_directory(&parent, "tarn-try-", &mut undo)?;
    let kind = system::mount_of(&directory).map_or_else(|| "host".to_owned(), |mount| mount.kind);
    outln!("TarnFS, tried out in about two minutes. It all happens in {} ({kind}),", directory.display());
    outln!("and nothing of it stays, also if you press Ctrl-C.");

    let mut outcome = Tour::begin(arguments, &directory).and_then(|mut tour| tour.go(arguments, &kind).map(|()| tour));
    if outcome.as_ref().is_err_and(|error| !interrupt::pending() && !interrupt::caused(error)) {
        show_log(&directory);
    }
    // First the pool, its daemon and its mount, then the directory.
    let whole = outcome.as_mut().map_or((0, 0.0), |tour| (tour.faults, seconds_since(tour.started)));
    let error = outcome.err();
    let remains = undo.run();
    if let Some(error) = error {
        remains.iter().for_each(|remains| errln!("warning: {remains}"));
        // Whatever failed then, failed because of it.
        return Err(if interrupt::pending() { interrupt::Interrupted.into() } else { error });
    }
    outln!("");
    for remains in &remains {
        outln!("{remains}");
    }
    if remains.is_empty() {
        outln!("Pool, daemon, mount and files are gone again. That took {:.0} seconds.", whole.1);
    }
    match whole.0 {
        0 => {}
        1 => outln!("One thing was not as it should be; see above."),
        faults => outln!("{faults} things were not as they should be; see above."),
    }
    Ok(whole.0 == 0 && remains.is_empty())
}

/// The daemon's last words, which are about to be removed with everything else.
fn show_log(directory: &Path) {
    let Ok(log) = fs::read_to_string(directory.join("socket.log")) else { return };
    let lines: Vec<&str> = log.lines().collect();
    if !lines.is_empty() {
        errln!("\nThe daemon's log ends with:");
        lines[lines.len().saturating_sub(10)..].iter().for_each(|line| errln!("   {line}"));
    }
}

impl Tour {
    fn begin(arguments: &Arguments, directory: &Path) -> Result<Tour> {
        let started = Timestamp::now();
        let (disks, mounted) = (directory.join("disks"), directory.join("pool"));
        fs::create_dir(&disks)?;
        fs::create_dir(&mounted)?;
        let files: Vec<PathBuf> = (1..=DISKS).map(|number| disks.join(format!("disk{number}"))).collect();
        for file in &files {
            File::create_new(file)?.set_len(DISK_BYTES)?;
        }
        let program = match &arguments.program {
            Some(program) => program.canonicalize()?,
            None => std::env::current_exe().context("cannot find this very program")?,
        };
        let layout = Layout {
            environment: Vec::new(),
            program,
            name: POOL.to_owned(),
            vdevs: std::iter::once("raidz".to_owned()).chain(files.iter().map(|file| file.display().to_string())).collect(),
            files,
            mounted,
            socket: directory.join("socket"),
            words: Vec::new(),
        };
        outln!("\n1. A pool on {DISKS} sparse files of {}, of which any one may fail", nice_bytes(DISK_BYTES));
        show(&Pool::create_command_of(&layout));
        let mounted = layout.mounted.clone();
        let (pool, seconds) = timed(|| Pool::create(layout))?;
        let free = system::free_space_bytes(&mounted).map_or_else(|| "?".to_owned(), nice_bytes);
        outln!("   Made and mounted in {seconds:.1} s; {free} free.");
        Ok(Tour { pool: std::rc::Rc::new(pool), directory: directory.to_owned(), faults: 0, step: 1, started })
    }

    /// Fails if the reader is gone: the tour's figures are not wanted then.
    fn headline(&mut self, words: &str) -> Result<()> {
        self.step += 1;
        outln!("\n{}. {words}", self.step);
        if out::is_unread() { Err(interrupt::Interrupted.into()) } else { Ok(()) }
    }

    fn fault(&mut self, words: &str) {
        self.faults += 1;
        outln!("   WRONG: {words}");
    }

    fn go(&mut self, arguments: &Arguments, kind: &str) -> Result<()> {
        let copies = self.copy(arguments)?;
        self.show_properties(&copies)?;
        self.headline("Let go of it, check it, take it back")?;
        self.export_and_check()?;
        self.import()?;
        self.compare(&copies)?;
        self.heal(&copies)?;
        if !arguments.no_tests {
            self.measure(arguments, kind)?;
        }
        self.headline("Checked once more")?;
        self.export_and_check()?;
        Ok(())
    }

    /// The trees to copy, each with its name in the pool.
    fn trees(arguments: &Arguments) -> Result<Vec<(String, Tree)>> {
        let mut trees = Vec::new();
        if let Some(checkout) = place::checkout() {
            trees.push(("project".to_owned(), Tree::list(&checkout, BOUNDS, &["target", ".git"])?));
        }
        let candidates = arguments.tree.clone().map_or_else(place::larger_trees, |tree| vec![tree]);
        let mut larger: Option<Tree> = None;
        for candidate in candidates.iter().filter(|candidate| arguments.tree.is_some() || candidate.is_dir()) {
            let tree = Tree::list(candidate, BOUNDS, &[])?;
            if larger.as_ref().is_none_or(|larger| tree.files > larger.files) {
                larger = Some(tree);
            }
            if larger.as_ref().is_some_and(|larger| larger.files >= LARGE_FILES) {
                break;
            }
        }
        trees.extend(larger.map(|tree| ("large".to_owned(), tree)));
        Ok(trees)
    }

    fn copy(&mut self, arguments: &Arguments) -> Result<Vec<(PathBuf, Tree)>> {
        self.headline("Real files in it")?;
        let trees = Self::trees(arguments)?;
        let (files, bytes) = trees.iter().fold((0, 0), |sum, (_, tree)| (sum.0 + tree.files, sum.1 + tree.bytes));
        for (_, tree) in &trees {
            let cut = if tree.cut { " (the first part of it)" } else { "" };
            outln!("   {}: {} files, {}{cut}", tree.root.display(), tree.files, nice_bytes(tree.bytes));
        }
        let bar = bar(bytes, "   copying [{bar:40}] {bytes}/{total_bytes}, {eta} left")?;
        let mut copies = Vec::new();
        let ((), seconds) = timed(|| {
            for (name, tree) in trees {
                let copy = self.pool.layout().mounted.join(name);
                tree.copy(&copy, &|bytes| bar.inc(bytes))?;
                copies.push((copy, tree));
            }
            process::succeed(&mut self.pool.command(&["zpool", "sync", POOL])).map(drop)
        })?;
        bar.finish_and_clear();
        let speed = bytes as f64 / f64::from(1 << 20) / seconds.max(1e-3);
        outln!("   Copied in {seconds:.1} s, on disk included: {:.0} files/s, {speed:.0} MB/s.", files as f64 / seconds.max(1e-3));
        Ok(copies)
    }

    fn show_properties(&mut self, copies: &[(PathBuf, Tree)]) -> Result<()> {
        self.headline("What the pool says about them")?;
        let mut command = self.pool.command(&["zfs", "get", "-o", "property,value,source", PROPERTIES, POOL]);
        show(&command);
        indent(&process::succeed(&mut command)?);
        let number = |property: &str| -> Result<u64> {
            let value = self.pool.get(property)?;
            value.parse().with_context(|| format!("{property} is {value}"))
        };
        let (used, logical) = (number("used")?, number("logicalused")?);
        let ratio = self.pool.get("compressratio")?;
        let bytes: u64 = copies.iter().map(|(_, tree)| tree.bytes).sum();
        outln!("   {} of files are {} of blocks, which take {} on disk; compression: {}x.", nice_bytes(bytes), nice_bytes(logical), nice_bytes(used), ratio.trim_end_matches('x'));
        Ok(())
    }

    fn export_and_check(&mut self) -> Result<()> {
        interrupt::check()?;
        show(&self.pool.command(&["zpool", "export", POOL]));
        self.pool.export()?;
        let words = check::words(&self.pool)?;
        show(&self.pool.command(&words.iter().map(String::as_str).collect::<Vec<_>>()));
        let spinner = bar(0, "   {spinner} checking")?;
        spinner.enable_steady_tick(Duration::from_millis(200));
        let outcome = timed(|| check::run(&self.pool));
        spinner.finish_and_clear();
        let (verdict, seconds) = outcome?;
        indent(&verdict.words.join("\n"));
        outln!("   Checked in {seconds:.1} s.");
        if !verdict.clean {
            self.fault("the checker found something.");
        }
        Ok(())
    }

    fn import(&self) -> Result<()> {
        interrupt::check()?;
        show(&self.pool.command(&["zpool", "import", "-d", &self.pool.folder()?.display().to_string(), POOL]));
        let ((), seconds) = timed(|| self.pool.import())?;
        outln!("   Imported and mounted in {seconds:.1} s.");
        Ok(())
    }

    fn compare(&mut self, copies: &[(PathBuf, Tree)]) -> Result<()> {
        let bytes = copies.iter().map(|(_, tree)| tree.bytes).sum();
        let bar = bar(bytes, "   comparing [{bar:40}] {bytes}/{total_bytes}, {eta} left")?;
        let (comparisons, seconds) = timed(|| {
            copies.iter().map(|(copy, tree)| tree.compare(copy, &|bytes| bar.inc(bytes))).collect::<Result<Vec<_>>>()
        })?;
        bar.finish_and_clear();
        let files: usize = comparisons.iter().map(|comparison| comparison.files).sum();
        let others: usize = comparisons.iter().map(|comparison| comparison.others).sum();
        let bytes: u64 = comparisons.iter().map(|comparison| comparison.bytes).sum();
        let changed: usize = comparisons.iter().map(|comparison| comparison.changed_meanwhile).sum();
        let differences: Vec<&String> = comparisons.iter().flat_map(|comparison| &comparison.differences).collect();
        outln!("   Compared {files} files ({}) and {others} directories and links with their originals in {seconds:.1} s:", nice_bytes(bytes));
        if changed > 0 {
            outln!("   {changed} originals have changed meanwhile and were left out.");
        }
        if differences.is_empty() {
            outln!("   every byte, every mode, every time is the same.");
        } else {
            differences.iter().take(5).for_each(|difference| outln!("   - {difference}"));
            self.fault(&format!("{} of the copies differ.", differences.len()));
        }
        Ok(())
    }

    fn measure(&mut self, arguments: &Arguments, kind: &str) -> Result<()> {
        self.headline(&format!("The fourteen unit tests, beside {kind}, taking turns"))?;
        let work = self.pool.layout().mounted.join("tests");
        fs::create_dir(&work)?;
        let pool = std::rc::Rc::clone(&self.pool);
        let tarn = Prepared::new("tarn", "", work, move || pool.drop_caches(), Undo::new());
        let host = HostDirectory::new(kind, &self.directory)?;
        let targets: [&dyn Target; 2] = [&tarn, &host];
        let plan = Plan { rounds: statistics::FEWEST as u32, scale: SCALE, enough_milliseconds: Some(ENOUGH_MILLISECONDS), ..Plan::default() };
        let mut record = Record::begin(plan);
        let system = |name: &str| System { name: name.to_owned(), description: String::new(), facts: Vec::new() };
        record.systems = vec![system("tarn"), system(kind)];
        let tests = short_tests()?;
        let bar = bar(tests.len() as u64, "   [{bar:40}] {pos}/{len} {msg}")?;
        for test in &tests {
            record.workloads.push(rounds::run(test, &targets, plan, &Shown(&bar, test.about()))?);
            bar.inc(1);
        }
        bar.finish_and_clear();
        self.show_results(&record, kind);
        if let Some(path) = &arguments.json {
            record.save(path)?;
        }
        Ok(())
    }

    fn show_results(&mut self, record: &Record, kind: &str) {
        outln!("   {}.", system::describe());
        outln!("   tarn runs in user space, and its disks are files on that {kind}: what it writes goes through both.\n");
        let verdicts = Verdicts::of(record);
        indent(&table::summary(record, &verdicts));
        outln!("");
        indent(&table::score(record, &verdicts));
        indent(&table::legend(record, &verdicts));
        let failures = record.workloads.iter().filter(|outcome| outcome.columns[0].failure.is_some()).count();
        if failures > 0 {
            self.fault(&format!("{failures} tests failed on tarn."));
        }
    }
}

/// The divisor of the published sizes: less than a minute for each target.
const SCALE: u64 = 4;
const ENOUGH_MILLISECONDS: u64 = 2_500;
const LIMIT_SECONDS: u64 = 8;
const MOST_OF_MEMORY_BYTES: u64 = 2 << 30;

fn short_tests() -> Result<Vec<unit::Unit>> {
    let mut tests = unit::all();
    for test in &mut tests {
        let parameters = test.parameters_mut();
        parameters.set("bytes", parameters.get("bytes").min(MOST_OF_MEMORY_BYTES))?;
        parameters.shrink(SCALE);
        parameters.set("limit", LIMIT_SECONDS)?;
    }
    Ok(tests)
}

/// The bar of the tests.
struct Shown<'a>(&'a ProgressBar, &'static str);

impl Observer for Shown<'_> {
    fn turn(&self, progress: &Progress<'_>) {
        self.0.set_message(format!("{} {}: {}", progress.workload, self.1, progress.target));
    }
}
