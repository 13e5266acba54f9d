//! Records that were read and wait to be applied.

use std::collections::VecDeque;
use std::io::Read;
use std::sync::Arc;

use ondisk::stream::RecordBody;
use parking_lot::{Condvar, Mutex};

use crate::error;
use crate::error::Result;
use crate::host::HostRef;
use crate::stream::{Progress, Received, StreamReader};

/// So many bytes of records are read ahead.
const AHEAD_BYTES_MAX: usize = 16 << 20;
/// What a record weighs without its payload.
const RECORD_BYTES: usize = 512;
/// So many bytes of records are applied together.
const TAKE_BYTES_MAX: usize = 1 << 20;
/// And so many records.
const TAKE_RECORDS_MAX: usize = 256;

/// A record with its payload.
#[derive(Debug)]
pub(super) struct Item {
    pub(super) received: Received,
    pub(super) payload: Vec<u8>,
    /// It has waited for a group already.
    pub(super) has_waited: bool,
}

impl Item {
    fn weight(&self) -> usize {
        self.payload.len() + RECORD_BYTES
    }
}

struct State<R> {
    items: VecDeque<Item>,
    bytes: usize,
    /// Why there are no more: an error, or the END record.
    end: Option<Result<()>>,
    /// Nobody takes them any more.
    is_given_up: bool,
    /// What was read from, when that is over.
    reader: Option<(StreamReader<R>, Progress)>,
}

/// What both threads have.
struct Shared<R> {
    /// guards: itself
    state: Mutex<State<R>>,
    changed: Condvar,
}

/// The side of the thread that applies records.
pub(super) struct Queue<R>(Arc<Shared<R>>);

impl<R: Read + Send + 'static> Queue<R> {
    /// Begins to read, in a thread of its own.
    pub(super) fn start(host: &HostRef, reader: StreamReader<R>, progress: Progress) -> Result<Queue<R>> {
        let state = State { items: VecDeque::new(), bytes: 0, end: None, is_given_up: false, reader: None };
        let shared = Arc::new(Shared { state: Mutex::new(state), changed: Condvar::new() });
        let own = shared.clone();
        let body = move || read(&own, reader, progress);
        if host.spawn("stream reader", Box::new(body)) {
            Ok(Queue(shared))
        } else {
            Err(error!(Busy, "no thread can be had to read the stream"))
        }
    }

    /// The next records: at least one, in their order; none after the END record.
    ///
    /// # Errors
    /// What was wrong with the stream, when all records before it were taken.
    pub(super) fn take(&self) -> Result<Vec<Item>> {
        let mut state = self.0.state.lock();
        while state.items.is_empty() && state.end.is_none() {
            self.0.changed.wait(&mut state);
        }
        let (mut taken, mut bytes) = (Vec::new(), 0);
        while let Some(item) = state.items.pop_front() {
            bytes += item.weight();
            taken.push(item);
            if bytes >= TAKE_BYTES_MAX || taken.len() >= TAKE_RECORDS_MAX {
                break;
            }
        }
        state.bytes -= bytes;
        self.0.changed.notify_all();
        if taken.is_empty() && let Some(Err(error)) = &state.end { Err(error.clone()) } else { Ok(taken) }
    }

    /// Nothing more is taken. What was read from comes back, where the reading stopped.
    pub(super) fn finish(self) -> Option<(StreamReader<R>, Progress)> {
        let mut state = self.0.state.lock();
        state.is_given_up = true;
        self.0.changed.notify_all();
        while state.end.is_none() {
            self.0.changed.wait(&mut state);
        }
        state.reader.take()
    }
}

/// Reads until the END record, an error, or the other side gives up.
fn read<R: Read>(shared: &Shared<R>, mut reader: StreamReader<R>, mut progress: Progress) {
    let end = loop {
        match next(&mut reader, &mut progress) {
            Ok(None) => break Ok(()),
            Ok(Some(item)) => {
                let mut state = shared.state.lock();
                while state.bytes > AHEAD_BYTES_MAX && !state.is_given_up {
                    shared.changed.wait(&mut state);
                }
                if state.is_given_up {
                    break Ok(());
                }
                state.bytes += item.weight();
                state.items.push_back(item);
                shared.changed.notify_all();
            }
            Err(error) => break Err(error),
        }
    };
    let mut state = shared.state.lock();
    state.reader = Some((reader, progress));
    state.end = Some(end);
    shared.changed.notify_all();
}

fn next<R: Read>(reader: &mut StreamReader<R>, progress: &mut Progress) -> Result<Option<Item>> {
    let mut payload = Vec::new();
    let Some(received) = reader.next(&mut payload)? else {
        progress.finish()?;
        return Err(error!(Corrupt, "the stream ends before its END record: the sender or the way broke off"));
    };
    progress.take(&received)?;
    if matches!(received.record.body, RecordBody::End(_)) {
        return Ok(None);
    }
    Ok(Some(Item { received, payload, has_waited: false }))
}
