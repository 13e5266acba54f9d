//! `zdb POOL`: what a pool that is not imported is made of.

use std::path::PathBuf;
use std::sync::Arc;

use engine::dmu::Objset;
use engine::dsl::meta::key;
use engine::error::{Error, ErrorKind};
use engine::host::RealHost;
use engine::pool::examine::at_checkpoint;
use engine::pool::import::{discover, select};
use engine::pool::{OpenOptions, Pool};
use engine::tunables::Tunables;
use ondisk::blkptr::BlkPtr;
use ondisk::indirect::{CONDENSING, CondensingPhys};
use ondisk::nvlist::NvList;
use ondisk::object_type::ObjectType;
use ondisk::zil::LogHeader;
use serde_json::{Value as Json, json};
use tarnfs::control::{HistoryRecord, PoolSelect, Request, VdevStatus, Wanted};

use super::objects::Objects;
use super::ranges::ObjectRange;
use super::{Flags, bookmark, check, label, nvlist, raw};
use crate::session::{Session, Stop, complain, say};
use crate::text::json::{self, Object};
use crate::text::units::nice_number;

/// What stands for the pool's own object set: no dataset is called so.
const MOS: &str = "/mos";
/// The end of a pool's name when it is seen as its checkpoint keeps it.
const CHECKPOINTED: &str = "_CHECKPOINTED_UNIVERSE";
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
        // Devices are called by whole paths; what is not one is taken from the pool, and may be from another machine.
        return flags.paths.iter().map(|path| std::fs::canonicalize(path).unwrap_or_else(|_| path.clone())).collect();
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
    let candidate = select(&candidates, name, false).map_err(|error| {
        if flags.paths.is_empty() && error.kind() == ErrorKind::NotFound {
            session.hint("its devices were looked for in /dev: '-e -p DIRECTORY' looks for them there");
        }
        failed(session, name, &error)
    })?;
    if flags.checkpointed {
        let kept = at_checkpoint(candidate, RealHost::shared()).map_err(|error| failed(session, name, &error))?;
        let options = OpenOptions { new_name: Some(format!("{name}{CHECKPOINTED}")), ..options };
        return Pool::open(&kept, options).map_err(|error| failed(session, name, &error));
    }
    Pool::open(candidate, options).map_err(|error| failed(session, name, &error))
}

/// The name of a dataset as it is in the pool that is opened.
fn as_opened(flags: &Flags, pool: &str, name: &str) -> String {
    let rest = name.strip_prefix(pool).unwrap_or_default();
    let mark = if flags.checkpointed { CHECKPOINTED } else { "" };
    format!("{pool}{mark}{rest}")
}

fn parse_objects(session: &mut Session<'_>, words: &[String]) -> Result<Vec<ObjectRange>, Stop> {
    let parse = |word: &String| ObjectRange::parse(word).map_err(|why| (word.clone(), why));
    words.iter().map(parse).collect::<Result<_, _>>().map_err(|(word, why)| {
        complain!(session, "Bad object or range: '{word}': {why}\n");
        Stop::Usage
    })
}

/// One dataset, or some of its objects.
fn show_dataset(session: &mut Session<'_>, flags: &Flags, pool: &Pool, name: &str, ranges: &[ObjectRange]) -> Result<(), Error> {
    let is_mos = name == MOS;
    let (line, objset) = if is_mos {
        (mos_line(pool)?, pool.dsl.meta.mos.0.clone())
    } else {
        let dataset = pool.dsl.open_dataset(name)?;
        (line(pool, dataset.object)?, pool.dsl.objset(&dataset)?)
    };
    print_line(session, flags, &line, &objset);
    show_log(session, flags, &objset);
    show_livelist(session, flags, pool, line.id)?;
    let mut objects = Objects::new(&objset, flags);
    if ranges.is_empty() {
        return if flags.datasets >= 2 { objects.show_all(session) } else { Ok(()) };
    }
    for range in ranges {
        if range.is_single() || (range.first == 0 && range.has(ObjectType::DNODE)) {
            objects.show_one(session, range.first)?;
        }
        let mut object = range.first.saturating_sub(1);
        while let Some(next) = objset.next_object(object)?.filter(|next| *next <= range.last && !range.is_single()) {
            if range.has(objset.hold(next)?.object_type()) {
                objects.show_one(session, next)?;
            }
            object = next;
        }
    }
    say!(session, "");
    Ok(())
}

