//! `zfs create`

use engine::dsl::prop_table::DatasetTypes;
use tarnfs::control::{DatasetCreate, DatasetKind, DatasetKinds, DatasetList, Failure, FailureKind, Request, Setting, Wanted};

use crate::properties::columns::Scope;
use crate::properties::effectless;
use crate::properties::settings::{self, When};
use crate::session::{Outcome, Session, Stop, complain, say};
use crate::text::getopt::Options;
use crate::text::names;
use crate::zfs::{datasets, mount_after};

/// Block size of a volume that nobody chose.
const VOLUME_BLOCK_SIZE: u64 = 16 << 10;

#[derive(Default)]
struct Flags {
    volume_size: Option<u64>,
    block_size: Option<u64>,
    pairs: Vec<(String, String)>,
    parents: bool,
    dry_run: bool,
    sparse: bool,
    no_mount: bool,
    verbose: bool,
    parsable: bool,
}

fn parse(session: &mut Session<'_>, words: &[String]) -> Result<(Flags, Vec<String>), Stop> {
    let mut flags = Flags::default();
    let mut options = Options::new(words, ":PV:b:nso:puv", &[]);
    for option in options.by_ref() {
        let (letter, argument) = match option {
            Ok(option) => option,
            Err(crate::text::getopt::Wrong::Missing(_)) => return Err(session.misuse("missing size argument")),
            Err(wrong) => return Err(session.misuse(wrong)),
        };
        let argument = argument.unwrap_or_default();
        match letter {
            'V' => flags.volume_size = Some(size(session, "volume size", &argument)?),
            'b' => flags.block_size = Some(size(session, "volume block size", &argument)?),
            'P' => (flags.verbose, flags.parsable) = (true, true),
            'p' => flags.parents = true,
            'n' => flags.dry_run = true,
            'o' => add_pair(session, &mut flags.pairs, &argument)?,
            's' => flags.sparse = true,
            'u' => flags.no_mount = true,
            _ => flags.verbose = true,
        }
    }
    if (flags.block_size.is_some() || flags.sparse) && flags.volume_size.is_none() {
        return Err(session.misuse("'-s' and '-b' can only be used when creating a volume"));
    }
    if flags.no_mount && flags.volume_size.is_some() {
        return Err(session.misuse("'-u' can only be used when creating a filesystem"));
    }
    Ok((flags, options.operands()))
}

fn size(session: &mut Session<'_>, what: &str, text: &str) -> Result<u64, Stop> {
    tarnfs::control::parse_size(text).map_err(|why| {
        complain!(session, "bad {what} '{text}': {why}");
        Stop::Code(1)
    })
}

/// Reads `property=value` of `-o`.
pub(super) fn add_pair(session: &mut Session<'_>, pairs: &mut Vec<(String, String)>, word: &str) -> Result<(), Stop> {
    let Some((name, value)) = settings::split(word) else {
        complain!(session, "missing '=' for property=value argument");
        return Err(Stop::Code(1));
    };
    if pairs.iter().any(|(known, _)| known == name) {
        complain!(session, "property '{name}' specified multiple times");
        return Err(Stop::Code(1));
    }
    pairs.push((name.to_owned(), value.to_owned()));
    Ok(())
}

pub(in crate::zfs) fn run(session: &mut Session<'_>, words: &[String]) -> Outcome {
    let (flags, operands) = parse(session, words)?;
    let is_volume = flags.volume_size.is_some();
    let [name] = operands.as_slice() else {
        let kind = if is_volume { "volume" } else { "filesystem" };
        return Err(match operands.len() {
            0 => session.misuse(format_args!("missing {kind} argument")),
            _ => session.misuse("too many arguments"),
        });
    };
    let action = if flags.dry_run { format!("cannot verify '{name}'") } else { format!("cannot create '{name}'") };
    let create = prepare(name, &flags).map_err(|failure| session.failed(&action, &failure))?;
    let kinds = DatasetKinds::NONE.with(if is_volume { DatasetKind::Volume } else { DatasetKind::Filesystem });
    let name_is_valid = names::check_dataset(name, kinds, true);
    if flags.parents && name_is_valid.is_ok() {
        if lookup(session, name).is_ok_and(|kind| kinds.has(kind)) {
            return Ok(0);
        }
        report(session, &flags, "create_ancestors", "create ancestors of", name);
    }
    if flags.verbose {
        report(session, &flags, "create", "create", name);
        for (name, value) in shown(&flags, &create) {
            if flags.parsable {
                say!(session, "property\t{name}\t{value}");
            } else {
                say!(session, "\t{name}={value}");
            }
        }
    }
    if flags.dry_run {
        return Ok(0);
    }
    if is_volume && name_is_valid.is_ok() && name.contains('/') {
        // How large its blocks may be is a question to the pool.
        let pool = names::pool_of(name);
        if lookup(session, pool).as_ref().is_err_and(is_absent) {
            complain!(session, "cannot open '{pool}': no such pool");
            return Ok(1);
        }
    }
    if let Some(block_size) = chosen_block_size(&create.properties).filter(|size| is_volume && *size < VOLUME_BLOCK_SIZE) {
        complain!(session, "Warning: volblocksize ({block_size}) is less than the default minimum block size ({VOLUME_BLOCK_SIZE}).");
        complain!(session, "To reduce wasted space a volblocksize of {VOLUME_BLOCK_SIZE} is recommended.");
    }
    let checked = name_is_valid.and_then(|()| names::check_nesting(name)).and_then(|()| check_parents(session, name, flags.parents));
    let made = checked.and_then(|()| session.perform(Request::DatasetCreate(create)));
    made.map_err(|failure| {
        let stop = session.failed(&action, &failure);
        if let Some((parent, _)) = name.rsplit_once('/').filter(|_| is_absent(&failure)) {
            datasets::hint(session, parent);
        }
        stop
    })?;
    effectless::warn(session, Scope::Dataset, &flags.pairs);
    if is_volume {
        complain!(session, "warning: '{name}' is kept for OpenZFS: this version of tarn makes no block device of a volume");
    }
    if !flags.no_mount && !is_volume {
        // A dataset that cannot be mounted has been created all the same.
        let _ = mount_after(session, name);
    }
    Ok(0)
}

