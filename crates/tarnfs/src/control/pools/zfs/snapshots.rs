//! `zfs snapshot`

use engine::dsl::prop_table::DatasetTypes;
use engine::dsl::{NewSnapshots, Refusals};
use engine::error::ErrorKind;

use crate::control::pools::{Failure, FailureKind, Pools, checks};
use crate::control::{Refusal, RefusalsJob, SnapshotsCreate};

impl Pools {
    pub(in crate::control::pools) fn create_snapshots(&mut self, create: SnapshotsCreate) -> Result<RefusalsJob, Failure> {
        let Some(first) = create.names.first() else { return Err(Failure::with(FailureKind::InvalidName, "no snapshot is named")) };
        let pool = self.pool_of(first)?.pool.clone();
        let name = pool.name();
        if create.names.iter().any(|other| other.split(['/', '@']).next() != Some(&name)) {
            return Err(Failure::with(FailureKind::InvalidName, "the snapshots are not all in one pool"));
        }
        let properties = checks::changes(&create.properties, DatasetTypes::SNAPSHOT, true, &|_| true)?;
        let heads: Vec<String> = create.names.iter().filter_map(|name| Some(name.split_once('@')?.0.to_owned())).collect();
        let (fetch, told) = (self.mounter.fetch(&heads), self.mounter.snapshots_changed(&heads));
        let new = NewSnapshots { names: create.names, properties };
        Ok(Box::new(move || {
            fetch();
            let refusals = pool.engine().dsl.create_snapshots(new);
            told();
            refusals.map(refused).map_err(|error| match error.kind() {
                ErrorKind::CrossDevice => Failure::with(FailureKind::DatasetExists, "multiple snapshots of same fs not allowed"),
                ErrorKind::Invalid => Failure::with(FailureKind::InvalidName, error.message()),
                ErrorKind::NotSupported => Failure::with(FailureKind::PropertyType, error.message()),
                _ => Failure::about_dataset(&error),
            })
        }))
    }
}

fn refused(refusals: Refusals) -> Vec<Refusal> {
    refusals.into_iter().map(|(name, error)| Refusal { name, failure: Failure::about_dataset(&error) }).collect()
}
