//! An incremental package: what the sender has destroyed, promoted or renamed since is so here, too.
//!
//! # Theory
//! Snapshots are known by their guids, and file systems by their snapshots. What has no snapshot that the package knows is not the sender's any more:
//! with `-F` it goes. Names, parents and origins follow the sender's. So nothing may be done unless all that is here was listed: what is not known has no
//! snapshots.
//!
//! One step may wait for another (a clone goes before its origin, a name is not free yet), so there are passes, as long as one brings something about.
//! All of it is done a second time when the streams are received: what they bring may be the parent of what was here.

use std::collections::BTreeMap;

use tarnfs::control::{DatasetDestroy, DatasetKinds, DatasetList, DatasetPromote, DatasetSet, DatasetUnmount, Failure, Request, SnapshotsDestroy, Wanted};

use super::Run;
use super::local::{Locals, Place};
use super::package::{Known, Package};
use crate::session::{Stop, say};
use crate::zfs::datasets::{self, Query};

const HEADS: DatasetKinds = DatasetKinds { filesystem: true, volume: true, snapshot: false, bookmark: false };
/// Passes that there may be beside two for each dataset.
const PASSES: usize = 8;

/// What one pass has come to.
#[derive(Default)]
pub(super) struct Pass {
    /// Something is not any more as it was listed.
    pub(super) has_changed: bool,
    /// Something is still to be done.
    pub(super) is_open: bool,
    /// What could not be promoted or renamed, and why.
    pub(super) failed: Vec<(String, Failure)>,
}

impl Pass {
    /// `action` was tried. Returns whether it is done.
    pub(super) fn note(&mut self, action: String, tried: Result<(), Failure>) -> bool {
        match tried {
            Ok(()) => {
                self.has_changed = true;
                true
            }
            Err(failure) => {
                self.is_open = true;
                self.failed.push((action, failure));
                false
            }
        }
    }
}

impl Run<'_, '_> {
    /// Brings what is there from `root` on to what the package begins with; `begins`: its streams are still to come. Returns what could not be promoted or
    /// renamed, and why.
    pub(super) fn replicate(&mut self, package: &Package, root: &str, begins: bool) -> Result<Vec<(String, Failure)>, Stop> {
        if !package.is_followed() || self.flags.dry_run || self.entry_or_stop(root, &[])?.is_none() {
            return Ok(Vec::new());
        }
        let known = package.known();
        if known.is_empty() {
            return Err(self.refuse("cannot receive", "invalid backup stream (it names no snapshots)"));
        }
        let mut locals = self.locals(package, &known, root)?;
        if begins {
            self.set_properties(&locals);
        }
        let (mut makes_room, mut failed) = (false, Vec::new());
        for _ in 0..2 * locals.all.len() + PASSES {
            let pass = self.pass(&mut locals, makes_room);
            failed = pass.failed;
            if !pass.is_open || (makes_room && !pass.has_changed) {
                break;
            }
            makes_room = !pass.has_changed;
            if self.flags.verbose {
                say!(self.session, "another pass:");
            }
            locals = self.locals(package, &known, root)?;
        }
        if begins {
            self.unmount_waiting(&locals);
        }
        Ok(failed)
    }

    /// What waits for its parent is not mounted when it comes there, before its parent is.
    fn unmount_waiting(&mut self, locals: &Locals<'_>) {
        for at in (0..locals.all.len()).filter(|at| locals.place(*at) == Place::Later) {
            // One that is in use is complained of when it is to go there.
            let _ = self.unmount_moving(&locals.all[at].name);
        }
    }

    fn locals<'p>(&mut self, package: &Package, known: &'p BTreeMap<u64, Known<'p>>, root: &str) -> Result<Locals<'p>, Stop> {
        // What is made between the two lists is in the second one at most, and stays.
        let listed = self.heads(root).and_then(|heads| Ok((heads, self.snapshots(root, None)?)));
        let (heads, found) = listed.map_err(|failure| self.session.failed(format_args!("cannot receive: cannot list what is below '{root}'"), &failure))?;
        Ok(Locals::new(package, known, root, heads, found))
    }

