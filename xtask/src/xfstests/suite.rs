//! The suite's surroundings: two pools, each with a daemon, and a copy of the suite with our pieces in it.

use std::fs::{self, File};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail, ensure};
use sim::oracle::{OracleResult, zdb_check};
use sim::places::{in_shared, skipped};

const HELPER: &str = "/sbin/mount.fuse.tarn";
const POOL_OPTIONS: [&str; 6] = ["-O", "mountpoint=legacy", "-O", "acltype=posix", "-O", "xattr=sa"];
const POOL_BYTES: u64 = 6 << 30;

/// The pools, by the directories that they are mounted at.
const TEST: &str = "test";
const SCRATCH: &str = "scratch";

const MOUNT: &str = include_str!("../../xfstests/mount");
const DF: &str = include_str!("../../xfstests/df");
const RC: &str = include_str!("../../xfstests/rc");
const GODOWN: &str = include_str!("../../xfstests/godown");
const FLAKEY: &str = include_str!("../../xfstests/dmflakey");

pub(super) struct Suite {
    suite: PathBuf,
    work: PathBuf,
    tarn: PathBuf,
    made_helper: bool,
}

/// Links to all that is in one directory, in another.
fn link_all(from: &Path, to: &Path) -> Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from).with_context(|| format!("{}: is it there?", from.display()))? {
        let entry = entry?;
        symlink(entry.path(), to.join(entry.file_name()))?;
    }
    Ok(())
}

/// Writes a file anew: where a link was, what it led to stays as it is.
fn write_program(path: &Path, text: &str) -> Result<()> {
    if path.symlink_metadata().is_ok() {
        fs::remove_file(path)?;
    }
    fs::write(path, text)?;
    Ok(fs::set_permissions(path, fs::Permissions::from_mode(0o755))?)
}

impl Suite {
    /// Makes `work`, with the pools in it.
    pub(super) fn new(suite: &Path, work: &Path, tarn: PathBuf) -> Result<Suite> {
        fs::create_dir_all(work)?;
        let mut new = Suite { suite: suite.canonicalize()?, work: work.canonicalize()?, tarn, made_helper: false };
        for place in [TEST, SCRATCH] {
            fs::create_dir_all(new.path(place))?;
            let image = new.image(place);
            File::create(&image)?.set_len(POOL_BYTES)?;
            let mut words = vec!["zpool", "create", "-f"];
            words.extend(POOL_OPTIONS);
            let image = image.display().to_string();
            let pool = Suite::pool(place);
            words.extend([pool.as_str(), &image]);
            new.tarn(place, &words)?;
        }
        if !Path::new(HELPER).exists() {
            symlink(&new.tarn, HELPER).with_context(|| HELPER)?;
            new.made_helper = true;
        }
        new.copy_suite()?;
        Ok(new)
    }

    /// The suite is used where it lies; a directory of links to it has our pieces in place of some of its own.
    fn copy_suite(&self) -> Result<()> {
        let copy = self.path("suite");
        if copy.exists() {
            fs::remove_dir_all(&copy)?;
        }
        link_all(&self.suite, &copy)?;
        for directory in ["common", "src"] {
            fs::remove_file(copy.join(directory))?;
            link_all(&self.suite.join(directory), &copy.join(directory))?;
        }
        let theirs = fs::read_to_string(self.suite.join("common/rc"))?;
        write_program(&copy.join("common/rc"), &format!("{theirs}\n{RC}"))?;
        write_program(&copy.join("common/dmflakey"), FLAKEY)?;
        write_program(&copy.join("src/godown"), GODOWN)?;
        fs::write(self.path("config"), "")?;
        fs::create_dir_all(self.path("bin"))?;
        write_program(&self.path("bin/df"), DF)?;
        write_program(&self.path("bin/mount"), MOUNT)
    }

    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.work.join(name)
    }

    /// The suite tells file systems by their device: two runs at a time have different ones.
    fn pool(place: &str) -> String {
        format!("xf{place}{}", std::process::id())
    }

    fn image(&self, place: &str) -> PathBuf {
        self.path(&format!("{place}.img"))
    }

    fn socket(&self, place: &str) -> PathBuf {
        self.path(&format!("{place}.sock"))
    }

    fn tarn(&self, place: &str, words: &[&str]) -> Result<()> {
        let output = Command::new(&self.tarn).args(words).env("TARN_SOCKET", self.socket(place)).stdin(Stdio::null()).output()?;
        ensure!(output.status.success(), "tarn {}: {}", words.join(" "), String::from_utf8_lossy(&output.stderr));
        Ok(())
    }

    /// `./check` of the copy, in a session of its own, with all that it wants to know.
    pub(super) fn check(&self) -> Command {
        let mut command = Command::new("setsid");
        command.arg("./check").current_dir(self.path("suite")).stdin(Stdio::null());
        command.envs([("FSTYP", "fuse"), ("FUSE_SUBTYP", ".tarn"), ("MOUNT_OPTIONS", "-orw")]);
        for (name, place) in [("TEST_DEV", TEST), ("SCRATCH_DEV", SCRATCH), ("TARN_SCRATCH", SCRATCH)] {
            command.env(name, Suite::pool(place));
        }
        for (name, place) in [("TEST_DIR", "test"), ("SCRATCH_MNT", "scratch"), ("RESULT_BASE", "results"), ("HOST_OPTIONS", "config")] {
            command.env(name, self.path(place));
        }
        command.env("TARN", &self.tarn).env("TARN_SOCKET", self.socket(TEST)).env("TARN_SCRATCH_SOCKET", self.socket(SCRATCH));
        command.env("TARN_SCRATCH_IMAGE", self.image(SCRATCH)).env("TARN_POOL_BYTES", POOL_BYTES.to_string());
        command.env("TARN_POOL_OPTIONS", POOL_OPTIONS.join(" "));
        command.env("TARN_ZDB", in_shared("oracle/check/zdb").unwrap_or_default());
        let path = std::env::var("PATH").unwrap_or_default();
        command.env("PATH", format!("{}:{path}", self.path("bin").display()));
        command
    }

    /// After a test that was killed.
    pub(super) fn clear_mounts(&self) {
        for place in [SCRATCH, TEST] {
            let _ = Command::new("umount").arg("-l").arg(self.path(place)).stderr(Stdio::null()).status();
        }
    }

    /// Exports both pools and has the real zdb look at all that is in them.
    pub(super) fn finish(&self) -> Result<()> {
        self.clear_mounts();
        for place in [TEST, SCRATCH] {
            let pool = &Suite::pool(place);
            if self.tarn(place, &["zpool", "list", pool]).is_err() {
                self.tarn(place, &["zpool", "import", "-f", "-d", &self.image(place).display().to_string(), pool])?;
            }
            self.tarn(place, &["zpool", "export", "-f", pool])?;
            match zdb_check(&[&self.image(place)]) {
                OracleResult::Clean => println!("{pool}: zdb finds nothing wrong"),
                OracleResult::Unavailable(reason) => skipped(&format!("zdb: {reason}")),
                OracleResult::Wrong(output) => bail!("{}: zdb finds\n{output}", self.image(place).display()),
            }
        }
        Ok(())
    }
}

impl Drop for Suite {
    fn drop(&mut self) {
        self.clear_mounts();
        for place in [TEST, SCRATCH] {
            let _ = self.tarn(place, &["zpool", "export", "-f", &Suite::pool(place)]);
        }
        if self.made_helper {
            let _ = fs::remove_file(HELPER);
        }
    }
}
