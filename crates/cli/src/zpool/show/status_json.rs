//! `zpool status -j`

use serde_json::Value as Json;
use tarnfs::control::{
    CheckpointState, LeafWorkState, LeafWorkStatus, PoolStatus, RebuildState, ScanFunction, ScanState, VdevAux, VdevKind, VdevState, VdevStats, VdevStatus,
};

use super::status::{Flags, is_listed_apart, is_ordinary, is_sound};
use super::{reason, removal};
use crate::session::Session;
use crate::text::json::{self, Object};
use crate::text::units::{date_time, nice_bytes, nice_number, nice_time};
use crate::zpool::spec::vdev_name::{CLASSES, class_word, type_word};

/// How a number is written when it is not for a program.
#[derive(Clone, Copy)]
enum Unit {
    Count,
    Bytes,
    Time,
    /// Nanoseconds.
    Duration,
    /// Always all its digits.
    Exact,
}

struct Writer<'a> {
    flags: &'a Flags,
    zone: jiff::tz::TimeZone,
    status: &'a PoolStatus,
}

/// Prints the pools.
pub(in crate::zpool) fn print<'a>(session: &mut Session<'_>, flags: &Flags, statuses: impl Iterator<Item = &'a PoolStatus>, time: Option<String>) {
    let mut pools = Object::new();
    for status in statuses {
        let writer = Writer { flags, zone: session.zone.clone(), status };
        let key = if flags.key_guid { status.guid.to_string() } else { status.name.clone() };
        pools.insert(key, writer.pool().into());
    }
    let mut object = json::envelope("zpool status");
    object.insert("pools".into(), pools.into());
    if let Some(time) = time {
        object.insert("time".into(), if flags.as_int { session.now.into() } else { time.into() });
    }
    json::print(session, object);
}

/// The head of a pool in `-j`.
pub(super) fn pool_head(status: &PoolStatus, with_type: bool, as_int: bool) -> Object {
    let mut object = Object::new();
    object.insert("name".into(), status.name.clone().into());
    if with_type {
        object.insert("type".into(), "POOL".into());
    }
    object.insert("state".into(), status.health().into());
    for (key, number) in [("pool_guid", status.guid), ("txg", status.txg), ("spa_version", 5000), ("zpl_version", 5)] {
        if number != 0 {
            object.insert(key.into(), json::number(number, as_int));
        }
    }
    object
}

/// The head of a vdev in `-j`.
pub(super) fn vdev_head(vdev: &VdevStatus, name: &str, as_int: bool) -> Object {
    let mut object = Object::new();
    object.insert("name".into(), name.into());
    object.insert("vdev_type".into(), type_word(vdev.kind).into());
    if vdev.guid != 0 {
        object.insert("guid".into(), json::number(vdev.guid, as_int));
    }
    for (key, text) in [("path", &vdev.path), ("phys_path", &vdev.physical_path), ("devid", &vdev.device_id)] {
        if let Some(text) = text {
            object.insert(key.into(), text.clone().into());
        }
    }
    let class = if vdev.kind == VdevKind::Hole { "hole" } else { class_word(vdev.class) };
    object.insert("class".into(), class.into());
    let state = match vdev.state {
        VdevState::Closed => "CLOSED",
        VdevState::Offline => "OFFLINE",
        VdevState::Removed => "REMOVED",
        VdevState::CantOpen => "CANT_OPEN",
        VdevState::Faulted => "FAULTED",
        VdevState::Degraded => "DEGRADED",
        VdevState::Healthy => "ONLINE",
    };
    object.insert("state".into(), state.into());
    object
}

