//! A source tree checked out (*bringover*) and built (*nightly*), alone and two at once.
//!
//! # Theory
//!
//! The published ones took a Solaris source tree out of its repository and built it. Here the tree is any git
//! repository, this project's own unless [`set_tree`] names another, and the build is a command, `cargo build` of the
//! lowest crates or `make` unless [`set_build`] names another. Files are read from the repository's own file system; all
//! that is made is made on the one that is measured. Checkout and build compete for processors, and the builds are
//! mostly computing: that is the point of them.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use crate::workload::together::{Ground, together};
use crate::workload::{Figure, MOST_SECONDS, Parameter, Parameters, Published, Round, Workload, described};
use crate::process;

static TREE: OnceLock<PathBuf> = OnceLock::new();
static BUILD: OnceLock<String> = OnceLock::new();

const LIMIT: Duration = Duration::from_secs(4 * 3600);

/// The repository that is checked out; at most once, before anything runs.
pub fn set_tree(path: PathBuf) {
    let _ = TREE.set(path);
}

/// The command that builds it, run by a shell in its directory; at most once.
pub fn set_build(command: String) {
    let _ = BUILD.set(command);
}

/// What was named, or the repository that this program was built from, or that it is run in.
fn tree() -> Option<PathBuf> {
    if let Some(named) = TREE.get() {
        return Some(named.clone());
    }
    let built_from = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).map(Path::to_owned);
    let run_in = std::env::current_dir().ok();
    built_from.into_iter().chain(run_in).find(|path| path.join(".git").exists())
}

/// The command for a tree with these files in it.
fn build_command(tree: &Path) -> Option<String> {
    if let Some(named) = BUILD.get() {
        return Some(named.clone());
    }
    let jobs = std::thread::available_parallelism().map_or(1, usize::from);
    if tree.join("crates/ondisk").exists() {
        return Some("cargo build --offline --quiet --package ondisk".to_owned());
    }
    if tree.join("Cargo.toml").exists() {
        return Some("cargo build --offline --quiet".to_owned());
    }
    tree.join("Makefile").exists().then(|| format!("make -s -j{jobs}"))
}

fn missing_tree() -> Option<String> {
    if process::find("git").is_none() {
        return Some("git is not installed (apt-get install git)".to_owned());
    }
    match tree() {
        None => Some("there is no git repository to check out; name one with --tree DIR".to_owned()),
        Some(tree) if !tree.join(".git").exists() => Some(format!("{} is no git repository", tree.display())),
        Some(_) => None,
    }
}

/// Clones the tree into a directory of the file system that is measured. Seconds.
fn check_out(ground: Ground<'_>, name: &str) -> Result<f64> {
    let tree = tree().context("no tree")?;
    let started = Instant::now();
    let mut command = process::command("git");
    // Without --no-local, git would link the objects or copy them past itself; the name of the current branch is all that is needed.
    command
        .args(["clone", "--quiet", "--no-local", "--depth=1", "--single-branch"])
        .arg(format!("file://{}", tree.canonicalize()?.display()));
    process::attended_success(command.arg(ground.directory.join(name)).stdin(Stdio::null()), LIMIT)?;
    Ok(started.elapsed().as_secs_f64())
}

/// Builds what was checked out, after removing what an earlier build made. Seconds.
fn build(ground: Ground<'_>, name: &str, clobber: bool) -> Result<f64> {
    let tree = ground.directory.join(name);
    let words = build_command(&tree)
        .with_context(|| format!("{}: it is not known how to build it; name a command with --build", tree.display()))?;
    let started = Instant::now();
    if clobber {
        let mut clean = process::command("git");
        process::attended_success(clean.arg("-C").arg(&tree).args(["clean", "-fdxq"]).stdin(Stdio::null()), LIMIT)?;
    }
    let mut command = Command::new("sh");
    // What the caller has set for its own builds would send the results elsewhere.
    command.args(["-c", &words]).current_dir(&tree).env_remove("CARGO_TARGET_DIR").env_remove("RUSTFLAGS").stdin(Stdio::null());
    process::attended_success(&mut command, LIMIT)?;
    Ok(started.elapsed().as_secs_f64())
}

/// Two at once, the second of which starts later. Seconds until both have ended.
fn two_at_once(delay: Duration, work: impl Fn(&str) -> Result<f64> + Sync) -> Result<f64> {
    let started = Instant::now();
    together(2, |number| {
        if number == 1 {
            std::thread::sleep(delay);
        }
        work(["first", "second"][number as usize])
    })?;
    Ok(started.elapsed().as_secs_f64())
}

const fn published(figure: &'static str, system: &'static str, value: f64) -> Published {
    Published { figure, system, value }
}

const UFS: &str = "UFS";
const ZFS: &str = "ZFS";
const COMPRESSED: &str = "ZFS, compression=on";
const DELAY: Parameter = Parameter::scaled("delay", "seconds after which the second one starts", 10, 0).at_most(MOST_SECONDS);

/// The checkout.
pub struct Bringover {
    parameters: Parameters,
}

static BRINGOVER: [Published; 6] = [
    published("checkout", UFS, 451.42),
    published("checkout", ZFS, 385.35),
    published("checkout", COMPRESSED, 392.13),
    published("two checkouts at once", UFS, 837.95),
    published("two checkouts at once", ZFS, 501.28),
    published("two checkouts at once", COMPRESSED, 588.18),
];

impl Default for Bringover {
    fn default() -> Self {
        Self::new()
    }
}

