//! What the program advises: words that were meant, settings that do nothing, verbs that there are.

use std::fs;
use std::path::Path;

use tarnfs::control::DatasetKind;
use walkdir::WalkDir;

use super::fake::FakeBackend;
use super::golden::golden;
use super::{complains, sh};
use crate::command::Action;

fn tank() -> FakeBackend {
    let mut backend = golden!("cache").backend();
    let pool = backend.pools[0].name.clone();
    for name in [pool.clone(), format!("{pool}/home"), format!("{pool}/home/joe")] {
        backend.dataset(&name, DatasetKind::Filesystem, 1, Vec::new());
    }
    backend
}

/// "no such pool" was all that was said of a name with a letter too many.
#[test]
fn a_mistyped_pool_or_dataset_is_answered_with_what_was_meant() {
    let mut backend = tank();
    let pool = backend.pools[0].name.clone();
    let (almost, hint) = (format!("{pool}x"), format!("did you mean '{pool}'?\n"));
    for (line, complaint) in [
        (format!("zpool status {almost}"), format!("cannot open '{almost}': no such pool\n")),
        (format!("zpool list {almost}"), format!("cannot open '{almost}': no such pool\n")),
        (format!("zpool destroy {almost}"), format!("cannot open '{almost}': no such pool\n")),
        (format!("zpool export {almost}"), format!("cannot open '{almost}': no such pool\n")),
        (format!("zpool get size {almost}"), format!("Cannot get properties of {almost}: no such pool available.\n")),
        (format!("zfs list {almost}"), format!("cannot open '{almost}': dataset does not exist\n")),
    ] {
        complains(&mut backend, &line, 1, &format!("{complaint}{hint}"));
    }
    for (line, meant) in [
        (format!("zfs list {pool}/hoem/joe"), format!("{pool}/home/joe")),
        (format!("zfs get used {pool}/home/jeo"), format!("{pool}/home/joe")),
        (format!("zfs set atime=off {almost}/hmoe"), format!("{pool}/home")),
        (format!("zfs create {pool}/hom/ann"), format!("{pool}/home")),
        (format!("zfs mount {pool}/HOME"), format!("{pool}/home")),
    ] {
        let ran = sh(&mut backend, &line);
        assert!(ran.code == 1 && ran.err.ends_with(&format!("\ndid you mean '{meant}'?\n")), "{line}: {}", ran.err);
    }
    for line in [format!("zfs list {pool}/nosuch"), format!("zfs list {pool}/home/joe/x"), "zpool list nosuch".to_owned()] {
        let ran = sh(&mut backend, &line);
        assert!(ran.code == 1 && !ran.err.contains("did you mean"), "{line}: {}", ran.err);
    }
    let ran = sh(&mut FakeBackend::default(), "zpool status tank");
    assert!(
        ran.code == 1 && ran.err.starts_with("cannot open 'tank': no such pool\nno pool is imported: 'tarn zpool import' lists"),
        "{}",
        ran.err
    );
}

/// `zfs set sharenfs=on` succeeded without a word, and nothing was shared.
#[test]
fn what_does_nothing_is_said_to_do_nothing() {
    let mut backend = tank();
    let pool = backend.pools[0].name.clone();
    for (line, about) in [
        (format!("zfs set sharenfs=on {pool}/home"), "sharenfs=on"),
        (format!("zfs set atime=off sharesmb=on {pool}/home"), "sharesmb=on"),
        (format!("zfs create -o prefetch=none {pool}/home/ann"), "prefetch=none"),
    ] {
        let ran = sh(&mut backend, &line);
        let expected = format!("warning: '{about}' is kept for OpenZFS and has no effect here: ");
        assert!(
            ran.code == 0 && ran.err.starts_with(&expected) && ran.err.lines().count() == 1 && ran.out.is_empty(),
            "{line}: {}",
            ran.err
        );
    }
    for line in [
        format!("zfs set sharenfs=off {pool}/home"),
        format!("zpool set autotrim=off {pool}"),
        format!("zfs set compression=zstd {pool}/home"),
    ] {
        complains(&mut backend, &line, 0, "");
    }
}

/// The words after `zpool` and `zfs` in a line of the source.
fn verbs(line: &str) -> Vec<(&str, String)> {
    let mut found = Vec::new();
    for program in ["zpool", "zfs"] {
        for part in line.split(&format!("{program} ")).skip(1) {
            found.push((program, part.chars().take_while(|letter| letter.is_ascii_lowercase() || *letter == '-').collect()));
        }
    }
    found
}

/// "Attach the missing device and online it using 'zpool online'", said `zpool status`; and `zpool online`: "not yet supported". No text of
/// the program names a verb that it refuses, but for the usage texts, which mark them.
#[test]
fn nothing_is_advised_that_is_refused() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("crates");
    let mut looked_at = 0;
    for part in ["cli", "tarnfs", "engine", "daemon", "disk", "fuse"] {
        let files = WalkDir::new(crates.join(part).join("src")).into_iter().map(|entry| entry.expect("an entry").into_path());
        let is_text = |path: &Path| {
            path.extension().is_some_and(|kind| kind == "rs")
                && !path.ends_with("usage.rs")
                && !path.display().to_string().contains("test")
        };
        for path in files.filter(|path| is_text(path)) {
            let text = fs::read_to_string(&path).expect("text");
            let shipped = text.split("#[cfg(test)]\nmod ").next().unwrap_or_default();
            for line in shipped.lines().filter(|line| line.contains(['"', '\\']) && !line.trim_start().starts_with("//")) {
                // OpenZFS's words of what an upgrade means; they ask for nothing.
                let asks = !line.contains("'zfs send' streams generated from");
                for (program, verb) in verbs(line).into_iter().filter(|_| asks) {
                    let program = if program == "zpool" { &crate::zpool::PROGRAM } else { &crate::zfs::PROGRAM };
                    let Some(command) = program.find(&verb) else { continue };
                    assert!(!matches!(command.action, Action::NotYet(_)), "{}: {line}", path.display());
                    looked_at += 1;
                }
            }
        }
    }
    assert!(looked_at > 20, "{looked_at}");
}

/// What is not in the list of a program's commands would not be walked by the tests that ask the program for it.
#[test]
fn every_command_is_listed() {
    for program in
        [&crate::own::PROGRAM, &crate::zpool::PROGRAM, &crate::zfs::PROGRAM, &crate::fs::PROGRAM, &crate::transaction::PROGRAM]
    {
        let list = program.usage(None);
        for command in program.commands.iter().filter(|command| !command.name.is_empty()) {
            let is_listed = list
                .lines()
                .any(|line| line.strip_prefix('\t').is_some_and(|line| line.split([' ', ',']).any(|word| word == command.name)));
            assert!(is_listed, "{} {}", program.name, command.name);
        }
    }
}
