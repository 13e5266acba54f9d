//! Packages: several streams with a list of what they are.

use std::collections::BTreeMap;

use ondisk::nvlist::{NvList, Value as ListValue};
use ondisk::stream::{Begin, HEADER_COMPOUND, HEADER_SUBSTREAM, RecordBody, StreamFeatures, StreamOrder};
use tarnfs::control::{Setting, Value};

use super::Run;
use super::input::First;
use super::names::kept_part;
use crate::session::{Outcome, Stop, worst};

/// What the beginning of a package says.
pub(super) struct Package {
    pub(super) list: NvList,
    pub(super) order: StreamOrder,
    /// The file system that was sent, and what is below it is in the package too.
    pub(super) send_fs: String,
    pub(super) recursive: bool,
    /// The snapshot that all of it leads to.
    pub(super) last: String,
    /// The sender's holds are in it.
    pub(super) has_holds: bool,
}

/// What a package says of the file system that a snapshot is of.
pub(super) struct Described<'p> {
    pub(super) list: &'p NvList,
}

impl Package {
    /// The snapshot that all of it is incremental from.
    pub(super) fn from_snapshot(&self) -> Option<&str> {
        self.list.str("fromsnap")
    }

    fn all(&self) -> impl Iterator<Item = &NvList> {
        self.list.nvlist("fss").into_iter().flat_map(NvList::iter).filter_map(|(_, value)| match value {
            ListValue::List(list) => Some(list),
            _ => None,
        })
    }

    /// It says what the sender has by now, and what is here is to become that.
    pub(super) fn is_followed(&self) -> bool {
        self.recursive && self.from_snapshot().is_some()
    }

    /// All snapshots that the sender has, by their guids.
    pub(super) fn known(&self) -> BTreeMap<u64, Known<'_>> {
        let mut known = BTreeMap::new();
        for (dataset, list) in self.all().enumerate() {
            for (name, value) in list.nvlist("snaps").into_iter().flat_map(NvList::iter) {
                if let ListValue::UInt64(guid) = value {
                    let snapshot = || Known { dataset, described: Described { list }, snapshot: name.to_string_lossy().into_owned() };
                    known.entry(*guid).or_insert_with(snapshot);
                }
            }
        }
        known
    }

    /// What the sender calls its datasets.
    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        self.all().filter_map(|list| list.str("name"))
    }

    /// Which of its datasets is the file system that was sent.
    pub(super) fn top(&self) -> Option<usize> {
        self.all().position(|list| list.str("name") == Some(self.send_fs.as_str()))
    }

    /// The file system that the snapshot with this guid is of.
    pub(super) fn described(&self, snapshot: u64) -> Option<Described<'_>> {
        let has = |list: &&NvList| list.nvlist("snaps").is_some_and(|all| all.iter().any(|(_, guid)| *guid == ListValue::UInt64(snapshot)));
        self.all().find(has).map(|list| Described { list })
    }
}

/// A snapshot that the sender has.
pub(super) struct Known<'p> {
    /// Which dataset of the package it is of.
    pub(super) dataset: usize,
    pub(super) described: Described<'p>,
    /// Its name there.
    pub(super) snapshot: String,
}

impl Described<'_> {
    /// What the sender calls it.
    pub(super) fn name(&self) -> Option<&str> {
        self.list.str("name")
    }

    /// The guid of the snapshot that it is a clone of.
    pub(super) fn origin(&self) -> Option<u64> {
        self.list.u64("origin").filter(|guid| *guid != 0)
    }

    /// Its properties, if the package has any.
    pub(super) fn properties(&self) -> Option<Vec<Setting>> {
        self.list.nvlist("props").map(settings)
    }

    /// What keeps one of its snapshots.
    pub(super) fn holds(&self, snapshot: &str) -> Vec<String> {
        let of_snapshot = self.list.nvlist("snapholds").and_then(|all| all.nvlist(snapshot));
        of_snapshot.into_iter().flat_map(NvList::iter).map(|(tag, _)| tag.to_string_lossy().into_owned()).collect()
    }

    /// Those of one of its snapshots.
    pub(super) fn snapshot_properties(&self, snapshot: &str) -> Vec<Setting> {
        self.list.nvlist("snapprops").and_then(|all| all.nvlist(snapshot)).map_or_else(Vec::new, settings)
    }

    /// The names of properties that are not received, since they or their values are not UTF-8: of one of its snapshots, and its own if that is wanted.
    pub(super) fn odd_properties(&self, snapshot: &str, with_own: bool) -> Vec<String> {
        let of_snapshot = self.list.nvlist("snapprops").and_then(|all| all.nvlist(snapshot));
        self.list.nvlist("props").filter(|_| with_own).into_iter().chain(of_snapshot).flat_map(odd).collect()
    }

    /// It is encrypted with a key of its own, and not with that of the file system above it.
    pub(super) fn has_own_key(&self) -> bool {
        self.list.contains("is_encroot")
    }

    /// The guid of a snapshot of the file system above it.
    pub(super) fn parent_snapshot(&self) -> Option<u64> {
        self.list.u64("parentfromsnap").filter(|guid| *guid != 0)
    }
}

