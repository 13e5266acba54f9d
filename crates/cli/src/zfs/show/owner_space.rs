//! `zfs userspace`, `groupspace`, `projectspace`

use std::cmp::Ordering;

use tarnfs::control::{DatasetKind, DatasetKinds, OwnerKind, OwnerSpace, OwnerUse, Request};

use crate::session::{Outcome, Session, Stop, complain, say};
use crate::text::getopt::Options;
use crate::text::owners::{name_of_group, name_of_user};
use crate::text::units::{nice_bytes, nice_number};
use crate::zfs::datasets;

/// A column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Field {
    Type,
    Name,
    Used,
    Quota,
    Objects,
    ObjectQuota,
}

const FIELDS: [(&str, &str, Field); 6] = [
    ("type", "TYPE", Field::Type),
    ("name", "NAME", Field::Name),
    ("used", "USED", Field::Used),
    ("quota", "QUOTA", Field::Quota),
    ("objused", "OBJUSED", Field::Objects),
    ("objquota", "OBJQUOTA", Field::ObjectQuota),
];

struct Flags {
    numeric: bool,
    scripted: bool,
    exact: bool,
    fields: Vec<Field>,
    /// The column, and whether the largest comes first.
    sort: Vec<(Field, bool)>,
    kinds: Vec<OwnerKind>,
}

struct Row {
    kind: OwnerKind,
    name: String,
    id: Option<u64>,
    of: OwnerUse,
}

pub(in crate::zfs) fn users(session: &mut Session<'_>, words: &[String]) -> Outcome {
    run(session, words, OwnerKind::User)
}

pub(in crate::zfs) fn groups(session: &mut Session<'_>, words: &[String]) -> Outcome {
    run(session, words, OwnerKind::Group)
}

pub(in crate::zfs) fn projects(session: &mut Session<'_>, words: &[String]) -> Outcome {
    run(session, words, OwnerKind::Project)
}

fn field(name: &str) -> Option<Field> {
    FIELDS.iter().find(|(word, ..)| *word == name).map(|(.., field)| *field)
}

fn parse(session: &mut Session<'_>, words: &[String], kind: OwnerKind) -> Result<(Flags, Vec<String>), Stop> {
    let is_project = kind == OwnerKind::Project;
    let all = FIELDS.iter().map(|(.., field)| *field).collect();
    let mut flags = Flags { numeric: is_project, scripted: false, exact: false, fields: all, sort: Vec::new(), kinds: vec![kind] };
    let mut options = Options::new(words, "nHpo:s:S:t:i", &[]);
    for option in options.by_ref() {
        let (letter, argument) = option.map_err(|wrong| session.misuse(wrong))?;
        let argument = argument.unwrap_or_default();
        match letter {
            'n' | 't' | 'i' if is_project => return Err(session.misuse(format_args!("invalid option '{letter}'"))),
            'n' => flags.numeric = true,
            'H' => flags.scripted = true,
            'p' => flags.exact = true,
            'o' => flags.fields = parse_fields(session, &argument)?,
            's' | 'S' => {
                let field = match argument.as_str() {
                    "type" | "name" | "used" | "quota" => field(&argument),
                    _ => None,
                };
                let field = field.ok_or_else(|| session.misuse(format_args!("invalid field '{argument}'")))?;
                flags.sort.push((field, letter == 'S'));
            }
            't' => flags.kinds = parse_types(session, &argument)?,
            _ => {}
        }
    }
    flags.sort.extend([(Field::Type, false), (Field::Name, false)]);
    Ok((flags, options.operands()))
}

fn parse_fields(session: &mut Session<'_>, text: &str) -> Result<Vec<Field>, Stop> {
    let mut fields = Vec::new();
    for word in text.split(',') {
        match field(word) {
            Some(field) => fields.push(field),
            None => {
                complain!(session, "invalid type '{word}' for -o option");
                return Err(Stop::Code(255));
            }
        }
    }
    Ok(fields)
}

/// Identities of Windows have no type of their own here: they are listed with the others.
fn parse_types(session: &mut Session<'_>, text: &str) -> Result<Vec<OwnerKind>, Stop> {
    let mut kinds = Vec::new();
    for word in text.split(',') {
        let more: &[OwnerKind] = match word {
            "posixuser" => &[OwnerKind::User],
            "posixgroup" => &[OwnerKind::Group],
            "smbuser" | "smbgroup" => &[],
            "all" => &[OwnerKind::User, OwnerKind::Group],
            _ => {
                complain!(session, "invalid type '{word}' for -t option");
                return Err(Stop::Code(255));
            }
        };
        kinds.extend(more.iter().filter(|kind| !kinds.contains(*kind)).copied().collect::<Vec<_>>());
    }
    Ok(kinds)
}

