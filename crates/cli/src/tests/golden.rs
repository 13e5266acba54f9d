//! Recorded pools as replies.

use engine::dsl::prop_table::{self, PropertyKind};
use engine::pool::prop_table as pool_table;
use serde_json::Value as Json;
use tarnfs::control::*;

use super::fake::FakeBackend;

/// A recorded pool.
pub(super) struct Golden {
    pub(super) json: Json,
    pub(super) name: String,
}

macro_rules! golden {
    ($name:literal) => {
        crate::tests::golden::Golden::read(include_str!(concat!("golden/", $name, ".json")))
    };
}
pub(super) use golden;

fn text(json: &Json, key: &str) -> Option<String> {
    json[key].as_str().map(str::to_owned)
}

fn number(json: &Json, key: &str) -> u64 {
    json[key].as_u64().unwrap_or(0)
}

impl Golden {
    pub(super) fn read(file: &str) -> Golden {
        let json: Json = serde_json::from_str(file).expect("golden file");
        let name = text(&json["pool"], "name").or_else(|| json["status"]["pools"].as_object()?.keys().next().cloned());
        Golden { name: name.expect("name"), json }
    }

    /// A backend with this pool.
    pub(super) fn backend(&self) -> FakeBackend {
        let mut backend = FakeBackend::default();
        let status = status(&self.json["status"]["pools"][&self.name]);
        let properties = properties(&self.json["pool"], pool_raw);
        backend.pools.push(PoolEntry { name: self.name.clone(), guid: status.guid, properties, status });
        for dataset in self.json["datasets"].as_array().expect("datasets") {
            let name = text(dataset, "name").expect("name");
            let kind = match dataset["props"]["type"].as_str() {
                Some("volume") => DatasetKind::Volume,
                Some("snapshot") => DatasetKind::Snapshot,
                Some("bookmark") => DatasetKind::Bookmark,
                _ => DatasetKind::Filesystem,
            };
            let txg = dataset["props"]["createtxg"].as_str().and_then(|txg| txg.parse().ok()).unwrap_or(0);
            backend.dataset(&name, kind, txg, properties_of_dataset(&dataset["props"]));
        }
        backend
    }

    /// Names and printed values, in the recorded order.
    pub(super) fn printed(properties: &Json) -> Vec<(String, String)> {
        let one = |(name, value): (&String, &Json)| (name.clone(), value.as_str().or(value["value"].as_str()).expect("value").to_owned());
        properties.as_object().expect("properties").iter().map(one).collect()
    }
}

fn properties_of_dataset(json: &Json) -> Vec<PropertyValue> {
    properties(json, dataset_raw)
}

fn properties(json: &Json, raw: fn(&str, &str) -> Value) -> Vec<PropertyValue> {
    let mut values = Vec::new();
    for (name, value) in json.as_object().expect("properties") {
        let text = value.as_str().or(value["value"].as_str()).expect("value");
        let source = match value["source"].as_str() {
            None => Source::Default,
            Some("local") => Source::Local,
            Some("-") => Source::None,
            Some("received") => Source::Received,
            Some(other) => Source::Inherited(other.trim_start_matches("inherited from ").to_owned()),
        };
        if text != "-" {
            values.push(PropertyValue::new(name.clone(), raw(name, text), source));
        } else if let Some(number) = dash(name) {
            values.push(PropertyValue::new(name.clone(), number, source));
        }
    }
    values
}

/// The numbers that print as a dash.
fn dash(name: &str) -> Option<u64> {
    match name {
        "version" => Some(5000),
        "expandsize" | "checkpoint" => Some(0),
        "fragmentation" => Some(u64::MAX),
        _ => None,
    }
}

fn plain(text: &str) -> Value {
    match (text, text.replace('.', "").parse::<u64>()) {
        ("none" | "auto", _) => Value::Number(u64::MAX),
        (_, Ok(number)) => Value::Number(number),
        (_, Err(_)) => Value::Text(text.to_owned()),
    }
}

fn dataset_raw(name: &str, text: &str) -> Value {
    match prop_table::find(name) {
        Some(property) if property.name == "mounted" => Value::Number(u64::from(text == "yes")),
        Some(property) => match property.kind {
            PropertyKind::Text { .. } => Value::Text(text.to_owned()),
            PropertyKind::Index { .. } => Value::Number(property.word_to_number(text).expect("word")),
            PropertyKind::Number { .. } => plain(text),
        },
        None => Value::Text(text.to_owned()),
    }
}

fn pool_raw(name: &str, text: &str) -> Value {
    match pool_table::find(name) {
        Some(property) => match property.kind {
            PropertyKind::Text { .. } => Value::Text(text.to_owned()),
            PropertyKind::Index { .. } => Value::Number(property.word_to_number(text).expect("word")),
            PropertyKind::Number { .. } if name == "health" => Value::Text(text.to_owned()),
            PropertyKind::Number { .. } => plain(text),
        },
        None => Value::Text(text.to_owned()),
    }
}

fn kind(word: &str, name: &str, has_children: bool) -> VdevKind {
    let digits = |text: &str| text.trim_matches(|c: char| !c.is_ascii_digit()).parse().unwrap_or(0);
    match word {
        "root" => VdevKind::Root,
        "disk" => VdevKind::Disk,
        "file" => VdevKind::File,
        "mirror" => VdevKind::Mirror,
        "raidz" => VdevKind::Raidz { parity: name.as_bytes()[5] - b'0' },
        "draid" => {
            let mut parts = name.split([':', '-']);
            let parity = digits(parts.next().expect("parity")) as u8;
            let mut next = || digits(parts.next().expect("part"));
            VdevKind::Draid { parity, data: next(), children: next(), spares: next() }
        }
        "spare" if has_children => VdevKind::Spare,
        "dspare" => VdevKind::DraidSpare,
        "replacing" => VdevKind::Replacing,
        other => panic!("vdev type {other}"),
    }
}

