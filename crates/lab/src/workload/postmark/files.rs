//! PostMark's operations on real files, through a buffer as large as the file's preferred block.

use std::fs::{self, File, OpenOptions};
use std::io::{BufReader, BufWriter, Read, Write};
use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Context, Result, ensure};

use super::super::Parameters;
use super::super::latency::Latencies;
use super::choices::Operation;
use crate::interrupt;

/// No preferred block makes the buffer larger than this.
const LARGEST_BUFFER: u64 = 1 << 20;

/// What has been done so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Counts {
    pub(super) created: u64,
    pub(super) read: u64,
    pub(super) appended: u64,
    pub(super) deleted: u64,
    pub(super) bytes_read: u64,
    pub(super) bytes_written: u64,
}

pub(super) struct Files<'a> {
    directory: &'a Path,
    contents: Vec<u8>,
    read_bytes: usize,
    write_bytes: usize,
    subdirectories: u64,
    pub(super) counts: Counts,
    pub(super) latencies: Times,
}

/// How long each kind of operation takes.
#[derive(Debug, Default)]
pub(super) struct Times {
    pub(super) creation: Latencies,
    pub(super) read: Latencies,
    pub(super) append: Latencies,
    pub(super) deletion: Latencies,
}

/// Asked for as the C library does: the standard library also asks when the file was made, which costs FUSE file systems a request for each open.
fn buffer_bytes(file: &File) -> Result<usize> {
    let preferred = u64::try_from(rustix::fs::fstat(file)?.st_blksize).unwrap_or(0);
    Ok(preferred.clamp(1, LARGEST_BUFFER) as usize)
}

impl<'a> Files<'a> {
    pub(super) fn new(directory: &'a Path, parameters: &Parameters, contents: Vec<u8>) -> Files<'a> {
        Files {
            directory,
            contents,
            read_bytes: parameters.get("read") as usize,
            write_bytes: parameters.get("write") as usize,
            subdirectories: parameters.get("subdirectories"),
            counts: Counts::default(),
            latencies: Times::default(),
        }
    }

    fn subdirectory(&self, number: u64) -> PathBuf {
        self.directory.join(format!("s{number}"))
    }

    pub(super) fn make_subdirectories(&self) -> Result<()> {
        (0..self.subdirectories).try_for_each(|number| {
            interrupt::check()?;
            Ok(fs::create_dir(self.subdirectory(number))?)
        })
    }

    pub(super) fn remove_subdirectories(&self) -> Result<()> {
        (0..self.subdirectories).try_for_each(|number| Ok(fs::remove_dir(self.subdirectory(number))?))
    }

    pub(super) fn perform(&mut self, operation: &Operation) -> Result<()> {
        let started = Instant::now();
        match operation {
            Operation::Create { name, bytes } => self.create(name, *bytes).with_context(|| format!("cannot create {name}")),
            Operation::Read { name, bytes } => self.read(name, *bytes).with_context(|| format!("cannot read {name}")),
            Operation::Append { name, bytes } => self.append(name, *bytes).with_context(|| format!("cannot append to {name}")),
            Operation::Delete { name } => self.delete(name).with_context(|| format!("cannot delete {name}")),
            Operation::Nothing => Ok(()),
        }?;
        let took = started.elapsed();
        match operation {
            Operation::Create { .. } => self.latencies.creation.add(took),
            Operation::Read { .. } => self.latencies.read.add(took),
            Operation::Append { .. } => self.latencies.append.add(took),
            Operation::Delete { .. } => self.latencies.deletion.add(took),
            Operation::Nothing => {}
        }
        Ok(())
    }

    fn write(&mut self, file: File, bytes: u64) -> Result<()> {
        let mut writer = BufWriter::with_capacity(buffer_bytes(&file)?, file);
        for piece in self.contents[..bytes as usize].chunks(self.write_bytes) {
            writer.write_all(piece)?;
        }
        writer.flush()?;
        self.counts.bytes_written += bytes;
        Ok(())
    }

    fn create(&mut self, name: &str, bytes: u64) -> Result<()> {
        let file = File::create(self.directory.join(name))?;
        self.write(file, bytes)?;
        self.counts.created += 1;
        Ok(())
    }

    fn append(&mut self, name: &str, bytes: u64) -> Result<()> {
        let file = OpenOptions::new().append(true).open(self.directory.join(name))?;
        self.write(file, bytes)?;
        self.counts.appended += 1;
        Ok(())
    }

    fn read(&mut self, name: &str, expected: u64) -> Result<()> {
        let file = File::open(self.directory.join(name))?;
        let mut reader = BufReader::with_capacity(buffer_bytes(&file)?, file);
        let mut piece = vec![0; self.read_bytes];
        let mut bytes = 0;
        // The original reads as many bytes as it knows the file to have, and no more.
        while bytes < expected {
            let wanted = (expected - bytes).min(self.read_bytes as u64) as usize;
            let got = reader.read(&mut piece[..wanted])?;
            ensure!(got > 0, "it has {bytes} bytes instead of {expected}");
            bytes += got as u64;
        }
        self.counts.bytes_read += bytes;
        self.counts.read += 1;
        Ok(())
    }

    fn delete(&mut self, name: &str) -> Result<()> {
        fs::remove_file(self.directory.join(name))?;
        self.counts.deleted += 1;
        Ok(())
    }
}
