//! Finding the datasets that a command is about, and sorting them.
//!
//! # Theory
//!
//! Each operand is one request; a wrong one is complained about and the others go on. The order is by the sort columns,
//! then by name, a dataset before its snapshots, and snapshots in the order in which they were made. Values that a
//! dataset has not sort last whichever way round.

use std::cmp::Ordering;
use std::path::Path;

use engine::dsl::prop_table::DatasetTypes;
use jiff::tz::TimeZone;
use tarnfs::control::{DatasetEntry, DatasetKind, DatasetKinds, DatasetList, Failure, FailureKind, Mount, PoolSelect, PropertyValue, Request, Source, Value, Wanted};

use crate::properties::columns::{self, Column, Scope};
use crate::properties::display::{self, Style};
use crate::session::{Session, Stop, complain};
use crate::text::names;
use crate::text::suggest;

/// What to gather.
pub(crate) struct Query {
    /// Types to show.
    pub(crate) kinds: DatasetKinds,
    /// Snapshots too where `listsnapshots` is on.
    pub(crate) snapshots_where_listed: bool,
    /// `-r`, or `-d`
    pub(crate) recurse: bool,
    /// `-d`
    pub(crate) depth: Option<u64>,
    /// An operand may be a path below a mount point.
    pub(crate) paths: bool,
    pub(crate) properties: Wanted,
    pub(crate) received: bool,
    pub(crate) sort: Vec<SortColumn>,
}

impl Query {
    pub(crate) fn new(kinds: DatasetKinds, properties: Wanted) -> Query {
        Query { kinds, snapshots_where_listed: false, recurse: false, depth: None, paths: false, properties, received: false, sort: Vec::new() }
    }
}

/// `-s` or `-S`
pub(crate) struct SortColumn {
    column: Column,
    reverse: bool,
}

impl SortColumn {
    pub(crate) fn new(name: &str, reverse: bool) -> Option<SortColumn> {
        let column = columns::named(name, Scope::Dataset)?;
        let usable = column.property.is_some() || engine::dsl::prop_table::is_user_property(name);
        usable.then_some(SortColumn { column, reverse })
    }

    pub(crate) fn name(&self) -> &str {
        &self.column.name
    }
}

/// The types of the property table for a kind of dataset.
pub(crate) fn types_of(kind: DatasetKind) -> DatasetTypes {
    match kind {
        DatasetKind::Filesystem => DatasetTypes::FILESYSTEM,
        DatasetKind::Volume => DatasetTypes::VOLUME,
        DatasetKind::Snapshot => DatasetTypes::SNAPSHOT,
        DatasetKind::Bookmark => DatasetTypes::BOOKMARK,
    }
}

/// A value of a dataset, printed; `None` when it has none.
pub(crate) fn cell(entry: &DatasetEntry, column: &Column, style: &Style) -> Option<(String, Source)> {
    if column.property.is_some_and(|property| !property.applies_to(types_of(entry.kind))) {
        return None;
    }
    match column.name.as_str() {
        "name" => return Some((entry.name.clone(), Source::None)),
        "type" => return Some((entry.kind.word().to_owned(), Source::None)),
        _ => {}
    }
    let value = entry.property(&column.name)?;
    Some((display::dataset_value(value, style)?, shown_source(value)))
}

/// The source that is shown. What a file system fixed at its creation has none; a count that is not kept is a default.
fn shown_source(value: &PropertyValue) -> Source {
    let name = value.name.as_str();
    match name {
        "version" | "normalization" | "utf8only" | "casesensitivity" => Source::None,
        _ if name.starts_with("default") && name.ends_with("quota") => Source::None,
        "filesystem_count" | "snapshot_count" if value.value == Value::Number(u64::MAX) => Source::Default,
        "filesystem_count" | "snapshot_count" => Source::Local,
        _ => value.source.clone(),
    }
}

