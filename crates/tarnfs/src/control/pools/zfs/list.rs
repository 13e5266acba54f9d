//! `zfs list` and `zfs get`
//!
//! # Theory
//! The tree of names is walked from where the request starts; of each dataset the properties asked for are gathered.
//! Nothing is renamed or destroyed meanwhile.

use std::cell::OnceCell;
use std::collections::HashSet;
use std::sync::Arc;

use engine::dsl::meta::key;
use engine::dsl::prop_table::{DatasetTypes, PROPERTIES, Property, find, is_space_property, is_user_property, is_written_property};
use engine::dsl::{self, Dataset, Dir, Dsl, PropertyValues, redaction_bonus};
use engine::error::{ErrorKind, Result};
use ondisk::dsl::{BookmarkPhys, RedactionListPhys, dataset_field};
use ondisk::object_type::ObjectType;
use ondisk::objset::ObjsetType;

use super::{mounting, quotas};
use crate::control::permission::{Asked, Of};
use crate::control::pools::{Failure, FailureKind, Imported, Mounter, Pools};
use crate::control::{DatasetEntry, DatasetKind, DatasetKinds, DatasetList, Datasets, PropertyValue, Source, Value, Wanted};

/// The source of a value in the words of `control`.
pub(super) fn source_of(source: dsl::Source) -> Source {
    match source {
        dsl::Source::Default => Source::Default,
        dsl::Source::Local => Source::Local,
        dsl::Source::Received => Source::Received,
        dsl::Source::Inherited(from) => Source::Inherited(from),
        dsl::Source::Temporary => Source::Temporary,
        dsl::Source::None => Source::None,
    }
}

fn value_of(value: dsl::PropertyValue) -> Value {
    match value {
        dsl::PropertyValue::Number(number) => Value::Number(number),
        dsl::PropertyValue::Text(text) => Value::Text(text),
    }
}

fn types_of(kind: DatasetKind) -> DatasetTypes {
    match kind {
        DatasetKind::Filesystem => DatasetTypes::FILESYSTEM,
        DatasetKind::Volume => DatasetTypes::VOLUME,
        DatasetKind::Snapshot => DatasetTypes::SNAPSHOT,
        DatasetKind::Bookmark => DatasetTypes::BOOKMARK,
    }
}

fn kind_of(dataset: &Arc<Dataset>) -> Result<DatasetKind> {
    if dataset.is_snapshot {
        return Ok(DatasetKind::Snapshot);
    }
    Ok(if is_volume(dataset)? { DatasetKind::Volume } else { DatasetKind::Filesystem })
}

/// What has lost its object set goes for a file system: it is still listed, beside all others.
fn is_volume(dataset: &Arc<Dataset>) -> Result<bool> {
    match dataset.objset_type() {
        Err(error) if error.is_loss() => Ok(false),
        kind => Ok(kind? == ObjsetType::Volume),
    }
}

/// Of a snapshot only what its file system or volume has too, or what only snapshots have.
fn applies_to_head(property: &Property, snapshot: &Arc<Dataset>) -> Result<bool> {
    let heads = [DatasetTypes::FILESYSTEM, DatasetTypes::VOLUME];
    if !heads.into_iter().any(|head| property.applies_to(head)) {
        return Ok(true);
    }
    Ok(property.applies_to(heads[usize::from(is_volume(snapshot)?)]))
}

impl Pools {
    /// The type of a dataset that must exist.
    pub(super) fn types_of(&self, name: &str) -> Result<DatasetTypes, Failure> {
        let failed = |error: crate::Error| Failure::about_dataset(&error);
        let dataset = self.pool_of(name)?.pool.engine().dsl.open_dataset(name).map_err(failed)?;
        Ok(types_of(kind_of(&dataset).map_err(failed)?))
    }

    pub(in crate::control::pools) fn list_datasets(&mut self, list: &DatasetList) -> Result<Datasets, Failure> {
        let failed = |error: crate::Error| match error.kind() {
            // A name that cannot be is no dataset's.
            engine::error::ErrorKind::Invalid | engine::error::ErrorKind::NameTooLong => Failure::new(FailureKind::NoSuchDataset),
            _ => Failure::about_dataset(&error),
        };
        let mut found = Datasets { root_kind: None, entries: Vec::new() };
        match &list.root {
            Some(root) => {
                let imported = self.pool_of(root)?;
                found.root_kind = Some(Walk::new(imported, &*self.mounter, list, &mut found.entries).map_err(failed)?.from(root).map_err(failed)?);
            }
            None => {
                for imported in self.pools.values() {
                    let root = imported.pool.name();
                    Walk::new(imported, &*self.mounter, list, &mut found.entries).map_err(failed)?.from(&root).map_err(failed)?;
                }
            }
        }
        if !self.caller.is_superuser {
            self.hide_owners(&mut found);
        }
        Ok(found)
    }

