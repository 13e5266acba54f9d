//! The oracle: what the real OpenZFS says of a pool that we wrote.
//!
//! # Theory
//! [`zdb_check`] runs the real `zdb` over the images: labels, every checksum, space maps, leaks. It is called at the end
//! of every test that writes. [`import_real`] boots the real kernel module in a virtual machine, which takes minutes:
//! it is run by hand (`cargo xtask oracle --kernel`).
//! Where the oracle is not there or not built, a test says so aloud and goes on, unless `TARN_ORACLE=required`, which
//! continuous integration sets: then its absence is a failure.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Once;
use std::time::Duration;

use std::os::unix::process::CommandExt;

use crate::places;

/// `zdb` takes seconds on the pools of the tests.
const ZDB_SECONDS: u64 = 900;
/// The virtual machine, an import, two scrubs.
const IMPORT_SECONDS: u64 = 1800;
/// The scripts' "cannot run".
const STATUS_CANNOT_RUN: i32 = 97;

/// The verdict.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OracleResult {
    /// Nothing is wrong.
    Clean,
    /// Something is wrong: what the oracle printed.
    Wrong(String),
    /// The oracle could not be asked: why.
    Unavailable(String),
}

impl OracleResult {
    /// Panics if something is wrong; says so aloud, once, if the oracle could not be asked.
    #[track_caller]
    pub fn expect_clean(&self, what: &str) {
        match self {
            OracleResult::Clean => {}
            OracleResult::Wrong(output) => panic!("{what}: the oracle found\n{output}"),
            OracleResult::Unavailable(reason) => {
                assert!(!is_required(), "{what}: the oracle is required and unavailable: {reason}");
                static SAID: Once = Once::new();
                SAID.call_once(|| places::skipped(&format!("the judgement of the real zdb: {reason}")));
            }
        }
    }
}

fn is_required() -> bool {
    std::env::var_os("TARN_ORACLE").is_some_and(|value| value == "required")
}

/// The real `zdb` on the images of one pool.
pub fn zdb_check(images: &[&Path]) -> OracleResult {
    zdb_with(&["-q"], images)
}

/// As [`zdb_check`], but the blocks of files are not read: one second instead of six. All of `zdb`'s accounting is done.
pub fn zdb_check_metadata(images: &[&Path]) -> OracleResult {
    zdb_with(&["-q", "-n"], images)
}

/// As [`zdb_check`], for a pool of which some vdevs or labels are missing on purpose.
pub fn zdb_check_damaged(images: &[&Path]) -> OracleResult {
    zdb_with(&["-q", "-m"], images)
}

/// As [`zdb_check_metadata`], for a pool as a crash left it: it may have gone while labels were being written.
pub fn zdb_check_crashed(images: &[&Path]) -> OracleResult {
    zdb_with(&["-q", "-n", "-m"], images)
}

fn zdb_with(options: &[&str], images: &[&Path]) -> OracleResult {
    // The script would build what it needs; a test must not.
    if !oracle_cache().join("rootfs/usr/sbin/zdb").exists() {
        let reason = match places::in_shared("oracle/vm/build") {
            Some(build) => format!("not built yet: {} -u", build.display()),
            None => "no ../shared/oracle".to_owned(),
        };
        return OracleResult::Unavailable(reason);
    }
    run("oracle/check/zdb", options, images, ZDB_SECONDS)
}

/// The real kernel module imports a copy of the pool, compares, scrubs, writes, scrubs and exports; afterwards the real
/// `zdb` looks at the result. `out`: where the manifests, the log and the images as the kernel left them are put.
pub fn import_real(images: &[&Path], out: Option<&Path>) -> OracleResult {
    let out = out.map(|out| out.display().to_string());
    let options: Vec<&str> = out.iter().flat_map(|out| ["-o", out.as_str()]).collect();
    run("oracle/check/import-real", &options, images, IMPORT_SECONDS)
}