/// Gathers and sorts. The second part is the exit code: 1 when an operand was wrong.
pub(crate) fn gather(session: &mut Session<'_>, operands: &[String], query: &Query) -> Result<(Vec<DatasetEntry>, u8), Stop> {
    let mut entries = Vec::new();
    let mut code = 0;
    if operands.is_empty() {
        let list = request(query, None, query.depth);
        match session.datasets(Request::DatasetList(list)) {
            Ok(datasets) => entries = datasets.entries,
            Err(failure) => return Err(session.failed("cannot list datasets", &failure)),
        }
    }
    for operand in operands {
        match gather_one(session, operand, query) {
            Ok(found) => entries.extend(found),
            Err(stop) => {
                let Stop::Code(1) = stop else { return Err(stop) };
                code = 1;
            }
        }
    }
    entries.sort_by(|a, b| compare(a, b, &query.sort));
    entries.dedup_by(|a, b| a.name == b.name);
    Ok((entries, code))
}

pub(crate) fn request(query: &Query, root: Option<&str>, depth: Option<u64>) -> DatasetList {
    let mut kinds = query.kinds;
    let mut snapshots_where_listed = query.snapshots_where_listed;
    if root.is_some_and(|root| root.contains('@')) {
        snapshots_where_listed = false;
    } else if snapshots_where_listed {
        kinds.snapshot = false;
    }
    DatasetList { root: root.map(str::to_owned), depth, kinds, snapshots_where_listed, properties: query.properties.clone(), received: query.received }
}

fn gather_one(session: &mut Session<'_>, operand: &str, query: &Query) -> Result<Vec<DatasetEntry>, Stop> {
    let mut kinds = query.kinds;
    if query.recurse {
        kinds.filesystem = true;
        kinds.volume |= query.kinds.snapshot || query.kinds.bookmark;
    }
    let mut name = operand.to_owned();
    if query.paths && (operand.starts_with('/') || operand.starts_with("./")) {
        name = dataset_at(session, operand)?;
        kinds = DatasetKinds::NONE.with(DatasetKind::Filesystem);
    }
    let depth = if query.recurse { query.depth } else { Some(0) };
    let answer = names::check_dataset(&name, kinds, false).and_then(|()| {
        let datasets = session.datasets(Request::DatasetList(request(query, Some(&name), depth)))?;
        if datasets.root_kind.is_some_and(|kind| !kinds.has(kind)) { Err(Failure::new(FailureKind::BadType)) } else { Ok(datasets.entries) }
    });
    answer.map_err(|failure| open_failed(session, &name, failure))
}

/// Complains that a dataset cannot be opened.
pub(crate) fn open_failed(session: &mut Session<'_>, name: &str, mut failure: Failure) -> Stop {
    if failure.kind == FailureKind::NoSuchPool {
        failure = Failure::new(FailureKind::NoSuchDataset);
    }
    if failure.kind == FailureKind::NoSuchDataset && name.contains('#') {
        failure.message = "no such pool or dataset".to_owned();
    }
    let stop = session.failed(format_args!("cannot open '{name}'"), &failure);
    if failure.kind == FailureKind::NoSuchDataset {
        hint(session, name);
    }
    stop
}

/// Says which dataset may have been meant by a name that none has.
pub(crate) fn hint(session: &mut Session<'_>, name: &str) {
    if let Some(meant) = meant(session, name) {
        session.hint(suggest::line(&meant));
    }
}

/// The way down to it, each step what it is or what it was meant to be.
fn meant(session: &mut Session<'_>, name: &str) -> Option<String> {
    let head = name.split(['@', '#']).next().unwrap_or(name);
    let mut found = String::new();
    for part in head.split('/') {
        let names: Vec<String> = if found.is_empty() {
            let select = PoolSelect { name: None, properties: Wanted::Only(Vec::new()) };
            session.pools(Request::PoolGet(select)).ok()?.into_iter().map(|pool| pool.name).collect()
        } else {
            let query = Query::new(DatasetKinds::HEADS, Wanted::Only(Vec::new()));
            let datasets = session.datasets(Request::DatasetList(request(&query, Some(&found), Some(1)))).ok()?;
            let below = datasets.entries.iter().filter_map(|entry| entry.name.strip_prefix(&found)?.strip_prefix('/'));
            below.map(str::to_owned).collect()
        };
        let is_there = names.iter().any(|name| name == part);
        let step = if is_there { part } else { suggest::closest(part, names.iter().map(String::as_str))? };
        found = if found.is_empty() { step.to_owned() } else { format!("{found}/{step}") };
    }
    (found != head).then_some(found)
}

