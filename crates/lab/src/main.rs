//! `fsperf`: the laboratory as a program.

mod commands;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

use crate::commands::{ceiling, disk, manual, results, run, unit};

/// Which file system, for which work, on this machine, at what cost.
///
/// fsperf runs the workloads of five published comparisons (fourteen unit tests, synchronous writers, PostMark, file servers, builds and more) on file systems that it makes for it, side by side, and on any directory that you have. `fsperf list` names the workloads, `fsperf run --help` shows how to begin.
#[derive(Parser)]
#[command(name = "fsperf", version)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Run workloads and compare the file systems that they run on
    Run(run::Arguments),
    /// List the workloads with their parameters and what they were published with
    List,
    /// The fourteen data-intensive unit tests, in short: `run unit`
    Unit(unit::Arguments),
    /// Show the results of a run: tables, a page for browsers, comma-separated values
    Report(results::ReportArguments),
    /// Two runs beside each other: what became better, and what became worse
    Compare(results::CompareArguments),
    /// Two builds' flame graphs side by side, and as a difference
    Flames(results::FlamesArguments),
    /// Simulated disks: list them, check them against their arithmetic, have one
    #[command(subcommand)]
    Disk(disk::Command),
    /// Print the manual page, or write one for each command
    Man(manual::ManArguments),
    /// Print what completes fsperf's words in a shell
    Completion(manual::CompletionArguments),
    /// Serve `fuse-ceiling`: `run` starts this
    #[command(hide = true, name = lab::comparator::ceiling::COMMAND)]
    Ceiling(ceiling::Arguments),
}

fn run(command: &Command) -> anyhow::Result<()> {
    match command {
        Command::Run(arguments) => run::run(arguments),
        Command::Unit(arguments) => unit::run(arguments),
        Command::Report(arguments) => results::report(arguments),
        Command::Compare(arguments) => results::compare(arguments),
        Command::Flames(arguments) => results::flames(arguments),
        Command::Disk(command) => disk::run(command),
        Command::Ceiling(arguments) => ceiling::run(arguments),
        Command::Man(arguments) => manual::man(arguments),
        Command::Completion(arguments) => {
            manual::completion(arguments);
            Ok(())
        }
        Command::List => {
            run::list();
            Ok(())
        }
    }
}

fn main() -> ExitCode {
    let Arguments { command } = Arguments::parse();
    match lab::interrupt::guard(|| run(&command)) {
        Ok(()) => match lab::out::failure() {
            None => ExitCode::SUCCESS,
            Some(why) => {
                lab::errln!("fsperf: cannot write the output: {why}");
                ExitCode::FAILURE
            }
        },
        Err(error) if lab::interrupt::caused(&error) => {
            lab::errln!("fsperf: interrupted; everything has been taken down");
            ExitCode::from(130)
        }
        Err(error) => {
            lab::errln!("fsperf: {error:#}");
            ExitCode::FAILURE
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_sound() {
        super::Arguments::command().debug_assert();
    }
}
