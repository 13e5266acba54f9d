//! One of the pool's disks is overwritten while its files are read, and the pool heals.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow};
use lab::process;
use lab::{interrupt, outln};
use rustix::fs::{SeekFrom, seek};

use super::{POOL, Tour, Tree, indent, nice_bytes, show};

/// Two labels and the boot area in front of a disk's data, and two labels behind it.
const LABELS: (u64, u64) = (4 << 20, 512 << 10);
const PIECE: usize = 1 << 20;
/// What is written over a disk.
const JUNK: u8 = 0xa5;
/// The disk that is overwritten.
const VICTIM: usize = 1;

impl Tour {
    /// Overwrites a disk, reads everything meanwhile, and lets the pool repair it.
    pub(super) fn heal(&mut self, copies: &[(PathBuf, Tree)]) -> Result<()> {
        self.headline("One of its disks is overwritten while all of this is read")?;
        self.pool.drop_caches()?;
        let victim = self.pool.layout().files[VICTIM].clone();
        #[allow(clippy::disallowed_methods)] // it is the tour that reads meanwhile
        let spoiler = std::thread::spawn({
            let victim = victim.clone();
            move || spoil(&victim)
        });
        let compared = self.compare(copies);
        let spoiled = spoiler.join().map_err(|_| anyhow!("the thread that overwrites a disk panicked"))??;
        compared?;
        outln!("   {} of {} were overwritten meanwhile.", nice_bytes(spoiled), victim.display());
        let mut scrub = self.pool.command(&["zpool", "scrub", "-w", POOL]);
        show(&scrub);
        process::succeed(&mut scrub)?;
        let mut status = self.pool.command(&["zpool", "status", POOL]);
        show(&status);
        let said = process::succeed(&mut status)?;
        indent(&said);
        if !said.contains("with 0 errors") || !said.contains("errors: No known data errors") {
            self.fault("the pool could not repair what was overwritten.");
        }
        let mut clear = self.pool.command(&["zpool", "clear", POOL]);
        show(&clear);
        process::succeed(&mut clear).map(drop)
    }
}

/// Overwrites what a sparse file holds between a disk's labels, and returns how many bytes that were.
fn spoil(disk: &Path) -> Result<u64> {
    let file = File::options().write(true).open(disk).with_context(|| disk.display().to_string())?;
    let end = file.metadata()?.len().saturating_sub(LABELS.1);
    let junk = vec![JUNK; PIECE];
    let (mut at, mut spoiled) = (LABELS.0, 0);
    while at < end {
        interrupt::check()?;
        // Nothing is written behind the last data.
        let Ok(data) = seek(&file, SeekFrom::Data(at)) else { break };
        let hole = seek(&file, SeekFrom::Hole(data)).unwrap_or(end).min(end);
        let length = hole.saturating_sub(data).min(PIECE as u64);
        if length == 0 {
            break;
        }
        file.write_all_at(&junk[..length as usize], data)?;
        spoiled += length;
        at = data + length;
    }
    file.sync_data()?;
    Ok(spoiled)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_disk_holds_is_overwritten_and_its_labels_are_not() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("disk");
        let file = File::create_new(&path).unwrap();
        file.set_len(64 << 20).unwrap();
        for at in [0, 8 << 20, (64 << 20) - 4096] {
            file.write_all_at(&[1; 4096], at).unwrap();
        }
        assert!(spoil(&path).unwrap() >= 4096);
        let found = std::fs::read(&path).unwrap();
        assert_eq!([found[0], found[8 << 20], found[20 << 20], found[(64 << 20) - 1]], [1, JUNK, 0, 1]);
    }
}
