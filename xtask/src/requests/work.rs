//! What is done on the mount while its requests are counted.
//!
//! # Theory
//!
//! Each piece of work begins in an empty directory and prepares it uncounted. What it prepared is known to the kernel, as it is to a user
//! that goes on with what another program has just left.

use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use lab::process;
use lab::target::Target;
use lab::workload::postmark::Postmark;
use lab::workload::{Round, Workload};

/// As the figures of the issue were measured.
const POSTMARK: [(&str, u64); 2] = [("files", 5_000), ("transactions", 50_000)];
const FILES_IN_DIRECTORY: usize = 50;

/// What is wanted.
#[derive(Debug, Clone, Copy)]
pub(super) enum Wanted {
    /// So many requests at the most.
    InAll(u64),
    /// So many for each unit.
    Each(f64),
}

/// Where work is done.
pub(super) struct Ground<'a> {
    pub(super) target: &'a dyn Target,
    pub(super) scratch: &'a Path,
    pub(super) files: usize,
    pub(super) seed: u64,
}

/// Something that is counted.
pub(super) struct Counted<'a> {
    pub(super) name: &'static str,
    /// Of these there are so many.
    pub(super) unit: &'static str,
    pub(super) units: u64,
    pub(super) wanted: Option<Wanted>,
    pub(super) run: Box<dyn FnOnce() -> Result<()> + 'a>,
}

/// A name on the command line, what it is, and what prepares it in a directory. `None`: what it takes is not installed.
pub(super) struct Work {
    pub(super) name: &'static str,
    pub(super) about: &'static str,
    pub(super) begin: for<'a> fn(&'a Ground<'_>, PathBuf) -> Result<Option<Vec<Counted<'a>>>>,
}

pub(super) const WORK: [Work; 7] = [
    Work { name: "postmark", about: "5,000 files, 50,000 transactions", begin: postmark },
    Work { name: "tar", about: "tar -x of a tree of small files", begin: tar },
    Work { name: "rm", about: "rm -r of that tree, just unpacked", begin: remove },
    Work { name: "unlink", about: "its files alone, one by one", begin: unlink },
    Work { name: "stat", about: "stat of its files, each of which was looked at before", begin: stat },
    Work { name: "git", about: "git status twice, of a repository of that tree", begin: git },
    Work { name: "build", about: "cargo build of a small program, or cc of one, there", begin: build },
];

fn postmark<'a>(ground: &'a Ground<'_>, place: PathBuf) -> Result<Option<Vec<Counted<'a>>>> {
    let mut workload = Postmark::new();
    for (name, value) in POSTMARK {
        workload.parameters_mut().set(name, value)?;
    }
    let transactions = workload.parameters().get("transactions");
    let run = move || workload.measure(&Round::new(ground.target, &place, 0, ground.seed)).map(drop);
    Ok(Some(vec![Counted { name: "postmark", unit: "transaction", units: transactions, wanted: Some(Wanted::InAll(200_000)), run: Box::new(run) }]))
}

/// Paths of the tree's files.
fn names(files: usize) -> impl Iterator<Item = String> {
    (0..files).map(|number| format!("tree/d{}/file-{number}", number / FILES_IN_DIRECTORY))
}

/// Makes the tree: files of some hundred bytes to 8 KB, in directories of fifty.
fn make_tree(ground: &Ground<'_>, place: &Path) -> Result<()> {
    for (number, name) in names(ground.files).enumerate() {
        let path = place.join(name);
        if number % FILES_IN_DIRECTORY == 0 {
            fs::create_dir_all(path.parent().context("a file is in a directory")?)?;
        }
        let lines = 10 + number * 37 % 230;
        let text = (0..lines).fold(String::new(), |mut text, line| {
            let _ = writeln!(text, "{number} {line}: what is in here, in words");
            text
        });
        fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
    }
    Ok(())
}

/// The tree as an archive, elsewhere; made once.
fn archive(ground: &Ground<'_>) -> Result<Option<PathBuf>> {
    if process::find("tar").is_none() {
        return Ok(None);
    }
    let archive = ground.scratch.join("tree.tar");
    if !archive.exists() {
        make_tree(ground, ground.scratch)?;
        run(process::command("tar").arg("-C").arg(ground.scratch).arg("-cf").arg(&archive).arg("tree"))?;
    }
    Ok(Some(archive))
}

fn run(command: &mut Command) -> Result<()> {
    command.stdin(Stdio::null());
    process::succeed(command).map(drop)
}

fn unpack(archive: &Path, place: &Path) -> Result<()> {
    run(process::command("tar").arg("-C").arg(place).arg("-xf").arg(archive))
}

fn tar<'a>(ground: &'a Ground<'_>, place: PathBuf) -> Result<Option<Vec<Counted<'a>>>> {
    let Some(archive) = archive(ground)? else { return Ok(None) };
    let run = move || unpack(&archive, &place);
    Ok(Some(vec![Counted { name: "tar -x", unit: "file", units: ground.files as u64, wanted: Some(Wanted::Each(4.0)), run: Box::new(run) }]))
}

