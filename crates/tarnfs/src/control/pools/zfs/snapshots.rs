//! `zfs snapshot`, `zfs destroy` of snapshots, `zfs hold` and `release`, `zfs bookmark`

use engine::dsl::prop_table::DatasetTypes;
use engine::dsl::{BEING_HELD, NewBookmark, NewSnapshots, Refusals};
use engine::error::ErrorKind;

use crate::Error;
use crate::control::pools::{Failure, FailureKind, Pools, checks};
use crate::control::{BookmarksCreate, Job, Refusal, RefusalsJob, SnapshotRedact, SnapshotsCreate, SnapshotsDestroy, SnapshotsSpace, SnapshotsTag};

impl Pools {
    /// The pool that all of them are in.
    fn pool_of_all<'a>(&self, names: impl IntoIterator<Item = &'a String>) -> Result<std::sync::Arc<crate::Pool>, Failure> {
        let mut names = names.into_iter();
        let Some(first) = names.next() else { return Err(Failure::with(FailureKind::InvalidName, "nothing is named")) };
        self.check_running(first)?;
        let pool = self.pool_of(first)?.pool.clone();
        let name = pool.name();
        if names.any(|other| other.split(['/', '@', '#']).next() != Some(&name)) {
            return Err(Failure::with(FailureKind::InvalidName, "operation crosses datasets or pools"));
        }
        Ok(pool)
    }

    pub(in crate::control::pools) fn create_snapshots(&mut self, create: SnapshotsCreate) -> Result<RefusalsJob, Failure> {
        let pool = self.pool_of_all(&create.names)?;
        let properties = checks::changes(&create.properties, DatasetTypes::SNAPSHOT, true, &|_| true)?;
        let heads: Vec<String> = create.names.iter().filter_map(|name| Some(name.split_once('@')?.0.to_owned())).collect();
        let (fetch, told) = (self.mounter.fetch(&heads), self.mounter.snapshots_changed(&heads));
        let new = NewSnapshots { names: create.names, properties };
        Ok(Box::new(move || {
            fetch();
            let refusals = pool.engine().dsl.snapshot_verbs().create_snapshots(new);
            told();
            refusals.map(|refusals| refused(refusals, Failure::about_dataset)).map_err(|error| match error.kind() {
                ErrorKind::CrossDevice => Failure::with(FailureKind::DatasetExists, "multiple snapshots of same fs not allowed"),
                ErrorKind::Invalid => Failure::with(FailureKind::InvalidName, error.message()),
                ErrorKind::NotSupported => Failure::with(FailureKind::PropertyType, error.message()),
                _ => Failure::about_dataset(&error),
            })
        }))
    }

    pub(in crate::control::pools) fn destroy_snapshots(&mut self, destroy: SnapshotsDestroy) -> Result<RefusalsJob, Failure> {
        let pool = self.pool_of_all(&destroy.names)?;
        if let Some(head) = destroy.names.iter().find(|name| !name.contains('@')) {
            return Err(Failure::with(FailureKind::BadType, format!("'{head}' is not a snapshot")));
        }
        // What has a mount of its own is in use, as in OpenZFS, also if it is only to be marked. What is looked at below `.zfs` is let go of.
        let busy = |name: &&String| self.mounter.is_mounted(name);
        let failure = || Failure::with(FailureKind::DatasetBusy, "dataset is busy");
        let refusals: Vec<Refusal> = destroy.names.iter().filter(busy).map(|name| Refusal { name: name.clone(), failure: failure() }).collect();
        if !refusals.is_empty() {
            return Ok(Box::new(move || Ok(refusals)));
        }
        destroy.names.iter().for_each(|name| self.mounter.close_snapshot(name));
        Ok(Box::new(move || {
            let refusals = pool.engine().dsl.snapshot_verbs().destroy_snapshots(destroy.names, destroy.defer);
            let refusals = refusals.map_err(|error| Failure::about_dataset(&error))?;
            let mut refusals = refused(refusals, destruction_failure);
            for Refusal { name, failure } in &mut refusals {
                if failure.message == BEING_HELD {
                    failure.message = format!("{BEING_HELD}. Run 'zfs holds -r {name}' to see holders.");
                }
            }
            Ok(refusals)
        }))
    }

    pub(in crate::control::pools) fn space_of_snapshots(&self, wanted: &SnapshotsSpace) -> Result<u64, Failure> {
        wanted.ranges.iter().try_fold(0_u64, |sum, (first, last)| {
            let space = self.pool_of(first)?.pool.engine().dsl.snapshot_verbs().space_would_free(first, last);
            Ok(sum.saturating_add(space.map_err(|error| Failure::about_dataset(&error))?))
        })
    }

    pub(in crate::control::pools) fn hold_snapshots(&mut self, held: SnapshotsTag) -> Result<RefusalsJob, Failure> {
        let pool = self.pool_of_all(&held.names)?;
        Ok(Box::new(move || {
            let refusals = pool.engine().dsl.snapshot_verbs().hold_snapshots(held.names, held.tag);
            refusals.map(|refusals| refused(refusals, tag_failure)).map_err(|error| match error.kind() {
                // The tag, which is that of all of them.
                ErrorKind::Invalid => Failure::new(FailureKind::BadType),
                _ => Failure::about_dataset(&error),
            })
        }))
    }

    pub(in crate::control::pools) fn release_snapshots(&mut self, held: SnapshotsTag) -> Result<RefusalsJob, Failure> {
        let pool = self.pool_of_all(&held.names)?;
        held.names.iter().for_each(|name| self.mounter.close_snapshot(name));
        Ok(Box::new(move || done(pool.engine().dsl.snapshot_verbs().release_snapshots(held.names, held.tag), tag_failure)))
    }

    pub(in crate::control::pools) fn create_bookmarks(&mut self, create: BookmarksCreate) -> Result<RefusalsJob, Failure> {
        let pool = self.pool_of_all(create.pairs.iter().map(|(name, _)| name))?;
        let new = create.pairs.into_iter().map(|(name, source)| NewBookmark { name, source }).collect();
        Ok(Box::new(move || done(pool.engine().dsl.snapshot_verbs().create_bookmarks(new), bookmark_failure)))
    }
}

