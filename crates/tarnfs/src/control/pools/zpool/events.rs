//! What happened to the pools: `zpool events`.
//!
//! # Theory
//! The last few hundred events are kept in memory, as the kernel module keeps them. What commands do is noted as it happens. What
//! happens to devices and scans is found out by looking, every second or so: error counters that grew and states that changed become
//! events, as does what the agent did. So a burst of errors is one event with a count, and nothing on the path of data pays for it.

use std::collections::VecDeque;

use crate::control::pools::{Imported, Pools};
use crate::control::{EventValue, PoolEvent, PoolEvents};
use engine::vdev::VdevStatus;

/// How many are kept.
const EVENTS_MAX: usize = 512;

/// The events, oldest first.
#[derive(Debug, Default)]
pub(in crate::control::pools) struct EventLog {
    events: VecDeque<PoolEvent>,
    last: u64,
}

/// A device, as it was when somebody looked last.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::control::pools) struct Watched {
    state: u64,
    /// Reads, writes, checksums.
    errors: [u64; 3],
    /// How often it was found too slow for readers.
    sat_out: u64,
}

impl EventLog {
    fn push(&mut self, class: String, imported: &Imported, details: Vec<(String, EventValue)>) {
        let engine = imported.pool.engine();
        self.last += 1;
        self.events.push_back(PoolEvent {
            id: self.last,
            time: engine.context.host.wall_clock(),
            class,
            pool: engine.name(),
            guid: engine.guid(),
            details,
        });
        if self.events.len() > EVENTS_MAX {
            self.events.pop_front();
        }
    }
}

fn leaves<'a>(status: &'a VdevStatus, found: &mut Vec<&'a VdevStatus>) {
    if status.children.is_empty() {
        found.push(status);
    }
    status.children.iter().for_each(|child| leaves(child, found));
}

fn details(leaf: &VdevStatus) -> Vec<(String, EventValue)> {
    let mut details = vec![("vdev_guid".to_owned(), EventValue::Number(leaf.guid))];
    details.push(("vdev_state".to_owned(), EventValue::Text(leaf.state.name().to_owned())));
    details.extend(leaf.path.clone().map(|path| ("vdev_path".to_owned(), EventValue::Text(path))));
    details
}

impl Pools {
    /// A pool was made, imported, exported...
    pub(super) fn note_pool_event(&mut self, what: &str, imported: &Imported) {
        self.events.push(format!("sysevent.fs.zfs.{what}"), imported, Vec::new());
    }

    /// As above, for a pool that is in the table.
    pub(super) fn note_named_event(&mut self, what: &str, name: &str) {
        if let Some(imported) = self.pools.get(name) {
            self.events.push(format!("sysevent.fs.zfs.{what}"), imported, Vec::new());
        }
    }

    /// Looks what happened to the devices.
    pub(in crate::control::pools) fn watch(&mut self) {
        let mut changed = Vec::new();
        for (name, imported) in &self.pools {
            let done = imported.agent.take_done();
            changed.extend((!done.is_empty()).then(|| name.clone()));
            for (class, guid) in done {
                let path = imported.pool.engine().vdevs.find_leaf(guid).map(|(_, leaf)| EventValue::Text(leaf.name().to_owned()));
                let mut details: Vec<_> = (guid != 0).then(|| ("vdev_guid".to_owned(), EventValue::Number(guid))).into_iter().collect();
                details.extend(path.map(|path| ("vdev_path".to_owned(), path)));
                self.events.push(class.to_owned(), imported, details);
            }
            let engine = imported.pool.engine();
            let removals = engine.take_removal_events();
            changed.extend((!removals.is_empty()).then(|| name.clone()));
            let of_scans = engine.take_scan_events().into_iter().map(|event| (event.name, event.resilver_type));
            for (name, kind) in of_scans.chain(removals.into_iter().map(|name| (name, None))) {
                let details = kind.map(|kind| ("resilver_type".to_owned(), EventValue::Text(kind.to_owned())));
                self.events.push(format!("sysevent.fs.zfs.{name}"), imported, details.into_iter().collect());
            }
            let status = imported.pool.engine().vdevs.status();
            let mut found = Vec::new();
            leaves(&status, &mut found);
            for leaf in found {
                let now = Watched { state: leaf.state as u64, errors: [leaf.read_errors, leaf.write_errors, leaf.checksum_errors], sat_out: leaf.sat_out };
                // One that is met for the first time had no errors when it was opened, and nobody was told of what it has by now.
                let before = imported.watched.lock().insert(leaf.guid, now).unwrap_or(Watched { errors: [0; 3], sat_out: 0, ..now });
                for (index, class) in ["ereport.fs.zfs.io", "ereport.fs.zfs.io", "ereport.fs.zfs.checksum"].into_iter().enumerate() {
                    let grown = now.errors[index].saturating_sub(before.errors[index]);
                    if grown > 0 {
                        let mut details = details(leaf);
                        let counter = ["vdev_read_errors", "vdev_write_errors", "vdev_cksum_errors"][index];
                        details.push((counter.to_owned(), EventValue::Number(now.errors[index])));
                        details.push(("new_errors".to_owned(), EventValue::Number(grown)));
                        self.events.push(class.to_owned(), imported, details);
                    }
                }
                if now.sat_out > before.sat_out {
                    self.events.push("ereport.fs.zfs.sitout".to_owned(), imported, details(leaf));
                }
                if now.state != before.state {
                    self.events.push("resource.fs.zfs.statechange".to_owned(), imported, details(leaf));
                }
            }
        }
        changed.iter().for_each(|name| self.write_cachefile(name));
    }

    pub(in crate::control::pools) fn events(&mut self, wanted: &PoolEvents) -> Vec<PoolEvent> {
        self.watch();
        let found = self.events.events.iter().filter(|event| event.id > wanted.after).cloned().collect();
        if wanted.clear {
            self.events.events.clear();
        }
        found
    }
}
