//! `zfs receive`
//!
//! # Theory
//! The records are applied without the others waiting for it. Properties are set when the dataset is there and before its contents are,
//! so that blocks are written as they say ([`properties`](super::properties)). At the end the dataset gets the contents in turn: where it is mounted it stays mounted.

use std::io::{Cursor, Read};
use std::sync::Arc;

use engine::dsl::prop_table::DatasetTypes;
use engine::dsl::ReceiveTarget;
use engine::error::ErrorKind;
use engine::stream::receive::{Finished, Receiving};
use engine::stream::{Progress, StreamReader};
use ondisk::objset::ObjsetType;
use ondisk::stream::{RECORD_SIZE, Record, RecordBody, stream_order};

use super::properties::{MayChange, ReceivedProperties};
use crate::control::permission::{Asked, Of, permission_of_property};
use crate::control::pools::{Failure, FailureKind, Pools, checks, grants, names};
use crate::control::{Descriptor, ReceiveAbort, Received, Reply, StreamEnd, StreamJob, StreamReceive, Streamed};
use crate::{Pool, PropertyChange};

impl Pools {
    pub(in crate::control::pools) fn receive(&mut self, receive: StreamReceive) -> Result<StreamJob, Failure> {
        // The root of a pool can be received into, too.
        if receive.dataset.contains('/') {
            names::check_dataset(&receive.dataset)?;
        }
        self.check_running(&receive.dataset)?;
        if receive.begin.len() != RECORD_SIZE {
            return Err(Failure::with(FailureKind::BadStream, "the stream has no first record"));
        }
        let pool = self.pool_of(&receive.dataset)?.pool.clone();
        let features = &pool.engine().dsl.meta.features;
        let local = checks::changes(&receive.settings, types_of(&receive.begin), true, &|feature| features.is_enabled(feature))?;
        let local = local.into_iter().chain(receive.inherited.iter().map(|name| (name.clone(), PropertyChange::Inherit))).collect();
        let properties = ReceivedProperties::new(receive.received.as_deref(), local, &|feature| features.is_enabled(feature), self.may_change(&pool));
        // What the kernel has of the dataset is a change of it.
        let fetch = self.mounter.fetch(std::slice::from_ref(&receive.dataset));
        let under_way = self.pool_of(&receive.dataset)?.streams.clone();
        Ok(Box::new(move |descriptor| {
            let _under_way = under_way;
            fetch();
            run(&pool, receive, properties, descriptor)
        }))
    }

    /// Which properties the caller may change, asked when that is about to be done: by then a new dataset is there, and with it what its creator is granted.
    fn may_change(&self, pool: &Arc<Pool>) -> MayChange {
        let (pool, caller) = (pool.clone(), self.caller.clone());
        Box::new(move |dataset, property| grants::check(&pool, &caller, &Asked { permission: permission_of_property(property), of: Of::New(dataset.to_owned()) }))
    }

    /// The dataset gets what was received.
    pub(in crate::control::pools) fn end_stream(&mut self, end: StreamEnd) -> Result<Reply, Failure> {
        end(&mut |dataset, change| {
            let pool = self.pool_of(dataset)?.pool.clone();
            self.replace_contents(&pool, dataset, change)?;
            pool.refresh_mount_options().map_err(|error| Failure::about_dataset(&error))?;
            self.mounter.snapshots_changed(&[dataset.to_owned()])();
            self.mounter.refresh(&pool);
            Ok(())
        })
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

/// What the dataset is going to be.
fn types_of(begin: &[u8]) -> DatasetTypes {
    let order = stream_order(begin).ok();
    let record = begin.first_chunk().zip(order).and_then(|(begin, order)| Record::decode(begin, order).ok());
    match record.map(|record| record.body) {
        Some(RecordBody::Begin(begin)) if ObjsetType::from_number(begin.objset_type.into()) == ObjsetType::Volume => DatasetTypes::VOLUME,
        _ => DatasetTypes::FILESYSTEM,
    }
}

fn run(pool: &Arc<Pool>, receive: StreamReceive, mut properties: ReceivedProperties, descriptor: Descriptor) -> Result<Streamed, Failure> {
    let dsl = pool.engine().dsl.clone();
    let StreamReceive { dataset, snapshot, origin, begin, force, resumable, heal, of_snapshot, inherits_key, key_location, settings, .. } = receive;
    let watch = descriptor.watch().clone();
    let input = Cursor::new(begin).chain(descriptor);
    let receiving = Receiving::open(StreamReader::new(input), Progress::default()).map_err(|error| failure(&error))?;
    if heal {
        receiving.heal(&dsl, &format!("{dataset}@{snapshot}")).map_err(|error| healing_failure(&error))?;
        return Ok(Streamed::Over(Reply::Received(Received { bytes: watch.progress().bytes, refused: Vec::new() })));
    }
    let name = dataset.clone();
    // No other value is let in.
    let stays_plain = settings.iter().any(|setting| setting.name == "encryption");
    let target = ReceiveTarget { dataset: dataset.clone(), snapshot: snapshot.clone(), origin, force, resumable, inherits_key, key_location, stays_plain };
    let (_, finished) = receiving.receive(&dsl, target, |dsl, is_new| properties.set_first(dsl, &name, is_new));
    let finished = match finished {
        Ok(finished) => finished,
        Err(error) => {
            properties.restore(&dsl, &name);
            return Err(failure(&error));
        }
    };
    Ok(Streamed::There(Box::new(move |replace| {
        let ended = end(finished, &dataset, replace);
        if let Err(refused) = ended {
            properties.restore(&dsl, &dataset);
            return Err(refused);
        }
        properties.set_last(&dsl, &dataset);
        properties.set_of_snapshot(&dsl, &format!("{dataset}@{snapshot}"), &of_snapshot);
        Ok(Reply::Received(Received { bytes: watch.progress().bytes, refused: properties.refused }))
    })))
}

/// A dataset that is new is nowhere mounted.
fn end(finished: Finished, dataset: &str, replace: &mut crate::control::ReplaceContents<'_>) -> Result<(), Failure> {
    let mut finished = Some(finished);
    let mut change = || finished.take().map_or(Ok(()), |finished| finished.end().map_err(|error| failure(&error)));
    let ended = replace(dataset, &mut change);
    if ended.is_err()
        && let Some(finished) = finished
    {
        // It was not even tried.
        finished.give_up(engine::error!(Busy, "'{dataset}': dataset is busy"));
    }
    ended
}

fn healing_failure(error: &crate::Error) -> Failure {
    match error.kind() {
        ErrorKind::Checksum => Failure::with(FailureKind::Checksum, "corrective receive was not able to reconstruct the data needed for healing."),
        ErrorKind::NotSupported => Failure::with(FailureKind::Unsupported, "stream is not compatible with the data in the pool."),
        _ => failure(error),
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
        ErrorKind::KeyNotLoaded => Failure::with(FailureKind::Encryption, error.message()),
        ErrorKind::Quota => Failure::with(FailureKind::PropertySpace, error.message()),
        // The other end of the descriptor, or a device: the message says which.
        ErrorKind::Io => Failure::with(FailureKind::BadStream, error.message()),
        _ => Failure::about_dataset(error),
    }
}
