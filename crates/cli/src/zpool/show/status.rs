//! `zpool status`

use jiff::tz::TimeZone;
use tarnfs::control::{
    AllocationClass, DAMAGED_FILES, DEDUP_TABLES, LeafWorkState, LeafWorkStatus, PoolStatus, RebuildState, ScanFunction, ScanState, VdevAux, VdevKind, VdevState, VdevStatus, Wanted,
};

use super::reason::{self, Reason};
use super::{removal, scan, status_json};
use crate::session::{Outcome, Session, Stop, complain, say};
use crate::text::getopt::{Long, Options};
use crate::text::units::{clock_time, nice_number};
use crate::zpool::spec::pools::{self, Interval, Timestamp};
use crate::zpool::spec::vdev_name::{CLASSES, Naming};

const LONG: &[Long] = &[("power", 'w'), ("json", 'j'), ("json-int", 'J'), ("json-flat-vdevs", 'F'), ("json-pool-key-guid", 'G')];
/// Narrowest name column.
const NAME_WIDTH_MIN: usize = 10;

#[derive(Default)]
pub(in crate::zpool) struct Flags {
    pub(super) direct: bool,
    dedup: bool,
    pub(super) unhealthy_only: bool,
    pub(in crate::zpool) naming: Naming,
    pub(super) initialize: bool,
    pub(in crate::zpool) exact: bool,
    pub(super) slow: bool,
    pub(super) trim: bool,
    power: bool,
    timestamp: Timestamp,
    pub(super) verbose: bool,
    explain: bool,
    json: bool,
    pub(super) as_int: bool,
    pub(in crate::zpool) flat: bool,
    pub(super) key_guid: bool,
}

fn parse(session: &mut Session<'_>, words: &[String]) -> Result<(Flags, Vec<String>), Stop> {
    let mut flags = Flags::default();
    let mut options = Options::new(words, "c:jdDegiLpPstT:vx", LONG);
    for option in options.by_ref() {
        let (letter, argument) = option.map_err(|wrong| session.misuse(wrong))?;
        match letter {
            'c' => {
                complain!(session, "zpool status: option 'c' is not yet supported by this version of tarn");
                return Err(Stop::Code(1));
            }
            'd' => flags.direct = true,
            'D' => flags.dedup = true,
            'e' => flags.unhealthy_only = true,
            'g' => flags.naming.guid = true,
            'i' => flags.initialize = true,
            'L' => flags.naming.follow = true,
            'p' => flags.exact = true,
            'P' => flags.naming.path = true,
            's' => flags.slow = true,
            't' => flags.trim = true,
            'T' => flags.timestamp = pools::parse_timestamp(session, &argument.unwrap_or_default())?,
            'v' => flags.verbose = true,
            'j' => flags.json = true,
            'x' => flags.explain = true,
            'w' => flags.power = true,
            'F' => flags.flat = true,
            'J' => (flags.as_int, flags.exact) = (true, true),
            _ => flags.key_guid = true,
        }
    }
    Ok((flags, options.operands()))
}

pub(in crate::zpool) fn run(session: &mut Session<'_>, words: &[String]) -> Outcome {
    let (flags, mut operands) = parse(session, words)?;
    let mut interval: Option<Interval> = pools::take_interval(session, &mut operands)?;
    for (given, words) in [
        (flags.flat, "'--json-flat-vdevs' only works with '-j' option"),
        (flags.as_int, "'--json-int' only works with '-j' option"),
        (flags.key_guid, "'json-pool-key-guid' only works with '-j' option"),
    ] {
        if given && !flags.json {
            return Err(session.misuse(words));
        }
    }
    let more = [(flags.verbose, DAMAGED_FILES), (flags.dedup, DEDUP_TABLES)];
    let wanted = Wanted::Only(more.into_iter().filter(|(given, _)| *given).map(|(_, what)| what.to_owned()).collect());
    let mut first = true;
    loop {
        let (statuses, code) = pools::statuses_with(session, &operands, &wanted);
        let shown = statuses.iter().filter(|status| !(flags.explain && reason::of_pool(status).is_healthy()));
        if flags.json {
            if code == 0 {
                status_json::print(session, &flags, shown, flags.timestamp.text(session));
            }
        } else {
            if let Some(text) = flags.timestamp.text(session) {
                say!(session, "{text}");
            }
            print_all(session, &flags, &statuses, operands.is_empty(), &mut first);
        }
        if code != 0 || !pools::next_round(session, &mut interval) {
            return Ok(code);
        }
    }
}

