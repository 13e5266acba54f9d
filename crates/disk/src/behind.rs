//! What is behind the name of a disk: where its bytes really lie.
//!
//! # Theory
//! One thing has many names: hard links, mounts, loop devices over a file and over each other, partitions, what the device mapper makes of other devices.
//! From a name one goes down to the files and devices below it; on each of these the disk takes a range, its *footprint* there. Two names
//! are one thing in part if their footprints on the same file or device overlap.
//!
//! Files are known by device and inode, block devices by number: no path is trusted, since in another mount namespace it may lead to another file.
//! What the device mapper and software RAID put where is not looked at: they may use all of a device below. Two that do may be neighbours (logical volumes),
//! so they are no overlap; one of them and somebody who has the device itself are.

use std::fs::{self, File};
use std::ops::Range;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

/// Layers of devices over each other; deeper ones are not looked at.
const DEPTH_MAX: usize = 16;
/// The kernel's unit in what it says of partitions.
const SECTOR: u64 = 512;
/// `LOOP_GET_STATUS64`, and how long its answer is.
const LOOP_STATUS: u32 = 0x4c05;
const LOOP_STATUS_WORDS: usize = 29;

/// A file or a block device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Base {
    File { device: u64, inode: u64 },
    Block(u64),
}

/// The part of a file or device that something uses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Extent {
    pub(crate) base: Base,
    pub(crate) range: Range<u64>,
    /// Uses all of the range itself, and not some of it, who knows what.
    pub(crate) exact: bool,
    /// Lies directly below a loop device, which has no claim on it.
    pub(crate) below_loop: bool,
    /// By what name it was reached; perhaps not one that leads there from here.
    pub(crate) path: PathBuf,
}

/// Where the bytes of a disk lie, on each layer from the top.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Footprint(pub(crate) Vec<Extent>);

impl Extent {
    fn overlaps(&self, other: &Extent) -> bool {
        let meet = self.range.start < other.range.end && other.range.start < self.range.end;
        self.base == other.base && meet && (self.exact || other.exact)
    }
}

impl Footprint {
    /// Of a range of what was found at `path`; nothing, if that is no disk.
    pub(crate) fn of(found: &fs::Metadata, range: Range<u64>, path: &Path) -> Footprint {
        let base = match found.file_type() {
            kind if kind.is_file() => Base::File { device: found.dev(), inode: found.ino() },
            kind if kind.is_block_device() => Base::Block(found.rdev()),
            _ => return Footprint::default(),
        };
        Machine::default().footprint(Extent { base, range, exact: true, below_loop: false, path: path.to_owned() })
    }

    /// Are they the same thing, if only in part?
    pub fn overlaps(&self, other: &Footprint) -> bool {
        self.0.iter().any(|extent| other.0.iter().any(|theirs| extent.overlaps(theirs)))
    }
}

/// The drive below an open file or device, by number.
pub(crate) fn drive_of(found: &fs::Metadata) -> u64 {
    let base = if found.file_type().is_block_device() { Base::Block(found.rdev()) } else { Base::File { device: found.dev(), inode: found.ino() } };
    Machine::default().drive(base)
}

/// What a loop device lies over.
pub(crate) struct LoopOver {
    pub(crate) base: Base,
    pub(crate) range: Range<u64>,
}

/// Asks a loop device; `None`: it has nothing, or is none.
#[expect(unsafe_code, reason = "rustix has not this request")]
fn ask_loop(device: &File) -> Option<LoopOver> {
    // SAFETY: the request fills a `loop_info64`, which has no pointers and is as long as these words.
    let words =
        unsafe { rustix::ioctl::ioctl(device, rustix::ioctl::Getter::<LOOP_STATUS, [u64; LOOP_STATUS_WORDS]>::new()) }.ok()?;
    let [device, inode, number, offset, limit, ..] = words;
    let end = if limit == 0 { u64::MAX } else { offset.saturating_add(limit) };
    let base = if number == 0 { Base::File { device, inode } } else { Base::Block(number) };
    Some(LoopOver { base, range: offset..end })
}

/// `range` of a device whose bytes are those of `within` a lower one.
fn shifted(range: &Range<u64>, within: &Range<u64>) -> Range<u64> {
    within.start.saturating_add(range.start)..within.start.saturating_add(range.end).min(within.end)
}

/// Where the kernel tells of devices.
pub(crate) struct Machine {
    sys: PathBuf,
    dev: PathBuf,
}

