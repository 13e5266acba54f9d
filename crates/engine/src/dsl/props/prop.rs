//! Properties: which value counts, and where it comes from.
//!
//! # Theory
//! A value is looked for in the dataset's own dictionary; if it is not there and the property is inheritable, in that of the
//! directory above, and so on; at last the table's default counts. One dictionary can hold four entries for one property:
//!
//! ```text
//!   name            set here
//!   name$recvd      came with a received stream; counts if there is no `name`
//!   name$inherit    "inherit, although a value was received"
//!   name$iuv        the true value, where older programs do not know it and shall see the default in `name`
//! ```
//!
//! A snapshot has a small dictionary of its own, and inherits from its file system what is inheritable.
//!
//! # On disk
//! ZAPs; numbers and words as one `u64`, text as bytes with a final zero.

use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use super::prop_table::{Property, PropertyKind, find};
use crate::bail;
use crate::dsl::dataset::Dataset;
use crate::dsl::meta::Meta;
use crate::dsl::tree::dir::Dir;
use crate::error::Result;
use crate::zap::Value;

/// Ends the key of a received value.
pub(in crate::dsl) const RECEIVED: &str = "$recvd";
/// Ends the key that says "inherit".
pub(in crate::dsl) const INHERIT: &str = "$inherit";
/// Ends the key of a value that older programs do not know.
pub(in crate::dsl) const UNKNOWN_TO_OTHERS: &str = "$iuv";
/// The entry of a dictionary into which properties were received.
pub(in crate::dsl) const HAS_RECEIVED: &str = "$hasrecvd";

/// Entries of a dictionary that is read as a whole where several are asked for.
const SMALL: u64 = 64;

/// A property's value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PropertyValue {
    /// A number or a word's number.
    Number(u64),
    /// Text.
    Text(String),
}

impl PropertyValue {
    /// The number; of a text 0.
    pub fn number(&self) -> u64 {
        match self {
            PropertyValue::Number(number) => *number,
            PropertyValue::Text(_) => 0,
        }
    }
}

/// What is stored of a property with a dataset itself.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct StoredProperty {
    /// The value that was set.
    pub set: Option<PropertyValue>,
    /// The value that came with a stream.
    pub received: Option<PropertyValue>,
    /// It is inherited, although a value came with a stream.
    pub inherits: bool,
}

/// Where a value comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    /// Nobody set it.
    Default,
    /// Set on this dataset.
    Local,
    /// Received with this dataset.
    Received,
    /// Set on, or received with, the dataset of that name above.
    Inherited(String),
    /// Of this mount only.
    Temporary,
    /// It is no setting but a fact.
    None,
}

fn value_of(property: Option<&Property>, value: &Value) -> PropertyValue {
    let is_text = property.map_or(value.integer_size() == 1, Property::is_text);
    if is_text { PropertyValue::Text(value.to_text()) } else { PropertyValue::Number(value.first()) }
}

/// The default, for properties that somebody can set.
fn default_of(property: Option<&Property>) -> Option<PropertyValue> {
    let property = property.filter(|p| !p.is_read_only() || p.is_set_once())?;
    match property.kind {
        PropertyKind::Text { default } => default.map(|text| PropertyValue::Text(text.to_owned())),
        PropertyKind::Number { default } | PropertyKind::Index { default, .. } => Some(PropertyValue::Number(default)),
    }
}

/// What one dictionary says.
enum Found {
    Here(Value),
    Received(Value),
    Nothing,
}

/// Where dictionaries are read.
trait Dictionaries {
    /// The value of a key in a dictionary.
    fn get(&self, dictionary: u64, key: &str) -> Result<Option<Value>>;
}

impl Dictionaries for Meta {
    fn get(&self, dictionary: u64, key: &str) -> Result<Option<Value>> {
        self.mos.zap_get(dictionary, key)
    }
}

