//! `zpool get`, of vdevs

use engine::dsl::prop_table::{Property, is_user_property};
use engine::pool::vdev_prop_table::{self, NOT_APPLICABLE};
use tarnfs::control::scan::is_device;
use tarnfs::control::{PoolSelect, PoolStatus, PropertyValue, Request, Source, Value, VdevKind, VdevState, VdevStatus, Wanted};

use super::Flags;
use crate::properties::columns::Column;
use crate::properties::table::{self, Row};
use crate::session::{Outcome, Session, Stop, complain};
use crate::text::json::{self, Object};
use crate::text::units::nice_number;
use crate::zpool::show::status_json::{pool_head, vdev_head};
use crate::zpool::spec::pools;
use crate::zpool::spec::vdev_name::{Naming, type_word};

/// A vdev that was asked for, by the name that it was given or has.
struct Shown<'a> {
    name: String,
    vdev: &'a VdevStatus,
    parent: Option<&'a VdevStatus>,
    /// What is stored of it.
    stored: Vec<PropertyValue>,
}

/// The name of the root among vdevs.
const ROOT: &str = "root-0";

/// The vdevs that the operands name, or all; `Err`: the names that are none.
fn find<'a>(status: &'a PoolStatus, operands: &[String]) -> Result<Vec<Shown<'a>>, Vec<String>> {
    let mut all = Vec::new();
    gather(&status.root, None, status, &mut all);
    if let [word] = operands
        && word == "all-vdevs"
    {
        return Ok(all);
    }
    let (mut found, mut wrong) = (Vec::new(), Vec::new());
    for name in operands {
        let is_it = |shown: &&Shown<'_>| is_called(shown, name);
        match all.iter().find(is_it) {
            Some(shown) => {
                let name = if name == "root" { ROOT.to_owned() } else { name.clone() };
                found.push(Shown { name, vdev: shown.vdev, parent: shown.parent, stored: Vec::new() });
            }
            None => wrong.push(name.clone()),
        }
    }
    if wrong.is_empty() { Ok(found) } else { Err(wrong) }
}

fn is_called(shown: &Shown<'_>, name: &str) -> bool {
    let by_path = shown.vdev.path.as_deref().is_some_and(|path| is_device(path, shown.vdev.whole_disk, name));
    let is_root = shown.vdev.kind == VdevKind::Root && name == "root";
    shown.name == name || by_path || is_root || shown.vdev.guid.to_string() == name
}

fn gather<'a>(vdev: &'a VdevStatus, parent: Option<&'a VdevStatus>, status: &PoolStatus, all: &mut Vec<Shown<'a>>) {
    if !matches!(vdev.kind, VdevKind::Hole | VdevKind::Missing) {
        let name = if vdev.kind == VdevKind::Root { ROOT.to_owned() } else { Naming::default().name(vdev, &status.name) };
        all.push(Shown { name, vdev, parent, stored: Vec::new() });
    }
    vdev.children.iter().for_each(|child| gather(child, Some(vdev), status, all));
}