fn print_all(session: &mut Session<'_>, flags: &Flags, statuses: &[PoolStatus], all: bool, first: &mut bool) {
    for status in statuses {
        let reason = reason::of_pool(status);
        if flags.explain && reason.is_healthy() {
            if !all {
                say!(session, "pool '{}' is healthy", status.name);
                *first = false;
            }
            continue;
        }
        if !std::mem::take(first) {
            say!(session, "");
        }
        print_pool(session, flags, status, reason);
    }
    if all && statuses.is_empty() {
        complain!(session, "no pools available");
    } else if flags.explain && *first && all {
        say!(session, "all pools are healthy");
    }
}

fn print_pool(session: &mut Session<'_>, flags: &Flags, status: &PoolStatus, reason: Reason) {
    say!(session, "  pool: {}", status.name);
    say!(session, " state: {}", status.health());
    if let Some((words, action)) = reason.words() {
        session.print(format_args!("status: {words}"));
        session.print(format_args!("action: {action}"));
    }
    if let Some(id) = reason.message_id() {
        say!(session, "   see: {}", reason::page(id));
    }
    scan::print(session, status);
    removal::print(session, status);
    scan::print_checkpoint(session, status.checkpoint.as_ref());
    scan::print_expansion(session, status);

    let width = flags.naming.width(status, &status.name).max(NAME_WIDTH_MIN);
    say!(session, "config:\n");
    let mut heading = format!("\t{:<width$}  {:<8} {:>5} {:>5} {:>5}", "NAME", "STATE", "READ", "WRITE", "CKSUM");
    for (shown, title) in [(flags.slow, "SLOW"), (flags.power, "POWER"), (flags.direct, "DIO")] {
        if shown {
            heading.push_str(&format!(" {title:>5}"));
        }
    }
    say!(session, "{heading}");
    let mut tree = Tree { flags, status, width, zone: session.zone.clone(), is_rebuilding: false };
    tree.print(session, &status.root, 0, false);
    for (class, title) in CLASSES {
        let mut vdevs = status.root.children.iter().filter(|vdev| is_listed_apart(vdev, class)).peekable();
        if vdevs.peek().is_some() {
            say!(session, "\t{title}\t");
        }
        vdevs.for_each(|vdev| tree.print(session, vdev, 2, false));
    }
    for (vdevs, title, is_spare) in [(&status.caches, "cache", false), (&status.spares, "spares", true)] {
        if !vdevs.is_empty() {
            say!(session, "\t{title}");
        }
        vdevs.iter().for_each(|vdev| tree.print(session, vdev, 2, is_spare));
    }
    print_errors(session, flags, status);
    print_dedup(session, flags, status);
}

/// Is it a top-level vdev of a class with a heading of its own?
pub(in crate::zpool) fn is_listed_apart(vdev: &VdevStatus, class: AllocationClass) -> bool {
    vdev.class == class && !matches!(vdev.kind, VdevKind::Hole) && (class == AllocationClass::Log || vdev.kind != VdevKind::Indirect)
}

/// Is it shown among the ordinary children of its parent?
pub(in crate::zpool) fn is_ordinary(parent: &VdevStatus, vdev: &VdevStatus) -> bool {
    let top_level = parent.kind == VdevKind::Root;
    vdev.kind != VdevKind::Hole && (!top_level || vdev.class == AllocationClass::Normal)
}

/// Is every leaf of it as it should be?
pub(super) fn is_sound(vdev: &VdevStatus, slow_counts: bool) -> bool {
    if !vdev.children.is_empty() {
        return vdev.children.iter().all(|child| is_sound(child, slow_counts));
    }
    let stats = &vdev.stats;
    let errors = stats.read_errors | stats.write_errors | stats.checksum_errors;
    errors == 0 && vdev.state == VdevState::Healthy && !(slow_counts && stats.slow_ios != 0)
}

