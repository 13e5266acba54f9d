//! `zdb POOL`: what a pool that is not imported is made of.

use std::path::PathBuf;
use std::sync::Arc;

use engine::dsl::meta::key;
use engine::error::{Error, ErrorKind};
use engine::host::RealHost;
use engine::pool::import::{discover, select};
use engine::pool::{OpenOptions, Pool};
use engine::tunables::Tunables;
use ondisk::blkptr::BlkPtr;
use ondisk::nvlist::NvList;
use serde_json::{Value as Json, json};
use tarnfs::control::{PoolSelect, Request, VdevStatus, Wanted};

use super::{Flags, check, label, nvlist};
use crate::json::{self, Object};
use crate::session::{Session, Stop, complain, say};
use crate::units::nice_number;

/// Largest configuration that is believed.
const CONFIG_BYTES_MAX: usize = 64 << 20;

fn failed(session: &mut Session<'_>, name: &str, error: &Error) -> Stop {
    complain!(session, "zdb: can't open '{name}': {error}");
    Stop::Code(1)
}

fn leaf_paths(vdev: &VdevStatus, paths: &mut Vec<PathBuf>) {
    paths.extend(vdev.path.iter().map(PathBuf::from));
    vdev.children.iter().for_each(|child| leaf_paths(child, paths));
}

/// Where to look: as told, or at the devices of the imported pool of that name, or below `/dev`.
fn places(session: &mut Session<'_>, flags: &Flags, name: &str) -> Vec<PathBuf> {
    if !flags.paths.is_empty() {
        return flags.paths.clone();
    }
    let mut paths = Vec::new();
    let pool = name.split(['/', '@']).next().unwrap_or(name).to_owned();
    let select = PoolSelect { name: Some(pool), properties: Wanted::Only(Vec::new()) };
    if !flags.exported
        && let Ok(statuses) = session.status(Request::PoolStatus(select))
    {
        statuses.iter().for_each(|status| leaf_paths(&status.root, &mut paths));
    }
    if paths.is_empty() {
        paths.push("/dev".into());
    }
    paths
}

fn open(session: &mut Session<'_>, flags: &Flags, name: &str) -> Result<Arc<Pool>, Stop> {
    let candidates = discover(disk::find(&places(session, flags, name)));
    let options = OpenOptions {
        host: RealHost::shared(),
        tunables: Tunables::default(),
        read_only: true,
        file_owner: None,
        new_name: None,
        forget_log: false,
    };
    let candidate = select(&candidates, name, false).map_err(|error| failed(session, name, &error))?;
    Pool::open(candidate, options).map_err(|error| failed(session, name, &error))
}

pub(super) fn run(session: &mut Session<'_>, flags: &Flags, name: &str) -> Result<u8, Stop> {
    if name.contains(['/', '@']) {
        complain!(session, "zdb: single datasets are not yet supported by this version of tarn");
        return Err(Stop::Code(1));
    }
    let pool = open(session, flags, name)?;
    let everything = !(flags.blocks || flags.checksum > 0 || flags.config || flags.datasets || flags.uberblock > 0);
    let mut object = flags.json.then(|| json::envelope("zdb"));
    if everything || flags.config {
        let config = stored_config(&pool).map_err(|error| failed(session, name, &error))?;
        match &mut object {
            Some(object) => drop(object.insert("config".into(), nvlist::json(&config))),
            None => session.print(format_args!("\nMOS Configuration:\n{}", nvlist::text(&config, 8))),
        }
    }
    if everything || flags.uberblock > 0 {
        match &mut object {
            Some(object) => drop(object.insert("uberblock".into(), label::uberblock_json(&pool.uberblock()))),
            None => {
                say!(session, "\nUberblock:");
                label::print_uberblock(session, &pool.uberblock());
                say!(session, "");
            }
        }
    }
    if everything || flags.datasets {
        let datasets = datasets(&pool).map_err(|error| failed(session, name, &error))?;
        print_datasets(session, flags, &datasets, object.as_mut());
    }
    let mut code = 0;
    if everything || flags.blocks || flags.checksum > 0 {
        code = check::run(session, flags, &pool, object.as_mut()).map_err(|error| failed(session, name, &error))?;
    }
    if let Some(object) = object {
        json::print(session, object);
    }
    Ok(code)
}

