//! Counts the requests that the kernel sends to the server of one mount, by kind.
//!
//! # Theory
//!
//! The kernel's tracepoint `fuse:fuse_request_send` is met by each request that waits for an answer, whatever the transport; what the
//! kernel only tells (`FORGET`) is not counted. An *instance* of the tracer has buffers of its own and a filter, so nobody else's tracing is
//! disturbed or counted. A thread empties the buffers as the kernel keeps them, pages of events: to have them as text would take the kernel
//! longer than to serve the requests. Each event has the number of its kind; the names are in the tracepoint's description.
//!
//! # Invariants
//!
//! 1. No event is lost unseen: pages say that some are missing before them, and the kernel counts what it had to drop or write over.
//!    Either is an error.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use lab::process;
use lab::undo::Undo;
use rustix::fs::OFlags;

/// Where the tracer is, if it is mounted.
const USUAL: &str = "/sys/kernel/tracing";
const EVENT: &str = "events/fuse/fuse_request_send";
/// For each processor: some hundred thousand events.
const BUFFER_KILOBYTES: &str = "16384";
const EMPTY_EVERY: Duration = Duration::from_millis(20);
/// After the last operation of a program: what it left to be sent is sent by then.
const STRAGGLERS: Duration = Duration::from_millis(100);
/// A page of events: when the first was, how many bytes there are and whether some are missing, the events.
const COMMIT_AT: usize = 8;
const EVENTS_AT: usize = 16;
const MISSING: u64 = 1 << 31;
const BYTES: u64 = (1 << 30) - 1;
/// Types of entries of a page that are no events: the rest is empty, the time goes on.
const PADDING: u32 = 29;
const TIMES: [u32; 2] = [30, 31];

/// Requests by kind.
pub(super) type Counts = BTreeMap<String, u64>;

/// The tracepoint, as this kernel has it.
#[derive(Debug, Clone)]
struct Event {
    id: u16,
    kind_at: usize,
    names: BTreeMap<u32, String>,
}

/// An instance of the tracer that sees one mount.
pub(super) struct Tracer {
    instance: PathBuf,
    event: Event,
    page_bytes: usize,
    _undo: Undo,
}

/// Events are being counted.
pub(super) struct Counting<'a> {
    tracer: &'a Tracer,
    over: Arc<AtomicBool>,
    counter: Option<JoinHandle<Result<BTreeMap<u32, u64>>>>,
}

fn put(file: &Path, text: &str) -> Result<()> {
    // Not made, if it is not there; and each is written with one call.
    let written = OpenOptions::new().write(true).open(file).and_then(|mut file| std::io::Write::write_all(&mut file, text.as_bytes()));
    written.with_context(|| format!("{}: cannot write {text:?}", file.display()))
}

fn get(file: &Path) -> Result<String> {
    fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))
}

/// The directory of the tracer; mounted in `scratch`, if it is not mounted where it usually is.
fn tracefs(scratch: &Path, undo: &mut Undo) -> Result<PathBuf> {
    let usual = PathBuf::from(USUAL);
    if usual.join("instances").is_dir() {
        return Ok(usual);
    }
    let own = scratch.join("tracing");
    fs::create_dir(&own)?;
    process::run("mount", ["-t", "tracefs", "none", &own.display().to_string()]).context("this kernel has no tracer")?;
    let mounted = own.clone();
    undo.push("unmount the tracer", move || process::run("umount", [&mounted]).map(drop));
    Ok(own)
}

/// The number between `before` and the next semicolon.
fn number_after(text: &str, before: &str) -> Option<usize> {
    text.split_once(before)?.1.split(';').next()?.trim().parse().ok()
}

impl Event {
    /// Of the files `id` and `format`.
    fn parse(id: &str, format: &str) -> Option<Event> {
        let field = format.lines().find(|line| line.contains(" opcode;"))?;
        let kind_at = number_after(field, "offset:")?;
        // `{1, "FUSE_LOOKUP"}, {2, "FUSE_FORGET"}, ...`
        let pair = |text: &str| {
            let (number, name) = text.split_once(", \"")?;
            Some((number.trim().parse().ok()?, name.split('"').next()?.trim_start_matches("FUSE_").to_owned()))
        };
        let names: BTreeMap<u32, String> = format.split('{').skip(1).filter_map(pair).collect();
        let described = number_after(field, "size:")? == 4 && !names.is_empty();
        described.then_some(Event { id: id.trim().parse().ok()?, kind_at, names })
    }

