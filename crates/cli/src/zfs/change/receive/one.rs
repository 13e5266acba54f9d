//! One stream of one snapshot.

use std::time::Instant;

use engine::dsl::prop_table::DatasetTypes;
use ondisk::objset::ObjsetType;
use ondisk::stream::{BEGIN_FLAG_CLONE, Begin, StreamFeatures};
use tarnfs::control::{DatasetCreate, DatasetEntry, DatasetKind, Failure, FailureKind, Received, Request, Setting, SnapshotsTag, StreamReceive};

use super::Run;
use super::input::First;
use super::names::kept_part;
use super::overrides::Overrides;
use super::package::{Described, Package};
use super::replies::words;
use crate::session::{Outcome, Stop, complain, say};
use crate::text::units;
use crate::zfs::change::mount;

/// What is asked of a dataset that is there.
const PROPERTIES: &[&str] = &["mounted", "inconsistent", "origin", "receive_resume_token", "redacted"];

/// A stream and what it is to become.
pub(super) struct One {
    /// `cannot receive new filesystem stream`, and the like.
    pub(super) action: &'static str,
    /// The file system or volume.
    pub(super) dataset: String,
    pub(super) snapshot: String,
    pub(super) types: DatasetTypes,
    /// It stands for itself, and nothing of what is there is left.
    pub(super) makes_new: bool,
    /// It makes a dataset.
    wants_new: bool,
    is_resuming: bool,
    pub(super) is_full: bool,
    /// Other datasets may come with it.
    pub(super) is_of_package: bool,
    /// The dataset as it is now.
    pub(super) before: Option<DatasetEntry>,
    origin: Option<String>,
}

fn number(entry: &DatasetEntry, name: &str) -> u64 {
    entry.property(name).and_then(|value| value.value.number()).unwrap_or(0)
}

impl One {
    /// `pool/fs@snapshot`
    pub(super) fn name(&self) -> String {
        format!("{}@{}", self.dataset, self.snapshot)
    }

    /// Nobody may use what is there while it is received.
    fn replaces_mounted(&self) -> bool {
        self.makes_new && self.before.as_ref().is_some_and(|entry| entry.kind == DatasetKind::Filesystem)
    }

    /// Whether the stream makes the dataset, or goes on making it.
    fn is_new(&self) -> bool {
        self.before.as_ref().is_none_or(|entry| self.is_resuming && number(entry, "inconsistent") == 1)
    }
}

impl Run<'_, '_> {
    pub(super) fn receive_one(&mut self, first: &First, begin: &Begin, package: Option<&Package>) -> Outcome {
        let sent = String::from_utf8_lossy(begin.name()).into_owned();
        let described = package.and_then(|package| package.described(begin.to_guid));
        let one = self.decide(begin, &sent, package, described.as_ref())?;
        if self.flags.verbose {
            let (how, kind) = (if self.flags.dry_run { "would receive" } else { "receiving" }, if one.is_full { "full" } else { "incremental" });
            let healing = if self.flags.heal { "corrective " } else { "" };
            say!(self.session, "{how} {healing}{kind} stream of {sent} into {}", one.name());
            self.session.hand_over();
        }
        let is_first = *self.top.get_or_insert_with(|| one.dataset.clone()) == one.dataset;
        let mut overrides = self.overrides(&one, described.as_ref().and_then(Described::properties), is_first)?;
        if begin.features().contains(StreamFeatures::RAW) {
            overrides.place_key(described.as_ref(), one.is_of_package && one.origin.is_none(), is_first);
        }
        if self.flags.dry_run {
            return if self.input.skip(first) { Ok(0) } else { Err(self.refuse("cannot receive", "failed to read from stream")) };
        }
        let mounted = if one.replaces_mounted() { self.unmount_replaced(&one)? } else { Vec::new() };
        let started = Instant::now();
        let sent_snapshot = sent.split_once('@').map_or("", |(_, snapshot)| snapshot);
        let answer = self.hand_over(first, &one, described.as_ref().map(|described| described.snapshot_properties(sent_snapshot)), overrides);
        let is_last = package.is_none_or(|package| package.last == sent_snapshot);
        let received = answer.as_ref().is_ok();
        if received {
            for name in described.iter().flat_map(|described| described.odd_properties(sent_snapshot, is_last)) {
                complain!(self.session, "cannot receive {name} property on {}: it is not valid UTF-8", one.dataset);
            }
        }
        let outcome = self.after(first, begin, &one, answer, (started, is_last));
        if received && package.is_some_and(|package| package.has_holds) && !self.flags.skip_holds {
            self.hold(&one, &described.as_ref().map_or_else(Vec::new, |described| described.holds(sent_snapshot)));
        }
        let mounted = self.mount_again(&mounted)?;
        let is_redacted = begin.features().contains(StreamFeatures::REDACTED);
        if received && is_redacted {
            self.unmount_incomplete(&one);
        }
        self.has_new |= !self.flags.heal && (one.is_new() || package.is_some()) && one.types == DatasetTypes::FILESYSTEM && !is_redacted;
        outcome.map(|code| code.max(mounted))
    }