fn show_history(session: &mut Session<'_>, pool: &Pool) -> Result<(), Error> {
    say!(session, "\nHistory:");
    pool.dsl.history.each(&pool.dsl.meta, &mut |record, _| {
        let text = crate::history::text(&HistoryRecord::of(&record), &session.zone, false);
        say!(session, "{}", text.trim_end_matches('\n'));
    })
}

/// `-m`: how full each metaslab is.
fn show_metaslabs(session: &mut Session<'_>, flags: &Flags, pool: &Pool) -> Result<(), Error> {
    let Some(maps) = &pool.space_maps else { return Err(Error::new(ErrorKind::Corrupt, "the space maps cannot be read")) };
    say!(session, "\nMetaslabs:");
    for top in pool.vdevs.data_tops() {
        let shift = top.metaslab_shift();
        let count = top.asize() >> shift;
        say!(session, "\tvdev {:>10}\t  metaslab shift {shift:>4}", top.id());
        say!(session, "\tmetaslabs {count:>5}   offset                spacemap          free        ");
        say!(session, "\t---------------   -------------------   ---------------   ------------");
        let allocated = maps.allocated_ranges(top.id() as u32)?;
        let array = top.metaslab_array();
        for index in 0..count {
            let (start, end) = (index << shift, (index + 1) << shift);
            let used: u64 = allocated.segments().map(|(from, size)| (from + size).min(end).saturating_sub(from.max(start))).sum();
            let bytes = pool.dsl.meta.mos.read(array, index * 8, 8)?;
            let object = bytes.try_into().map_or(0, u64::from_le_bytes);
            let free = (end - start).saturating_sub(used);
            let free = if flags.exact { free.to_string() } else { nice_number(free) };
            say!(session, "\tmetaslab {index:>6}   offset {start:>12x}   spacemap {object:>6}   free {free:>8}");
        }
    }
    say!(session, "");
    Ok(())
}

/// `-R`: one block, by its place.
pub(super) fn read_blocks(session: &mut Session<'_>, flags: &Flags, name: &str, blocks: &[String]) -> Result<u8, Stop> {
    let pool = open(session, flags, name)?;
    let mut code = 0;
    for block in blocks {
        code = code.max(match raw::read(session, &pool, block) {
            Ok(code) | Err(Stop::Code(code)) => code,
            Err(stop) => return Err(stop),
        });
    }
    Ok(code)
}

/// `-O`: the object that a path in a dataset leads to.
pub(super) fn show_path(session: &mut Session<'_>, flags: &Flags, name: &str, path: &str) -> Result<u8, Stop> {
    let pool_name = name.split(['/', '@']).next().unwrap_or(name);
    let pool = open(session, flags, pool_name)?;
    let opened = as_opened(flags, pool_name, name);
    let show = |session: &mut Session<'_>| {
        let objset = pool.dsl.objset(&pool.dsl.open_dataset(&opened)?)?;
        let mut objects = Objects::new(&objset, flags);
        let files = objects.files.as_ref().ok_or_else(|| Error::new(ErrorKind::Invalid, "it is no file system"))?;
        let object = files.object_at(path)?;
        objects.show_one(session, object)
    };
    show(session).map_err(|error| {
        complain!(session, "zdb: can't show '{path}' of '{name}': {error}");
        Stop::Code(1)
    })?;
    Ok(0)
}

