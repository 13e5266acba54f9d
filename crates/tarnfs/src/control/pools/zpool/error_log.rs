//! What the pool's logs of damaged blocks name: `zpool status`, and with `-v` the files. What was found since the last group is in memory only
//! ([`engine::zio::LostBlocks`]).
//!
//! # On disk
//! Two ZAPs that the MOS's directory names. Without `head_errlog` a key is `dataset:object:level:block` in hexadecimal digits. With it
//! a key is the head's number, and its value another ZAP, whose keys are `object:level:block:birth`.

use std::collections::BTreeSet;
use std::sync::Arc;

use engine::dmu::Objset;
use engine::dsl::meta::key;
use engine::dsl::{Dataset, Dsl};
use engine::error::Result;
use engine::pool::error_log_sync;
use engine::zap::Zap;
use engine::zio::Bookmark;
use ondisk::feature::Feature;
use ondisk::objset::ObjsetType;
use ondisk::znode;

use crate::control::Mount;
use crate::{FileSystem, MountOptions, Pool};

const LOGS: [&str; 2] = [error_log_sync::LAST, error_log_sync::OF_SCAN];
/// More are not named.
const NAMES_MAX: usize = 1000;
/// Paths deeper than this are taken for a circle.
const DEPTH_MAX: usize = 4096;

/// Object, level, number in the level, birth.
type Block = [u64; 4];

/// The object of a log; `None`: there is none.
fn object_of(dsl: &Dsl, log: &str) -> Result<Option<u64>> {
    Ok(dsl.meta.mos.zap_u64(key::DIRECTORY, log)?.filter(|object| *object != 0))
}

fn is_by_head(dsl: &Dsl) -> bool {
    dsl.meta.features.is_active(Feature::HeadErrlog)
}

/// How many damaged blocks they name. A log that cannot be read is one itself.
pub(in crate::control::pools) fn count(pool: &Pool) -> u64 {
    let dsl = &pool.engine().dsl;
    let logged = LOGS.iter().map(|log| count_in(dsl, log).unwrap_or(1)).fold(0, u64::saturating_add);
    let is_counted = |dataset, block| is_logged(dsl, dataset, block).unwrap_or(false);
    let is_new = |(dataset, block): &(u64, Block)| !is_counted(*dataset, *block) && !holders(dsl, *dataset, *block).is_empty();
    logged.saturating_add(found_since(pool).filter(is_new).count() as u64)
}

fn count_in(dsl: &Dsl, log: &str) -> Result<u64> {
    let Some(log) = object_of(dsl, log)? else { return Ok(0) };
    let mos = &dsl.meta.mos;
    if !is_by_head(dsl) {
        return mos.zap_count(log);
    }
    let mut count = 0u64;
    for (_, blocks) in mos.zap_entries(log)? {
        count = count.saturating_add(mos.zap_count(blocks.first())?);
    }
    Ok(count)
}

/// What was needed since the import and could not be read.
fn found_since(pool: &Pool) -> impl Iterator<Item = (u64, Block)> {
    pool.engine().context.io.lost.all().into_iter().map(dataset_and_block)
}

fn dataset_and_block((at, birth): (Bookmark, u64)) -> (u64, Block) {
    (at.objset, [at.object, i64::from(at.level).cast_unsigned(), at.block, birth])
}

/// One of the logs on disk names the block too.
fn is_logged(dsl: &Dsl, dataset: u64, [object, level, block, birth]: Block) -> Result<bool> {
    for log in LOGS {
        let Some(log) = object_of(dsl, log)? else { continue };
        let there = if is_by_head(dsl) {
            let blocks = dsl.meta.mos.zap_u64(log, &format!("{dataset:x}"))?;
            blocks.map(|blocks| dsl.meta.mos.zap_contains(blocks, &format!("{object:x}:{level:x}:{block:x}:{birth:x}"))).transpose()?
        } else {
            Some(dsl.meta.mos.zap_contains(log, &format!("{dataset:x}:{object:x}:{level:x}:{block:x}"))?)
        };
        if there == Some(true) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// The damaged files, by dataset and object: where they are mounted, or `dataset:/path`.
pub(in crate::control::pools) fn names(pool: &Pool, mounts: &[Mount]) -> Result<Vec<String>> {
    let dsl = &pool.engine().dsl;
    let logged = pool.engine().damaged()?.into_iter().map(|damaged| (damaged.at, damaged.birth)).map(dataset_and_block);
    let mut damaged: BTreeSet<(u64, u64)> = BTreeSet::new();
    for (dataset, block) in logged.chain(found_since(pool)) {
        damaged.extend(holders(dsl, dataset, block).into_iter().map(|dataset| (dataset, block[0])));
    }
    Ok(damaged.into_iter().take(NAMES_MAX).map(|(dataset, object)| name_of(dsl, mounts, dataset, object)).collect())
}

/// Which of a head and its snapshots still have a block; the head where that cannot be found out.
fn holders(dsl: &Arc<Dsl>, head: u64, [object, level, block, birth]: Block) -> Vec<u64> {
    let has = |dataset: &Arc<Dataset>| -> Result<bool> {
        let pointer = dsl.objset(dataset)?.hold(object)?.block_pointer(block)?;
        Ok(pointer.physical_birth() == birth)
    };
    let Ok(dataset) = dsl.dataset(head) else { return vec![head] };
    if level != 0 || birth == 0 || has(&dataset).unwrap_or(false) {
        return vec![head];
    }
    let snapshots = dataset.snapshots().unwrap_or_default();
    snapshots.into_iter().map(|(_, object)| object).filter(|object| dsl.dataset(*object).is_ok_and(|snapshot| has(&snapshot).unwrap_or(false))).collect()
}

fn name_of(dsl: &Arc<Dsl>, mounts: &[Mount], dataset: u64, object: u64) -> String {
    if dataset == 0 {
        return format!("<metadata>:<{object:#x}>");
    }
    let opened = dsl.dataset(dataset).and_then(|opened| Ok((opened.name()?, dsl.objset(&opened)?)));
    let Ok((name, objset)) = opened else { return format!("<{dataset:#x}>:<{object:#x}>") };
    let Some(path) = path_of(&objset, object) else { return format!("{name}:<{object:#x}>") };
    match mounts.iter().find(|mount| mount.dataset == name) {
        Some(mount) => format!("{}{path}", mount.mountpoint),
        None => format!("{name}:{path}"),
    }
}

/// `/a/b`, from the file up to the root.
fn path_of(objset: &Arc<Objset>, object: u64) -> Option<String> {
    if objset.objset_type() != ObjsetType::FileSystem {
        return None;
    }
    let files = FileSystem::open(objset.clone(), MountOptions { read_only: true, ..MountOptions::default() }, || (0, 0)).ok()?;
    let mut at = object;
    let mut path = String::new();
    for _ in 0..DEPTH_MAX {
        if at == files.root() {
            return Some(if path.is_empty() { "/".to_owned() } else { path });
        }
        let stat = files.getattr(at).ok().filter(|stat| stat.links > 0)?;
        let entries = Zap::open(objset, stat.parent).ok()?.entries().ok()?;
        let entry = entries.iter().find(|entry| znode::entry_object(entry.value.first()) == at)?;
        path = format!("/{}{path}", entry.text());
        at = stat.parent;
    }
    None
}