    /// The sender's holds keep it here, too. One that cannot be is no failure.
    fn hold(&mut self, one: &One, tags: &[String]) {
        for tag in tags {
            let _ = self.session.refusals(Request::SnapshotsHold(SnapshotsTag { names: vec![one.name()], tag: tag.clone() }));
        }
    }

    /// What the stream becomes, or why it cannot.
    fn decide(&mut self, begin: &Begin, sent: &str, package: Option<&Package>, described: Option<&Described<'_>>) -> Result<One, Stop> {
        let send_fs = package.map_or_else(|| sent.split('@').next().unwrap_or_default().to_owned(), |package| package.send_fs.clone());
        let recursive = package.is_some_and(|package| package.recursive);
        let how = (self.flags.prefix, self.flags.tail);
        let kept = kept_part(sent, &send_fs, &self.target, how, recursive).map_err(|why| self.refuse("cannot receive", why))?;
        let name = format!("{}{kept}", self.target);
        let Some((dataset, snapshot)) = name.split_once('@') else { return Err(self.refuse("cannot receive", "invalid name")) };
        let is_resuming = begin.features().contains(StreamFeatures::RESUMING);
        let is_clone = begin.flags & BEGIN_FLAG_CLONE != 0;
        let types = match ObjsetType::from_number(begin.objset_type.into()) {
            ObjsetType::FileSystem => DatasetTypes::FILESYSTEM,
            ObjsetType::Volume => DatasetTypes::VOLUME,
            _ => return Err(self.refuse("cannot receive", &format!("invalid record type: 0x{}", begin.objset_type))),
        };
        let makes_new = begin.from_guid == 0 || is_clone || self.flags.origin.is_some();
        let wants_new = makes_new && !is_resuming;
        let action = match (wants_new, is_resuming) {
            (true, _) => "cannot receive new filesystem stream",
            (false, true) => "cannot receive resume stream",
            (false, false) => "cannot receive incremental stream",
        };
        let mut one = One {
            action,
            dataset: dataset.to_owned(),
            snapshot: snapshot.to_owned(),
            types,
            makes_new,
            wants_new,
            is_resuming,
            is_full: begin.from_guid == 0,
            is_of_package: recursive,
            before: None,
            origin: None,
        };
        one.origin = self.origin(begin, &name, is_clone)?;
        let is_top = kept.is_empty() || kept.starts_with('@');
        self.find_place(begin, &mut one, described, is_top && !self.flags.prefix);
        if self.flags.heal {
            self.check_heal(&one, begin.to_guid)?;
            return Ok(one);
        }
        one.before = self.entry_or_stop(&one.dataset, PROPERTIES)?;
        match one.before.clone() {
            Some(entry) => self.check_existing(&one, &entry, makes_new)?,
            None => self.check_new(&one)?,
        }
        Ok(one)
    }

    fn origin(&mut self, begin: &Begin, name: &str, is_clone: bool) -> Result<Option<String>, Stop> {
        if let Some(origin) = self.flags.origin.clone() {
            if self.flags.verbose {
                say!(self.session, "using provided clone origin {origin}");
            }
            return Ok(Some(origin));
        }
        if !is_clone {
            return Ok(None);
        }
        let Some(origin) = self.snapshot_with_guid(name, begin.from_guid) else {
            return Err(self.refuse("cannot receive", &format!("local origin for clone {name} does not exist")));
        };
        if self.flags.verbose {
            say!(self.session, "found clone origin {origin}");
        }
        Ok(Some(origin))
    }

