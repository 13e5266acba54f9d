//! `zfs send`: one stream.

use std::io::ErrorKind as IoErrorKind;
use std::sync::Arc;

use engine::error::ErrorKind;
use engine::stream::{SendOptions, Sender};

use crate::Pool;
use crate::control::pools::{Failure, FailureKind, Pools};
use crate::control::{Reply, SizeJob, StreamJob, StreamSend, Streamed};

fn failure(error: &engine::error::Error) -> Failure {
    match error.kind() {
        ErrorKind::CrossDevice => Failure::new(FailureKind::NotEarlier),
        ErrorKind::Invalid | ErrorKind::NotSupported => Failure::with(FailureKind::Other, error.message()),
        _ => Failure::about_dataset(error),
    }
}

fn sender(pool: &Pool, send: &StreamSend) -> Result<Sender, Failure> {
    let options = SendOptions {
        large_blocks: send.large_blocks,
        embedded: send.embedded,
        compressed: send.compressed,
        raw: send.raw,
        resume: send.resume,
        redact: send.redact.clone(),
        saved: send.saved,
        head: !send.saved && !send.snapshot.contains('@'),
    };
    Sender::new(&pool.engine().dsl, &send.snapshot, send.from.as_deref(), &options).map_err(|error| failure(&error))
}

impl Pools {
    fn pool_to_send(&self, send: &StreamSend) -> Result<Arc<Pool>, Failure> {
        self.check_running(&send.snapshot)?;
        Ok(self.pool_of(&send.snapshot)?.pool.clone())
    }

    /// The snapshot is looked up now, and cannot be destroyed until the job is done.
    pub(in crate::control::pools) fn send_job(&self, send: StreamSend) -> Result<StreamJob, Failure> {
        let pool = self.pool_to_send(&send)?;
        let owned = if send.saved || send.snapshot.contains('@') {
            None
        } else {
            // Its users may come, though none has yet.
            if self.mounter.is_mounted(&send.snapshot) {
                return Err(failure(&crate::Error::new(ErrorKind::Busy, format!("{} is mounted", send.snapshot))));
            }
            (!pool.engine().is_read_only()).then(|| pool.own_head(&send.snapshot)).transpose().map_err(|error| failure(&error))?
        };
        let mut sender = sender(&pool, &send)?;
        let under_way = self.pool_of(&send.snapshot)?.streams.clone();
        Ok(Box::new(move |mut out| {
            // A file system that is sent itself stays as it is until then, and the pool is busy.
            let (owned, _under_way) = (owned, under_way);
            if let Some(owned) = &owned {
                // Nobody else waits for this. What the stream says of itself may only be known then.
                owned.settle().map_err(|error| failure(&error))?;
                sender = self::sender(&pool, &send)?;
            }
            let watch = out.watch().clone();
            let mut broken = None;
            let mut noting = Noting { out: &mut out, broken: &mut broken };
            let sent = sender.send(&mut noting, &|| watch.is_over());
            sent.map(|()| Streamed::Over(Reply::Done)).map_err(|error| match broken {
                // The reader is gone: that is what users know, not where it was noticed.
                Some(words) => Failure::with(FailureKind::Io, words),
                None => failure(&error),
            })
        }))
    }

    pub(in crate::control::pools) fn size_job(&self, send: &StreamSend) -> Result<SizeJob, Failure> {
        let (sender, resumed) = (sender(&*self.pool_to_send(send)?, send)?, send.resumed_bytes);
        Ok(Box::new(move || {
            let estimated = sender.estimate().and_then(|bytes| bytes.map_or_else(|| sender.count(&|| false), Ok));
            estimated.map(|bytes| bytes.wrapping_sub(resumed)).map_err(|error| failure(&error))
        }))
    }
}

/// Keeps the system's words of why nothing can be written.
struct Noting<'a, W> {
    out: &'a mut W,
    broken: &'a mut Option<String>,
}

impl<W: std::io::Write> std::io::Write for Noting<'_, W> {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.out.write(bytes).inspect_err(|error| {
            if error.kind() != IoErrorKind::Interrupted {
                *self.broken = Some(error.to_string());
            }
        })
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.out.flush()
    }
}
