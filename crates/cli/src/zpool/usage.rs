//! What `zpool` says about itself.

use std::fmt::Write;

use engine::pool::prop_table;

use super::change::devices::{add, beside, leaf_work, remove, split};
use super::change::{create, destroy, export, import, labelclear, set, sync, upgrade, upkeep};
use super::show::{events, get, history, iostat, list, status};
use crate::command::{Command, GAP, Program, has, not_yet, usage_order};

/// The program.
pub(crate) static PROGRAM: Program = Program {
    name: "zpool",
    commands: COMMANDS,
    aliases: &[],
    command_notes,
    notes: "\nFor further help on a command or topic, run: zpool help [<topic>]\n",
    is_openzfs: true,
};

#[rustfmt::skip]
static COMMANDS: &[Command] = &[
    has("version", "\tversion [-j]\n", |session, words| crate::version::run(session, words, "zpool")),
    GAP,
    has("create", "\tcreate [-fnd] [-o property=value] ... \n\t    [-O file-system-property=value] ... \n\t    [-m mountpoint] [-R root] [-t tempname] <pool> <vdev> ...\n", create::run),
    has("destroy", "\tdestroy [-f] <pool>\n", destroy::run),
    GAP,
    has("add", "\tadd [-fgLnP] [--allow-in-use] [--allow-replication-mismatch]\n\t    [--allow-ashift-mismatch] [-o property=value] <pool> <vdev> ...\n", add::add),
    has("remove", "\tremove [-npsw] <pool> <device> ...\n", remove::remove),
    GAP,
    has("labelclear", "\tlabelclear [-f] <vdev>\n", labelclear::run),
    GAP,
    has("checkpoint", "\tcheckpoint [-d [-w]] <pool> ...\n", upkeep::checkpoint::run),
    not_yet("prefetch", "\tprefetch [-t <type>] <pool>\n"),
    GAP,
    has("list", "\tlist [-gHLpPv] [-o property[,...]] [-j [--json-int, --json-pool-key-guid]] ...\n\t    [-T d|u] [pool] [interval [count]]\n", list::run),
    has("iostat", "\tiostat [[-lq]|[-rw]] [-T d | u] [-gHLpPvy]\n\t    [[pool ...]|[pool vdev ...]|[vdev ...]] [[-n] interval [count]]\n", iostat::run),
    has("status", "\tstatus [-DdegiLPpstvx]\n\t    [-j|--json [--json-flat-vdevs] [--json-int] [--json-pool-key-guid]] ...\n\t    [-T d|u] [--power] [pool] [interval [count]]\n", status::run),
    GAP,
    has("online", "\tonline [-e] <pool> <device> ...\n", beside::online),
    has("offline", "\toffline [-f] [-t] <pool> <device> ...\n", beside::offline),
    has("clear", "\tclear <pool> [device]\n", upkeep::clear),
    has("reopen", "\treopen [-n] <pool>\n", beside::reopen),
    GAP,
    has("attach", "\tattach [-fw] [-o property=value] <pool> <vdev> <new-device>\n", beside::attach),
    has("detach", "\tdetach <pool> <device>\n", beside::detach),
    has("replace", "\treplace [-fsw] [-o property=value] <pool> <device> [new-device]\n", beside::replace),
    has("split", "\tsplit [-gLnPl] [-R altroot] [-o mntopts]\n\t    [-o property=value] <pool> <newpool> [<device> ...]\n", split::run),
    GAP,
    has("initialize", "\tinitialize [-c | -s | -u] [-w] <-a | <pool> [<device> ...]>\n", leaf_work::initialize),
    has("resilver", "\tresilver <pool> ...\n", upkeep::scrub::resilver),
    has("scrub", "\tscrub [-e | -s | -p | -C | -E | -S] [-w] <-a | <pool> [<pool> ...]>\n", upkeep::scrub::scrub),
    has("trim", "\ttrim [-dw] [-r <rate>] [-c | -s] <-a | <pool> [<device> ...]>\n", leaf_work::trim),
    GAP,
    has("import", "\timport [-d dir] [-D]\n\timport [-o mntopts] [-o property=value] ... \n\t    [-d dir | -c cachefile] [-D] [-f] [-m] [-N] [-R root] [-F [-n]] [-T txg] -a\n\timport [-o mntopts] [-o property=value] ... \n\t    [-d dir | -c cachefile] [-D] [-f] [-m] [-N] [-R root] [-F [-n]]\n\t    [-T txg] [--rewind-to-checkpoint] [-t] <pool | id> [newpool]\n", import::run),
    has("export", "\texport [-af] <pool> ...\n", export::run),
    has("upgrade", "\tupgrade\n\tupgrade -v\n\tupgrade [-V version] <-a | pool ...>\n", upgrade::run),
    has("reguid", "\treguid [-g guid] <pool>\n", upkeep::reguid),
    GAP,
    has("history", "\thistory [-il] [<pool>] ...\n", history::run),
    has("events", "\tevents [-vHf [pool] | -c]\n", events::run),
    GAP,
    has("get", "\tget [-Hp] [-j [--json-int, --json-pool-key-guid]] ...\n\t    [-o \"all\" | field[,...]] <\"all\" | property[,...]> <pool> ...\n", get::run),
    has("set", "\tset <property=value> <pool>\n", set::run),
    has("sync", "\tsync [pool] ...\n", sync::run),
    GAP,
    has("wait", "\twait [-Hp] [-T d|u] [-t <activity>[,...]] <pool> [interval]\n", upkeep::wait::wait),
    GAP,
    not_yet("ddtprune", "\tddtprune -d|-p <amount> <pool>\n"),
];

/// After the usage of `set`, `get` and `list`: the properties.
fn command_notes(command: &str) -> String {
    if !matches!(command, "set" | "get" | "list") {
        return String::new();
    }
    let mut text = String::from("\nthe following properties are supported:\n");
    let _ = write!(text, "\n\t{:<19}  EDIT   VALUES\n\n", "PROPERTY");
    for property in usage_order(prop_table::PROPERTIES) {
        let edit = if property.rule == engine::dsl::prop_table::Rule::ReadOnly { "  NO   " } else { " YES   " };
        let _ = writeln!(text, "\t{:<19}  {edit}{}", property.name, property.values.unwrap_or("-"));
    }
    let _ = writeln!(text, "\t{:<19}   YES   disabled | enabled | active", "feature@...");
    text.push_str("\nThe feature@ properties must be appended with a feature name.\nSee zpool-features(7).\n");
    text
}
