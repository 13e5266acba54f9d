//! Properties that nobody sets: what is so.
//!
//! # Theory
//! Half of the properties that `zfs get` shows are facts: sums of space, numbers of the records, names of relatives. They are
//! computed here, by name, so that there is one place to ask for any property at all: [`Dataset::any_property`]. Facts
//! that need more than the DSL (whether something is mounted) are not here, and have no value.

use std::sync::Arc;

use ondisk::dsl::{DATASET_FLAG_DEFER_DESTROY, DIR_FLAG_USED_BREAKDOWN, UsedKind, crypto_field, dataset_field, dir_field};
use ondisk::feature::Feature;
use ondisk::object_type::ObjectType;
use ondisk::objset::ObjsetType;

use super::prop::{PropertyValue, PropertyValues, Source};
use super::prop_table::find;
use crate::dsl::dataset::Dataset;
use crate::dsl::tree::dir::Dir;
use crate::error::Result;
use crate::zap::Zap;

/// The master node of a file system.
const MASTER_NODE: u64 = 1;
/// Its entries that are properties, which no other place stores; the version is spelled in capitals there.
pub const MASTER_NODE_ENTRIES: [&str; 10] = [
    "version",
    "utf8only",
    "normalization",
    "casesensitivity",
    "defaultuserquota",
    "defaultgroupquota",
    "defaultprojectquota",
    "defaultuserobjquota",
    "defaultgroupobjquota",
    "defaultprojectobjquota",
];
/// A volume's data, and the ZAP that has its size.
const VOLUME_DATA: u64 = 1;
const VOLUME_ZAP: u64 = 2;
/// The value of `keystatus` of an encrypted dataset: this program loads no keys.
const KEY_UNAVAILABLE: u64 = 1;

/// As the property shows it: in hundredths.
fn ratio(uncompressed: u64, compressed: u64) -> u64 {
    if compressed == 0 { 100 } else { (u128::from(uncompressed) * 100 / u128::from(compressed)) as u64 }
}

impl Dataset {
    /// Any property: a fact, or what is set here or above, or a default. `None`: it has no value here.
    pub fn any_property(self: &Arc<Self>, name: &str) -> Result<Option<(PropertyValue, Source)>> {
        self.any_property_among(&self.property_values(), name)
    }

    /// As [`Dataset::any_property`], where several are asked for.
    pub fn any_property_among(self: &Arc<Self>, values: &PropertyValues<'_>, name: &str) -> Result<Option<(PropertyValue, Source)>> {
        let name = find(name).map_or(name, |property| property.name);
        if let Some(number) = self.number_fact(name)? {
            // Counts are kept only where a limit was set on purpose, so they pass for set.
            let kept = matches!(name, "filesystem_count" | "snapshot_count") && number != u64::MAX;
            return Ok(Some((PropertyValue::Number(number), if kept { Source::Local } else { Source::None })));
        }
        if let Some(value) = self.encryption_fact(name)? {
            return Ok(Some((value, Source::None)));
        }
        if let Some(text) = self.text_fact(name)? {
            return Ok(Some((PropertyValue::Text(text), Source::None)));
        }
        if find(name).is_some_and(|property| property.is_read_only() && !property.is_set_once()) {
            return Ok(None);
        }
        if let Some(number) = self.content_fact(name)? {
            let default = find(name).map(crate::dsl::props::prop_table::Property::default_number);
            let source = match name {
                "volsize" => Source::Local,
                _ if default == Some(number) => Source::Default,
                _ => Source::None,
            };
            return Ok(Some((PropertyValue::Number(number), source)));
        }
        let stored = values.property(name)?;
        let limit = match name {
            "quota" => self.dir.phys().quota.get(),
            "reservation" => self.dir.phys().reserved.get(),
            _ => return Ok(stored),
        };
        // The record is what holds. Pools from before version 22 have these two nowhere else.
        Ok(match stored {
            Some((PropertyValue::Number(number), source)) if number == limit => Some((PropertyValue::Number(number), source)),
            _ if self.is_snapshot => stored,
            _ => Some((PropertyValue::Number(limit), Source::Local)),
        })
    }

