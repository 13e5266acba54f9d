//! `tarn`: zpool, zfs, zdb and verbs of its own.

fn main() {}
