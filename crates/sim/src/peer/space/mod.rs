//! Space, byte for byte: what OpenZFS's kernel module says of operations on datasets, and of every sum of space after each.
//!
//! # Theory
//! One script ([`GUEST`]) does the steps of two lists, on a copy of the golden pool `snap` and on a new pool, and asks for the properties of every dataset, snapshot
//! and bookmark after each. In the oracle's virtual machine it runs with OpenZFS's commands; what it prints there is kept here, as tables of what each step changes.
//! A test runs it with ours. The layout of everything in a dataset is the format's and not an implementation's choice, so the figures must be equal.
//!
//! The pool's own objects are counted in its root, and depend on when groups end: [`differences`] leaves out those sums, and what depends on how well a compressor does.
//!
//! # Path
//! `cargo xtask oracle space` → [`run`]; `cli`'s test `space` → [`said`], [`differences`]

use std::collections::BTreeMap;
use std::fmt::Write;
use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};

use crate::golden::Golden;
use crate::places;

/// The script, its steps, and its properties: files by name.
pub const GUEST: [(&str, &str); 4] = [
    ("guest.sh", include_str!("guest.sh")),
    ("golden.steps", include_str!("golden.steps")),
    ("fresh.steps", include_str!("fresh.steps")),
    ("properties", include_str!("properties")),
];
/// For the whole boot, on a busy machine.
const SECONDS: u64 = 2400;
/// What a pool's root has that is the pool's.
const OF_THE_POOL: [&str; 4] = ["used", "usedbychildren", "logicalused", "compressratio"];

/// The pools.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pool {
    /// A copy of the golden pool `snap`.
    Golden,
    /// A new one.
    Fresh,
}

impl Pool {
    /// The name of its list of steps.
    pub fn name(self) -> &'static str {
        match self {
            Pool::Golden => "golden",
            Pool::Fresh => "fresh",
        }
    }

    fn root(self) -> &'static str {
        match self {
            Pool::Golden => "g_snap",
            Pool::Fresh => "fresh",
        }
    }

    /// What OpenZFS said.
    ///
    /// # Errors
    /// The table is broken.
    pub fn expected(self) -> Result<Vec<Step>> {
        let text = match self {
            Pool::Golden => include_str!("golden.table"),
            Pool::Fresh => include_str!("fresh.table"),
        };
        parse_table(text)
    }
}

/// One step, and what there is after it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Step {
    /// The operation.
    pub words: String,
    /// What it printed, and its status.
    pub said: Vec<String>,
    /// The values of the properties, by dataset.
    pub rows: BTreeMap<String, Vec<String>>,
}

fn properties() -> impl Iterator<Item = &'static str> {
    include_str!("properties").lines()
}

/// What the script printed of a pool.
///
/// # Errors
/// It is something else.
pub fn said(text: &str) -> Result<Vec<Step>> {
    let mut steps: Vec<Step> = Vec::new();
    for line in text.lines() {
        if let Some(words) = line.strip_prefix("# ") {
            steps.push(Step { words: words.to_owned(), ..Step::default() });
            continue;
        }
        let step = steps.last_mut().with_context(|| format!("before the first step: {line}"))?;
        let fields: Vec<&str> = line.split('\t').collect();
        let is_over = step.said.last().is_some_and(|said| said.starts_with("status "));
        match fields[..] {
            [dataset, property, value] if is_over => {
                let at = properties().position(|other| other == property).with_context(|| format!("{property} was not asked for"))?;
                let row = step.rows.entry(dataset.to_owned()).or_insert_with(|| vec![String::new(); properties().count()]);
                row[at] = in_order(value);
            }
            _ if is_over => bail!("{}: this is no property: {line}", step.words),
            _ => step.said.push(line.to_owned()),
        }
    }
    Ok(steps)
}

/// Clones are named in the order of a dictionary on disk, which is random.
fn in_order(value: &str) -> String {
    let mut names: Vec<&str> = value.split(',').collect();
    names.sort_unstable();
    names.join(",")
}

/// As a table: what each step said, and the rows that it changed.
fn table(steps: &[Step]) -> String {
    let (mut text, mut before) = (String::new(), BTreeMap::new());
    for step in steps {
        let _ = writeln!(text, "# {}", step.words);
        step.said.iter().for_each(|line| text += &format!("> {line}\n"));
        for (dataset, row) in step.rows.iter().filter(|(dataset, row)| before.get(*dataset) != Some(*row)) {
            let _ = writeln!(text, "{dataset}\t{}", row.join("\t"));
        }
        for gone in before.keys().filter(|dataset| !step.rows.contains_key(*dataset)) {
            let _ = writeln!(text, "{gone}\tgone");
        }
        before.clone_from(&step.rows);
    }
    text
}

