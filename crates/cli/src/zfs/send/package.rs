//! `zfs send -R` and `-I`: several streams; and the records around a package.
//!
//! # Theory
//! A dataset is sent after its parent and after what it is a clone of. Of each the snapshots go one after the other, each from the one
//! before it; with `-R` and without `-I` those between are left out, unless something is a clone of them.

use std::collections::BTreeSet;
use std::io::Write;

use ondisk::nvlist::NvList;
use ondisk::stream::{Begin, End, HEADER_COMPOUND, RECORD_CHECKSUM_OFFSET, Record, RecordBody, STREAM_MAGIC, StreamFeatures, StreamOrder};
use tarnfs::control::{DatasetEntry, DatasetKinds, DatasetList, Failure, FailureKind, Package, PackageAsk, PackageDataset, Request, Wanted};
use transform::checksum::Fletcher4;

use super::one::refused;
use super::{Flags, number, open, said, stream, text};
use crate::session::{Outcome, Session, Stop, complain, worst};
use crate::text::units::nice_bytes;

/// What a package is to say.
pub(super) fn ask(flags: &Flags, snapshot: &str, from: Option<&str>) -> PackageAsk {
    let (dataset, to) = snapshot.split_once('@').unwrap_or((snapshot, ""));
    PackageAsk {
        dataset: dataset.to_owned(),
        from: from.map(str::to_owned),
        to: to.to_owned(),
        replicate: flags.replicate,
        all: flags.all,
        properties: flags.properties,
        received: flags.received,
        holds: flags.holds,
        raw: flags.raw,
        skip_missing: flags.skip_missing,
        verbose: flags.verbosity > 0,
        exclude: flags.exclude.clone(),
    }
}

/// Writes BEGIN with the list of datasets, and its END. Without `with_list` there is no list.
pub(super) fn begin(session: &mut Session<'_>, flags: &Flags, ask: &PackageAsk, with_list: bool) -> Result<Package, Stop> {
    let snapshot = format!("{}@{}", ask.dataset, ask.to);
    let action = format!("warning: cannot send '{snapshot}'");
    let mut package = Package::default();
    let mut payload = Vec::new();
    if with_list {
        package = session.package(Request::StreamPackage(ask.clone())).map_err(|failure| session.failed(&action, &failure))?;
        for note in &package.notes {
            complain!(session, "{note}");
        }
        if let Some(refused) = package.refused.take() {
            complain!(session, "{refused}");
            return Err(session.failed(&action, &Failure::with(FailureKind::Other, "backup failed")));
        }
        let unreadable = || Failure::with(FailureKind::Other, "the daemon's list of datasets cannot be read");
        payload = head_list(ask, &package.list).ok_or_else(|| session.failed(&action, &unreadable()))?;
    }
    if flags.dry {
        return Ok(package);
    }
    let features = stream_features(ask);
    let mut record = Begin { magic: STREAM_MAGIC, version_info: HEADER_COMPOUND | features.bits() << 2, ..Begin::zeroed() };
    let Some(place) = record.name.get_mut(..snapshot.len()).filter(|_| snapshot.len() < 256) else {
        return Err(session.failed(&action, &Failure::new(FailureKind::NameTooLong)));
    };
    place.copy_from_slice(snapshot.as_bytes());
    let mut bytes = Vec::new();
    let mut sum = Fletcher4::new(false);
    let begin = Record { body: RecordBody::Begin(Box::new(record)), begin_payload_bytes: payload.len() as u32, checksum: [0; 4] };
    let begin = begin.encode(StreamOrder::Little);
    sum.update(&begin[..RECORD_CHECKSUM_OFFSET]);
    sum.update(&begin[RECORD_CHECKSUM_OFFSET..]);
    sum.update(&payload);
    bytes.extend(begin);
    bytes.extend(payload);
    bytes.extend(end_record(sum.words()));
    write(session, &bytes)?;
    Ok(package)
}

/// Says that a package has ended.
pub(super) fn end(session: &mut Session<'_>) -> Result<(), Stop> {
    write(session, &end_record([0; 4]))
}

/// The ENDs of a package have no checksum of their own.
fn end_record(checksum: [u64; 4]) -> [u8; ondisk::stream::RECORD_SIZE] {
    Record { body: RecordBody::End(End { checksum, to_guid: 0 }), begin_payload_bytes: 0, checksum: [0; 4] }.encode(StreamOrder::Little)
}

fn write(session: &mut Session<'_>, bytes: &[u8]) -> Result<(), Stop> {
    let written = session.out.flush().and_then(|()| std::io::stdout().write_all(bytes)).and_then(|()| std::io::stdout().flush());
    written.map_err(|error| {
        complain!(session, "cannot send: {error}");
        Stop::Code(1)
    })
}