impl Shown<'_> {
    /// A property, printed; `None`: this vdev has it not.
    fn cell(&self, column: &Column, pool: &str, exact: bool) -> Option<(String, Source)> {
        let stored = self.stored.iter().find(|property| property.name == column.name);
        let Some(property) = column.property else {
            let text = stored.and_then(|property| property.value.text());
            return match text {
                Some(text) => Some((text.to_owned(), Source::Local)),
                None if is_user_property(&column.name) => Some(("-".to_owned(), Source::Default)),
                None => None,
            };
        };
        match property.name {
            "raidz_expanding" if !matches!(self.vdev.kind, VdevKind::Raidz { .. }) => return None,
            "sit_out" if !self.is_column() => return None,
            "autosit" if self.vdev.kind == VdevKind::Root => return None,
            "trim_support" if !self.is_leaf() => return Some(("-".to_owned(), Source::None)),
            _ => {}
        }
        let (value, source) = match self.computed(property.name, pool) {
            Some(value) => (value, Source::None),
            None => match stored {
                Some(stored) => (stored.value.clone(), Source::Local),
                None => (default_of(property), Source::Default),
            },
        };
        let source = if value == default_of(property) && source == Source::Local { Source::Default } else { source };
        Some((printed(property, &value, exact), source))
    }

    fn is_leaf(&self) -> bool {
        self.vdev.children.is_empty()
    }

    /// A device in a vdev with parity.
    fn is_column(&self) -> bool {
        self.is_leaf() && self.parent.is_some_and(|parent| matches!(parent.kind, VdevKind::Raidz { .. } | VdevKind::Draid { .. }))
    }

    fn is_top_level(&self) -> bool {
        self.parent.is_some_and(|parent| parent.kind == VdevKind::Root)
    }

    /// What the vdev is, and does; `None`: that is a setting.
    fn computed(&self, name: &str, pool: &str) -> Option<Value> {
        let (vdev, stats) = (self.vdev, &self.vdev.stats);
        let number = match name {
            "capacity" => (stats.allocated * 100).checked_div(stats.deflated_space).unwrap_or(0),
            "state" => state_number(vdev.state),
            "guid" => vdev.guid,
            "asize" => if self.is_leaf() && !self.is_top_level() { stats.physical_space } else { stats.space },
            "psize" => stats.physical_space,
            "ashift" => stats.ashift,
            "size" => stats.deflated_space,
            "free" => stats.deflated_space.saturating_sub(stats.allocated),
            "allocated" => stats.allocated,
            "expandsize" => stats.expandable,
            "fragmentation" => stats.fragmentation.unwrap_or(u64::MAX),
            "parity" => match vdev.kind {
                VdevKind::Raidz { parity } | VdevKind::Draid { parity, .. } => parity.into(),
                _ => 0,
            },
            "numchildren" => vdev.children.len() as u64,
            "read_errors" => stats.read_errors,
            "write_errors" => stats.write_errors,
            "checksum_errors" => stats.checksum_errors,
            "initialize_errors" => stats.initialize.map_or(0, |work| work.errors),
            "trim_errors" => stats.trim.map_or(0, |work| work.errors),
            "slow_ios" => stats.slow_ios,
            "read_ops" => stats.reads,
            "write_ops" => stats.writes,
            "read_bytes" => stats.read_bytes,
            "write_bytes" => stats.written_bytes,
            "null_ops" | "free_ops" | "claim_ops" | "trim_ops" | "null_bytes" | "free_bytes" | "claim_bytes" | "trim_bytes" => 0,
            "removing" => stats.removing.into(),
            "raidz_expanding" => 0,
            "sit_out" => stats.sits_out.into(),
            "trim_support" => stats.can_trim.into(),
            "allocating" if vdev.kind != VdevKind::Root && !self.is_top_level() => NOT_APPLICABLE,
            "autosit" if !matches!(vdev.kind, VdevKind::Raidz { .. } | VdevKind::Draid { .. }) => NOT_APPLICABLE,
            "path" => return vdev.path.as_deref().map(Value::from),
            "physpath" => return vdev.physical_path.as_deref().map(Value::from),
            "parent" => return self.parent.map(|parent| Value::from(kernel_name(parent, pool).as_str())),
            "children" if !vdev.children.is_empty() => {
                let names: Vec<String> = vdev.children.iter().map(|child| kernel_name(child, pool)).collect();
                return Some(Value::from(names.join(",").as_str()));
            }
            _ => return None,
        };
        Some(Value::Number(number))
    }
}

/// What a vdev is called where others name it.
fn kernel_name(vdev: &VdevStatus, pool: &str) -> String {
    match (&vdev.path, vdev.kind) {
        (Some(path), _) => path.clone(),
        (None, VdevKind::Root) => pool.to_owned(),
        (None, kind) => format!("{}-{}", type_word(kind), vdev.id),
    }
}

fn default_of(property: &Property) -> Value {
    if property.is_text() { Value::from(property.default_text().unwrap_or("-")) } else { Value::Number(property.default_number()) }
}

fn state_number(state: VdevState) -> u64 {
    match state {
        VdevState::Closed => 1,
        VdevState::Offline => 2,
        VdevState::Removed => 3,
        VdevState::CantOpen => 4,
        VdevState::Faulted => 5,
        VdevState::Degraded => 6,
        VdevState::Healthy => 7,
    }
}

fn state_word(number: u64) -> &'static str {
    match number {
        2 => "OFFLINE",
        3 => "REMOVED",
        4 => "UNAVAIL",
        5 => "FAULTED",
        6 => "DEGRADED",
        7 => "ONLINE",
        _ => "UNKNOWN",
    }
}

fn printed(property: &Property, value: &Value, exact: bool) -> String {
    let number = match value {
        Value::Text(text) => return text.clone(),
        Value::Number(number) => *number,
    };
    if let Some(word) = property.number_to_word(number) {
        return word.to_owned();
    }
    match property.name {
        "expandsize" if number == 0 => "-".to_owned(),
        "checksum_n" | "checksum_t" | "io_n" | "io_t" | "slow_io_n" | "slow_io_t" | "fragmentation" if number == u64::MAX => "-".to_owned(),
        "fragmentation" => format!("{number}%"),
        "capacity" if !exact => format!("{number}%"),
        "state" if !exact => state_word(number).to_owned(),
        "ashift" | "parity" | "numchildren" | "guid" => number.to_string(),
        "checksum_n" | "checksum_t" | "io_n" | "io_t" | "slow_io_n" | "slow_io_t" => number.to_string(),
        _ if exact => number.to_string(),
        _ => nice_number(number),
    }
}

