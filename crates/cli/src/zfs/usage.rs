//! What `zfs` says about itself.

use std::fmt::Write;

use engine::dsl::prop_table;

use super::change::delegation::{allow, help as allow_help};
use super::change::versions::{clone, promote, redact, rollback, snapshot};
use super::change::{bookmark, create, destroy, hold, inherit, mount, project, receive, rename, set, unmount, upgrade};
use super::send;
use super::show::{diff, get, holds, list, owner_space, wait};
use crate::command::{Command, GAP, Program, has, not_yet, not_yet_but, raw, usage_order};

/// The program.
pub(crate) static PROGRAM: Program = Program {
    name: "zfs",
    commands: COMMANDS,
    aliases: &[("umount", "unmount"), ("recv", "receive"), ("snap", "snapshot")],
    command_notes,
    notes: concat!(
        "\nEach dataset is of the form: pool/[dataset/]*dataset[@name]\n",
        "\nFor the property list, run: zfs set|get\n",
        "\nFor further help on a command or topic, run: zfs help [<topic>]\n",
    ),
    is_openzfs: true,
};

#[rustfmt::skip]
static COMMANDS: &[Command] = &[
    has("version", "\tversion [-j]\n", |session, words| crate::version::run(session, words, "zfs")),
    GAP,
    has("create", "\tcreate [-Pnpuv] [-o property=value] ... <filesystem>\n\tcreate [-Pnpsv] [-b blocksize] [-o property=value] ... -V <size> <volume>\n", create::run),
    has("destroy", "\tdestroy [-fnpRrv] <filesystem|volume>\n\tdestroy [-dnpRrv] <filesystem|volume>@<snap>[%<snap>][,...]\n\tdestroy <filesystem|volume>#<bookmark>\n", destroy::run),
    GAP,
    has("snapshot", "\tsnapshot [-r] [-o property=value] ... <filesystem|volume>@<snap> ...\n", snapshot::run),
    has("rollback", "\trollback [-rRf] <snapshot>\n", rollback::run),
    has("clone", "\tclone [-pu] [-o property=value] ... <snapshot> <filesystem|volume>\n", clone::run),
    has("promote", "\tpromote <clone-filesystem>\n", promote::run),
    has("rename", "\trename [-f] <filesystem|volume|snapshot> <filesystem|volume|snapshot>\n\trename -p [-f] <filesystem|volume> <filesystem|volume>\n\trename -u [-f] <filesystem> <filesystem>\n\trename -r <snapshot> <snapshot>\n", rename::run),
    has("bookmark", "\tbookmark <snapshot|bookmark> <newbookmark>\n", bookmark::run),
    has("diff", "\tdiff [-FHth] <snapshot> [snapshot|filesystem]\n", diff::run),
    GAP,
    has("list", "\tlist [-Hp] [-j [--json-int]] [-r|-d max] [-o property[,...]] [-s property]...\n\t    [-S property]... [-t type[,...]] [filesystem|volume|snapshot] ...\n", list::run),
    GAP,
    has("set", "\tset [-u] <property=value> ... <filesystem|volume|snapshot> ...\n", set::run),
    has("get", "\tget [-rHp] [-j [--json-int]] [-d max] [-o \"all\" | field[,...]]\n\t    [-t type[,...]] [-s source[,...]]\n\t    <\"all\" | property[,...]> [filesystem|volume|snapshot|bookmark] ...\n", get::run),
    has("inherit", "\tinherit [-rS] <property> <filesystem|volume|snapshot> ...\n", inherit::run),
    has("upgrade", "\tupgrade [-v]\n\tupgrade [-r] [-V version] <-a | filesystem ...>\n", upgrade::run),
    GAP,
    has("userspace", "\tuserspace [-Hinp] [-o field[,...]] [-s field] ...\n\t    [-S field] ... [-t type[,...]] <filesystem|snapshot|path>\n", owner_space::users),
    has("groupspace", "\tgroupspace [-Hinp] [-o field[,...]] [-s field] ...\n\t    [-S field] ... [-t type[,...]] <filesystem|snapshot|path>\n", owner_space::groups),
    has("projectspace", "\tprojectspace [-Hp] [-o field[,...]] [-s field] ... \n\t    [-S field] ... <filesystem|snapshot|path>\n", owner_space::projects),
    GAP,
    raw("project", "\tproject [-d|-r] <directory|file ...>\n\tproject -c [-0] [-d|-r] [-p id] <directory|file ...>\n\tproject -C [-k] [-r] <directory ...>\n\tproject [-p id] [-r] [-s] <directory ...>\n", project::run),
    GAP,
    has("mount", "\tmount [-j]\n\tmount [-fvO] [-o opts] <-a|-R filesystem|filesystem>\n", mount::run),
    has("unmount", "\tunmount [-f] <-a | filesystem|mountpoint>\n", unmount::run),
    not_yet_but("share", "\tshare [-l] <-a [nfs|smb] | filesystem>\n", "mounts of tarn are shared as any directory is: exportfs(8), or smb.conf(5)"),
    not_yet("unshare", "\tunshare <-a [nfs|smb] | filesystem|mountpoint>\n"),
    GAP,
    has("send", "\tsend [-DLPbcehnpsVvw] [-i|-I snapshot]\n\t     [-R [-X dataset[,dataset]...]]     <snapshot>\n\tsend [-DnVvPLecw] [-i snapshot|bookmark] <filesystem|volume|snapshot>\n\tsend [-DnPpVvLec] [-i bookmark|snapshot] --redact <bookmark> <snapshot>\n\tsend [-nVvPe] -t <receive_resume_token>\n\tsend [-PnVv] --saved filesystem\n", send::run),
    has("receive", "\treceive [-vMnsFhu] [-o <property>=<value>] ... [-x <property>] ...\n\t    <filesystem|volume|snapshot>\n\treceive [-vMnsFhu] [-o <property>=<value>] ... [-x <property>] ... \n\t    [-d | -e] <filesystem>\n\treceive -A <filesystem|volume>\n", receive::run),
    has("redact", "\tredact <snapshot> <bookmark> <redaction_snapshot> ...\n", redact::run),
    GAP,
    has("allow", "\tallow <filesystem|volume>\n\tallow [-ldug] <\"everyone\"|user|group>[,...] <perm|@setname>[,...]\n\t    <filesystem|volume>\n\tallow [-ld] -e <perm|@setname>[,...] <filesystem|volume>\n\tallow -c <perm|@setname>[,...] <filesystem|volume>\n\tallow -s @setname <perm|@setname>[,...] <filesystem|volume>\n", allow::allow),
    has("unallow", "\tunallow [-rldug] <\"everyone\"|user|group>[,...]\n\t    [<perm|@setname>[,...]] <filesystem|volume>\n\tunallow [-rld] -e [<perm|@setname>[,...]] <filesystem|volume>\n\tunallow [-r] -c [<perm|@setname>[,...]] <filesystem|volume>\n\tunallow [-r] -s @setname [<perm|@setname>[,...]] <filesystem|volume>\n", allow::unallow),
    GAP,
    has("hold", "\thold [-r] <tag> <snapshot> ...\n", hold::hold),
    has("holds", "\tholds [-rHp] <snapshot> ...\n", holds::run),
    has("release", "\trelease [-r] <tag> <snapshot> ...\n", hold::release),
    GAP,
    not_yet("load-key", "\tload-key [-rn] [-L <keylocation>] <-a | filesystem|volume>\n"),
    not_yet("unload-key", "\tunload-key [-r] <-a | filesystem|volume>\n"),
    not_yet("change-key", "\tchange-key [-l] [-o keyformat=<value>]\n\t    [-o keylocation=<value>] [-o pbkdf2iters=<value>]\n\t    <filesystem|volume>\n\tchange-key -i [-l] <filesystem|volume>\n"),
    GAP,
    not_yet("program", "\tprogram [-jn] [-t <instruction limit>] [-m <memory limit (b)>]\n\t    <pool> <program file> [lua args...]\n"),
    not_yet("rewrite", "\trewrite [-Prvx] [-o <offset>] [-l <length>] <directory|file ...>\n"),
    has("wait", "\twait [-t <activity>] <filesystem>\n", wait::run),
    GAP,
    not_yet("zone", "\tzone <nsfile> <filesystem>\n"),
    not_yet("unzone", "\tunzone <nsfile> <filesystem>\n"),
];