/// An empty list in the place of one that cannot be read would have the receiver destroy what it has.
fn head_list(ask: &PackageAsk, datasets: &[u8]) -> Option<Vec<u8>> {
    let mut list = NvList::new();
    if let Some(from) = &ask.from {
        list.set("fromsnap", from.as_str());
    }
    list.set("tosnap", ask.to.as_str());
    if !ask.replicate {
        list.set_flag("not_recursive");
    }
    if ask.raw {
        list.set_flag("raw");
    }
    list.set("fss", NvList::decode(datasets).ok()?);
    Some(list.encode_xdr())
}

/// What a receiver has to know of the package itself.
fn stream_features(ask: &PackageAsk) -> StreamFeatures {
    if ask.holds { StreamFeatures::HOLDS } else { StreamFeatures::empty() }
}

/// `-R`, `-I`
pub(super) fn series(session: &mut Session<'_>, mut flags: Flags, name: &str) -> Outcome {
    for (is_wrong, words) in [
        (flags.from.as_ref().is_some_and(|from| from.contains('#')), "Error: multiple snapshots cannot be sent from a bookmark."),
        (flags.redact.is_some(), "Error: multiple snapshots cannot be sent redacted."),
        (!name.contains('@'), "Error: Unsupported flag with filesystem or bookmark."),
    ] {
        if is_wrong {
            complain!(session, "{words}");
            return Ok(1);
        }
    }
    let (head_name, to) = name.split_once('@').unwrap_or((name, ""));
    let head = open(session, head_name)?;
    let mut from = flags.from.take();
    let mut origin = None;
    if let Some(given) = from.clone().filter(|given| given.contains('@')) {
        if text(&head, "origin").as_ref() == Some(&given) {
            (from, origin) = (None, Some(given));
        } else {
            let (fs, snapshot) = given.split_once('@').unwrap_or(("", &given));
            if !fs.is_empty() && fs != head_name {
                return Err(session.misuse("incremental source must be in same filesystem"));
            }
            if snapshot.contains(['@', '/']) {
                return Err(session.misuse("invalid incremental source"));
            }
            from = Some(snapshot.to_owned());
        }
    }
    if flags.replicate && from.is_none() {
        flags.all = true;
    }
    if from.as_deref() == Some("") {
        complain!(session, "cannot send '{head_name}': zero-length incremental source");
        return Ok(1);
    }
    if let Some(from) = &from {
        open(session, &format!("{head_name}@{from}"))?;
    }
    open(session, name)?;
    let asked = ask(&flags, name, from.as_deref());
    let with_list = flags.replicate || flags.properties || flags.holds;
    let package = begin(session, &flags, &asked, with_list)?;
    let datasets = if flags.replicate { package.datasets } else { vec![alone(session, head_name)?] };
    let mut series = Series { flags: &flags, from, to, origin, code: 0, size: 0, seen_to: false, is_quiet: false };
    let outcome = series.run(session, &datasets, head_name);
    if !flags.dry {
        end(session)?;
    }
    outcome.map(|()| series.code)
}

/// A dataset without those below it.
fn alone(session: &mut Session<'_>, name: &str) -> Result<PackageDataset, Stop> {
    let kinds = DatasetKinds { snapshot: true, ..DatasetKinds::NONE };
    let properties = Wanted::Only(vec!["guid".to_owned()]);
    let list = DatasetList { root: Some(name.to_owned()), depth: Some(1), kinds, snapshots_where_listed: false, properties, received: false };
    let found = session.datasets(Request::DatasetList(list));
    let mut entries = found.map_err(|failure| session.failed(format_args!("cannot open '{name}'"), &failure))?.entries;
    entries.sort_by_key(|entry| entry.creation_txg);
    let snapshot = |entry: &DatasetEntry| entry.name.split_once('@').map(|(_, snapshot)| (snapshot.to_owned(), number(entry, "guid")));
    Ok(PackageDataset { name: name.to_owned(), parent_from: 0, origin: None, snapshots: entries.iter().filter_map(snapshot).collect() })
}

/// Streams of several datasets.
struct Series<'a> {
    flags: &'a Flags,
    from: Option<String>,
    to: &'a str,
    /// A clone is sent from what it was made of.
    origin: Option<String>,
    code: u8,
    size: u64,
    seen_to: bool,
    /// Nothing is said: it has been.
    is_quiet: bool,
}

