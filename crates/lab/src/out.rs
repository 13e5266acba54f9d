//! The output of the programs.
//!
//! # Theory
//!
//! A reader may go away: `fsperf list | head`. What is printed after that goes nowhere, and what is being measured or taken down
//! goes on; a panic in the middle of it, as the standard macros have it, would leave things behind. Any other failure (the disk is
//! full) is remembered, for the exit status.

use std::fmt;
use std::io::{self, ErrorKind, Write};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

static FAILED: Mutex<Option<String>> = Mutex::new(None);
static UNREAD: AtomicBool = AtomicBool::new(false);

/// Whether the reader of the standard output has gone away. A program that works for no one else may end.
pub fn is_unread() -> bool {
    UNREAD.load(Ordering::Relaxed)
}

/// The error that kept something from being printed, unless the reader is gone.
pub fn failure() -> Option<String> {
    FAILED.lock().ok()?.clone()
}

fn write_to(mut stream: impl Write, text: fmt::Arguments<'_>) -> io::Result<()> {
    stream.write_fmt(text).and_then(|()| stream.flush())
}

/// For the macros: to the standard output.
pub fn print(text: fmt::Arguments<'_>) {
    match write_to(io::stdout().lock(), text) {
        Ok(()) => {}
        Err(error) if error.kind() == ErrorKind::BrokenPipe => UNREAD.store(true, Ordering::Relaxed),
        Err(error) => {
            if let Ok(mut failed) = FAILED.lock() {
                failed.get_or_insert(error.to_string());
            }
        }
    }
}

/// For the macros: to the standard error, of which nobody could be told that it does not work.
pub fn complain(text: fmt::Arguments<'_>) {
    let _ = write_to(io::stderr().lock(), text);
}

/// `print!` for readers that may go away.
#[macro_export]
macro_rules! out {
    ($($words:tt)*) => { $crate::out::print(format_args!($($words)*)) };
}

/// `println!` for readers that may go away.
#[macro_export]
macro_rules! outln {
    ($($words:tt)*) => { $crate::out::print(format_args!("{}\n", format_args!($($words)*))) };
}

/// `eprintln!` for readers that may go away.
#[macro_export]
macro_rules! errln {
    ($($words:tt)*) => { $crate::out::complain(format_args!("{}\n", format_args!($($words)*))) };
}
