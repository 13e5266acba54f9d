//! `zpool upgrade`

use ondisk::feature::{Feature, FeatureFlags, Support};
use tarnfs::control::compatibility::{self, Allowed};
use tarnfs::control::{PoolEntry, PoolSet, PoolUpgrade, Request, Setting, Wanted};

use crate::session::{Outcome, Session, Stop, complain, say};
use crate::text::getopt::Options;
use crate::zpool::spec::pools;

/// The version of pools with feature flags.
const VERSION_FEATURES: u64 = 5000;
/// The last one before.
const VERSION_BEFORE_FEATURES: u64 = 28;

const VERSIONS: [&str; 28] = [
    "Initial ZFS version",
    "Ditto blocks (replicated metadata)",
    "Hot spares and double parity RAID-Z",
    "zpool history",
    "Compression using the gzip algorithm",
    "bootfs pool property",
    "Separate intent log devices",
    "Delegated administration",
    "refquota and refreservation properties",
    "Cache devices",
    "Improved scrub performance",
    "Snapshot properties",
    "snapused property",
    "passthrough-x aclinherit",
    "user/group space accounting",
    "stmf property support",
    "Triple-parity RAID-Z",
    "Snapshot user holds",
    "Log device removal",
    "Compression using zle (zero-length encoding)",
    "Deduplication",
    "Received properties",
    "Slim ZIL",
    "System attributes",
    "Improved scrub stats",
    "Improved snapshot deletion performance",
    "Improved snapshot creation performance",
    "Multiple vdev replacements",
];

pub(in crate::zpool) fn run(session: &mut Session<'_>, words: &[String]) -> Outcome {
    let mut options = Options::new(words, ":avV:", &[]);
    let (mut all, mut show, mut version) = (false, false, None);
    for option in options.by_ref() {
        let (letter, argument) = option.map_err(|wrong| session.misuse(wrong))?;
        match letter {
            'a' => all = true,
            'v' => show = true,
            _ => {
                let text = argument.unwrap_or_default();
                let number = text.parse::<u64>().ok().filter(|number| matches!(*number, 1..=VERSION_BEFORE_FEATURES | VERSION_FEATURES));
                version = Some(number.ok_or_else(|| session.misuse(format_args!("invalid version '{text}'")))?);
            }
        }
    }
    let operands = options.operands();
    if version.is_some() && !all && operands.is_empty() {
        return Err(session.misuse("-V option is incompatible with other arguments"));
    }
    if show && (all || !operands.is_empty()) {
        return Err(session.misuse("-v option is incompatible with other arguments"));
    }
    if all && !operands.is_empty() {
        return Err(session.misuse("-a option should not be used along with a pool name"));
    }
    let version = version.unwrap_or(VERSION_FEATURES);
    say!(session, "This system supports ZFS pool feature flags.\n");
    if show {
        show_versions(session);
        return Ok(0);
    }
    let (entries, mut code) = pools::entries(session, &operands, &Wanted::All);
    if operands.is_empty() && !all {
        list(session, &entries);
        return Ok(code);
    }
    let mut changed = false;
    for entry in &entries {
        match upgrade(session, entry, version, all) {
            Ok(done) => changed |= done,
            Err(Stop::Code(failed)) => code |= failed,
            Err(stop) => return Err(stop),
        }
    }
    if all && !changed && code == 0 {
        if version == VERSION_FEATURES {
            say!(session, "All pools are already formatted using feature flags.\n");
            say!(session, "Every feature flags pool already has all supported and requested features enabled.");
        } else {
            say!(session, "All pools are already formatted with version {version} or higher.");
        }
    }
    Ok(code)
}

/// What this program can write pools with.
fn known() -> impl Iterator<Item = Feature> {
    Feature::all().filter(|feature| feature.info().support == Support::ReadWrite)
}

fn show_versions(session: &mut Session<'_>) {
    say!(session, "The following features are supported:\n");
    say!(session, "FEAT DESCRIPTION");
    say!(session, "-------------------------------------------------------------");
    for feature in known() {
        let read_only = if feature.is_read_only_compatible() { " (read-only compatible)" } else { "" };
        say!(session, "{:<37}{read_only}", feature.name());
        say!(session, "     {}", feature.info().description);
    }
    say!(session, "\nThe following legacy versions are also supported:\n");
    say!(session, "VER  DESCRIPTION");
    say!(session, "---  --------------------------------------------------------");
    for (index, words) in VERSIONS.iter().enumerate() {
        say!(session, " {:<2}  {words}", index + 1);
    }
    say!(session, "\nFor more information on a particular version, including supported releases,");
    say!(session, "see the ZFS Administration Guide.\n");
}

fn is_enabled(entry: &PoolEntry, feature: Feature) -> bool {
    let name = format!("feature@{}", feature.name());
    let state = entry.properties.iter().find(|property| property.name == name).and_then(|property| property.value.text());
    matches!(state, Some("enabled" | "active"))
}

fn is_not_automatic(feature: Feature) -> bool {
    feature.info().flags.contains(FeatureFlags::NO_UPGRADE)
}

