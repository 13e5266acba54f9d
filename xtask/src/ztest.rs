//! `cargo xtask oracle ztest`: OpenZFS's own stress program, on a pool of its making, then on the same pool after we wrote it.
//!
//! # Theory
//! ztest does everything at random to a pool, with many threads, and kills itself now and then; it knows what its objects must
//! hold. It needs no kernel: `../shared/oracle/golden/ztest` runs it beside us. The pool that it leaves has datasets that no
//! file system would make (encrypted ones, clones, holes, every checksum): our checker has to find nothing in it. Then we make a
//! file system in it and files; and ztest goes on with the pool, after its zdb has looked at it.
//!
//! All of that for each of its layouts: mirrors, RAID-Z, RAID-Z that is expanded, dRAID. What it makes by itself, mirrors of RAID-Z, nobody can make otherwise. It asks `/dev/zfs` whether the pool is in use, and wants to be
//! answered: a file that refuses stands in for the device, in a mount namespace of ours.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};
use sim::oracle::{OracleResult, zdb_check};
use sim::places;

use crate::mounted::tarn;

/// The name that it gives its pool, and looks for.
const POOL: &str = "ztest";
/// What top-level vdevs are: a name, and how ztest is told so. RAID-Z of one disk is none.
const LAYOUTS: [(&str, &[&str]); 4] = [
    (MIRRORS, &["-K", "raidz", "-r", "1", "-m", "2"]),
    ("raidz", &["-K", "raidz", "-m", "0"]),
    ("expansion", &["-K", "eraidz", "-m", "0"]),
    ("draid", &["-K", "draid", "-m", "0"]),
];
const MIRRORS: &str = "mirrors";
/// The mirrors have been split or reduced to single disks. To say then that there are some would make it damage the only copy of everything.
const SINGLE: &[&str] = &["-K", "raidz", "-r", "1", "-m", "1"];
/// The pool that is there, and nobody is killed: one who dies while he splits the pool leaves it without some of its disks.
const AGAIN: [&str; 3] = ["-E", "-k", "0"];
/// Devices of its own, with a `/dev/zfs` that is none, and then the command.
const NAMESPACE: &str = r#"set -e; old=$(mktemp -d); mount --rbind /dev "$old"; mount -t tmpfs tmpfs /dev
for name in null zero full random urandom; do touch /dev/$name; mount --bind "$old/$name" /dev/$name; done
mkdir /dev/shm; mount -t tmpfs tmpfs /dev/shm; ln -s /proc/self/fd /dev/fd; touch /dev/zfs; umount -l "$old"; rmdir "$old"; exec "$@""#;

/// `seconds` for each of both runs of each layout, or of one.
pub(crate) fn run(seconds: u64, only: Option<&str>) -> Result<()> {
    let Some(script) = places::in_shared("oracle/golden/ztest") else {
        places::skipped("ztest: ../shared/oracle is not there");
        return Ok(());
    };
    let chosen: Vec<_> = LAYOUTS.iter().filter(|(name, _)| only.is_none_or(|only| only == *name)).collect();
    ensure!(!chosen.is_empty(), "no such layout; there are {}", LAYOUTS.map(|(name, _)| name).join(", "));
    chosen.into_iter().try_for_each(|(name, options)| of_layout(&script, name, options, seconds).with_context(|| format!("ztest, {name}")))
}