pub(super) fn run(session: &mut Session<'_>, flags: &Flags, name: &str, objects: &[String]) -> Result<u8, Stop> {
    let ranges = parse_objects(session, objects)?;
    let pool_name = name.split(['/', '@', '#']).next().unwrap_or(name).to_owned();
    let pool = open(session, flags, &pool_name)?;
    let opened = as_opened(flags, &pool_name, name);
    let name = opened.as_str();
    if name.contains('#') {
        bookmark::show(session, &pool, name, flags.verbose > 1).map_err(|error| failed(session, name, &error))?;
        return Ok(0);
    }
    if name.contains(['/', '@']) || !ranges.is_empty() {
        // Objects of a pool are those of its own object set, the MOS.
        // The root file system with its objects is `POOL/`.
        let name = if name.contains(['/', '@']) { name.trim_end_matches('/') } else { MOS };
        show_dataset(session, flags, &pool, name, &ranges).map_err(|error| failed(session, name, &error))?;
        return Ok(0);
    }
    if flags.simulate_dedup {
        return check::simulate_dedup(session, &pool).map_err(|error| failed(session, name, &error));
    }
    let mut object = flags.json.then(|| json::envelope("zdb"));
    if flags.config {
        let config = stored_config(&pool).map_err(|error| failed(session, name, &error))?;
        match &mut object {
            Some(object) => drop(object.insert("config".into(), nvlist::json(&config))),
            None => session.print(format_args!("\nMOS Configuration:\n{}", nvlist::text(&config, 8))),
        }
    }
    if flags.uberblock > 0 {
        match &mut object {
            Some(object) => drop(object.insert("uberblock".into(), label::uberblock_json(&pool.uberblock()))),
            None => {
                say!(session, "\nUberblock:");
                label::print_uberblock(session, &pool.uberblock());
                say!(session, "");
            }
        }
    }
    if flags.metaslabs {
        show_metaslabs(session, flags, &pool).map_err(|error| failed(session, name, &error))?;
    }
    if flags.datasets > 0 || flags.logs {
        let datasets = datasets(&pool).map_err(|error| failed(session, name, &error))?;
        if object.is_some() {
            print_datasets(&datasets, object.as_mut());
        } else {
            for line in &datasets {
                show_one_dataset(session, flags, &pool, line).map_err(|error| failed(session, &line.name, &error))?;
            }
            show_condensing(session, &pool).map_err(|error| failed(session, name, &error))?;
        }
    }
    let mut code = 0;
    if flags.blocks > 0 || flags.checksum > 0 {
        code = check::run(session, flags, &pool, object.as_mut()).map_err(|error| failed(session, name, &error))?;
    }
    if code == 0 && object.is_none() && !flags.checkpointed && (flags.uberblock > 0 || flags.blocks > 0 || flags.checksum > 0) {
        show_checkpoint(session, &pool).map_err(|error| failed(session, name, &error))?;
    }
    if flags.history > 0 {
        show_history(session, &pool).map_err(|error| failed(session, name, &error))?;
    }
    if let Some(object) = object {
        json::print(session, object);
    }
    Ok(code)
}

/// The uberblock of the checkpoint, if there is one.
fn show_checkpoint(session: &mut Session<'_>, pool: &Pool) -> Result<(), Error> {
    if let Some(uberblock) = pool.checkpoint_uberblock()? {
        say!(session, "\nCheckpointed uberblock found:");
        label::print_uberblock(session, &uberblock);
        say!(session, "");
    }
    Ok(())
}

