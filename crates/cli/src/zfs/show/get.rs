//! `zfs get`

use tarnfs::control::{DatasetEntry, DatasetKinds, Source};

use super::list::with_user_properties;
use crate::properties::columns::{self, Column, Scope};
use crate::properties::display::{self, Style};
use crate::properties::table::{self, Field, Row};
use crate::session::{Outcome, Session, Stop, complain};
use crate::text::getopt::{Long, Options};
use crate::text::json;
use crate::zfs::datasets::{self, Query};

const LONG: &[Long] = &[("json", 'j'), ("json-int", 'J')];
const SOURCES: [&str; 6] = ["local", "default", "inherited", "received", "temporary", "none"];

struct Flags {
    fields: Vec<Field>,
    sources: Vec<String>,
    exact: bool,
    scripted: bool,
    json: bool,
    as_int: bool,
    recurse: bool,
    depth: Option<u64>,
    kinds: DatasetKinds,
}

fn parse(session: &mut Session<'_>, words: &[String]) -> Result<(Flags, Vec<String>), Stop> {
    let mut flags = Flags {
        fields: vec![Field::Name, Field::Property, Field::Value, Field::Source],
        sources: Vec::new(),
        exact: false,
        scripted: false,
        json: false,
        as_int: false,
        recurse: false,
        depth: None,
        kinds: DatasetKinds::ALL,
    };
    let mut options = Options::new(words, ":d:o:s:jrt:Hp", LONG);
    for option in options.by_ref() {
        let (letter, argument) = option.map_err(|wrong| session.misuse(wrong))?;
        let argument = argument.unwrap_or_default();
        match letter {
            'p' => flags.exact = true,
            'd' => {
                flags.depth = Some(datasets::parse_depth(session, &argument)?);
                flags.recurse = true;
            }
            'r' => flags.recurse = true,
            'H' => flags.scripted = true,
            'j' => flags.json = true,
            'J' => (flags.as_int, flags.exact) = (true, true),
            'o' => flags.fields = table::parse_fields(session, &argument, true)?,
            's' => {
                flags.sources = argument.split(',').map(str::to_owned).collect();
                if let Some(wrong) = flags.sources.iter().find(|source| !SOURCES.contains(&source.as_str())) {
                    return Err(session.misuse(format_args!("invalid source '{wrong}'")));
                }
            }
            _ => flags.kinds = datasets::parse_kinds(session, &argument)?,
        }
    }
    Ok((flags, options.operands()))
}

pub(in crate::zfs) fn run(session: &mut Session<'_>, words: &[String]) -> Outcome {
    let (flags, mut operands) = parse(session, words)?;
    if operands.is_empty() {
        return Err(session.misuse("missing property argument"));
    }
    if flags.as_int && !flags.json {
        return Err(session.misuse("'--json-int' only works with '-j' option"));
    }
    let fields = operands.remove(0);
    let chosen = columns::parse(session, &fields, Scope::Dataset)?;
    let mut query = Query::new(flags.kinds, columns::wanted(chosen.as_deref(), &[]));
    query.recurse = flags.recurse;
    query.depth = flags.depth;
    query.paths = true;
    query.received = flags.fields.contains(&Field::Received);
    if datasets::only_below(flags.kinds) && !operands.is_empty() && !flags.recurse {
        query.recurse = true;
        query.depth = Some(1);
    }
    let (entries, code) = datasets::gather(session, &operands, &query)?;
    let mut columns = match chosen {
        None => with_user_properties(&entries),
        Some(chosen) => {
            let name = columns::named("name", Scope::Dataset).into_iter();
            name.chain(chosen).collect()
        }
    };
    let style = Style { exact: flags.exact, zone: session.zone.clone() };
    fit(&mut columns, &entries, session);
    if flags.json {
        if code == 0 {
            print_json(session, &entries, &columns, &style, &flags);
        }
        return Ok(code);
    }
    let rows: Vec<Row> = entries.iter().flat_map(|entry| rows_of(session, entry, &columns, &style, &flags)).collect();
    table::print_rows(session, &flags.fields, &columns, &rows, flags.scripted);
    Ok(code)
}

/// Widths are those of the rounded values, whatever is printed.
fn fit(columns: &mut [Column], entries: &[DatasetEntry], session: &Session<'_>) {
    let style = Style { exact: false, zone: session.zone.clone() };
    for column in columns.iter_mut().filter(|column| !(column.property.is_none() && column.is_right())) {
        for entry in entries {
            if let Some((text, _)) = datasets::cell(entry, column, &style) {
                column.fit(&text, false);
            }
            if let Some(text) = received(entry, column, &style) {
                column.received_width = column.received_width.max(text.len());
            }
        }
    }
}

fn received(entry: &DatasetEntry, column: &Column, style: &Style) -> Option<String> {
    let mut value = entry.property(&column.name)?.clone();
    value.value = value.received.take()?;
    display::dataset_value(&value, style)
}

fn is_chosen(sources: &[String], source: &Source) -> bool {
    let word = match source {
        Source::None => "none",
        Source::Default => "default",
        Source::Temporary => "temporary",
        Source::Local => "local",
        Source::Inherited(_) => "inherited",
        Source::Received => "received",
    };
    sources.is_empty() || sources.iter().any(|chosen| chosen == word)
}

/// The lines about one dataset. The first column only makes width.
fn rows_of(session: &mut Session<'_>, entry: &DatasetEntry, columns: &[Column], style: &Style, flags: &Flags) -> Vec<Row> {
    let mut rows = Vec::new();
    for column in &columns[1..] {
        let (value, source) = match datasets::cell(entry, column, style) {
            Some(cell) => cell,
            None if column.from_all => continue,
            None => ("-".to_owned(), Source::None),
        };
        if column.property.is_some_and(|property| !property.applies_to(engine::dsl::prop_table::DatasetTypes::DATASET)) {
            complain!(session, "No such property '{}'", column.name);
            continue;
        }
        if is_chosen(&flags.sources, &source) {
            let received = received(entry, column, style);
            rows.push(Row { name: entry.name.clone(), property: column.name.clone(), value, received, source });
        }
    }
    rows
}

fn print_json(session: &mut Session<'_>, entries: &[DatasetEntry], columns: &[Column], style: &Style, flags: &Flags) {
    let mut list = json::Object::new();
    for entry in entries {
        let mut properties = json::Object::new();
        for row in rows_of(session, entry, columns, style, flags) {
            properties.insert(row.property, json::property(&row.value, &row.source, row.received.as_deref(), flags.as_int));
        }
        if !properties.is_empty() {
            let mut object = datasets::json_head(entry, flags.as_int);
            object.insert("properties".into(), properties.into());
            list.insert(entry.name.clone(), object.into());
        }
    }
    let mut object = json::envelope("zfs get");
    object.insert("datasets".into(), list.into());
    json::print(session, object);
}
