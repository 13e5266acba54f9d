//! What numbers the attributes have in one dataset, and in what orders they stand.
//!
//! # Theory
//! Files say "layout 2"; the dataset says once what that is. Both tables are read at mount and kept in memory. A new layout is
//! written when the first file needs it; the registry is written with the first file that is made.
//!
//! # Locks
//! What numbers attributes have never changes. The layouts have a read-write lock, taken last.

use std::collections::BTreeMap;
use std::sync::Arc;

use engine::dmu::{ObjectId, Objset, Tx};
use engine::error::Result;
use engine::zap::{Integers, Zap, ZapSpec};
use engine::{bail, error};
use ondisk::object_type::ObjectType;
use ondisk::sa::{self, ATTRIBUTES, Attribute, LEGACY_COUNT, Registration};
use parking_lot::RwLock;

/// A layout: attribute numbers in order.
pub(super) type Layout = Arc<[u16]>;

/// What numbers the attributes have.
#[derive(Debug)]
struct Numbers {
    /// The number of each [`Attribute`].
    of: [u16; sa::ATTRIBUTE_COUNT],
    /// By number, also those of attributes that we do not know.
    registered: BTreeMap<u16, Registration>,
}

#[derive(Debug)]
struct Tables {
    registry_object: Option<ObjectId>,
    layouts_object: Option<ObjectId>,
    /// Some of our attributes are not in the registry yet.
    incomplete: bool,
    layouts: BTreeMap<u16, Layout>,
}

/// The tables of one dataset.
#[derive(Debug)]
pub(in crate::zpl) struct SaTables {
    /// The SA master node; none before version 5.
    master: Option<ObjectId>,
    numbers: Numbers,
    tables: RwLock<Tables>,
}

impl SaTables {
    /// Reads the tables.
    pub(in crate::zpl) fn load(objset: &Objset, master: Option<ObjectId>) -> Result<Self> {
        let mut tables = Tables {
            registry_object: None,
            layouts_object: None,
            incomplete: true,
            layouts: BTreeMap::new(),
        };
        let mut numbers = Numbers { of: [0; sa::ATTRIBUTE_COUNT], registered: BTreeMap::new() };
        let mut by_name = BTreeMap::new();
        if let Some(master) = master {
            let master = Zap::open(objset, master)?;
            tables.registry_object = master.lookup_u64(sa::REGISTRY_NAME)?;
            tables.layouts_object = master.lookup_u64(sa::LAYOUTS_NAME)?;
        }
        if let Some(registry) = tables.registry_object {
            for entry in Zap::open(objset, registry)?.entries()? {
                let registration = Registration::decode(entry.value.first())?;
                numbers.registered.insert(registration.number, registration);
                by_name.insert(entry.text(), registration);
            }
        }
        tables.incomplete = numbers.give(&by_name);
        if let Some(layouts) = tables.layouts_object {
            for entry in Zap::open(objset, layouts)?.entries()? {
                let number = entry.text().parse::<u16>().ok().filter(|&number| number <= sa::LAYOUT_MAX);
                let number = number.ok_or_else(|| error!(Corrupt, "a layout has the name {}", entry.text()))?;
                tables.layouts.insert(number, entry.value.integers().map(|attribute| attribute as u16).collect());
            }
        }
        tables.layouts.insert(sa::LAYOUT_ZNODE, (0..LEGACY_COUNT as u16).collect());
        tables.layouts.insert(sa::LAYOUT_EMPTY, Arc::new([]));
        Ok(SaTables { master, numbers, tables: RwLock::new(tables) })
    }

    /// The dataset's number of `attribute`.
    pub(in crate::zpl) fn number(&self, attribute: Attribute) -> u16 {
        self.numbers.of[attribute as usize]
    }

    /// Length (0: variable) and byte order class of attribute `number`.
    pub(super) fn registration(&self, number: u16) -> Option<Registration> {
        self.numbers.registered.get(&number).copied()
    }

