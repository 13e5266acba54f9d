//! `zpool get`

pub(in crate::zpool) mod vdevs;

use tarnfs::control::{PoolEntry, Source};

use super::list::{cell, fit, with_all};
use super::status_json::pool_head;
use crate::properties::columns::{self, Column, Scope};
use crate::properties::display::Style;
use crate::properties::table::{self, Field, Row};
use crate::session::{Outcome, Session, Stop, complain};
use crate::text::getopt::{Long, Options, Wrong};
use crate::text::json::{self, Object};
use crate::zpool::spec::pools;

const LONG: &[Long] = &[("json", 'j'), ("json-int", 'J'), ("json-pool-key-guid", 'G')];

struct Flags {
    fields: Vec<Field>,
    exact: bool,
    scripted: bool,
    json: bool,
    as_int: bool,
    key_guid: bool,
}

fn parse(session: &mut Session<'_>, words: &[String]) -> Result<(Flags, Vec<String>), Stop> {
    let mut flags = Flags {
        fields: vec![Field::Name, Field::Property, Field::Value, Field::Source],
        exact: false,
        scripted: false,
        json: false,
        as_int: false,
        key_guid: false,
    };
    let mut options = Options::new(words, ":jHpo:", LONG);
    for option in options.by_ref() {
        let (letter, argument) = match option {
            // A missing argument is passed over here, and found to be missing later.
            Err(Wrong::Missing(_)) => continue,
            option => option.map_err(|wrong| session.misuse(wrong))?,
        };
        match letter {
            'p' => flags.exact = true,
            'H' => flags.scripted = true,
            'j' => flags.json = true,
            'G' => flags.key_guid = true,
            'J' => (flags.as_int, flags.exact) = (true, true),
            _ => flags.fields = table::parse_fields(session, &argument.unwrap_or_default(), false)?,
        }
    }
    for (given, words) in
        [(flags.as_int, "'--json-int' only works with '-j' option"), (flags.key_guid, "'json-pool-key-guid' only works with '-j' option")]
    {
        if given && !flags.json {
            return Err(session.misuse(words));
        }
    }
    Ok((flags, options.operands()))
}

pub(in crate::zpool) fn run(session: &mut Session<'_>, words: &[String]) -> Outcome {
    let (flags, mut operands) = parse(session, words)?;
    if operands.is_empty() {
        return Err(session.misuse("missing property argument"));
    }
    let fields = operands.remove(0);
    if let Some((pool, others)) = operands.split_first()
        && pools::exists(session, pool)
        && others.iter().any(|name| !pools::exists(session, name))
    {
        return vdevs::run(session, &flags, &fields, pool, others);
    }
    check_pools(session, &operands)?;
    let chosen = columns::parse(session, &fields, Scope::Pool)?;
    let (entries, code) = pools::entries(session, &operands, &columns::wanted(chosen.as_deref(), &[]));
    let mut columns = match chosen {
        None => with_all(&entries),
        Some(chosen) => columns::named("name", Scope::Pool).into_iter().chain(chosen).collect(),
    };
    let style = Style { exact: flags.exact, zone: session.zone.clone() };
    fit(&mut columns, &entries, &style);
    if flags.json {
        if code == 0 {
            print_json(session, &flags, &entries, &columns, &style);
        }
        return Ok(code);
    }
    let rows: Vec<Row> = entries.iter().flat_map(|entry| rows_of(entry, &columns, &style)).collect();
    table::print_rows(session, &flags.fields, &columns, &rows, flags.scripted);
    Ok(code)
}

/// The first operand must be a pool; then they are all pools, or the others are vdevs of it.
fn check_pools(session: &mut Session<'_>, operands: &[String]) -> Result<(), Stop> {
    let Some(first) = operands.first() else { return Ok(()) };
    if !pools::exists(session, first) {
        complain!(session, "Cannot get properties of {first}: no such pool available.");
        pools::hint(session, first);
        return Err(Stop::Code(1));
    }
    Ok(())
}

fn rows_of(entry: &PoolEntry, columns: &[Column], style: &Style) -> Vec<Row> {
    let mut rows = Vec::new();
    for column in &columns[1..] {
        let cell = cell(entry, column, style).or_else(|| {
            let is_user = engine::dsl::prop_table::is_user_property(&column.name) && !column.name.contains('@');
            is_user.then(|| ("-".to_owned(), Source::Default))
        });
        if let Some((value, source)) = cell {
            rows.push(Row { name: entry.name.clone(), property: column.name.clone(), value, received: None, source });
        }
    }
    rows
}

fn print_json(session: &mut Session<'_>, flags: &Flags, entries: &[PoolEntry], columns: &[Column], style: &Style) {
    let mut list = Object::new();
    for entry in entries {
        let mut properties = Object::new();
        for row in rows_of(entry, columns, style) {
            properties.insert(row.property, json::property(&row.value, &row.source, None, flags.as_int));
        }
        if !properties.is_empty() {
            let mut object = pool_head(&entry.status, true, flags.as_int);
            object.insert("properties".into(), properties.into());
            let key = if flags.key_guid { entry.guid.to_string() } else { entry.name.clone() };
            list.insert(key, object.into());
        }
    }
    let mut object = json::envelope("zpool get");
    object.insert("pools".into(), list.into());
    json::print(session, object);
}
