//! What the pool's logs of damaged blocks name: `zpool status`, and with `-v` the files. What was found since the last group is in memory only
//! ([`engine::zio::LostBlocks`]).
//!
//! # On disk
//! Two ZAPs that the MOS's directory names. Without `head_errlog` a key is `dataset:object:level:block` in hexadecimal digits. With it
//! a key is the head's number, and its value another ZAP, whose keys are `object:level:block:birth`.

use std::collections::{BTreeMap, BTreeSet};
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
/// More blocks are not looked at, nor objects named: what the logs of a harmed pool say has no end.
const BLOCKS_MAX: usize = 1 << 20;
/// Names of more bytes do not go into a reply.
const NAMES_BYTES_MAX: usize = 8 << 20;
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

/// What is damaged, as far as it was looked at.
#[derive(Default)]
struct Damage {
    /// Datasets and objects in them.
    objects: BTreeSet<(u64, u64)>,
    looked_at: usize,
}

impl Damage {
    /// Is nothing more looked at?
    fn is_full(&self) -> bool {
        self.looked_at.max(self.objects.len()) >= BLOCKS_MAX
    }

    /// Adds a block, or says that there is no room for it.
    fn note(&mut self, dsl: &Arc<Dsl>, (dataset, block): (u64, Block)) -> bool {
        if self.is_full() {
            return false;
        }
        self.looked_at += 1;
        self.objects.extend(holders(dsl, dataset, block).into_iter().map(|dataset| (dataset, block[0])));
        true
    }
}

/// The damaged files, by dataset and object: where they are mounted, or `dataset:/path`; and at the end how many more there are than a reply may have.
pub(in crate::control::pools) fn names(pool: &Pool, mounts: &[Mount]) -> Vec<String> {
    let dsl = &pool.engine().dsl;
    let mut damage = Damage::default();
    for log in LOGS {
        let read = pool.engine().each_damaged(log, &mut |found| damage.note(dsl, dataset_and_block((found.at, found.birth))));
        if read.is_err() {
            // Then it is damaged itself, or what leads to it is.
            damage.objects.insert((0, object_of(dsl, log).ok().flatten().unwrap_or(key::DIRECTORY)));
        }
    }
    for found in found_since(pool) {
        damage.note(dsl, found);
    }
    let is_full = damage.is_full();
    let mut left = damage.objects.len();
    let mut datasets: BTreeMap<u64, Vec<u64>> = BTreeMap::new();
    damage.objects.into_iter().for_each(|(dataset, object)| datasets.entry(dataset).or_default().push(object));
    let (mut names, mut bytes) = (Vec::new(), 0);
    'all: for (dataset, objects) in datasets {
        let of_dataset = Names::of(dsl, mounts, dataset, &objects);
        for object in objects {
            let name = of_dataset.name(object);
            bytes += name.len();
            if bytes > NAMES_BYTES_MAX {
                break 'all;
            }
            names.push(name);
            left -= 1;
        }
    }
    if is_full && left == 0 {
        names.push("... and perhaps more".to_owned());
    } else if is_full {
        names.push(format!("... and at least {left} more"));
    } else if left > 0 {
        names.push(format!("... and {left} more"));
    }
    names
}

/// Which of a head and its snapshots still have a block; the head where that cannot be found out.
fn holders(dsl: &Arc<Dsl>, head: u64, [object, level, block, birth]: Block) -> Vec<u64> {
    let has = |dataset: &Arc<Dataset>| -> Result<bool> {
        let pointer = dsl.objset(dataset)?.hold(object)?.block_pointer(block)?;
        Ok(pointer.physical_birth() == birth)
    };
    if head == 0 {
        return vec![head];
    }
    let Ok(dataset) = dsl.dataset(head) else { return vec![head] };
    if level != 0 || birth == 0 || has(&dataset).unwrap_or(false) {
        return vec![head];
    }
    let snapshots = dataset.snapshots().unwrap_or_default();
    snapshots.into_iter().map(|(_, object)| object).filter(|object| dsl.dataset(*object).is_ok_and(|snapshot| has(&snapshot).unwrap_or(false))).collect()
}

/// What objects of one dataset are called.
struct Names {
    dataset: u64,
    /// Of the dataset, if it can be opened.
    name: Option<String>,
    mountpoint: Option<String>,
    files: Option<Places>,
}

impl Names {
    fn of(dsl: &Arc<Dsl>, mounts: &[Mount], dataset: u64, objects: &[u64]) -> Names {
        let open = || -> Result<(String, Arc<Objset>)> {
            let opened = dsl.dataset(dataset)?;
            Ok((opened.name()?, dsl.objset(&opened)?))
        };
        let opened = if dataset == 0 { None } else { open().ok() };
        let files = opened.as_ref().and_then(|(_, objset)| Places::find(objset, objects));
        let name = opened.map(|(name, _)| name);
        let mount = mounts.iter().find(|mount| name.as_ref() == Some(&mount.dataset));
        Names { dataset, mountpoint: mount.map(|mount| mount.mountpoint.clone()), name, files }
    }

    fn name(&self, object: u64) -> String {
        let Some(name) = &self.name else {
            return if self.dataset == 0 { format!("<metadata>:<{object:#x}>") } else { format!("<{:#x}>:<{object:#x}>", self.dataset) };
        };
        match (self.files.as_ref().and_then(|files| files.path(object)), &self.mountpoint) {
            (None, _) => format!("{name}:<{object:#x}>"),
            (Some(path), Some(mountpoint)) => format!("{mountpoint}{path}"),
            (Some(path), None) => format!("{name}:{path}"),
        }
    }
}

/// Where files of a file system are, each by the directory that it is in and its name there.
struct Places {
    root: u64,
    places: BTreeMap<u64, (u64, String)>,
}

impl Places {
    /// The places of these objects, and of the directories above them. A directory is read once for all that is sought in it: there may be a million names.
    fn find(objset: &Arc<Objset>, objects: &[u64]) -> Option<Places> {
        if objset.objset_type() != ObjsetType::FileSystem {
            return None;
        }
        let files = FileSystem::open(objset.clone(), MountOptions { read_only: true, ..MountOptions::default() }, || (0, 0)).ok()?;
        let root = files.root();
        let mut places = BTreeMap::new();
        let mut seen = BTreeSet::from([root]);
        let mut next = objects.to_vec();
        for _ in 0..DEPTH_MAX {
            let mut sought: BTreeMap<u64, BTreeSet<u64>> = BTreeMap::new();
            for object in std::mem::take(&mut next) {
                if seen.insert(object)
                    && let Some(stat) = files.getattr(object).ok().filter(|stat| stat.links > 0)
                {
                    sought.entry(stat.parent).or_default().insert(object);
                }
            }
            if sought.is_empty() {
                break;
            }
            for (parent, objects) in &sought {
                let entries = Zap::open(objset, *parent).and_then(|zap| zap.entries()).unwrap_or_default();
                for entry in &entries {
                    let object = znode::entry_object(entry.value.first());
                    if objects.contains(&object) {
                        places.entry(object).or_insert_with(|| (*parent, entry.text()));
                    }
                }
            }
            next = sought.into_keys().collect();
        }
        Some(Places { root, places })
    }

    /// `/a/b`, from the file up to the root.
    fn path(&self, object: u64) -> Option<String> {
        let (mut at, mut names) = (object, Vec::new());
        while at != self.root {
            let (parent, name) = self.places.get(&at)?;
            names.push(name.as_str());
            if names.len() > DEPTH_MAX {
                return None;
            }
            at = *parent;
        }
        names.reverse();
        Some(format!("/{}", names.join("/")))
    }
}