    /// The space of other owners is seen by those who are granted that.
    fn hide_owners(&self, found: &mut Datasets) {
        for entry in &mut found.entries {
            let name = entry.name.clone();
            entry.properties.retain(|property| {
                let Some((family, _)) = property.name.split_once('@').filter(|_| is_space_property(&property.name)) else { return true };
                let asked = Asked { permission: family.to_owned(), of: Of::Dataset(name.clone()) };
                quotas::is_about(&self.caller.identity, &property.name) || self.check_granted(&asked).is_ok()
            });
        }
    }
}

/// One walk through one pool.
struct Walk<'a> {
    imported: &'a Imported,
    dsl: &'a Arc<Dsl>,
    mounter: &'a dyn Mounter,
    list: &'a DatasetList,
    kinds: DatasetKinds,
    /// The mounted datasets, when one of the walk may be.
    mounted: OnceCell<HashSet<String>>,
    entries: &'a mut Vec<DatasetEntry>,
}

impl<'a> Walk<'a> {
    fn new(imported: &'a Imported, mounter: &'a dyn Mounter, list: &'a DatasetList, entries: &'a mut Vec<DatasetEntry>) -> Result<Walk<'a>> {
        let engine = imported.pool.engine();
        let mut kinds = list.kinds;
        if list.snapshots_where_listed && !kinds.snapshot {
            kinds.snapshot = engine.stored_property("listsnapshots")?.is_some_and(|value| value.number() != 0);
        }
        Ok(Walk { imported, dsl: &engine.dsl, mounter, list, kinds, mounted: OnceCell::new(), entries })
    }

    /// Walks from a dataset, snapshot or bookmark; returns what it is.
    fn from(&mut self, root: &str) -> Result<DatasetKind> {
        let dsl = self.dsl;
        let _names = dsl.lock_names();
        if let Some((head, bookmark)) = root.split_once('#') {
            let head = dsl.dataset_by_name(head)?;
            let found = self.bookmarks_of(&head)?.into_iter().find(|(name, _)| name == bookmark);
            let Some((_, phys)) = found else { engine::bail!(NotFound, "cannot open '{root}': dataset does not exist") };
            if self.kinds.bookmark {
                self.bookmark(root, &phys);
            }
            return Ok(DatasetKind::Bookmark);
        }
        let dataset = dsl.dataset_by_name(root)?;
        let kind = kind_of(&dataset)?;
        if kind == DatasetKind::Snapshot {
            self.entry(root, &dataset, kind)?;
        } else {
            self.below(&dataset.dir, root, 0)?;
        }
        Ok(kind)
    }

    /// A head, its snapshots and bookmarks, and the datasets below it.
    fn below(&mut self, dir: &Arc<Dir>, name: &str, depth: u64) -> Result<()> {
        let head = dir.phys().head_dataset.get();
        if head == 0 {
            return Ok(());
        }
        let dataset = self.dsl.dataset(head)?;
        if self.kinds.filesystem || self.kinds.volume {
            let kind = kind_of(&dataset)?;
            self.entry(name, &dataset, kind)?;
        }
        if self.list.depth.is_some_and(|limit| depth >= limit) {
            return Ok(());
        }
        if self.kinds.snapshot {
            for (snapshot, object) in dataset.snapshots()? {
                let snapshot_dataset = self.dsl.dataset(object)?;
                self.entry(&format!("{name}@{snapshot}"), &snapshot_dataset, DatasetKind::Snapshot)?;
            }
        }
        if self.kinds.bookmark {
            for (bookmark, phys) in self.bookmarks_of(&dataset)? {
                self.bookmark(&format!("{name}#{bookmark}"), &phys);
            }
        }
        drop(dataset);
        // What is received beside a file system has no name for users.
        for (child, child_dir) in self.dsl.children(dir)?.into_iter().filter(|(child, _)| !child.contains('%')) {
            self.below(&child_dir, &format!("{name}/{child}"), depth + 1)?;
        }
        Ok(())
    }

    fn entry(&mut self, name: &str, dataset: &Arc<Dataset>, kind: DatasetKind) -> Result<()> {
        if !self.kinds.has(kind) {
            return Ok(());
        }
        let mut properties = Vec::new();
        let values = dataset.property_values();
        match &self.list.properties {
            Wanted::Only(names) => {
                for property in names {
                    properties.extend(self.property(name, (dataset, &values), kind, property)?);
                }
            }
            Wanted::All => {
                let types = types_of(kind);
                for property in PROPERTIES.iter().filter(|property| property.is_visible() && property.applies_to(types)) {
                    properties.extend(self.property(name, (dataset, &values), kind, property.name)?);
                }
                for (property, value, source) in dataset.user_properties()? {
                    let received = self.received(dataset, &property)?;
                    properties.push(PropertyValue { name: property, value: value_of(value), source: source_of(source), received });
                }
            }
        }
        self.entries.push(DatasetEntry { name: name.to_owned(), kind, creation_txg: dataset.phys().creation_txg.get(), properties });
        Ok(())
    }

    fn received(&self, dataset: &Arc<Dataset>, property: &str) -> Result<Option<Value>> {
        if !self.list.received {
            return Ok(None);
        }
        Ok(dataset.received_property(property)?.map(value_of))
    }

    fn property(&self, name: &str, (dataset, values): (&Arc<Dataset>, &PropertyValues<'_>), kind: DatasetKind, asked: &str) -> Result<Option<PropertyValue>> {
        let known = find(asked);
        match known {
            Some(property) if !property.applies_to(types_of(kind)) => return Ok(None),
            None if is_space_property(asked) => {
                let value = quotas::get(self.dsl, dataset, asked)?;
                return Ok(value.map(|value| PropertyValue::new(asked, value, Source::Local)));
            }
            None if is_written_property(asked) => {
                let value = self.written_since(name, dataset, kind, asked)?;
                return Ok(value.map(|value| PropertyValue::new(asked, value, Source::Local)));
            }
            None if !is_user_property(asked) => return Ok(None),
            Some(property) if kind == DatasetKind::Snapshot && !applies_to_head(property, dataset)? => return Ok(None),
            _ => {}
        }
        let property = known.map_or(asked, |property| property.name);
        let received = self.received(dataset, property)?;
        let (value, source) = match property {
            "mounted" => (Value::Number(self.is_mounted(name).into()), Source::None),
            "mountpoint" => {
                let (path, source) = mounting::resolve(values, name, self.imported.altroot.as_deref())?;
                (Value::Text(path), source)
            }
            "name" => (Value::Text(name.to_owned()), Source::None),
            "type" => (kind.word().into(), Source::None),
            _ => match dataset.any_property_among(values, property)? {
                Some((value, source)) => self.for_this_mount(name, property, value_of(value), source_of(source)),
                // It came, and was inherited since.
                None if received.is_some() => ("-".into(), Source::None),
                None => return Ok(None),
            },
        };
        Ok(Some(PropertyValue { name: property.to_owned(), value, source, received }))
    }

    /// `written@SNAPSHOT`, `written#BOOKMARK`: what follows may be a whole name, with a dataset before its own `@` or `#`.
    fn written_since(&self, name: &str, dataset: &Arc<Dataset>, kind: DatasetKind, asked: &str) -> Result<Option<u64>> {
        let Some(since) = asked.strip_prefix("written").filter(|_| kind != DatasetKind::Bookmark) else { return Ok(None) };
        let head = name.split('@').next().unwrap_or(name);
        let whole = since.get(1..).filter(|rest| rest.contains(['@', '#']));
        let full = whole.map_or_else(|| format!("{head}{since}"), str::to_owned);
        let written = match full.split_once('#') {
            Some((head, bookmark)) => self.written_since_bookmark(dataset, head, bookmark),
            None => self.dsl.dataset_by_name(&full).and_then(|snapshot| dataset.written_since(&snapshot)),
        };
        match written {
            Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::Invalid | ErrorKind::NameTooLong) => Ok(None),
            written => written,
        }
    }

    fn written_since_bookmark(&self, dataset: &Arc<Dataset>, head: &str, bookmark: &str) -> Result<Option<u64>> {
        let head = self.dsl.dataset_by_name(head)?;
        match self.bookmarks_of(&head)?.into_iter().find(|(name, _)| name == bookmark) {
            Some((_, phys)) => dataset.written_since_bookmark(head.dir.object, &phys),
            None => Ok(None),
        }
    }

    /// Whether it is mounted, without asking the kernel for each of many.
    fn is_mounted(&self, name: &str) -> bool {
        let all = || self.mounter.list().into_iter().map(|mount| mount.dataset).collect::<HashSet<String>>();
        self.mounter.has(name) && self.mounted.get_or_init(all).contains(name)
    }

    /// A value, or what this mount has instead of it.
    fn for_this_mount(&self, name: &str, property: &str, value: Value, source: Source) -> (Value, Source) {
        const OPTIONS: [(&str, &str, &str); 6] = [
            ("atime", "atime", "noatime"),
            ("devices", "dev", "nodev"),
            ("exec", "exec", "noexec"),
            ("nbmand", "mand", "nomand"),
            ("readonly", "ro", "rw"),
            ("setuid", "suid", "nosuid"),
        ];
        let option = OPTIONS.into_iter().find(|(known, ..)| *known == property);
        let Some((_, on, off)) = option.filter(|_| self.is_mounted(name)) else { return (value, source) };
        let options = self.mounter.options(name);
        let has = |wanted: &str| options.iter().any(|option| option == wanted) || (wanted == "ro" && self.imported.pool.engine().is_read_only());
        match value.number() {
            Some(0) if has(on) => (Value::Number(1), Source::Temporary),
            Some(1) if has(off) => (Value::Number(0), Source::Temporary),
            _ => (value, source),
        }
    }

    /// The bookmarks of a head.
    fn bookmarks_of(&self, head: &Dataset) -> Result<Vec<(String, BookmarkPhys)>> {
        let mos = &self.dsl.meta.mos;
        debug_assert_ne!(head.object, key::DIRECTORY);
        if mos.info(head.object)?.object_type != ObjectType::ZAP_METADATA {
            return Ok(Vec::new());
        }
        let Some(bookmarks) = mos.zap_u64(head.object, dataset_field::BOOKMARKS)? else { return Ok(Vec::new()) };
        let entries = mos.zap_entries(bookmarks)?;
        entries.into_iter().map(|(name, value)| Ok((name, BookmarkPhys::from_words(&value.to_u64s())?))).collect()
    }

    /// The guids of the snapshots that a bookmark says what is redacted for, in a line. `None`: it says nothing of that.
    fn redaction_snapshots(&self, phys: &BookmarkPhys) -> Option<String> {
        let list = Some(phys.redaction_list.get()).filter(|list| *list != 0)?;
        let bonus = redaction_bonus(&self.dsl.meta.mos, list).ok()?;
        let guids = RedactionListPhys::snapshot_guids(&bonus).ok()?;
        Some(guids.iter().map(u64::to_string).collect::<Vec<_>>().join(","))
    }

    fn bookmark(&mut self, name: &str, phys: &BookmarkPhys) {
        let has_space = phys.flags.get() != 0;
        let number = |property: &str| match property {
            "creation" => Some(phys.creation_time.get()),
            "createtxg" => Some(phys.creation_txg.get()),
            "guid" => Some(phys.guid.get()),
            "referenced" if has_space => Some(phys.referenced_bytes.get()),
            "logicalreferenced" if has_space => Some(phys.uncompressed_bytes.get()),
            _ => None,
        };
        let value = |property: &str| -> Option<PropertyValue> {
            let property = find(property)?.name;
            let value: Value = match property {
                "name" => name.into(),
                "type" => DatasetKind::Bookmark.word().into(),
                "redact_snaps" => self.redaction_snapshots(phys)?.into(),
                _ => number(property)?.into(),
            };
            Some(PropertyValue::new(property, value, Source::None))
        };
        let properties = match &self.list.properties {
            Wanted::Only(names) => names.iter().filter_map(|property| value(property)).collect(),
            Wanted::All => {
                let visible = PROPERTIES.iter().filter(|property| property.is_visible() && property.applies_to(DatasetTypes::BOOKMARK));
                visible.filter_map(|property| value(property.name)).collect()
            }
        };
        self.entries.push(DatasetEntry { name: name.to_owned(), kind: DatasetKind::Bookmark, creation_txg: phys.creation_txg.get(), properties });
    }
}
