//! `zfs list`

use tarnfs::control::{DatasetEntry, DatasetKinds, Source};

use crate::properties::columns::{self, Column, Scope};
use crate::properties::display::Style;
use crate::properties::table;
use crate::session::{Outcome, Session, Stop, complain, say};
use crate::text::getopt::{Long, Options};
use crate::text::json;
use crate::zfs::datasets::{self, Query, SortColumn};

const LONG: &[Long] = &[("json", 'j'), ("json-int", 'J')];
const DEFAULT_FIELDS: &str = "name,used,available,referenced,mountpoint";

#[derive(Default)]
struct Flags {
    fields: Option<String>,
    exact: bool,
    scripted: bool,
    json: bool,
    as_int: bool,
    recurse: bool,
    depth: Option<u64>,
    kinds: Option<DatasetKinds>,
    sort: Vec<SortColumn>,
}

fn parse(session: &mut Session<'_>, words: &[String]) -> Result<(Flags, Vec<String>), Stop> {
    let mut flags = Flags::default();
    let mut options = Options::new(words, "jHS:d:o:prs:t:", LONG);
    for option in options.by_ref() {
        let (letter, argument) = option.map_err(|wrong| session.misuse(wrong))?;
        let argument = argument.unwrap_or_default();
        match letter {
            'o' => flags.fields = Some(argument),
            'p' => flags.exact = true,
            'd' => {
                flags.depth = Some(datasets::parse_depth(session, &argument)?);
                flags.recurse = true;
            }
            'r' => flags.recurse = true,
            'j' => flags.json = true,
            'J' => flags.as_int = true,
            'H' => flags.scripted = true,
            's' | 'S' => {
                let column = SortColumn::new(&argument, letter == 'S');
                let Some(column) = column else {
                    let stop = session.misuse(format_args!("invalid property '{argument}'"));
                    columns::hint(session, &argument, Scope::Dataset);
                    return Err(stop);
                };
                flags.sort.push(column);
            }
            _ => flags.kinds = Some(datasets::parse_kinds(session, &argument)?),
        }
    }
    if flags.as_int && !flags.json {
        return Err(session.misuse("'--json-int' only works with '-j' option"));
    }
    Ok((flags, options.operands()))
}

/// The longest text of a table for people, as OpenZFS has it: a list of clones may be longer.
const TEXT_BYTES_MAX: usize = 8191;

pub(in crate::zfs) fn run(session: &mut Session<'_>, words: &[String]) -> Outcome {
    let (flags, operands) = parse(session, words)?;
    let fields = flags.fields.as_deref().unwrap_or(DEFAULT_FIELDS);
    let mut kinds = flags.kinds.unwrap_or(DatasetKinds::DATASETS);
    let mut listed = flags.kinds.is_none();
    if fields == "space" && flags.kinds.is_none() {
        kinds.snapshot = false;
        // Asking for space means heads only, unless a pool lists its snapshots.
        listed = true;
    }
    let chosen = columns::parse(session, fields, Scope::Dataset)?;
    let sort_names: Vec<&str> = flags.sort.iter().map(SortColumn::name).collect();
    let mut query = Query::new(kinds, columns::wanted(chosen.as_deref(), &sort_names));
    query.snapshots_where_listed = listed;
    query.recurse = flags.recurse;
    query.depth = flags.depth;
    query.paths = true;
    if datasets::only_below(kinds) && !operands.is_empty() && !flags.recurse {
        query.recurse = true;
        query.depth = Some(1);
    }
    query.sort = flags.sort;
    let (entries, code) = datasets::gather(session, &operands, &query)?;

    let style = Style { exact: flags.exact || flags.as_int, zone: session.zone.clone() };
    let mut columns = chosen.unwrap_or_else(|| with_user_properties(&entries));
    if flags.json {
        if code == 0 {
            print_json(session, &entries, &columns, &style, flags.as_int);
        }
    } else {
        print_table(session, &entries, &mut columns, &style, flags.exact, flags.scripted);
    }
    if code == 0 && entries.is_empty() && !flags.scripted {
        complain!(session, "no datasets available");
    }
    Ok(code)
}

/// Every native column, and one for each user property that some dataset has.
pub(super) fn with_user_properties(entries: &[DatasetEntry]) -> Vec<Column> {
    let mut columns = columns::all(Scope::Dataset);
    for property in entries.iter().flat_map(|entry| &entry.properties) {
        if engine::dsl::prop_table::is_user_property(&property.name) && !columns.iter().any(|column| column.name == property.name) {
            columns.push(Column::other(&property.name, true));
        }
    }
    columns
}

fn print_table(session: &mut Session<'_>, entries: &[DatasetEntry], columns: &mut [Column], style: &Style, exact: bool, scripted: bool) {
    let mut lines = Vec::new();
    for entry in entries {
        let mut cells = Vec::new();
        for column in columns.iter_mut() {
            let text = datasets::cell(entry, column, style).map(|(text, _)| text);
            let text = text.map(|mut text| {
                // A program gets all of it.
                if !scripted {
                    text.truncate(text.floor_char_boundary(TEXT_BYTES_MAX));
                }
                text
            });
            if let Some(text) = &text
                && !(column.property.is_none() && column.is_right())
            {
                column.fit(text, exact);
            }
            cells.push(text.unwrap_or_else(|| "-".to_owned()));
        }
        lines.push(cells);
    }
    if !scripted && !entries.is_empty() {
        say!(session, "{}", table::heading(columns));
    }
    for cells in lines {
        say!(session, "{}", table::line(columns, &cells, scripted));
    }
}

fn print_json(session: &mut Session<'_>, entries: &[DatasetEntry], columns: &[Column], style: &Style, as_int: bool) {
    let mut list = json::Object::new();
    for entry in entries {
        let mut properties = json::Object::new();
        for column in columns.iter().filter(|column| column.name != "name") {
            let (text, source) = datasets::cell(entry, column, style).unwrap_or_else(|| ("-".to_owned(), Source::None));
            properties.insert(column.name.clone(), json::property(&text, &source, None, as_int));
        }
        let mut object = datasets::json_head(entry, as_int);
        object.insert("properties".into(), properties.into());
        list.insert(entry.name.clone(), object.into());
    }
    let mut object = json::envelope("zfs list");
    object.insert("datasets".into(), list.into());
    json::print(session, object);
}
