//! Names and parents of what is here become those that the sender has.
//!
//! # Theory
//! A name that another one still has is not free. Mostly that one moves on, and a later pass finds the name free. Where no pass brings anything about any
//! more, one that is in the way gets a name for the time between; where it belongs is known by its snapshots, also to the next run.

use std::collections::BTreeMap;

use tarnfs::control::{DatasetRename, Failure, FailureKind, Request};

use super::Run;
use super::local::{Local, Locals, Place};
use super::package::Known;
use super::replicate::Pass;
use crate::session::{complain, say};

impl Run<'_, '_> {
    /// The snapshots of a dataset get the names that they have at the sender's.
    pub(super) fn rename_snapshots(&mut self, local: &mut Local, known: &BTreeMap<u64, Known<'_>>, makes_room: bool, pass: &mut Pass) {
        for at in 0..local.snapshots.len() {
            let (ours, guid) = local.snapshots[at].clone();
            let theirs = known.get(&guid).map(|known| known.snapshot.clone());
            let Some(theirs) = theirs.filter(|theirs| *theirs != ours) else { continue };
            if let Some(other) = local.snapshots.iter().position(|(name, _)| *name == theirs) {
                pass.is_open = true;
                // One that the sender does not have stays, without `-F`, as it is.
                let may_go = known.get(&local.snapshots[other].1).map_or(self.flags.force, |known| known.snapshot != theirs);
                let aside = local.snapshot_aside();
                if !makes_room || !may_go || !self.rename_snapshot(local, other, aside, pass) {
                    continue;
                }
            }
            self.rename_snapshot(local, at, theirs, pass);
        }
    }

    fn rename_snapshot(&mut self, local: &mut Local, at: usize, to: String, pass: &mut Pass) -> bool {
        let head = &local.name;
        let is_done = self.rename(&format!("{head}@{}", local.snapshots[at].0), &format!("{head}@{to}"), pass);
        if is_done {
            local.snapshots[at].0 = to;
        }
        is_done
    }

    /// Each dataset goes where the sender has it, as far as its place is there and free.
    pub(super) fn move_all(&mut self, locals: &mut Locals<'_>, makes_room: bool, pass: &mut Pass) {
        for at in 0..locals.all.len() {
            match locals.place(at) {
                Place::Named(to) => self.move_to(locals, at, &to, makes_room, pass),
                Place::Here if !self.is_left(locals, at) => {}
                // It could not be destroyed, or its parent is not here yet. Another dataset may come under its name.
                Place::Here | Place::Later if locals.is_promised(&locals.all[at].name) => {
                    pass.is_open = true;
                    if makes_room {
                        self.set_aside(locals, at, pass);
                    }
                }
                Place::Here | Place::Later => {}
            }
        }
    }

    /// It was to be destroyed, and is still there.
    fn is_left(&self, locals: &Locals<'_>, at: usize) -> bool {
        self.flags.force && locals.is_gone(at)
    }

    fn move_to(&mut self, locals: &mut Locals<'_>, at: usize, to: &str, makes_room: bool, pass: &mut Pass) {
        // Its place is below itself: what is above that place goes up first.
        if to.strip_prefix(locals.all[at].name.as_str()).is_some_and(|rest| rest.starts_with('/')) {
            pass.is_open = true;
            return;
        }
        if let Some(other) = locals.find(to) {
            let stays = locals.place(other) == Place::Here && !self.is_left(locals, other);
            if stays && locals.are_copies(at, other) {
                return;
            }
            pass.is_open = true;
            if !makes_room {
                return;
            }
            if stays {
                let words = "another dataset has that name; rename or destroy that one, and receive again";
                let failure = Failure::with(FailureKind::DatasetExists, words);
                pass.failed.push((format!("cannot rename '{}' to '{to}'", locals.all[at].name), failure));
                return;
            }
            if !self.set_aside(locals, other, pass) {
                return;
            }
        }
        self.move_one(locals, at, to, pass);
    }

    fn set_aside(&mut self, locals: &mut Locals<'_>, at: usize, pass: &mut Pass) -> bool {
        let Some(to) = locals.aside(at) else { return false };
        let name = locals.all[at].name.clone();
        if let Err(failure) = self.unmount_moving(&name) {
            return pass.note(format!("cannot rename '{name}' to '{to}'"), Err(failure));
        }
        self.move_one(locals, at, &to, pass)
    }

    fn move_one(&mut self, locals: &mut Locals<'_>, at: usize, to: &str, pass: &mut Pass) -> bool {
        // Not before: what it was below may have been set aside.
        let from = locals.all[at].name.clone();
        let is_done = self.rename(&from, to, pass);
        if is_done {
            locals.renamed(&from, to);
        }
        is_done
    }

    fn rename(&mut self, from: &str, to: &str, pass: &mut Pass) -> bool {
        if self.flags.verbose {
            say!(self.session, "attempting rename {from} to {to}");
        }
        let force = self.flags.force_unmount;
        let rename = DatasetRename { from: from.to_owned(), to: to.to_owned(), parents: false, recursive: false, no_remount: false, force };
        let renamed = match self.session.perform(Request::DatasetRename(rename)) {
            // It has its new name; why it is not mounted is said, and the mounts come at the end.
            Err(failure) if failure.kind == FailureKind::MountFailed => {
                complain!(self.session, "{failure}");
                Ok(())
            }
            renamed => renamed,
        };
        if self.flags.verbose {
            say!(self.session, "{}", if renamed.is_ok() { "success" } else { "failed" });
        }
        pass.note(format!("cannot rename '{from}' to '{to}'"), renamed)
    }
}