    /// A file system may have another name here by now: then what it comes from leads to it. `is_exact`: it was named.
    fn find_place(&mut self, begin: &Begin, one: &mut One, described: Option<&Described<'_>>, is_exact: bool) {
        if one.wants_new {
            let Some((parent, last)) = one.dataset.rsplit_once('/').map(|(parent, last)| (parent.to_owned(), last.to_owned())) else { return };
            if let Some(guid) = described.and_then(Described::parent_snapshot)
                && self.entry(&parent, &[]).is_none()
                && let Some(found) = self.snapshot_with_guid(&parent, guid)
            {
                one.dataset = format!("{}/{last}", found.split('@').next().unwrap_or_default());
            }
        } else if !is_exact
            && self.entry(&one.dataset, &[]).is_none()
            && let Some(found) = self.snapshot_with_guid(&one.dataset.clone(), begin.from_guid)
        {
            one.dataset = found.split('@').next().unwrap_or_default().to_owned();
        }
    }

    /// `-c`
    fn check_heal(&mut self, one: &One, guid: u64) -> Result<(), Stop> {
        let flags = &self.flags;
        let is_more = flags.prefix || flags.force || flags.resumable || flags.no_mount || flags.skip_holds;
        let name = one.name();
        let found = self.snapshots(&one.dataset, Some(1)).unwrap_or_default().into_iter().find(|(found, _)| *found == name);
        let why = match found {
            _ if is_more => "corrective recv can not be used when combined with this flag",
            None => "corrective recv must specify an existing snapshot to heal",
            Some((_, theirs)) if theirs != guid => "local snapshot doesn't match the snapshot in the provided stream",
            Some(_) => return Ok(()),
        };
        Err(self.refuse(one.action, why))
    }

    fn check_existing(&mut self, one: &One, entry: &DatasetEntry, makes_new: bool) -> Result<(), Stop> {
        let name = &one.dataset;
        if one.wants_new {
            if !self.flags.force {
                return Err(self.refuse(one.action, &format!("destination '{name}' exists\nmust specify -F to overwrite it")));
            }
            let snapshots = self.snapshots(name, Some(1)).map_err(|failure| self.session.failed(one.action, &failure))?;
            if let Some((snapshot, _)) = snapshots.into_iter().find(|(found, _)| found.starts_with(&format!("{name}@"))) {
                let why = format!("destination has snapshots (eg. {snapshot})\nmust destroy them to overwrite it");
                return Err(self.refuse(one.action, &why));
            }
            if entry.property("origin").and_then(|value| value.value.text()).is_some_and(|origin| !origin.is_empty()) {
                return Err(self.refuse(one.action, &format!("destination '{name}' is a clone\nmust destroy it to overwrite it")));
            }
        }
        if makes_new && one.is_resuming && number(entry, "inconsistent") == 0 && !self.flags.force {
            return Err(self.refuse(one.action, &format!("Resuming recv on existing destination '{name}'\nmust specify -F to overwrite it")));
        }
        Ok(())
    }

    fn check_new(&mut self, one: &One) -> Result<(), Stop> {
        let name = &one.dataset;
        let Some((parent, _)) = name.rsplit_once('/').filter(|_| one.wants_new) else {
            return Err(self.refuse(one.action, &format!("destination '{name}' does not exist")));
        };
        if self.flags.prefix && !self.flags.tail && !self.flags.dry_run {
            self.create_parents(parent)?;
        }
        match self.entry(parent, &[]) {
            None if self.flags.dry_run && self.flags.prefix => Ok(()),
            None => {
                complain!(self.session, "cannot open '{parent}': dataset does not exist");
                Err(self.refuse(one.action, "unable to restore to destination"))
            }
            Some(entry) if entry.kind != DatasetKind::Filesystem => Err(self.refuse(one.action, &format!("parent '{parent}' is not a filesystem"))),
            Some(_) => Ok(()),
        }
    }

    /// `-d`: what is above it is made, and mounted.
    fn create_parents(&mut self, parent: &str) -> Result<(), Stop> {
        if self.entry(parent, &[]).is_some() {
            return Ok(());
        }
        let create = DatasetCreate { name: parent.to_owned(), volume_size: None, properties: Vec::new(), parents: true };
        self.session.perform(Request::DatasetCreate(create)).map_err(|failure| self.session.failed(format_args!("cannot create '{parent}'"), &failure))?;
        mount::mount_received(self.session, parent).map(drop)
    }

