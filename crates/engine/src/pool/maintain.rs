//! Small changes to a pool as a whole: another guid, a note of which program has it.

use std::sync::Arc;

use super::Pool;
use crate::dmu::SyncTx;
use crate::dsl::SpaceCheck;
use crate::error::Result;
use crate::vdev::VdevState;
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

    /// Says in the history that this program made or imported the pool.
    pub(super) fn record_version(&self, what: &str, tx: &SyncTx<'_>) -> Result<()> {
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
