//! The rights of users on files: each act of [`acts::ACTS`] by each of four callers on files of two owners and of every kind, on ext4, on a
//! mount of ours and in the view of a transaction. What ext4 answers, and what the file is afterwards, is right.

mod acts;
mod control_directory;
mod delegated_life;
mod delegates;
mod limits;
mod people;
mod socket;

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::fs::{IFlags, XattrFlags, setxattr};
use rustix::mount::{UnmountFlags, mount_bind, unmount};
use sim::places::{say, skipped};

use crate::rig::{LIMIT, Rig, has_program, run_for};
use acts::{ACTS, Act, Answer, CAPABILITY, Cell, mark, seen};
use people::{GROUP, OWNER, Somebody, capable, everybody};

const MIB: u64 = 1 << 20;

/// What is asked about.
struct Kind {
    name: &'static str,
    mode: u32,
    is_directory: bool,
    marks: IFlags,
    capable: bool,
    owners: &'static [u32],
}

const BOTH: &[u32] = &[0, OWNER];
/// For kinds where another owner would tell nothing new.
const ONE: &[u32] = &[OWNER];

const FILE: Kind = Kind { name: "plain", mode: 0o644, is_directory: false, marks: IFlags::empty(), capable: false, owners: ONE };
const DIRECTORY: Kind = Kind { name: "directory of everybody", mode: 0o777, is_directory: true, ..FILE };

const KINDS: &[Kind] = &[
    Kind { owners: BOTH, ..FILE },
    Kind { name: "everybody's", mode: 0o666, ..FILE },
    Kind { name: "set-id program", mode: 0o6777, owners: BOTH, ..FILE },
    Kind { name: "set-id, not executable", mode: 0o6666, ..FILE },
    Kind { name: "set-gid, not executable", mode: 0o2666, ..FILE },
    Kind { name: "capable", mode: 0o777, capable: true, ..FILE },
    Kind { name: "immutable", mode: 0o666, marks: IFlags::IMMUTABLE, owners: BOTH, ..FILE },
    Kind { name: "append-only", mode: 0o666, marks: IFlags::APPEND, owners: BOTH, ..FILE },
    DIRECTORY,
    Kind { name: "directory of its owner", mode: 0o755, owners: BOTH, ..DIRECTORY },
    Kind { name: "sticky directory", mode: 0o1777, owners: BOTH, ..DIRECTORY },
    Kind { name: "set-gid directory", mode: 0o2777, ..DIRECTORY },
    Kind { name: "immutable directory", marks: IFlags::IMMUTABLE, ..DIRECTORY },
    Kind { name: "append-only directory", marks: IFlags::APPEND, ..DIRECTORY },
];

/// Something mounted that is not to outlive the test.
struct Mounted(PathBuf);

impl Drop for Mounted {
    fn drop(&mut self) {
        if let Err(error) = unmount(&self.0, UnmountFlags::DETACH) {
            eprintln!("{}: {error}", self.0.display());
        }
    }
}

/// An ext4 on a loop device, which goes with its mount. `None`, aloud: there can be none here.
fn ext4(rig: &Rig) -> Option<Mounted> {
    if !has_program("mkfs.ext4") || !has_program("mount") || !has_program("perl") {
        return None;
    }
    let (image, root) = (rig.image("ext4.img", 256 * MIB), rig.path("ext4"));
    fs::create_dir(&root).unwrap();
    let made = run_for(Command::new("mkfs.ext4").args(["-q", "-N", "65536", "-O", "^has_journal"]).arg(&image), LIMIT);
    assert!(made.as_ref().is_some_and(|said| said.code == 0), "mkfs.ext4: {made:?}");
    let mounted = run_for(Command::new("mount").args(["-o", "loop,acl,user_xattr"]).arg(&image).arg(&root), LIMIT);
    if mounted.as_ref().is_none_or(|said| said.code != 0) {
        skipped(&format!("no ext4 on a loop device to be compared with: {mounted:?}"));
        return None;
    }
    Some(Mounted(root))
}

fn cell(root: &Path, number: usize) -> Cell {
    Cell { directory: root.join(number.to_string()), name: "t", source: root.join("source") }
}