    /// Counts what is in a page; whether events are missing before it.
    #[allow(clippy::host_endian_bytes)] // the kernel's memory, as this machine has it
    fn count(&self, page: &[u8], counts: &mut BTreeMap<u32, u64>) -> Result<bool> {
        let cut = || "the tracer's page is cut off";
        let word = |bytes: &[u8], at: usize| bytes.get(at..).and_then(|rest| rest.first_chunk()).copied().map(u32::from_ne_bytes);
        let commit = page.get(COMMIT_AT..).and_then(|rest| rest.first_chunk()).copied().map(u64::from_ne_bytes).with_context(cut)?;
        let mut rest = page.get(EVENTS_AT..EVENTS_AT + (commit & BYTES) as usize).with_context(cut)?;
        while !rest.is_empty() {
            let head = word(rest, 0).with_context(cut)?;
            let (kind, delta) = (head & 31, head >> 5);
            // An event's length is in its head, in words, or behind it, in bytes.
            let (starts, ends) = match kind {
                PADDING if delta == 0 => break,
                0 | PADDING => (8, 4 + word(rest, 4).with_context(cut)? as usize),
                kind if TIMES.contains(&kind) => (8, 8),
                words => (4, 4 + 4 * words as usize),
            };
            let data = rest.get(starts..ends).with_context(cut)?;
            if kind < PADDING {
                let id = data.first_chunk().copied().map(u16::from_ne_bytes);
                ensure!(id == Some(self.id), "the tracer has an event {id:?} that is not {}", self.id);
                *counts.entry(word(data, self.kind_at).with_context(cut)?).or_default() += 1;
            }
            rest = &rest[ends..];
        }
        Ok(commit & MISSING != 0)
    }
}

impl Tracer {
    /// Sees requests to the mount that `path` lies on. `scratch` is for the tracer's own mount, if it needs one.
    pub(super) fn new(path: &Path, scratch: &Path) -> Result<Tracer> {
        ensure!(rustix::process::geteuid().is_root(), "requests are counted by the kernel's tracer, which takes root");
        let mut undo = Undo::new();
        let tracing = tracefs(scratch, &mut undo)?;
        let described = tracing.join(EVENT);
        ensure!(described.is_dir(), "this kernel has no tracepoint {EVENT} (since Linux 6.11; is the module fuse loaded?)");
        let (id, format) = (get(&described.join("id"))?, get(&described.join("format"))?);
        let event = Event::parse(&id, &format).with_context(|| format!("{} is not as it was known", described.join("format").display()))?;
        let instance = tracing.join("instances").join(format!("tarn-requests-{}", std::process::id()));
        fs::create_dir(&instance).with_context(|| format!("cannot make {}", instance.display()))?;
        let gone = instance.clone();
        undo.push("end the tracer's instance", move || {
            let _ = put(&gone.join(EVENT).join("enable"), "0");
            Ok(fs::remove_dir(&gone)?)
        });
        // The kernel's own form of a device number.
        let device = rustix::fs::stat(path)?.st_dev;
        let connection = u64::from(rustix::fs::major(device)) << 20 | u64::from(rustix::fs::minor(device));
        put(&instance.join("buffer_size_kb"), BUFFER_KILOBYTES)?;
        put(&instance.join(EVENT).join("filter"), &format!("connection == {connection}"))?;
        let kilobytes = get(&instance.join("buffer_subbuf_size_kb")).ok().and_then(|text| text.trim().parse::<usize>().ok());
        let page_bytes = kilobytes.map_or_else(rustix::param::page_size, |kilobytes| kilobytes << 10);
        Ok(Tracer { instance, event, page_bytes, _undo: undo })
    }

    /// The buffers, one for each processor.
    fn processors(&self) -> Result<Vec<PathBuf>> {
        let all = fs::read_dir(self.instance.join("per_cpu"))?.map(|entry| Ok(entry?.path())).collect::<Result<Vec<_>>>();
        all.with_context(|| format!("{} has no buffers", self.instance.display()))
    }

    /// Begins.
    pub(super) fn count(&self) -> Result<Counting<'_>> {
        let flags = i32::try_from(OFlags::NONBLOCK.bits()).unwrap_or(0);
        let open = |buffer: &PathBuf| OpenOptions::new().read(true).custom_flags(flags).open(buffer.join("trace_pipe_raw"));
        let buffers = self.processors()?.iter().map(open).collect::<Result<Vec<File>, _>>().context("cannot read the tracer")?;
        put(&self.instance.join("trace"), "")?;
        put(&self.instance.join(EVENT).join("enable"), "1")?;
        let (over, event, page_bytes) = (Arc::new(AtomicBool::new(false)), self.event.clone(), self.page_bytes);
        let is_over = Arc::clone(&over);
        let counter = std::thread::spawn(move || {
            let (mut counts, mut page) = (BTreeMap::new(), vec![0; page_bytes]);
            loop {
                // Asked before the buffers are emptied for the last time.
                let last = is_over.load(Ordering::SeqCst);
                for buffer in &buffers {
                    empty(buffer, &mut page, &event, &mut counts)?;
                }
                if last {
                    return Ok(counts);
                }
                std::thread::sleep(EMPTY_EVERY);
            }
        });
        Ok(Counting { tracer: self, over, counter: Some(counter) })
    }

    /// Fails if the kernel has dropped events.
    fn expect_all(&self) -> Result<()> {
        for buffer in self.processors()? {
            let stats = get(&buffer.join("stats"))?;
            for line in stats.lines().filter(|line| ["overrun", "commit overrun", "dropped events"].iter().any(|lost| line.starts_with(lost))) {
                ensure!(line.ends_with(": 0"), "events were lost ({}: {line}): the counts are not whole", buffer.display());
            }
        }
        Ok(())
    }
}

