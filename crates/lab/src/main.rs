//! `fsperf`: the laboratory as a program.

mod run_command;
mod targets_command;
mod unit_command;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Measures file systems, side by side.
#[derive(Parser)]
#[command(name = "fsperf", version)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Run workloads and compare the file systems that they run on
    Run(run_command::Arguments),
    /// List the workloads and their parameters
    List,
    /// The fourteen data-intensive unit tests.
    Unit(unit_command::Arguments),
}

fn main() -> ExitCode {
    let Arguments { command } = Arguments::parse();
    let run = || match &command {
        Command::Run(arguments) => run_command::run(arguments),
        Command::Unit(arguments) => unit_command::run(arguments),
        Command::List => {
            run_command::list();
            Ok(())
        }
    };
    match lab::interrupt::watch().map_err(anyhow::Error::from).and_then(|()| run()) {
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

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_sound() {
        super::Arguments::command().debug_assert();
    }
}