fn state(word: &str) -> VdevState {
    match word {
        "OFFLINE" => VdevState::Offline,
        "REMOVED" => VdevState::Removed,
        "CANT_OPEN" => VdevState::CantOpen,
        "FAULTED" => VdevState::Faulted,
        "DEGRADED" => VdevState::Degraded,
        "ONLINE" | "AVAIL" | "INUSE" => VdevState::Healthy,
        other => panic!("state {other}"),
    }
}

fn class(word: &str) -> AllocationClass {
    match word {
        "normal" => AllocationClass::Normal,
        "log" => AllocationClass::Log,
        "special" => AllocationClass::Special,
        "dedup" => AllocationClass::Dedup,
        "l2cache" => AllocationClass::Cache,
        "spare" => AllocationClass::Spare,
        other => panic!("class {other}"),
    }
}

fn vdev(json: &Json) -> VdevStatus {
    let name = text(json, "name").expect("name");
    let children: Vec<VdevStatus> = group(&json["vdevs"]);
    let path = text(json, "path");
    let not_present = number(json, "not_present") != 0;
    let aux = match json["aux"].as_str() {
        Some("SPARED") => VdevAux::Spared,
        Some("OPEN_FAILED") => VdevAux::OpenFailed,
        None if not_present => VdevAux::OpenFailed,
        None => VdevAux::None,
        Some(other) => panic!("aux {other}"),
    };
    VdevStatus {
        used_by: None,
        kind: kind(json["vdev_type"].as_str().expect("type"), &name, !children.is_empty()),
        id: name.rsplit('-').next().and_then(|id| id.parse().ok()).unwrap_or(0),
        guid: number(json, "guid"),
        path,
        physical_path: text(json, "phys_path"),
        device_id: text(json, "devid"),
        whole_disk: json["vdev_type"] == "disk",
        not_present,
        class: class(json["class"].as_str().expect("class")),
        state: state(json["state"].as_str().expect("state")),
        aux,
        stats: stats(json),
        children,
    }
}

fn stats(json: &Json) -> VdevStats {
    VdevStats {
        allocated: number(json, "alloc_space"),
        space: number(json, "total_space"),
        deflated_space: number(json, "def_space"),
        replacement_size: number(json, "rep_dev_size"),
        expandable: number(json, "ex_dev_size"),
        physical_space: number(json, "phys_space"),
        read_errors: number(json, "read_errors"),
        write_errors: number(json, "write_errors"),
        checksum_errors: number(json, "checksum_errors"),
        slow_ios: number(json, "slow_ios"),
        self_healed: number(json, "self_healed"),
        scan_processed: number(json, "scan_processed"),
        rebuild_processed: 0,
        checkpoint_space: number(json, "checkpoint_space"),
        ..VdevStats::default()
    }
}

fn group(json: &Json) -> Vec<VdevStatus> {
    json.as_object().map(|vdevs| vdevs.values().map(vdev).collect()).unwrap_or_default()
}

fn scan(json: &Json) -> Option<ScanStatus> {
    let function = match json["function"].as_str()? {
        "SCRUB" => ScanFunction::Scrub,
        _ => ScanFunction::Resilver,
    };
    let state = match json["state"].as_str()? {
        "FINISHED" => ScanState::Finished,
        "CANCELED" => ScanState::Canceled,
        _ => ScanState::Scanning,
    };
    Some(ScanStatus {
        function,
        state,
        start_time: number(json, "start_time"),
        end_time: number(json, "end_time"),
        to_examine: number(json, "to_examine"),
        examined: number(json, "examined"),
        skipped: number(json, "skipped"),
        processed: number(json, "processed"),
        errors: number(json, "errors"),
        issued: number(json, "issued"),
        pass_examined: number(json, "bytes_per_scan"),
        pass_issued: number(json, "issued_bytes_per_scan"),
        pass_start: number(json, "pass_start"),
        recent_rate: 0,
        pause_time: number(json, "scrub_pause"),
        spent_paused: number(json, "scrub_spent_paused"),
    })
}

/// A recorded `status` as the data it was printed from.
pub(super) fn status(json: &Json) -> PoolStatus {
    let name = text(json, "name").expect("name");
    let mut root = vdev(&json["vdevs"][&name]);
    for class in ["dedup", "special", "logs"] {
        root.children.extend(group(&json[class]));
    }
    let checkpoint = json["checkpoint_stats"].as_object().map(|_| CheckpointStatus {
        state: CheckpointState::Exists,
        start_time: number(&json["checkpoint_stats"], "start_time"),
        space: number(&json["checkpoint_stats"], "space"),
    });
    let words = json["status"].as_str().unwrap_or("");
    PoolStatus {
        name,
        guid: number(json, "pool_guid"),
        state: PoolState::Active,
        txg: number(json, "txg"),
        version: if words.contains("legacy on-disk format") { 28 } else { 5000 },
        root,
        caches: group(&json["l2cache"]),
        spares: group(&json["spares"]),
        scan: scan(&json["scan_stats"]),
        error_scrub: None,
        rebuilds: Vec::new(),
        checkpoint,
        removal: None,
        expansion: None,
        dedup: None,
        error_count: json["error_count"].as_u64(),
        errors: json["errlist"].as_array().map(|list| list.iter().map(|name| name.as_str().expect("name").to_owned()).collect()).unwrap_or_default(),
        compatibility: if words.contains("requested features") { Compatibility::FeaturesDisabled } else { Compatibility::Fits },
        suspended: None,
    }
}