    /// File systems and volumes, and the snapshots that they are clones of.
    fn heads(&mut self, root: &str) -> Result<BTreeMap<String, String>, Failure> {
        let wanted = Wanted::Only(vec!["origin".to_owned()]);
        let list = DatasetList { depth: None, ..datasets::request(&Query::new(HEADS, wanted), Some(root), None) };
        let mut heads = BTreeMap::new();
        for entry in self.session.datasets(Request::DatasetList(list))?.entries {
            let origin = entry.property("origin").and_then(|origin| origin.value.text()).unwrap_or_default().to_owned();
            heads.insert(entry.name, origin);
        }
        Ok(heads)
    }

    fn pass(&mut self, locals: &mut Locals<'_>, makes_room: bool) -> Pass {
        let mut pass = Pass::default();
        for name in locals.to_promote() {
            self.promote(name, &mut pass);
        }
        if pass.has_changed {
            // Snapshots have gone from one dataset to another: they have to be listed again.
            pass.is_open = true;
            return pass;
        }
        self.follow_snapshots(locals, makes_room, &mut pass);
        // Before the renames: what goes may have the name that another one gets.
        self.destroy_all(locals, &mut pass);
        self.move_all(locals, makes_room, &mut pass);
        pass
    }

    fn promote(&mut self, name: String, pass: &mut Pass) {
        if self.flags.verbose {
            say!(self.session, "promoting {name}");
        }
        let action = format!("cannot promote '{name}'");
        let promoted = self.session.perform(Request::DatasetPromote(DatasetPromote { name }));
        pass.note(action, promoted);
    }

    /// Snapshots that the sender does not have go; the others get the names that they have there.
    fn follow_snapshots(&mut self, locals: &mut Locals<'_>, makes_room: bool, pass: &mut Pass) {
        let known = locals.known;
        for local in locals.all.iter_mut().rev().filter(|local| local.is_known()) {
            if self.flags.force {
                let (head, before) = (local.name.clone(), local.snapshots.len());
                local.snapshots.retain(|(snapshot, guid)| known.contains_key(guid) || !self.destroy(&format!("{head}@{snapshot}")));
                pass.has_changed |= local.snapshots.len() != before;
                pass.is_open |= local.snapshots.iter().any(|(_, guid)| !known.contains_key(guid));
            }
            self.rename_snapshots(local, known, makes_room, pass);
        }
    }

    /// What the sender does not have any more. A clone goes before its origin, whatever their names: so what cannot go is tried again, as long as others go.
    /// That one cannot go is no error: what is received in its place says so.
    fn destroy_all(&mut self, locals: &mut Locals<'_>, pass: &mut Pass) {
        if !self.flags.force {
            return;
        }
        // What is below goes before what is above.
        let gone = (0..locals.all.len()).rev().filter(|at| locals.is_gone(*at));
        let mut gone: Vec<String> = gone.map(|at| locals.all[at].name.clone()).collect();
        loop {
            let before = gone.len();
            gone.retain(|head| !self.destroy(head));
            if gone.is_empty() || gone.len() == before {
                break;
            }
        }
        let before = locals.all.len();
        let is_left: Vec<bool> = (0..before).map(|at| !locals.is_gone(at) || gone.contains(&locals.all[at].name)).collect();
        let mut is_left = is_left.into_iter();
        locals.all.retain(|_| is_left.next().unwrap_or(true));
        pass.has_changed |= locals.all.len() != before;
        pass.is_open |= !gone.is_empty();
    }

    fn destroy(&mut self, name: &str) -> bool {
        if self.flags.verbose {
            say!(self.session, "attempting destroy {name}");
        }
        let done = self.destroy_with_snapshots(name);
        if self.flags.verbose {
            say!(self.session, "{}", if done { "success" } else { "failed" });
        }
        done
    }

    fn destroy_with_snapshots(&mut self, name: &str) -> bool {
        if !name.contains('@') {
            let Ok(snapshots) = self.snapshots(name, Some(1)) else { return false };
            let unmount = DatasetUnmount { name: name.to_owned(), at: None, tree: false, force: self.flags.force_unmount, unload_key: false };
            let _ = self.session.perform(Request::DatasetUnmount(unmount));
            // Its snapshots go first.
            for (snapshot, _) in snapshots.into_iter().filter(|(snapshot, _)| snapshot.starts_with(&format!("{name}@"))) {
                self.destroy_one(snapshot);
            }
        }
        self.destroy_one(name.to_owned())
    }

