//! Tells the kernel what to forget, beside the operations.
//!
//! # Theory
//! Most mounts never have anything to tell. So the thread starts when there is something, and ends when there was
//! nothing for a while.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::Duration;

use fuse::Notifier;
use parking_lot::Mutex;

/// How long a thread with nothing to tell stays.
const STAYS_FOR: Duration = Duration::from_secs(5);

/// What the kernel is to forget.
pub(in crate::ops) enum Forget {
    /// The attributes of a file.
    One(u64),
    /// Those of all files.
    All,
    /// Attributes and contents of a file.
    Contents(u64),
    /// A name in a directory. The kernel locks the directory for that, which may have to wait for a call in it.
    Name(u64, Vec<u8>),
}

/// The teller of one mount.
#[derive(Default)]
pub(in crate::ops) struct Teller(Mutex<Option<Arc<Mount>>>);

/// The mount to be told.
struct Mount {
    notifier: Notifier,
    nodes: Box<dyn Fn() -> Vec<u64> + Send + Sync>,
    /// To the thread, if there is one.
    thread: Mutex<Option<Sender<Forget>>>,
}

impl std::fmt::Debug for Teller {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Teller")
    }
}

impl Teller {
    /// Begins telling the kernel. `nodes` are all nodes that it may know.
    pub(in crate::ops) fn start(&self, notifier: Notifier, nodes: impl Fn() -> Vec<u64> + Send + Sync + 'static) {
        *self.0.lock() = Some(Arc::new(Mount { notifier, nodes: Box::new(nodes), thread: Mutex::default() }));
    }

    /// The mount has ended. A running thread ends with its present message.
    pub(in crate::ops) fn end(&self) {
        if let Some(mount) = self.0.lock().take() {
            mount.thread.lock().take();
        }
    }

    pub(in crate::ops) fn forget(&self, whose: Forget) {
        let Some(mount) = self.0.lock().clone() else { return };
        let mut thread = mount.thread.lock();
        if thread.is_none() {
            *thread = mount.start_thread();
        }
        if let Some(sender) = &*thread {
            // The thread takes itself out of here before it ends.
            let _ = sender.send(whose);
        }
    }
}

impl Mount {
    fn start_thread(self: &Arc<Self>) -> Option<Sender<Forget>> {
        let (sender, receiver) = channel();
        let own = Arc::clone(self);
        fuse::claim_cpu();
        #[allow(clippy::disallowed_methods)] // the engine does not see this thread
        let started = std::thread::Builder::new().name("fuse-tell".to_owned()).spawn(move || own.run(&receiver));
        match started {
            Ok(_) => Some(sender),
            Err(error) => {
                tracing::warn!(%error, "no thread to tell the kernel what to forget: a full disk is reported at close only");
                None
            }
        }
    }

    fn run(&self, receiver: &Receiver<Forget>) {
        loop {
            match receiver.recv_timeout(STAYS_FOR) {
                Ok(whose) => self.tell(whose),
                Err(RecvTimeoutError::Disconnected) => return,
                Err(RecvTimeoutError::Timeout) => {
                    let mut thread = self.thread.lock();
                    match receiver.try_recv() {
                        // It came just now.
                        Ok(whose) => {
                            drop(thread);
                            self.tell(whose);
                        }
                        Err(_) => {
                            thread.take();
                            return;
                        }
                    }
                }
            }
        }
    }

    fn tell(&self, whose: Forget) {
        const ATTRIBUTES_ONLY: i64 = -1;
        let (whose, offset) = match whose {
            Forget::One(node) => (vec![node], ATTRIBUTES_ONLY),
            Forget::All => ((self.nodes)(), ATTRIBUTES_ONLY),
            Forget::Contents(node) => (vec![node], 0),
            Forget::Name(directory, name) => {
                if let Err(error) = self.notifier.inval_entry(directory, &name) {
                    tracing::debug!(directory, %error, "the kernel was not told which name to forget");
                }
                return;
            }
        };
        for node in whose {
            if let Err(error) = self.notifier.inval_inode(node, offset, 0) {
                tracing::debug!(node, %error, "the kernel was not told what to forget");
            }
        }
    }
}
