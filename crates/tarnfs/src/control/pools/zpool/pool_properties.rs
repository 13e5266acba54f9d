//! `zpool list`, `zpool get`, `zpool set`

use engine::dsl::PropertyValue as Stored;
use engine::dsl::prop_table::{PropertyKind, is_user_property};
use engine::error::Result;
use engine::pool::PoolCapacity;
use engine::pool::prop_table::{PROPERTIES, find};
use ondisk::feature::Feature;

use super::create::{PoolSettings, When};
use super::cachefile;
use super::inspect::readable;
use crate::control::pools::beside::{self, Table};
use crate::control::pools::{Failure, FailureKind, Imported, Pools};
use crate::control::{PoolEntry, PoolSelect, PoolSet, PoolStatus, PropertyValue, Source, Value, Wanted};

/// Nothing is deduplicated or cloned: 1.00x.
const RATIO_NONE: u64 = 100;
/// The first version of pools that can say what they are booted from.
const VERSION_BOOTFS: u64 = 6;
/// Fragmentation that is not known.
const UNKNOWN: u64 = u64::MAX;
/// The largest block and dnode with all features.
const BLOCK_BYTES_MAX: u64 = 16 << 20;
const DNODE_BYTES_MAX: u64 = 16 << 10;

/// One pool, looked at once.
struct View<'a> {
    imported: &'a Imported,
    status: &'a PoolStatus,
    capacity: PoolCapacity,
    stored: Vec<(String, Stored)>,
}

/// What `zpool list` and `zpool get` show.
pub(in crate::control::pools) fn entries(table: &Table, select: &PoolSelect) -> Result<Vec<PoolEntry>, Failure> {
    let pools = beside::select(table, select.name.as_deref())?;
    Ok(pools.into_iter().map(|(name, imported)| entry(table, name, imported, &select.properties)).collect())
}

impl Pools {
    pub(in crate::control::pools) fn set_pool_properties(&mut self, set: &PoolSet) -> Result<(), Failure> {
        let imported = self.find(&set.name)?;
        let engine = imported.pool.engine().clone();
        let mut settings = PoolSettings::of(&set.settings, When::Existing)?;
        if engine.is_read_only() {
            return Err(Failure::new(FailureKind::PoolReadOnly));
        }
        for (name, value) in &mut settings.stored {
            if let ("bootfs", Stored::Text(dataset)) = (name.as_str(), &*value) {
                if engine.config().version < VERSION_BOOTFS {
                    return Err(Failure::with(FailureKind::PoolNotSupported, "pool must be upgraded to set this property or value"));
                }
                *value = if dataset.is_empty() { Stored::Text(String::new()) } else { Stored::Number(boot_dataset(imported, dataset)?) };
            }
        }
        let cachefile = settings.cachefile.take();
        store(&engine, settings)?;
        if let (Some(cachefile), Some(imported)) = (cachefile, self.pools.get(&set.name)) {
            let before = imported.cachefile.lock().replace(cachefile);
            self.forget_in_cachefile(before.as_deref());
        }
        self.write_cachefile(&set.name);
        Ok(())
    }
}

/// Writes what a pool keeps of settings, and does what they ask for.
pub(super) fn store(engine: &engine::pool::Pool, settings: PoolSettings) -> Result<(), Failure> {
    let failed = |error: crate::Error| Failure::about_pool(&error);
    let mut values = settings.stored;
    for (name, text) in [("comment", settings.comment), ("compatibility", settings.compatibility)] {
        values.extend(text.map(|text| (name.to_owned(), Stored::Text(text))));
    }
    if !values.is_empty() {
        engine.set_properties(values).map_err(failed)?;
        engine.obey_failmode().map_err(failed)?;
    }
    if !settings.features.is_empty() {
        engine.enable_features(settings.features).map_err(failed)?;
    }
    Ok(())
}