fn report(session: &mut Session<'_>, flags: &Flags, parsable: &str, words: &str, name: &str) {
    if flags.parsable {
        say!(session, "{parsable}\t{name}");
    } else if flags.verbose {
        say!(session, "{}{words} {name}", if flags.dry_run { "would " } else { "" });
    }
}

/// The properties as they were written, and those that follow from `-V` and `-b`.
fn shown(flags: &Flags, create: &DatasetCreate) -> Vec<(String, String)> {
    let mut pairs = Vec::new();
    pairs.extend(create.volume_size.map(|size| ("volsize".to_owned(), size.to_string())));
    pairs.extend(flags.block_size.map(|size| ("volblocksize".to_owned(), size.to_string())));
    pairs.extend(flags.pairs.iter().cloned());
    if !flags.sparse && flags.volume_size.is_some() && !flags.pairs.iter().any(|(name, _)| name == "refreservation") {
        pairs.push(("refreservation".to_owned(), "auto".to_owned()));
    }
    pairs
}

fn chosen_block_size(properties: &[Setting]) -> Option<u64> {
    properties.iter().find(|setting| setting.name == "volblocksize").and_then(|setting| setting.value.number())
}

/// The request, from the flags.
fn prepare(name: &str, flags: &Flags) -> Result<DatasetCreate, Failure> {
    let types = if flags.volume_size.is_some() { DatasetTypes::VOLUME } else { DatasetTypes::FILESYSTEM };
    let mut properties = settings::dataset_settings(&flags.pairs, types, When::Creating)?;
    let Some(volume_size) = flags.volume_size else {
        return Ok(DatasetCreate { name: name.to_owned(), volume_size: None, properties, parents: flags.parents });
    };
    if let Some(block_size) = flags.block_size {
        properties.retain(|setting| setting.name != "volblocksize");
        let pair = ("volblocksize".to_owned(), block_size.to_string());
        properties.extend(settings::dataset_settings(&[pair], types, When::Creating)?);
    }
    let block_size = chosen_block_size(&properties).unwrap_or(VOLUME_BLOCK_SIZE);
    if volume_size == 0 {
        return Err(Failure::with(FailureKind::BadProperty, "volume size cannot be zero"));
    }
    let rounded = volume_size.checked_next_multiple_of(block_size);
    let volume_size = rounded.ok_or_else(|| Failure::with(FailureKind::BadProperty, "numeric value is too large"))?;
    if !flags.sparse && !properties.iter().any(|setting| setting.name == "refreservation") {
        // All ones stand for `auto`: as much as the volume can come to take.
        properties.push(Setting::new("refreservation", u64::MAX));
    }
    Ok(DatasetCreate { name: name.to_owned(), volume_size: Some(volume_size), properties, parents: flags.parents })
}

pub(super) fn lookup(session: &mut Session<'_>, name: &str) -> Result<DatasetKind, Failure> {
    let list = DatasetList {
        root: Some(name.to_owned()),
        depth: Some(0),
        kinds: DatasetKinds::HEADS,
        snapshots_where_listed: false,
        properties: Wanted::Only(Vec::new()),
        received: false,
    };
    session.datasets(Request::DatasetList(list))?.root_kind.ok_or_else(|| Failure::new(FailureKind::NoSuchDataset))
}

pub(super) fn is_absent(failure: &Failure) -> bool {
    matches!(failure.kind, FailureKind::NoSuchDataset | FailureKind::NoSuchPool)
}

/// Refuses a dataset without a parent, in a pool that is not there, or that is there already.
pub(super) fn check_parents(session: &mut Session<'_>, name: &str, ancestors_too: bool) -> Result<(), Failure> {
    let Some((mut parent, _)) = name.rsplit_once('/') else {
        return Err(Failure::with(FailureKind::InvalidName, "missing dataset name"));
    };
    let pool = names::pool_of(name);
    if lookup(session, pool).as_ref().is_err_and(is_absent) {
        return Err(Failure::with(FailureKind::NoSuchPool, format!("no such pool '{pool}'")));
    }
    loop {
        match (lookup(session, parent), parent.rsplit_once('/')) {
            (Ok(DatasetKind::Filesystem), _) => break,
            (Ok(_), _) => return Err(Failure::with(FailureKind::BadType, "parent is not a filesystem")),
            (Err(failure), Some((above, _))) if is_absent(&failure) && ancestors_too => parent = above,
            (Err(failure), _) if is_absent(&failure) => {
                return Err(Failure::with(FailureKind::NoSuchDataset, "parent does not exist"));
            }
            (Err(failure), _) => return Err(failure),
        }
    }
    match lookup(session, name) {
        Ok(_) => Err(Failure::new(FailureKind::DatasetExists)),
        Err(failure) if is_absent(&failure) => Ok(()),
        Err(failure) => Err(failure),
    }
}