impl Writer<'_> {
    fn number(&self, value: u64, unit: Unit) -> Json {
        if self.flags.as_int {
            return value.into();
        }
        let text = match unit {
            _ if self.flags.exact => value.to_string(),
            Unit::Exact => value.to_string(),
            Unit::Count => nice_number(value),
            Unit::Bytes => nice_bytes(value),
            Unit::Time => date_time(value, &self.zone),
            Unit::Duration => nice_time(value),
        };
        text.into()
    }

    fn pool(&self) -> Object {
        let status = self.status;
        let reason = reason::of_pool(status);
        let mut object = pool_head(status, false, self.flags.as_int);
        if let Some((words, action)) = reason.words() {
            object.insert("status".into(), words.into());
            object.insert("action".into(), action.into());
        }
        if let Some(id) = reason.message_id() {
            object.insert("msgid".into(), id.into());
            object.insert("moreinfo".into(), reason::page(id).into());
        }
        self.scan(&mut object);
        self.removal(&mut object);
        self.checkpoint(&mut object);
        self.expansion(&mut object);
        let mut vdevs = Object::new();
        self.vdev(&status.root, 0, false, None, &mut vdevs);
        if self.flags.flat {
            self.apart(&mut vdevs);
            object.insert("vdevs".into(), vdevs.into());
        } else {
            object.insert("vdevs".into(), vdevs.into());
            self.apart(&mut object);
        }
        if let Some(count) = status.error_count {
            object.insert("error_count".into(), self.number(count, Unit::Count));
            if count != 0 && self.flags.verbose {
                object.insert("errlist".into(), status.errors.clone().into());
            }
        }
        object
    }

    /// Classes, caches and spares: under a key each, or all together when flat.
    fn apart(&self, into: &mut Object) {
        let root = &self.status.root;
        for (class, title) in CLASSES {
            let vdevs: Vec<&VdevStatus> = root.children.iter().filter(|vdev| is_listed_apart(vdev, class)).collect();
            self.group(title, &vdevs, false, into);
        }
        self.group("l2cache", &self.status.caches.iter().collect::<Vec<_>>(), false, into);
        self.group("spares", &self.status.spares.iter().collect::<Vec<_>>(), true, into);
    }

    fn group(&self, title: &str, vdevs: &[&VdevStatus], is_spare: bool, into: &mut Object) {
        if self.flags.flat {
            vdevs.iter().for_each(|vdev| self.vdev(vdev, 2, is_spare, None, into));
            return;
        }
        let mut group = Object::new();
        vdevs.iter().for_each(|vdev| self.vdev(vdev, 2, is_spare, None, &mut group));
        if !group.is_empty() {
            into.insert(title.into(), group.into());
        }
    }

    fn vdev(&self, vdev: &VdevStatus, depth: usize, is_spare: bool, parent: Option<&str>, into: &mut Object) {
        if vdev.kind == VdevKind::Indirect || (self.flags.unhealthy_only && depth > 0 && is_sound(vdev, self.flags.slow)) {
            return;
        }
        let name = self.flags.naming.name(vdev, &self.status.name);
        let mut object = vdev_head(vdev, &name, self.flags.as_int);
        if let Some(parent) = parent.filter(|_| self.flags.flat) {
            object.insert("parent".into(), parent.into());
        }
        if is_spare {
            match (vdev.aux, vdev.state) {
                (VdevAux::Spared, _) => object.insert("state".into(), "INUSE".into()),
                (_, VdevState::Healthy) => object.insert("state".into(), "AVAIL".into()),
                _ => None,
            };
        } else {
            self.counters(vdev, &mut object);
        }
        self.remarks(vdev, is_spare, &mut object);
        let mut children = Object::new();
        for child in vdev.children.iter().filter(|child| is_ordinary(vdev, child)) {
            if self.flags.flat {
                self.vdev(child, depth + 2, is_spare, Some(&name), into);
            }
            self.vdev(child, depth + 2, is_spare, Some(&name), &mut children);
        }
        if !children.is_empty() {
            object.insert("vdevs".into(), children.into());
        }
        into.insert(name, object.into());
    }

    fn counters(&self, vdev: &VdevStatus, object: &mut Object) {
        let stats = &vdev.stats;
        for (key, size) in [
            ("alloc_space", stats.allocated),
            ("total_space", stats.space),
            ("def_space", stats.deflated_space),
            ("rep_dev_size", stats.replacement_size),
            ("ex_dev_size", stats.expandable),
            ("self_healed", stats.self_healed),
            ("phys_space", stats.physical_space),
        ] {
            if size != 0 {
                object.insert(key.into(), self.number(size, Unit::Bytes));
            }
        }
        for (key, count) in
            [("read_errors", stats.read_errors), ("write_errors", stats.write_errors), ("checksum_errors", stats.checksum_errors)]
        {
            object.insert(key.into(), self.number(count, Unit::Count));
        }
        for (key, size) in [("scan_processed", stats.scan_processed), ("checkpoint_space", stats.checkpoint_space)] {
            if size != 0 {
                object.insert(key.into(), self.number(size, Unit::Bytes));
            }
        }
        if stats.resilver_deferred {
            object.insert("resilver_deferred".into(), self.number(1, Unit::Exact));
        }
        if vdev.children.is_empty() {
            object.insert("slow_ios".into(), self.number(stats.slow_ios, Unit::Count));
        }
    }

    /// How far work on a device is.
    fn work(&self, stats: &VdevStats, object: &mut Object) {
        let none = ["init_state", "initialized", "to_initialize", "init_time", "init_errors"];
        if self.flags.initialize {
            self.one_work(stats.initialize, none, "UNINITIALIZED", object);
        }
        if self.flags.trim {
            if stats.can_trim {
                self.one_work(stats.trim, ["trim_state", "trimmed", "to_trim", "trim_time", "trim_errors"], "UNTRIMMED", object);
            }
            object.insert("trim_notsup".into(), self.number(u64::from(!stats.can_trim), Unit::Exact));
        }
    }

    fn one_work(&self, work: Option<LeafWorkStatus>, [state, done, total, time, errors]: [&str; 5], none: &str, object: &mut Object) {
        let Some(work) = work else {
            object.insert(state.into(), none.into());
            return;
        };
        let word = match work.state {
            LeafWorkState::Active => "ACTIVE",
            LeafWorkState::Canceled => "CANCELED",
            LeafWorkState::Suspended => "SUSPENDED",
            LeafWorkState::Complete => "COMPLETE",
        };
        object.insert(state.into(), word.into());
        object.insert(done.into(), self.number(work.done, Unit::Bytes));
        object.insert(total.into(), self.number(work.total, Unit::Bytes));
        object.insert(time.into(), self.number(work.time, Unit::Time));
        object.insert(errors.into(), self.number(work.errors, Unit::Count));
    }

    fn remarks(&self, vdev: &VdevStatus, is_spare: bool, object: &mut Object) {
        let stats = &vdev.stats;
        if self.flags.direct {
            object.insert("dio_verify_errors".into(), self.number(stats.direct_verify_errors, Unit::Count));
        }
        if vdev.not_present {
            object.insert("not_present".into(), self.number(1, Unit::Exact));
            object.insert("was".into(), vdev.path.clone().unwrap_or_default().into());
        } else if vdev.aux != VdevAux::None {
            object.insert("aux".into(), aux_word(vdev.aux).into());
        } else if vdev.children.is_empty() && !is_spare && reason::has_wrong_ashift(vdev) {
            object.insert("configured_ashift".into(), self.number(stats.ashift, Unit::Exact));
            object.insert("physical_ashift".into(), self.number(stats.physical_ashift, Unit::Exact));
        }
        if stats.removing {
            object.insert("removing".into(), self.number(1, Unit::Exact));
        } else if stats.not_allocating {
            object.insert("noalloc".into(), self.number(1, Unit::Exact));
        }
        if vdev.children.is_empty() {
            self.work(stats, object);
        }
    }

    fn scan(&self, object: &mut Object) {
        let mut stats = self.scan_stats();
        let rebuilds = self.rebuilds();
        if !rebuilds.is_empty() {
            stats.insert("rebuild_stats".into(), rebuilds.into());
        }
        if !stats.is_empty() {
            object.insert("scan_stats".into(), stats.into());
        }
    }

    fn rebuilds(&self) -> Object {
        let mut all = Object::new();
        for rebuild in &self.status.rebuilds {
            let name = super::scan::top_name(self.status, rebuild.vdev);
            let Some(vdev) = self.status.root.children.iter().find(|vdev| vdev.id == rebuild.vdev) else { continue };
            let mut stats = vdev_head(vdev, &name, self.flags.as_int);
            let state = match rebuild.state {
                RebuildState::Active => "ACTIVE",
                RebuildState::Canceled => "CANCELED",
                RebuildState::Complete => "COMPLETE",
            };
            stats.insert("state".into(), state.into());
            for (key, value, unit) in [
                ("start_time", rebuild.start_time, Unit::Time),
                ("end_time", rebuild.end_time, Unit::Time),
                ("scan_time", rebuild.scan_time_ms * 1_000_000, Unit::Duration),
                ("scanned", rebuild.scanned, Unit::Bytes),
                ("issued", rebuild.issued, Unit::Bytes),
                ("rebuilt", rebuild.rebuilt, Unit::Bytes),
                ("to_scan", rebuild.estimate, Unit::Bytes),
                ("errors", rebuild.errors, Unit::Count),
                ("pass_time", rebuild.pass_time_ms * 1_000_000, Unit::Duration),
                ("pass_scanned", rebuild.pass_scanned, Unit::Bytes),
                ("pass_issued", rebuild.pass_issued, Unit::Bytes),
                ("pass_skipped", rebuild.pass_skipped, Unit::Bytes),
            ] {
                stats.insert(key.into(), self.number(value, unit));
            }
            all.insert(name, stats.into());
        }
        all
    }

    fn scan_stats(&self) -> Object {
        let mut stats = Object::new();
        let Some(scan) = &self.status.scan else { return stats };
        let function = match scan.function {
            ScanFunction::Scrub => "SCRUB",
            ScanFunction::Resilver => "RESILVER",
            ScanFunction::ErrorScrub => "ERRORSCRUB",
        };
        stats.insert("function".into(), function.into());
        stats.insert("state".into(), scan_state_word(scan.state).into());
        for (key, value, unit) in [
            ("start_time", scan.start_time, Unit::Time),
            ("end_time", scan.end_time, Unit::Time),
            ("to_examine", scan.to_examine, Unit::Bytes),
            ("examined", scan.examined, Unit::Bytes),
            ("skipped", scan.skipped, Unit::Bytes),
            ("processed", scan.processed, Unit::Bytes),
            ("errors", scan.errors, Unit::Count),
            ("bytes_per_scan", scan.pass_examined, Unit::Bytes),
            ("pass_start", scan.pass_start, Unit::Exact),
            ("scrub_pause", scan.pause_time, Unit::Time),
            ("scrub_spent_paused", scan.spent_paused, Unit::Exact),
            ("issued_bytes_per_scan", scan.pass_issued, Unit::Bytes),
            ("issued", scan.issued, Unit::Bytes),
        ] {
            stats.insert(key.into(), self.number(value, unit));
        }
        stats
    }

    fn removal(&self, object: &mut Object) {
        let Some(removal) = &self.status.removal else { return };
        let name = removal::name(self.status, removal);
        let mut stats = match self.status.root.children.iter().find(|vdev| vdev.id == removal.vdev) {
            // What has no path is not found by the name that it has here.
            Some(vdev) if vdev.path.is_some() => vdev_head(vdev, &name, self.flags.as_int),
            _ => Object::from_iter([("name".to_owned(), name.into())]),
        };
        stats.insert("state".into(), scan_state_word(removal.state).into());
        for (key, value, unit) in [
            ("removing_vdev", removal.vdev, Unit::Exact),
            ("start_time", removal.start_time, Unit::Time),
            ("end_time", removal.end_time, Unit::Time),
            ("to_copy", removal.to_copy, Unit::Bytes),
            ("copied", removal.copied, Unit::Bytes),
            ("mapping_memory", removal.mapping_memory, Unit::Bytes),
        ] {
            stats.insert(key.into(), self.number(value, unit));
        }
        object.insert("removal_stats".into(), stats.into());
    }

    fn expansion(&self, object: &mut Object) {
        let Some(expansion) = &self.status.expansion else { return };
        let mut stats = Object::from_iter([("name".to_owned(), super::scan::expanded_name(self.status, expansion).into())]);
        stats.insert("state".into(), scan_state_word(expansion.state).into());
        for (key, value, unit) in [
            ("expanding_vdev", expansion.vdev, Unit::Exact),
            ("start_time", expansion.start_time, Unit::Time),
            ("end_time", expansion.end_time, Unit::Time),
            ("to_reflow", expansion.to_move, Unit::Bytes),
            ("reflowed", expansion.moved, Unit::Bytes),
            ("waiting_for_resilver", expansion.waits.into(), Unit::Exact),
        ] {
            stats.insert(key.into(), self.number(value, unit));
        }
        object.insert("raidz_expand_stats".into(), stats.into());
    }

    fn checkpoint(&self, object: &mut Object) {
        let Some(checkpoint) = &self.status.checkpoint else { return };
        let state = match checkpoint.state {
            CheckpointState::Exists => "EXISTS",
            CheckpointState::Discarding => "DISCARDING",
        };
        let mut stats = Object::new();
        stats.insert("state".into(), state.into());
        stats.insert("start_time".into(), self.number(checkpoint.start_time, Unit::Time));
        stats.insert("space".into(), self.number(checkpoint.space, Unit::Bytes));
        object.insert("checkpoint_stats".into(), stats.into());
    }
}