/// Streams of some versions have `value` lists.
fn plain(value: &ListValue) -> Option<&ListValue> {
    match value {
        ListValue::List(list) => list.get("value"),
        other => Some(other),
    }
}

/// A list of values by name. What is not UTF-8 is not among them.
fn settings(list: &NvList) -> Vec<Setting> {
    let value = |value: &ListValue| match plain(value)? {
        ListValue::UInt64(number) => Some(Value::Number(*number)),
        ListValue::String(text) => Some(Value::Text(text.to_str()?.to_owned())),
        _ => None,
    };
    list.iter().filter_map(|(name, found)| Some(Setting { name: name.to_str()?.to_owned(), value: value(found)? })).collect()
}

/// The names of values that are not UTF-8, or whose names are not.
fn odd(list: &NvList) -> Vec<String> {
    let is_odd = |value: &ListValue| matches!(plain(value), Some(ListValue::String(text)) if text.to_str().is_none());
    let odd = list.iter().filter(|(name, found)| name.to_str().is_none() || is_odd(found));
    odd.map(|(name, _)| name.to_string_lossy().into_owned()).collect()
}

impl Run<'_, '_> {
    /// Receives all that comes.
    pub(super) fn receive_all(&mut self) -> Outcome {
        let Some(first) = self.next(None)? else { return Err(self.refuse("cannot receive", "failed to read from stream")) };
        let begin = self.begin(&first)?;
        if begin.header_type() == HEADER_SUBSTREAM {
            return self.receive_one(&first, &begin, None);
        }
        let package = self.package(&first, &begin)?;
        let sent = String::from_utf8_lossy(begin.name()).into_owned();
        let kept = kept_part(&sent, &package.send_fs, &self.target, (self.flags.prefix, self.flags.tail), package.recursive).unwrap_or_default();
        let root = format!("{}{kept}", self.target).split('@').next().unwrap_or_default().to_owned();
        let mut unplaced = self.replicate(&package, &root, true)?;
        let received = self.receive_streams(&package);
        let is_whole = received == Ok(0);
        if is_whole {
            unplaced = self.replicate(&package, &root, false)?;
        }
        // Where a stream could not be received, it may be why.
        for (action, failure) in &unplaced {
            self.session.failed(action, failure);
        }
        let mut code = u8::from(is_whole && !unplaced.is_empty());
        if is_whole {
            // What came is mounted all the same, and before what has moved below it.
            code = worst(code, self.mount_received()?);
            self.has_new = false;
        }
        code = worst(code, self.mount_moved(&root)?);
        received.map(|received| worst(received, code))
    }

    fn receive_streams(&mut self, package: &Package) -> Outcome {
        let mut code = 0;
        loop {
            let Some(first) = self.next(Some(package.order))? else {
                return Err(self.refuse("cannot receive", "failed to read from stream"));
            };
            if matches!(first.record.body, RecordBody::End(_)) {
                return Ok(code);
            }
            let begin = self.begin(&first)?;
            if begin.header_type() != HEADER_SUBSTREAM {
                return Err(self.refuse("cannot receive", "invalid backup stream"));
            }
            let one = self.receive_one(&first, &begin, Some(package))?;
            code = worst(code, one);
            if one != 0 {
                return Ok(code);
            }
        }
    }

    fn next(&mut self, order: Option<StreamOrder>) -> Result<Option<First>, Stop> {
        self.input.first(order).map_err(|why| self.refuse("cannot receive", why))
    }

