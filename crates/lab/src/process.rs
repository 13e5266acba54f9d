//! Other programs: found, run, waited for, never left behind.
//!
//! # Theory
//!
//! A program runs in its own process group (see [`crate::interrupt`]), reads nothing, and writes into unnamed files
//! rather than pipes: a daemon that it leaves behind may keep them open without anyone waiting for it.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{Read, Seek};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rustix::process::{Pid, Signal};

use crate::interrupt;

/// No command of ours takes longer than this, unless it hangs.
const LONGEST: Duration = Duration::from_secs(180);

/// What a program did.
#[derive(Debug, Clone)]
pub struct Output {
    /// 0 for success; 128 + the signal's number if it was killed.
    pub code: i32,
    pub stdout: String,
    pub stderr: String,
}

/// The program's place, also where only an administrator's `PATH` looks.
pub fn find(program: &str) -> Option<PathBuf> {
    if program.contains('/') {
        return Path::new(program).exists().then(|| PathBuf::from(program));
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::env::split_paths(&path).chain(["/usr/sbin", "/sbin", "/usr/bin", "/bin"].map(PathBuf::from));
    folders.map(|folder| folder.join(program)).find(|candidate| candidate.is_file())
}

/// A command for `program`, wherever [`find`] finds it.
pub fn command(program: &str) -> Command {
    Command::new(find(program).unwrap_or_else(|| PathBuf::from(program)))
}

/// The command as one would type it.
pub fn spelled(command: &Command) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    words.map(|word| word.to_string_lossy().into_owned()).collect::<Vec<_>>().join(" ")
}

/// What programs say in several lines, in one that can be read: some print all their options after what is wrong.
pub fn in_a_line(text: &str) -> String {
    const LONGEST: usize = 500;
    let line = text.lines().map(str::trim).filter(|line| !line.is_empty()).collect::<Vec<_>>().join("; ");
    match line.char_indices().nth(LONGEST) {
        Some((end, _)) => format!("{}...", &line[..end]),
        None => line,
    }
}

/// What a program that failed said, if it said something.
fn complaint(output: &Output) -> String {
    let said = if output.stderr.trim().is_empty() { output.stdout.trim() } else { output.stderr.trim() };
    if said.is_empty() { "and said nothing".to_owned() } else { in_a_line(said) }
}

fn contents(mut file: File) -> Result<String> {
    file.rewind()?;
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

fn code(status: ExitStatus) -> i32 {
    use std::os::unix::process::ExitStatusExt;
    status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(0))
}

/// Waits until `child` has ended, at most `limit`.
pub fn wait(child: &mut Child, limit: Duration) -> Result<Option<i32>> {
    let started = Instant::now();
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(code(status)));
        }
        let waited = started.elapsed();
        if waited >= limit {
            return Ok(None);
        }
        sleep(Duration::from_millis(if waited < Duration::from_millis(50) { 1 } else { 10 }));
    }
}

/// Runs the command to its end. A code other than 0 is not an error here.
pub fn output(command: &mut Command) -> Result<Output> {
    let (stdout, stderr) = (tempfile::tempfile()?, tempfile::tempfile()?);
    command.process_group(0).stdin(Stdio::null()).stdout(stdout.try_clone()?).stderr(stderr.try_clone()?);
    let mut child = command.spawn().with_context(|| format!("cannot run {}", spelled(command)))?;
    let Some(code) = wait(&mut child, LONGEST)? else {
        let _ = child.kill();
        let _ = child.wait();
        bail!("{}: still running after {} s: killed", spelled(command), LONGEST.as_secs());
    };
    Ok(Output { code, stdout: contents(stdout)?, stderr: contents(stderr)? })
}

/// As [`output`], but it may take until `limit`, and an interruption ends it, with all that it started.
pub fn attended(command: &mut Command, limit: Duration) -> Result<Output> {
    let (stdout, stderr) = (tempfile::tempfile()?, tempfile::tempfile()?);
    command.process_group(0).stdout(stdout.try_clone()?).stderr(stderr.try_clone()?);
    let mut child = command.spawn().with_context(|| format!("cannot run {}", spelled(command)))?;
    let started = Instant::now();
    let code = loop {
        if let Some(code) = wait(&mut child, Duration::from_millis(200))? {
            break code;
        }
        let late = started.elapsed() > limit;
        if late || interrupt::pending() {
            if let Some(group) = i32::try_from(child.id()).ok().and_then(Pid::from_raw) {
                let _ = rustix::process::kill_process_group(group, Signal::KILL);
            }
            let _ = child.wait();
            interrupt::check()?;
            bail!("{}: still running after {} s: killed", spelled(command), limit.as_secs());
        }
    };
    Ok(Output { code, stdout: contents(stdout)?, stderr: contents(stderr)? })
}

/// [`attended`]; anything but success is an error with what it said.
pub fn attended_success(command: &mut Command, limit: Duration) -> Result<Output> {
    let output = attended(command, limit)?;
    if output.code != 0 {
        bail!("{}: exit code {}: {}", spelled(command), output.code, complaint(&output));
    }
    Ok(output)
}

/// Runs the command; anything but success is an error with what it said. Returns its standard output.
pub fn succeed(command: &mut Command) -> Result<String> {
    let output = output(command)?;
    if output.code != 0 {
        bail!("{}: exit code {}: {}", spelled(command), output.code, complaint(&output));
    }
    Ok(output.stdout)
}

/// [`succeed`] for a program and its words.
pub fn run<S: AsRef<OsStr>>(program: &str, words: impl IntoIterator<Item = S>) -> Result<String> {
    succeed(command(program).args(words))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_carries_its_words() {
        let error = run("sh", ["-c", "echo so >&2; exit 3"]).unwrap_err().to_string();
        assert!(error.ends_with("exit code 3: so"), "{error}");
        let error = run("sh", ["-c", "echo so; echo; echo ' and so'; exit 3"]).unwrap_err().to_string();
        assert!(error.ends_with("exit code 3: so; and so"), "{error}");
        assert_eq!(in_a_line(&"é\n".repeat(400)).chars().count(), 503);
        assert!(run("false", [""; 0]).unwrap_err().to_string().ends_with("exit code 1: and said nothing"));
        assert_eq!(run("sh", ["-c", "echo yes"]).unwrap(), "yes\n");
        assert!(find("no-such-program-here").is_none());
    }

    #[test]
    fn a_daemon_that_keeps_the_streams_open_is_not_waited_for() {
        let started = Instant::now();
        assert_eq!(run("sh", ["-c", "sleep 5 & echo gone"]).unwrap(), "gone\n");
        assert!(started.elapsed() < Duration::from_secs(4));
    }
}