impl Bringover {
    /// As published, but for the tree.
    pub fn new() -> Bringover {
        Bringover { parameters: Parameters::new(&[DELAY]) }
    }
}

impl Workload for Bringover {
    described!("bringover", "a source tree checked out, and two at once (git)");

    fn published(&self) -> &'static [Published] {
        &BRINGOVER
    }

    fn space_bytes(&self) -> u64 {
        4 << 30
    }

    fn missing(&self) -> Option<String> {
        missing_tree()
    }

    fn measure(&self, round: &Round<'_>) -> Result<Vec<Figure>> {
        let ground = Ground::from(round);
        let one = check_out(ground, "alone")?;
        let two = two_at_once(Duration::from_secs(self.parameters.get("delay")), |name| check_out(ground, name))?;
        Ok(vec![Figure::seconds("checkout", one), Figure::seconds("two checkouts at once", two)])
    }
}

/// The build.
pub struct Nightly {
    parameters: Parameters,
}

static NIGHTLY: [Published; 10] = [
    published("build 1", UFS, 5948.0),
    published("build 2", UFS, 6361.0),
    published("build 3", UFS, 6476.0),
    published("build 1", ZFS, 6128.0),
    published("build 2", ZFS, 6227.0),
    published("build 3", ZFS, 6290.0),
    published("build 1", COMPRESSED, 6194.0),
    published("two builds at once", UFS, 29_382.0),
    published("two builds at once", ZFS, 12_855.0),
    published("two builds at once", COMPRESSED, 12_635.0),
];

impl Default for Nightly {
    fn default() -> Self {
        Self::new()
    }
}

impl Nightly {
    /// As published, but for the tree.
    pub fn new() -> Nightly {
        let trials =
            Parameter::scaled("trials", "builds one after the other; the second on removes what the one before made", 3, 1).at_most(1000);
        Nightly { parameters: Parameters::new(&[trials, DELAY]) }
    }
}

impl Workload for Nightly {
    described!("nightly", "a source tree built, again, and two at once (cargo or make)");

    fn published(&self) -> &'static [Published] {
        &NIGHTLY
    }

    fn space_bytes(&self) -> u64 {
        8 << 30
    }

    fn missing(&self) -> Option<String> {
        let unbuildable = || tree().is_some_and(|tree| build_command(&tree).is_none());
        missing_tree()
            .or_else(|| unbuildable().then(|| "it is not known how to build that tree; name a command with --build".to_owned()))
    }

    fn prepare(&self, round: &Round<'_>) -> Result<()> {
        ["alone", "first", "second"].iter().try_for_each(|name| check_out(Ground::from(round), name).map(drop))
    }

    fn measure(&self, round: &Round<'_>) -> Result<Vec<Figure>> {
        let ground = Ground::from(round);
        let mut figures = Vec::new();
        for trial in 1..=self.parameters.get("trials") {
            figures.push(Figure::seconds(format!("build {trial}"), build(ground, "alone", trial > 1)?));
        }
        let two = two_at_once(Duration::from_secs(self.parameters.get("delay")), |name| build(ground, name, false))?;
        figures.push(Figure::seconds("two builds at once", two));
        Ok(figures)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sim::places::skipped;
    use crate::target::{HostDirectory, Target};

    /// A repository of three files whose build makes one more.
    fn repository(directory: &Path) {
        std::fs::create_dir(directory).unwrap();
        for (name, text) in [("a.txt", "a"), ("b.txt", "b"), ("Makefile", "made: a.txt b.txt\n\tcat a.txt b.txt > made\n")] {
            std::fs::write(directory.join(name), text).unwrap();
        }
        let git = |words: &[&str]| {
            let named = ["-c", "user.name=n", "-c", "user.email=e@example.org", "-c", "commit.gpgsign=false"];
            process::succeed(process::command("git").arg("-C").arg(directory).args(named).args(words)).unwrap();
        };
        git(&["init", "-q"]);
        git(&["add", "."]);
        git(&["commit", "-q", "-m", "all"]);
    }

    /// Both in one test: the tree is set once for the process.
    #[test]
    fn the_tree_is_checked_out_and_built() {
        if ["git", "make"].iter().any(|program| process::find(program).is_none()) {
            skipped("bringover and nightly: git or make is not installed");
            return;
        }
        let host = HostDirectory::new("host", &std::env::temp_dir()).unwrap();
        let tree = host.directory().join("tree");
        repository(&tree);
        set_tree(tree);
        let directory = host.directory().join("work");
        std::fs::create_dir(&directory).unwrap();
        let round = Round::new(&host, &directory, 0, 1);
        let mut bringover = Bringover::new();
        bringover.parameters_mut().set("delay", 0).unwrap();
        assert_eq!(bringover.missing(), None);
        assert_eq!(bringover.measure(&round).unwrap().len(), 2);
        for name in ["alone", "first", "second"] {
            assert_eq!(std::fs::read_to_string(directory.join(name).join("b.txt")).unwrap(), "b");
            std::fs::remove_dir_all(directory.join(name)).unwrap();
        }
        let mut nightly = Nightly::new();
        nightly.parameters_mut().set("delay", 0).unwrap();
        nightly.prepare(&round).unwrap();
        assert_eq!(nightly.measure(&round).unwrap().len(), 4);
        for name in ["alone", "first", "second"] {
            assert_eq!(std::fs::read_to_string(directory.join(name).join("made")).unwrap(), "ab");
        }
    }
}
