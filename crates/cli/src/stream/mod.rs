//! `tarn stream`: what is in a send stream, and is it whole.
//!
//! # Theory
//! A stream in a file or a pipe is looked at without a pool. `dump` prints what OpenZFS's `zstream dump` prints, to the byte;
//! `verify` says whether a receiver could use it, and names the first record that it could not.

mod dump;
mod nvlist;
mod token;
mod verify;

use std::fs::File;
use std::io::{BufReader, IsTerminal, Read};

use crate::command::{Command, Program, has};
use crate::session::{Session, Stop, complain};

pub(crate) use nvlist::print as print_list;
pub(crate) use token::decode as decode_token;

/// The program.
pub(crate) static PROGRAM: Program = Program {
    name: "tarn stream",
    commands: COMMANDS,
    aliases: &[],
    command_notes: |_| NOTES.to_owned(),
    notes: NOTES,
    is_openzfs: false,
};

static COMMANDS: &[Command] = &[
    has("dump", "\tdump [-vCd] [file]\n", dump::run),
    has("verify", "\tverify [file] ...\n", verify::run),
    has("token", "\ttoken <resume token>\n", token::run),
];

const NOTES: &str = "
A stream is what 'zfs send' writes. Without a file it is read from the standard input.

    dump:  -v  every record, -vv with its checksum   -d  contents, too   -C  no checksums
";

/// Bytes that are asked for at once.
const BUFFER_BYTES: usize = 1 << 20;

/// The stream that `name` stands for, or the standard input.
fn open(session: &mut Session<'_>, name: Option<&String>) -> Result<Box<dyn Read>, Stop> {
    match name {
        Some(name) => match File::open(name) {
            Ok(file) => Ok(Box::new(BufReader::with_capacity(BUFFER_BYTES, file))),
            Err(error) => {
                complain!(session, "cannot open '{name}': {}", error);
                Err(Stop::Code(1))
            }
        },
        None if std::io::stdin().is_terminal() => {
            complain!(session, "a send stream cannot be read from a terminal: name a file, or redirect the standard input");
            Err(Stop::Code(1))
        }
        None => Ok(Box::new(BufReader::with_capacity(BUFFER_BYTES, std::io::stdin()))),
    }
}