/// What is done to the tree when it has been unpacked.
fn on_tree<'a>(ground: &'a Ground<'_>, place: PathBuf, name: &'static str, wanted: Option<Wanted>, work: fn(&Ground<'_>, &Path) -> Result<()>) -> Result<Option<Vec<Counted<'a>>>> {
    let Some(archive) = archive(ground)? else { return Ok(None) };
    unpack(&archive, &place)?;
    let run = move || work(ground, &place);
    Ok(Some(vec![Counted { name, unit: "file", units: ground.files as u64, wanted, run: Box::new(run) }]))
}

fn remove<'a>(ground: &'a Ground<'_>, place: PathBuf) -> Result<Option<Vec<Counted<'a>>>> {
    on_tree(ground, place, "rm -r", None, |_, place| run(process::command("rm").arg("-r").arg(place.join("tree"))))
}

fn unlink<'a>(ground: &'a Ground<'_>, place: PathBuf) -> Result<Option<Vec<Counted<'a>>>> {
    on_tree(ground, place, "unlink", Some(Wanted::Each(1.0)), |ground, place| Ok(names(ground.files).try_for_each(|name| fs::remove_file(place.join(name)))?))
}

/// The plain call, which most programs use: that of the standard library also asks when a file was made, which the kernel remembers of no file.
fn look_at_all(ground: &Ground<'_>, place: &Path) -> Result<()> {
    Ok(names(ground.files).try_for_each(|name| rustix::fs::stat(place.join(name)).map(drop))?)
}

fn stat<'a>(ground: &'a Ground<'_>, place: PathBuf) -> Result<Option<Vec<Counted<'a>>>> {
    let known = place.clone();
    let counted = on_tree(ground, place, "stat", Some(Wanted::Each(0.0)), look_at_all)?;
    if counted.is_some() {
        look_at_all(ground, &known)?;
    }
    Ok(counted)
}

/// git with no settings of the user's, for `place`.
fn git_in(place: &Path, words: &[&str]) -> Command {
    let mut command = process::command("git");
    command.arg("-C").arg(place).args(["-c", "user.name=n", "-c", "user.email=e@example.org", "-c", "safe.directory=*"]).args(words);
    command.env("GIT_CONFIG_GLOBAL", "/dev/null").env("GIT_CONFIG_NOSYSTEM", "1");
    command
}

fn git<'a>(ground: &'a Ground<'_>, place: PathBuf) -> Result<Option<Vec<Counted<'a>>>> {
    if process::find("git").is_none() {
        return Ok(None);
    }
    let Some(archive) = archive(ground)? else { return Ok(None) };
    unpack(&archive, &place)?;
    for words in [&["init", "-q"][..], &["add", "."], &["commit", "-q", "-m", "all"]] {
        run(&mut git_in(&place, words))?;
    }
    let counted = |name| {
        let place = place.clone();
        let run = move || {
            let said = process::succeed(git_in(&place, &["status", "--porcelain"]).stdin(Stdio::null()))?;
            ensure!(said.is_empty(), "git finds changes where there are none: {said}");
            Ok(())
        };
        Counted { name, unit: "file", units: ground.files as u64, wanted: None, run: Box::new(run) }
    };
    Ok(Some(vec![counted("git status"), counted("once more")]))
}

const MODULES: usize = 8;

fn build<'a>(_: &'a Ground<'_>, place: PathBuf) -> Result<Option<Vec<Counted<'a>>>> {
    let program = match ["cargo", "cc"].into_iter().find(|program| process::find(program).is_some()) {
        Some(program) => program,
        None => return Ok(None),
    };
    let source = place.join("src");
    fs::create_dir(&source)?;
    if program == "cc" {
        fs::write(source.join("main.c"), "#include <stdio.h>\nint main(void) { puts(\"made here\"); return 0; }\n")?;
    } else {
        fs::write(place.join("Cargo.toml"), "[package]\nname = \"small\"\nversion = \"0.1.0\"\nedition = \"2021\"\n\n[workspace]\n")?;
        let modules: Vec<String> = (0..MODULES).map(|number| format!("m{number}")).collect();
        for module in &modules {
            fs::write(source.join(format!("{module}.rs")), "pub fn words() -> Vec<String> {\n    (0..9).map(|n| format!(\"{n}\")).collect()\n}\n")?;
        }
        let main = modules.iter().fold(String::new(), |text, module| text + &format!("mod {module};\n"));
        let calls = modules.iter().fold(String::new(), |text, module| text + &format!("    println!(\"{{:?}}\", {module}::words());\n"));
        fs::write(source.join("main.rs"), format!("{main}\nfn main() {{\n{calls}}}\n"))?;
    }
    let run = move || {
        let mut command = process::command(program);
        match program {
            "cc" => command.args(["-O2", "-o"]).arg(place.join("small")).arg(source.join("main.c")),
            _ => command.args(["build", "--quiet", "--offline"]).env("CARGO_TARGET_DIR", place.join("target")).env_remove("RUSTC_WRAPPER"),
        };
        run(command.current_dir(&place))
    };
    Ok(Some(vec![Counted { name: program, unit: "build", units: 1, wanted: None, run: Box::new(run) }]))
}