/// The map of a removed vdev that is being made shorter.
fn show_condensing(session: &mut Session<'_>, pool: &Pool) -> Result<(), Error> {
    if let Some(value) = pool.dsl.meta.mos.zap_get(key::DIRECTORY, CONDENSING)? {
        let CondensingPhys { vdev, obsolete_map, next_mapping } = CondensingPhys::from_words(&value.to_u64s())?;
        say!(session, "Condensing indirect vdev {vdev}: new mapping object {next_mapping}, prev obsolete sm {obsolete_map}");
    }
    Ok(())
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
    let mut lines = vec![mos_line(pool)?];
    let mut waiting = vec![(dsl.root_dir()?, false)];
    while let Some((dir, children_done)) = waiting.pop() {
        if !children_done {
            waiting.push((dir.clone(), true));
            waiting.extend(dsl.children(&dir)?.into_iter().map(|(_, child)| (child, false)));
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

fn mos_line(pool: &Pool) -> Result<DatasetLine, Error> {
    let dsl = &pool.dsl;
    let pointer = BlkPtr::from_bytes(&pool.uberblock().root).unwrap_or(BlkPtr::ZERO);
    let bytes = dsl.find_child(&*dsl.root_dir()?, engine::dsl::MOS_DIR)?.map_or(0, |dir| dir.space().used);
    Ok(DatasetLine { name: "mos".into(), kind: "META", id: 0, creation_txg: 4, bytes, objects: pointer.fill() })
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

/// The list of a clone's own blocks; 0 is the MOS.
fn show_livelist(session: &mut Session<'_>, flags: &Flags, pool: &Pool, dataset: u64) -> Result<(), Error> {
    if dataset == 0 || flags.datasets < 3 {
        return Ok(());
    }
    if let Some((space, entries)) = pool.dsl.dataset(dataset)?.livelist()? {
        let [used, compressed, uncompressed, entries] = [space.used, space.compressed, space.uncompressed, entries].map(nice_number);
        say!(session, "\n    Livelist: {used} ({compressed}/{uncompressed} comp), {entries} entries\n");
    }
    Ok(())
}

/// The line of a dataset, and its objects if they are asked for.
fn show_one_dataset(session: &mut Session<'_>, flags: &Flags, pool: &Pool, line: &DatasetLine) -> Result<(), Error> {
    let objset = match line.id {
        0 => pool.dsl.meta.mos.0.clone(),
        object => pool.dsl.objset(&pool.dsl.dataset(object)?)?,
    };
    print_line(session, flags, line, &objset);
    show_log(session, flags, &objset);
    show_livelist(session, flags, pool, line.id)?;
    if flags.datasets >= 2 {
        Objects::new(&objset, flags).show_all(session)?;
    }
    Ok(())
}

fn print_line(session: &mut Session<'_>, flags: &Flags, line: &DatasetLine, objset: &Objset) {
    let bytes = if flags.exact { line.bytes.to_string() } else { nice_number(line.bytes) };
    let root = if flags.datasets >= 4 { format!(", rootbp {}", objset.pointer()) } else { String::new() };
    let DatasetLine { name, kind, id, creation_txg, objects, .. } = line;
    say!(session, "Dataset {name} [{kind}], ID {id}, cr_txg {creation_txg}, {bytes}, {objects} objects{root}");
}

/// `-i`: the head of the intent log, if there is a log.
fn show_log(session: &mut Session<'_>, flags: &Flags, objset: &Objset) {
    let header = LogHeader::from_bytes(&objset.zil_header()).filter(|header| flags.logs && !header.log.is_hole());
    let Some(header) = header else { return };
    let (claim, block, record) = (header.claim_txg, header.claim_block_sequence, header.claim_record_sequence);
    say!(session, "\n    ZIL header: claim_txg {claim}, claim_blk_seq {block}, claim_lr_seq {record} replay_seq {}, flags 0x{:x}", header.replay_sequence, header.flags.get());
}

fn print_datasets(lines: &[DatasetLine], object: Option<&mut Object>) {
    if let Some(object) = object {
        let one = |line: &DatasetLine| {
            json!({
                "name": line.name, "type": line.kind, "id": line.id, "creation_txg": line.creation_txg,
                "referenced": line.bytes, "objects": line.objects,
            })
        };
        object.insert("datasets".into(), lines.iter().map(one).collect::<Vec<Json>>().into());
    }
}
