//! The receiving of one stream, from its BEGIN record to its END.

use std::io::Read;
use std::sync::Arc;

use ondisk::nvlist::NvList;
use ondisk::stream::{RecordBody, StreamOrder};

use super::apply::Applier;
use super::queue::Queue;
use crate::dsl::{Dsl, ReceiveTarget, ReceivedDataset, StreamHead};
use crate::error;
use crate::error::{Result, Within};
use crate::stream::{Progress, Received, StreamReader};

/// A stream whose BEGIN record was read.
pub struct Receiving<R> {
    pub(super) reader: StreamReader<R>,
    pub(super) progress: Progress,
    /// What it says of itself.
    pub head: StreamHead,
}

/// A stream all of whose records are applied. It becomes a snapshot with [`Finished::end`].
pub struct Finished {
    dsl: Arc<Dsl>,
    received: ReceivedDataset,
    head: StreamHead,
}

impl<R: Read + Send + 'static> Receiving<R> {
    /// Takes the BEGIN record of a stream (not of a package), and its payload.
    ///
    /// # Errors
    /// It is none, or its list makes no sense.
    pub fn new(reader: StreamReader<R>, progress: Progress, received: &Received, payload: &[u8]) -> Result<Receiving<R>> {
        let RecordBody::Begin(begin) = &received.record.body else {
            return Err(error!(Corrupt, "{}: a stream begins with a BEGIN record", received.place()));
        };
        let list = if payload.is_empty() { NvList::new() } else { NvList::decode(payload).within(|| received.place())? };
        Ok(Receiving { reader, progress, head: StreamHead { begin: (**begin).clone(), list } })
    }

    /// Reads the BEGIN record that `reader` is at.
    ///
    /// # Errors
    /// There is none.
    pub fn open(mut reader: StreamReader<R>, mut progress: Progress) -> Result<Receiving<R>> {
        let mut payload = Vec::new();
        let first = reader.next(&mut payload)?.ok_or_else(|| error!(Corrupt, "the stream is empty"))?;
        progress.take(&first)?;
        Receiving::new(reader, progress, &first, &payload)
    }

    /// Receives it; `after_begin` is called when the dataset is there and before anything is written to it; it hears whether that is new. What was read from comes back, behind the END record or where it went wrong.
    ///
    /// # Errors
    /// It cannot be received there ([`ReceiveVerbs::begin_receive`](crate::dsl::ReceiveVerbs::begin_receive)), or a record is wrong, or the pool has no room. What is there then is gone, or kept to be
    /// resumed.
    pub fn receive(self, dsl: &Arc<Dsl>, target: ReceiveTarget, after_begin: impl FnOnce(&Arc<Dsl>, bool)) -> (Option<(StreamReader<R>, Progress)>, Result<Finished>) {
        let Receiving { reader, progress, head } = self;
        let received = match dsl.receiving().begin_receive(target, &head) {
            Ok(received) => received,
            Err(error) => return (Some((reader, progress)), Err(error)),
        };
        let mut received = received;
        after_begin(dsl, received.is_new);
        let order = reader.order().unwrap_or(StreamOrder::Little);
        let queue = match Queue::start(&dsl.meta.context.host, reader, progress) {
            Ok(queue) => queue,
            Err(error) => return (None, Err(give_up(dsl, received, error))),
        };
        received.save_from_now_on();
        let applied = apply(&queue, Applier::new(dsl.meta.clone(), &received, &head, order));
        let rest = queue.finish();
        match applied {
            Ok(()) => (rest, Ok(Finished { dsl: dsl.clone(), received, head })),
            Err(error) => (rest, Err(give_up(dsl, received, error))),
        }
    }
}

fn apply<R: Read + Send + 'static>(queue: &Queue<R>, mut applier: Applier<'_>) -> Result<()> {
    loop {
        let items = queue.take()?;
        if items.is_empty() {
            return applier.free_rest();
        }
        applier.apply_all(items)?;
    }
}

/// The error is what is to be said; that what is left could not be cleaned up is for the log.
fn give_up(dsl: &Arc<Dsl>, received: ReceivedDataset, error: crate::error::Error) -> crate::error::Error {
    if let Err(left) = dsl.receiving().abandon_receive(received) {
        tracing::warn!("what was received before the stream broke off is left until the next import: {left}");
    }
    error
}

impl Finished {
    /// Bytes that the dataset refers to on top of what was there.
    pub fn is_new(&self) -> bool {
        self.received.is_new
    }

    /// The snapshot is taken, and the dataset becomes what it was received for.
    ///
    /// # Errors
    /// Those of [`ReceiveVerbs::end_receive`](crate::dsl::ReceiveVerbs::end_receive).
    pub fn end(self) -> Result<()> {
        let Finished { dsl, received, head } = self;
        dsl.receiving().end_receive(received, &head).map_err(|(error, received)| match received {
            Some(received) => give_up(&dsl, received, error),
            None => error,
        })
    }

    /// It is not wanted after all.
    pub fn give_up(self, error: crate::error::Error) -> crate::error::Error {
        give_up(&self.dsl, self.received, error)
    }
}
