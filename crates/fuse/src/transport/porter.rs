//! The thread that has the entries of all mounts that are not hot.
//!
//! # Theory
//! An entry belongs to the ring on which it was submitted, and to the thread that submitted it: only that thread can be given the next
//! request, and not while it does something else. So a thread that runs operations cannot wait for several mounts. This one runs none.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use io_uring::{opcode, squeue, types};
use rustix::event::{EventfdFlags, eventfd};
use zerocopy::IntoBytes;

use crate::transport::crew::{Job, crew};
use crate::transport::entry::{self, Entry, Ring, new_ring};
use crate::protocol::{RING_REGISTER, RingCommand};
use crate::session::Shared;
use crate::transport::uring::RingMount;

/// Submissions at a time.
const SUBMISSIONS: u32 = 256;
/// Completions for which there is room; the kernel keeps more until they are fetched.
const COMPLETIONS: u32 = 4096;
/// The completion of the descriptor that wakes the porter, and of refusals.
const WOKEN: u64 = u64::MAX;
const REFUSED: u64 = u64::MAX - 1;
/// The pause after an entry failed, or when no thread could be started.
const AGAIN_AFTER: Duration = Duration::from_millis(200);

/// What others ask of the porter.
enum Message {
    /// Offers a new entry to the kernel.
    Register(Entry),
    /// Hands an answer over.
    Commit(Entry, u64),
    /// Tells the kernel that the mount will have no entries.
    Refuse(Arc<Shared>),
}

struct Porter {
    inbox: Mutex<Vec<Message>>,
    wake: OwnedFd,
}

static PORTER: OnceLock<Option<Porter>> = OnceLock::new();

/// Whether there is a porter. The first call starts it.
pub(crate) fn is_there() -> bool {
    let start = || -> io::Result<Porter> {
        let wake = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let (told, is_made) = std::sync::mpsc::channel();
        thread::Builder::new().name("fuse-porter".to_owned()).spawn(move || match new_ring(SUBMISSIONS, COMPLETIONS) {
            Ok(ring) => {
                let _ = told.send(Ok(()));
                Work::new(ring).run();
            }
            Err(error) => drop(told.send(Err(error))),
        })?;
        is_made.recv().map_err(io::Error::other)??;
        Ok(Porter { inbox: Mutex::default(), wake })
    };
    PORTER.get_or_init(|| start().inspect_err(|error| tracing::info!(%error, "no FUSE over io_uring")).ok()).is_some()
}

/// Offers an entry to the kernel.
pub(crate) fn register(entry: Entry) {
    send(Message::Register(entry));
}

/// Hands the answer in an entry over; the next request comes to the porter.
pub(crate) fn commit(entry: Entry, commit_id: u64) {
    send(Message::Commit(entry, commit_id));
}

/// Tells the kernel that the mount cannot have entries, so that it goes back to `/dev/fuse`.
pub(crate) fn refuse(shared: &Arc<Shared>) {
    send(Message::Refuse(Arc::clone(shared)));
}

fn send(message: Message) {
    let Some(Some(porter)) = PORTER.get() else { return };
    let mut inbox = porter.inbox.lock().unwrap_or_else(PoisonError::into_inner);
    inbox.push(message);
    let is_first = inbox.len() == 1;
    drop(inbox);
    if is_first {
        let _ = rustix::io::write(&porter.wake, 1u64.as_bytes());
    }
}

/// An entry that the kernel has.
struct Held {
    entry: Entry,
    /// It was offered, and has never come back.
    is_new: bool,
}

/// What the porter knows.
struct Work {
    ring: Ring,
    /// The entries that the kernel has, by the number that their completion will have.
    entries: Vec<Option<Held>>,
    free: Vec<usize>,
    /// The descriptor is looked at.
    is_listening: bool,
    /// Entries to be made again, and when.
    again: Vec<(Instant, Arc<RingMount>, u16)>,
}

impl Work {
    fn new(ring: Ring) -> Work {
        Work { ring, entries: Vec::new(), free: Vec::new(), is_listening: false, again: Vec::new() }
    }

    fn run(mut self) {
        let porter = loop {
            if let Some(Some(porter)) = PORTER.get() {
                break porter;
            }
            // The starter is about to set the porter.
            thread::sleep(Duration::from_millis(1));
        };
        loop {
            if let Err(error) = self.turn(porter) {
                tracing::error!(%error, "the ring of the FUSE porter failed; it is tried again");
                thread::sleep(AGAIN_AFTER);
            }
        }
    }

