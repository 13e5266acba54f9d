//! The property `autotrim`: devices are told by and by of what came free.
//!
//! # Theory
//! Each metaslab remembers what came free there, once property `autotrim` is on. A part of the metaslabs has its turn with each group, so that a
//! metaslab has it every so many groups: meanwhile small pieces become larger ones, and much is used again. An allocation that finds no other room ends the
//! turn: what is left has the next one. Nothing is noted on disk: what was not done when the pool is closed, `zpool trim` does.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::work::trim;
use crate::error::Result;
use crate::pool::config::properties::stored_property;
use crate::pool::sync::writer::GroupWriter;
use crate::tunables::Parameter;
use crate::vdev::TopVdev;

/// How long until it looks whether there is another group.
const PAUSE: Duration = Duration::from_millis(100);

/// Begins or ends it, as the property says.
///
/// # Errors
/// The property cannot be read.
pub(in crate::pool) fn obey(writer: &Arc<GroupWriter>) -> Result<()> {
    let layers = writer.layers();
    if layers.is_read_only() {
        return Ok(());
    }
    let is_on = stored_property(layers, "autotrim")?.is_some_and(|value| value.number() != 0);
    writer.works().autotrim.store(is_on, Ordering::Release);
    layers.context.io.allocator().note_frees(is_on);
    if is_on && !writer.works().autotrim_runs.swap(true, Ordering::AcqRel) {
        let of = writer.clone();
        let has_threads = writer.start_thread("vdev_autotrim", move || {
            loop {
                run(&of);
                of.works().autotrim_runs.store(false, Ordering::Release);
                // It may have been turned on again meanwhile.
                if !is_wanted(&of) || of.works().autotrim_runs.swap(true, Ordering::AcqRel) {
                    break;
                }
            }
        });
        if !has_threads {
            writer.works().autotrim_runs.store(false, Ordering::Release);
        }
    }
    Ok(())
}

fn is_wanted(writer: &GroupWriter) -> bool {
    writer.works().autotrim.load(Ordering::Acquire) && !writer.works().ending.load(Ordering::Acquire)
}

fn run(writer: &GroupWriter) {
    let (layers, mut last) = (writer.layers(), 0);
    while is_wanted(writer) {
        let synced = writer.uberblock().txg;
        if synced == last || !writer.is_settled() {
            layers.context.host.sleep(PAUSE);
            continue;
        }
        // Groups may be faster than the pauses: those in between count, too.
        let groups = synced - std::mem::replace(&mut last, synced);
        for top in layers.vdevs.data_tops().into_iter().filter(|top| !top.is_removing()) {
            if let Err(error) = trim_turn(writer, &top, synced, groups) {
                tracing::warn!("vdev {}: what came free was not trimmed: {error}", top.id());
            }
        }
    }
}

/// What came free in the metaslabs whose turn it is, or was with one of the last `groups`. The one where the log is stays as it is: places were made for that.
fn trim_turn(writer: &GroupWriter, top: &TopVdev, txg: u64, groups: u64) -> Result<()> {
    let layers = writer.layers();
    let (allocator, tunables) = (layers.context.io.allocator(), &layers.context.tunables);
    let batch = tunables.now(Parameter::TrimTxgBatch);
    let vdev = top.id() as u32;
    let group = allocator.group(vdev)?;
    let of_log = group.log_area().map(|area| area.metaslab().id);
    let has_turn = |number: u64| (txg % batch + batch - number % batch) % batch < groups && Some(number) != of_log;
    let mut failure = Ok(());
    for metaslab in group.metaslabs().iter().filter(|metaslab| has_turn(metaslab.id)) {
        let Some(held) = allocator.withhold_lately_freed(vdev, metaslab)? else { continue };
        // Something came free in between that is still needed if the pool goes back a group or two.
        if !writer.is_settled() {
            held.note_untold();
            continue;
        }
        let may_go_on = || is_wanted(writer) && !held.is_waited_for();
        for leaf in top.leaves().iter().filter(|leaf| leaf.is_open() && leaf.can_trim()) {
            let told: Result<()> = held.ranges().segments().try_for_each(|(offset, size)| {
                let (mut at, end) = (offset, offset + size);
                while at < end {
                    let next = top.layout().range_end(at).min(end);
                    let range = top.layout().on_leaf(leaf.number(), at..next);
                    let done = range.map(|range| trim(leaf, tunables, range, &may_go_on, &AtomicU64::new(0)));
                    done.transpose()?;
                    at = next;
                }
                Ok(())
            });
            // The other leaves are told nevertheless.
            match told {
                Err(_) if held.is_waited_for() => held.note_untold(),
                told => failure = failure.and(told),
            }
        }
    }
    failure
}
