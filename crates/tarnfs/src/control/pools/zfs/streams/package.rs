//! `zfs send -R`, `-p`, `-b`, `-h`: what a package of streams says of its datasets.
//!
//! # Theory
//! A receiver that is to make the same tree has to know names, guids, clones and properties before the first stream. The list has the
//! datasets from the top down, in the order of the pool's own dictionaries, as OpenZFS's has: that is how streams can be compared.
//!
//! # On disk
//! A packed nvlist: for each dataset, under the hexadecimal guid of its head, `name`, `parentfromsnap`, `origin`, `props`,
//! `is_encroot`, `snaps`, `snapprops`, `snapholds`.

use std::sync::Arc;

use engine::dsl::prop_table::{find, is_user_property};
use engine::dsl::{Dataset, Dsl};
use ondisk::dsl::{crypto_field, dir_field};
use ondisk::nvlist::{NvList, NvString, Value};

use crate::control::pools::{Failure, Pools};
use crate::control::{Package, PackageAsk, PackageDataset};

/// Ends the key of a received value.
const RECEIVED: &str = "$recvd";
/// Ends the key of a value that older programs do not know.
const UNKNOWN_TO_OTHERS: &str = "$iuv";
/// Ends the key that says "inherit".
const INHERIT: &str = "$inherit";
/// Limits of space are of file systems alone.
const SPACE_LIMITS: [&str; 4] = ["quota", "reservation", "refquota", "refreservation"];

type Result<T> = std::result::Result<T, crate::Error>;

impl Pools {
    pub(in crate::control::pools) fn package(&self, ask: &PackageAsk) -> std::result::Result<Package, Failure> {
        let dsl = &self.pool_of(&ask.dataset)?.pool.engine().dsl;
        let mut gathering = Gathering { dsl, ask, list: NvList::new(), package: Package::default() };
        let gathered = dsl.open_dataset(&ask.dataset).and_then(|head| gathering.dataset(&head, 0, 0));
        gathered.map_err(|error| Failure::about_dataset(&error))?;
        let Gathering { list, mut package, .. } = gathering;
        package.list = list.encode_xdr();
        Ok(package)
    }
}

/// A package that is being put together.
struct Gathering<'a> {
    dsl: &'a Arc<Dsl>,
    ask: &'a PackageAsk,
    list: NvList,
    package: Package,
}

