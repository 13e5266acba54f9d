//! Somebody who asks: a thread with user, group and further groups of its own, as Linux has them for each thread.

use std::sync::mpsc::{Sender, channel};
use std::thread::JoinHandle;

use rustix::process::{Gid, Uid};
use rustix::thread::{set_thread_groups, set_thread_res_gid, set_thread_res_uid};

use crate::rig::LIMIT;

type Work = Box<dyn FnOnce() + Send>;

pub(super) const OWNER: u32 = 54_321;
pub(super) const MEMBER: u32 = 54_322;
pub(super) const STRANGER: u32 = 54_323;
/// The group of all files; the owner has it as the first group, the member as one of several.
pub(super) const GROUP: u32 = OWNER;

pub(super) struct Somebody {
    pub(super) name: &'static str,
    asks: Option<Sender<Work>>,
    thread: Option<JoinHandle<()>>,
}

/// The superuser, the owner of half of the files, a member of the files' group, and a stranger.
pub(super) fn everybody() -> Vec<Somebody> {
    let member: &'static [u32] = &[STRANGER + 1, GROUP];
    [("root", 0, &[] as &[u32]), ("owner", OWNER, &[]), ("member", MEMBER, member), ("stranger", STRANGER, &[])]
        .map(|(name, id, groups)| Somebody::new(name, id, groups))
        .into()
}

impl Somebody {
    fn new(name: &'static str, id: u32, groups: &'static [u32]) -> Somebody {
        let (asks, asked) = channel::<Work>();
        let thread = std::thread::spawn(move || {
            let groups: Vec<Gid> = groups.iter().map(|group| Gid::from_raw(*group)).collect();
            let (uid, gid) = (Uid::from_raw(id), Gid::from_raw(id));
            set_thread_groups(&groups).unwrap();
            set_thread_res_gid(gid, gid, gid).unwrap();
            set_thread_res_uid(uid, uid, uid).unwrap();
            asked.into_iter().for_each(|work| work());
        });
        Somebody { name, asks: Some(asks), thread: Some(thread) }
    }

    /// Has them do something; what they start has their rights, too.
    pub(super) fn act<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> T {
        let (answers, answer) = channel();
        let work = Box::new(move || drop(answers.send(work())));
        self.asks.as_ref().expect("they are there").send(work).unwrap();
        answer.recv_timeout(LIMIT).unwrap_or_else(|error| panic!("{}: no answer: {error}", self.name))
    }
}

impl Drop for Somebody {
    fn drop(&mut self) {
        self.asks.take();
        if let Some(thread) = self.thread.take().filter(|_| !std::thread::panicking()) {
            thread.join().unwrap();
        }
    }
}
