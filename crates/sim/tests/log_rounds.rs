//! A commit of several rounds, while a transaction group that has the first of them wants to be written.
#![allow(clippy::disallowed_methods)] // real threads are what is tested

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use engine::dmu::{DmuContext, Membership, OpenTx};
use engine::error::Result;
use engine::zil::{LogSource, WantedWrite, Zil};
use sim::scenario::{Layout, Rig};

const MIB: u64 = 1 << 20;
/// No file has this number.
const OBJECT: u64 = 1_000_000;

/// The bytes of the second round are to be had when the group that is open now is on disk: somebody writes just there, and waits for room.
struct Busy {
    context: Arc<DmuContext>,
    asked: AtomicBool,
    in_vain: AtomicBool,
}

impl LogSource for Busy {
    fn fetch(&self, write: &WantedWrite, out: &mut Vec<u8>) -> Result<()> {
        if write.offset >= 12 * MIB && !self.asked.swap(true, Ordering::SeqCst) {
            let ((tell, told), context) = (channel(), self.context.clone());
            thread::spawn(move || {
                let _ = tell.send(context.groups.wait_synced(context.groups.open_txg()));
            });
            self.in_vain.store(told.recv_timeout(Duration::from_secs(30)).is_err(), Ordering::SeqCst);
        }
        out.resize(out.len() + write.length, 7);
        Ok(())
    }
}

/// Found by reading: the group waited for the whole commit, the commit for the range that a writer had locked, and the writer for room, which
/// there is when the group is on disk.
#[test]
fn a_group_does_not_wait_for_what_a_commit_has_yet_to_fetch() {
    let mut rig = Rig::create(Layout::default(), &[]);
    let filesystem = rig.pool().file_system("tank").unwrap();
    let (objset, zil) = (filesystem.objset().clone(), Zil::of(filesystem.objset()));
    let source = Busy { context: objset.context().clone(), asked: AtomicBool::new(false), in_vain: AtomicBool::new(false) };
    let log = |offset: u64, length: u64| {
        let member = Membership::single(objset.clone());
        let tx = OpenTx::assign(&member, 0).unwrap();
        zil.log_write(&tx, Some(OBJECT), OBJECT, 1, offset, length);
    };
    // So that there is a chain.
    log(0, 1000);
    zil.commit(Some(OBJECT), &source).unwrap();
    log(0, 6 * MIB);
    log(12 * MIB, 6 * MIB);
    zil.commit(Some(OBJECT), &source).unwrap();
    assert!(source.asked.load(Ordering::SeqCst), "it was one round");
    assert!(!source.in_vain.load(Ordering::SeqCst), "the group was not written while the commit went on");
    drop((objset, zil, source, filesystem));
    rig.judge("a log of several rounds");
}
