//! `fsperf man` and `fsperf completion`: from the same declarations as `--help`.

use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result};
use clap::{Args, CommandFactory};
use clap_complete::Shell;

#[derive(Args)]
pub(crate) struct ManArguments {
    /// Write fsperf.1, fsperf-run.1 and so on into this directory
    #[arg(value_name = "DIR")]
    directory: Option<PathBuf>,
}

#[derive(Args)]
#[command(after_long_help = "For bash: fsperf completion bash > /etc/bash_completion.d/fsperf")]
pub(crate) struct CompletionArguments {
    shell: Shell,
}

pub(crate) fn man(arguments: &ManArguments) -> Result<()> {
    let command = crate::Arguments::command();
    if let Some(directory) = &arguments.directory {
        let name = || format!("cannot write into {}", directory.display());
        fs::create_dir_all(directory).with_context(name)?;
        return clap_mangen::generate_to(command, directory).with_context(name);
    }
    let mut page = Vec::new();
    clap_mangen::Man::new(command).render(&mut page)?;
    lab::out!("{}", String::from_utf8_lossy(&page));
    Ok(())
}

pub(crate) fn completion(arguments: &CompletionArguments) {
    let mut command = crate::Arguments::command();
    let mut text = Vec::new();
    clap_complete::generate(arguments.shell, &mut command, "fsperf", &mut text);
    lab::out!("{}", String::from_utf8_lossy(&text));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_is_a_page_for_each_command() {
        let scratch = tempfile::tempdir().unwrap();
        man(&ManArguments { directory: Some(scratch.path().to_owned()) }).unwrap();
        for name in ["fsperf.1", "fsperf-run.1", "fsperf-disk-serve.1", "fsperf-compare.1"] {
            assert!(scratch.path().join(name).exists(), "{name}");
        }
        let page = fs::read_to_string(scratch.path().join("fsperf-run.1")).unwrap();
        assert!(page.contains("simulated 7,200 rpm"), "the examples are in it");
    }
}
