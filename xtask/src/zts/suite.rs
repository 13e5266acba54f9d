//! One run of the suite's runner: started, watched, ended in time, cleared away.
//!
//! # Theory
//! All that the runner starts lives in a process namespace of its own, whose first process dies with the runner; so ending the runner ends all,
//! and the mounts with it, and it dies with us (`setpriv`). It writes into files: a daemon that a script left holds no pipe that anybody reads.
//! What the kernel does not let die is not waited for. Loop devices are the machine's, so those over our files are let go of here.

use std::collections::{BTreeMap, HashSet};
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use lab::process;

/// What a script did.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    Passed,
    /// It says that it cannot run here.
    Declined,
    /// With its last words.
    Failed(String),
}

pub(super) struct Run<'a> {
    pub(super) scripts: &'a [String],
    pub(super) tarn: PathBuf,
    /// For all.
    pub(super) limit: Duration,
    /// Seconds for a script.
    pub(super) each: u64,
    /// Disks are loop devices rather than files.
    pub(super) loops: bool,
    /// Where to work, if it is to stay.
    pub(super) keep: Option<PathBuf>,
}

pub(super) enum Ended {
    Done(BTreeMap<String, Verdict>),
    Skipped(&'static str),
}

/// How many loop devices the suite needs: three disks, one that a script makes, and some that scripts leave behind (`zpool_add_warn_removal` does, with OpenZFS too).
const LOOPS: u32 = 6;
/// Programs that do not end when they are killed are given up after this.
const GRACE: Duration = Duration::from_secs(20);
const GLANCE: Duration = Duration::from_millis(200);

fn rootfs() -> PathBuf {
    std::env::var_os("ORACLE_ROOTFS").map_or_else(|| PathBuf::from("/var/tmp/oracle/rootfs"), PathBuf::from)
}

fn runner() -> Option<PathBuf> {
    sim::places::in_shared("oracle/zts/run")
}

/// What the runner passes over while a group's setup runs, as we did not have it when it was written.
const PASSED_OVER: &str = "case $1 in snapshot|snap|send|receive|recv|promote|bookmark|hold|allow|clone) echo; exit 0;; esac";

/// What it makes of layouts there: stripes, without spares, of devices that are all online.
const MADE_PLAIN: &str = r#"case $1 in offline|online) exit 0;; esac
  a=(); o=; for x; do case $x in raidz|raidz[123]|draid*) ;; spare|cache|special|dedup) o=1;; log) o=; a+=(log);; *) [ $o ] || a+=("$x");; esac; done; set -- "${a[@]}""#;

/// When its `zinject` succeeds: there is nothing to clear. Nor does anything need to be flushed from a cache (`-a`).
const NOTHING_TO_CLEAR: &str = r#"[ "$1" = -c ]"#;
const NOTHING_TO_CLEAR_OR_FLUSH: &str = "[[ $1 = -[ac] ]]";

/// Where the runner begins with a group, in `d`; and devices are looked after in those alone of which the setup, or a script that is run, starts OpenZFS's daemon for it.
const GROUP_BEGINS: &str = "cfg.pop('_', None); env.update(cfg)";
const AS_IF_ZED_RAN: &str = "; of = ' '.join(filter(None, map(wrap, ['setup', *tests]))); env['TARN_AGENT'] = 'off' if sh(f'grep -sq zed_start {of} {d}/*lib').returncode else 'on'";

/// Limits are in root's files of tunables as they are, so that 0 is one, too. What belongs to a user's daemon is its own.
const LIMITS_ARE_THERE: &str = "; env.update({} if g.startswith('cli_user/') else {'TARN_PARAMETERS': '/sys/module/zfs/parameters'})";
/// Where there are files of all tunables.
const TUNABLES_ARE_THERE: &str = "    path(a, w, first, last)\n";
/// What the runner gives the daemon.
const CACHE_BYTES: u64 = 512 << 20;

/// The runner's words that write them.
fn write_limits() -> String {
    let write = |(name, value)| format!("    open('/sys/module/zfs/parameters/{name}', 'w').write('{value}\\n')\n");
    sim::parameters::at_first(CACHE_BYTES).into_iter().map(write).collect()
}

/// Where the runner's text goes on when the programs that scripts find are in their directory, `p`.
const PROGRAMS_ARE_THERE: &str = "    # Nothing is injected,";

/// Our `zstream`, as far as there is one (the real one needs the kernel module for a token); and what `mount -o remount` calls.
const MORE_PROGRAMS: &str = r#"    sh(f'ln -sf {a.b}/tarn /usr/sbin/mount.fuse.tarn')
    os.path.lexists(f'{p}/zstream') and os.remove(f'{p}/zstream')
    open(f'{p}/zstream', 'w').write(f'#!/bin/bash\ncase $1 in dump|token) exec {a.b}/tarn stream "$@";; esac\nexec /usr/sbin/zstream "$@"\n'); os.chmod(f'{p}/zstream', 0o755)
"#;