/// What the real `zdb` prints of the pools in a directory, in UTC; `None`, aloud, where there is none.
pub fn zdb_text(directory: &Path, words: &[&str]) -> Option<String> {
    const SCRIPT: &str = r#". "$0"; native "$ORACLE_ROOTFS/usr/sbin/zdb" -e -p "$@""#;
    let common = places::in_shared("oracle/lib/common.sh").filter(|_| oracle_cache().join("rootfs/usr/sbin/zdb").exists());
    let Some(common) = common else {
        assert!(!is_required(), "TARN_ORACLE=required, and the real zdb is not there");
        places::skipped("comparison with the real zdb: it is not there");
        return None;
    };
    let mut command = Command::new("bash");
    command.arg("-c").arg(SCRIPT).arg(common).arg(directory).args(words).env("TZ", "UTC").stdin(Stdio::null());
    Some(run_for(command, ZDB_SECONDS).expect("bash").output)
}

fn oracle_cache() -> PathBuf {
    std::env::var_os("ORACLE_CACHE").map_or_else(|| PathBuf::from("/var/tmp/oracle"), PathBuf::from)
}

/// Runs one of the oracle's scripts; what it prints is the finding.
fn run(script: &str, options: &[&str], images: &[&Path], seconds: u64) -> OracleResult {
    let Some(program) = places::in_shared(script) else {
        return OracleResult::Unavailable(format!("no ../shared/{script}"));
    };
    let mut command = Command::new(&program);
    command.args(options).args(images).stdin(Stdio::null());
    match run_for(command, seconds) {
        Ok(Ended { status: Some(0), .. }) => OracleResult::Clean,
        Ok(Ended { status: Some(STATUS_CANNOT_RUN), output }) => OracleResult::Unavailable(output),
        Ok(Ended { status: Some(status), output }) => OracleResult::Wrong(format!("{script}: status {status}\n{output}")),
        Ok(Ended { status: None, output }) => OracleResult::Wrong(format!("{script}: ended after {seconds} s\n{output}")),
        Err(error) => OracleResult::Unavailable(format!("{}: {error}", program.display())),
    }
}

struct Ended {
    /// `None`: killed, it took too long.
    status: Option<i32>,
    output: String,
}

/// Runs `command` for at most `seconds`, then kills it with everything that it started.
fn run_for(mut command: Command, seconds: u64) -> std::io::Result<Ended> {
    let output = tempfile::NamedTempFile::new()?;
    command.stdout(output.reopen()?).stderr(output.reopen()?).process_group(0);
    let mut child = command.spawn()?;
    let step = Duration::from_millis(50);
    let mut left = seconds * 20;
    let status = loop {
        if let Some(status) = child.try_wait()? {
            // A signal is not a status; 128 as the shell would say.
            break Some(status.code().unwrap_or(128));
        }
        if left == 0 {
            if let Some(group) = rustix::process::Pid::from_raw(child.id() as i32) {
                let _ = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
            }
            child.wait()?;
            break None;
        }
        left -= 1;
        std::thread::sleep(step);
    };
    let text = String::from_utf8_lossy(&std::fs::read(output.path())?).into_owned();
    Ok(Ended { status, output: text })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::golden::Golden;

    #[test]
    fn a_command_that_takes_too_long_is_ended() {
        let mut command = Command::new("sh");
        command.args(["-c", "echo started; sleep 100 & wait"]);
        let ended = run_for(command, 1).unwrap();
        assert_eq!((ended.status, ended.output.as_str()), (None, "started\n"));
    }

    #[test]
    fn the_oracle_tells_a_whole_pool_from_a_damaged_one() {
        let golden = Golden::find("acl").unwrap().expect("a golden pool of the project");
        let image = golden.images[0].as_path();
        let whole = zdb_check(&[image]);
        whole.expect_clean("the golden pool acl");
        if whole == OracleResult::Clean {
            // The canary: an oracle that calls this clean is not asked, or not heard.
            damage(image);
            let damaged = zdb_check(&[image]);
            assert!(matches!(damaged, OracleResult::Wrong(_)), "the oracle did not see the damage: {damaged:?}");
        }
    }

    /// Overwrites half of what is in the image between the labels.
    fn damage(image: &Path) {
        use std::os::unix::fs::FileExt;
        let file = std::fs::OpenOptions::new().read(true).write(true).open(image).unwrap();
        let size = file.metadata().unwrap().len();
        let mut buffer = vec![0; 4096];
        // Data begins after the first two labels and the boot area.
        let mut at = 4 << 20;
        while at < size - (1 << 20) {
            file.read_exact_at(&mut buffer, at).unwrap();
            if buffer.iter().any(|byte| *byte != 0) {
                file.write_all_at(&[0x5a; 2048], at).unwrap();
            }
            at += 4096;
        }
    }
}
