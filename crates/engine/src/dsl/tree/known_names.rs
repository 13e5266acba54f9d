//! The names of directories and snapshots by their objects.
//!
//! # Theory
//! On disk a directory or snapshot does not know its name: the table of its parent's children, or of its head's snapshots, has it, by name. To search
//! that for one object takes as long as there are entries, and a walk over all of them would take the square of it: an import, which opens all
//! directories to look for logs, or the destruction of a thousand snapshots. So what a search has found of the others is remembered, for one table, and
//! the name by which one was just found or made; and believed only if the table says the same.

use std::collections::HashMap;

use parking_lot::Mutex;

use crate::dsl::mos::Mos;
use crate::error::Result;

/// So many names are remembered at the most: those of what is gone are among them.
const NAMES_MAX: usize = 1 << 20;

/// Names that somebody has come by.
#[derive(Debug, Default)]
pub(in crate::dsl) struct KnownNames {
    /// guards: the table that was used last, and what was in it
    last: Mutex<(u64, HashMap<u64, String>)>,
}

impl KnownNames {
    /// The name of an object in a table.
    pub(in crate::dsl) fn name_of(&self, mos: &Mos, table: u64, object: u64) -> Result<String> {
        let remembered = {
            let last = self.last.lock();
            last.1.get(&object).filter(|_| last.0 == table).cloned()
        };
        if let Some(name) = remembered
            && mos.zap_u64(table, &name)? == Some(object)
        {
            return Ok(name);
        }
        let names: HashMap<u64, String> = mos.zap_entries(table)?.into_iter().map(|(name, value)| (value.first(), name)).collect();
        let found = names.get(&object).cloned();
        *self.last.lock() = (table, names);
        // Where there is none, the search says what is missing.
        found.map_or_else(|| mos.zap_name_of(table, object), Ok)
    }

    /// The object has this name in the table.
    pub(in crate::dsl) fn remember(&self, table: u64, object: u64, name: &str) {
        let mut last = self.last.lock();
        if last.0 != table || last.1.len() >= NAMES_MAX {
            *last = (table, HashMap::new());
        }
        last.1.insert(object, name.to_owned());
    }
}
