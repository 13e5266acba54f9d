//! `zdb -l`: the four labels of a device.
//!
//! # Theory
//!
//! The labels should say the same, so each different configuration and each different uberblock is shown once, where
//! it is found first, with the labels that have it.

use disk::{Access, DiskRef};
use engine::vdev::label::{DeviceLabels, FoundUberblock};
use ondisk::label::{LABELS, Ring};
use ondisk::nvlist::NvList;
use ondisk::uberblock::{Multihost, Uberblock};
use serde_json::{Value as Json, json};
use tarnfs::control::plain_words;
use tarnfs::control::scan::DEVICE_DIRECTORIES;

use super::{Flags, nvlist};
use crate::session::{Session, say};
use crate::text::json;
use crate::text::units::clock_time;

/// Slots at the end of the ring that multihost heartbeats use.
const HEARTBEAT_SLOTS: u64 = 1;

pub(super) fn run(session: &mut Session<'_>, flags: &Flags, device: &str) -> u8 {
    let disk = match open(device) {
        Ok(disk) => disk,
        Err(_) if !device.starts_with('/') && !std::path::Path::new(device).exists() => {
            say!(session, "failed to find device {device}, try specifying absolute path instead");
            return 1;
        }
        Err(error) => {
            say!(session, "{}", plain_words(format!("cannot open '{device}': {error}")));
            return 1;
        }
    };
    let labels = DeviceLabels::read(&*disk);
    let sealed = labels.configs().count();
    let mut configs: Vec<(usize, &NvList)> = labels.configs().chain(labels.unsealed()).collect();
    configs.sort_by_key(|(label, _)| *label);
    let ashift = configs.first().and_then(|(_, config)| config.nvlist("vdev_tree")?.u64("ashift")).unwrap_or(9);
    let ashift = u32::try_from(ashift).unwrap_or(9);
    let uberblocks = if flags.uberblock > 0 { labels.uberblocks(ashift) } else { Vec::new() };
    if flags.json {
        print_json(session, device, &configs, &uberblocks);
    } else {
        print_text(session, flags, &labels, &configs, &Uberblocks { found: &uberblocks, slots: Ring::new(ashift).slots() });
    }
    match sealed {
        0 => 2,
        LABELS => 0,
        _ => 1,
    }
}

/// The labels that hold an equal thing; the first of them shows it.
fn holders<T: PartialEq>(all: &[(usize, &T)], thing: &T) -> Vec<usize> {
    let mut labels: Vec<usize> = all.iter().filter(|(_, other)| *other == thing).map(|(label, _)| *label).collect();
    labels.dedup();
    labels
}

fn numbers(labels: &[usize]) -> String {
    labels.iter().map(|label| format!("{label} ")).collect()
}

/// A name without a directory is that of a device.
fn open(device: &str) -> std::io::Result<DiskRef> {
    match disk::open(device, Access::Inspect) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound && !device.starts_with('/') => {
            let mut found = DEVICE_DIRECTORIES.iter().map(|directory| format!("{directory}/{device}"));
            found.find_map(|path| disk::open(&path, Access::Inspect).ok()).ok_or(error)
        }
        other => other,
    }
}

/// What the rings of a device hold, and how many slots a ring has.
struct Uberblocks<'a> {
    found: &'a [FoundUberblock],
    slots: u64,
}