impl Series<'_> {
    /// First, as far as asked for, what there will be; then the streams.
    fn run(&mut self, session: &mut Session<'_>, datasets: &[PackageDataset], head_name: &str) -> Result<(), Stop> {
        if self.flags.verbosity != 0 || self.flags.dry {
            self.all(session, datasets, true)?;
            if self.flags.verbosity != 0 {
                said::total(session, self.flags, self.size, nice_bytes(self.size));
            }
        }
        if !self.flags.dry {
            self.is_quiet = self.flags.verbosity != 0;
            self.all(session, datasets, false)?;
        }
        if !self.seen_to {
            complain!(session, "cannot send '{head_name}': dataset does not exist");
            self.code = worst(self.code, 1);
        }
        Ok(())
    }

    /// Each dataset after its parent and its origin.
    fn all(&mut self, session: &mut Session<'_>, datasets: &[PackageDataset], is_dry: bool) -> Result<(), Stop> {
        let origins: BTreeSet<u64> = datasets.iter().filter_map(|dataset| dataset.origin).collect();
        let mut sent = vec![false; datasets.len()];
        let owner = |guid: u64| datasets.iter().position(|dataset| dataset.snapshots.iter().any(|(_, own)| *own == guid));
        loop {
            let before = sent.clone();
            for (index, dataset) in datasets.iter().enumerate() {
                let waits = [Some(dataset.parent_from), dataset.origin].into_iter().flatten().filter_map(owner).any(|other| other != index && !sent[other]);
                if !sent[index] && !waits {
                    self.dataset(session, dataset, &origins, is_dry)?;
                    sent[index] = true;
                }
            }
            if sent == before {
                return Ok(());
            }
        }
    }

    fn dataset(&mut self, session: &mut Session<'_>, dataset: &PackageDataset, origins: &BTreeSet<u64>, is_dry: bool) -> Result<(), Stop> {
        let (name, to) = (&dataset.name, self.to);
        let has = |wanted: &str| dataset.snapshots.iter().any(|(name, _)| name == wanted);
        if !has(to) {
            complain!(session, "WARNING: could not send {name}@{to}: does not exist");
            self.code = 1;
            return Ok(());
        }
        let is_missing = self.flags.replicate && self.from.as_ref().is_some_and(|from| !has(from));
        let mut seen_from = self.from.is_none() || is_missing;
        let mut previous: Option<String> = None;
        self.seen_to = false;
        for (snapshot, guid) in &dataset.snapshots {
            if !seen_from && self.from.as_ref() == Some(snapshot) {
                seen_from = true;
                previous = Some(snapshot.clone());
                continue;
            }
            if self.seen_to || !seen_from {
                continue;
            }
            self.seen_to = snapshot == to;
            if !self.flags.all && !self.seen_to && !(self.flags.replicate && origins.contains(guid)) {
                continue;
            }
            self.snapshot(session, dataset, snapshot, previous.as_deref(), is_dry)?;
            previous = Some(snapshot.clone());
        }
        let from = self.from.clone().unwrap_or_default();
        if !seen_from {
            complain!(session, "WARNING: could not send {name}@{to}:\nincremental source ({name}@{from}) does not exist");
            self.code = 1;
        } else if !self.seen_to {
            complain!(session, "WARNING: could not send {name}@{to}:\nincremental source ({name}@{from}) is not earlier than it");
            self.code = 1;
        }
        Ok(())
    }

    fn snapshot(&mut self, session: &mut Session<'_>, dataset: &PackageDataset, snapshot: &str, previous: Option<&str>, is_dry: bool) -> Result<(), Stop> {
        let full = format!("{}@{snapshot}", dataset.name);
        let action = format!("warning: cannot send '{full}'");
        let mut from = previous.map(|previous| format!("{}@{previous}", dataset.name));
        if is_dry {
            if self.flags.verbosity != 0 {
                match session.stream_size(Request::StreamSize(self.flags.request(&full, from.clone()))) {
                    Ok(size) => {
                        said::estimate(session, self.flags, &full, previous, size);
                        self.size += size;
                    }
                    Err(failure) => {
                        session.failed(format_args!("warning: cannot estimate space for '{full}'"), &failure);
                    }
                }
            }
            return Ok(());
        }
        if from.is_none() && (self.origin.is_some() || self.flags.replicate) {
            let head = open(session, &dataset.name)?;
            from = text(&head, "origin").filter(|origin| origin.contains('@') && number(&head, "guid") != 0);
        }
        let quiet = Flags { verbosity: if self.is_quiet { 0 } else { self.flags.verbosity }, ..self.flags.clone() };
        let sent = stream(session, &quiet, self.flags.request(&full, from.clone()), self.size);
        sent.map_err(|failure| refused(session, &action, &full, from.as_deref(), &failure))
    }
}