fn prepare(root: &Path, number: usize, kind: &Kind, owner: u32) -> Cell {
    let cell = cell(root, number);
    let target = cell.target();
    fs::create_dir(&cell.directory).unwrap();
    if kind.is_directory {
        fs::create_dir(&target).unwrap();
        fs::write(target.join("e"), "entry").unwrap();
        chown(target.join("e"), Some(owner), Some(GROUP)).unwrap();
    } else {
        fs::write(&target, [b'a'; 8192]).unwrap();
    }
    chown(&target, Some(owner), Some(GROUP)).unwrap();
    chown(&cell.directory, Some(owner), Some(GROUP)).unwrap();
    fs::set_permissions(&cell.directory, fs::Permissions::from_mode(0o777)).unwrap();
    fs::set_permissions(&target, fs::Permissions::from_mode(kind.mode)).unwrap();
    for name in ["user.old", "trusted.old", "security.old"] {
        setxattr(&target, name, b"old", XattrFlags::empty()).unwrap();
    }
    if kind.capable {
        setxattr(&target, "security.capability", &CAPABILITY, XattrFlags::empty()).unwrap();
    }
    if !kind.marks.is_empty() {
        mark(&target, kind.marks).unwrap();
    }
    cell
}

/// A directory with all cells of one kind and owner, in the order of [`asked`].
fn prepare_all(root: &Path, kind: &Kind, owner: u32, callers: usize) -> Vec<Cell> {
    fs::create_dir(root).unwrap();
    fs::set_permissions(root, fs::Permissions::from_mode(0o755)).unwrap();
    fs::write(root.join("source"), [b's'; 8192]).unwrap();
    fs::set_permissions(root.join("source"), fs::Permissions::from_mode(0o644)).unwrap();
    (0..ACTS.len() * callers).map(|number| prepare(root, number, kind, owner)).collect()
}

type Outcome = (Answer, String);

/// The callers and their acts, in the order of the cells.
fn asked(people: &[Somebody]) -> impl Iterator<Item = (&Act, &Somebody)> {
    ACTS.iter().flat_map(move |act| people.iter().map(move |caller| (act, caller)))
}

fn walk(cells: &[Cell], people: &[Somebody]) -> Vec<Outcome> {
    let step = |(cell, (act, caller)): (&Cell, (&Act, &Somebody))| {
        let (own, run) = (cell.clone(), act.run);
        (caller.act(move || run(&own)), seen(cell))
    };
    cells.iter().zip(asked(people)).map(step).collect()
}

/// What was done in another way than ext4 does it.
#[derive(Default)]
struct Differences {
    /// Those that may be needed.
    excuses: Vec<&'static Excuse>,
    lines: Vec<String>,
    used: BTreeSet<usize>,
    compared: usize,
}

impl Differences {
    fn compare(&mut self, place: &'static str, what: &str, right: &[Outcome], ours: &[Outcome], people: &[Somebody]) {
        for ((right, ours), (act, caller)) in right.iter().zip(ours).zip(asked(people)) {
            self.compared += 1;
            if right == ours {
                continue;
            }
            let excuse = self.excuses.iter().position(|excuse| excuse.covers(place, act.name, what, right, ours));
            match excuse {
                Some(at) => drop(self.used.insert(at)),
                None => self
                    .lines
                    .push(format!("{place}: {} by {} on {what}:\n  ext4 {right:?}\n  ours {ours:?}", act.name, caller.name)),
            }
        }
    }
}

/// A difference that is meant, with its reason.
struct Excuse {
    place: &'static str,
    act: &'static str,
    kind: &'static str,
    how: How,
    reason: &'static str,
}

/// In what the answers may differ.
#[derive(Clone, Copy, PartialEq)]
enum How {
    /// Both refuse, with different errors, and the file is the same afterwards.
    OtherError,
    /// Ours refuses, and the file is what it was.
    Refused(i32),
    /// Ours says yes where nothing is changed; the file is the same afterwards.
    Allowed,
    /// Ours gives the file away, and its set-id bits go.
    GivenAway,
}

