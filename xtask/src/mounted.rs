//! A pool on a file, mounted by a daemon of its own: what the long runs of other people's programs work on.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail, ensure};
use sim::oracle::{OracleResult, zdb_check};

/// A directory with an image and a mount point. Ended with [`Mounted::finish`]; dropped after a failure it stays, except the mount.
pub(crate) struct Mounted {
    directory: PathBuf,
    tarn: PathBuf,
    transport: String,
}

/// What a pool is made with.
pub(crate) struct Pool<'a> {
    pub(crate) bytes: u64,
    /// `-O` options: `recordsize=4K`, ...
    pub(crate) properties: &'a [String],
    /// `TARN_FUSE`
    pub(crate) transport: &'a str,
}

const NAME: &str = "long";

/// The program: `TARN`, or the one beside this.
pub(crate) fn tarn() -> Result<PathBuf> {
    if let Some(given) = std::env::var_os("TARN") {
        return Ok(given.into());
    }
    let beside = std::env::current_exe()?.with_file_name("tarn");
    if !beside.is_file() {
        crate::cargo(&["build", "--package", "cli"], &[])?;
    }
    ensure!(beside.is_file(), "{} is not there: cargo build -p cli", beside.display());
    Ok(beside)
}

impl Mounted {
    /// Makes `directory`, an image in it, and a pool on that, mounted.
    pub(crate) fn new(directory: &Path, pool: &Pool<'_>) -> Result<Mounted> {
        fs::create_dir_all(directory)?;
        let mounted = Mounted { directory: directory.canonicalize()?, tarn: tarn()?, transport: pool.transport.to_owned() };
        File::create(mounted.image())?.set_len(pool.bytes)?;
        let place = mounted.path().display().to_string();
        let mut words = vec!["zpool", "create", "-f", "-m", &place];
        for property in pool.properties {
            words.extend(["-O", property]);
        }
        let image = mounted.image().display().to_string();
        words.extend([NAME, &image]);
        mounted.run(&words)?;
        Ok(mounted)
    }

    /// Where it is mounted.
    pub(crate) fn path(&self) -> PathBuf {
        self.directory.join("mnt")
    }

    fn image(&self) -> PathBuf {
        self.directory.join("image")
    }

    /// `tarn` with these words, for this daemon.
    pub(crate) fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(&self.tarn);
        command.args(words).env("TARN_SOCKET", self.directory.join("sock")).env("TARN_FUSE", &self.transport).stdin(Stdio::null());
        command
    }

    pub(crate) fn run(&self, words: &[&str]) -> Result<()> {
        let output = self.command(words).output().with_context(|| format!("{} cannot be run", self.tarn.display()))?;
        if !output.status.success() {
            let log = fs::read_to_string(self.directory.join("sock.log")).unwrap_or_default();
            bail!("tarn {}: {}\n{log}", words.join(" "), String::from_utf8_lossy(&output.stderr));
        }
        Ok(())
    }

    pub(crate) fn export(&self) -> Result<()> {
        self.run(&["zpool", "export", NAME])
    }

    pub(crate) fn import(&self) -> Result<()> {
        self.run(&["zpool", "import", "-d", &self.directory.display().to_string(), NAME])
    }

    /// Exports, asks the real zdb, and removes everything.
    pub(crate) fn finish(self) -> Result<()> {
        self.export()?;
        match zdb_check(&[&self.image()]) {
            OracleResult::Clean => {}
            OracleResult::Unavailable(reason) => sim::places::skipped(&format!("zdb: {reason}")),
            OracleResult::Wrong(output) => bail!("{}: zdb finds\n{output}", self.image().display()),
        }
        fs::remove_dir_all(&self.directory)?;
        Ok(())
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        // After `finish` there is nobody to be asked; after a failure the images stay, to be looked into.
        if self.directory.join("sock").exists() {
            let _ = self.command(&["zpool", "export", "-f", NAME]).stderr(Stdio::null()).status();
        }
    }
}
