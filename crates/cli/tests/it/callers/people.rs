//! Somebody who asks: a thread with user, group and further groups of its own, as Linux has them for each thread.

use std::sync::mpsc::{Sender, channel};
use std::thread::JoinHandle;

use rustix::process::{Gid, Uid};
use rustix::thread::{
    CapabilitiesSecureBits, CapabilitySet, CapabilitySets, configure_capability_in_ambient_set, set_capabilities,
    set_capabilities_secure_bits, set_thread_groups, set_thread_res_gid, set_thread_res_uid,
};

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

/// A caller's user and capabilities; `None`: those of the user.
type Person = (&'static str, u32, &'static [u32], Option<CapabilitySet>);

const MEMBERSHIPS: &[u32] = &[STRANGER + 1, GROUP];
const EVERYBODY: &[Person] = &[
    ("root", 0, &[], None),
    ("owner", OWNER, &[], None),
    ("member", MEMBER, MEMBERSHIPS, None),
    ("stranger", STRANGER, &[], None),
];

/// Those who may some of what the superuser may, and a superuser who may nothing of it.
const CAPABLE: &[Person] = &[
    ("root without capabilities", 0, &[], Some(CapabilitySet::empty())),
    ("owner who may keep set-id bits", OWNER, &[], Some(CapabilitySet::FSETID)),
    ("member who may keep set-id bits", MEMBER, MEMBERSHIPS, Some(CapabilitySet::FSETID)),
    ("stranger who may override modes", STRANGER, &[], Some(CapabilitySet::DAC_OVERRIDE)),
    ("stranger who may keep set-id bits in spite of modes", STRANGER, &[], Some(CapabilitySet::DAC_OVERRIDE.union(CapabilitySet::FSETID))),
    ("stranger who counts as an owner", STRANGER, &[], Some(CapabilitySet::FOWNER)),
    ("stranger who may give files away", STRANGER, &[], Some(CapabilitySet::CHOWN)),
    ("owner who may mark", OWNER, &[], Some(CapabilitySet::LINUX_IMMUTABLE)),
    ("stranger who administers", STRANGER, &[], Some(CapabilitySet::SYS_ADMIN)),
    ("stranger who may give programs capabilities", STRANGER, &[], Some(CapabilitySet::SETFCAP)),
];

/// The superuser, the owner of half of the files, a member of the files' group, and a stranger.
pub(super) fn everybody() -> Vec<Somebody> {
    EVERYBODY.iter().map(Somebody::new).collect()
}

/// Callers who have other capabilities than their user has.
pub(super) fn capable() -> Vec<Somebody> {
    CAPABLE.iter().map(Somebody::new).collect()
}

/// The calling thread has these from now on, and so has what it starts.
fn have(capabilities: CapabilitySet) {
    // A superuser without them must not have them back at the next `exec`.
    set_capabilities_secure_bits(CapabilitiesSecureBits::NO_ROOT | CapabilitiesSecureBits::NO_SETUID_FIXUP).unwrap();
    let sets = |all| CapabilitySets { effective: all, permitted: all, inheritable: capabilities };
    set_capabilities(None, sets(capabilities)).unwrap();
    for capability in capabilities.iter() {
        configure_capability_in_ambient_set(capability, true).unwrap();
    }
}

impl Somebody {
    fn new((name, id, groups, capabilities): &'static Person) -> Somebody {
        let (asks, asked) = channel::<Work>();
        let thread = std::thread::spawn(move || {
            let groups: Vec<Gid> = groups.iter().map(|group| Gid::from_raw(*group)).collect();
            let (uid, gid) = (Uid::from_raw(*id), Gid::from_raw(*id));
            set_thread_groups(&groups).unwrap();
            set_thread_res_gid(gid, gid, gid).unwrap();
            if capabilities.is_some() {
                set_capabilities_secure_bits(CapabilitiesSecureBits::NO_SETUID_FIXUP).unwrap();
            }
            set_thread_res_uid(uid, uid, uid).unwrap();
            capabilities.map(have);
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