/// The number of a dataset that the pool may be booted from.
fn boot_dataset(imported: &Imported, name: &str) -> Result<u64, Failure> {
    let bad = || Failure::with(FailureKind::BadProperty, format!("'{name}' is an invalid name"));
    if name.split('/').next() != Some(&imported.pool.name()) || name.contains('@') {
        return Err(bad());
    }
    imported.pool.engine().dsl.open_dataset(name).map(|dataset| dataset.object).map_err(|_| bad())
}

fn entry(table: &Table, name: &str, imported: &Imported, wanted: &Wanted) -> PoolEntry {
    let status = beside::status(table, name, imported);
    let capacity = imported.pool.engine().capacity();
    let suspended = status.suspended.is_some();
    let stored = if suspended { Vec::new() } else { readable(&imported.pool, "what is stored of properties", imported.pool.engine().stored_properties()) };
    let view = View { imported, status: &status, capacity, stored };
    let properties = view.properties(wanted);
    PoolEntry { name: name.to_owned(), guid: status.guid, properties, status }
}

impl View<'_> {
    fn properties(&self, wanted: &Wanted) -> Vec<PropertyValue> {
        let mut properties = Vec::new();
        match wanted {
            Wanted::Only(names) => {
                for name in names {
                    properties.extend(self.one(name));
                }
            }
            Wanted::All => {
                for property in PROPERTIES.iter().filter(|property| property.is_visible()) {
                    properties.extend(self.native(property.name));
                }
                properties.extend(Feature::all().map(|feature| self.feature(feature)));
                for unsupported in &self.imported.pool.engine().unsupported {
                    properties.push(PropertyValue::new(format!("unsupported@{}", unsupported.guid), "readonly", Source::Local));
                }
                properties.extend(self.stored.iter().filter(|(name, _)| is_user_property(name)).filter_map(|(name, _)| self.user(name)));
            }
        }
        properties
    }

    fn one(&self, name: &str) -> Option<PropertyValue> {
        if let Some(feature) = name.strip_prefix("feature@") {
            return Feature::from_name(feature).map(|feature| self.feature(feature));
        }
        match find(name) {
            Some(property) => self.native(property.name),
            None => self.user(name),
        }
    }

    fn user(&self, name: &str) -> Option<PropertyValue> {
        match self.stored(name)? {
            Stored::Text(text) => Some(PropertyValue::new(name, text.as_str(), Source::Local)),
            Stored::Number(_) => None,
        }
    }

    fn feature(&self, feature: Feature) -> PropertyValue {
        let state = match self.imported.pool.engine().dsl.meta.features.count(feature) {
            None => "disabled",
            Some(0) => "enabled",
            Some(_) => "active",
        };
        PropertyValue::new(format!("feature@{}", feature.name()), state, Source::Local)
    }

    fn stored(&self, name: &str) -> Option<&Stored> {
        self.stored.iter().find(|(known, _)| known == name).map(|(_, value)| value)
    }

    /// A property that cannot be read has no value.
    fn native(&self, name: &'static str) -> Option<PropertyValue> {
        readable(&self.imported.pool, name, self.read_native(name))
    }

    fn read_native(&self, name: &'static str) -> Result<Option<PropertyValue>> {
        if let Some(number) = self.fact(name)? {
            return Ok(Some(PropertyValue::new(name, number, Source::None)));
        }
        if let Some((text, source)) = self.text(name)? {
            return Ok(Some(PropertyValue::new(name, text, source)));
        }
        Ok(self.setting(name))
    }

    /// What is so and nobody sets.
    fn fact(&self, name: &str) -> Result<Option<Value>> {
        let engine = self.imported.pool.engine();
        let PoolCapacity { size, allocated, fragmentation } = self.capacity;
        let number = match name {
            "name" => return Ok(Some(self.imported.pool.name().into())),
            "health" => return Ok(Some(self.status.health().into())),
            "size" => size,
            "allocated" => allocated,
            "free" => size.saturating_sub(allocated),
            "capacity" => (u128::from(allocated) * 100 / u128::from(size.max(1))) as u64,
            "fragmentation" => match engine.space_maps {
                Some(_) if engine.dsl.meta.features.is_active(Feature::SpacemapHistogram) => fragmentation,
                _ => UNKNOWN,
            },
            "guid" => self.status.guid,
            "load_guid" => self.imported.load_guid,
            "dedupratio" | "dedup_table_size" | "bcloneratio" | "bcloneused" | "bclonesaved" => self.sharing(name),
            "freeing" => self.hidden_dir("$FREE")?,
            "leaked" => self.hidden_dir("$LEAK")?,
            "checkpoint" => self.status.checkpoint.as_ref().map_or(0, |checkpoint| checkpoint.space),
            "expandsize" => engine.vdevs.data_tops().iter().map(|top| top.expandable()).sum(),
            "dedupcached" => 0,
            "last_scrubbed_txg" => engine.last_scrubbed_txg()?,
            "readonly" => engine.is_read_only().into(),
            "maxblocksize" => BLOCK_BYTES_MAX,
            "maxdnodesize" => DNODE_BYTES_MAX,
            _ => return Ok(None),
        };
        Ok(Some(Value::Number(number)))
    }

    /// What deduplication and cloning do for the pool.
    fn sharing(&self, name: &str) -> u64 {
        let (dedup, clones) = self.imported.pool.engine().shared_space();
        let ratio = |all: u64, there: u64| (u128::from(all) * 100).checked_div(u128::from(there)).map_or(RATIO_NONE, |ratio| ratio as u64);
        match name {
            "dedupratio" => ratio(dedup.referenced, dedup.allocated),
            "dedup_table_size" => dedup.tables,
            "bcloneratio" => ratio(clones.used.saturating_add(clones.saved), clones.used),
            "bcloneused" => clones.used,
            _ => clones.saved,
        }
    }

    /// The space counted in one of the pool's own directories.
    fn hidden_dir(&self, name: &str) -> Result<u64> {
        let dsl = &self.imported.pool.engine().dsl;
        let _names = dsl.lock_names();
        Ok(dsl.find_child(&*dsl.root_dir()?, name)?.map_or(0, |dir| dir.space().used))
    }

    /// Texts that are kept elsewhere than in the dictionary.
    fn text(&self, name: &str) -> Result<Option<(Value, Source)>> {
        let engine = self.imported.pool.engine();
        let config = engine.config();
        let local = |text: Option<String>| text.filter(|text| !text.is_empty()).map(|text| (Value::Text(text), Source::Local));
        Ok(match name {
            "altroot" => local(self.imported.altroot.clone()),
            "cachefile" => local(cachefile::shown(self.imported.cachefile.lock().as_deref())),
            "comment" => local(config.comment.map(|text| text.to_string())),
            "compatibility" => local(config.compatibility.map(|text| text.to_string())),
            "bootfs" => match self.stored(name) {
                Some(Stored::Number(object)) if *object != 0 => local(engine.dsl.dataset(*object)?.name().ok()),
                _ => None,
            },
            _ => None,
        })
    }

    /// What is stored, or the default.
    fn setting(&self, name: &'static str) -> Option<PropertyValue> {
        let property = find(name)?;
        if name == "version" {
            let version = self.status.version;
            let source = if version == property.default_number() { Source::Default } else { Source::Local };
            return Some(PropertyValue::new(name, version, source));
        }
        let default = match property.kind {
            PropertyKind::Text { .. } => return None,
            PropertyKind::Number { default } | PropertyKind::Index { default, .. } => default,
        };
        Some(match self.stored(name) {
            Some(Stored::Number(number)) => {
                let source = if *number == default { Source::Default } else { Source::Local };
                PropertyValue::new(name, *number, source)
            }
            _ => PropertyValue::new(name, default, Source::Default),
        })
    }
}