impl Pools {
    pub(in crate::control::pools) fn redact(&mut self, redact: SnapshotRedact) -> Result<Job, Failure> {
        let SnapshotRedact { snapshot, bookmark, others } = redact;
        let dsl = self.pool_of(&snapshot)?.pool.engine().dsl.clone();
        Ok(Box::new(move || engine::stream::redact(&dsl, &snapshot, &bookmark, &others).map_err(|error| redaction_failure(&error, &bookmark))))
    }
}

/// In OpenZFS's words.
fn redaction_failure(error: &Error, bookmark: &str) -> Failure {
    match error.kind() {
        ErrorKind::NotFound => Failure::new(FailureKind::NoSuchDataset),
        ErrorKind::Exists => Failure::with(FailureKind::DatasetExists, format!("specified redaction bookmark ({bookmark}) provided already exists")),
        ErrorKind::NameTooLong => Failure::with(FailureKind::NameTooLong, "provided bookmark name cannot be used, final name would be too long"),
        ErrorKind::Invalid if bookmark.contains('#') => Failure::with(FailureKind::InvalidName, "redaction bookmark name must not contain '#'"),
        ErrorKind::Invalid => Failure::with(FailureKind::BadType, "redaction snapshot must be descendent of snapshot being redacted"),
        ErrorKind::CrossDevice if error.message().contains("full dataset names") => Failure::with(FailureKind::NotEarlier, sentence(error)),
        ErrorKind::CrossDevice => Failure::with(FailureKind::BadType, "redaction snapshot must be descendent of snapshot being redacted"),
        ErrorKind::NotSupported => Failure::with(FailureKind::PoolNotSupported, sentence(error)),
        ErrorKind::Conflict | ErrorKind::TooBig | ErrorKind::Mismatch => Failure::with(FailureKind::Other, sentence(error)),
        _ => Failure::about_dataset(error),
    }
}

fn done(refusals: Result<Refusals, Error>, words: impl Fn(&Error) -> Failure) -> Result<Vec<Refusal>, Failure> {
    refusals.map(|refusals| refused(refusals, words)).map_err(|error| Failure::about_dataset(&error))
}

fn refused(refusals: Refusals, words: impl Fn(&Error) -> Failure) -> Vec<Refusal> {
    refusals.into_iter().map(|(name, error)| Refusal { name, failure: words(&error) }).collect()
}

/// What follows the name in front.
fn sentence(error: &Error) -> &str {
    error.message().rsplit_once(": ").map_or(error.message(), |(_, last)| last)
}

fn destruction_failure(error: &Error) -> Failure {
    match error.kind() {
        ErrorKind::Exists => Failure::with(FailureKind::DatasetExists, sentence(error)),
        ErrorKind::Busy => Failure::with(FailureKind::DatasetBusy, sentence(error)),
        _ => Failure::about_dataset(error),
    }
}

fn tag_failure(error: &Error) -> Failure {
    match error.kind() {
        ErrorKind::Exists => Failure::with(FailureKind::DatasetExists, "tag already exists on this dataset"),
        ErrorKind::NoAttribute => Failure::with(FailureKind::NoSuchDataset, "no such tag on this dataset"),
        ErrorKind::TooBig => Failure::with(FailureKind::NameTooLong, "tag too long"),
        ErrorKind::NotSupported => Failure::new(FailureKind::BadType),
        _ => Failure::about_dataset(error),
    }
}

fn bookmark_failure(error: &Error) -> Failure {
    match error.kind() {
        ErrorKind::Exists | ErrorKind::NotSupported | ErrorKind::CrossDevice => Failure::with(FailureKind::DatasetExists, sentence(error)),
        ErrorKind::Invalid => Failure::with(FailureKind::InvalidName, "invalid argument"),
        _ => Failure::about_dataset(error),
    }
}
