//! Shows specimens to the kernel module in the oracle's virtual machine.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use super::Specimen;
use crate::places;

/// What the machine does with the pools.
const GUEST: &str = include_str!("guest.sh");
/// For booting and for each pool, in seconds, on a busy machine.
const BOOT_SECONDS: u64 = 300;
const POOL_SECONDS: u64 = 300;

/// What the kernel module left.
#[derive(Debug)]
pub(super) struct Seen {
    /// Its log, its manifests and the images as it left them.
    pub(super) directory: PathBuf,
    /// Whether it found everything right; `None`: the machine ended before it was done.
    pub(super) is_clean: Option<bool>,
}

impl Seen {
    pub(super) fn log(&self) -> String {
        fs::read_to_string(self.directory.join("log")).unwrap_or_default()
    }
}

/// One boot for all of `specimens`. Everything ends up in `place`, in `seen`.
pub(super) fn run(specimens: &[Specimen], place: &Path) -> Result<Vec<Seen>> {
    let shared = |path: &str| places::in_shared(path).with_context(|| format!("no ../shared/{path}"));
    let (machine, import, manifest) = (shared("oracle/vm/run")?, shared("oracle/check/guest-import")?, shared("oracle/golden/guest/manifest.py")?);
    let job = tempfile::Builder::new().prefix("tarn-peer-").tempdir()?;
    let pools = job.path().join("pools");
    let mut bytes = 0;
    for specimen in specimens {
        let directory = pools.join(&specimen.name);
        fs::create_dir_all(&directory)?;
        // The machine's archive follows links.
        symlink(fs::canonicalize(&specimen.directory)?, directory.join("images"))?;
        fs::write(directory.join("env"), format!("MODE=file RO= DEG={}\n", if specimen.degraded { "1" } else { "" }))?;
        for image in specimen.images()? {
            bytes += std::os::unix::fs::MetadataExt::blocks(&fs::metadata(image)?) * 512;
        }
    }
    let script = job.path().join("guest.sh");
    fs::write(&script, GUEST)?;
    let seen = place.join("seen");
    fs::create_dir_all(&seen)?;
    let seconds = BOOT_SECONDS + POOL_SECONDS * specimens.len() as u64;
    println!("{} pools, {} MiB, go to the kernel module", specimens.len(), bytes >> 20);
    let mut command = Command::new(machine);
    command.args(["-m", "8192", "-t", &seconds.to_string(), "-o"]).arg(&seen).arg(script).arg(import).arg(manifest).arg(pools);
    let status = command.status()?;
    ensure!(status.code() != Some(97), "the virtual machine cannot run: {status}");
    let of = |specimen: &Specimen| {
        let directory = seen.join(&specimen.name);
        let status = fs::read_to_string(directory.join("status")).ok();
        Seen { directory, is_clean: status.map(|text| text.trim() == "0") }
    };
    Ok(specimens.iter().map(of).collect())
}