/// Counts all that is in a processor's buffer.
fn empty(mut buffer: &File, page: &mut [u8], event: &Event, counts: &mut BTreeMap<u32, u64>) -> Result<()> {
    loop {
        match buffer.read(page) {
            Ok(0) => return Ok(()),
            Ok(len) => ensure!(!event.count(&page[..len], counts)?, "events were lost: the counts are not whole"),
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error).context("cannot read the tracer"),
        }
    }
}

impl Counting<'_> {
    /// Ends. What a program has left to the kernel to be sent is in it.
    pub(super) fn end(mut self) -> Result<Counts> {
        std::thread::sleep(STRAGGLERS);
        put(&self.tracer.instance.join(EVENT).join("enable"), "0")?;
        let counts = self.join()?.context("the counter has ended already")?;
        self.tracer.expect_all()?;
        let name = |kind: u32| self.tracer.event.names.get(&kind).cloned().unwrap_or_else(|| format!("kind {kind}"));
        Ok(counts.into_iter().map(|(kind, count)| (name(kind), count)).collect())
    }

    fn join(&mut self) -> Result<Option<BTreeMap<u32, u64>>> {
        self.over.store(true, Ordering::SeqCst);
        match self.counter.take().map(JoinHandle::join) {
            None => Ok(None),
            Some(Ok(counts)) => counts.map(Some),
            Some(Err(_)) => bail!("the counter of requests panicked"),
        }
    }
}

impl Drop for Counting<'_> {
    fn drop(&mut self) {
        let _ = self.join();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FORMAT: &str = "name: fuse_request_send\nformat:\n\tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;\n\n\tfield:dev_t connection;\toffset:8;\tsize:4;\tsigned:0;\n\tfield:enum fuse_opcode opcode;\toffset:24;\tsize:4;\tsigned:0;\n\nprint fmt: \"connection %u opcode %u (%s)\", REC->connection, REC->opcode, __print_symbolic(REC->opcode, {1, \"FUSE_LOOKUP\"}, {16, \"FUSE_WRITE\"}, {4096, \"CUSE_INIT\"})";

    fn event() -> Event {
        Event::parse("7\n", FORMAT).unwrap()
    }

    #[allow(clippy::host_endian_bytes)]
    fn page(entries: &[&[u32]], flags: u64) -> Vec<u8> {
        let words: Vec<u8> = entries.iter().flat_map(|entry| entry.iter()).flat_map(|word| word.to_ne_bytes()).collect();
        let mut page = vec![0; EVENTS_AT];
        page[COMMIT_AT..EVENTS_AT].copy_from_slice(&(words.len() as u64 | flags).to_ne_bytes());
        page.extend(words);
        page.resize(4096, 0);
        page
    }

    #[test]
    fn the_kernel_s_description_is_read() {
        let event = event();
        assert_eq!((event.id, event.kind_at), (7, 24));
        assert_eq!(event.names, BTreeMap::from([(1, "LOOKUP".to_owned()), (16, "WRITE".to_owned()), (4096, "CUSE_INIT".to_owned())]));
        assert!(Event::parse("7", "format:\n").is_none());
    }

    #[test]
    fn every_kind_of_entry_is_passed() {
        let mut counts = BTreeMap::new();
        let short = |kind| [8 | 3 << 5, 7, 0, 0, 0, 0, 0, kind, 40];
        let long = [1 << 5, 36, 7, 0, 0, 0, 0, 0, 1, 40];
        let entries: [&[u32]; 7] = [&short(16), &[TIMES[0] | 5 << 5, 1], &long, &[PADDING | 1 << 5, 8, 0], &short(1), &[TIMES[1], 2], &[PADDING, 0]];
        assert!(!event().count(&page(&entries, 0), &mut counts).unwrap());
        assert_eq!(counts, BTreeMap::from([(1, 2), (16, 1)]));
        assert!(event().count(&page(&entries[..1], MISSING), &mut counts).unwrap(), "lost events are seen");
        assert!(!event().count(&page(&[], 0), &mut counts).unwrap());
        // Of another event, or cut off: an error, no count.
        let mut other = short(1);
        other[1] = 8;
        assert!(event().count(&page(&[&other], 0), &mut counts).is_err());
        assert!(event().count(&page(&entries, 0)[..40], &mut counts).is_err() && event().count(&[], &mut counts).is_err());
        assert!(event().count(&page(&[&[4 << 5, 4000]], 0), &mut counts).is_err());
    }
}
