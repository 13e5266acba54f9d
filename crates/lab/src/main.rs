//! `fsperf`: the laboratory as a program.

fn main() {}
