//! Simulated disks: a file that answers as late as a disk of a given kind would.
//!
//! # Theory
//!
//! A machine without spinning disks can still ask how file systems would do on them. A [`Model`] says when a request is
//! done; [`timing`] lets that time pass; [`served`] puts it behind a file of its own, over which a loop device makes a
//! block device. The data is kept in an ordinary file.
//!
//! A *rotating* disk ([`rotating`]) has one arm. Where the platter stands follows from the clock, so a writer that
//! comes back just too late waits for a whole turn, as with a real one. A request takes positioning (seek, then the
//! wait for the sector) and transfer. Of the requests that wait, as many as the queue holds are looked at, and the one
//! that is reached first goes first. What lies ahead of the last read is in the disk's buffer by the time the head has
//! passed it. A write cache, if there is one, takes writes at once; a flush waits until the arm has written them.
//!
//! A *flash* disk ([`flash`]) has channels, each of which does one request at a time, and a bus that they share. All channels busy is more
//! than a small machine can answer in time; `sata-ssd:2` is such a disk with two channels, where further requests wait.
//!
//! The image is the whole disk: a seek across half of the image takes as long as one across half of the disk would.
//!
//! # Invariants
//!
//! 1. A user of the disk has its answers when the model says, on average; the way to the disk ([`way`]) is part of that time. Where the way
//!    takes longer than the model, or cannot carry as many requests at a time as the model works on, the model is refused: its figures
//!    would be those of a slower disk.

pub mod check;
pub mod served;
pub mod way;

mod flash;
mod rotating;
mod timing;

#[cfg(test)]
mod tests;

use std::borrow::Cow;
use std::time::Duration;

use anyhow::{Context, Result, bail};

pub use flash::Flash;
pub use rotating::Rotating;
use way::Way;

/// What kind of disk, and its figures.
#[derive(Debug, Clone, PartialEq)]
pub enum Kind {
    Rotating(Rotating),
    Flash(Flash),
}

/// A disk that can be simulated.
#[derive(Debug, Clone, PartialEq)]
pub struct Model {
    pub name: Cow<'static, str>,
    pub about: &'static str,
    pub kind: Kind,
}

const MB: f64 = 1e6;

/// So far off a simulated disk may be: the machine adds its own time to the model's.
pub const TOLERANCE: f64 = 0.1;
/// The part of the requests an otherwise idle machine can have under way that is answered in time beside other work.
const HEADROOM: f64 = 0.6;

const fn microseconds(number: u64) -> Duration {
    Duration::from_micros(number)
}

/// A 7,200 rpm SATA drive.
const SATA_7200: Rotating = Rotating {
    turns_per_minute: 7_200.0,
    shortest_seek: microseconds(800),
    average_seek: microseconds(8_500),
    bytes_per_second: 150.0 * MB,
    overhead: microseconds(100),
    buffer_bytes: 2 << 20,
    write_cache_bytes: 32 << 20,
    queue: 32,
};

/// The kinds that have a name.
pub static PRESETS: [Model; 6] = [
    Model {
        name: Cow::Borrowed("scsi-9g"),
        about: "a 9 GB, 10,000 rpm SCSI drive, as in the workstations of 2005; no write cache",
        kind: Kind::Rotating(Rotating {
            turns_per_minute: 10_000.0,
            shortest_seek: microseconds(700),
            average_seek: microseconds(5_400),
            bytes_per_second: 28.0 * MB,
            overhead: microseconds(150),
            buffer_bytes: 1 << 20,
            write_cache_bytes: 0,
            queue: 16,
        }),
    },
    Model {
        name: Cow::Borrowed("sata-7200"),
        about: "a 7,200 rpm SATA drive with a write cache",
        kind: Kind::Rotating(SATA_7200),
    },
    Model {
        name: Cow::Borrowed("sata-7200-wt"),
        about: "the same drive with its write cache off: a write is done when the arm has done it",
        kind: Kind::Rotating(Rotating { write_cache_bytes: 0, ..SATA_7200 }),
    },
    Model {
        name: Cow::Borrowed("scsi-15k"),
        about: "a 15,000 rpm SCSI or SAS drive; no write cache",
        kind: Kind::Rotating(Rotating {
            turns_per_minute: 15_000.0,
            shortest_seek: microseconds(400),
            average_seek: microseconds(3_500),
            bytes_per_second: 120.0 * MB,
            overhead: microseconds(100),
            buffer_bytes: 2 << 20,
            write_cache_bytes: 0,
            queue: 32,
        }),
    },
    Model {
        name: Cow::Borrowed("sata-ssd"),
        about: "a SATA solid-state drive",
        kind: Kind::Flash(Flash {
            read: microseconds(120),
            write: microseconds(60),
            flush: microseconds(1_500),
            channels: 8,
            bytes_per_second: 520.0 * MB,
        }),
    },
    Model {
        name: Cow::Borrowed("nvme"),
        about: "an NVMe solid-state drive; on most machines what simulates it is slower than it",
        kind: Kind::Flash(Flash {
            read: microseconds(80),
            write: microseconds(20),
            flush: microseconds(300),
            channels: 32,
            bytes_per_second: 3_000.0 * MB,
        }),
    },
];