    /// The record that a stream begins with.
    fn begin(&mut self, first: &First) -> Result<Begin, Stop> {
        let RecordBody::Begin(begin) = &first.record.body else {
            return Err(self.refuse("cannot receive", "invalid stream (bad magic number)"));
        };
        let features = begin.features();
        let unknown = features.difference(StreamFeatures::all());
        let deduplicated = features.contains(StreamFeatures::DEDUP);
        if deduplicated {
            let why = "stream has deprecated feature: dedup, try 'zstream redup [send in a file] | zfs recv [...]'";
            return Err(self.refuse("cannot receive", why));
        }
        if !unknown.is_empty() || !matches!(begin.header_type(), HEADER_SUBSTREAM | HEADER_COMPOUND) {
            let why = format!("stream has unsupported feature, feature flags = {:x} (unknown flags = {:x})", features.bits(), unknown.bits());
            return Err(self.refuse("cannot receive", &why));
        }
        if !begin.name().contains(&b'@') {
            return Err(self.refuse("cannot receive", "invalid stream (bad snapshot name)"));
        }
        Ok((**begin).clone())
    }

    /// The list of a package, and its END record.
    fn package(&mut self, first: &First, begin: &Begin) -> Result<Package, Stop> {
        let bytes = u64::from(first.record.begin_payload_bytes);
        let payload = self.input.payload(bytes).filter(|_| bytes <= 256 << 20);
        let Some(payload) = payload else { return Err(self.refuse("cannot receive", "failed to read from stream")) };
        let list = if payload.is_empty() { Some(NvList::new()) } else { NvList::decode(&payload).ok() };
        let Some(list) = list else { return Err(self.refuse("cannot receive", "invalid backup stream")) };
        let recursive = !list.contains("not_recursive");
        if recursive && self.target.contains('@') {
            return Err(self.refuse("cannot receive", "cannot specify snapshot name for multi-snapshot stream"));
        }
        match self.next(Some(first.order))? {
            Some(end) if matches!(end.record.body, RecordBody::End(_)) => {
                let mut sum = transform::checksum::Fletcher4::new(first.order == StreamOrder::Big);
                sum.update(&first.bytes);
                sum.update(&payload);
                if matches!(&end.record.body, RecordBody::End(end) if end.checksum != sum.words()) {
                    return Err(self.refuse("cannot receive", "incorrect header checksum"));
                }
            }
            Some(_) => return Err(self.refuse("cannot receive", "invalid backup stream")),
            None => return Err(self.refuse("cannot receive", "failed to read from stream")),
        }
        let name = String::from_utf8_lossy(begin.name()).into_owned();
        let (send_fs, last) = name.split_once('@').map_or((name.clone(), String::new()), |(fs, last)| (fs.to_owned(), last.to_owned()));
        let has_holds = begin.features().contains(StreamFeatures::HOLDS);
        Ok(Package { list, order: first.order, send_fs, recursive, last, has_holds })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ondisk::nvlist::NvString;
    use crate::session::{Control, History, Session};
    use crate::zfs::change::receive::{Flags, Input};
    use tarnfs::control::{DatasetEntry, DatasetKind, Datasets, Failure, FailureKind, PropertyValue, Reply, Request, Source};

    /// A file system that the sender has, and one below it that the sender has not any more.
    struct Replica {
        /// So many lists of snapshots fail.
        failures: u32,
        has_guids: bool,
        requests: Vec<Request>,
    }

    impl Replica {
        fn new() -> Replica {
            Replica { failures: 0, has_guids: true, requests: Vec::new() }
        }

        fn entries(&self) -> Vec<DatasetEntry> {
            let all = [("tank/b", DatasetKind::Filesystem, 1_u64), ("tank/b@1", DatasetKind::Snapshot, 11), ("tank/b/c", DatasetKind::Filesystem, 2), ("tank/b/c@1", DatasetKind::Snapshot, 12)];
            let entry = |(name, kind, guid): (&str, DatasetKind, u64)| {
                let properties = if self.has_guids { vec![PropertyValue::new("guid", guid, Source::None)] } else { Vec::new() };
                DatasetEntry { name: name.to_owned(), kind, creation_txg: guid, properties }
            };
            all.into_iter().map(entry).collect()
        }

        /// Whether anything was destroyed.
        fn was_destroyed(&self) -> bool {
            self.requests.iter().any(|request| matches!(request, Request::DatasetDestroy(_) | Request::SnapshotsDestroy(_)))
        }

        /// `zfs receive -F` of an incremental package that knows these snapshots.
        fn receive(&mut self, guids: &[u64]) -> Result<(), Stop> {
            let mut snapshots = NvList::new();
            guids.iter().for_each(|guid| snapshots.set(format!("s{guid}").as_str(), *guid));
            let mut sent = NvList::new();
            sent.set("name", "from/b");
            sent.set("snaps", snapshots);
            let mut all = NvList::new();
            all.set("1", sent);
            let mut list = NvList::new();
            list.set("fromsnap", "1");
            list.set("fss", all);
            let package = Package { list, order: StreamOrder::Little, send_fs: "from/b".to_owned(), recursive: true, last: "2".to_owned(), has_holds: false };
            let (mut out, mut err) = (Vec::<u8>::new(), Vec::<u8>::new());
            let zone = jiff::tz::TimeZone::UTC;
            let mut session = Session { control: self, out: &mut out, err: &mut err, now: 0, zone, history: History::default(), hints: Vec::new() };
            let flags = Flags { force: true, ..Flags::default() };
            let (input, target) = (Input::standard().unwrap(), "tank/b".to_owned());
            let mut run = Run { session: &mut session, flags, input, target, top: None, has_new: false, unmounted: Default::default() };
            run.replicate(&package, "tank/b", true).map(|unplaced| assert!(unplaced.is_empty(), "{unplaced:?}"))
        }
    }

    impl Control for Replica {
        fn call(&mut self, request: Request) -> Reply {
            self.requests.push(request.clone());
            match request {
                Request::DatasetList(list) if list.kinds.snapshot && !list.kinds.filesystem && self.failures > 0 => {
                    self.failures -= 1;
                    Reply::Failed(Failure::with(FailureKind::Other, "I/O error"))
                }
                Request::DatasetList(list) => {
                    let entries = self.entries().into_iter().filter(|entry| list.kinds.has(entry.kind)).collect();
                    Reply::Datasets(Datasets { root_kind: Some(DatasetKind::Filesystem), entries })
                }
                Request::SnapshotsDestroy(_) => Reply::Refused(Vec::new()),
                _ => Reply::Done,
            }
        }
    }

    /// A byte that is no UTF-8 was received as another one.
    #[test]
    fn what_is_not_text_is_not_received() {
        let text = |bytes: &[u8]| ListValue::String(NvString::from(bytes));
        let mut within = NvList::new();
        within.set("value", text(b"caf\xe9"));
        let (mut own, mut of_snapshot) = (NvList::new(), NvList::new());
        own.set("a:text", text("caf\u{e9}".as_bytes()));
        own.set("a:latin", text(b"caf\xe9"));
        own.set("a:within", within);
        own.set("quota", 5u64);
        of_snapshot.set(&b"a:\xe9"[..], text(b"x"));
        let (mut of_snapshots, mut list) = (NvList::new(), NvList::new());
        of_snapshots.set("s", of_snapshot);
        list.set("props", own);
        list.set("snapprops", of_snapshots);
        let described = Described { list: &list };
        assert_eq!(described.properties(), Some(vec![Setting::new("a:text", "caf\u{e9}"), Setting::new("quota", 5)]));
        assert_eq!(described.snapshot_properties("s"), []);
        assert_eq!(described.odd_properties("s", true), ["a:latin", "a:within", "a:\u{fffd}"]);
        assert_eq!(described.odd_properties("s", false), ["a:\u{fffd}"]);
    }

    #[test]
    fn what_the_sender_has_not_any_more_goes() {
        let mut replica = Replica::new();
        assert_eq!(replica.receive(&[11]), Ok(()));
        let is_gone = |request: &Request| matches!(request, Request::DatasetDestroy(destroy) if destroy.names == ["tank/b/c"]);
        assert!(replica.requests.iter().any(is_gone), "{:?}", replica.requests);
        let mut replica = Replica::new();
        assert_eq!(replica.receive(&[11, 12]), Ok(()));
        assert!(!replica.was_destroyed(), "{:?}", replica.requests);
    }

    /// A list that failed was taken for an empty one: no file system had a snapshot that the sender knows, and all of them were destroyed.
    #[test]
    fn nothing_goes_if_not_all_snapshots_are_known() {
        for guids in [&[11][..], &[11, 12]] {
            let mut replica = Replica { failures: 1, ..Replica::new() };
            assert_eq!(replica.receive(guids), Err(Stop::Code(1)));
            assert!(!replica.was_destroyed(), "{:?}", replica.requests);
            let mut replica = Replica { has_guids: false, ..Replica::new() };
            assert_eq!(replica.receive(guids), Err(Stop::Code(1)));
            assert!(!replica.was_destroyed(), "{:?}", replica.requests);
        }
        let mut replica = Replica::new();
        assert_eq!(replica.receive(&[]), Err(Stop::Code(1)));
        assert!(!replica.was_destroyed(), "{:?}", replica.requests);
    }
}
