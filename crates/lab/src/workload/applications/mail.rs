//! A mail server: a queue that makes each message stable at each stage, and mailboxes that are read meanwhile.
//!
//! # Theory
//!
//! The readers of the published comparisons asked for millions of files below 4 KB with many fsyncs (qmail's queue) and
//! for a Maildir that is written and read at once. A delivery thread takes a message through the stages of such a
//! server, each made stable before the next: the message into the queue; its envelope beside it; then, as a Maildir
//! wants it, into `tmp` of a mailbox and by `rename` into `new`, with the directory made stable too; then out of the
//! queue. A reading thread lists a mailbox's `new`, reads what is there, renames it into `cur`, and now and then deletes
//! one that it has read before. It looks into so many mailboxes in a second, as its users would, and not into as many as it can:
//! where listing is fast, readers without a pause take the processors from those that deliver, and where it is slow they do not.
//!
//! # Invariants
//!
//! 1. Messages that were delivered = messages in `new` and `cur` + messages deleted; the queue is empty at the end.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use rand::Rng;

use crate::workload::contents::Contents;
use crate::workload::latency::Latencies;
use crate::workload::together::{Ground, Time, together};
use crate::workload::{Figure, MOST_FILES, MOST_THREADS, Parameter, Parameters, Published, Round, Workload, described};
use crate::interrupt;

/// The workload.
pub struct Mail {
    parameters: Parameters,
}

const PARAMETERS: [Parameter; 8] = [
    Parameter::scaled("messages", "messages to deliver", 100_000, 20).at_most(MOST_FILES),
    Parameter::fixed("boxes", "mailboxes", 200).at_most(1_000_000),
    Parameter::fixed("deliverers", "threads that deliver", 8).at_most(MOST_THREADS),
    Parameter::fixed("readers", "threads that read", 4).at_least(0).at_most(MOST_THREADS),
    Parameter::fixed("pace", "mailboxes that each of these looks into in a second", 100).at_most(1_000_000),
    Parameter::fixed("smallest", "bytes of the smallest message", 500),
    Parameter::fixed("largest", "bytes of the largest message", 4000).at_most(1 << 20),
    Parameter::fixed("delete", "of 100 read messages, how many are deleted", 50).at_least(0).at_most(100),
];

const ENVELOPE: usize = 120;
/// It shows whether the readers kept their pace, and is nobody's merit.
pub(crate) const LOOKS: &str = "mailboxes looked into";

/// What the threads did.
#[derive(Debug, Clone, Default)]
struct Tally {
    delivered: u64,
    syncs: u64,
    bytes_written: u64,
    /// Into mailboxes.
    looks: u64,
    read: u64,
    bytes_read: u64,
    deleted: u64,
    /// When the last message was delivered, from the beginning.
    seconds: f64,
    /// How long each took.
    deliveries: Latencies,
    reads: Latencies,
}

/// Where the mail is.
struct Server<'a> {
    ground: Ground<'a>,
    contents: Contents,
    boxes: u64,
    next: AtomicU64,
}

fn stable(path: &Path, parts: &[&[u8]], tally: &mut Tally) -> Result<()> {
    let name = || format!("cannot write {}", path.display());
    let mut file = File::create(path).with_context(name)?;
    for part in parts {
        file.write_all(part).with_context(name)?;
        tally.bytes_written += part.len() as u64;
    }
    file.sync_all().with_context(name)?;
    tally.syncs += 1;
    Ok(())
}

