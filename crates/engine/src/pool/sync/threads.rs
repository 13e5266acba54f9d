//! The threads of a pool: one closes groups, one writes them, one shows that the pool is in use.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

use super::writer::GroupWriter;
use crate::error;
use crate::host::{work_at, work_in_background};
use crate::txg::bug;

/// How many threads are running.
#[derive(Default)]
pub(super) struct Threads {
    /// guards: their number
    running: Mutex<u32>,
    ended: Condvar,
}

impl Threads {
    /// Whether there are none: a thread that waits for a group writes it.
    pub(super) fn is_none(&self) -> bool {
        *self.running.lock() == 0
    }

    fn wait_for_end(&self) {
        let mut running = self.running.lock();
        while *running > 0 {
            self.ended.wait(&mut running);
        }
    }
}

impl GroupWriter {
    /// Starts the threads, if the host has threads.
    pub(in crate::pool) fn start_threads(self: &Arc<Self>) {
        self.heartbeat.begin(self.layers.context.host.now_ns());
        let mut running = self.threads.running.lock();
        let bodies: [(&str, fn(&Arc<GroupWriter>)); 3] =
            [("txg_quiesce", |writer| writer.quiesce_thread()), ("txg_sync", |writer| writer.sync_thread()), ("heartbeat", GroupWriter::heartbeat_thread)];
        for (name, body) in bodies {
            let (writer, threads) = (self.clone(), self.threads.clone());
            let run = move || {
                work_in_background();
                // A bug must not leave everybody waiting for a thread that is gone.
                if catch_unwind(AssertUnwindSafe(|| body(&writer))).is_err() {
                    let failure = bug(format_args!("ended the thread {name}"));
                    tracing::error!("pool {}: suspended: {failure}", writer.configuration.name());
                    writer.layers.context.groups.fail(failure);
                }
                // The thread that waits for the end is the only one to hold it then.
                drop(writer);
                *threads.running.lock() -= 1;
                threads.ended.notify_all();
            };
            if self.layers.context.host.spawn(name, Box::new(run)) {
                *running += 1;
            }
        }
    }

    /// Starts one more, which the end of the pool waits for. `false`: the host has none.
    pub(in crate::pool) fn start_thread(self: &Arc<Self>, name: &'static str, body: impl FnOnce() + Send + 'static) -> bool {
        let mut running = self.threads.running.lock();
        let (writer, threads) = (self.clone(), self.threads.clone());
        let run = move || {
            if catch_unwind(AssertUnwindSafe(body)).is_err() {
                let failure = bug(format_args!("ended the thread {name}"));
                tracing::error!("pool {}: suspended: {failure}", writer.configuration.name());
                writer.layers.context.groups.fail(failure);
            }
            drop(writer);
            *threads.running.lock() -= 1;
            threads.ended.notify_all();
        };
        let started = self.layers.context.host.spawn(name, Box::new(run));
        *running += u32::from(started);
        started
    }

    fn quiesce_thread(&self) {
        let groups = &self.layers.context.groups;
        let timeout = || Duration::from_nanos(self.layers.context.tunables.txg_timeout_ns());
        while groups.wait_for_work(timeout()) {
            if groups.failure().is_some() {
                return;
            }
            groups.quiesce();
        }
    }

    fn sync_thread(&self) {
        let _urgent = work_at(Some(self.layers.context.groups.urgency()));
        while let Some(txg) = self.layers.context.groups.begin_sync() {
            self.layers.context.note_pressure();
            let result = self.sync_group(txg);
            if let Err(error) = &result {
                tracing::error!("pool {}: suspended: txg {txg}: {error}", self.configuration.name());
            }
            let failed = result.is_err();
            self.layers.context.groups.end_sync(txg, result);
            if failed {
                return;
            }
        }
    }

    /// Writes nothing more, and lets nobody wait for it.
    pub(in crate::pool) fn stop(&self) {
        self.layers.vdevs.gate().give_up();
        self.layers.context.groups.stop();
        self.heartbeat.end();
        self.works.end_all();
        self.threads.wait_for_end();
        // All that wait for a group, or come later, are told: nobody will write one.
        self.layers.context.groups.fail(error!(Suspended, "the pool is closed"));
    }
}
