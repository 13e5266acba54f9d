//! Small changes to a pool as a whole: another guid, a note of which program has it.

use std::sync::Arc;

use super::checkpoint;
use super::config::configuration::Configuration;
use super::config::properties::stored_property;
use super::layers::Layers;
use super::sync::writer::GroupWriter;
use crate::bail;
use crate::dmu::SyncTx;
use crate::dsl::SpaceCheck;
use crate::error::Result;
use crate::vdev::{FailureMode, VdevState};

/// Gives the pool another guid, so that a copy of its devices can be imported beside it, and waits until that is on disk.
///
/// # Errors
/// A device is missing: it would no longer belong to the pool.
#[doc(alias = "spa_change_guid")]
pub(in crate::pool) fn change_guid(layers: &Layers, configuration: &Arc<Configuration>, guid: Option<u64>) -> Result<()> {
    if layers.vdevs.state() != VdevState::Online {
        bail!(NoDevice, "pool {}: its guid cannot change while a device is missing or degraded", configuration.name());
    }
    checkpoint::refuse_change(layers)?;
    let old = configuration.get().guid;
    let new = guid.unwrap_or_else(|| layers.context.host.random());
    let (vdevs, configuration) = (layers.vdevs.clone(), configuration.clone());
    // In the sync thread, so that one group changes the uberblock's sum of guids and the labels together.
    layers.dsl.run_task(2, SpaceCheck::Reserved, |_| Ok(()), move |dsl, tx| {
        dsl.record_event("guid change", &format!("old={old} new={new}"), tx)?;
        vdevs.update_root_config(|root| root.guid = new);
        configuration.change_on_labels(|config| config.guid = new);
        Ok(())
    })
}

/// Does with failed writes what the property `failmode` says: for a program that has somebody to clear them.
///
/// # Errors
/// The property cannot be read.
pub(in crate::pool) fn obey_failmode(layers: &Layers) -> Result<()> {
    let mode = match stored_property(layers, "failmode")?.map_or(0, |value| value.number()) {
        1 => FailureMode::Continue,
        2 => FailureMode::Panic,
        _ => FailureMode::Wait,
    };
    layers.vdevs.gate().set_mode(mode);
    Ok(())
}

/// Errors are forgotten, of one device or of all; what waits to be written is tried again, unless something has stopped the pool for good.
pub(in crate::pool) fn clear_errors(writer: &GroupWriter, device: Option<u64>) {
    let layers = writer.layers();
    if writer.check_may_write(layers.context.host.now_ns()).is_err() {
        return;
    }
    for top in layers.vdevs.tops() {
        for leaf in top.leaves().iter().filter(|leaf| device.is_none_or(|device| device == leaf.guid())) {
            // What a lone device did not take, nobody has: it is written again, or the pool ends.
            if top.leaves().len() == 1 {
                leaf.will_catch_up();
            }
            leaf.clear_errors();
        }
    }
    layers.context.io.try_log_devices_again();
    layers.vdevs.gate().clear();
}

/// Says in the history that this program made or imported the pool.
pub(in crate::pool) fn record_version(layers: &Layers, configuration: &Configuration, what: &str, tx: &SyncTx<'_>) -> Result<()> {
    layers.dsl.record_event(what, &version_words(layers, configuration), tx)
}

/// As [`record_version`], in some txg soon.
///
/// # Errors
/// The pool is read-only or has stopped.
pub(in crate::pool) fn record_version_soon(layers: &Layers, configuration: &Configuration, what: &'static str) -> Result<()> {
    let words = version_words(layers, configuration);
    layers.dsl.queue_task(move |dsl, tx| dsl.record_event(what, &words, tx)).map(|_| ())
}

fn version_words(layers: &Layers, configuration: &Configuration) -> String {
    let (version, host) = (configuration.get().version, layers.context.host.host_name());
    format!("pool version {version}; software version tarn-{}; uts {host}", env!("CARGO_PKG_VERSION"))
}
