//! Which properties a listing shows, and how wide each of them is.
//!
//! # Theory
//!
//! A column starts as wide as its heading, or as its longest word, or as five digits. Numbers do not widen it, because
//! a size never takes more than five characters; everything else does. The width is found before the first line is
//! printed, so a listing is gathered whole.

use engine::dsl::prop_table::{self, DatasetTypes, Property, PropertyKind};
use engine::pool::prop_table as pool_table;
use tarnfs::control::Wanted;

use crate::session::{Session, Stop, complain};
use crate::text::suggest;

/// Whose properties.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Scope {
    Dataset,
    Pool,
}

/// One property in a listing.
#[derive(Debug, Clone)]
pub(crate) struct Column {
    /// Its full name.
    pub(crate) name: String,
    /// Its row of the table; the user's own have none.
    pub(crate) property: Option<&'static Property>,
    pub(crate) width: usize,
    pub(crate) received_width: usize,
    fixed: bool,
    /// Came in by `all`: not shown where it has no value.
    pub(crate) from_all: bool,
}

impl Column {
    pub(crate) fn native(property: &'static Property, from_all: bool) -> Column {
        let width = match property.kind {
            PropertyKind::Number { .. } if property.name == "health" => 8,
            PropertyKind::Number { .. } => property.heading.len().max(5),
            PropertyKind::Index { words, .. } => words.iter().map(|(word, _)| word.len()).fold(property.heading.len(), usize::max),
            PropertyKind::Text { .. } => property.heading.len(),
        };
        Column { name: property.name.to_owned(), property: Some(property), width, received_width: 0, fixed: !property.flexible, from_all }
    }

    pub(crate) fn other(name: &str, from_all: bool) -> Column {
        Column { name: name.to_owned(), property: None, width: name.len(), received_width: 0, fixed: false, from_all }
    }

    /// Makes room for a value; `exact` values may be longer than five digits.
    pub(crate) fn fit(&mut self, value: &str, exact: bool) {
        if !self.fixed || exact {
            self.width = self.width.max(value.chars().count());
        }
    }

    /// Is it aligned to the right?
    pub(crate) fn is_right(&self) -> bool {
        match self.property {
            Some(property) => property.is_right_aligned(),
            None => prop_table::is_space_property(&self.name) || prop_table::is_written_property(&self.name),
        }
    }

    /// Its heading in a listing.
    pub(crate) fn heading(&self) -> String {
        self.property.map_or_else(|| self.name.to_uppercase(), |property| property.heading.to_owned())
    }
}

/// The columns that `-o` or `get` names; `None` for `all`.
pub(crate) fn parse(session: &mut Session<'_>, fields: &str, scope: Scope) -> Result<Option<Vec<Column>>, Stop> {
    if fields == "all" {
        return Ok(None);
    }
    let complaint = |session: &mut Session<'_>, words: &str| {
        complain!(session, "bad property list: {words}");
        Stop::Usage
    };
    if fields.is_empty() {
        return Err(complaint(session, "no properties specified"));
    }
    let mut columns = Vec::new();
    for field in fields.split(',') {
        let names: &[&str] = match field {
            "space" => &["name", "avail", "used", "usedbysnapshots", "usedbydataset", "usedbyrefreservation", "usedbychildren"],
            _ => &[field],
        };
        for name in names {
            match named(name, scope) {
                Some(column) => columns.push(column),
                None => {
                    let stop = complaint(session, &format!("invalid property '{name}'"));
                    hint(session, name, scope);
                    return Err(stop);
                }
            }
        }
    }
    Ok(Some(columns))
}

/// Says which property may have been meant by a name that is none of `scope`.
pub(crate) fn hint(session: &mut Session<'_>, name: &str, scope: Scope) {
    if let Some(words) = meant(name, scope) {
        session.hint(words);
    }
}

/// The line for it.
pub(crate) fn meant(name: &str, scope: Scope) -> Option<String> {
    let (table, other) = match scope {
        Scope::Dataset => (prop_table::PROPERTIES, Scope::Pool),
        Scope::Pool => (pool_table::PROPERTIES, Scope::Dataset),
    };
    let (of_file_systems, of_pools) = (prop_table::find(name).is_some_and(Property::is_visible), pool_table::find(name).is_some_and(Property::is_visible));
    match other {
        Scope::Dataset if of_file_systems => return Some(format!("'{name}' is a property of file systems: 'zfs get', 'zfs set', '-O' of 'zpool create'")),
        Scope::Pool if of_pools => return Some(format!("'{name}' is a property of pools: 'zpool get', 'zpool set', '-o' of 'zpool create'")),
        _ => {}
    }
    suggest::closest(name, table.iter().filter(|property| property.is_visible() || property.name == "name").map(|property| property.name)).map(suggest::line)
}

/// The column called `name`, if there can be one.
pub(crate) fn named(name: &str, scope: Scope) -> Option<Column> {
    let (property, is_other) = match scope {
        Scope::Dataset => (
            prop_table::find(name).filter(|property| property.applies_to(DatasetTypes::DATASET)),
            prop_table::is_space_property(name) || prop_table::is_written_property(name),
        ),
        Scope::Pool => (pool_table::find(name), name.starts_with("feature@") || name.starts_with("unsupported@")),
    };
    match property {
        Some(property) => Some(Column::native(property, false)),
        None if is_other || prop_table::is_user_property(name) => Some(Column::other(name, false)),
        None => None,
    }
}

/// Every visible native property, `name` first.
pub(crate) fn all(scope: Scope) -> Vec<Column> {
    let table = match scope {
        Scope::Dataset => prop_table::PROPERTIES,
        Scope::Pool => pool_table::PROPERTIES,
    };
    let name = table.iter().filter(|property| property.name == "name");
    name.chain(table.iter().filter(|property| property.is_visible())).map(|property| Column::native(property, true)).collect()
}

/// What to ask for: the columns', and `extra`.
pub(crate) fn wanted(columns: Option<&[Column]>, extra: &[&str]) -> Wanted {
    let Some(columns) = columns else { return Wanted::All };
    let mut names: Vec<String> = columns.iter().map(|column| column.name.clone()).collect();
    names.extend(extra.iter().map(|name| (*name).to_owned()));
    names.dedup();
    Wanted::Only(names)
}