/// The configuration as it is on disk.
fn stored_config(pool: &Pool) -> Result<NvList, Error> {
    let mos = &pool.dsl.meta.mos;
    let missing = || Error::new(ErrorKind::Corrupt, "the pool has no configuration");
    let object = mos.zap_u64(key::DIRECTORY, key::CONFIG)?.ok_or_else(missing)?;
    let bonus = mos.bonus(object)?;
    let size = bonus.get(..8).and_then(|word| word.try_into().ok()).map_or(0, u64::from_le_bytes);
    let size = usize::try_from(size).ok().filter(|size| *size <= CONFIG_BYTES_MAX).ok_or_else(missing)?;
    Ok(NvList::decode(&mos.read(object, 0, size)?)?)
}

/// A line of `-d`.
struct DatasetLine {
    name: String,
    kind: &'static str,
    id: u64,
    creation_txg: u64,
    bytes: u64,
    objects: u64,
}

/// The MOS, and every dataset after its snapshots and after those below it.
fn datasets(pool: &Pool) -> Result<Vec<DatasetLine>, Error> {
    let dsl = &pool.dsl;
    let pointer = BlkPtr::from_bytes(&pool.uberblock().root).unwrap_or(BlkPtr::ZERO);
    let mos_bytes = dsl.find_child(&*dsl.root_dir()?, engine::dsl::MOS_DIR)?.map_or(0, |dir| dir.space().used);
    let mut lines = vec![DatasetLine { name: "mos".into(), kind: "META", id: 0, creation_txg: 4, bytes: mos_bytes, objects: pointer.fill() }];
    let mut waiting = vec![(dsl.root_dir()?, false)];
    while let Some((dir, children_done)) = waiting.pop() {
        if !children_done {
            waiting.push((dir.clone(), true));
            for (name, object) in dsl.children(&dir)? {
                if !name.starts_with('$') {
                    waiting.push((dsl.dir(object, Some(&name))?, false));
                }
            }
            continue;
        }
        let head = dir.phys().head_dataset.get();
        if head == 0 {
            continue;
        }
        let head = dsl.dataset(head)?;
        for (_, object) in head.snapshots()? {
            lines.push(line(pool, object)?);
        }
        lines.push(line(pool, head.object)?);
    }
    Ok(lines)
}

fn line(pool: &Pool, object: u64) -> Result<DatasetLine, Error> {
    let dataset = pool.dsl.dataset(object)?;
    let phys = dataset.phys();
    let kind = match pool.dsl.objset(&dataset)?.objset_type() {
        ondisk::objset::ObjsetType::FileSystem => "ZPL",
        ondisk::objset::ObjsetType::Volume => "ZVOL",
        _ => "UNKNOWN",
    };
    Ok(DatasetLine {
        name: dataset.name()?,
        kind,
        id: object,
        creation_txg: phys.creation_txg.get(),
        bytes: dataset.referenced().used,
        objects: phys.block.fill(),
    })
}

fn print_datasets(session: &mut Session<'_>, flags: &Flags, lines: &[DatasetLine], object: Option<&mut Object>) {
    if let Some(object) = object {
        let one = |line: &DatasetLine| {
            json!({
                "name": line.name, "type": line.kind, "id": line.id, "creation_txg": line.creation_txg,
                "referenced": line.bytes, "objects": line.objects,
            })
        };
        object.insert("datasets".into(), lines.iter().map(one).collect::<Vec<Json>>().into());
        return;
    }
    for line in lines {
        let bytes = if flags.exact { line.bytes.to_string() } else { nice_number(line.bytes) };
        let DatasetLine { name, kind, id, creation_txg, objects, .. } = line;
        say!(session, "Dataset {name} [{kind}], ID {id}, cr_txg {creation_txg}, {bytes}, {objects} objects");
    }
}