impl Server<'_> {
    fn queue(&self) -> PathBuf {
        self.ground.directory.join("queue")
    }

    fn mailbox(&self, number: u64, part: &str) -> PathBuf {
        self.ground.directory.join(format!("box{number}")).join(part)
    }

    fn make(&self) -> Result<()> {
        fs::create_dir(self.queue())?;
        for number in 0..self.boxes {
            interrupt::check()?;
            ["tmp", "new", "cur"].iter().try_for_each(|part| fs::create_dir_all(self.mailbox(number, part)))?;
        }
        Ok(())
    }

    /// One message, through all stages.
    fn deliver(&self, number: u64, text: &[u8], mailbox: u64, tally: &mut Tally) -> Result<()> {
        let (message, envelope) = (self.queue().join(format!("m{number}")), self.queue().join(format!("e{number}")));
        stable(&message, &[text], tally)?;
        stable(&envelope, &[&text[..ENVELOPE.min(text.len())]], tally)?;
        let (temporary, new) = (self.mailbox(mailbox, "tmp"), self.mailbox(mailbox, "new"));
        let (temporary, arrived) = (temporary.join(number.to_string()), new.join(number.to_string()));
        stable(&temporary, &[text], tally)?;
        fs::rename(&temporary, &arrived).with_context(|| format!("cannot rename to {}", arrived.display()))?;
        File::open(&new)?.sync_all()?;
        tally.syncs += 1;
        fs::remove_file(&envelope)?;
        fs::remove_file(&message)?;
        tally.delivered += 1;
        Ok(())
    }

    fn deliver_all(&self, thread: u64, messages: u64, sizes: std::ops::RangeInclusive<usize>, stop: &Time) -> Result<Tally> {
        let (mut random, mut tally) = (self.ground.random(thread), Tally::default());
        loop {
            let number = self.next.fetch_add(1, Ordering::Relaxed);
            if number >= messages || stop.is_over() {
                tally.seconds = stop.seconds();
                return Ok(tally);
            }
            let length = random.random_range(sizes.clone());
            let text = self.contents.piece(&mut random, length);
            let mailbox = random.random_range(0..self.boxes);
            let started = Instant::now();
            self.deliver(number, text, mailbox, &mut tally)?;
            tally.deliveries.add(started.elapsed());
        }
    }

    fn read_mailbox(&self, mailbox: u64, delete: bool, tally: &mut Tally) -> Result<()> {
        let (new, cur) = (self.mailbox(mailbox, "new"), self.mailbox(mailbox, "cur"));
        for entry in fs::read_dir(&new)? {
            let name = entry?.file_name();
            let started = Instant::now();
            // Another reader may have been here first.
            let Ok(text) = fs::read(new.join(&name)) else { continue };
            if fs::rename(new.join(&name), cur.join(&name)).is_err() {
                continue;
            }
            tally.reads.add(started.elapsed());
            tally.read += 1;
            tally.bytes_read += text.len() as u64;
            if delete && fs::remove_file(cur.join(&name)).is_ok() {
                tally.deleted += 1;
            }
        }
        Ok(())
    }

    fn read_all(&self, thread: u64, delete: u64, interval: Duration, delivered: &Time) -> Result<Tally> {
        let (mut random, mut tally) = (self.ground.random(thread), Tally::default());
        let mut next = Instant::now();
        while !delivered.is_over() {
            let (mailbox, delete) = (random.random_range(0..self.boxes), random.random_range(0..100) < delete);
            self.read_mailbox(mailbox, delete, &mut tally)?;
            tally.looks += 1;
            // A look that took too long is not made up for by a burst.
            next = (next + interval).max(Instant::now());
            thread::sleep(next.saturating_duration_since(Instant::now()));
        }
        Ok(tally)
    }
}

impl Default for Mail {
    fn default() -> Self {
        Self::new()
    }
}

impl Mail {
    /// As many messages as a small server has in some minutes.
    pub fn new() -> Mail {
        Mail { parameters: Parameters::new(&PARAMETERS) }
    }

    fn server<'a>(&self, round: &Round<'a>) -> Server<'a> {
        Server {
            ground: Ground::from(round),
            contents: Contents::new(round.seed),
            boxes: self.parameters.get("boxes"),
            next: AtomicU64::new(0),
        }
    }

    fn run(&self, server: &Server<'_>) -> Result<Tally> {
        let value = |name: &str| self.parameters.get(name);
        let sizes = value("smallest") as usize..=value("largest").max(value("smallest")) as usize;
        let interval = Duration::from_secs(1) / value("pace") as u32;
        let left = AtomicU64::new(value("deliverers"));
        // Readers go on as long as somebody delivers.
        let delivered = Time::new(u64::from(u32::MAX));
        let tallies = together(value("deliverers") + value("readers"), |thread| {
            if thread >= value("deliverers") {
                return server.read_all(thread, value("delete"), interval, &delivered);
            }
            let outcome = server.deliver_all(thread, value("messages"), sizes.clone(), &delivered);
            if left.fetch_sub(1, Ordering::AcqRel) == 1 || outcome.is_err() {
                delivered.end();
            }
            outcome
        })?;
        interrupt::check()?;
        let mut tally = Tally::default();
        for one in tallies {
            tally.delivered += one.delivered;
            tally.syncs += one.syncs;
            tally.bytes_written += one.bytes_written;
            tally.looks += one.looks;
            tally.read += one.read;
            tally.bytes_read += one.bytes_read;
            tally.deleted += one.deleted;
            // Without the time for which the readers sleep after that.
            tally.seconds = tally.seconds.max(one.seconds);
            tally.deliveries.join(&one.deliveries);
            tally.reads.join(&one.reads);
        }
        Ok(tally)
    }
}

