//! `zfs project`: which project files belong to, and whether what is made in a directory gets the same.
//!
//! # Theory
//! It asks no daemon: the files are asked, through the kernel, as `chattr -p` does.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use fuse::project::Project;
use tarnfs::control::plain_words;

use crate::session::{Outcome, Session, Stop, complain};
use crate::text::getopt::Options;

/// The default project.
const DEFAULT: u32 = 0;

/// What is to be done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Act {
    List,
    Check,
    Clear,
    Set,
}

#[derive(Debug)]
struct Wish {
    act: Act,
    /// `-p`
    project: Option<u32>,
    only_directory: bool,
    recurse: bool,
    keeps_number: bool,
    /// `-0`
    zeros: bool,
    /// `-s`
    inherits: bool,
}

impl Wish {
    /// The defect of options that do not go together.
    fn defect(&self) -> Option<&'static str> {
        let wrong = [
            (self.keeps_number && self.act != Act::Clear, "'-k' is only valid together with '-C'"),
            (self.only_directory && self.act == Act::Clear, "'-d' is useless together with '-C'"),
            (self.only_directory && self.act == Act::Set, "'-d' is useless for set project ID and/or inherit flag"),
            (self.zeros && self.act != Act::Check, "'-0' is only valid together with '-c'"),
            (self.project.is_some() && self.act == Act::Clear, "'-p' is useless together with '-C'"),
        ];
        wrong.into_iter().find(|(is_wrong, _)| *is_wrong).map(|(_, words)| words)
    }

    /// Are files in the directory looked at, too?
    fn goes_in(&self) -> bool {
        !self.only_directory && (self.recurse || matches!(self.act, Act::List | Act::Check))
    }
}

/// A number as C's `strtoull` reads it with base 0.
fn parse_number(word: &str) -> Option<u64> {
    let word = word.trim_start();
    let (digits, base) = match word.strip_prefix("0x").or_else(|| word.strip_prefix("0X")) {
        Some(digits) => (digits, 16),
        None if word.len() > 1 && word.starts_with('0') => (word, 8),
        None => (word, 10),
    };
    match digits.strip_prefix('-') {
        Some(digits) => u64::from_str_radix(digits, base).ok().map(u64::wrapping_neg),
        None => u64::from_str_radix(digits, base).ok(),
    }
}

fn project(session: &mut Session<'_>, word: &str) -> Result<u32, Stop> {
    let number = parse_number(word).ok_or_else(|| session.misuse(format_args!("project ID must be less than {}", u32::MAX)))?;
    u32::try_from(number).ok().filter(|number| *number != u32::MAX).ok_or_else(|| session.misuse("invalid project ID"))
}

fn parse(session: &mut Session<'_>, words: &[String]) -> Result<(Wish, Vec<usize>), Stop> {
    let mut options = Options::new(words, "0Ccdkp:rs", &[]);
    let mut act = None;
    let mut wish = Wish { act: Act::List, project: None, only_directory: false, recurse: false, keeps_number: false, zeros: false, inherits: false };
    for option in options.by_ref() {
        let (letter, argument) = option.map_err(|wrong| session.misuse(wrong))?;
        match letter {
            '0' => wish.zeros = true,
            'C' | 'c' | 's' => {
                if act.is_some() {
                    return Err(session.misuse("cannot specify '-C' '-c' '-s' together"));
                }
                wish.inherits = letter == 's';
                act = Some(match letter {
                    'C' => Act::Clear,
                    'c' => Act::Check,
                    _ => Act::Set,
                });
            }
            'd' => (wish.only_directory, wish.recurse) = (true, false),
            'r' => (wish.recurse, wish.only_directory) = (true, false),
            'k' => wish.keeps_number = true,
            _ => wish.project = Some(project(session, &argument.unwrap_or_default())?),
        }
    }
    wish.act = act.unwrap_or(if wish.project.is_some() { Act::Set } else { Act::List });
    if let Some(words) = wish.defect() {
        return Err(session.misuse(words));
    }
    Ok((wish, options.places()))
}

pub(in crate::zfs) fn run(session: &mut Session<'_>, given: &[OsString]) -> Outcome {
    let words = crate::texts(given);
    if words.is_empty() {
        return Err(Stop::Usage);
    }
    let (wish, places) = parse(session, &words)?;
    if places.is_empty() {
        return Err(session.misuse("missing file or directory target(s)"));
    }
    let mut code = 0;
    for place in places {
        if handle(session, Path::new(&given[place]), &wish).is_err() {
            code = 255;
        }
    }
    Ok(code)
}

/// It was said what is wrong.
struct Failed;