/// Opens one dataset that must be of one of `kinds`, with some properties.
pub(crate) fn open(session: &mut Session<'_>, name: &str, kinds: DatasetKinds, properties: &[&str]) -> Result<DatasetEntry, Stop> {
    let properties = Wanted::Only(properties.iter().map(|name| (*name).to_owned()).collect());
    let entries = gather_one(session, name, &Query::new(kinds, properties))?;
    match entries.into_iter().next() {
        Some(entry) => Ok(entry),
        None => Err(open_failed(session, name, Failure::new(FailureKind::NoSuchDataset))),
    }
}

/// The name of a dataset, or of the one that a path is in.
pub(crate) fn open_path(session: &mut Session<'_>, name: &str, kinds: DatasetKinds) -> Result<String, Stop> {
    let name = if name.starts_with(['/', '.']) { dataset_at(session, name)? } else { name.to_owned() };
    open(session, &name, kinds, &[]).map(|entry| entry.name)
}

/// Everything below a dataset, without itself, by name; snapshots too.
pub(crate) fn below(session: &mut Session<'_>, name: &str, kinds: DatasetKinds, properties: &[&str]) -> Result<Vec<DatasetEntry>, Stop> {
    let properties = Wanted::Only(properties.iter().map(|name| (*name).to_owned()).collect());
    let mut query = Query::new(kinds, properties);
    query.recurse = true;
    let mut entries = gather_one(session, name, &query)?;
    entries.retain(|entry| entry.name != name);
    entries.sort_by(|a, b| compare(a, b, &[]));
    Ok(entries)
}

/// The mount that a file is in, whatever way leads there, and whether it is its root. Of several in one place the last one is seen.
pub(crate) fn mount_at<'a>(mounts: &'a [Mount], path: &Path) -> Option<(&'a Mount, bool)> {
    use std::os::unix::fs::MetadataExt;
    let place = |path: &Path| std::fs::metadata(path).map(|found| (found.dev(), found.ino())).ok();
    let (device, inode) = place(path)?;
    mounts.iter().rev().find_map(|mount| place(Path::new(&mount.mountpoint)).filter(|there| there.0 == device).map(|there| (mount, there.1 == inode)))
}

/// The dataset mounted at or above a path.
fn dataset_at(session: &mut Session<'_>, path: &str) -> Result<String, Stop> {
    let Ok(real) = std::fs::canonicalize(path) else {
        complain!(session, "cannot open '{path}': No such file or directory");
        return Err(Stop::Code(1));
    };
    let mounts = session.mounts().map_err(|failure| session.failed(format_args!("cannot open '{path}'"), &failure))?;
    let best = mounts.iter().filter(|mount| real.starts_with(&mount.mountpoint)).max_by_key(|mount| mount.mountpoint.len());
    let best = best.or_else(|| mount_at(&mounts, &real).map(|(mount, _)| mount));
    best.map(|mount| mount.dataset.clone()).ok_or_else(|| {
        complain!(session, "'{path}': not a ZFS filesystem");
        Stop::Code(1)
    })
}

fn compare(a: &DatasetEntry, b: &DatasetEntry, sort: &[SortColumn]) -> Ordering {
    sort.iter().map(|column| compare_by(a, b, column)).find(|order| order.is_ne()).unwrap_or_else(|| compare_names(a, b))
}

