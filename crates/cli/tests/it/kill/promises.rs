//! What is promised to outlive a kill.
//!
//! # Theory
//! `fsync` and `O_DSYNC`: the last operation that changed that inode is there, and so is what was done, by whichever thread, to
//! names before it began. `zpool sync`: everything done before it began is there.
//! All else is there as a prefix: of everything where groups alone are written ([`Order::Groups`]); of the operations on
//! names, and of those on each file's attributes, where an intent log is replayed onto the last group ([`Order::Log`]).

use std::collections::BTreeMap;

use super::journal::{Event, Op};
use super::names::Names;

/// In which order things become durable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Order {
    /// All that was done before something that is there is there too.
    #[allow(dead_code)] // as it was without an intent log
    Groups,
    /// Names are in order; attributes of files, and contents, only for each file.
    Log,
}

/// What this program does.
pub(super) const ORDER: Order = Order::Log;

/// What a thread's acknowledged syncs promise.
#[derive(Debug, Default)]
pub(super) struct Durable {
    /// The last operation that changed something synced began here.
    pub(super) begun: usize,
    /// So many of its operations on names are there.
    pub(super) names: usize,
    /// Attributes of a file that were changed before this line are there.
    pub(super) files: BTreeMap<u64, usize>,
}

/// The thread's own directory among the files.
const DIRECTORY: u64 = u64::MAX;

/// The inodes that an operation changes.
fn changed_by(op: &Op, names: &Names) -> Vec<u64> {
    let directory = |name: &String| (!name.contains('/')).then_some(DIRECTORY);
    let found = match op {
        Op::Create { name, file } => vec![Some(*file), directory(name)],
        Op::Link { old, new } => vec![names.file(old), directory(new)],
        Op::Rename { old, new } | Op::Exchange { one: old, other: new } => {
            vec![names.file(old), names.file(new), directory(old), directory(new)]
        }
        Op::Remove { name } => vec![names.file(name), directory(name)],
        Op::Symlink { name, .. } | Op::MakeDirectory { name } | Op::RemoveDirectory { name } => vec![directory(name)],
        Op::Mode { name, .. } | Op::Owner { name, .. } | Op::Attribute { name, .. } => vec![names.file(name)],
        Op::Write { file, .. } | Op::WriteThrough { file, .. } | Op::Truncate { file, .. } | Op::Punch { file, .. } => vec![Some(*file)],
        Op::Sync { .. } | Op::SyncDirectory | Op::SyncPool => Vec::new(),
    };
    found.into_iter().flatten().collect()
}

/// What the acknowledged syncs of one thread promise; `pool`: the beginning of the last acknowledged sync of the pool.
pub(super) fn durable(events: &[Event], pool: usize) -> Durable {
    let mut durable = Durable { begun: pool, ..Durable::default() };
    let mut names = Names::default();
    // When an inode changed last, and how many operations on names there were then.
    let mut changed: BTreeMap<u64, (usize, usize)> = BTreeMap::new();
    let mut count = 0;
    for event in events.iter().filter(|event| event.done.is_some()) {
        let inodes = changed_by(&event.op, &names);
        let is_ordered = ORDER == Order::Groups || !event.op.is_of_attributes();
        if event.op.is_of_names() {
            names.apply(event);
            count += usize::from(is_ordered);
            if event.done.is_some_and(|done| done < pool) {
                durable.names = count;
            }
        }
        for inode in inodes.into_iter().filter(|_| is_ordered) {
            changed.insert(inode, (event.begun, count));
        }
        let synced = match &event.op {
            Op::Sync { file } => {
                durable.files.insert(*file, event.begun);
                changed.get(file)
            }
            Op::WriteThrough { file, .. } => changed.get(file),
            Op::SyncDirectory => changed.get(&DIRECTORY),
            _ => None,
        };
        if let Some((begun, count)) = synced {
            durable.begun = durable.begun.max(*begun);
            durable.names = durable.names.max(*count);
        }
    }
    for (_, file) in names.files() {
        let since = durable.files.entry(file).or_default();
        *since = (*since).max(pool);
    }
    durable
}

/// The beginning of the last acknowledged sync of the whole pool.
pub(super) fn pool_synced(threads: &[Vec<Event>]) -> usize {
    let syncs = threads.iter().flatten().filter(|event| event.op == Op::SyncPool && event.done.is_some());
    syncs.map(|event| event.begun).max().unwrap_or(0)
}

/// A promise that the judge must know.
pub(super) fn canary() {
    let event = |op, at| Event { op, begun: at, done: Some(at + 1), inode: 5 };
    let events = [
        event(Op::Create { name: "a".into(), file: 7 }, 0),
        event(Op::Create { name: "b".into(), file: 8 }, 2),
        event(Op::Sync { file: 7 }, 4),
        event(Op::Mode { name: "b".into(), mode: 0o640 }, 6),
    ];
    let found = durable(&events, 0);
    assert_eq!((found.begun, found.names, found.files[&7], found.files[&8]), (0, 1, 4, 0));
    let found = durable(&events, 9);
    assert_eq!((found.begun, found.names, found.files[&7], found.files[&8]), (9, 2, 9, 9));
    assert_eq!(pool_synced(&[vec![event(Op::SyncPool, 3), Event { done: None, ..event(Op::SyncPool, 8) }]]), 3);
}
