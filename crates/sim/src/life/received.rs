//! The model of receiving: what a stream becomes, or why it is refused.

use std::collections::BTreeSet;

use engine::error::ErrorKind;

use super::model::{Dataset, Outcome, Snapshot, Tree};
use super::verb::{Cut, Receive};

/// What a stream says of itself.
struct Sent {
    snapshot: Snapshot,
    /// The identity of what it is incremental from.
    from: Option<u64>,
    /// That is of another file system.
    is_of_clone: bool,
    /// Nothing was changed in between: what it is received into refers to the same blocks as before.
    is_unchanged: bool,
}

impl Tree {
    /// Whether what was a snapshot of `dataset` at `earlier` is older than the snapshot of `of` at `moment`, and in its past.
    fn is_before(&self, (of, moment): (&str, u64), (dataset, earlier): (&str, u64)) -> bool {
        let (mut at, mut created) = (of, moment);
        while earlier < created {
            if at == dataset {
                return true;
            }
            let Some((owner, place)) = self.datasets.get(at).and_then(|dataset| dataset.origin).and_then(|origin| self.owner(origin)) else { return false };
            created = self.datasets[owner].snapshots[place].moment;
            if owner == dataset && created == earlier {
                return true;
            }
            at = owner;
        }
        false
    }

    fn sent(&self, receive: &Receive) -> Result<Sent, ErrorKind> {
        let snapshot = self.snapshot(&receive.snapshot)?.clone();
        let Some(from) = &receive.from else { return Ok(Sent { snapshot, from: None, is_of_clone: false, is_unchanged: false }) };
        let (of, moment, identity, version) = match from.split_once('#') {
            Some((of, short)) => {
                let bookmark = self.dataset(of)?.bookmarks.get(short).ok_or(ErrorKind::NotFound)?;
                (of, bookmark.moment, bookmark.identity, bookmark.version)
            }
            None => {
                let found = self.snapshot(from)?;
                (from.split('@').next().unwrap_or_default(), found.moment, found.identity, found.version)
            }
        };
        let source = receive.snapshot.split('@').next().unwrap_or_default();
        if !self.is_before((source, snapshot.moment), (of, moment)) {
            return Err(ErrorKind::CrossDevice);
        }
        let is_unchanged = version == snapshot.version;
        Ok(Sent { snapshot, from: Some(identity), is_of_clone: of != source, is_unchanged })
    }

    pub(super) fn receive(&mut self, receive: &Receive) -> Outcome {
        let sent = self.sent(receive)?;
        let (target, short) = receive.to.split_once('@').ok_or(ErrorKind::Invalid)?;
        if sent.is_of_clone && receive.origin.is_none() {
            return Err(ErrorKind::Invalid);
        }
        let gone = match self.datasets.get(target) {
            Some(dataset) => self.check_existing(receive, &sent, dataset, short)?,
            None => self.check_absent(receive, &sent, target).map(|()| None)?,
        };
        if matches!(receive.cut, Cut::Lost(_)) {
            return Err(ErrorKind::Corrupt);
        }
        let keeps = |snapshot: &Snapshot| !snapshot.holds.is_empty() || !self.clones(snapshot.number).is_empty();
        if let (Some(from), Some(dataset)) = (gone, self.datasets.get(target)) {
            if dataset.snapshots[from..].iter().any(keeps) {
                return Err(ErrorKind::Busy);
            }
            if sent.from.is_none() && dataset.origin.is_some() {
                return Err(ErrorKind::Invalid);
            }
        }
        let origin = match &receive.origin {
            Some(origin) => Some(self.snapshot(origin)?.number),
            None => None,
        };
        let (number, moment, new) = (self.number(), self.number(), self.number());
        let version = self.version_before(receive, &sent, target).filter(|_| sent.is_unchanged).unwrap_or(new);
        let dataset = self.datasets.entry(target.to_owned()).or_insert_with(|| Dataset { origin, ..Dataset::default() });
        if let Some(from) = gone {
            dataset.snapshots.truncate(from);
        }
        (dataset.files, dataset.version) = (sent.snapshot.files.clone(), version);
        let snapshot = Snapshot { number, moment, version, name: short.to_owned(), holds: BTreeSet::new(), is_doomed: false, ..sent.snapshot };
        dataset.snapshots.push(snapshot);
        Ok(())
    }

    /// Of what a stream that is incremental is put on top of.
    fn version_before(&self, receive: &Receive, sent: &Sent, target: &str) -> Option<u64> {
        if let Some(origin) = &receive.origin {
            return self.snapshot(origin).ok().map(|origin| origin.version);
        }
        let mut snapshots = self.datasets.get(target)?.snapshots.iter().rev();
        snapshots.find(|snapshot| Some(snapshot.identity) == sent.from).map(|snapshot| snapshot.version)
    }

    /// Where the snapshots begin that go, if any do.
    fn check_existing(&self, receive: &Receive, sent: &Sent, dataset: &Dataset, short: &str) -> Result<Option<usize>, ErrorKind> {
        if receive.origin.is_some() {
            return Err(ErrorKind::Invalid);
        }
        if dataset.snapshot(short).is_some() {
            return Err(ErrorKind::Exists);
        }
        let Some(from) = sent.from else { return if receive.force { Ok(Some(0)) } else { Err(ErrorKind::Exists) } };
        let at = dataset.snapshots.iter().rposition(|snapshot| snapshot.identity == from).ok_or(ErrorKind::Mismatch)?;
        if !receive.force && dataset.version != dataset.snapshots[at].version {
            return Err(ErrorKind::Modified);
        }
        Ok(receive.force.then_some(at + 1))
    }

    fn check_absent(&self, receive: &Receive, sent: &Sent, target: &str) -> Outcome {
        if sent.from.is_some() && receive.origin.is_none() {
            return Err(ErrorKind::NotFound);
        }
        self.check_new(target)?;
        let Some(origin) = &receive.origin else { return Ok(()) };
        let origin = self.snapshot(origin)?;
        if sent.from.is_some_and(|from| from != origin.identity) { Err(ErrorKind::Mismatch) } else { Ok(()) }
    }
}
