//! A file as the user names it: by a path of this system, or by its dataset.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

use crate::fs::operand::{Operand, operand, within};
use crate::fs::tree::{Result, shown};
use crate::session::Session;

/// A file of a dataset.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::fs) struct FilePlace {
    pub(in crate::fs) dataset: String,
    /// Below the root, without a slash in front.
    pub(in crate::fs) path: Vec<u8>,
    /// Where it is on this system as it is now, if it was named by such a path.
    pub(in crate::fs) host: Option<PathBuf>,
}

impl FilePlace {
    pub(in crate::fs) fn shown(&self) -> String {
        format!("{}:/{}", self.dataset, shown(&self.path))
    }
}

/// The path without links, as far as there is something.
fn real(path: &Path) -> PathBuf {
    let mut missing: Vec<&OsStr> = Vec::new();
    let mut at = path;
    loop {
        // The last name may be a link that is meant itself.
        if at != path || at.file_name().is_none() {
            if let Ok(real) = at.canonicalize() {
                return missing.iter().rev().fold(real, |path, name| path.join(name));
            }
        }
        let (Some(above), Some(name)) = (at.parent(), at.file_name()) else { return path.to_owned() };
        missing.push(name);
        at = above;
    }
}

/// What of a path is below a mount point; a path through `.zfs/snapshot` means the file itself.
fn below(path: &Path, mountpoint: &Path) -> Option<Vec<u8>> {
    let rest = path.strip_prefix(mountpoint).ok()?;
    let names: Vec<&OsStr> = rest.components().filter_map(|part| if let Component::Normal(name) = part { Some(name) } else { None }).collect();
    let names = match names.as_slice() {
        [control, snapshots, _, rest @ ..] if *control == ".zfs" && *snapshots == "snapshot" => rest,
        names => names,
    };
    Some(names.iter().map(|name| name.as_bytes()).collect::<Vec<_>>().join(&b'/'))
}

/// The file that a word means: `POOL/FS:/PATH`, or a path below a mounted file system. It need not exist any more. A link is meant itself.
pub(in crate::fs) fn place(session: &mut Session<'_>, word: &OsStr) -> Result<FilePlace> {
    find(session, word, false)
}

/// The directory that a word means, perhaps by a link to it.
pub(in crate::fs) fn directory_place(session: &mut Session<'_>, word: &OsStr) -> Result<FilePlace> {
    find(session, word, true)
}

fn find(session: &mut Session<'_>, word: &OsStr, follow: bool) -> Result<FilePlace> {
    let path = match operand(word) {
        Operand::Dataset { name, path } => {
            let dataset = name.split('@').next().unwrap_or(name).to_owned();
            return Ok(FilePlace { dataset, path: within(path), host: None });
        }
        Operand::Host(path) => PathBuf::from(path),
    };
    let absolute = std::path::absolute(&path).map_err(|error| format!("{}: {error}", shown(word.as_bytes())))?;
    // Neither `.` nor `..` is left of what is not there.
    let itself = real(&absolute);
    let target = absolute.canonicalize().ok().filter(|target| *target != itself);
    let none = || {
        let word = shown(word.as_bytes());
        format!("{word}: no mounted file system of tarn has it; of a pool that is not imported, name it as POOL/FS:/PATH and say -d DIR")
    };
    let found = match target {
        Some(target) if follow && target.is_dir() => mounted(session, &target),
        Some(target) => mounted(session, &itself).or_else(|| mounted(session, &target)),
        None => mounted(session, &itself),
    };
    found.ok_or_else(none)
}

/// The file of a mounted file system that is at a path.
fn mounted(session: &mut Session<'_>, real: &Path) -> Option<FilePlace> {
    let mounts = session.mounts().unwrap_or_default();
    let mut found: Option<(usize, FilePlace)> = None;
    for mount in mounts {
        let mountpoint = PathBuf::from(&mount.mountpoint);
        let mountpoint = mountpoint.canonicalize().unwrap_or(mountpoint);
        let depth = mountpoint.components().count();
        if let Some(path) = below(real, &mountpoint)
            && found.as_ref().is_none_or(|(deepest, _)| depth >= *deepest)
        {
            let dataset = mount.dataset.split('@').next().unwrap_or(&mount.dataset).to_owned();
            let is_old = mount.dataset.contains('@') || real.components().any(|part| part.as_os_str() == ".zfs");
            let host = if is_old { None } else { Some(real.to_owned()) };
            found = Some((depth, FilePlace { dataset, path, host }));
        }
    }
    found.map(|(_, place)| place)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_below_a_mount_point() {
        let of = |path: &str| below(Path::new(path), Path::new("/mnt/a")).map(|path| String::from_utf8(path).unwrap());
        assert_eq!(of("/mnt/a/b/c"), Some("b/c".to_owned()));
        assert_eq!(of("/mnt/a"), Some(String::new()));
        assert_eq!(of("/mnt/a/.zfs/snapshot/one/b/c"), Some("b/c".to_owned()));
        assert_eq!(of("/mnt/b"), None);
    }
}