/// `INUSE` and `AVAIL` for spares, else the usual word.
pub(super) fn state_word(vdev: &VdevStatus, is_spare: bool) -> &'static str {
    match (is_spare, vdev.aux, vdev.state) {
        (true, VdevAux::Spared, _) => "INUSE",
        (true, _, VdevState::Healthy) => "AVAIL",
        _ => vdev.state.word(vdev.aux),
    }
}

struct Tree<'a> {
    flags: &'a Flags,
    status: &'a PoolStatus,
    width: usize,
    zone: TimeZone,
    /// Is the top-level vdev rebuilt that is being printed?
    is_rebuilding: bool,
}

impl Tree<'_> {
    fn print(&mut self, session: &mut Session<'_>, vdev: &VdevStatus, depth: usize, is_spare: bool) {
        if vdev.kind == VdevKind::Indirect || (self.flags.unhealthy_only && depth > 0 && is_sound(vdev, self.flags.slow)) {
            return;
        }
        if self.status.root.children.iter().any(|top| top.guid == vdev.guid) {
            self.is_rebuilding = self.status.rebuilds.iter().any(|rebuild| rebuild.state == RebuildState::Active && rebuild.vdev == vdev.id);
        }
        let name = self.flags.naming.name(vdev, &self.status.name);
        let width = self.width.saturating_sub(depth);
        let mut line = format!("\t{:depth$}{name:<width$}  {:<8}", "", state_word(vdev, is_spare));
        if !is_spare {
            line.push_str(&self.counters(vdev));
        }
        line.push_str(&self.remarks(vdev, is_spare));
        say!(session, "{line}");
        for child in vdev.children.iter().filter(|child| is_ordinary(vdev, child)) {
            self.print(session, child, depth + 2, is_spare);
        }
    }

    fn counters(&self, vdev: &VdevStatus) -> String {
        let flags = self.flags;
        let number = |number: u64| if flags.exact { number.to_string() } else { nice_number(number) };
        let stats = &vdev.stats;
        let mut text = String::new();
        for count in [stats.read_errors, stats.write_errors, stats.checksum_errors] {
            text.push_str(&format!(" {:>5}", number(count)));
        }
        if flags.slow {
            let shown = if flags.exact || vdev.children.is_empty() { number(stats.slow_ios) } else { "-".to_owned() };
            text.push_str(&format!(" {shown:>5}"));
        }
        if flags.power {
            text.push_str("     -");
        }
        if flags.direct {
            text.push_str(&format!(" {:>5}", number(stats.direct_verify_errors)));
        }
        text
    }

    fn remarks(&self, vdev: &VdevStatus, is_spare: bool) -> String {
        let mut text = String::new();
        let is_leaf = vdev.children.is_empty();
        if vdev.not_present {
            text.push_str(&format!("  was {}", vdev.path.as_deref().unwrap_or("")));
        } else if let Some(pool) = &vdev.used_by {
            text.push_str(&format!("  in use by pool '{pool}'"));
        } else if let Some(words) = aux_words(vdev) {
            text.push_str(&format!("  {words}"));
        } else if is_leaf && !is_spare && reason::has_wrong_ashift(vdev) {
            let bytes = |shift: u64| 1u64.checked_shl(u32::try_from(shift).unwrap_or(u32::MAX)).unwrap_or(0);
            let (configured, native) = (bytes(vdev.stats.ashift), bytes(vdev.stats.physical_ashift));
            text.push_str(&format!("  block size: {configured}B configured, {native}B native"));
        }
        if vdev.stats.removing {
            text.push_str("  (removing)");
        } else if vdev.stats.not_allocating {
            text.push_str("  (non-allocating)");
        }
        if self.is_rebuilding && is_leaf && vdev.state == VdevState::Healthy && vdev.stats.rebuild_processed != 0 {
            text.push_str("  (resilvering)");
        }
        let running = self.status.scan.as_ref().filter(|scan| scan.state == ScanState::Scanning);
        if let Some(scan) = running.filter(|_| is_leaf && vdev.state == VdevState::Healthy) {
            if vdev.stats.scan_processed != 0 {
                text.push_str(if scan.function == ScanFunction::Resilver { "  (resilvering)" } else { "  (repairing)" });
            } else if vdev.stats.resilver_deferred {
                text.push_str("  (awaiting resilver)");
            }
        }
        if is_leaf {
            let otherwise = if vdev.stats.can_trim { "untrimmed" } else { "trim unsupported" };
            text.push_str(&self.work(vdev.stats.initialize, self.flags.initialize, ["initialized", "initializing", "uninitialized"]));
            text.push_str(&self.work(vdev.stats.trim, self.flags.trim, ["trimmed", "trimming", otherwise]));
        }
        text
    }
}