fn parse_table(text: &str) -> Result<Vec<Step>> {
    let mut steps: Vec<Step> = Vec::new();
    for line in text.lines() {
        if let Some(words) = line.strip_prefix("# ") {
            let rows = steps.last().map(|step| step.rows.clone()).unwrap_or_default();
            steps.push(Step { words: words.to_owned(), rows, ..Step::default() });
            continue;
        }
        let step = steps.last_mut().with_context(|| format!("before the first step: {line}"))?;
        if let Some(said) = line.strip_prefix("> ") {
            step.said.push(said.to_owned());
            continue;
        }
        let mut fields = line.split('\t').map(str::to_owned);
        let (dataset, row) = (fields.next().unwrap_or_default(), fields.collect::<Vec<_>>());
        if row == ["gone"] {
            step.rows.remove(&dataset);
        } else {
            step.rows.insert(dataset, row);
        }
    }
    Ok(steps)
}

/// What is said, but for what only we say, and for the order of names, which below one dataset is that of a dictionary on disk.
fn comparable(said: &[String]) -> Vec<&str> {
    let mut lines: Vec<&str> = said.iter().map(String::as_str).filter(|line| !line.starts_with("warning: ")).collect();
    lines.sort_unstable();
    lines
}

/// What differs, a line for each value. `ours` may have more steps or fewer.
pub fn differences(pool: Pool, ours: &[Step], theirs: &[Step]) -> Vec<String> {
    let mut lines = Vec::new();
    for number in 0..ours.len().max(theirs.len()) {
        let (Some(ours), Some(theirs)) = (ours.get(number), theirs.get(number)) else {
            lines.push(format!("step {number}: there are {} steps, and {} of OpenZFS", ours.len(), theirs.len()));
            break;
        };
        let words = &theirs.words;
        if ours.words != *words {
            lines.push(format!("step {number}: {}; OpenZFS did: {words}", ours.words));
        }
        let (says, said) = (comparable(&ours.said), comparable(&theirs.said));
        if says != said {
            lines.push(format!("{words}: says {says:?}; OpenZFS: {said:?}"));
        }
        for dataset in ours.rows.keys().chain(theirs.rows.keys().filter(|dataset| !ours.rows.contains_key(*dataset))) {
            let (Some(mine), Some(row)) = (ours.rows.get(dataset), theirs.rows.get(dataset)) else {
                lines.push(format!("{words}: {dataset} is there only with {}", if ours.rows.contains_key(dataset) { "us" } else { "OpenZFS" }));
                continue;
            };
            // The root of the new pool has a directory that just fits its pointer or does not, as well as it is compressed.
            let is_root = dataset.split('@').next() == Some(pool.root());
            let is_of_the_pool = |property: &str| is_root && (pool == Pool::Fresh || OF_THE_POOL.contains(&property));
            let values = properties().zip(mine.iter().zip(row)).filter(|(property, (mine, their))| mine != their && !is_of_the_pool(property));
            lines.extend(values.map(|(property, (mine, their))| format!("{words}: {dataset} {property}: {mine}; OpenZFS: {their}")));
        }
    }
    lines
}

/// Writes the script and its files into a directory; with the golden pool's image, if it is there.
///
/// # Errors
/// It cannot be written.
pub fn put_script(directory: &Path) -> Result<()> {
    for (name, text) in GUEST {
        fs::write(directory.join(name), text)?;
    }
    if let Some(golden) = Golden::find("snap")? {
        fs::copy(golden.directory().join("d0.img"), directory.join("d0.img"))?;
    }
    Ok(())
}

/// Asks OpenZFS, and says how that differs from the tables that are kept, which are written anew into `place`.
///
/// # Errors
/// The machine does not run, or something differs.
pub fn run(place: &Path) -> Result<()> {
    let machine = places::in_shared("oracle/vm/run").context("no ../shared/oracle/vm/run")?;
    let (files, seen) = (place.join("files"), place.join("seen"));
    fs::create_dir_all(&files)?;
    fs::create_dir_all(&seen)?;
    put_script(&files)?;
    ensure!(files.join("d0.img").exists(), "there is no golden pool snap");
    let mut command = Command::new(machine);
    command.args(["-m", "4096", "-t", &SECONDS.to_string(), "-o"]).arg(&seen);
    command.args(["guest.sh", "golden.steps", "fresh.steps", "properties", "d0.img"].map(|name| files.join(name)));
    // One processor: with more, the number of an object depends on the processor that its maker ran on.
    command.env("ORACLE_BOOT_S", "600").env("ORACLE_SMP", "1");
    let status = command.status()?;
    ensure!(status.success(), "the virtual machine: {status}");
    let mut count = 0;
    for pool in [Pool::Golden, Pool::Fresh] {
        let steps = said(&fs::read_to_string(seen.join(format!("{}.said", pool.name())))?)?;
        let kept = place.join(format!("{}.table", pool.name()));
        fs::write(&kept, table(&steps))?;
        ensure!(parse_table(&table(&steps))? == steps, "the table does not say what was said");
        let lines = differences(pool, &pool.expected()?, &steps);
        println!("{}: {} steps, {} values; {} differ from what is kept; -> {}", pool.name(), steps.len(), values(&steps), lines.len(), kept.display());
        lines.iter().for_each(|line| println!("  {line}"));
        count += lines.len();
    }
    ensure!(count == 0, "{count} differ: look at them, and copy the tables to crates/sim/src/peer/space");
    Ok(())
}

/// How many values are compared.
pub fn values(steps: &[Step]) -> usize {
    steps.iter().map(|step| step.rows.len() * properties().count()).sum()
}
