//! The names of directories by their objects.
//!
//! # Theory
//! On disk a directory does not know its name: the table of its parent's children has it, by name. To search it for one object takes as long as there
//! are children, and an import, which opens all of them to look for logs, would take the square of that. So what a search has found of the
//! others is remembered, for one parent, and believed only if the table says the same.

use std::collections::HashMap;

use parking_lot::Mutex;

use crate::dsl::mos::Mos;
use crate::error::Result;

/// Names that a search has come by.
#[derive(Debug, Default)]
pub(in crate::dsl) struct ChildNames {
    /// guards: the table that was searched last, and what was in it
    last: Mutex<(u64, HashMap<u64, String>)>,
}

impl ChildNames {
    /// The name of a directory in the table of its parent's children.
    pub(in crate::dsl) fn name_of(&self, mos: &Mos, table: u64, directory: u64) -> Result<String> {
        let remembered = {
            let last = self.last.lock();
            last.1.get(&directory).filter(|_| last.0 == table).cloned()
        };
        if let Some(name) = remembered
            && mos.zap_u64(table, &name)? == Some(directory)
        {
            return Ok(name);
        }
        let names: HashMap<u64, String> = mos.zap_entries(table)?.into_iter().map(|(name, value)| (value.first(), name)).collect();
        let found = names.get(&directory).cloned();
        *self.last.lock() = (table, names);
        // Where there is none, the search says what is missing.
        found.map_or_else(|| mos.zap_name_of(table, directory), Ok)
    }
}