impl Workload for Mail {
    described!("mail", "messages through a queue that fsyncs at each stage into Maildirs that are read meanwhile");

    /// Asked for by readers of what was published; nobody has published it.
    fn published(&self) -> &'static [Published] {
        &[]
    }

    fn space_bytes(&self) -> u64 {
        self.parameters
            .get("messages")
            .saturating_mul(self.parameters.get("largest").div_ceil(4096) * 4096 + 4096)
            .saturating_mul(2)
            .saturating_add(1 << 30)
    }

    fn prepare(&self, round: &Round<'_>) -> Result<()> {
        self.server(round).make()
    }

    fn measure(&self, round: &Round<'_>) -> Result<Vec<Figure>> {
        let tally = self.run(&self.server(round))?;
        let seconds = tally.seconds;
        let mut figures = vec![
            Figure::rate("delivered", "/s", tally.delivered as f64 / seconds),
            Figure::rate("read", "/s", tally.read as f64 / seconds),
            Figure::rate("made stable", "/s", tally.syncs as f64 / seconds),
            Figure::rate(LOOKS, "/s", tally.looks as f64 / seconds),
        ];
        figures.extend(tally.deliveries.figures("a delivery"));
        figures.extend(tally.reads.figures("a message read"));
        Ok(figures)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::target::{HostDirectory, Target};

    #[test]
    fn no_message_is_lost_and_each_stage_is_stable() {
        let mut workload = Mail::new();
        for (name, value) in [("messages", 60), ("boxes", 5), ("deliverers", 3), ("readers", 2)] {
            workload.parameters_mut().set(name, value).unwrap();
        }
        let host = HostDirectory::new("host", &std::env::temp_dir()).unwrap();
        let round = Round::new(&host, host.directory(), 0, 3);
        workload.prepare(&round).unwrap();
        let server = workload.server(&round);
        let tally = workload.run(&server).unwrap();
        assert_eq!((tally.delivered, tally.syncs, tally.deliveries.count()), (60, 240, 60));
        assert_eq!(tally.reads.count(), tally.read);
        let count =
            |part: &str| (0..5).map(|number| fs::read_dir(server.mailbox(number, part)).unwrap().count() as u64).sum::<u64>();
        assert_eq!(count("new") + count("cur") + tally.deleted, 60);
        assert_eq!(count("cur"), tally.read - tally.deleted);
        assert_eq!((count("tmp"), fs::read_dir(server.queue()).unwrap().count()), (0, 0));
        // Twice the message and once an envelope.
        assert!(tally.bytes_written >= 60 * (2 * 500 + 120) && tally.bytes_written <= 60 * (2 * 4000 + 120), "{tally:?}");
    }

    /// Readers that go round as fast as they can would decide how fast others deliver.
    #[test]
    fn readers_keep_their_pace() {
        let mut workload = Mail::new();
        for (name, value) in [("messages", 200), ("boxes", 5), ("deliverers", 2), ("readers", 2), ("pace", 20)] {
            workload.parameters_mut().set(name, value).unwrap();
        }
        let host = HostDirectory::new("host", &std::env::temp_dir()).unwrap();
        let round = Round::new(&host, host.directory(), 0, 3);
        workload.prepare(&round).unwrap();
        let tally = workload.run(&workload.server(&round)).unwrap();
        // Each looks once at the beginning, and once more before it sees the end.
        let most = 2.0 * (tally.seconds * 20.0 + 2.0);
        assert!(tally.looks as f64 <= most, "{} of at most {most}", tally.looks);
        assert!(tally.seconds > 0.0);
    }
}