/// After the usage of `set`, `get`, `inherit` and `list`: the properties; after the others: where to find them.
fn command_notes(command: &str) -> String {
    if matches!(command, "allow" | "unallow") {
        return allow_help::notes(command == "unallow");
    }
    if !matches!(command, "set" | "get" | "inherit" | "list") {
        return concat!(
            "\nFor the property list, run: zfs set|get\n",
            "\nFor further help on a command or topic, run: zfs help [<topic>]\n",
        )
        .to_owned();
    }
    let mut text = String::from("\nThe following properties are supported:\n");
    let _ = write!(text, "\n\t{:<21} EDIT  INHERIT   VALUES\n\n", "PROPERTY");
    for property in usage_order(prop_table::PROPERTIES) {
        let edit = if property.is_read_only() { " NO    " } else { "YES    " };
        let inherit = if property.is_inheritable() { "  YES   " } else { "   NO   " };
        let _ = writeln!(text, "\t{:<22} {edit}{inherit}{}", property.name, property.values.unwrap_or("-"));
    }
    for family in ["userused@...", "groupused@...", "projectused@...", "userobjused@...", "groupobjused@...", "projectobjused@..."] {
        let _ = writeln!(text, "\t{family:<22}  NO       NO   <size>");
    }
    for family in ["userquota@...", "groupquota@...", "projectquota@...", "userobjquota@...", "groupobjquota@...", "projectobjquota@..."] {
        let _ = writeln!(text, "\t{family:<22} YES       NO   <size> | none");
    }
    for family in ["written@<snap>", "written#<bookmark>"] {
        let _ = writeln!(text, "\t{family:<22}  NO       NO   <size>");
    }
    text.push_str(concat!(
        "\nSizes are specified in bytes with standard units such as K, M, G, etc.\n",
        "\nUser-defined properties can be specified by using a name containing a colon (:).\n",
        "\nThe {user|group|project}[obj]{used|quota}@ properties must be appended with\n",
        "a user|group|project specifier of one of these forms:\n",
        "    POSIX name      (eg: \"matt\")\n",
        "    POSIX id        (eg: \"126829\")\n",
        "    SMB name@domain (eg: \"matt@sun\")\n",
        "    SMB SID         (eg: \"S-1-234-567-89\")\n",
    ));
    text
}