impl Excuse {
    fn covers(&self, place: &str, act: &str, what: &str, right: &Outcome, ours: &Outcome) -> bool {
        let how = match (self.how, &right.0, &ours.0) {
            (How::OtherError, Err(_), Err(_)) | (How::Allowed, Err(_), Ok(_)) => right.1 == ours.1,
            (How::Refused(errno), _, Err(error)) => error.raw_os_error() == errno,
            (How::GivenAway, Err(_), Ok(_)) => ours.1.starts_with("t: 100"),
            _ => false,
        };
        how && place.starts_with(self.place) && act.starts_with(self.act) && what.contains(self.kind)
    }
}

const fn excuse(place: &'static str, act: &'static str, kind: &'static str, how: How, reason: &'static str) -> Excuse {
    Excuse { place, act, kind, how, reason }
}

const VIEW_LISTS: &str = "access control lists cannot be changed in a transaction";
const VIEW_MARKS: &str = "marks cannot be changed in a transaction";
const VIEW_APPENDS: &str = "a file that may only grow cannot be changed in a transaction";
const VIEW_OPENS: &str = "a view is not asked when a file is opened: what is marked is refused when it is changed";

const EXCUSES: &[Excuse] = &[
    excuse("", "", "immutable", How::OtherError, "the kernel does not know marks: what else is wrong is found first"),
    excuse("", "", "append-only", How::OtherError, "as above"),
    excuse(
        "",
        "access to write",
        "immutable",
        How::Allowed,
        "the kernel answers access(2) itself, and does not know marks: to open is refused",
    ),
    excuse("", "seek", "directory", How::Refused(libc::ENXIO), "a directory has no data"),
    excuse("view", "xattr list", "", How::Refused(libc::EOPNOTSUPP), VIEW_LISTS),
    excuse("view", "xattr remove list", "", How::Refused(libc::EOPNOTSUPP), VIEW_LISTS),
    excuse(
        "view",
        "entry made without a name",
        "directory",
        How::Refused(libc::EOPNOTSUPP),
        "a transaction makes no files without names",
    ),
    excuse("view", "mark", "", How::Refused(libc::EOPNOTSUPP), VIEW_MARKS),
    excuse("view", "open", "immutable", How::Allowed, VIEW_OPENS),
    excuse("view", "write nothing", "immutable", How::Allowed, VIEW_OPENS),
    excuse("view", "open", "append-only", How::Allowed, VIEW_OPENS),
    excuse("view", "write nothing", "append-only", How::Allowed, VIEW_OPENS),
    excuse("view", "", "append-only", How::Refused(libc::EPERM), VIEW_APPENDS),
];

const CAPABLE_EXCUSES: &[Excuse] = &[excuse(
    "",
    "chown",
    "set-",
    How::GivenAway,
    "the kernel takes set-id bits away by a change of the mode, and for that asks more than CAP_CHOWN; here the file system does it",
)];

/// Every so many kinds of files are walked where minutes count.
const PART: usize = 4;

