//! `tarn try`: a tour for new users, in about two minutes, that leaves nothing behind.
//!
//! # Theory
//!
//! The tour does what its reader would do: it runs `tarn` commands, and shows them. Its pool lies on sparse files in a
//! temporary directory and has a daemon of its own there (`TARN_SOCKET`), so nothing else on the machine is touched.
//! What it claims it has checked: the copy is compared with its original after the pool was exported and imported, so
//! that it comes from the disks and not from a cache, and the checker goes through every block before and after the
//! tests.
//!
//! # Path
//!
//! [`tour`] → [`tree`] (copying, comparing), [`check`] (the checker), `lab` (the pool's life, the fourteen tests)

mod check;
mod place;
mod tour;
mod tree;

use std::path::PathBuf;

use clap::{CommandFactory, Parser};
use lab::{errln, interrupt, out};

use tarnfs::control::plain_words;

/// Makes a pool on sparse files, copies a real tree into it, compares and checks it, and measures it beside this
/// machine's own file system with the fourteen unit tests. Takes about two minutes and leaves nothing behind.
#[derive(Parser)]
#[command(name = "tarn try")]
struct Arguments {
    /// Where the temporary directory is made
    #[arg(long = "in", value_name = "DIR")]
    parent: Option<PathBuf>,
    /// The larger tree to copy, instead of one that this machine has anyway
    #[arg(long, value_name = "DIR")]
    tree: Option<PathBuf>,
    /// Leave the fourteen unit tests out
    #[arg(long)]
    no_tests: bool,
    /// Write the tests' figures into this file
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Another program with tarn's commands
    #[arg(long, value_name = "PROGRAM", hide = true)]
    program: Option<PathBuf>,
}

/// What it says about itself.
pub(crate) fn help() -> String {
    Arguments::command().render_help().to_string()
}

/// As of a program that a signal ended.
const STOPPED: u8 = 130;

/// Runs the tour; the words are those after `try`.
pub(crate) fn run(words: &[String]) -> u8 {
    let arguments = match Arguments::try_parse_from(std::iter::once("tarn try").chain(words.iter().map(String::as_str))) {
        Ok(arguments) => arguments,
        Err(error) => {
            let _ = error.print();
            return if error.use_stderr() { 2 } else { 0 };
        }
    };
    match interrupt::guard(|| tour::run(&arguments)) {
        Ok(right) => match out::failure() {
            None => u8::from(!right),
            Some(why) => {
                errln!("tarn try: cannot write the output: {why}");
                1
            }
        },
        Err(error) if interrupt::caused(&error) => {
            errln!("\nStopped, and cleaned up.");
            STOPPED
        }
        Err(error) => {
            errln!("\ntarn try: {}", plain_words(format!("{error:#}")));
            1
        }
    }
}
