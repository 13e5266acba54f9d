//! Every property of every dataset of the golden pools is what the real OpenZFS says it is.

use std::sync::Arc;

use disk::{Access, FileDisk};
use engine::dsl::prop_table::{PropertyKind, find, is_user_property};
use engine::dsl::{Dataset, Dsl, PropertyValue, Source};
use engine::error::{ErrorKind, Result};
use engine::host::RealHost;
use engine::pool::import::discover;
use engine::pool::{OpenOptions, Pool};
use engine::tunables::Tunables;

use super::manifest::Property;
use super::{DatasetRecord, Golden};

/// The host has no say in these: what the library alone cannot know, or knows otherwise than the machine that made the manifest.
const NOT_OURS: [&str; 5] = ["mounted", "mountpoint", "keystatus", "encryption", "encryptionroot"];

fn open(golden: &Golden) -> Result<Arc<Pool>> {
    let disks = golden.images.iter().map(|image| Arc::new(FileDisk::open(image, Access::Inspect).unwrap()) as disk::DiskRef).collect();
    let candidates = discover(disks);
    assert_eq!(candidates.len(), 1, "{}", golden.name);
    let options = OpenOptions {
        host: RealHost::shared(),
        tunables: Tunables::default(),
        read_only: true,
        file_owner: None,
        new_name: None,
        forget_log: false,
    };
    Pool::open(&candidates[0], options)
}

/// As `zfs get -p` prints it.
fn printed(name: &str, value: &PropertyValue) -> String {
    match value {
        PropertyValue::Text(text) => text.clone(),
        PropertyValue::Number(number) => match find(name).map(|property| property.kind) {
            _ if name.ends_with("compressratio") => format!("{}.{:02}", number / 100, number % 100),
            Some(PropertyKind::Number { default: u64::MAX }) if *number == u64::MAX => "none".to_owned(),
            Some(PropertyKind::Index { .. }) => {
                find(name).and_then(|property| property.number_to_word(*number)).unwrap_or("?").to_owned()
            }
            _ => number.to_string(),
        },
    }
}

fn compare_property(dataset: &Arc<Dataset>, name: &str, expected: &Property) -> Result<(), String> {
    let found = dataset.any_property(name).map_err(|error| format!("{name}: {error}"))?;
    let Some((value, source)) = found else { return Err(format!("{name}: no value, expected {expected:?}")) };
    let value = printed(name, &value);
    // Clones are listed in no order.
    let sorted = |text: &str| text.split(',').map(str::to_owned).collect::<std::collections::BTreeSet<String>>();
    if value != expected.value() && !(name == "clones" && sorted(&value) == sorted(expected.value())) {
        return Err(format!("{name}: {value}, expected {expected:?}"));
    }
    let source = match source {
        Source::Default | Source::None | Source::Temporary => None,
        Source::Local => Some("local".to_owned()),
        Source::Received => Some("received".to_owned()),
        Source::Inherited(from) => Some(format!("inherited from {from}")),
    };
    match (expected, source) {
        (Property::Plain(_), None) => Ok(()),
        (Property::Set { source: expected, .. }, Some(source)) if *expected == source => Ok(()),
        (expected, source) => Err(format!("{name}: source {source:?}, expected {expected:?}")),
    }
}

/// Facts that old pools do not have: then OpenZFS shows no line.
const LATER_FACTS: [&str; 5] = ["usedbysnapshots", "usedbydataset", "usedbychildren", "usedbyrefreservation", "written"];

fn compare_dataset(dsl: &Arc<Dsl>, record: &DatasetRecord, differences: &mut Vec<String>) -> usize {
    let dataset = match dsl.open_dataset(&record.name) {
        Ok(dataset) => dataset,
        Err(error) => {
            differences.push(error.to_string());
            return 0;
        }
    };
    let mut compared = 0;
    let values = dataset.property_values();
    for (name, expected) in &record.props {
        let ours = !NOT_OURS.contains(&name.as_str()) && (find(name).is_some() || is_user_property(name));
        if ours {
            compared += 1;
            if let Err(difference) = compare_property(&dataset, name, expected) {
                differences.push(format!("{}: {difference}", record.name));
            }
            let (alone, of_several) = (dataset.property(name), values.property(name));
            if alone.as_ref().ok() != of_several.as_ref().ok() {
                differences.push(format!("{}: {name}: {alone:?} by itself, and {of_several:?} of several", record.name));
            }
        }
    }
    for name in LATER_FACTS.iter().filter(|name| !record.props.contains_key(**name)) {
        compared += 1;
        if let Ok(Some((value, _))) = dataset.any_property(name) {
            differences.push(format!("{}: {name}: {}, and OpenZFS has none", record.name, printed(name, &value)));
        }
    }
    compared
}

