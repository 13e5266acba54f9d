//! `zpool split`

use tarnfs::control::{AllocationClass, DeviceVerb, Failure, FailureKind, PoolDevice, PoolSplit, PoolStatus, Request, VdevKind, VdevStatus};

use super::add::open;
use super::beside::find;
use crate::properties::settings::{self, When};
use crate::session::{Outcome, Session, Stop, complain};
use crate::text::getopt::Options;
use crate::zpool::change::import;
use crate::zpool::spec::vdev_name::Naming;

#[derive(Default)]
struct Flags {
    naming: Naming,
    altroot: Option<String>,
    dry_run: bool,
    load_keys: bool,
    properties: Vec<(String, String)>,
    mount_options: Option<String>,
}

fn parse(session: &mut Session<'_>, words: &[String]) -> Result<(Flags, Vec<String>), Stop> {
    let mut flags = Flags::default();
    let mut options = Options::new(words, "gLR:lno:P", &[]);
    for option in options.by_ref() {
        let (letter, argument) = option.map_err(|wrong| session.misuse(wrong))?;
        let argument = argument.unwrap_or_default();
        match letter {
            'g' => flags.naming.guid = true,
            'L' => flags.naming.follow = true,
            'P' => flags.naming.path = true,
            'R' => flags.altroot = Some(argument),
            'l' => flags.load_keys = true,
            'n' => flags.dry_run = true,
            _ => match settings::split(&argument) {
                Some((name, value)) => flags.properties.push((name.to_owned(), value.to_owned())),
                None => flags.mount_options = Some(argument),
            },
        }
    }
    if flags.altroot.is_none() && flags.mount_options.is_some() {
        return Err(session.misuse("setting mntopts is only valid when importing the pool"));
    }
    if flags.altroot.is_none() && flags.load_keys {
        return Err(session.misuse("loading keys is only valid when importing the pool"));
    }
    Ok((flags, options.operands()))
}

pub(in crate::zpool) fn run(session: &mut Session<'_>, words: &[String]) -> Outcome {
    let (flags, operands) = parse(session, words)?;
    let (name, new_name, devices) = match operands.as_slice() {
        [] => return Err(session.misuse("Missing pool name")),
        [_] => return Err(session.misuse("Missing new pool name")),
        [name, new_name, devices @ ..] => (name, new_name, devices),
    };
    let pool = open(session, name)?;
    let action = format!("Unable to split {name}");
    let fail = |session: &mut Session<'_>, failure: Failure| session.failed(&action, &failure);
    crate::text::names::check_pool(new_name, false).map_err(|failure| fail(session, failure))?;
    let chosen = choose(&pool, devices).map_err(|failure| fail(session, failure))?;
    let properties = settings::pool_settings(&flags.properties, When::Importing).map_err(|failure| fail(session, failure))?;
    if flags.dry_run {
        print_layout(session, new_name, flags.naming, &chosen);
        return Ok(0);
    }
    let split = PoolSplit { new_name: new_name.clone(), devices: chosen.iter().map(|(_, side)| side.guid).collect(), properties };
    let request = Request::PoolDevice(PoolDevice { name: name.clone(), verb: DeviceVerb::Split(split) });
    session.perform(request).map_err(|failure| fail(session, failure))?;
    let Some(altroot) = flags.altroot else { return Ok(0) };
    import_new(session, new_name, &altroot, flags.mount_options.as_deref(), &flags.properties, &chosen)
}

/// One side of each mirror: that which is named, or the last.
fn choose<'a>(pool: &'a PoolStatus, devices: &[String]) -> Result<Vec<(AllocationClass, &'a VdevStatus)>, Failure> {
    let invalid = |words: &str| Failure::with(FailureKind::BadVdevs, words);
    let (mut chosen, mut named) = (Vec::new(), 0);
    for top in &pool.root.children {
        if top.class == AllocationClass::Log || matches!(top.kind, VdevKind::Hole | VdevKind::Indirect) {
            continue;
        }
        if top.kind != VdevKind::Mirror {
            return Err(invalid("Source pool must be composed only of mirrors"));
        }
        let mut wanted = devices.iter().filter_map(|device| find(top, device).filter(|side| side.children.is_empty()));
        let side = wanted.next().inspect(|_| named += 1).or(top.children.last());
        chosen.extend(side.map(|side| (top.class, side)));
    }
    if named != devices.len() {
        return Err(invalid("Device list must include at most one disk from each mirror"));
    }
    Ok(chosen)
}

fn print_layout(session: &mut Session<'_>, new_name: &str, naming: Naming, chosen: &[(AllocationClass, &VdevStatus)]) {
    session.print(format_args!("would create '{new_name}' with the following layout:\n\n"));
    for (class, title) in [(AllocationClass::Normal, new_name), (AllocationClass::Dedup, "dedup"), (AllocationClass::Special, "special")] {
        let mut of_class = chosen.iter().filter(|(of, _)| *of == class).peekable();
        if of_class.peek().is_some() {
            session.print(format_args!("\t{title}\n"));
        }
        of_class.for_each(|(_, side)| session.print(format_args!("\t  {}\n", naming.name(side, new_name))));
    }
}

fn import_new(
    session: &mut Session<'_>,
    new_name: &str,
    altroot: &str,
    mount_options: Option<&str>,
    properties: &[(String, String)],
    chosen: &[(AllocationClass, &VdevStatus)],
) -> Outcome {
    let mut words: Vec<String> = vec!["-R".into(), altroot.to_owned()];
    words.extend(mount_options.into_iter().flat_map(|options| ["-o".to_owned(), options.to_owned()]));
    words.extend(properties.iter().flat_map(|(name, value)| ["-o".to_owned(), format!("{name}={value}")]));
    words.extend(chosen.iter().filter_map(|(_, side)| side.path.clone()).flat_map(|path| ["-d".to_owned(), path]));
    words.push(new_name.to_owned());
    let done = import::run(session, &words);
    if done.is_err() {
        complain!(session, "Split was successful, but some datasets could not be mounted");
        complain!(session, "Try doing 'zpool import' with a different altroot");
    }
    done
}