fn failed(session: &mut Session<'_>, what: &str, path: &Path, error: &io::Error) -> Failed {
    complain!(session, "failed to {what} {}: {}", path.display(), plain_words(error.to_string()));
    Failed
}

fn open(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).custom_flags(libc::O_NOCTTY).open(path)
}

fn handle(session: &mut Session<'_>, path: &Path, wish: &Wish) -> Result<(), Failed> {
    let found = fs::metadata(path).map_err(|error| failed(session, "stat", path, &error))?;
    if !found.is_file() && !found.is_dir() {
        complain!(session, "only support project quota on regular file or directory");
        return Err(Failed);
    }
    for (given, option) in [(wish.only_directory, "-d"), (wish.recurse, "-r")] {
        if given && !found.is_dir() {
            complain!(session, "'{option}' option on non-dir target {}", path.display());
            return Err(Failed);
        }
    }
    let expected = match (wish.act, wish.project) {
        (Act::Set | Act::Check, None) => {
            let file = open(path).map_err(|error| failed(session, "open", path, &error))?;
            Project::of(&file).map_err(|error| failed(session, "get xattr for", path, &error))?.number()
        }
        (_, project) => project.unwrap_or(DEFAULT),
    };
    one(session, path, wish, expected, false)?;
    if !found.is_dir() || !wish.goes_in() {
        return Ok(());
    }
    let mut left: Vec<PathBuf> = vec![path.to_owned()];
    while let Some(directory) = left.pop() {
        entries(session, &directory, wish, expected, &mut left)?;
    }
    Ok(())
}

/// The entries of a directory; those that are directories themselves are left for later.
fn entries(session: &mut Session<'_>, directory: &Path, wish: &Wish, expected: u32, left: &mut Vec<PathBuf>) -> Result<(), Failed> {
    let listed = match fs::read_dir(directory) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        listed => listed.map_err(|error| failed(session, "opendir", directory, &error))?,
    };
    for entry in listed {
        let entry = entry.map_err(|error| failed(session, "readdir", directory, &error))?;
        let path = entry.path();
        one(session, &path, wish, expected, true)?;
        if wish.recurse && entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            left.push(path);
        }
    }
    Ok(())
}

/// One file. `may_be_gone`: it was in a listing, and may be elsewhere by now.
fn one(session: &mut Session<'_>, path: &Path, wish: &Wish, expected: u32, may_be_gone: bool) -> Result<(), Failed> {
    let file = match open(path) {
        Err(error) if error.kind() == ErrorKind::NotFound && may_be_gone => return Ok(()),
        opened => opened.map_err(|error| failed(session, "open", path, &error))?,
    };
    let found = Project::of(&file).map_err(|error| failed(session, "get xattr for", path, &error))?;
    let is_as_wished = found.number() == expected;
    let wanted = match wish.act {
        Act::List => {
            let mark = if found.inherits() { 'P' } else { '-' };
            line(session, &format!("{:>5} {mark} ", found.number()), path, "\n");
            return Ok(());
        }
        Act::Check => {
            check(session, path, wish, found, expected);
            return Ok(());
        }
        Act::Clear if !found.inherits() && (wish.keeps_number || found.number() == DEFAULT) => return Ok(()),
        Act::Clear if wish.keeps_number => found.with_inheritance(false),
        Act::Clear => found.with_inheritance(false).with_number(DEFAULT),
        Act::Set if is_as_wished && (!wish.inherits || found.inherits()) => return Ok(()),
        Act::Set => found.with_number(expected).with_inheritance(wish.inherits || found.inherits()),
    };
    wanted.set(&file).map_err(|error| failed(session, "set xattr for", path, &error))
}

fn check(session: &mut Session<'_>, path: &Path, wish: &Wish, found: Project, expected: u32) {
    let is_as_wished = found.number() == expected;
    if is_as_wished && found.inherits() {
        return;
    }
    if wish.zeros {
        line(session, "", path, "\0");
        return;
    }
    if !is_as_wished {
        line(session, "", path, &format!(" - project ID is not set properly ({}/{expected})\n", found.number()));
    }
    if !found.inherits() {
        line(session, "", path, " - project inherit flag is not set\n");
    }
}

/// A path as it is, with words around it.
fn line(session: &mut Session<'_>, before: &str, path: &Path, after: &str) {
    let _ = session.out.write_all(&[before.as_bytes(), path.as_os_str().as_bytes(), after.as_bytes()].concat());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_read_as_c_does() {
        let read = |word| parse_number(word);
        assert_eq!((read("100"), read("0x10"), read("010"), read("0")), (Some(100), Some(16), Some(8), Some(0)));
        assert_eq!((read("-1"), read("1k"), read(""), read("4294967296")), (Some(u64::MAX), None, None, Some(1 << 32)));
    }
}