    fn destroy_one(&mut self, name: String) -> bool {
        let (names, force) = (vec![name], self.flags.force_unmount);
        if names[0].contains('@') {
            return self.session.refusals(Request::SnapshotsDestroy(SnapshotsDestroy { names, defer: false })).is_ok_and(|refusals| refusals.is_empty());
        }
        self.session.perform(Request::DatasetDestroy(DatasetDestroy { names, defer: false, force })).is_ok()
    }

    /// Snapshots get the properties that they have at the sender's.
    fn set_properties(&mut self, locals: &Locals<'_>) {
        for local in &locals.all {
            for (snapshot, guid) in &local.snapshots {
                let Some(known) = locals.known.get(guid) else { continue };
                let mut settings = known.described.snapshot_properties(&known.snapshot);
                settings.retain(|setting| setting.name.contains(':'));
                if !settings.is_empty() {
                    let set = DatasetSet { name: format!("{}@{snapshot}", local.name), settings, no_remount: false, received: true };
                    let _ = self.session.perform(Request::DatasetSet(set));
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::session::{Control, History, Session};
    use crate::zfs::change::receive::{Flags, Input};
    use ondisk::nvlist::NvList;
    use ondisk::stream::StreamOrder;
    use tarnfs::control::{DatasetEntry, DatasetKind, Datasets, FailureKind, PropertyValue, Reply, Source};

    /// A file system, here or at the sender's.
    #[derive(Default)]
    struct Fs {
        name: String,
        /// The guid of a snapshot of its parent.
        parent: u64,
        /// The guid of the snapshot that it is a clone of.
        origin: u64,
        snapshots: Vec<(String, u64)>,
    }

    /// `NAME [<PARENT] [^ORIGIN] [SNAPSHOT=GUID]...; NAME ...`
    fn parse(text: &str) -> Vec<Fs> {
        let number = |digits: &str| -> u64 { digits.parse().unwrap() };
        let one = |text: &str| {
            let mut words = text.split_whitespace();
            let mut fs = Fs { name: words.next().unwrap().to_owned(), ..Fs::default() };
            for word in words {
                if let Some(guid) = word.strip_prefix('<') {
                    fs.parent = number(guid);
                } else if let Some(guid) = word.strip_prefix('^') {
                    fs.origin = number(guid);
                } else if let Some((name, guid)) = word.split_once('=') {
                    fs.snapshots.push((name.to_owned(), number(guid)));
                }
            }
            fs
        };
        text.split(';').map(one).collect()
    }

    fn is_from_on(name: &str, root: &str) -> bool {
        name.strip_prefix(root).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    }

    fn refused() -> Reply {
        Reply::Failed(Failure::new(FailureKind::DatasetExists))
    }

    /// A pool that does what it is asked for, as far as that can be done.
    struct Here {
        all: Vec<Fs>,
        /// What cannot be renamed.
        busy: &'static str,
    }

    impl Here {
        fn new(text: &str) -> Here {
            Here { all: parse(text), busy: "" }
        }

        fn shown(&self) -> String {
            let one = |fs: &Fs| {
                let origin = if fs.origin == 0 { String::new() } else { format!(" ^{}", fs.origin) };
                let snapshots: String = fs.snapshots.iter().map(|(name, guid)| format!(" {name}={guid}")).collect();
                format!("{}{origin}{snapshots}", fs.name)
            };
            let mut all: Vec<String> = self.all.iter().map(one).collect();
            all.sort();
            all.join("; ")
        }

        /// `zfs receive -F` of a package that is incremental from the snapshots of that name: before its streams, or after them. Returns what is complained of.
        fn follow(&mut self, from: &str, sent: &str, begins: bool) -> Vec<String> {
            let mut all = NvList::new();
            for (number, fs) in parse(sent).into_iter().enumerate() {
                let (mut list, mut snapshots) = (NvList::new(), NvList::new());
                fs.snapshots.iter().for_each(|(name, guid)| snapshots.set(name.as_str(), *guid));
                list.set("name", fs.name);
                list.set("parentfromsnap", fs.parent);
                list.set("origin", fs.origin);
                list.set("snaps", snapshots);
                all.set(format!("{number:#x}"), list);
            }
            let mut list = NvList::new();
            list.set("fromsnap", from);
            list.set("fss", all);
            let package = Package { list, order: StreamOrder::Little, send_fs: "src".to_owned(), recursive: true, last: String::new(), has_holds: false };
            let (mut out, mut err) = (Vec::<u8>::new(), Vec::<u8>::new());
            let zone = jiff::tz::TimeZone::UTC;
            let mut session = Session { control: self, out: &mut out, err: &mut err, now: 0, zone, history: History::default(), hints: Vec::new() };
            let flags = Flags { force: true, ..Flags::default() };
            let (input, target) = (Input::standard().unwrap(), "tank/d".to_owned());
            let mut run = Run { session: &mut session, flags, input, target, top: None, has_new: false, unmounted: Default::default() };
            let failed = run.replicate(&package, "tank/d", begins).unwrap();
            failed.into_iter().map(|(action, failure)| format!("{action}: {failure}")).collect()
        }

        fn name_of(&self, guid: u64) -> String {
            let own = |fs: &Fs| fs.snapshots.iter().find(|(_, own)| *own == guid).map(|(snapshot, _)| format!("{}@{snapshot}", fs.name));
            self.all.iter().find_map(own).unwrap_or_default()
        }

        fn list(&self, list: &DatasetList) -> Reply {
            let root = list.root.clone().unwrap_or_default();
            let mut entries = Vec::new();
            for fs in self.all.iter().filter(|fs| is_from_on(&fs.name, &root)) {
                if list.kinds.filesystem {
                    let properties = vec![PropertyValue::new("origin", self.name_of(fs.origin), Source::None)];
                    entries.push(DatasetEntry { name: fs.name.clone(), kind: DatasetKind::Filesystem, creation_txg: 1, properties });
                }
                for (snapshot, guid) in fs.snapshots.iter().filter(|_| list.kinds.snapshot) {
                    let properties = vec![PropertyValue::new("guid", *guid, Source::None)];
                    entries.push(DatasetEntry { name: format!("{}@{snapshot}", fs.name), kind: DatasetKind::Snapshot, creation_txg: *guid, properties });
                }
            }
            Reply::Datasets(Datasets { root_kind: Some(DatasetKind::Filesystem), entries })
        }

        fn rename(&mut self, from: &str, to: &str) -> Reply {
            if from == self.busy {
                return Reply::Failed(Failure::with(FailureKind::DatasetBusy, "it is busy"));
            }
            if let (Some((head, old)), Some((_, new))) = (from.split_once('@'), to.split_once('@')) {
                let Some(fs) = self.all.iter_mut().find(|fs| fs.name == head) else { return refused() };
                if fs.snapshots.iter().any(|(name, _)| name.as_str() == new) {
                    return refused();
                }
                for (name, _) in fs.snapshots.iter_mut().filter(|(name, _)| name.as_str() == old) {
                    *name = new.to_owned();
                }
                return Reply::Done;
            }
            let has = |name: &str| self.all.iter().any(|fs| fs.name == name);
            let has_parent = to.rsplit_once('/').is_some_and(|(parent, _)| has(parent));
            if is_from_on(to, from) || has(to) || !has_parent {
                return refused();
            }
            for fs in self.all.iter_mut().filter(|fs| is_from_on(&fs.name, from)) {
                fs.name = format!("{to}{}", &fs.name[from.len()..]);
            }
            Reply::Done
        }

        fn promote(&mut self, name: &str) -> Reply {
            let place = |guid: u64, fs: &Fs| fs.snapshots.iter().position(|(_, own)| *own == guid);
            let Some(clone) = self.all.iter().position(|fs| fs.name == name) else { return refused() };
            let origin = self.all[clone].origin;
            let Some(owner) = self.all.iter().position(|fs| place(origin, fs).is_some()) else { return refused() };
            let last = place(origin, &self.all[owner]).unwrap();
            let mut snapshots: Vec<(String, u64)> = self.all[owner].snapshots.drain(..=last).collect();
            snapshots.append(&mut self.all[clone].snapshots);
            let above = std::mem::replace(&mut self.all[owner].origin, origin);
            (self.all[clone].origin, self.all[clone].snapshots) = (above, snapshots);
            Reply::Done
        }

        fn destroy(&mut self, name: &str) -> Reply {
            if self.all.iter().any(|fs| is_from_on(&fs.name, name) && (fs.name != name || !fs.snapshots.is_empty())) {
                return refused();
            }
            self.all.retain(|fs| fs.name != name);
            Reply::Done
        }

        fn destroy_snapshot(&mut self, name: &str) -> Reply {
            let found = self.all.iter().flat_map(|fs| fs.snapshots.iter().map(|(_, guid)| *guid)).find(|guid| self.name_of(*guid) == name);
            let Some(guid) = found.filter(|guid| self.all.iter().all(|fs| fs.origin != *guid)) else { return refused() };
            self.all.iter_mut().for_each(|fs| fs.snapshots.retain(|(_, own)| *own != guid));
            Reply::Refused(Vec::new())
        }
    }

    impl Control for Here {
        fn call(&mut self, request: Request) -> Reply {
            match request {
                Request::DatasetList(list) => self.list(&list),
                Request::DatasetRename(rename) => self.rename(&rename.from, &rename.to),
                Request::DatasetPromote(promote) => self.promote(&promote.name),
                Request::DatasetDestroy(destroy) => self.destroy(&destroy.names[0]),
                Request::SnapshotsDestroy(destroy) => self.destroy_snapshot(&destroy.names[0]),
                _ => Reply::Done,
            }
        }
    }

    /// What is here, what the sender has by now, and what is here then.
    #[track_caller]
    fn check(here: &str, from: &str, sent: &str, then: &str) {
        let mut here = Here::new(here);
        assert_eq!((here.follow(from, sent, true), here.shown().as_str()), (Vec::new(), then));
    }

    /// The sender has promoted a clone, destroyed its origin, and given the clone that name. Without the promotion nothing could be received any more.
    #[test]
    fn a_promoted_clone_takes_the_place_of_its_origin() {
        let here = "tank/d s1=1 s2=2; tank/d/a s1=11 s2=12; tank/d/b ^11 s2=22";
        let sent = "src s1=1 s2=2 s3=3; src/a <2 s1=11 s2=22 s3=23";
        check(here, "s2", sent, "tank/d s1=1 s2=2; tank/d/a s1=11 s2=22");
        // Both are still there.
        let sent = "src s1=1 s2=2 s3=3; src/a <2 ^11 s2=12 s3=13; src/b <2 s1=11 s2=22 s3=23";
        check(here, "s2", sent, "tank/d s1=1 s2=2; tank/d/a ^11 s2=12; tank/d/b s1=11 s2=22");
        // The snapshot that it was a clone of is destroyed, too.
        check(here, "s2", "src s1=1 s2=2 s3=3; src/a <2 s2=22 s3=23", "tank/d s1=1 s2=2; tank/d/a s2=22");
        // Of a clone of a clone: all that is between.
        let here = "tank/d s=1; tank/d/a o=11 s=12; tank/d/b ^11 p=21 s=22; tank/d/c ^21 s=32";
        let sent = "src s=1; src/a <1 ^11 s=12; src/b <1 ^21 s=22; src/c <1 o=11 p=21 s=32";
        check(here, "s", sent, "tank/d s=1; tank/d/a ^11 s=12; tank/d/b ^21 s=22; tank/d/c o=11 p=21 s=32");
    }

    /// A clone that is one at the sender's, too, is left alone; and so is what has its origin somewhere else.
    #[test]
    fn what_is_a_clone_there_stays_one() {
        let here = "tank/d s=1; tank/d/a o=11 s=12; tank/d/b ^11 s=22";
        check(here, "s", "src s=1; src/a <1 o=11 s=12; src/b <1 ^11 s=22", here);
        let here = "tank/d s=1; tank/d/b ^11 s=22; tank/x o=11";
        check(here, "s", "src s=1; src/b <1 s=22", here);
    }

    #[test]
    fn names_and_parents_follow() {
        // Exchanged, in a circle, and one in the other.
        check("tank/d s=1; tank/d/x s=11; tank/d/y s=21", "s", "src s=1; src/x <1 s=21; src/y <1 s=11", "tank/d s=1; tank/d/x s=21; tank/d/y s=11");
        let here = "tank/d s=1; tank/d/x s=11; tank/d/y s=21; tank/d/z s=31";
        check(here, "s", "src s=1; src/x <1 s=31; src/y <1 s=11; src/z <1 s=21", "tank/d s=1; tank/d/x s=31; tank/d/y s=11; tank/d/z s=21");
        check(here, "s", "src s=1; src/y <1 s=11; src/z <1 s=21; src/t <1 s=31", "tank/d s=1; tank/d/t s=31; tank/d/y s=11; tank/d/z s=21");
        check("tank/d s=1; tank/d/x s=11; tank/d/x/y s=21", "s", "src s=1; src/x <1 s=21; src/x/y <21 s=11", "tank/d s=1; tank/d/x s=21; tank/d/x/y s=11");
        // To another parent, under the same name; out of one that goes.
        let here = "tank/d s=1; tank/d/p s=11; tank/d/x s=21; tank/d/x/k s=31";
        check(here, "s", "src s=1; src/p <1 s=11; src/p/x <11 s=21; src/p/x/k <21 s=31", "tank/d s=1; tank/d/p s=11; tank/d/p/x s=21; tank/d/p/x/k s=31");
        check("tank/d s=1; tank/d/p s=11; tank/d/p/x s=21", "s", "src s=1; src/x <1 s=21", "tank/d s=1; tank/d/x s=21");
        // Snapshots.
        check("tank/d a=1 b=2 s=3", "s", "src b=1 a=2 s=3", "tank/d b=1 a=2 s=3");
    }

    /// A parent comes with the streams, and so does another dataset under the old name: that is free, and the rest is done afterwards.
    #[test]
    fn what_waits_for_its_parent_is_out_of_the_way() {
        let mut here = Here::new("tank/d s=1; tank/d/z s=31");
        let sent = "src s=1 t=2; src/n <1 t=42; src/n/z <42 s=31 t=32; src/z <1 t=52";
        assert_eq!(here.follow("s", sent, true), Vec::<String>::new());
        let aside = format!("tank/d/recv-{}-1", std::process::id());
        assert_eq!(here.shown(), format!("tank/d s=1; {aside} s=31"));
        here.all = parse(&format!("tank/d s=1 t=2; tank/d/n t=42; tank/d/z t=52; {aside} s=31 t=32"));
        assert_eq!(here.follow("s", sent, false), Vec::<String>::new());
        assert_eq!(here.shown(), "tank/d s=1 t=2; tank/d/n t=42; tank/d/n/z s=31 t=32; tank/d/z t=52");
        // One that is in nothing's way stays where it is meanwhile.
        check("tank/d s=1; tank/d/z s=31", "s", "src s=1 t=2; src/n <1 t=42; src/n/z <42 s=31 t=32", "tank/d s=1; tank/d/z s=31");
    }

    #[test]
    fn what_cannot_be_renamed_is_said() {
        let mut here = Here { busy: "tank/d/x", ..Here::new("tank/d s=1; tank/d/x s=11") };
        assert_eq!(here.follow("s", "src s=1; src/y <1 s=11", false), ["cannot rename 'tank/d/x' to 'tank/d/y': it is busy"]);
        // The sender has one snapshot of what is in the way, but not the one that would say where it belongs.
        let mut here = Here::new("tank/d s=1; tank/d/x s=11; tank/d/y r=21");
        let words = "cannot rename 'tank/d/x' to 'tank/d/y': another dataset has that name; rename or destroy that one, and receive again";
        assert_eq!(here.follow("s", "src s=1; src/y <1 s=11; src/z <1 r=21 s=22", false), [words]);
        assert_eq!(here.shown(), "tank/d s=1; tank/d/x s=11; tank/d/y r=21");
    }
}