fn scan_state_word(state: ScanState) -> &'static str {
    match state {
        ScanState::Scanning => "SCANNING",
        ScanState::Finished => "FINISHED",
        ScanState::Canceled => "CANCELED",
    }
}

fn aux_word(aux: VdevAux) -> &'static str {
    match aux {
        VdevAux::None => "NONE",
        VdevAux::OpenFailed => "OPEN_FAILED",
        VdevAux::CorruptData => "CORRUPT_DATA",
        VdevAux::NoReplicas => "NO_REPLICAS",
        VdevAux::BadGuidSum => "BAD_GUID_SUM",
        VdevAux::TooSmall => "TOO_SMALL",
        VdevAux::BadLabel => "BAD_LABEL",
        VdevAux::VersionNewer => "VERSION_NEWER",
        VdevAux::VersionOlder => "VERSION_OLDER",
        VdevAux::UnsupportedFeature => "UNSUP_FEAT",
        VdevAux::Spared => "SPARED",
        VdevAux::TooManyErrors => "ERR_EXCEEDED",
        VdevAux::IoFailure => "IO_FAILURE",
        VdevAux::BadLog => "BAD_LOG",
        VdevAux::External => "EXTERNAL",
        VdevAux::SplitPool => "SPLIT_POOL",
        VdevAux::BadAshift => "BAD_ASHIFT",
        VdevAux::ExternalPersist => "EXTERNAL_PERSIST",
        VdevAux::Active => "ACTIVE",
        VdevAux::ChildrenOffline => "CHILDREN_OFFLINE",
        VdevAux::AshiftTooBig => "ASHIFT_TOO_BIG",
    }
}