/// Compares all datasets; `None`: there is no such golden pool here.
fn compare_pool(name: &str) -> Option<Vec<String>> {
    compare_golden(&Golden::find(name).unwrap()?)
}

fn compare_golden(golden: &Golden) -> Option<Vec<String>> {
    let name = golden.name.as_str();
    let pool = match open(golden) {
        Err(error) if error.kind() == ErrorKind::Unsupported => {
            println!("skipped: {error}");
            return None;
        }
        other => other.unwrap(),
    };
    let mut differences = Vec::new();
    let mut compared = 0;
    for record in golden.manifest.datasets.iter().filter(|record| record.kind != "bookmark") {
        compared += compare_dataset(&pool.dsl, record, &mut differences);
    }
    assert!(compared > 40, "{name}: {compared} properties compared");
    Some(differences)
}

#[test]
fn properties_of_golden_pools() {
    let names = [
        "acl", "xattr", "v1", "noalloc", "bclone", "bigdir", "cache", "checkpoint", "checksum", "compress", "copies", "dedup-fast", "dedup-legacy", "degraded-mir",
        "disktype", "dnodesize", "draid2", "encrypt", "errors", "everything", "expand", "full", "gang-a12", "gang-a9", "holes", "labels",
        "mirror2", "mirror3", "mirrors", "names", "nofeat", "quota", "raidz1", "raidz2", "raidz3", "recordsize", "remove", "rewrite",
        "single-a12", "single-a9", "snap", "special", "streams", "stripe2", "stripe4", "uberblock", "upgraded", "v28", "zvol",
    ];
    let mut seen = 0;
    let mut all = Vec::new();
    for name in names {
        match compare_pool(name) {
            Some(differences) => {
                seen += 1;
                all.extend(differences);
            }
            None => println!("skipped: {name}"),
        }
    }
    assert!(seen > 0, "no golden pool at all");
    assert!(all.is_empty(), "{} differences\n{}", all.len(), all.join("\n"));
}

/// All pools in `TARN_GOLDEN_DIR`, as `golden_write` reads them (`TARN_GOLDEN=name,name`: these).
#[test]
#[ignore = "needs TARN_GOLDEN_DIR"]
fn properties_of_pools_elsewhere() {
    let Some(places) = super::elsewhere().unwrap() else { return crate::places::skipped("pools elsewhere: TARN_GOLDEN_DIR is not set") };
    let mut all = Vec::new();
    for path in places {
        let golden = super::unpack(&path).unwrap();
        match std::panic::catch_unwind(|| compare_golden(&golden)) {
            Ok(Some(differences)) => all.extend(differences),
            Ok(None) => {}
            Err(_) => all.push(format!("{}: panicked", golden.name)),
        }
    }
    assert!(all.is_empty(), "{} differences\n{}", all.len(), all.join("\n"));
}

#[test]
fn what_the_last_scrub_has_seen_is_known() {
    for name in ["errors", "rewrite"] {
        let Some(golden) = Golden::find(name).unwrap() else {
            crate::places::skipped(&format!("golden pool {name}: not found"));
            continue;
        };
        let seen = open(&golden).unwrap().last_scrubbed_txg().unwrap();
        assert_eq!(seen.to_string(), golden.manifest.pool.props["last_scrubbed_txg"].value(), "{name}");
        assert!(seen > 0, "{name}");
    }
}

/// What OpenZFS is filling is online there.
#[test]
fn a_pool_that_is_being_resilvered_is_online() {
    let Some(golden) = Golden::find("resilver").unwrap() else { return crate::places::skipped("golden pool resilver: not found") };
    let pool = open(&golden).unwrap();
    assert_eq!(pool.vdevs.state().name(), golden.manifest.pool.props["health"].value());
    assert!(pool.vdevs.leaves().iter().any(|leaf| leaf.is_behind()));
}

/// Entries of a dedup table that are only in its log count too.
#[test]
fn what_deduplication_and_cloning_save_in_golden_pools() {
    for name in ["bclone", "dedup-fast", "dedup-legacy"] {
        let Some(golden) = Golden::find(name).unwrap() else {
            println!("skipped: {name}");
            continue;
        };
        let (dedup, clones) = open(&golden).unwrap().shared_space();
        let expected = |property: &str| golden.manifest.pool.props[property].value();
        let ratio = dedup.referenced * 100 / dedup.allocated.max(1);
        assert_eq!(clones.used.to_string(), expected("bcloneused"), "{name}");
        assert_eq!(clones.saved.to_string(), expected("bclonesaved"), "{name}");
        assert_eq!(dedup.tables.to_string(), expected("dedup_table_size"), "{name}");
        if dedup.allocated != 0 {
            assert_eq!(format!("{}.{:02}", ratio / 100, ratio % 100), expected("dedupratio"), "{name}");
        }
    }
}