    fn turn(&mut self, porter: &Porter) -> io::Result<()> {
        if !self.is_listening {
            let listen = opcode::PollAdd::new(types::Fd(porter.wake.as_raw_fd()), libc::POLLIN as u32).build();
            self.push(squeue::Entry128::from(listen).user_data(WOKEN))?;
            self.is_listening = true;
        }
        let messages = std::mem::take(&mut *porter.inbox.lock().unwrap_or_else(PoisonError::into_inner));
        let new: Vec<(Arc<RingMount>, u16)> = messages.into_iter().filter_map(|message| self.obey(message)).collect();
        self.submit()?;
        for (mount, queue) in new {
            mount.came(queue);
        }
        self.wait()?;
        let results: Vec<(u64, i32)> = self.ring.completion().map(|completion| (completion.user_data(), completion.result())).collect();
        for (number, result) in results {
            match number {
                WOKEN => {
                    self.is_listening = false;
                    let _ = rustix::io::read(&porter.wake, &mut [0u8; 8]);
                }
                REFUSED => {}
                number => self.completed(number as usize, result),
            }
        }
        self.look_again();
        Ok(())
    }

    /// Does what was asked, and returns an entry that the kernel is about to have for the first time.
    fn obey(&mut self, message: Message) -> Option<(Arc<RingMount>, u16)> {
        match message {
            Message::Register(entry) => {
                let new = (Arc::clone(&entry.mount), entry.queue);
                let submission = entry.registration();
                self.offer(Held { entry, is_new: true }, submission);
                Some(new)
            }
            Message::Commit(entry, commit_id) => {
                let submission = entry.commit(commit_id);
                self.offer(Held { entry, is_new: false }, submission);
                None
            }
            Message::Refuse(shared) => {
                let command = RingCommand { queue: u16::MAX, ..RingCommand::default() };
                let submission = entry::command(&shared, RING_REGISTER, &command, None);
                if let Err(error) = self.push(submission.user_data(REFUSED)).and_then(|()| self.submit()) {
                    tracing::error!(%error, "cannot tell the kernel that a mount has no io_uring queues; the mount waits");
                }
                None
            }
        }
    }

    fn offer(&mut self, held: Held, submission: squeue::Entry128) {
        let number = self.free.pop().unwrap_or_else(|| {
            self.entries.push(None);
            self.entries.len() - 1
        });
        match self.push(submission.user_data(number as u64)) {
            Ok(()) => self.entries[number] = Some(held),
            Err(error) => {
                self.free.push(number);
                self.lost(held, &error);
            }
        }
    }

    /// Leaves a submission, after those before it were submitted if there is no room.
    fn push(&mut self, submission: squeue::Entry128) -> io::Result<()> {
        if self.ring.submission().is_full() {
            self.submit()?;
        }
        entry::push(&mut self.ring, &submission)
    }

    fn submit(&mut self) -> io::Result<()> {
        while !self.ring.submission().is_empty() {
            match self.ring.submit() {
                Ok(_) => {}
                Err(error) if entry::is_passing(&error) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn wait(&mut self) -> io::Result<()> {
        let waited = if crew().is_short() || !self.again.is_empty() {
            let limit = types::Timespec::from(AGAIN_AFTER);
            self.ring.submitter().submit_with_args(1, &types::SubmitArgs::new().timespec(&limit))
        } else {
            self.ring.submit_and_wait(1)
        };
        match waited {
            Err(error) if !entry::is_passing(&error) => Err(error),
            _ => Ok(()),
        }
    }

    /// The kernel has given an entry back.
    fn completed(&mut self, number: usize, result: i32) {
        let Some(held) = self.entries.get_mut(number).and_then(Option::take) else { return };
        self.free.push(number);
        match result {
            0 => {
                let others = held.entry.mount.given(held.entry.queue);
                crew().give(Job::Answer(held.entry, others));
            }
            error if entry::is_end(error) => held.entry.mount.shared.end(),
            error => self.lost(held, &io::Error::from_raw_os_error(-error)),
        }
    }

    fn lost(&mut self, held: Held, error: &io::Error) {
        let (mount, queue) = (Arc::clone(&held.entry.mount), held.entry.queue);
        if mount.lost(held.entry, error) {
            if held.is_new {
                // The kernel goes on without rings, or with the entries that it has.
                mount.has_fewer();
                return;
            }
            #[allow(clippy::disallowed_methods)] // the real clock: callers wait in it
            self.again.push((Instant::now() + AGAIN_AFTER, mount, queue));
        }
    }

    #[allow(clippy::disallowed_methods)] // as above
    fn look_again(&mut self) {
        if crew().is_short() {
            crew().try_again();
        }
        let due = |(at, _, _): &mut (Instant, Arc<RingMount>, u16)| *at <= Instant::now();
        for (_, mount, queue) in self.again.extract_if(.., due).collect::<Vec<_>>() {
            if let Err(error) = mount.add(queue) {
                tracing::error!(%error, queue, "no memory for an entry of FUSE over io_uring");
            }
        }
    }
}
