//! The two layouts of `zpool` and `zfs`: a listing (a line per thing, a column per property) and `get` (a line per
//! property).
//!
//! # Theory
//!
//! Columns stand two blanks apart; the last one is not padded when it is aligned to the left. With `-H` there is no
//! heading, one tab apart, and no padding at all.

use tarnfs::control::Source;

use crate::properties::columns::Column;
use crate::properties::display;
use crate::session::{Session, say};

fn pad(text: &str, width: usize, right: bool) -> String {
    if right { format!("{text:>width$}") } else { format!("{text:<width$}") }
}

/// A line of a listing.
pub(crate) fn line(columns: &[Column], cells: &[String], scripted: bool) -> String {
    if scripted {
        return cells.join("\t");
    }
    let last = cells.len().saturating_sub(1);
    let cells = columns.iter().zip(cells).enumerate().map(|(index, (column, cell))| {
        if index == last && !column.is_right() { cell.clone() } else { pad(cell, column.width, column.is_right()) }
    });
    cells.collect::<Vec<_>>().join("  ")
}

/// The heading of a listing.
pub(crate) fn heading(columns: &[Column]) -> String {
    let headings: Vec<String> = columns.iter().map(Column::heading).collect();
    line(columns, &headings, false)
}

/// A column of `get`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Field {
    Name,
    Property,
    Value,
    Received,
    Source,
}

impl Field {
    fn title(self) -> &'static str {
        match self {
            Field::Name => "NAME",
            Field::Property => "PROPERTY",
            Field::Value => "VALUE",
            Field::Received => "RECEIVED",
            Field::Source => "SOURCE",
        }
    }
}

/// A line of `get`, before layout.
pub(crate) struct Row {
    pub(crate) name: String,
    pub(crate) property: String,
    pub(crate) value: String,
    pub(crate) received: Option<String>,
    pub(crate) source: Source,
}

impl Row {
    fn cell(&self, field: Field) -> String {
        match field {
            Field::Name => self.name.clone(),
            Field::Property => self.property.clone(),
            Field::Value => self.value.clone(),
            Field::Received => self.received.clone().unwrap_or_else(|| "-".to_owned()),
            Field::Source => display::source(&self.source),
        }
    }
}

/// Prints the lines of `get`. The first of `columns` is `name`, whose width is that of the NAME column; the others
/// make the width of VALUE, whether they have a line or not.
pub(crate) fn print_rows(session: &mut Session<'_>, fields: &[Field], columns: &[Column], rows: &[Row], scripted: bool) {
    if rows.is_empty() {
        return;
    }
    let mut widths = [4, 8, 5, 8, 6];
    for (index, column) in columns.iter().enumerate() {
        widths[Field::Property as usize] = widths[Field::Property as usize].max(column.name.len());
        if index > 0 {
            widths[Field::Value as usize] = widths[Field::Value as usize].max(column.width);
            widths[Field::Received as usize] = widths[Field::Received as usize].max(column.received_width);
        }
        if column.name == "name" && column.width > widths[Field::Name as usize] {
            widths[Field::Name as usize] = column.width;
            widths[Field::Source as usize] = column.width + "inherited from".len();
        }
    }
    let layout = |cells: Vec<String>| {
        let last = cells.len() - 1;
        let padded = cells.iter().enumerate().map(|(index, cell)| {
            if index == last { cell.clone() } else { pad(cell, widths[fields[index] as usize], false) }
        });
        padded.collect::<Vec<_>>().join("  ")
    };
    if !scripted {
        say!(session, "{}", layout(fields.iter().map(|field| field.title().to_owned()).collect()));
    }
    for row in rows {
        let cells: Vec<String> = fields.iter().map(|field| row.cell(*field)).collect();
        if scripted {
            say!(session, "{}", cells.join("\t"));
        } else {
            say!(session, "{}", layout(cells));
        }
    }
}

/// Reads `-o` of `get`.
pub(crate) fn parse_fields(session: &mut Session<'_>, text: &str, with_received: bool) -> Result<Vec<Field>, crate::session::Stop> {
    let limit = if with_received { 5 } else { 4 };
    let mut fields = Vec::new();
    for word in text.split(',') {
        if fields.len() == limit {
            return Err(session.misuse("too many fields given to -o option"));
        }
        match word {
            "name" => fields.push(Field::Name),
            "property" => fields.push(Field::Property),
            "value" => fields.push(Field::Value),
            "received" if with_received => fields.push(Field::Received),
            "source" => fields.push(Field::Source),
            "all" if fields.is_empty() => {
                fields = vec![Field::Name, Field::Property, Field::Value];
                fields.extend(with_received.then_some(Field::Received));
                fields.push(Field::Source);
            }
            "all" => return Err(session.misuse("\"all\" conflicts with specific fields given to -o option")),
            _ => return Err(session.misuse(format_args!("invalid column name '{word}'"))),
        }
    }
    Ok(fields)
}