fn run(session: &mut Session<'_>, words: &[String], kind: OwnerKind) -> Outcome {
    if words.is_empty() {
        return Err(Stop::Usage);
    }
    let (flags, operands) = parse(session, words, kind)?;
    let [name] = operands.as_slice() else {
        return Err(session.misuse(if operands.is_empty() { "missing dataset name" } else { "too many arguments" }));
    };
    let kinds = DatasetKinds::NONE.with(DatasetKind::Filesystem).with(DatasetKind::Snapshot);
    let entry = datasets::open_path(session, name, kinds)?;
    let mut rows = Vec::new();
    for kind in &flags.kinds {
        let asked = session.owners(Request::OwnerSpace(OwnerSpace { name: entry.clone(), kind: *kind }));
        let owners = asked.map_err(|failure| session.failed(format_args!("cannot get used/quota for {entry}"), &failure))?;
        rows.extend(owners.into_iter().map(|of| row(&flags, *kind, of)));
    }
    rows.sort_by(|a, b| flags.sort.iter().map(|(field, reverse)| compare(*field, *reverse, a, b)).fold(Ordering::Equal, Ordering::then));
    if !rows.is_empty() {
        print(session, &flags, &rows);
    }
    Ok(0)
}

fn row(flags: &Flags, kind: OwnerKind, of: OwnerUse) -> Row {
    let id: Option<u64> = of.owner.parse().ok();
    let known = match kind {
        _ if flags.numeric => None,
        OwnerKind::User => id.and_then(name_of_user),
        OwnerKind::Group => id.and_then(name_of_group),
        OwnerKind::Project => None,
    };
    Row { kind, name: known.unwrap_or_else(|| of.owner.clone()), id, of }
}

fn compare(field: Field, reverse: bool, a: &Row, b: &Row) -> Ordering {
    let is_number = |row: &Row| row.id.is_some_and(|id| row.name == id.to_string());
    let order = match field {
        Field::Type => type_words(a.kind).cmp(type_words(b.kind)),
        // Names by their letters, numbers by their size; one of each: the name comes first.
        Field::Name if is_number(a) && is_number(b) => a.id.cmp(&b.id),
        Field::Name => is_number(a).cmp(&is_number(b)).then_with(|| a.name.cmp(&b.name)),
        Field::Used => a.of.used.unwrap_or(0).cmp(&b.of.used.unwrap_or(0)),
        Field::Quota => a.of.quota.unwrap_or(0).cmp(&b.of.quota.unwrap_or(0)),
        Field::Objects | Field::ObjectQuota => Ordering::Equal,
    };
    if reverse { order.reverse() } else { order }
}

fn type_words(kind: OwnerKind) -> &'static str {
    match kind {
        OwnerKind::User => "POSIX User",
        OwnerKind::Group => "POSIX Group",
        OwnerKind::Project => "Project",
    }
}

fn cell(flags: &Flags, field: Field, row: &Row) -> String {
    // A quota is shown when there is something used that it could limit, and the other way round.
    let bytes = row.of.used.is_some() || row.of.quota.is_some();
    let objects = row.of.objects.is_some() || row.of.object_quota.is_some();
    let number = |there: bool, number: Option<u64>, is_quota: bool, nice: fn(u64) -> String| match number.unwrap_or(0) {
        _ if !there => "-".to_owned(),
        number if flags.exact => number.to_string(),
        0 if is_quota => "none".to_owned(),
        number => nice(number),
    };
    match field {
        Field::Type => type_words(row.kind).to_owned(),
        Field::Name => row.name.clone(),
        Field::Used => number(bytes, row.of.used, false, nice_bytes),
        Field::Quota => number(bytes, row.of.quota, true, nice_bytes),
        Field::Objects => number(objects, row.of.objects, false, nice_number),
        Field::ObjectQuota => number(objects, row.of.object_quota, true, nice_number),
    }
}

fn print(session: &mut Session<'_>, flags: &Flags, rows: &[Row]) {
    let heading = |field: &Field| FIELDS.iter().find(|(.., known)| known == field).map_or("", |(_, heading, _)| *heading);
    let lines: Vec<Vec<String>> = rows.iter().map(|row| flags.fields.iter().map(|field| cell(flags, *field, row)).collect()).collect();
    if flags.scripted {
        lines.iter().for_each(|cells| say!(session, "{}", cells.join("\t")));
        return;
    }
    let headings: Vec<String> = flags.fields.iter().map(|field| heading(field).to_owned()).collect();
    let width = |column: usize| lines.iter().map(|cells| cells[column].chars().count()).fold(headings[column].len(), usize::max);
    let widths: Vec<usize> = (0..headings.len()).map(width).collect();
    for cells in std::iter::once(&headings).chain(&lines) {
        let padded = cells.iter().zip(&widths).zip(&flags.fields).map(|((cell, width), field)| match field {
            Field::Type | Field::Name => format!("{cell:<width$}"),
            _ => format!("{cell:>width$}"),
        });
        say!(session, "{}", padded.collect::<Vec<_>>().join("  "));
    }
}
