//! `tarn`: zpool, zfs, zdb and verbs of its own.

mod columns;
mod command;
mod display;
mod getopt;
mod json;
mod names;
mod session;
mod settings;
mod table;
mod units;
mod version;
#[cfg(test)]
mod tests;
mod zfs;
mod zpool;

fn main() {
    let _ = (&zfs::PROGRAM, &zpool::PROGRAM);
}