    /// Layout `number`.
    pub(in crate::zpl) fn layout(&self, number: u16) -> Result<Layout> {
        let layout = self.tables.read().layouts.get(&number).cloned();
        layout.ok_or_else(|| error!(Corrupt, "there is no attribute layout {number}"))
    }

    /// The number of the layout with these attributes; a new one is written.
    pub(in crate::zpl) fn layout_number(&self, objset: &Objset, tx: &Tx, attributes: &[u16]) -> Result<u16> {
        {
            let tables = self.tables.read();
            let known = tables.layouts.range(sa::FIRST_LAYOUT..).find(|(_, layout)| ***layout == *attributes);
            if let Some((number, _)) = known {
                return Ok(*number);
            }
        }
        let mut tables = self.tables.write();
        let known = tables.layouts.range(sa::FIRST_LAYOUT..).find(|(_, layout)| ***layout == *attributes);
        if let Some((number, _)) = known {
            return Ok(*number);
        }
        let number = tables.layouts.last_key_value().map_or(sa::FIRST_LAYOUT, |(last, _)| last + 1);
        if number > sa::LAYOUT_MAX {
            bail!(NoSpace, "no attribute layout number is left");
        }
        let zap = match tables.layouts_object {
            Some(object) => Zap::open(objset, object)?,
            None => {
                let zap = self.create_table(objset, tx, ObjectType::SA_ATTR_LAYOUTS, sa::LAYOUTS_NAME)?;
                tables.layouts_object = Some(zap.object());
                zap
            }
        };
        zap.update(tx, number.to_string(), Integers::U16(attributes))?;
        tables.layouts.insert(number, attributes.into());
        Ok(number)
    }

    /// Writes the attributes that the registry does not have.
    pub(super) fn register(&self, objset: &Objset, tx: &Tx) -> Result<()> {
        if !self.tables.read().incomplete || self.master.is_none() {
            return Ok(());
        }
        let mut tables = self.tables.write();
        if !tables.incomplete {
            return Ok(());
        }
        let zap = match tables.registry_object {
            Some(object) => Zap::open(objset, object)?,
            None => {
                let zap = self.create_table(objset, tx, ObjectType::SA_ATTR_REGISTRATION, sa::REGISTRY_NAME)?;
                tables.registry_object = Some(zap.object());
                zap
            }
        };
        for (kind, number) in ATTRIBUTES.iter().zip(self.numbers.of) {
            if zap.contains(kind.name)? {
                continue;
            }
            let registration = Registration { number, length: kind.length, class: kind.class };
            zap.update_u64(tx, kind.name, registration.encode())?;
        }
        tables.incomplete = false;
        Ok(())
    }

    fn create_table(&self, objset: &Objset, tx: &Tx, object_type: ObjectType, name: &str) -> Result<Zap> {
        let master = self.master.ok_or_else(|| error!(NotSupported, "the dataset has no system attributes"))?;
        let zap = Zap::create(objset, tx, &ZapSpec::new(object_type))?;
        Zap::open(objset, master)?.add_u64(tx, name, zap.object())?;
        Ok(zap)
    }
}

impl Numbers {
    /// Numbers for our attributes: the fixed ones, those of the registry, and new ones after all registered. `true`: not all are registered.
    fn give(&mut self, by_name: &BTreeMap<String, Registration>) -> bool {
        let count = u16::try_from(by_name.len()).unwrap_or(u16::MAX);
        let mut next = if count == 0 { LEGACY_COUNT as u16 } else { count };
        next = next.max(self.registered.last_key_value().map_or(0, |(last, _)| last.saturating_add(1)));
        let mut incomplete = false;
        for (index, kind) in ATTRIBUTES.iter().enumerate() {
            let found = by_name.get(kind.name).copied();
            incomplete |= found.is_none();
            let number = match found {
                _ if index < LEGACY_COUNT => index as u16,
                Some(registration) => registration.number,
                None => {
                    next += 1;
                    next - 1
                }
            };
            self.of[index] = number;
            let ours = Registration { number, length: kind.length, class: kind.class };
            self.registered.entry(number).or_insert(ours);
        }
        incomplete
    }
}
