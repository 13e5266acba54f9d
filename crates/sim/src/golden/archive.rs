//! Unpacks golden pools: `images.tar.zst` (sparse tar of the vdevs) and `manifest.json.zst`.
//!
//! Small pools are in the project (`crates/sim/golden/NAME`), all of them in `../shared/oracle/golden/out/NAME`; the
//! layout is the same.

use std::fs::File;
use std::io::{BufReader, Read};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};

use super::manifest::Manifest;
use crate::places;

/// The largest window that the archives were compressed with.
const WINDOW_LOG_MAX: u32 = 27;
/// No manifest is larger than this, unpacked.
const MANIFEST_BYTES_MAX: u64 = 256 << 20;

/// A golden pool, unpacked.
#[derive(Debug)]
pub struct Golden {
    /// Its name in the table of golden pools.
    pub name: String,
    /// The vdevs' image files, in the order of their names.
    pub images: Vec<PathBuf>,
    /// Its contents.
    pub manifest: Manifest,
    /// The directory with the datasets' keys, if there are any.
    pub keys: Option<PathBuf>,
    /// Removed with the value.
    directory: tempfile::TempDir,
}

impl Golden {
    /// The directory that the images are in (what `import -d` takes).
    pub fn directory(&self) -> &Path {
        self.directory.path()
    }

    /// The golden pool `name`, from the project or from beside it. `None` if it is in neither.
    pub fn find(name: &str) -> Result<Option<Golden>> {
        match Golden::place(name) {
            Some(place) => unpack(&place).map(Some),
            None => Ok(None),
        }
    }

    /// Another manifest of the pool, if it has one: `manifest-rewound.json` says what its checkpoint keeps.
    pub fn other_manifest(&self, file: &str) -> Result<Option<Manifest>> {
        let place = Golden::place(&self.name).map(|place| place.join(format!("{file}.zst"))).filter(|place| place.exists());
        place.map(|place| Manifest::read(&place)).transpose()
    }

    /// Where the archive of `name` is.
    pub fn place(name: &str) -> Option<PathBuf> {
        let ours = places::workspace_root().join("crates/sim/golden").join(name);
        if ours.is_dir() { Some(ours) } else { places::in_shared(&format!("oracle/golden/out/{name}")) }
    }
}

/// The golden pools beside the project, in the order of their names: those in the directory `TARN_GOLDEN_DIR` (`TARN_GOLDEN=name,name`: these
/// of them). `None`: it is not set.
///
/// # Errors
/// The directory cannot be read, or has none of them.
pub fn elsewhere() -> Result<Option<Vec<PathBuf>>> {
    let Some(directory) = std::env::var_os("TARN_GOLDEN_DIR").map(PathBuf::from) else { return Ok(None) };
    let chosen = std::env::var("TARN_GOLDEN").ok();
    let is_chosen = |name: &str| chosen.as_deref().is_none_or(|chosen| chosen.split(',').any(|one| one == name));
    let mut found = Vec::new();
    for entry in directory.read_dir().with_context(|| directory.display().to_string())? {
        let entry = entry?;
        if entry.path().join("manifest.json.zst").exists() && is_chosen(&entry.file_name().to_string_lossy()) {
            found.push(entry.path());
        }
    }
    ensure!(!found.is_empty(), "no pool in {}", directory.display());
    found.sort();
    Ok(Some(found))
}

/// Unpacks the golden pool in `place` (a directory with `images.tar.zst` and `manifest.json.zst`) into a directory of its
/// own, which lives as long as the value.
pub fn unpack(place: &Path) -> Result<Golden> {
    let name = place.file_name().with_context(|| format!("{}: no name", place.display()))?.to_string_lossy().into_owned();
    let manifest = Manifest::read(&place.join("manifest.json.zst"))?;
    let directory = tempfile::Builder::new().prefix("tarn-golden-").tempdir().context("a directory for the images")?;
    let archive = place.join("images.tar.zst");
    let mut images = unpack_archive(&archive, directory.path()).with_context(|| archive.display().to_string())?;
    images.sort();
    ensure!(!images.is_empty(), "{}: no images in it", archive.display());
    let keys = Some(place.join("keys")).filter(|keys| keys.is_dir());
    Ok(Golden { name, images, manifest, keys, directory })
}

fn unpack_archive(archive: &Path, into: &Path) -> Result<Vec<PathBuf>> {
    let mut decoder = zstd::Decoder::new(File::open(archive)?)?;
    decoder.window_log_max(WINDOW_LOG_MAX)?;
    let mut tar = tar::Archive::new(decoder);
    let mut images = Vec::new();
    for entry in tar.entries()? {
        let mut entry = entry?;
        let path = entry.path()?.into_owned();
        let Some(file) = path.file_name().filter(|_| path.components().count() == 1) else {
            bail!("{}: not a plain file name", path.display());
        };
        let target = into.join(file);
        entry.unpack(&target)?;
        images.push(target);
    }
    Ok(images)
}

/// The text of `path`, decompressed if its name ends in `.zst`.
pub(crate) fn read_text(path: &Path) -> Result<String> {
    let file = File::open(path).with_context(|| path.display().to_string())?;
    let mut text = String::new();
    let read: Box<dyn Read> = if path.extension().is_some_and(|end| end == "zst") {
        let mut decoder = zstd::Decoder::new(file)?;
        decoder.window_log_max(WINDOW_LOG_MAX)?;
        Box::new(decoder)
    } else {
        Box::new(BufReader::new(file))
    };
    read.take(MANIFEST_BYTES_MAX).read_to_string(&mut text).with_context(|| path.display().to_string())?;
    Ok(text)
}
