//! What `zfs allow -h` and `zfs unallow -h` print, and what is printed of a mistake.

use engine::dsl::prop_table::{PROPERTIES, Property};
use std::fmt::Write;
use tarnfs::control::permission::PERMISSIONS;

use crate::session::{Outcome, Session, Stop, complain};

const OPTIONS: [(&str, &str); 9] = [
    ("-h", "show this help message and exit"),
    ("-l", "set permission locally"),
    ("-d", "set permission for descents"),
    ("-u", "set permission for user"),
    ("-g", "set permission for group"),
    ("-e", "set permission for everyone"),
    ("-c", "set create time permission"),
    ("-s", "define permission set"),
    ("-r", "remove permissions recursively"),
];

/// Below the notes of a permission.
const INDENT: &str = "\n\t\t\t\t";

/// What OpenZFS notes of a permission; `/` stands for a new line.
fn note(permission: &str) -> &'static str {
    match permission {
        "allow" => "Must also have the permission that is being/allowed",
        "clone" => "Must also have the 'create' ability and 'mount'/ability in the origin file system",
        "create" | "destroy" => "Must also have the 'mount' ability",
        "diff" => "Allows lookup of paths within a dataset;/given an object number. Ordinary users need this/in order to use zfs diff",
        "hold" => "Allows adding a user hold to a snapshot",
        "mount" => "Allows mount|umount of ZFS datasets",
        "promote" => "Must also have the 'mount'/and 'promote' ability in the origin file system",
        "receive" => "Must also have the 'mount' and 'create' ability",
        "release" => "Allows releasing a user hold which/might destroy the snapshot",
        "rename" => "Must also have the 'mount' and 'create'/ability in the new parent",
        "send" => "Allow sending datasets",
        "send:raw" => "Allow sending datasets, but only in 'raw'/replication mode",
        "send:encrypted" => "Allow sending only encrypted datasets, and/only in 'raw' replication mode",
        "share" => "Allows sharing file systems over NFS or SMB/protocols",
        "load-key" => "Allows loading or unloading an encryption key",
        "change-key" => "Allows changing or adding an encryption key",
        "groupquota" => "Allows accessing any groupquota@... property",
        "groupused" => "Allows reading any groupused@... property",
        "userprop" => "Allows changing any user property",
        "userquota" => "Allows accessing any userquota@... property",
        "userused" => "Allows reading any userused@... property",
        "userobjquota" => "Allows accessing any userobjquota@... property",
        "userobjused" => "Allows reading any userobjused@... property",
        "groupobjquota" => "Allows accessing any /groupobjquota@... property",
        "groupobjused" => "Allows reading any groupobjused@... property",
        "projectused" => "Allows reading any projectused@... property",
        "projectquota" => "Allows accessing any projectquota@... property",
        "projectobjused" => "Allows accessing any /projectobjused@... property",
        "projectobjquota" => "Allows accessing any /projectobjquota@... property",
        _ => "",
    }
}

/// Is it one of those that are no verbs?
fn is_other(permission: &str) -> bool {
    permission == "userprop" || permission.ends_with("quota") || permission.ends_with("used")
}

fn text(taken: bool) -> String {
    let usage = crate::zfs::usage::PROGRAM.find(if taken { "unallow" } else { "allow" }).map_or("", |command| command.usage);
    format!("Usage: {usage}{}", notes(taken))
}

/// The options and the permissions.
pub(in crate::zfs) fn notes(taken: bool) -> String {
    let mut text = "\nOptions:\n".to_owned();
    for (option, words) in &OPTIONS[..OPTIONS.len() - usize::from(!taken)] {
        let _ = writeln!(text, "  {option:<10}  {words}");
    }
    text.push_str("\nThe following permissions are supported:\n\n");
    let mut row = |name: &str, kind: &str, notes: &str| {
        let _ = writeln!(text, "{name:<16} {kind:<14}\t{notes}");
    };
    row("NAME", "TYPE", "NOTES");
    for name in PERMISSIONS {
        let notes = note(name).replace('/', INDENT).replace('|', "/");
        row(name, if is_other(name) { "other" } else { "subcommand" }, &notes);
    }
    let can_be_set = |property: &&Property| property.is_visible() && (!property.is_read_only() || property.is_set_once());
    let mut names: Vec<&str> = PROPERTIES.iter().filter(can_be_set).map(|property| property.name).collect();
    names.sort_unstable();
    for name in names {
        row(name, "property", "");
    }
    text
}

/// What was asked for with `-h`.
pub(super) fn explain(session: &mut Session<'_>, taken: bool) -> Outcome {
    session.print(format_args!("{}", text(taken)));
    Ok(0)
}

/// A mistake: all of it, and the mistake last.
pub(super) fn misuse(session: &mut Session<'_>, taken: bool, words: &str) -> Outcome {
    complain!(session, "{}\nzfs: error: {words}", text(taken));
    Err(Stop::Code(2))
}