impl Tree<'_> {
    /// How far work on a device is: how much is done, that it is being done, or that it never was.
    fn work(&self, work: Option<LeafWorkStatus>, verbose: bool, [done, doing, otherwise]: [&str; 3]) -> String {
        let shown = work.filter(|work| work.state != LeafWorkState::Canceled);
        match shown {
            Some(work) if verbose => {
                let percent = if work.state == LeafWorkState::Complete { 100 } else { u128::from(work.done) * 100 / (u128::from(work.total) + 1) };
                let what = match work.state {
                    LeafWorkState::Suspended => "suspended, started at",
                    LeafWorkState::Complete => "completed at",
                    LeafWorkState::Active | LeafWorkState::Canceled => "started at",
                };
                format!("  ({percent}% {done}, {what} {})", clock_time(work.time, &self.zone))
            }
            None if verbose => format!("  ({otherwise})"),
            Some(work) if work.state == LeafWorkState::Active => format!("  ({doing})"),
            _ => String::new(),
        }
    }
}

/// Why a vdev is as it is.
fn aux_words(vdev: &VdevStatus) -> Option<&'static str> {
    let stats = &vdev.stats;
    Some(match vdev.aux {
        VdevAux::None => return None,
        VdevAux::OpenFailed => "cannot open",
        VdevAux::BadGuidSum => "missing device",
        VdevAux::NoReplicas => "insufficient replicas",
        VdevAux::VersionNewer => "newer version",
        VdevAux::UnsupportedFeature => "unsupported feature(s)",
        VdevAux::AshiftTooBig => "unsupported minimum blocksize",
        VdevAux::Spared | VdevAux::Active => "currently in use",
        VdevAux::TooManyErrors
            if stats.read_errors + stats.write_errors + stats.checksum_errors == 0 && vdev.children.is_empty() && stats.slow_ios > 0 =>
        {
            "too many slow I/Os"
        }
        VdevAux::TooManyErrors => "too many errors",
        VdevAux::IoFailure => "experienced I/O failures",
        VdevAux::BadLog => "bad intent log",
        VdevAux::External => "external device fault",
        VdevAux::SplitPool => "split into new pool",
        VdevAux::ChildrenOffline => "all children offline",
        VdevAux::BadLabel => "invalid label",
        VdevAux::CorruptData | VdevAux::TooSmall | VdevAux::VersionOlder | VdevAux::BadAshift | VdevAux::ExternalPersist => "corrupted data",
    })
}

fn print_errors(session: &mut Session<'_>, flags: &Flags, status: &PoolStatus) {
    let Some(count) = status.error_count else { return };
    say!(session, "");
    if count == 0 {
        say!(session, "errors: No known data errors");
    } else if !flags.verbose {
        say!(session, "errors: {count} data errors, use '-v' for a list");
    } else {
        say!(session, "errors: Permanent errors have been detected in the following files:\n");
        for name in &status.errors {
            say!(session, "{:>7} {name}", "");
        }
    }
}

fn print_dedup(session: &mut Session<'_>, flags: &Flags, status: &PoolStatus) {
    let Some(dedup) = status.dedup.as_ref().filter(|_| flags.dedup) else { return };
    let number = |number: u64| if flags.exact { number.to_string() } else { nice_number(number) };
    say!(session, "");
    if dedup.entries == 0 {
        say!(session, " dedup: no DDT entries");
        return;
    }
    let (disk, memory) = (number(dedup.disk_size), number(dedup.memory_size));
    say!(session, " dedup: DDT entries {}, size {disk} on disk, {memory} in core", dedup.entries);
}