fn of_layout(script: &Path, name: &str, options: &[&str], seconds: u64) -> Result<()> {
    let directory = std::env::temp_dir().join(format!("tarn-ztest-{}-{name}", std::process::id()));
    let (images, mount) = (directory.join("images"), directory.join("mnt"));
    fs::create_dir_all(&images)?;
    let tarn = Tarn { program: tarn()?, socket: directory.join("sock"), images: images.clone() };
    let ztest = |options: &[&str]| -> Result<()> {
        let mut command = Command::new("unshare");
        command.args(["--mount", "--propagation", "private", "bash", "-c", NAMESPACE, "-"]);
        command.arg(script).arg("-s").arg(seconds.to_string()).arg(&images).args(options);
        let output = command.output().with_context(|| script.display().to_string())?;
        let log = images.join("ztest.log");
        ensure!(output.status.success(), "ztest {}: {}; see {}", options.join(" "), output.status, log.display());
        let said = fs::read_to_string(&log).unwrap_or_default();
        println!("ztest {}: {}", options.join(" "), said.lines().last().unwrap_or("it says nothing").trim());
        Ok(())
    };
    ztest(options)?;
    tarn.check("as ztest left it")?;
    let import = || tarn.run(&["zpool", "import", "-N", "-f", "-d", &images.display().to_string(), POOL]);
    if let Err(refused) = import() {
        // It was killed while the pool had multihost protection, and a host without a number may not have it then. It ends without that.
        ensure!(format!("{refused:#}").contains("multihost property"), refused);
        ztest(&[options, &AGAIN].concat())?;
        import()?;
    }
    tarn.run(&["zfs", "create", "-o", &format!("mountpoint={}", mount.display()), "ztest/ours"])?;
    let copied = Command::new("cp").arg("-r").arg(crate::root().join("crates")).arg(&mount).status()?;
    ensure!(copied.success(), "our own source does not fit");
    fs::remove_dir_all(mount.join("crates/cli"))?;
    tarn.run(&["zpool", "export", POOL])?;
    tarn.check("after we wrote it")?;
    let options = if name == MIRRORS && tarn.has_single_disks()? { SINGLE } else { options };
    ztest(&[options, &AGAIN].concat())?;
    tarn.check("after ztest went on with it")?;
    fs::remove_dir_all(&directory)?;
    Ok(())
}

struct Tarn {
    program: PathBuf,
    socket: PathBuf,
    images: PathBuf,
}

impl Tarn {
    /// Is a top-level vdev one disk?
    fn has_single_disks(&self) -> Result<bool> {
        let output = self.run(&["zdb", "-e", "-p", &self.images.display().to_string(), "-C", POOL])?;
        // The tree is shown by indentation: the root, top-level vdevs, disks.
        let types: Vec<(usize, &str)> = output.lines().filter_map(|line| Some((line.find("type: ")?, line.trim()))).collect();
        let top = types.iter().map(|(indentation, _)| *indentation).filter(|indentation| Some(*indentation) > types.first().map(|first| first.0)).min();
        Ok(types.iter().any(|(indentation, kind)| Some(*indentation) == top && *kind == "type: 'file'"))
    }

    fn run(&self, words: &[&str]) -> Result<String> {
        let output = Command::new(&self.program).args(words).env("TARN_SOCKET", &self.socket).output()?;
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        ensure!(output.status.success(), "tarn {}: {}\n{}{}", words.join(" "), output.status, text(&output.stdout), text(&output.stderr));
        Ok(text(&output.stdout))
    }

    /// Our checker, and for comparison the real zdb.
    fn check(&self, when: &str) -> Result<()> {
        let seen = || format!("the pool {when}; see {}", self.images.display());
        self.run(&["zdb", "-e", "-p", &self.images.display().to_string(), "-bcc", POOL]).with_context(seen)?;
        let mut images = Vec::new();
        for entry in fs::read_dir(&self.images)? {
            let path = entry?.path();
            // A disk that was removed has no labels any more, and the real zdb minds.
            if is_image(&path) && self.run(&["zdb", "-l", &path.display().to_string()]).is_ok() {
                images.push(path);
            }
        }
        images.sort();
        match zdb_check(&images.iter().map(PathBuf::as_path).collect::<Vec<_>>()) {
            OracleResult::Clean => println!("the pool {when}: nothing wrong"),
            OracleResult::Wrong(output) => bail!("{}: the real zdb: {output}", seen()),
            OracleResult::Unavailable(reason) => bail!("the oracle cannot be asked: {reason}"),
        }
        Ok(())
    }
}

fn is_image(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    name.strip_prefix("ztest.").is_some_and(|rest| rest.starts_with(|first: char| first.is_ascii_digit()))
}