/// The preset of that name.
pub fn preset(name: &str) -> Option<&'static Model> {
    PRESETS.iter().find(|model| model.name == name)
}

/// The preset of that name, or, as `NAME:CHANNELS`, a flash disk with fewer channels.
pub fn model(text: &str) -> Result<Model> {
    let (name, channels) = text.split_once(':').map_or((text, None), |(name, channels)| (name, Some(channels)));
    let names = || PRESETS.iter().map(|model| model.name.as_ref()).collect::<Vec<_>>().join(", ");
    let mut model = preset(name).with_context(|| format!("{name}: there are {}", names()))?.clone();
    if let Some(channels) = channels {
        let Kind::Flash(disk) = &mut model.kind else { bail!("{text}: {name} has one arm, and no channels") };
        let number = channels.parse().ok().filter(|number| (1..=disk.channels).contains(number));
        disk.channels = number.with_context(|| format!("{text}: {name} has 1 to {} channels", disk.channels))?;
        model.name = Cow::Owned(text.to_owned());
    }
    Ok(model)
}

impl Model {
    /// Is something that it was given perhaps not durable until it is flushed?
    pub fn has_write_cache(&self) -> bool {
        match &self.kind {
            Kind::Rotating(disk) => disk.write_cache_bytes > 0,
            Kind::Flash(_) => true,
        }
    }

    /// One reader of `bytes` at random places: how many reads a second, by arithmetic alone.
    pub fn random_reads_per_second(&self, bytes: u64) -> f64 {
        let seconds = match &self.kind {
            Kind::Rotating(disk) => disk.average_random_read(bytes),
            Kind::Flash(disk) => disk.one_read(bytes),
        };
        1.0 / seconds
    }

    /// The rate of one writer of `bytes` at random places; `None` where that depends on the arm.
    pub fn random_writes_per_second(&self, bytes: u64) -> Option<f64> {
        match &self.kind {
            Kind::Rotating(disk) => (disk.write_cache_bytes > 0).then(|| 1.0 / disk.cached_write(bytes)),
            Kind::Flash(disk) => Some(1.0 / disk.one_write(bytes)),
        }
    }

    /// So many readers of `bytes` as it works on at a time, and what they get together.
    pub fn random_reads_together(&self, bytes: u64) -> Option<(usize, f64)> {
        match &self.kind {
            Kind::Rotating(_) => None,
            Kind::Flash(disk) => {
                let together = disk.channels as f64 / disk.one_read(bytes);
                Some((disk.channels, together.min(disk.bytes_per_second / bytes as f64)))
            }
        }
    }

    /// Seconds of a small and a large read, where the way is measured with them; of an arm, what is short beside its movements, and
    /// of its cache what that takes.
    fn usual_reads(&self) -> [f64; 2] {
        match &self.kind {
            Kind::Rotating(disk) => [disk.cached_write(way::SMALL as u64), 1e-3],
            Kind::Flash(disk) => [way::SMALL, way::LARGE].map(|bytes| disk.one_read(bytes as u64)),
        }
    }

    /// Why figures of this machine on such a disk would be those of a slower one, if they would.
    pub fn refusal(&self, way: &Way) -> Option<String> {
        let bytes = way::SMALL as u64;
        let reads = Some(self.random_reads_per_second(bytes));
        let rate = reads.into_iter().chain(self.random_writes_per_second(bytes)).fold(0.0, f64::max);
        let (fastest, floor) = (1e6 / rate, way.whole(bytes) * 1e6);
        (floor > fastest).then(|| {
            format!(
                "{} answers a request within {fastest:.0} us, and on this machine the way to a simulated disk alone takes {floor:.0} us: figures would be those of a slower disk",
                self.name
            )
        })
    }

    /// The same if it gets `measured` reads a second, with as many at a time as the disk works on.
    pub fn overload(&self, measured: f64) -> Option<String> {
        let Kind::Flash(disk) = &self.kind else { return None };
        let (threads, expected) = self.random_reads_together(way::SMALL as u64)?;
        if measured >= expected * (1.0 - TOLERANCE) {
            return None;
        }
        // The file system needs processors as well.
        let fewer = (measured * disk.one_read(way::SMALL as u64) * HEADROOM) as usize;
        let (name, _) = self.name.split_once(':').unwrap_or((&self.name, ""));
        let instead = match fewer.min(threads - 1) {
            0 => String::new(),
            fewer => format!("; {name}:{fewer} is such a disk with {fewer} of its channels"),
        };
        Some(format!(
            "{} answers {expected:.0} reads/s, {threads} at a time, and on this machine {measured:.0}: figures of many requests at a time would be those of a slower disk{instead}",
            self.name
        ))
    }

    /// One reader from the beginning to the end: bytes a second.
    pub fn sequential_bytes_per_second(&self, bytes: u64) -> f64 {
        match &self.kind {
            Kind::Rotating(disk) => disk.bytes_per_second,
            Kind::Flash(disk) => bytes as f64 / disk.one_read(bytes),
        }
    }
}
