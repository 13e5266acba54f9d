//! Opening disks by name, and looking for them.

use crate::gpt::ranges;
use crate::{Access, DiskKind, DiskRef, FileDisk, Footprint, SliceDisk, partitions};
use std::collections::BTreeSet;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Opens a file or block device, or with `name#3` the third partition of an image.
pub fn open(name: &str, access: Access) -> io::Result<DiskRef> {
    match FileDisk::open(Path::new(name), access) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let Some((image, range)) = partition(name)? else { return Err(error) };
            let opened: DiskRef = Arc::new(FileDisk::open_part(image, range.clone(), access)?);
            Ok(Arc::new(SliceDisk::new(name, opened, range.start, range.end - range.start)?))
        }
        result => result.map(|disk| Arc::new(disk) as DiskRef),
    }
}

/// The image in `name#3`, and where on it the partition lies.
fn partition(name: &str) -> io::Result<Option<(&Path, Range<u64>)>> {
    let Some((image, number)) = name.rsplit_once('#') else { return Ok(None) };
    let Ok(number) = number.parse::<u32>() else { return Ok(None) };
    let whole: DiskRef = Arc::new(FileDisk::open(Path::new(image), Access::Inspect)?);
    let found = ranges(&whole).into_iter().find(|(other, _)| *other == number);
    Ok(found.map(|(_, range)| (Path::new(image), range)))
}

/// What is behind a name that [`open`] takes; nothing, where there is nothing.
pub fn footprint(name: &str) -> Footprint {
    let (path, range) = match partition(name) {
        Ok(Some(part)) if !Path::new(name).exists() => part,
        _ => (Path::new(name), 0..u64::MAX),
    };
    std::fs::metadata(path).map(|found| Footprint::of(&found, range, path)).unwrap_or_default()
}

/// Opens, to look at, all files and block devices among `paths` and in the directories among them, and the partitions
/// of images. What cannot be opened is left out; what has two names is opened once.
pub fn find(paths: &[PathBuf]) -> Vec<DiskRef> {
    let mut seen = BTreeSet::new();
    let mut disks = Vec::new();
    for path in paths {
        let mut names = vec![path.clone()];
        if path.is_dir() {
            names = std::fs::read_dir(path)
                .map(|entries| entries.flatten().map(|entry| entry.path()).collect())
                .unwrap_or_default();
            names.sort();
        }
        for name in names {
            let Ok(real) = name.canonicalize() else { continue };
            if !seen.insert(real) {
                continue;
            }
            let Ok(disk) = FileDisk::open(&name, Access::Inspect) else { continue };
            let disk: DiskRef = Arc::new(disk);
            if disk.kind() == DiskKind::File {
                disks.extend(partitions(&disk).into_iter().map(|(_, part)| part));
            }
            disks.push(disk);
        }
    }
    disks
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_file_of_a_directory_is_found_once() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path();
        for name in ["b", "a"] {
            FileDisk::create(&path.join(name), 8192).unwrap();
        }
        std::os::unix::fs::symlink(path.join("a"), path.join("c")).unwrap();
        std::fs::create_dir(path.join("sub")).unwrap();
        let paths = [path.to_path_buf(), path.join("b"), path.join("none")];
        let found: Vec<String> = find(&paths).iter().map(|disk| disk.name().to_owned()).collect();
        let name = |n: &str| path.join(n).to_string_lossy().into_owned();
        assert_eq!(found, [name("a"), name("b")]);
        assert_eq!(open(&name("a"), Access::Write).unwrap().size_bytes(), 8192);
        assert_eq!(open(&name("a#1"), Access::Write).unwrap_err().kind(), io::ErrorKind::NotFound);
    }
}
