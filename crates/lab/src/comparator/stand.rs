//! The storage below a file system: written files, loop devices over them, simulated disks below these.
//!
//! # Theory
//!
//! Each comparator gets the same number of disks, of the same size, from the same directory. A file system of the
//! kernel needs block devices; a ZFS in user space takes files, unless the disks are simulated: then all of them get a
//! loop device over a file that the simulation serves, so that no one's requests pass through a cache on the way.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use super::{Setup, image};
use crate::disk::Model;
use crate::disk::served::{Clock, Served};
use crate::disk::way::Way;
use crate::process;
use crate::undo::Undo;

/// The disks of one comparator.
pub(super) struct Stand {
    /// The files or block devices that the file system gets.
    pub(super) paths: Vec<PathBuf>,
    /// The files that hold it all.
    pub(super) files: Vec<PathBuf>,
    /// The block devices, where there are any.
    pub(super) devices: Vec<PathBuf>,
    /// In words: how many, how large, how slow.
    pub(super) words: String,
}

impl Setup {
    fn in_words(&self, block_devices: bool) -> String {
        let megabytes = (self.image_bytes / self.disks as u64) >> 20;
        let file = self.model.as_ref().map_or("file".to_owned(), |model| format!("simulated disk ({})", model.name));
        match (self.disks, block_devices) {
            (1, false) => format!("on a written file of {megabytes} MB"),
            (1, true) => format!("on a loop device over a written {file} of {megabytes} MB"),
            (disks, false) => format!("on {disks} written files of {megabytes} MB each"),
            (disks, true) => format!("on {disks} loop devices, each over a written {file} of {megabytes} MB"),
        }
    }

    /// Files, or the block devices of simulated disks.
    pub(super) fn stand(&self, folder: &Path, undo: &mut Undo) -> Result<Stand> {
        let files = self.files(folder)?;
        match &self.model {
            None => Ok(Stand { paths: files.clone(), files, devices: Vec::new(), words: self.in_words(false) }),
            Some(_) => self.over(files, undo),
        }
    }

    /// Block devices in any case.
    pub(super) fn block_devices(&self, folder: &Path, undo: &mut Undo) -> Result<Stand> {
        let files = self.files(folder)?;
        self.over(files, undo)
    }

    fn files(&self, folder: &Path) -> Result<Vec<PathBuf>> {
        let bytes = self.image_bytes / self.disks as u64 / (1 << 20) * (1 << 20);
        let name = |number: usize| if self.disks == 1 { "image".to_owned() } else { format!("image{number}") };
        let files: Vec<PathBuf> = (0..self.disks).map(|number| folder.join(name(number))).collect();
        files.iter().try_for_each(|file| image(file, bytes))?;
        Ok(files)
    }

    fn over(&self, files: Vec<PathBuf>, undo: &mut Undo) -> Result<Stand> {
        let mut devices = Vec::new();
        for file in &files {
            devices.push(match &self.model {
                Some(model) => simulated(file, model, undo)?,
                None => attach(file, undo)?,
            });
        }
        Ok(Stand { paths: devices.clone(), files, devices, words: self.in_words(true) })
    }
}

/// A loop device over `file`, past the page cache; `words` are for losetup.
fn attach_with(words: &[&str], file: &Path, undo: &mut Undo) -> Result<PathBuf> {
    let device = process::succeed(process::command("losetup").args(["--find", "--show", "--direct-io=on"]).args(words).arg(file))
        .context("no loop device (modprobe loop; a container must be given /dev/loop-control and /dev/loop*)")?;
    let device = device.trim().to_owned();
    let detached = device.clone();
    undo.push(format!("detach {device}"), move || process::run("losetup", ["--detach", &detached]).map(drop));
    Ok(PathBuf::from(device))
}

/// A loop device over `file`, past the page cache, to which flushes are sent.
fn attach(file: &Path, undo: &mut Undo) -> Result<PathBuf> {
    let device = attach_with(&[], file, undo)?;
    say_cache(&device, true)?;
    Ok(device)
}

/// Says to the kernel whether a loop device has a write cache that it must flush. The device keeps what is said here for as long as the
/// machine runs, whatever file it is given next.
fn say_cache(device: &Path, has_cache: bool) -> Result<()> {
    let setting = queue(device).join("write_cache");
    let words = if has_cache { "write back" } else { "write through" };
    // Writing the setting reads and checks the whole queue's: only where it is to change.
    if fs::read_to_string(&setting).is_ok_and(|now| now.trim() == words) {
        return Ok(());
    }
    fs::write(&setting, words).with_context(|| format!("cannot say '{words}' to {}", setting.display()))
}

/// A setting of a block device's queue.
fn queue(device: &Path) -> PathBuf {
    Path::new("/sys/block").join(device.file_name().unwrap_or_default()).join("queue")
}

