//! `zfs receive`
//!
//! # Theory
//! The records are applied without the others waiting for it. Properties are set when the dataset is there and before its contents are,
//! so that blocks are written as they say.

use std::io::{Cursor, Read};
use std::sync::Arc;

use engine::dsl::prop_table::{find, is_user_property};
use engine::dsl::{Dsl, PropertyValue, ReceiveTarget};
use engine::error::ErrorKind;
use engine::stream::receive::Receiving;
use engine::stream::{Progress, StreamReader};
use ondisk::stream::RECORD_SIZE;

use crate::PropertyChange;
use crate::control::pools::{Failure, FailureKind, Pools, checks, names};
use crate::control::{Descriptor, ReceiveAbort, Reply, Setting, StreamJob, StreamReceive, Value};

type Changes = Vec<(String, PropertyChange)>;

impl Pools {
    pub(in crate::control::pools) fn receive(&mut self, receive: StreamReceive) -> Result<StreamJob, Failure> {
        names::check_dataset(&receive.dataset)?;
        self.check_running(&receive.dataset)?;
        if receive.begin.len() != RECORD_SIZE {
            return Err(Failure::with(FailureKind::BadStream, "the stream has no first record"));
        }
        let pool = self.pool_of(&receive.dataset)?.pool.clone();
        let features = &pool.engine().dsl.meta.features;
        let types = engine::dsl::prop_table::DatasetTypes::FILESYSTEM;
        let mut changes = received_changes(&receive.received);
        let local = checks::changes(&receive.settings, types, true, &|feature| features.is_enabled(feature))?;
        changes.extend(local);
        changes.extend(receive.inherited.iter().map(|name| (name.clone(), PropertyChange::Inherit)));
        Ok(Box::new(move |descriptor| run(&pool.engine().dsl, receive, changes, descriptor)))
    }

    /// Gives up what an interrupted receive has left to be resumed.
    pub(in crate::control::pools) fn abort_receive(&mut self, abort: &ReceiveAbort) -> Result<(), Failure> {
        let dsl = self.pool_of(&abort.dataset)?.pool.engine().dsl.clone();
        dsl.receiving().abort_receive(&abort.dataset).map_err(|error| match error.kind() {
            ErrorKind::Invalid => Failure::with(FailureKind::Other, error.message()),
            _ => Failure::about_dataset(&error),
        })
    }
}

/// What a stream says of properties, as far as this program knows them.
fn received_changes(settings: &[Setting]) -> Changes {
    let known = |setting: &&Setting| is_user_property(&setting.name) || find(&setting.name).is_some_and(|property| !property.is_read_only());
    let change = |setting: &Setting| {
        let value = match &setting.value {
            Value::Number(number) => PropertyValue::Number(*number),
            Value::Text(text) => PropertyValue::Text(text.clone()),
        };
        (setting.name.clone(), PropertyChange::Receive(value))
    };
    settings.iter().filter(known).map(change).collect()
}

fn run(dsl: &Arc<Dsl>, receive: StreamReceive, changes: Changes, descriptor: Descriptor) -> Result<Reply, Failure> {
    let StreamReceive { dataset, snapshot, origin, begin, force, resumable, .. } = receive;
    let watch = descriptor.watch().clone();
    let input = Cursor::new(begin).chain(descriptor);
    let receiving = Receiving::open(StreamReader::new(input), Progress::default()).map_err(|error| failure(&error))?;
    let name = dataset.clone();
    let target = ReceiveTarget { dataset, snapshot, origin, force, resumable };
    let after_begin = |dsl: &Arc<Dsl>| set(dsl, &name, changes);
    let (_, finished) = receiving.receive(dsl, target, after_begin);
    finished.and_then(|finished| finished.end()).map_err(|error| failure(&error))?;
    Ok(Reply::Received(watch.progress()))
}

/// Sets properties: all at once or, where one of them cannot be, those that can. A stream is not refused for a property.
fn set(dsl: &Arc<Dsl>, name: &str, changes: Changes) {
    if changes.is_empty() || dsl.set_properties(name, changes.clone()).is_ok() {
        return;
    }
    for (property, change) in changes {
        if let Err(error) = dsl.set_properties(name, vec![(property.clone(), change)]) {
            tracing::warn!("cannot receive {property} property on {name}: {error}");
        }
    }
}

/// What a command decides its words by.
fn failure(error: &crate::Error) -> Failure {
    match error.kind() {
        ErrorKind::Mismatch => Failure::with(FailureKind::SnapshotMismatch, error.message()),
        ErrorKind::Modified => Failure::with(FailureKind::DatasetModified, error.message()),
        ErrorKind::Corrupt | ErrorKind::Checksum | ErrorKind::Invalid => Failure::with(FailureKind::BadStream, error.message()),
        ErrorKind::NotSupported | ErrorKind::Unsupported => Failure::with(FailureKind::Unsupported, error.message()),
        ErrorKind::Exists => Failure::with(FailureKind::DatasetExists, error.message()),
        ErrorKind::Quota => Failure::with(FailureKind::PropertySpace, error.message()),
        // The other end of the descriptor, or a device: the message says which.
        ErrorKind::Io => Failure::with(FailureKind::BadStream, error.message()),
        _ => Failure::about_dataset(error),
    }
}