    fn hand_over(&mut self, first: &First, one: &One, of_snapshot: Option<Vec<Setting>>, overrides: Overrides) -> Result<Received, Failure> {
        let Overrides { received, settings, inherited, inherits_key, key_location } = overrides;
        let request = StreamReceive {
            dataset: one.dataset.clone(),
            snapshot: one.snapshot.clone(),
            origin: one.origin.clone(),
            begin: first.bytes.clone(),
            force: self.flags.force,
            resumable: self.flags.resumable,
            heal: self.flags.heal,
            received,
            of_snapshot: of_snapshot.unwrap_or_default(),
            settings,
            inherited,
            inherits_key,
            key_location,
        };
        self.session.receive(request, self.input.descriptor())
    }

    /// The stream is received, or it is not.
    fn after(&mut self, first: &First, begin: &Begin, one: &One, answer: Result<Received, Failure>, (started, is_last): (Instant, bool)) -> Outcome {
        let received = match answer {
            Ok(received) => received,
            Err(failure) => {
                let may_be_there = matches!(failure.kind, FailureKind::DatasetExists | FailureKind::NoSuchDataset);
                let same = |(name, guid): &(String, u64)| *guid == begin.to_guid && name.starts_with(&format!("{}@", one.dataset));
                if may_be_there && self.snapshots(&one.dataset, Some(1)).is_ok_and(|found| found.iter().any(same)) {
                    if self.flags.verbose {
                        say!(self.session, "snap {} already exists; ignoring", one.name());
                    }
                    return if self.input.skip_rest(first) { Ok(0) } else { Err(self.refuse("cannot receive", "failed to read from stream")) };
                }
                let token = self.entry(&one.dataset, PROPERTIES).and_then(|entry| {
                    entry.property("receive_resume_token").and_then(|value| value.value.text()).filter(|text| *text != "-" && !text.is_empty()).map(str::to_owned)
                });
                let line = words(one, &failure, token.as_deref(), self.flags.resumable);
                complain!(self.session, "{line}");
                return Ok(1);
            }
        };
        // A limit may be too small for what is between, and right in the end.
        for refusal in received.refused.iter().filter(|refusal| is_last || refusal.name != "refquota") {
            self.session.failed(format_args!("cannot receive {} property on {}", refusal.name, one.dataset), &refusal.failure);
        }
        if self.flags.verbose {
            let seconds = started.elapsed().as_secs_f64();
            let rate = (received.bytes as f64 / seconds.max(0.001)) as u64;
            say!(self.session, "received {} stream in {seconds:.2} seconds ({}/sec)", units::nice_bytes(received.bytes), units::nice_bytes(rate));
        }
        Ok(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::session::{Control, History, Session};
    use crate::zfs::change::receive::{Flags, Input};
    use tarnfs::control::{Datasets, Reply};

    /// All file systems that are asked for are there, but the first list fails.
    #[derive(Default)]
    struct Faulty {
        has_failed: bool,
    }

    impl Control for Faulty {
        fn call(&mut self, request: Request) -> Reply {
            let Request::DatasetList(list) = request else { return Reply::Done };
            if !std::mem::replace(&mut self.has_failed, true) {
                return Reply::Failed(Failure::with(FailureKind::Other, "I/O error"));
            }
            let entry = |name: String| DatasetEntry { name, kind: DatasetKind::Filesystem, creation_txg: 1, properties: Vec::new() };
            Reply::Datasets(Datasets { root_kind: Some(DatasetKind::Filesystem), entries: list.root.into_iter().map(entry).collect() })
        }
    }

    /// A target that could not be looked at was taken for one that is not there; then `-F` destroyed all its snapshots.
    #[test]
    fn a_target_that_cannot_be_looked_at_is_not_overwritten() {
        let mut faulty = Faulty::default();
        let (mut out, mut err) = (Vec::<u8>::new(), Vec::<u8>::new());
        let zone = jiff::tz::TimeZone::UTC;
        let mut session = Session { control: &mut faulty, out: &mut out, err: &mut err, now: 0, zone, history: History::default(), hints: Vec::new() };
        let flags = Flags { force: true, ..Flags::default() };
        let (input, target) = (Input::standard().unwrap(), "tank/b".to_owned());
        let mut run = Run { session: &mut session, flags, input, target, top: None, has_new: false, unmounted: Default::default() };
        let begin = Begin { objset_type: 2, to_guid: 1, ..Begin::zeroed() };
        assert_eq!(run.decide(&begin, "from/b@1", None, None).err(), Some(Stop::Code(1)));
    }
}