    /// Facts of the records.
    fn number_fact(self: &Arc<Self>, name: &str) -> Result<Option<u64>> {
        let phys = self.phys();
        let referenced = self.referenced();
        let head = !self.is_snapshot;
        Ok(Some(match name {
            "creation" => phys.creation_time.get(),
            "createtxg" => phys.creation_txg.get(),
            "guid" => phys.guid.get(),
            "objsetid" => self.object,
            "unique" => phys.unique_bytes.get(),
            "inconsistent" => u64::from(self.is_inconsistent()),
            "redacted" => u64::from(self.features().contains(&Feature::RedactedDatasets)),
            "used" if head => self.dir.space().used,
            "used" => phys.unique_bytes.get(),
            "available" if head => self.available(),
            "referenced" => referenced.used,
            "compressratio" if head => {
                let space = self.dir.space();
                ratio(space.uncompressed, space.compressed)
            }
            "compressratio" | "refcompressratio" => ratio(referenced.uncompressed, referenced.compressed),
            // Pools from before version 11 have nothing before the first snapshot; there is no answer then, as in OpenZFS.
            "written" => return if phys.prev_snapshot.get() == 0 { Ok(None) } else { self.written().map(Some) },
            "logicalreferenced" => referenced.uncompressed,
            "logicalused" if head => self.dir.space().uncompressed,
            // Pools from before version 13 do not keep these apart.
            "usedbysnapshots" | "usedbydataset" | "usedbychildren" | "usedbyrefreservation"
                if self.dir.phys().flags.get() & DIR_FLAG_USED_BREAKDOWN == 0 =>
            {
                return Ok(None);
            }
            "usedbysnapshots" if head => self.dir.used_by(UsedKind::Snapshot),
            "usedbydataset" if head => self.dir.used_by(UsedKind::Head),
            "usedbychildren" if head => self.dir.used_by(UsedKind::Child).saturating_add(self.dir.used_by(UsedKind::ChildReservation)),
            "usedbyrefreservation" if head => self.dir.used_by(UsedKind::RefReservation),
            "numclones" if !head => phys.children.get().saturating_sub(1),
            "defer_destroy" if !head => u64::from(phys.flags.get() & DATASET_FLAG_DEFER_DESTROY != 0),
            "userrefs" if !head => match phys.user_holds.get() {
                0 => 0,
                holds => self.meta().mos.zap_count(holds)?,
            },
            "filesystem_count" if head => self.dir_field(dir_field::FILESYSTEM_COUNT)?.unwrap_or(u64::MAX),
            "snapshot_count" if head => self.dir_field(dir_field::SNAPSHOT_COUNT)?.unwrap_or(u64::MAX),
            "snapshots_changed" if head => return self.dir_field(dir_field::SNAPSHOTS_CHANGED),
            _ => return Ok(None),
        }))
    }

    fn dir_field(&self, field: &str) -> Result<Option<u64>> {
        let mos = &self.meta().mos;
        if mos.info(self.dir.object)?.object_type != ObjectType::ZAP_METADATA {
            return Ok(None);
        }
        mos.zap_u64(self.dir.object, field)
    }

    /// What is known of a key that is not loaded. The record of the key is below the directory, so snapshots have it too.
    fn encryption_fact(&self, name: &str) -> Result<Option<PropertyValue>> {
        let (mos, key) = (&self.meta().mos, self.dir.crypto_key);
        if key == 0 {
            return Ok(None);
        }
        let number = match name {
            "encryption" => mos.zap_u64(key, crypto_field::SUITE)?,
            "keyguid" => mos.zap_u64(key, crypto_field::GUID)?,
            "keyformat" | "pbkdf2salt" | "pbkdf2iters" => Some(mos.zap_u64(key, name)?.unwrap_or(0)),
            "keystatus" => Some(KEY_UNAVAILABLE),
            "ivsetguid" if mos.info(self.object)?.object_type == ObjectType::ZAP_METADATA => {
                mos.zap_u64(self.object, dataset_field::IVSET_GUID)?
            }
            "encryptionroot" => {
                let Some(root) = mos.zap_u64(key, crypto_field::ROOT_DIR)? else { return Ok(None) };
                return Ok(Some(PropertyValue::Text(self.tree().dir(root, None)?.full_name())));
            }
            _ => None,
        };
        Ok(number.map(PropertyValue::Number))
    }