/// What a setup wants of OpenZFS's daemon: its configuration is copied, and the daemon started behind the setup's back. Ours does its part.
const ZED_IS_THERE: &str = r#"    sh('mkdir -p /etc/zfs/zed.d /usr/lib/zfs-linux/zed.d; touch /etc/zfs/zed.d/zed.rc /etc/zfs/zed.d/zed-functions.sh /usr/lib/zfs-linux/zed.d/resilver_finish-start-scrub.sh')
"#;

/// What is left of a group; its setup's names of disks are, too.
const LEFT_OF_A_GROUP: &str = "/etc/hostid', stderr";
const ALL_LEFT_OF_A_GROUP: &str = "/etc/hostid /etc/zfs/vdev_id.conf', stderr";

/// The runner's text without what it need not pass over any more, as setups snapshot, clone and send; and with more programs of ours.
fn adapted(text: &str) -> Result<String> {
    for known in [PASSED_OVER, MADE_PLAIN, NOTHING_TO_CLEAR, GROUP_BEGINS, TUNABLES_ARE_THERE, PROGRAMS_ARE_THERE, LEFT_OF_A_GROUP] {
        ensure!(text.contains(known), "../shared/oracle/zts/run no longer has the line `{known}`: look at what it does");
    }
    let text = text.replace(PASSED_OVER, ":").replace(MADE_PLAIN, ":").replace(NOTHING_TO_CLEAR, NOTHING_TO_CLEAR_OR_FLUSH);
    let text = text.replace(GROUP_BEGINS, &format!("{GROUP_BEGINS}{AS_IF_ZED_RAN}{LIMITS_ARE_THERE}"));
    let text = text.replace(TUNABLES_ARE_THERE, &format!("{}{TUNABLES_ARE_THERE}", write_limits()));
    let text = text.replace(LEFT_OF_A_GROUP, ALL_LEFT_OF_A_GROUP);
    Ok(text.replace(PROGRAMS_ARE_THERE, &format!("{MORE_PROGRAMS}{ZED_IS_THERE}{PROGRAMS_ARE_THERE}")))
}

/// Why it cannot run, if it cannot.
pub(super) fn absent() -> Option<&'static str> {
    let is_root = rustix::process::geteuid().is_root();
    for (missing, why) in [
        (!is_root, "root is needed"),
        (runner().is_none(), "there is no ../shared/oracle/zts/run"),
        (
            !rootfs().join("usr/share/zfs/zfs-tests").is_dir(),
            "there is no root file system with it: ../shared/oracle/vm/build -u makes one",
        ),
        (process::find("python3").is_none(), "there is no python3"),
        (!Path::new("/dev/fuse").exists(), "there is no /dev/fuse"),
    ] {
        if missing {
            return Some(why);
        }
    }
    None
}

/// Runs the scripts.
pub(super) fn run(run: &Run<'_>) -> Result<Ended> {
    let work = Work::new(run.keep.as_deref())?;
    let list = work.path.join("list");
    fs::write(&list, run.scripts.join("\n") + "\n")?;
    let program = work.path.join("run");
    fs::write(&program, adapted(&fs::read_to_string(runner().context("there is no runner")?)?)?)?;
    let binaries = run.tarn.parent().context("the program is in a directory")?.canonicalize()?;
    let mut command = match process::find("setpriv") {
        Some(setpriv) => {
            let mut command = std::process::Command::new(setpriv);
            command.args(["--pdeathsig", "KILL", "python3"]);
            command
        }
        None => process::command("python3"),
    };
    command.arg(program).arg(&work.path).arg(&list).arg("-b").arg(binaries).args(["-t", &run.each.to_string()]);
    command.arg("-r").arg(rootfs());
    if run.loops {
        let first = free_loops().context("no loop devices are free")?;
        command.args(["-L", &format!("{first}-{}", first + LOOPS - 1)]);
    }
    let said = work.path.join("said");
    let output = File::create(&said)?;
    command.stdin(Stdio::null()).stdout(output.try_clone()?).stderr(output);
    let child = command.spawn().context("the runner cannot be started")?;
    let ended = watch(child, run, &work.path)?;
    if matches!(ended, Ended::Done(_))
        && let Ok(words) = fs::read_to_string(&said)
    {
        print!("{words}");
    }
    Ok(ended)
}

/// Looks at what comes until it ends, or must.
fn watch(mut child: Child, run: &Run<'_>, work: &Path) -> Result<Ended> {
    let started = Instant::now();
    let mut told = HashSet::new();
    loop {
        let ended = process::wait(&mut child, GLANCE)?;
        let verdicts = verdicts(work);
        for (script, verdict) in &verdicts {
            if let Verdict::Failed(why) = verdict
                && told.insert(script.clone())
            {
                println!("{script}: {why}");
            }
        }
        let said = fs::read_to_string(work.join("said")).unwrap_or_default();
        if said.contains("apt-get failed") {
            end(&mut child)?;
            return Ok(Ended::Skipped("the programs that it uses cannot be installed: no network?"));
        }
        match ended {
            Some(0) => return Ok(Ended::Done(verdicts)),
            Some(code) => bail!("the runner ended with {code}: {}", process::in_a_line(&said)),
            None if started.elapsed() >= run.limit => {
                end(&mut child)?;
                println!(
                    "ended after {} s, its limit: {} of {} scripts were done",
                    run.limit.as_secs(),
                    verdicts.len(),
                    run.scripts.len()
                );
                return Ok(Ended::Done(verdicts));
            }
            None => {}
        }
    }
}

