//! `fsperf`: the laboratory as a program.

mod unit_command;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Measures file systems, side by side.
#[derive(Parser)]
#[command(name = "fsperf", version)]
struct Arguments {
    #[command(subcommand)]
    workload: Workload,
}

#[derive(Subcommand)]
enum Workload {
    /// The fourteen data-intensive unit tests.
    Unit(unit_command::Arguments),
}

fn main() -> ExitCode {
    let Arguments { workload: Workload::Unit(arguments) } = Arguments::parse();
    match lab::interrupt::watch().map_err(anyhow::Error::from).and_then(|()| unit_command::run(&arguments)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) if lab::interrupt::caused(&error) => {
            eprintln!("fsperf: interrupted; everything has been taken down");
            ExitCode::from(130)
        }
        Err(error) => {
            eprintln!("fsperf: {error:#}");
            ExitCode::FAILURE
        }
    }
}