    /// Names of relatives, and the type.
    fn text_fact(self: &Arc<Self>, name: &str) -> Result<Option<String>> {
        match name {
            "name" => self.name().map(Some),
            "type" if self.is_snapshot => Ok(Some("snapshot".to_owned())),
            "type" => Ok(Some(
                match self.objset_type()? {
                    ObjsetType::Volume => "volume",
                    _ => "filesystem",
                }
                .to_owned(),
            )),
            "origin" => self.origin()?.map(|origin| origin.name()).transpose(),
            "clones" if self.is_snapshot => self.clones().map(|names| Some(names.join(",")).filter(|names| !names.is_empty())),
            "prevsnap" => match self.prev().filter(|prev| Some(prev.object) != self.tree().origin_snapshot()) {
                Some(prev) => prev.name().map(Some),
                None => Ok(None),
            },
            "receive_resume_token" => self.resume_token(),
            "redact_snaps" => self.redaction_snapshots(),
            _ => Ok(None),
        }
    }

    /// The guids of the snapshots that it was redacted for, in a line.
    fn redaction_snapshots(&self) -> Result<Option<String>> {
        if !self.features().contains(&Feature::RedactedDatasets) {
            return Ok(None);
        }
        let value = self.meta().mos.zap_get(self.object, Feature::RedactedDatasets.guid())?;
        let guids = value.map_or(Vec::new(), |value| value.to_u64s());
        Ok(Some(guids.iter().map(u64::to_string).collect::<Vec<_>>().join(",")))
    }

    /// What its object set is, which for a snapshot is what its head's is; `None` for `$ORIGIN`, which has none.
    pub fn objset_type(self: &Arc<Self>) -> Result<ObjsetType> {
        if self.is_snapshot {
            // So that of ten thousand snapshots in a listing none is opened.
            let head = self.tree().dataset(self.dir.phys().head_dataset.get())?;
            if !head.is_snapshot {
                return head.objset_type();
            }
        }
        if self.phys().block.is_hole() {
            return Ok(ObjsetType::None);
        }
        Ok(self.objset()?.objset_type())
    }

    /// The names of a snapshot's clones.
    pub fn clones(&self) -> Result<Vec<String>> {
        let clones = self.phys().next_clones.get();
        let mut names = Vec::new();
        if clones != 0 {
            for (_, value) in self.meta().mos.zap_entries(clones)? {
                let clone = self.tree().dataset_record(value.first())?;
                names.push(self.tree().dir(clone.dir.get(), None)?.full_name());
            }
        } else if self.phys().children.get() > 1 {
            // Pools from before version 11 have no list of them.
            self.clones_below(&self.tree().root_dir()?, &mut names)?;
        }
        names.sort();
        Ok(names)
    }

    /// Of the datasets in and below `dir`, those that were made of this snapshot.
    fn clones_below(&self, dir: &Arc<Dir>, names: &mut Vec<String>) -> Result<()> {
        if dir.phys().origin.get() == self.object {
            names.push(dir.full_name());
        }
        for (_, child) in self.tree().children(dir)? {
            self.clones_below(&child, names)?;
        }
        Ok(())
    }

    /// What is written in the object set itself. Nothing if that is lost: everything else about the dataset can still be said.
    fn content_fact(self: &Arc<Self>, name: &str) -> Result<Option<u64>> {
        match self.read_content_fact(name) {
            Err(error) if error.is_loss() => Ok(None),
            fact => fact,
        }
    }

    fn read_content_fact(self: &Arc<Self>, name: &str) -> Result<Option<u64>> {
        if name == "volsize" || name == "volblocksize" {
            if self.objset_type()? != ObjsetType::Volume {
                return Ok(None);
            }
            let objset = self.objset()?;
            return match name {
                "volsize" => Zap::open(&objset, VOLUME_ZAP)?.lookup_u64("size"),
                _ => Ok(Some(objset.hold(VOLUME_DATA)?.block_bytes())),
            };
        }
        if !MASTER_NODE_ENTRIES.contains(&name) || self.objset_type()? != ObjsetType::FileSystem {
            return Ok(None);
        }
        let entry = if name == "version" { "VERSION" } else { name };
        let objset = self.objset()?;
        let number = Zap::open(&objset, MASTER_NODE)?.lookup_u64(entry)?;
        Ok(Some(number.unwrap_or(0)))
    }
}