fn end(child: &mut Child) -> Result<()> {
    child.kill()?;
    process::wait(child, GRACE)?;
    Ok(())
}

/// What is there of `results.tsv`: result, script, seconds, words.
fn verdicts(work: &Path) -> BTreeMap<String, Verdict> {
    let bytes = fs::read(work.join("results.tsv")).unwrap_or_default();
    let text = String::from_utf8_lossy(&bytes);
    let whole = text.rsplit_once('\n').map_or("", |(whole, _)| whole);
    let line = |line: &str| {
        let mut fields = line.split('\t');
        let (result, script, seconds) = (fields.next()?, fields.next()?, fields.next()?);
        let words = fields.next().unwrap_or_default();
        let verdict = match result {
            "PASS" => Verdict::Passed,
            "SKIP" => Verdict::Declined,
            _ => Verdict::Failed(format!("{result} after {seconds} s: {}", process::in_a_line(words))),
        };
        Some((script.to_owned(), verdict))
    };
    whole.lines().filter_map(line).collect()
}

/// The first of some loop devices that nobody uses, beyond those that `losetup -f` takes. Two runs at once begin at different places.
fn free_loops() -> Option<u32> {
    let offset = std::process::id() % 40;
    let free = |number: u32| !Path::new(&format!("/sys/block/loop{number}/loop")).exists();
    (0..40).map(|step| 40 + (offset + step) % 40 * LOOPS).find(|first| (*first..first + LOOPS).all(free))
}

/// A directory that is cleared away with all that hangs on it, unless it is to stay.
struct Work {
    path: PathBuf,
    stays: bool,
}

impl Work {
    /// Not below `/tmp`, which is another one for the scripts.
    fn new(keep: Option<&Path>) -> Result<Work> {
        let path = keep.map_or_else(|| PathBuf::from(format!("/var/tmp/tarn-zts-{}", std::process::id())), Path::to_path_buf);
        fs::create_dir_all(&path).with_context(|| path.display().to_string())?;
        Ok(Work { path: path.canonicalize()?, stays: keep.is_some() })
    }

    fn let_go_of_loops(&self) {
        for entry in fs::read_dir("/sys/block").into_iter().flatten().flatten() {
            let file = fs::read_to_string(entry.path().join("loop/backing_file")).unwrap_or_default();
            if Path::new(file.trim_end()).starts_with(&self.path) {
                let device = Path::new("/dev").join(entry.file_name());
                let _ = process::attended(process::command("losetup").arg("-d").arg(device), GRACE);
            }
        }
    }
}

impl Drop for Work {
    fn drop(&mut self) {
        self.let_go_of_loops();
        if !self.stays
            && let Err(error) = fs::remove_dir_all(&self.path)
        {
            eprintln!("{}: stays: {error}", self.path.display());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_are_read_as_far_as_they_are_written() {
        let directory = tempfile::tempdir().unwrap();
        let text = "PASS\tg/a\t0.5\t\nFAIL\tg/b\t1.5\tERROR: no\nSKIP\tg/c\t0\t\nKILLED\tg/d\t60\t\nPASS\tg/e\t";
        fs::write(directory.path().join("results.tsv"), text).unwrap();
        let verdicts = verdicts(directory.path());
        let failed = |words: &str| Verdict::Failed(words.to_owned());
        let expected = [
            ("g/a", Verdict::Passed),
            ("g/b", failed("FAIL after 1.5 s: ERROR: no")),
            ("g/c", Verdict::Declined),
            ("g/d", failed("KILLED after 60 s: ")),
        ];
        assert_eq!(verdicts, expected.map(|(script, verdict)| (script.to_owned(), verdict)).into());
    }

    /// Whatever the runner does, it ends within the limit, and what it leaves is cleared away.
    #[test]
    fn a_runner_that_does_not_end_is_ended() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("work");
        let work = Work { path: path.clone(), stays: false };
        fs::create_dir(&path).unwrap();
        fs::write(path.join("left"), "by the runner").unwrap();
        let scripts = ["g/a".to_owned()];
        let run =
            Run { scripts: &scripts, tarn: PathBuf::new(), limit: Duration::from_millis(300), each: 1, loops: false, keep: None };
        let child = process::command("sleep").arg("600").spawn().unwrap();
        let id = child.id();
        let Ended::Done(verdicts) = watch(child, &run, &path).unwrap() else { panic!("not skipped") };
        assert!(verdicts.is_empty());
        assert!(!Path::new(&format!("/proc/{id}")).exists(), "it lives on");
        drop(work);
        assert!(!path.exists());
    }
}