/// Which of the kinds are walked by a fast test: others each time. `TARN_SEED=n` for the same ones again.
fn some() -> Option<usize> {
    let seed = std::env::var("TARN_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or_else(|| rand::random_range(0..PART));
    say(&format!("callers: TARN_SEED={seed} for the same kinds of files again"));
    Some(seed % PART)
}

/// Issue 19: as nobody, with a read-only descriptor, root's file could be made immutable by the 32-bit number of a request; the set-id bits of a program
/// stayed in a transaction's view when somebody else had written it, and anywhere when `fallocate` had changed it.
#[test]
fn everybody_may_do_what_ext4_lets_them_do() {
    compare_with_ext4(&everybody(), |kind| kind.owners, &[], some());
}

#[test]
#[ignore = "takes minutes: all kinds of files"]
fn everybody_may_do_with_all_files_what_ext4_lets_them_do() {
    compare_with_ext4(&everybody(), |kind| kind.owners, &[], None);
}

/// Capabilities count one by one: a caller with one of them, or with the superuser's number and none, may do what ext4 lets it do.
#[test]
fn capabilities_count_one_by_one() {
    compare_with_ext4(&capable(), |_| ONE, CAPABLE_EXCUSES, some());
}

#[test]
#[ignore = "takes minutes: all kinds of files"]
fn capabilities_count_one_by_one_for_all_files() {
    compare_with_ext4(&capable(), |_| ONE, CAPABLE_EXCUSES, None);
}

/// Has these people do everything on all kinds of files of these owners, or on those of one part, on ext4 and on ours, and judges what differs.
fn compare_with_ext4(people: &[Somebody], owners: fn(&Kind) -> &'static [u32], more: &'static [Excuse], part: Option<usize>) {
    let Some(rig) = Rig::new() else { return };
    fs::set_permissions(rig.path("."), fs::Permissions::from_mode(0o755)).unwrap();
    let Some(reference) = ext4(&rig) else { return };
    rig.image("a.img", 1024 * MIB);
    rig.ok("zpool create -O mountpoint=@mnt -O acltype=posix tank @a.img");
    fs::create_dir(rig.path("view")).unwrap();
    let mut found = Differences { excuses: EXCUSES.iter().chain(more).collect(), ..Differences::default() };
    let all = KINDS.iter().flat_map(|kind| owners(kind).iter().map(move |owner| (kind, *owner))).enumerate();
    for (number, (kind, owner)) in all.filter(|(number, _)| part.is_none_or(|part| number % PART == part)) {
        let what = format!("{}'s {} ({:o})", if owner == 0 { "root" } else { "owner" }, kind.name, kind.mode);
        let all = |root: PathBuf| prepare_all(&root, kind, owner, people.len());
        let right = walk(&all(reference.0.join(number.to_string())), people);
        found.compare("mount", &what, &right, &walk(&all(rig.path("mnt").join(format!("m{number}"))), people), people);
        let name = format!("v{number}");
        all(rig.path("mnt").join(&name));
        walk_view(&rig, &name, &what, &right, people, &mut found);
    }
    drop(reference);
    let unused: Vec<&str> =
        found.excuses.iter().enumerate().filter(|(at, _)| !found.used.contains(at)).map(|(_, excuse)| excuse.reason).collect();
    say(&format!("callers: {} acts compared with ext4, {} differ", found.compared, found.lines.len()));
    assert!(found.lines.is_empty(), "{} of {} differ from ext4:\n{}", found.lines.len(), found.compared, found.lines.join("\n"));
    assert!(part.is_some() || unused.is_empty(), "excuses that nothing needs: {unused:?}");
    rig.ok("zpool export tank");
    rig.zdb(&["a.img"]);
}

/// The daemon's table of what the kernel does not check, and what is walked here, are of the same things.
#[test]
fn all_that_the_kernel_does_not_check_is_walked() {
    let is_walked = |rule: &str| ACTS.iter().any(|act| act.name.starts_with(rule) || rule.starts_with(act.name));
    // What concerns `.zfs` is walked in `control_directory`.
    let elsewhere = ["control directory", "snapshot by its directory"];
    let not: Vec<&str> =
        daemon::ops::RULES.iter().map(|rule| rule.name).filter(|rule| !is_walked(rule) && !elsewhere.contains(rule)).collect();
    assert!(not.is_empty(), "rules of `ops/rights.rs` that nobody walks: {not:?}");
}

/// The same in a transaction's view, which is looked at before the commit and after it.
fn walk_view(rig: &Rig, name: &str, what: &str, right: &[Outcome], people: &[Somebody], found: &mut Differences) {
    let view = rig.ok(&format!("transaction begin -o {} tank", std::process::id())).trim_end().to_owned();
    // The directory of the views is root's alone.
    mount_bind(&view, rig.path("view")).unwrap();
    let shown = Mounted(rig.path("view"));
    let cells = |root: PathBuf| -> Vec<Cell> { (0..right.len()).map(|number| cell(&root, number)).collect() };
    let ours = walk(&cells(rig.path("view").join(name)), people);
    found.compare("view", what, right, &ours, people);
    drop(shown);
    // A test beside this one may be about to start a process, with our files, in a mount namespace with a copy of the view.
    rig.wait("the commit", || {
        let said = rig.run(&format!("transaction commit {view}"));
        assert!(said.code == 0 || said.err.contains("is in use"), "{said:?}");
        said.code == 0
    });
    let committed: Vec<Outcome> =
        cells(rig.path("mnt").join(name)).iter().zip(ours).map(|(cell, (answer, _))| (answer, seen(cell))).collect();
    found.compare("view, committed", what, right, &committed, people);
}
