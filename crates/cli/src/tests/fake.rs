//! A backend whose pools are lists in memory.

use std::collections::BTreeMap;

use tarnfs::control::*;

/// Keeps pools and datasets, does the simple verbs, and remembers what it was asked.
#[derive(Default)]
pub(super) struct FakeBackend {
    pub(super) pools: Vec<PoolEntry>,
    pub(super) datasets: Vec<DatasetEntry>,
    pub(super) mounts: Vec<Mount>,
    pub(super) found: Vec<FoundPool>,
    pub(super) requests: Vec<Request>,
    pub(super) histories: Vec<PoolHistory>,
    pub(super) events: Vec<PoolEvent>,
    pub(super) owners: Vec<OwnerUse>,
    /// Failures to give, by the name of a dataset or pool.
    pub(super) broken: BTreeMap<String, Failure>,
}

type Done = Result<(), Failure>;

fn chosen(all: &[PropertyValue], wanted: &Wanted) -> Vec<PropertyValue> {
    let is_wanted = |name: &String| match wanted {
        Wanted::All => true,
        Wanted::Only(names) => names.contains(name),
    };
    all.iter().filter(|property| is_wanted(&property.name)).cloned().collect()
}

/// How many levels `name` is below `root`.
fn level(name: &str, root: &str) -> Option<u64> {
    let rest = name.strip_prefix(root)?;
    (rest.is_empty() || rest.starts_with(['/', '@', '#'])).then(|| rest.matches(['/', '@', '#']).count() as u64)
}

impl FakeBackend {
    pub(super) fn dataset(&mut self, name: &str, kind: DatasetKind, txg: u64, properties: Vec<PropertyValue>) {
        self.datasets.push(DatasetEntry { name: name.into(), kind, creation_txg: txg, properties });
    }

    fn check(&self, name: &str) -> Done {
        self.broken.get(name).cloned().map_or(Ok(()), Err)
    }

    fn select(&self, select: &PoolSelect) -> Result<Vec<PoolEntry>, Failure> {
        let mut pools = self.pools.clone();
        if let Some(name) = &select.name {
            self.check(name)?;
            pools.retain(|pool| pool.name == *name);
            if pools.is_empty() {
                return Err(Failure::new(FailureKind::NoSuchPool));
            }
        }
        for pool in &mut pools {
            pool.properties = chosen(&pool.properties, &select.properties);
        }
        Ok(pools)
    }

    fn find(&mut self, name: &str) -> Result<&mut DatasetEntry, Failure> {
        self.check(name)?;
        self.datasets.iter_mut().find(|dataset| dataset.name == name).ok_or_else(|| Failure::new(FailureKind::NoSuchDataset))
    }

    /// The requests that change something.
    pub(super) fn changes(&self) -> Vec<Request> {
        let reads = |request: &&Request| {
            !matches!(
                request,
                Request::PoolList(_)
                    | Request::PoolGet(_)
                    | Request::PoolStatus(_)
                    | Request::PoolScan(_)
                    | Request::DatasetList(_)
                    | Request::DatasetGet(_)
                    | Request::MountList
                    | Request::SnapshotsSpace(_)
                    | Request::PoolRecord(_)
            )
        };
        self.requests.iter().filter(reads).cloned().collect()
    }
}

impl Backend for FakeBackend {
    fn quit(&mut self) -> Done {
        Ok(())
    }

    fn pool_create(&mut self, create: PoolCreate) -> Done {
        if self.pools.iter().any(|pool| pool.name == create.name) {
            return Err(Failure::new(FailureKind::PoolExists));
        }
        let mountpoint = PropertyValue::new("mountpoint", format!("/{}", create.name), Source::Default);
        self.dataset(&create.name, DatasetKind::Filesystem, 1, vec![mountpoint]);
        Ok(())
    }

    fn pool_destroy(&mut self, destroy: PoolDestroy) -> Done {
        self.check(&destroy.name)
    }

    fn pool_scan(&mut self, _: PoolScan) -> Result<Vec<FoundPool>, Failure> {
        Ok(self.found.clone())
    }

    fn pool_import(&mut self, import: PoolImport) -> Result<Option<ImportRewound>, Failure> {
        self.check(&import.name)?;
        self.dataset(&import.name, DatasetKind::Filesystem, 1, vec![PropertyValue::new("mountpoint", "/p", Source::Local)]);
        Ok(None)
    }

    fn pool_export(&mut self, export: PoolExport) -> Done {
        self.check(&export.name)
    }

    fn pool_list(&mut self, select: PoolSelect) -> Result<Vec<PoolEntry>, Failure> {
        self.select(&select)
    }

    fn pool_get(&mut self, select: PoolSelect) -> Result<Vec<PoolEntry>, Failure> {
        self.select(&select)
    }

    fn pool_status(&mut self, select: PoolSelect) -> Result<Vec<PoolStatus>, Failure> {
        Ok(self.select(&select)?.into_iter().map(|pool| pool.status).collect())
    }

    fn pool_set(&mut self, set: PoolSet) -> Done {
        self.check(&set.name)
    }

    fn pool_sync(&mut self, _: PoolSelect) -> Result<Job, Failure> {
        Ok(Box::new(|| Ok(())))
    }