impl Default for Machine {
    fn default() -> Machine {
        Machine { sys: "/sys".into(), dev: "/dev".into() }
    }
}

impl Machine {
    fn footprint(&self, top: Extent) -> Footprint {
        let mut found = Vec::new();
        self.descend(top, &mut found, DEPTH_MAX);
        Footprint(found)
    }

    fn descend(&self, extent: Extent, found: &mut Vec<Extent>, depth: usize) {
        let below = match extent.base {
            Base::Block(number) if depth > 0 => self.below(number, &extent),
            _ => Vec::new(),
        };
        found.push(extent);
        below.into_iter().for_each(|extent| self.descend(extent, found, depth - 1));
    }

    /// The number of the drive that does the work for a file or device in the end; of several below one, that of the one.
    fn drive(&self, mut base: Base) -> u64 {
        for _ in 0..DEPTH_MAX {
            base = match base {
                Base::File { device, .. } => Base::Block(device),
                Base::Block(number) => {
                    let whole = Extent { base, range: 0..u64::MAX, exact: false, below_loop: false, path: PathBuf::new() };
                    let Ok([only]) = <[Extent; 1]>::try_from(self.below(number, &whole)) else { return number };
                    only.base
                }
            }
        }
        u64::MAX
    }

    fn about(&self, number: u64) -> PathBuf {
        self.sys.join(format!("dev/block/{}:{}", rustix::fs::major(number), rustix::fs::minor(number)))
    }

    /// The next layer.
    fn below(&self, number: u64, extent: &Extent) -> Vec<Extent> {
        let about = self.about(number);
        if let Some(over) = self.loop_over(number) {
            let path = match over.base {
                Base::File { .. } => backing_path(&about),
                Base::Block(number) => self.node(number),
            };
            return vec![Extent {
                base: over.base,
                range: shifted(&extent.range, &over.range),
                exact: extent.exact,
                below_loop: true,
                path,
            }];
        }
        let device = |place: &Path, range: Range<u64>, exact: bool| {
            let number = number_in(&place.join("dev"))?;
            Some(Extent { base: Base::Block(number), range, exact, below_loop: false, path: self.node(number) })
        };
        if about.join("partition").exists() {
            let told = |name: &str| text_in(&about.join(name))?.parse::<u64>().ok()?.checked_mul(SECTOR);
            let (start, length) = (told("start").unwrap_or(0), told("size").unwrap_or(u64::MAX));
            // The directory of a partition lies in that of its disk.
            let disk = fs::canonicalize(&about).ok().and_then(|real| real.parent().map(Path::to_owned));
            return disk
                .and_then(|disk| device(&disk, shifted(&extent.range, &(start..start.saturating_add(length))), extent.exact))
                .into_iter()
                .collect();
        }
        let slaves = fs::read_dir(about.join("slaves")).into_iter().flatten().flatten();
        slaves.filter_map(|slave| device(&slave.path(), 0..u64::MAX, false)).collect()
    }

    /// The name of a device in `/dev`.
    pub(crate) fn node(&self, number: u64) -> PathBuf {
        let told = text_in(&self.about(number).join("uevent")).unwrap_or_default();
        let name = told.lines().find_map(|line| line.strip_prefix("DEVNAME=")).unwrap_or("none");
        self.dev.join(name)
    }

    /// Opens a device, to ask it or to look whether it can be had; `None`: it is not in `/dev`, or not for us.
    pub(crate) fn open(&self, number: u64, flags: i32) -> std::io::Result<Option<File>> {
        use std::os::unix::fs::OpenOptionsExt;
        let node = self.node(number);
        if !fs::metadata(&node).is_ok_and(|found| found.file_type().is_block_device() && found.rdev() == number) {
            return Ok(None);
        }
        match fs::OpenOptions::new().read(true).custom_flags(flags | libc::O_NONBLOCK).open(&node) {
            Err(error) if error.kind() == std::io::ErrorKind::ResourceBusy => Err(error),
            opened => Ok(opened.ok()),
        }
    }

    fn loop_over(&self, number: u64) -> Option<LoopOver> {
        if !self.about(number).join("loop").exists() {
            return None;
        }
        ask_loop(&self.open(number, 0).ok()??)
    }