/// Looks into one dictionary. `property` is the table's row, if it is no property of the user's.
fn look(dictionaries: &impl Dictionaries, dictionary: u64, name: &str, property: Option<&Property>) -> Result<Found> {
    let get = |suffix: &str| dictionaries.get(dictionary, &format!("{name}{suffix}"));
    if let Some(value) = get(UNKNOWN_TO_OTHERS)?
        && property.is_some_and(|p| p.words().is_empty() || p.number_to_word(value.first()).is_some())
    {
        return Ok(Found::Here(value));
    }
    if let Some(value) = get("")? {
        return Ok(Found::Here(value));
    }
    if get(INHERIT)?.is_none()
        && let Some(value) = get(RECEIVED)?
    {
        return Ok(Found::Received(value));
    }
    Ok(Found::Nothing)
}

/// The value of `name` for a directory (`of_snapshot`: for one of its snapshots), and its source.
/// `None`: a property of the user's that is not set anywhere, or a fact that is not stored.
pub(in crate::dsl) fn dir_property(meta: &Meta, dir: &Arc<Dir>, name: &str, of_snapshot: bool) -> Result<Option<(PropertyValue, Source)>> {
    dir_property_in(meta, dir, name, of_snapshot)
}

fn dir_property_in(dictionaries: &impl Dictionaries, dir: &Arc<Dir>, name: &str, of_snapshot: bool) -> Result<Option<(PropertyValue, Source)>> {
    let property = find(name);
    let inheritable = property.is_none_or(Property::is_inheritable);
    let mut at = Some(dir.clone());
    let mut own = !of_snapshot;
    while let Some(here) = at {
        if !own && !inheritable {
            break;
        }
        match look(dictionaries, here.phys().props.get(), name, property)? {
            Found::Here(value) | Found::Received(value) if !own => {
                return Ok(Some((value_of(property, &value), Source::Inherited(here.full_name()))));
            }
            Found::Here(value) => return Ok(Some((value_of(property, &value), Source::Local))),
            Found::Received(value) => return Ok(Some((value_of(property, &value), Source::Received))),
            Found::Nothing => {}
        }
        at = here.parent();
        own = false;
    }
    Ok(default_of(property).map(|value| (value, Source::Default)))
}

fn number_of(name: &str, value: Option<(PropertyValue, Source)>) -> Result<u64> {
    match value {
        Some((PropertyValue::Number(number), _)) => Ok(number),
        Some((PropertyValue::Text(_), _)) => bail!(Invalid, "the property {name} is no number"),
        None => Ok(0),
    }
}

/// Properties of one dataset at one moment: each dictionary that may have them is read once, unless it is large.
pub struct PropertyValues<'a> {
    dataset: &'a Dataset,
    /// What was read. `None`: a large dictionary, which is asked for each key.
    read: RefCell<Vec<(u64, Option<HashMap<String, Value>>)>>,
}

impl PropertyValues<'_> {
    /// As [`Dataset::property`].
    pub fn property(&self, name: &str) -> Result<Option<(PropertyValue, Source)>> {
        self.dataset.property_in(self, name)
    }

    /// As [`Dataset::number_property`].
    pub fn number_property(&self, name: &str) -> Result<u64> {
        number_of(name, self.property(name)?)
    }
}

impl Dictionaries for PropertyValues<'_> {
    fn get(&self, dictionary: u64, key: &str) -> Result<Option<Value>> {
        let mos = &self.dataset.meta().mos;
        let mut read = self.read.borrow_mut();
        let at = match read.iter().position(|(known, _)| *known == dictionary) {
            Some(at) => at,
            None => {
                let is_small = dictionary != 0 && mos.zap(dictionary)?.len()? <= SMALL;
                let entries = if is_small { Some(mos.zap_entries(dictionary)?.into_iter().collect()) } else { None };
                read.push((dictionary, entries));
                read.len() - 1
            }
        };
        match &read[at].1 {
            Some(entries) => Ok(entries.get(key).cloned()),
            None => mos.zap_get(dictionary, key),
        }
    }
}

