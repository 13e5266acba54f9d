//! Closing a pool.

use std::time::Duration;

use crate::error::Result;
use crate::pool::config::PoolState;
use crate::pool::sync::writer::GroupWriter;

/// How long until it looks again whether work on devices has ended.
const PAUSE: Duration = Duration::from_millis(5);

/// Writes everything, says `state` on the labels, and stops. Nothing may use the pool afterwards.
///
/// # Errors
/// Something could not be written; the threads are stopped all the same.
pub(in crate::pool) fn end(writer: &GroupWriter, state: PoolState) -> Result<()> {
    let layers = writer.layers();
    let result = if layers.is_read_only() { Ok(()) } else { write_end(writer, state) };
    if result.is_err() && layers.vdevs.gate().failure().is_some() {
        // What is not written yet may still be: somebody can repair the pool.
        return result;
    }
    layers.vdevs.departures().wait();
    abandon(writer);
    result
}

fn write_end(writer: &GroupWriter, state: PoolState) -> Result<()> {
    writer.scans().set_ending(true);
    writer.removals().set_ending(true);
    writer.works().end_all();
    while writer.works().is_any_running() {
        writer.layers().context.host.sleep(PAUSE);
    }
    writer.times().write_soon();
    let written = write_last_groups(writer, state);
    writer.scans().set_ending(written.is_ok());
    writer.removals().set_ending(written.is_ok());
    if written.is_err() {
        writer.works().go_on();
    }
    written
}

fn write_last_groups(writer: &GroupWriter, state: PoolState) -> Result<()> {
    writer.sync_all()?;
    if let Some(maps) = &writer.layers().space_maps {
        maps.request_flush_all();
    }
    writer.configuration().change_on_labels(|config| config.state = state);
    let written = writer.sync_all();
    if written.is_err() {
        // The administrator that repairs the pool goes on with it.
        writer.configuration().change_on_labels(|config| config.state = PoolState::Active);
    }
    written
}

/// Stops and lets go of the devices, without writing anything more: what a crash does.
pub(in crate::pool) fn abandon(writer: &GroupWriter) {
    writer.stop();
    let context = &writer.layers().context;
    context.cache.set_devices(Vec::new(), 0, &context.tunables, &context.host);
    writer.layers().dsl.close();
    writer.layers().vdevs.close_all();
}