    /// The loop devices over a part of something, by number.
    pub(crate) fn loops_over(&self, extent: &Extent) -> Vec<u64> {
        let all = fs::read_dir(self.sys.join("block")).into_iter().flatten().flatten();
        let bound = all.map(|entry| entry.path()).filter(|place| place.join("loop").exists());
        let numbers = bound.filter_map(|place| number_in(&place.join("dev")));
        let lies_over = |number: &u64| {
            let over = self.loop_over(*number);
            over.is_some_and(|over| {
                over.base == extent.base && over.range.start < extent.range.end && extent.range.start < over.range.end
            })
        };
        numbers.filter(lies_over).collect()
    }
}

fn text_in(path: &Path) -> Option<String> {
    Some(fs::read_to_string(path).ok()?.trim().to_owned())
}

fn number_in(path: &Path) -> Option<u64> {
    let text = text_in(path)?;
    let (major, minor) = text.split_once(':')?;
    Some(rustix::fs::makedev(major.parse().ok()?, minor.parse().ok()?))
}

/// As the kernel tells it: the name that the file had, from the root that we have.
fn backing_path(about: &Path) -> PathBuf {
    use std::os::unix::ffi::OsStringExt;
    let mut name = fs::read(about.join("loop/backing_file")).unwrap_or_default();
    name.pop_if(|byte| *byte == b'\n');
    std::ffi::OsString::from_vec(name).into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    /// A machine with a disk 8:0 that has two partitions, and with devices of the device mapper over them.
    fn machine(root: &Path) -> Machine {
        let devices = root.join("devices");
        for (name, number, files) in [
            ("sda", "8:0", &[][..]),
            ("sda/sda1", "8:1", &[("partition", "1"), ("start", "2048"), ("size", "4096")]),
            ("sda/sda2", "8:2", &[("partition", "2"), ("start", "6144"), ("size", "4096")]),
            ("dm-0", "253:0", &[]),
            ("dm-1", "253:1", &[]),
        ] {
            let place = devices.join(name);
            fs::create_dir_all(&place).unwrap();
            fs::write(place.join("dev"), number).unwrap();
            files.iter().for_each(|(name, text)| fs::write(place.join(name), text).unwrap());
            fs::create_dir_all(root.join("dev/block")).unwrap();
            symlink(&place, root.join("dev/block").join(number)).unwrap();
        }
        for volume in ["dm-0", "dm-1"] {
            fs::create_dir(devices.join(volume).join("slaves")).unwrap();
            symlink(devices.join("sda/sda2"), devices.join(volume).join("slaves/sda2")).unwrap();
        }
        Machine { sys: root.to_owned(), dev: root.join("nodes") }
    }

    fn on(machine: &Machine, major: u32, minor: u32) -> Footprint {
        let base = Base::Block(rustix::fs::makedev(major, minor));
        machine.footprint(Extent { base, range: 0..u64::MAX, exact: true, below_loop: false, path: "d".into() })
    }

    #[test]
    fn partitions_and_volumes_lie_on_their_disks() {
        let directory = tempfile::tempdir().unwrap();
        let machine = machine(directory.path());
        let [disk, first, second, volume, other] =
            [(8, 0), (8, 1), (8, 2), (253, 0), (253, 1)].map(|(major, minor)| on(&machine, major, minor));
        assert_eq!(first.0[1].range, 2048 * 512..6144 * 512);
        for (one, two, same) in [
            (&disk, &first, true),
            (&disk, &second, true),
            (&first, &second, false),
            (&volume, &second, true),
            (&volume, &disk, true),
            (&volume, &first, false),
            // Where in the partition the two lie nobody knows: they may be neighbours.
            (&volume, &other, false),
            (&volume, &volume, true),
        ] {
            assert_eq!((one.overlaps(two), two.overlaps(one)), (same, same), "{one:?}\n{two:?}");
        }
    }

    #[test]
    fn a_file_is_one_whatever_its_name() {
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name);
        fs::write(path("a"), "1").unwrap();
        fs::write(path("b"), "2").unwrap();
        fs::hard_link(path("a"), path("hard")).unwrap();
        symlink(path("a"), path("soft")).unwrap();
        let of = |name: &str| crate::footprint(&path(name).to_string_lossy());
        assert!(of("a").overlaps(&of("hard")) && of("a").overlaps(&of("soft")) && of("hard").overlaps(&of("soft")));
        assert!(!of("a").overlaps(&of("b")) && !of("a").overlaps(&of("none")) && !of("none").overlaps(&of("none")));
    }
}