/// The same over the file of a simulated disk. It has sectors of 4 K, as such drives have inside: two writes to neighbouring sectors
/// of one page would wait for each other in the kernel. And the kernel does not hold writers back: it does so by a latency
/// that it expects of a drive, and how the model's queue fills is for the file system to decide. A loop device says of itself that it has a
/// write cache: the kernel would send flushes to a drive that has none, one at a time, and its writers would take turns.
fn attach_simulated(file: &Path, model: &Model, undo: &mut Undo) -> Result<PathBuf> {
    let device = attach_with(&["--sector-size", "4096"], file, undo)?;
    // Kernels without such throttling have no such file.
    let throttle = queue(&device).join("wbt_lat_usec");
    let before = fs::read_to_string(&throttle).ok();
    let _ = fs::write(&throttle, "0");
    let left = device.clone();
    undo.push(format!("have flushes sent to {} again", device.display()), move || {
        if let Some(before) = before {
            let _ = fs::write(&throttle, before);
        }
        say_cache(&left, true)
    });
    say_cache(&device, model.has_write_cache())?;
    Ok(device)
}

/// A block device that behaves like a disk of that model; `file` holds its data.
///
/// # Errors
/// The machine is too slow for the model, or cannot make one.
pub fn simulated(file: &Path, model: &Model, undo: &mut Undo) -> Result<PathBuf> {
    let (device, clock, way) = simulated_anyway(file, model, undo)?;
    let refusal = match model.refusal(&way) {
        None => clock.overload(&device, model)?,
        refusal => refusal,
    };
    match refusal {
        Some(why) => bail!(why),
        None => Ok(device),
    }
}

/// The same, also where its time is not that of the model; what the way to it takes.
pub fn simulated_anyway(file: &Path, model: &Model, undo: &mut Undo) -> Result<(PathBuf, Clock, Way)> {
    let served = Served::start(file, model.clone()).context("cannot simulate a disk")?;
    let (path, clock) = (served.path().to_owned(), served.clock());
    undo.push(format!("end the simulated disk {}", path.display()), move || served.end());
    let device = attach_simulated(&path, model, undo)?;
    let way = clock.set(&device)?;
    Ok((device, clock, way))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::preset;

    /// The drive without a cache was sent flushes for months: a loop device has them done one at a time, so that eight writers got 352
    /// writes a second where the drive does 632.
    #[test]
    fn the_kernel_knows_whether_a_simulated_drive_has_a_write_cache() {
        if !rustix::process::geteuid().is_root() || !Path::new("/dev/loop-control").exists() {
            return sim::places::skipped("the write caches of simulated disks: loop devices take root and /dev/loop-control");
        }
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("image");
        fs::File::create_new(&file).unwrap().set_len(1 << 20).unwrap();
        for (name, expected) in [("sata-7200", "write back"), ("sata-7200-wt", "write through"), ("scsi-9g", "write through")] {
            let mut undo = Undo::new();
            let device = attach_simulated(&file, preset(name).unwrap(), &mut undo).unwrap();
            assert_eq!(cache_of(&device), expected, "{name}");
        }
    }

    fn cache_of(device: &Path) -> String {
        fs::read_to_string(queue(device).join("write_cache")).unwrap().trim().to_owned()
    }

    /// The kernel remembers what it was told of a loop device: after one run with drives without a cache, no flush reached the files below
    /// ext4 and XFS any more, whose durable writes then took 30 us where the disk took 170, and were what ours were compared with.
    #[test]
    fn a_loop_device_is_sent_flushes_whatever_it_was_told_before() {
        if !rustix::process::geteuid().is_root() || !Path::new("/dev/loop-control").exists() {
            return sim::places::skipped("what is left of the settings of loop devices: they take root and /dev/loop-control");
        }
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("image");
        fs::File::create_new(&file).unwrap().set_len(1 << 20).unwrap();
        let mut undo = Undo::new();
        let device = attach(&file, &mut undo).unwrap();
        assert_eq!(cache_of(&device), "write back");

        // A killed process left it so.
        let told = device;
        say_cache(&told, false).unwrap();
        drop(undo);
        let mut undo = Undo::new();
        // The device that was free before is the one taken now, unless another test was quicker.
        let device = attach(&file, &mut undo).unwrap();
        assert_eq!(cache_of(&device), "write back");
        say_cache(&told, true).unwrap();
        drop(undo);

        // And we leave none so.
        let mut undo = Undo::new();
        let device = attach_simulated(&file, preset("sata-7200-wt").unwrap(), &mut undo).unwrap();
        assert_eq!(cache_of(&device), "write through");
        drop(undo);
        assert_eq!(cache_of(&device), "write back");
    }
}