fn compatibility_of(entry: &PoolEntry) -> Option<&str> {
    entry.properties.iter().find(|property| property.name == "compatibility").and_then(|property| property.value.text())
}

/// What the pool may be upgraded with.
fn allowed(session: &mut Session<'_>, entry: &PoolEntry) -> Result<Allowed, Stop> {
    let value = compatibility_of(entry).unwrap_or("");
    compatibility::load(value).map_err(|failure| session.failed(format_args!("cannot upgrade '{}'", entry.name), &failure))
}

/// Which pools could be upgraded.
fn list(session: &mut Session<'_>, entries: &[PoolEntry]) {
    let old: Vec<&PoolEntry> = entries.iter().filter(|entry| entry.status.version < VERSION_FEATURES).collect();
    if old.is_empty() {
        say!(session, "All pools are formatted using feature flags.\n");
    } else {
        say!(
            session,
            "The following pools are formatted with legacy version numbers and can\nbe upgraded to use feature flags.  After being upgraded, these pools\nwill no longer be accessible by software that does not support feature\nflags.\n\nNote that setting a pool's 'compatibility' feature to 'legacy' will\ninhibit upgrades.\n"
        );
        say!(session, "VER  POOL\n---  ------------");
        for entry in &old {
            say!(session, "{:>2}   {}", entry.status.version, entry.name);
        }
        say!(session, "\nUse 'zpool upgrade -v' for a list of available legacy versions.");
    }
    let mut first = true;
    for entry in entries.iter().filter(|entry| entry.status.version >= VERSION_FEATURES) {
        let allowed = compatibility_of(entry).map_or(Allowed::All, |value| compatibility::load(value).unwrap_or(Allowed::All));
        let missing: Vec<Feature> = known().filter(|feature| allowed.allows(*feature) && !is_enabled(entry, *feature)).collect();
        if missing.is_empty() {
            continue;
        }
        if std::mem::take(&mut first) {
            say!(
                session,
                "\nSome supported features are not enabled on the following pools. Once a\nfeature is enabled the pool may become incompatible with software\nthat does not support the feature. See zpool-features(7) for details.\n\nNote that the pool 'compatibility' feature can be used to inhibit\nfeature upgrades.\n\nFeatures marked with (*) are not applied automatically on upgrade, and\nmust be applied explicitly with zpool-set(7).\n"
            );
            say!(session, "POOL  FEATURE\n---------------");
        }
        say!(session, "{}", entry.name);
        for feature in missing {
            say!(session, "      {}{}", feature.name(), if is_not_automatic(feature) { "(*)" } else { "" });
        }
    }
    if first {
        say!(session, "Every feature flags pool has all supported and requested features enabled.");
    } else {
        say!(session, "");
    }
}

/// Upgrades one pool; `true`: something changed.
fn upgrade(session: &mut Session<'_>, entry: &PoolEntry, version: u64, all: bool) -> Result<bool, Stop> {
    let (name, now) = (&entry.name, entry.status.version);
    if now > version || (now == version && version != VERSION_FEATURES) {
        match (all, now > version) {
            (true, _) => {}
            (false, true) => say!(session, "Pool '{name}' is already formatted using more current version '{now}'.\n"),
            (false, false) => say!(session, "Pool '{name}' is already formatted using version {version}.\n"),
        }
        return Ok(false);
    }
    // Before anything is changed: no version is taken back.
    let allowed = allowed(session, entry)?;
    if allowed == Allowed::These(Vec::new()) {
        complain!(session, "cannot upgrade '{name}': its property 'compatibility' allows no features; set it to 'off' first");
        return Err(Stop::Code(1));
    }
    if now < version {
        let done = session.perform(Request::PoolUpgrade(PoolUpgrade { name: name.clone(), version }));
        done.map_err(|failure| session.failed(format_args!("cannot upgrade '{name}'"), &failure))?;
        let to = if version == VERSION_FEATURES { "feature flags".to_owned() } else { format!("version {version}") };
        say!(session, "Successfully upgraded '{name}' from version {now} to {to}.");
    }
    if version < VERSION_FEATURES {
        return Ok(true);
    }
    let wanted = |feature: &Feature| !is_not_automatic(*feature) && allowed.allows(*feature) && !is_enabled(entry, *feature);
    let missing: Vec<Feature> = known().filter(wanted).collect();
    if missing.is_empty() {
        if !all && now == VERSION_FEATURES {
            say!(session, "Pool '{name}' already has all supported and requested features enabled.");
        }
        return Ok(now < version);
    }
    let settings = missing.iter().map(|feature| Setting::new(format!("feature@{}", feature.name()), "enabled")).collect();
    let done = session.perform(Request::PoolSet(PoolSet { name: name.clone(), settings }));
    done.map_err(|failure| session.failed(format_args!("cannot set property for '{name}'"), &failure))?;
    say!(session, "Enabled the following features on '{name}':");
    missing.iter().for_each(|feature| say!(session, "  {}", feature.name()));
    say!(session, "");
    Ok(true)
}
