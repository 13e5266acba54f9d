//! Small changes to a pool as a whole: another guid, a note of which program has it.

use std::sync::Arc;

use crate::pool::Pool;
use crate::dmu::SyncTx;
use crate::dsl::SpaceCheck;
use crate::error::Result;
use crate::vdev::{FailureMode, VdevState};
use crate::bail;

impl Pool {
    /// Gives the pool another guid, so that a copy of its devices can be imported beside it, and waits until that is on disk.
    ///
    /// # Errors
    /// A device is missing: it would no longer belong to the pool.
    #[doc(alias = "spa_change_guid")]
    pub fn change_guid(self: &Arc<Self>, guid: Option<u64>) -> Result<()> {
        if self.vdevs.state() != VdevState::Online {
            bail!(NoDevice, "pool {}: its guid cannot change while a device is missing or degraded", self.name());
        }
        let old = self.guid();
        let new = guid.unwrap_or_else(|| self.context.host.random());
        let pool = self.clone();
        // In the sync thread, so that one group changes the uberblock's sum of guids and the labels together.
        self.dsl.run_task(2, SpaceCheck::Reserved, |_| Ok(()), move |dsl, tx| {
            dsl.record_event("guid change", &format!("old={old} new={new}"), tx)?;
            pool.vdevs.update_root_config(|root| root.guid = new);
            pool.change_config(|config| config.guid = new);
            for top in pool.vdevs.tops() {
                top.set_config_dirty();
            }
            Ok(())
        })
    }

    /// Does with failed writes what the property `failmode` says: for who has somebody to clear them.
    ///
    /// # Errors
    /// The property cannot be read.
    pub fn obey_failmode(&self) -> Result<()> {
        let mode = match self.stored_property("failmode")?.map_or(0, |value| value.number()) {
            1 => FailureMode::Continue,
            2 => FailureMode::Panic,
            _ => FailureMode::Wait,
        };
        self.vdevs.gate().set_mode(mode);
        Ok(())
    }

    /// Errors are forgotten, of one device or of all; who waits to write tries again.
    pub fn clear_errors(&self, device: Option<u64>) {
        for top in self.vdevs.tops() {
            for leaf in top.leaves().iter().filter(|leaf| device.is_none_or(|device| device == leaf.guid())) {
                // What a lone device did not take, nobody has: it is written again, or the pool ends.
                if top.leaves().len() == 1 {
                    leaf.will_catch_up();
                }
                leaf.clear_errors();
            }
        }
        if device.is_none() {
            self.context.io.lost.forget();
        }
        self.context.io.try_log_devices_again();
        self.vdevs.gate().clear();
    }

    /// Says in the history that this program made or imported the pool.
    pub(in crate::pool) fn record_version(&self, what: &str, tx: &SyncTx<'_>) -> Result<()> {
        self.dsl.record_event(what, &self.version_words(), tx)
    }

    /// As [`Pool::record_version`], in some txg soon.
    ///
    /// # Errors
    /// The pool is read-only or has stopped.
    pub fn record_version_soon(&self, what: &'static str) -> Result<()> {
        let words = self.version_words();
        self.dsl.queue_task(move |dsl, tx| dsl.record_event(what, &words, tx)).map(|_| ())
    }

    fn version_words(&self) -> String {
        let (version, host) = (self.config().version, self.context.host.host_name());
        format!("pool version {version}; software version tarn-{}; uts {host}", env!("CARGO_PKG_VERSION"))
    }
}
