//! `zpool list`

use tarnfs::control::{PoolEntry, Source, VdevStatus};

use super::status::{is_listed_apart, is_ordinary, state_word};
use super::status_json::{pool_head, vdev_head};
use crate::properties::columns::{self, Column, Scope};
use crate::properties::display::{self, Style};
use crate::properties::table;
use crate::session::{Outcome, Session, Stop, say};
use crate::text::getopt::{Long, Options};
use crate::text::json::{self, Object};
use crate::text::units::nice_number;
use crate::zpool::spec::pools::{self, Timestamp};
use crate::zpool::spec::vdev_name::{CLASSES, Naming};

const LONG: &[Long] = &[("json", 'j'), ("json-int", 'J'), ("json-pool-key-guid", 'G')];
const DEFAULT_FIELDS: &str = "name,size,allocated,free,checkpoint,expandsize,fragmentation,capacity,dedupratio,health,altroot";
/// Narrowest name column of `-v`.
const NAME_WIDTH_MIN: usize = 9;

#[derive(Default)]
struct Flags {
    naming: Naming,
    scripted: bool,
    fields: Option<String>,
    exact: bool,
    json: bool,
    as_int: bool,
    key_guid: bool,
    timestamp: Timestamp,
    verbose: bool,
}

fn parse(session: &mut Session<'_>, words: &[String]) -> Result<(Flags, Vec<String>), Stop> {
    let mut flags = Flags::default();
    let mut options = Options::new(words, ":gjHLo:pPT:v", LONG);
    for option in options.by_ref() {
        let (letter, argument) = option.map_err(|wrong| session.misuse(wrong))?;
        match letter {
            'g' => flags.naming.guid = true,
            'H' => flags.scripted = true,
            'L' => flags.naming.follow = true,
            'o' => flags.fields = argument,
            'P' => flags.naming.path = true,
            'p' => flags.exact = true,
            'j' => flags.json = true,
            'J' => (flags.as_int, flags.exact) = (true, true),
            'G' => flags.key_guid = true,
            'T' => flags.timestamp = pools::parse_timestamp(session, &argument.unwrap_or_default())?,
            _ => flags.verbose = true,
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
    let mut interval = pools::take_interval(session, &mut operands)?;
    let chosen = columns::parse(session, flags.fields.as_deref().unwrap_or(DEFAULT_FIELDS), Scope::Pool)?;
    let wanted = columns::wanted(chosen.as_deref(), &[]);
    let style = Style { exact: flags.exact, zone: session.zone.clone() };
    let mut first = true;
    loop {
        let (entries, code) = pools::entries(session, &operands, &wanted);
        if entries.is_empty() {
            if operands.is_empty() && !flags.scripted && !flags.json {
                say!(session, "no pools available");
            }
            return Ok(code);
        }
        let mut columns = chosen.clone().unwrap_or_else(|| with_all(&entries));
        fit(&mut columns, &entries, &style);
        if flags.json {
            let text = flags.timestamp.text(session);
            print_json(session, &flags, &entries, &columns, &style, text);
        } else {
            if let Some(text) = flags.timestamp.text(session) {
                say!(session, "{text}");
            }
            print_table(session, &flags, &entries, &mut columns, &style, std::mem::take(&mut first));
        }
        // That some could not be opened was said; what could be is listed.
        if !pools::next_round(session, &mut interval) {
            return Ok(0);
        }
    }
}

/// Every native column, then the user's own, then features, in the order in which pools have them.
pub(super) fn with_all(entries: &[PoolEntry]) -> Vec<Column> {
    let mut columns = columns::all(Scope::Pool);
    let others = entries.iter().flat_map(|entry| &entry.properties).map(|property| property.name.as_str());
    let (users, features): (Vec<&str>, Vec<&str>) =
        others.filter(|name| name.contains([':', '@'])).partition(|name| engine::dsl::prop_table::is_user_property(name));
    for name in users.into_iter().chain(features) {
        if !columns.iter().any(|column| column.name == name) {
            columns.push(Column::other(name, true));
        }
    }
    columns
}

/// A property of a pool, printed; `None` when it has no value.
pub(super) fn cell(entry: &PoolEntry, column: &Column, style: &Style) -> Option<(String, Source)> {
    if column.name == "name" {
        return Some((entry.name.clone(), Source::None));
    }
    let Some(value) = entry.properties.iter().find(|property| property.name == column.name) else {
        // A text that nobody set is shown, as a dash and a default.
        let text = column.property.filter(|property| property.is_text())?;
        return Some((text.default_text().unwrap_or("-").to_owned(), Source::Default));
    };
    Some((display::pool_value(value, style), value.source.clone()))
}

pub(super) fn fit(columns: &mut [Column], entries: &[PoolEntry], style: &Style) {
    for column in columns.iter_mut().filter(|column| !column.name.contains('@')) {
        for entry in entries {
            if let Some((text, _)) = cell(entry, column, style) {
                column.fit(&text, style.exact);
            }
        }
    }
}

fn name_width(flags: &Flags, entries: &[PoolEntry]) -> usize {
    let width = |entry: &PoolEntry| flags.naming.width(&entry.status, &entry.name);
    entries.iter().map(width).fold(NAME_WIDTH_MIN, usize::max)
}

fn print_table(session: &mut Session<'_>, flags: &Flags, entries: &[PoolEntry], columns: &mut [Column], style: &Style, first: bool) {
    if flags.verbose
        && let Some(column) = columns.first_mut()
    {
        column.width = name_width(flags, entries);
    }
    if !flags.scripted && (first || flags.verbose) {
        say!(session, "{}", table::heading(columns));
    }
    for entry in entries {
        let cells: Vec<String> = columns.iter().map(|column| cell(entry, column, style).map_or("-".to_owned(), |(text, _)| text)).collect();
        say!(session, "{}", table::line(columns, &cells, flags.scripted));
        if flags.verbose {
            print_tree(session, flags, entry, columns);
        }
    }
}

fn print_tree(session: &mut Session<'_>, flags: &Flags, entry: &PoolEntry, columns: &[Column]) {
    let status = &entry.status;
    for vdev in status.root.children.iter().filter(|vdev| is_ordinary(&status.root, vdev)) {
        print_vdev(session, flags, entry, columns, vdev, 2, false);
    }
    let title_line = |session: &mut Session<'_>, title: &str| {
        let cells: Vec<String> = columns.iter().enumerate().map(|(index, column)| {
            let right = index > 0;
            let text = if right { "-" } else { title };
            if right { format!("{text:>width$}", width = column.width) } else { format!("{text:<width$}", width = column.width) }
        }).collect();
        say!(session, "{}", cells.join("  "));
    };
    for (class, title) in [CLASSES[0], CLASSES[1], CLASSES[2]] {
        let mut vdevs = status.root.children.iter().filter(|vdev| is_listed_apart(vdev, class)).peekable();
        if vdevs.peek().is_some() {
            title_line(session, title);
        }
        vdevs.for_each(|vdev| print_vdev(session, flags, entry, columns, vdev, 2, false));
    }
    for (vdevs, title, is_spare) in [(&status.caches, "cache", false), (&status.spares, "spare", true)] {
        if !vdevs.is_empty() {
            title_line(session, title);
        }
        vdevs.iter().for_each(|vdev| print_vdev(session, flags, entry, columns, vdev, 2, is_spare));
    }
}

fn print_vdev(session: &mut Session<'_>, flags: &Flags, entry: &PoolEntry, columns: &[Column], vdev: &VdevStatus, depth: usize, is_spare: bool) {
    let name = flags.naming.name(vdev, &entry.name);
    let width = columns.first().map_or(0, |column| column.width);
    let mut line = if flags.scripted { format!("\t{name}") } else { format!("{:depth$}{name:<rest$}", "", rest = width.saturating_sub(depth)) };
    for column in columns.iter().filter(|column| column.name != "name") {
        let text = vdev_cell(vdev, column, flags.exact, is_spare);
        // The width is that of the heading: a vdev's line is printed without looking at the others.
        let width = column.property.map_or(0, |property| Column::native(property, false).width);
        if flags.scripted {
            line.push_str(&format!("\t{text}"));
        } else {
            line.push_str(&format!("  {text:>width$}"));
        }
    }
    say!(session, "{line}");
    for child in vdev.children.iter().filter(|child| is_ordinary(vdev, child)) {
        print_vdev(session, flags, entry, columns, child, depth + 2, is_spare);
    }
}

/// What a column says of a vdev. Space is known of top-level vdevs only.
fn vdev_cell(vdev: &VdevStatus, column: &Column, exact: bool, is_spare: bool) -> String {
    let stats = &vdev.stats;
    let top_level = stats.space != 0;
    let number = |number: u64| if exact { number.to_string() } else { nice_number(number) };
    let or_dash = |text: String, valid: bool| if valid { text } else { "-".to_owned() };
    match column.name.as_str() {
        "size" if stats.physical_space != 0 => number(stats.physical_space),
        "size" => or_dash(number(stats.space), top_level),
        "allocated" => or_dash(number(stats.allocated), top_level),
        "free" => or_dash(number(stats.space.saturating_sub(stats.allocated)), top_level),
        "checkpoint" => or_dash(number(stats.checkpoint_space), top_level && stats.checkpoint_space != 0),
        "expandsize" => or_dash(number(stats.expandable), stats.expandable != 0),
        "fragmentation" => match stats.fragmentation {
            Some(percent) if top_level => if exact { percent.to_string() } else { format!("{percent}%") },
            _ => "-".to_owned(),
        },
        "capacity" => or_dash(capacity(stats.allocated, stats.space, exact), top_level),
        "health" => state_word(vdev, is_spare).to_owned(),
        _ => "-".to_owned(),
    }
}

/// How full, in percent, with as many decimals as five characters hold.
fn capacity(allocated: u64, space: u64, exact: bool) -> String {
    let parts = (u128::from(allocated) * 10_000 / u128::from(space.max(1))) as u64;
    if exact {
        return (parts / 100).to_string();
    }
    let percent = parts as f64 / 100.0;
    match parts {
        0..1000 => format!("{percent:.2}%"),
        1000..10_000 => format!("{percent:.1}%"),
        _ => format!("{percent:.0}%"),
    }
}

fn print_json(session: &mut Session<'_>, flags: &Flags, entries: &[PoolEntry], columns: &[Column], style: &Style, time: Option<String>) {
    let mut pools = Object::new();
    for entry in entries {
        let mut properties = Object::new();
        for column in columns.iter().filter(|column| column.name != "name") {
            let (text, source) = cell(entry, column, style).unwrap_or_else(|| ("-".to_owned(), Source::None));
            properties.insert(column.name.clone(), json::property(&text, &source, None, flags.as_int));
        }
        let mut object = pool_head(&entry.status, true, flags.as_int);
        object.insert("properties".into(), properties.into());
        if flags.verbose {
            object.insert("vdevs".into(), tree_json(flags, entry, columns).into());
        }
        let key = if flags.key_guid { entry.guid.to_string() } else { entry.name.clone() };
        pools.insert(key, object.into());
    }
    let mut object = json::envelope("zpool list");
    object.insert("pools".into(), pools.into());
    if let Some(time) = time {
        object.insert("time".into(), if flags.as_int { session.now.into() } else { time.into() });
    }
    json::print(session, object);
}

fn tree_json(flags: &Flags, entry: &PoolEntry, columns: &[Column]) -> Object {
    let status = &entry.status;
    let mut tree = Object::new();
    for vdev in status.root.children.iter().filter(|vdev| is_ordinary(&status.root, vdev)) {
        vdev_json(flags, entry, columns, vdev, false, &mut tree);
    }
    for (class, title) in CLASSES {
        let mut group = Object::new();
        for vdev in status.root.children.iter().filter(|vdev| is_listed_apart(vdev, class)) {
            vdev_json(flags, entry, columns, vdev, false, &mut group);
        }
        if !group.is_empty() {
            tree.insert(title.into(), group.into());
        }
    }
    for (vdevs, title, is_spare) in [(&status.caches, "l2cache", false), (&status.spares, "spares", true)] {
        let mut group = Object::new();
        vdevs.iter().for_each(|vdev| vdev_json(flags, entry, columns, vdev, is_spare, &mut group));
        if !group.is_empty() {
            tree.insert(title.into(), group.into());
        }
    }
    tree
}

fn vdev_json(flags: &Flags, entry: &PoolEntry, columns: &[Column], vdev: &VdevStatus, is_spare: bool, into: &mut Object) {
    let name = flags.naming.name(vdev, &entry.name);
    let mut object = vdev_head(vdev, &name, flags.as_int);
    let mut properties = Object::new();
    for column in columns.iter().filter(|column| column.name != "name") {
        let text = vdev_cell(vdev, column, flags.exact, is_spare);
        properties.insert(column.name.clone(), json::property(&text, &Source::None, None, flags.as_int));
    }
    object.insert("properties".into(), properties.into());
    let mut children = Object::new();
    for child in vdev.children.iter().filter(|child| is_ordinary(vdev, child)) {
        vdev_json(flags, entry, columns, child, is_spare, &mut children);
    }
    if !children.is_empty() {
        object.insert("vdevs".into(), children.into());
    }
    into.insert(name, object.into());
}