impl Gathering<'_> {
    /// Takes a dataset and, if all is wanted, those below it. `parent_from`: the guid of the parent's snapshot; `to_txg`: the txg of
    /// the snapshot that is sent, of the parent.
    fn dataset(&mut self, head: &Arc<Dataset>, parent_from: u64, to_txg: u64) -> Result<()> {
        let name = head.dir.full_name();
        let is_excluded = |excluded: &String| name.strip_prefix(excluded.as_str()).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
        if self.package.refused.is_some() || self.ask.exclude.iter().any(is_excluded) {
            return Ok(());
        }
        let snapshots = head.snapshots()?;
        let txg_of = |wanted: &str| match snapshots.iter().find(|(name, _)| name == wanted) {
            Some((_, object)) => self.dsl.dataset_record(*object).map(|phys| phys.creation_txg.get()),
            None => Ok(0),
        };
        let own_txg = txg_of(&self.ask.to)?;
        if own_txg == 0 {
            self.without_snapshot(head, &name, to_txg);
            return Ok(());
        }
        let mut list = NvList::new();
        list.set("name", name.as_str());
        list.set("parentfromsnap", parent_from);
        let origin = head.origin()?.map(|origin| origin.phys().guid.get());
        if let Some(guid) = origin {
            list.set("origin", guid);
        }
        if self.ask.properties || self.ask.received || self.ask.replicate {
            list.set("props", self.properties(head.dir.phys().props.get(), false)?);
        }
        if let Some(refused) = self.encryption(head, &name, &mut list)? {
            self.package.refused = Some(refused);
            return Ok(());
        }
        let (from_guid, shown) = self.snapshots(&snapshots, own_txg, txg_of(self.ask.from.as_deref().unwrap_or_default())?, &mut list)?;
        self.list.set(format!("{:#x}", head.phys().guid.get()), list);
        self.package.datasets.push(PackageDataset { name, parent_from, origin, snapshots: shown });
        if self.ask.replicate {
            let children = head.dir.phys().child_dirs.get();
            for (child, object) in if children == 0 { Vec::new() } else { self.dsl.meta.mos.zap_entries(children)? } {
                // The pool's own, and what is being received.
                if !child.starts_with(['$', '%']) {
                    let dir = self.dsl.dir(object.first(), Some(&child))?;
                    self.dataset(&self.dsl.dataset(dir.phys().head_dataset.get())?, from_guid, own_txg)?;
                }
            }
        }
        Ok(())
    }

    /// A dataset has no such snapshot: it is newer, or that is an error.
    fn without_snapshot(&mut self, head: &Dataset, name: &str, to_txg: u64) {
        let to = &self.ask.to;
        if to_txg != 0 && head.phys().creation_txg.get() > to_txg {
            if self.ask.verbose {
                self.package.notes.push(format!("skipping dataset {name}: snapshot {to} does not exist"));
            }
        } else if self.ask.skip_missing {
            self.package.notes.push(format!("WARNING: skipping dataset {name} and its children: snapshot {to} does not exist"));
        } else {
            let recursively = if self.ask.replicate { " recursively" } else { "" };
            self.package.refused = Some(format!("cannot send {}@{to}{recursively}: snapshot {name}@{to} does not exist", self.ask.dataset));
        }
    }

    /// What is encrypted is sent with its properties only as it is.
    fn encryption(&self, head: &Dataset, name: &str, list: &mut NvList) -> Result<Option<String>> {
        let mos = &self.dsl.meta.mos;
        let has_fields = mos.info(head.dir.object)?.object_type == ondisk::object_type::ObjectType::ZAP_METADATA;
        let Some(key) = (if has_fields { mos.zap_u64(head.dir.object, dir_field::CRYPTO_KEY)? } else { None }) else { return Ok(None) };
        if mos.zap_u64(key, crypto_field::ROOT_DIR)? == Some(head.dir.object) {
            list.set_flag("is_encroot");
        }
        let refused = || {
            format!(
                "cannot send {}@{}: encrypted dataset {name} may not be sent with properties without the raw flag or no-preserve-encryption flag",
                self.ask.dataset, self.ask.to
            )
        };
        Ok((!self.ask.raw).then(refused))
    }

    /// The snapshots of a dataset, oldest first. Returns the guid that its children are to wait for.
    fn snapshots(&self, all: &[(String, u64)], to_txg: u64, from_txg: u64, list: &mut NvList) -> Result<(u64, Vec<(String, u64)>)> {
        let ask = self.ask;
        let (mut guids, mut properties, mut holds) = (NvList::new(), NvList::new(), NvList::new());
        let (mut from_guid, mut shown) = (0, Vec::new());
        let mut seen_from = ask.from.is_none() && ask.all;
        let is_series = ask.all || ask.replicate;
        for (name, object) in all {
            let snapshot = self.dsl.dataset(*object)?;
            let phys = snapshot.phys();
            let (txg, guid) = (phys.creation_txg.get(), phys.guid.get());
            let (is_from, is_to) = (ask.from.as_ref() == Some(name), ask.to == *name);
            if txg > to_txg || (!is_series && !is_to) || (is_series && !ask.replicate && from_txg != 0 && txg < from_txg) {
                continue;
            }
            guids.set(name.as_str(), guid);
            shown.push((name.clone(), guid));
            if is_from || (from_guid == 0 && is_to) {
                from_guid = guid;
            }
            if !ask.replicate {
                if !seen_from && is_from {
                    seen_from = true;
                    continue;
                }
                if !seen_from && !is_to {
                    continue;
                }
            }
            properties.set(name.as_str(), self.properties(phys.props.get(), true)?);
            if ask.holds {
                let tags = if phys.user_holds.get() == 0 { Vec::new() } else { self.dsl.meta.mos.zap_entries(phys.user_holds.get())? };
                let mut held = NvList::new();
                tags.iter().for_each(|(tag, since)| held.set(tag.as_str(), since.first()));
                holds.set(name.as_str(), held);
            }
        }
        list.set("snaps", guids);
        list.set("snapprops", properties);
        if ask.holds {
            list.set("snapholds", holds);
        }
        Ok((from_guid, shown))
    }

    /// The properties that a dictionary sets, or that came with a stream.
    fn properties(&self, dictionary: u64, is_snapshot: bool) -> Result<NvList> {
        let mut list = NvList::new();
        let entries = if dictionary == 0 { Vec::new() } else { self.dsl.meta.mos.zap_entries(dictionary)? };
        for (key, value) in &entries {
            let (name, suffix) = key.split_at(key.find('$').unwrap_or(key.len()));
            let has = |suffix: &str| entries.iter().any(|(other, _)| other.strip_suffix(suffix) == Some(name));
            let counts = match suffix {
                "" => !self.ask.received,
                RECEIVED => self.ask.received || !(has("") || has(INHERIT)),
                _ => false,
            };
            let property = find(name);
            let is_sent = is_user_property(name) || property.is_some_and(|property| !property.is_read_only());
            if name.is_empty() || !counts || !is_sent || (is_snapshot && SPACE_LIMITS.contains(&name)) {
                continue;
            }
            // What older programs do not know stands beside what they see.
            let true_value = entries.iter().find(|(other, _)| suffix.is_empty() && other.strip_suffix(UNKNOWN_TO_OTHERS) == Some(name));
            let value = true_value.map_or(value, |(_, value)| value);
            let is_text = property.map_or(value.integer_size() == 1, engine::dsl::prop_table::Property::is_text);
            list.set(name, if is_text { Value::String(NvString::from(value.to_text().as_str())) } else { Value::UInt64(value.first()) });
        }
        Ok(list)
    }
}