fn print_text(session: &mut Session<'_>, flags: &Flags, all: &DeviceLabels, configs: &[(usize, &NvList)], uberblocks: &Uberblocks<'_>) {
    let found: Vec<(usize, &Uberblock)> = uberblocks.found.iter().map(|found| (found.label, &found.uberblock)).collect();
    for label in 0..LABELS {
        let mut headed = flags.quiet;
        let mut head = |session: &mut Session<'_>| {
            if !std::mem::replace(&mut headed, true) {
                let line = "------------------------------------";
                let bad = if all.unsealed().any(|(at, _)| at == label) { "(Bad label cksum)" } else { "" };
                say!(session, "{line}\nLABEL {label} {bad}\n{line}");
            }
        };
        match configs.iter().find(|(at, _)| *at == label) {
            None if !flags.quiet => say!(session, "failed to unpack label {label}"),
            Some((_, config)) if !flags.quiet => {
                let labels = holders(configs, config);
                if flags.labels >= 3 || labels.first() == Some(&label) {
                    head(session);
                    session.print(format_args!("{}", nvlist::text(config, 4)));
                    say!(session, "    labels = {}", numbers(&labels));
                }
            }
            _ => {}
        }
        for slot in 0..uberblocks.slots {
            let Some(item) = uberblocks.found.iter().find(|found| (found.label, found.slot) == (label, slot)) else {
                if flags.uberblock >= 2 {
                    head(session);
                    say!(session, "    Uberblock[{slot}] invalid");
                }
                continue;
            };
            let labels = holders(&found, &item.uberblock);
            let heartbeat = slot + HEARTBEAT_SLOTS >= uberblocks.slots && item.uberblock.multihost.as_ref().is_some_and(|m| m.delay_ns != 0);
            if (flags.uberblock < 3 && labels.first() != Some(&label)) || (flags.uberblock < 4 && heartbeat) {
                continue;
            }
            head(session);
            say!(session, "    Uberblock[{slot}]");
            print_uberblock(session, &item.uberblock);
            say!(session, "        labels = {}", numbers(&labels));
        }
    }
}

/// The lines of an uberblock.
pub(super) fn print_uberblock(session: &mut Session<'_>, uberblock: &Uberblock) {
    let when = clock_time(uberblock.timestamp, &session.zone.clone());
    say!(session, "\tmagic = {:016x}", Uberblock::MAGIC);
    say!(session, "\tversion = {}", uberblock.version);
    say!(session, "\ttxg = {}", uberblock.txg);
    say!(session, "\tguid_sum = {}", uberblock.guid_sum);
    say!(session, "\ttimestamp = {} UTC = {when}", uberblock.timestamp);
    say!(session, "\tbp = {}", root_pointer(uberblock));
    match &uberblock.multihost {
        None => say!(session, "\tmmp_magic = {:016x}", 0),
        Some(multihost) => {
            say!(session, "\tmmp_magic = {:016x}", Multihost::MAGIC);
            say!(session, "\tmmp_delay = {}", multihost.delay_ns);
            for (name, number) in [
                ("mmp_seq", multihost.sequence().map(u64::from)),
                ("mmp_fail", multihost.fail_intervals().map(u64::from)),
                ("mmp_write", multihost.interval_ms().map(u64::from)),
            ] {
                if let Some(number) = number {
                    say!(session, "\t{name} = {number}");
                }
            }
            say!(session, "\tmmp_valid = {:x}", multihost.config & 0xff);
        }
    }
    say!(session, "\tcheckpoint_txg = {}", uberblock.checkpoint_txg);
    let reflow = uberblock.raidz_reflow;
    say!(session, "\traidz_reflow state={} off={}", reflow.scratch_state(), reflow.offset());
}

fn root_pointer(uberblock: &Uberblock) -> String {
    ondisk::blkptr::BlkPtr::from_bytes(&uberblock.root).map_or_else(|| "<NULL>".to_owned(), |pointer| pointer.to_string())
}

/// An uberblock as data.
pub(super) fn uberblock_json(uberblock: &Uberblock) -> Json {
    json!({
        "version": uberblock.version,
        "txg": uberblock.txg,
        "guid_sum": uberblock.guid_sum,
        "timestamp": uberblock.timestamp,
        "bp": root_pointer(uberblock),
        "checkpoint_txg": uberblock.checkpoint_txg,
    })
}

fn print_json(session: &mut Session<'_>, device: &str, configs: &[(usize, &NvList)], uberblocks: &[FoundUberblock]) {
    let mut object = json::envelope("zdb -l");
    object.insert("device".into(), device.into());
    let labels: Vec<Json> = configs.iter().map(|(label, config)| json!({ "label": label, "config": nvlist::json(config) })).collect();
    object.insert("labels".into(), labels.into());
    let one = |found: &FoundUberblock| {
        let mut json = uberblock_json(&found.uberblock);
        json["label"] = found.label.into();
        json["slot"] = found.slot.into();
        json
    };
    object.insert("uberblocks".into(), uberblocks.iter().map(one).collect::<Vec<_>>().into());
    json::print(session, object);
}
