//! Closing a pool.

use crate::pool::Pool;
use crate::pool::config::pool_config::PoolState;
use crate::error;
use crate::error::Result;

impl Pool {
    /// Writes everything, says on the labels that nobody has the pool, and stops. Nothing may use the pool afterwards.
    ///
    /// # Errors
    /// Something could not be written; the threads are stopped all the same.
    pub fn export(&self) -> Result<()> {
        self.end(PoolState::Exported)
    }

    /// As [`Pool::export`], but the labels say that the pool is destroyed.
    ///
    /// # Errors
    /// As for [`Pool::export`].
    pub fn destroy(&self) -> Result<()> {
        self.end(PoolState::Destroyed)
    }

    fn end(&self, state: PoolState) -> Result<()> {
        let result = if self.is_read_only() { Ok(()) } else { self.write_end(state) };
        if result.is_err() && self.vdevs.gate().failure().is_some() {
            // What is not written yet may still be: somebody can repair the pool.
            return result;
        }
        self.abandon();
        result
    }

    fn write_end(&self, state: PoolState) -> Result<()> {
        self.sync_all()?;
        if let Some(maps) = &self.space_maps {
            maps.request_flush_all();
        }
        self.say(state);
        let written = self.sync_all();
        if written.is_err() {
            // Whoever repairs the pool goes on with it.
            self.say(PoolState::Active);
        }
        written
    }

    fn say(&self, state: PoolState) {
        self.change_config(|config| config.state = state);
        for top in self.vdevs.tops() {
            top.set_config_dirty();
        }
    }

    /// Stops and lets go of the devices, without writing anything more: what a crash does.
    pub fn abandon(&self) {
        self.vdevs.gate().give_up();
        self.stop_threads();
        self.dsl.close();
        self.vdevs.close_all();
    }

    fn stop_threads(&self) {
        self.context.groups.stop();
        self.heartbeat.end();
        let mut threads = self.threads.lock();
        while *threads > 0 {
            self.thread_ended.wait(&mut threads);
        }
        // Who waits for a group, or comes later, is told: nobody will write one.
        self.context.groups.fail(error!(Suspended, "the pool is closed"));
    }
}