/// The guid of the one vdev that an operand names, and how it is shown.
pub(in crate::zpool) fn find_vdev(status: &PoolStatus, operand: &str) -> Option<(u64, String)> {
    let operands = [operand.to_owned()];
    let found = find(status, &operands).ok()?;
    found.first().filter(|_| found.len() == 1).map(|shown| (shown.vdev.guid, shown.name.clone()))
}

/// Prints the properties of vdevs of a pool.
pub(super) fn run(session: &mut Session<'_>, flags: &Flags, fields: &str, pool: &str, operands: &[String]) -> Outcome {
    let (statuses, code) = pools::statuses(session, std::slice::from_ref(&pool.to_owned()));
    let Some(status) = statuses.first() else { return Ok(code) };
    let mut shown = match find(status, operands) {
        Ok(shown) => shown,
        Err(wrong) => {
            complain!(session, "Expected a list of vdevs in \"{pool}\", but got:");
            wrong.iter().for_each(|name| complain!(session, "\t{name}"));
            complain!(session, "");
            return Err(Stop::Usage);
        }
    };
    let select = PoolSelect { name: Some(pool.to_owned()), properties: Wanted::All };
    let stored = session.vdev_properties(Request::VdevGet(select));
    for vdev in stored.map_err(|failure| session.failed(format_args!("cannot get vdev properties of '{pool}'"), &failure))? {
        shown.iter_mut().filter(|shown| shown.vdev.guid == vdev.guid).for_each(|shown| shown.stored.clone_from(&vdev.properties));
    }
    let mut columns = vec![Column::native(name_property(), false)];
    if fields == "all" {
        columns.extend(all(&shown));
    } else {
        for name in fields.split(',') {
            let Some(column) = column(name) else {
                complain!(session, "bad property list: invalid property '{name}'");
                return Err(Stop::Usage);
            };
            columns.push(column);
        }
    }
    for vdev in &shown {
        columns[0].fit(&vdev.name, true);
        for column in &mut columns[1..] {
            if let Some((text, _)) = vdev.cell(column, &status.name, flags.exact) {
                column.fit(&text, flags.exact);
            }
        }
    }
    let rows_of = |vdev: &Shown<'_>| -> Vec<Row> {
        let cells = columns[1..].iter().filter_map(|column| Some((column, vdev.cell(column, &status.name, flags.exact)?)));
        cells.map(|(column, (value, source))| Row { name: vdev.name.clone(), property: column.name.clone(), value, received: None, source }).collect()
    };
    if flags.json {
        print_json(session, flags, status, &shown, &rows_of);
        return Ok(0);
    }
    let rows: Vec<Row> = shown.iter().flat_map(rows_of).collect();
    table::print_rows(session, &flags.fields, &columns, &rows, flags.scripted);
    Ok(0)
}

fn name_property() -> &'static Property {
    &vdev_prop_table::PROPERTIES[0]
}

fn print_json(session: &mut Session<'_>, flags: &Flags, status: &PoolStatus, shown: &[Shown<'_>], rows_of: &dyn Fn(&Shown<'_>) -> Vec<Row>) {
    let mut list = Object::new();
    for vdev in shown {
        let mut properties = Object::new();
        for row in rows_of(vdev) {
            properties.insert(row.property, json::property(&row.value, &row.source, None, flags.as_int));
        }
        let mut object = vdev_head(vdev.vdev, &vdev.name, flags.as_int);
        object.insert("properties".into(), properties.into());
        list.insert(vdev.name.clone(), object.into());
    }
    let mut object = json::envelope("zpool get");
    object.insert("pool".into(), pool_head(status, false, flags.as_int).into());
    object.insert("vdevs".into(), list.into());
    json::print(session, object);
}

/// Is it a property of vdevs?
fn column(name: &str) -> Option<Column> {
    match vdev_prop_table::find(name) {
        Some(property) => Some(Column::native(property, false)),
        None => is_user_property(name).then(|| Column::other(name, false)),
    }
}

/// Every property, and what users made up.
fn all(shown: &[Shown<'_>]) -> Vec<Column> {
    let mut columns: Vec<Column> = vdev_prop_table::PROPERTIES.iter().filter(|property| property.is_visible()).map(|property| Column::native(property, true)).collect();
    for name in shown.iter().flat_map(|shown| &shown.stored).map(|property| property.name.as_str()).filter(|name| is_user_property(name)) {
        if !columns.iter().any(|column| column.name == name) {
            columns.push(Column::other(name, true));
        }
    }
    columns
}