    fn pool_history(&mut self, _: PoolSelect) -> Result<Vec<PoolHistory>, Failure> {
        Ok(self.histories.clone())
    }

    fn pool_record(&mut self, record: PoolRecord) -> Done {
        self.check(&record.pool)
    }

    fn pool_reguid(&mut self, reguid: PoolReguid) -> Done {
        self.check(&reguid.name)
    }

    fn pool_clear(&mut self, clear: PoolClear) -> Done {
        self.check(&clear.name)
    }

    fn pool_scrub(&mut self, scrub: PoolScrub) -> Done {
        self.check(&scrub.name)
    }

    fn pool_upgrade(&mut self, upgrade: PoolUpgrade) -> Done {
        self.check(&upgrade.name)
    }

    fn pool_events(&mut self, wanted: PoolEvents) -> Result<Vec<PoolEvent>, Failure> {
        Ok(self.events.iter().filter(|event| event.id > wanted.after).cloned().collect())
    }

    fn dataset_rename(&mut self, rename: DatasetRename) -> Done {
        self.find(&rename.from).map(|_| ())
    }

    fn dataset_rollback(&mut self, rollback: DatasetRollback) -> Done {
        self.find(&rollback.snapshot).map(|_| ())
    }

    fn owner_space(&mut self, space: OwnerSpace) -> Result<Vec<OwnerUse>, Failure> {
        self.find(&space.name)?;
        Ok(if space.kind == OwnerKind::User { self.owners.clone() } else { Vec::new() })
    }

    fn dataset_create(&mut self, create: DatasetCreate) -> Done {
        let kind = if create.volume_size.is_some() { DatasetKind::Volume } else { DatasetKind::Filesystem };
        let mountpoint = PropertyValue::new("mountpoint", format!("/{}", create.name), Source::Default);
        self.dataset(&create.name, kind, 100, vec![mountpoint]);
        Ok(())
    }

    fn dataset_destroy(&mut self, destroy: DatasetDestroy) -> Done {
        for name in &destroy.names {
            self.find(name)?;
        }
        self.datasets.retain(|dataset| !destroy.names.contains(&dataset.name));
        Ok(())
    }

    fn snapshots_destroy(&mut self, destroy: SnapshotsDestroy) -> Result<RefusalsJob, Failure> {
        self.dataset_destroy(DatasetDestroy { names: destroy.names, defer: destroy.defer, force: false })?;
        Ok(Box::new(|| Ok(Vec::new())))
    }

    /// Each snapshot has one.
    fn snapshot_holds(&mut self, of: SnapshotHolds) -> Result<Vec<Hold>, Failure> {
        self.find(&of.name)?;
        Ok(vec![Hold { tag: "keep".into(), since: 5 }])
    }

    fn snapshots_space(&mut self, wanted: SnapshotsSpace) -> Result<u64, Failure> {
        let used = |name: &String| Ok(self.find(name)?.property("used").and_then(|value| value.value.number()).unwrap_or(0));
        wanted.ranges.iter().map(|(first, _)| first).map(used).sum()
    }

    fn dataset_list(&mut self, list: DatasetList) -> Result<Datasets, Failure> {
        let root_kind = match &list.root {
            Some(root) => Some(self.find(root)?.kind),
            None => None,
        };
        let mut entries = Vec::new();
        for dataset in &self.datasets {
            let level = match &list.root {
                Some(root) => level(&dataset.name, root),
                None => Some(0),
            };
            let near = level.is_some_and(|level| list.depth.is_none_or(|depth| level <= depth));
            let listed = list.snapshots_where_listed && dataset.kind == DatasetKind::Snapshot && self.lists_snapshots(&dataset.name);
            if near && (list.kinds.has(dataset.kind) || listed) {
                let mut entry = dataset.clone();
                entry.properties = chosen(&dataset.properties, &list.properties);
                entries.push(entry);
            }
        }
        Ok(Datasets { root_kind, entries })
    }

    fn dataset_set(&mut self, set: DatasetSet) -> Done {
        self.find(&set.name).map(|_| ())
    }

    fn dataset_inherit(&mut self, inherit: DatasetInherit) -> Done {
        self.find(&inherit.name).map(|_| ())
    }

    fn dataset_mount(&mut self, mount: DatasetMount) -> Done {
        let dataset = self.find(&mount.name)?;
        dataset.properties.push(PropertyValue::new("mounted", 1, Source::None));
        Ok(())
    }

    fn dataset_unmount(&mut self, unmount: DatasetUnmount) -> Result<Job, Failure> {
        self.find(&unmount.name).map(|_| Box::new(|| Ok(())) as Job)
    }

    fn mount_list(&mut self) -> Result<Vec<Mount>, Failure> {
        Ok(self.mounts.clone())
    }
}

impl FakeBackend {
    fn lists_snapshots(&self, dataset: &str) -> bool {
        let pool = self.pools.iter().find(|pool| dataset.split(['/', '@']).next() == Some(&pool.name));
        pool.is_some_and(|pool| pool.properties.iter().any(|property| property.name == "listsnapshots" && property.value == Value::Number(1)))
    }
}