fn compare_by(a: &DatasetEntry, b: &DatasetEntry, sort: &SortColumn) -> Ordering {
    let key = |entry: &DatasetEntry| -> Option<Value> {
        let property = sort.column.property;
        if sort.column.name == "createtxg" {
            return Some(Value::Number(entry.creation_txg));
        }
        let is_number = property.is_some_and(|property| matches!(property.kind, engine::dsl::prop_table::PropertyKind::Number { .. }));
        if is_number {
            let applies = property.is_some_and(|property| property.applies_to(types_of(entry.kind)));
            let number = entry.property(&sort.column.name).and_then(|value| value.value.number()).unwrap_or(0);
            return applies.then_some(Value::Number(number));
        }
        cell(entry, &sort.column, &Style { exact: true, zone: TimeZone::UTC }).map(|(text, _)| Value::Text(text))
    };
    let order = match (key(a), key(b)) {
        (None, None) => return Ordering::Equal,
        (None, Some(_)) => return Ordering::Greater,
        (Some(_), None) => return Ordering::Less,
        (Some(Value::Number(a)), Some(Value::Number(b))) => a.cmp(&b),
        (Some(a), Some(b)) => a.text().cmp(&b.text()),
    };
    if sort.reverse { order.reverse() } else { order }
}

fn compare_names(a: &DatasetEntry, b: &DatasetEntry) -> Ordering {
    let split = |entry: &'_ DatasetEntry| -> (String, Option<String>) {
        match entry.name.split_once('@') {
            Some((dataset, snapshot)) => (dataset.to_owned(), Some(snapshot.to_owned())),
            None => (entry.name.clone(), None),
        }
    };
    let ((dataset_a, snapshot_a), (dataset_b, snapshot_b)) = (split(a), split(b));
    dataset_a.cmp(&dataset_b).then_with(|| match (&snapshot_a, &snapshot_b) {
        (None, _) | (_, None) => snapshot_a.is_some().cmp(&snapshot_b.is_some()),
        (Some(name_a), Some(name_b)) => a.creation_txg.cmp(&b.creation_txg).then_with(|| name_a.cmp(name_b)),
    })
}

/// Reads `-t`.
pub(crate) fn parse_kinds(session: &mut Session<'_>, text: &str) -> Result<DatasetKinds, Stop> {
    let mut kinds = DatasetKinds::NONE;
    for word in text.split(',') {
        kinds = match word {
            "filesystem" | "fs" => kinds.with(DatasetKind::Filesystem),
            "volume" | "vol" => kinds.with(DatasetKind::Volume),
            "snapshot" | "snap" => kinds.with(DatasetKind::Snapshot),
            "bookmark" => kinds.with(DatasetKind::Bookmark),
            "all" => DatasetKinds::ALL,
            _ => {
                suggest::closest(word, ["filesystem", "volume", "snapshot", "bookmark", "all"]).iter().for_each(|meant| session.hint(suggest::line(meant)));
                return Err(session.misuse(format_args!("invalid type '{word}'")));
            }
        };
    }
    Ok(kinds)
}

/// Reads `-d`.
pub(crate) fn parse_depth(session: &mut Session<'_>, text: &str) -> Result<u64, Stop> {
    match text.parse::<i32>() {
        // As a shell's empty variable has it: no deeper.
        _ if text.is_empty() => Ok(0),
        Ok(depth) => u64::try_from(depth).map_err(|_| session.misuse("Depth can not be negative.")),
        Err(_) => Err(session.misuse(format_args!("{text} is not an integer"))),
    }
}

/// The head of a dataset in `-j`: name, type, pool, createtxg.
pub(crate) fn json_head(entry: &DatasetEntry, as_int: bool) -> crate::text::json::Object {
    let mut object = crate::text::json::Object::new();
    object.insert("name".into(), entry.name.clone().into());
    object.insert("type".into(), entry.kind.word().to_uppercase().into());
    object.insert("pool".into(), names::pool_of(&entry.name).into());
    object.insert("createtxg".into(), crate::text::json::number(entry.creation_txg, as_int));
    if let Some((dataset, snapshot)) = entry.name.split_once('@') {
        object.insert("dataset".into(), dataset.into());
        object.insert("snapshot_name".into(), snapshot.into());
    }
    object
}

/// Only snapshots, or only bookmarks: naming a dataset then means those of that dataset.
pub(crate) fn only_below(kinds: DatasetKinds) -> bool {
    kinds == DatasetKinds::NONE.with(DatasetKind::Snapshot) || kinds == DatasetKinds::NONE.with(DatasetKind::Bookmark)
}