impl Dataset {
    /// The value of a property and its source. `None`: a property of the user's that is not set, or a fact that is not stored.
    pub fn property(&self, name: &str) -> Result<Option<(PropertyValue, Source)>> {
        self.property_in(self.meta(), name)
    }

    fn property_in(&self, dictionaries: &impl Dictionaries, name: &str) -> Result<Option<(PropertyValue, Source)>> {
        let own = self.phys().props.get();
        let property = find(name);
        // The key is the property's name even if it was asked for by its heading.
        let name = property.map_or(name, |p| p.name);
        if own != 0 {
            match look(dictionaries, own, name, property)? {
                Found::Here(value) => return Ok(Some((value_of(property, &value), Source::Local))),
                Found::Received(value) => return Ok(Some((value_of(property, &value), Source::Received))),
                Found::Nothing => {}
            }
        }
        dir_property_in(dictionaries, &self.dir, name, self.is_snapshot)
    }

    /// The number that a property of the table has here.
    pub fn number_property(&self, name: &str) -> Result<u64> {
        number_of(name, self.property(name)?)
    }

    /// For several questions at one moment.
    pub fn property_values(&self) -> PropertyValues<'_> {
        PropertyValues { dataset: self, read: RefCell::default() }
    }

    /// The received value of a property, counting or not.
    pub fn received_property(&self, name: &str) -> Result<Option<PropertyValue>> {
        let dictionary = if self.is_snapshot { self.phys().props.get() } else { self.dir.phys().props.get() };
        if dictionary == 0 {
            return Ok(None);
        }
        let value = self.meta().mos.zap_get(dictionary, &format!("{name}{RECEIVED}"))?;
        Ok(value.map(|value| value_of(find(name), &value)))
    }

    /// Whether properties were ever received into it.
    pub fn has_received(&self) -> Result<bool> {
        let dictionary = self.dir.phys().props.get();
        if dictionary == 0 { Ok(false) } else { self.meta().mos.zap_contains(dictionary, HAS_RECEIVED) }
    }

    /// What is stored with a file system or volume itself, by the names of properties.
    pub fn stored_properties(&self) -> Result<BTreeMap<String, StoredProperty>> {
        let dictionary = self.dir.phys().props.get();
        let mut stored: BTreeMap<String, StoredProperty> = BTreeMap::new();
        for (key, value) in if dictionary == 0 { Vec::new() } else { self.meta().mos.zap_entries(dictionary)? } {
            let (name, suffix) = key.split_at(key.find('$').unwrap_or(key.len()));
            if name.is_empty() {
                continue;
            }
            let entry = stored.entry(name.to_owned()).or_default();
            match suffix {
                "" if entry.set.is_none() => entry.set = Some(value_of(find(name), &value)),
                // It counts, whatever older programs see.
                UNKNOWN_TO_OTHERS => entry.set = Some(value_of(find(name), &value)),
                RECEIVED => entry.received = Some(value_of(find(name), &value)),
                INHERIT => entry.inherits = true,
                _ => {}
            }
        }
        Ok(stored)
    }

    /// The properties of users' own that count here: name, value, source.
    pub fn user_properties(&self) -> Result<Vec<(String, PropertyValue, Source)>> {
        let mut names = std::collections::BTreeSet::new();
        let mut collect = |dictionary: u64| -> Result<()> {
            if dictionary != 0 {
                for (key, _) in self.meta().mos.zap_entries(dictionary)? {
                    let name = key.split('$').next().unwrap_or_default();
                    if crate::dsl::props::prop_table::is_user_property(name) {
                        names.insert(name.to_owned());
                    }
                }
            }
            Ok(())
        };
        collect(self.phys().props.get())?;
        let mut at = Some(self.dir.clone());
        while let Some(dir) = at {
            collect(dir.phys().props.get())?;
            at = dir.parent();
        }
        let mut found = Vec::new();
        for name in names {
            if let Some((value, source)) = self.property(&name)? {
                found.push((name, value, source));
            }
        }
        Ok(found)
    }
}
