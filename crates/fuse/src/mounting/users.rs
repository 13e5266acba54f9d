//! The processes and mounts that keep a file system in use.

use std::collections::HashSet;
use std::fs;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, StatxFlags, statx};

use crate::mounting::mount_table::{self, MountEntry};

/// Processes, by number.
fn processes() -> impl Iterator<Item = u32> {
    let list = fs::read_dir("/proc").into_iter().flatten().flatten();
    list.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

/// The files and directories of a process that it can use without a path: links in `/proc`, to be opened.
fn files_of(process: u32) -> impl Iterator<Item = PathBuf> {
    let links = ["cwd", "root", "exe"].into_iter().map(move |link| PathBuf::from(format!("/proc/{process}/{link}")));
    links.chain(fs::read_dir(format!("/proc/{process}/fd")).into_iter().flatten().flatten().map(|entry| entry.path()))
}

/// Those of all processes that we may look at.
pub(crate) fn open_files() -> impl Iterator<Item = PathBuf> {
    processes().flat_map(files_of)
}

/// Does a process that this one can see use a file of it?
pub(crate) fn is_used(device: (u32, u32)) -> bool {
    processes().any(|process| used_by(process, device).is_some())
}

/// What keeps an unmounted file system alive.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Keepers {
    /// In words: a process that uses a file of it, or where in this mount namespace it is bound.
    pub(crate) user: Option<String>,
    /// In words: another mount namespace has a copy of the mount, as it has of all that there was when it was made.
    pub(crate) copy: Option<String>,
}

impl Keepers {
    /// The keepers that this process can see.
    pub(crate) fn of(device: (u32, u32)) -> Keepers {
        let mounted = |table: Vec<MountEntry>| table.into_iter().find(|entry| entry.device == device).map(|entry| entry.mount_point);
        if let Some(place) = mount_table::own().ok().and_then(mounted) {
            return Keepers { user: Some(format!("it is mounted on {} too", place.display())), copy: None };
        }
        let user = processes().find_map(|process| Some((process, used_by(process, device)?)));
        let user = user.map(|(process, file)| format!("process {process} ({}) uses {}", name(process), file.display()));
        let mut seen: HashSet<PathBuf> = fs::read_link("/proc/self/ns/mnt").into_iter().collect();
        let copy = processes().find_map(|process| {
            let is_new = fs::read_link(format!("/proc/{process}/ns/mnt")).is_ok_and(|namespace| seen.insert(namespace));
            let place =
                is_new.then(|| mount_table::read(Path::new(&format!("/proc/{process}/mountinfo"))).ok().and_then(mounted)).flatten()?;
            Some(format!(
                "process {process} ({}) has it mounted on {}, in a mount namespace of its own",
                name(process),
                place.display()
            ))
        });
        Keepers { user, copy }
    }
}

/// A file of a file system that a process has open, runs, is in, or has mapped.
fn used_by(process: u32, device: (u32, u32)) -> Option<PathBuf> {
    let open = files_of(process).find(|file| is_on(file, device)).map(|file| fs::read_link(file).unwrap_or_default());
    open.or_else(|| {
        let mapped = format!("{:02x}:{:02x}", device.0, device.1);
        let maps = fs::read_to_string(format!("/proc/{process}/maps")).ok()?;
        let mut lines = maps.lines().map(|line| line.split_whitespace().skip(3));
        lines.find_map(|mut words| (words.next() == Some(&mapped)).then(|| words.nth(1).unwrap_or_default().into()))
    })
}

fn is_on(file: &Path, device: (u32, u32)) -> bool {
    let found = statx(CWD, file, AtFlags::STATX_DONT_SYNC, StatxFlags::empty());
    found.is_ok_and(|found| (found.stx_dev_major, found.stx_dev_minor) == device)
}

fn name(process: u32) -> String {
    fs::read_to_string(format!("/proc/{process}/comm")).map_or_else(|_| "gone".to_owned(), |name| name.trim_end().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_uses_its_directory() {
        let here = statx(CWD, ".", AtFlags::empty(), StatxFlags::empty()).unwrap();
        assert!(used_by(std::process::id(), (here.stx_dev_major, here.stx_dev_minor)).is_some());
        assert_eq!(Keepers::of((u32::MAX, 0)), Keepers::default());
    }
}
