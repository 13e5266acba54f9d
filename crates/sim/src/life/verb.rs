//! What somebody does with datasets.

/// A change of one file of a file system. All files are in its root.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs)] // the names of the fields say it
pub enum Change {
    /// Makes the file, if there is none.
    Write { file: String, offset: usize, length: usize, seed: u64 },
    Truncate { file: String, size: usize },
    Punch { file: String, offset: usize, length: usize },
    Remove { file: String },
    Rename { from: String, to: String },
    Chmod { file: String, mode: u32 },
    SetXattr { file: String, length: usize, seed: u64 },
}

/// Whether a stream comes whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cut {
    /// It does.
    Whole,
    /// It breaks off after so many thousandths, and that is all.
    Lost(u32),
    /// It breaks off after so many thousandths, and is resumed.
    Resumed(u32),
}

/// A stream that is sent and received in the same pool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Receive {
    /// The snapshot that is sent.
    pub snapshot: String,
    /// The snapshot or bookmark that it is incremental from.
    pub from: Option<String>,
    /// The snapshot that it becomes.
    pub to: String,
    /// Newer snapshots and changes are given up.
    pub force: bool,
    /// The snapshot that a new file system is a clone of.
    pub origin: Option<String>,
    /// What becomes of it.
    pub cut: Cut,
    /// Options of sending: `-L`, `-e`, `-c`, a bit each.
    pub flags: u8,
}

/// One thing that is done. All names are full ones, but where the field says otherwise.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs)] // the names of the fields say it
pub enum Verb {
    /// Changes of one file system, in one group; `sync`: on disk when it returns.
    Write { dataset: String, changes: Vec<Change>, sync: bool },
    Create { dataset: String },
    /// All at the same moment.
    Snapshot { names: Vec<String> },
    Clone { snapshot: String, to: String },
    Promote { dataset: String },
    /// `to`: the short name of a snapshot.
    RollBack { dataset: String, to: Option<String> },
    /// To the newest snapshot, with changes on top (files are written, and nothing else), and a snapshot of that (its short name): all of it, or nothing.
    RollBackAndWrite { dataset: String, changes: Vec<Change>, snapshot: Option<String> },
    Rename { from: String, to: String },
    /// Short names of a snapshot; `recursive`: of everything below, too.
    RenameSnapshot { dataset: String, from: String, to: String, recursive: bool },
    Destroy { dataset: String },
    DestroySnapshots { names: Vec<String>, defer: bool },
    Hold { names: Vec<String>, tag: String },
    Release { names: Vec<String>, tag: String },
    /// Of a snapshot or a bookmark.
    Bookmark { name: String, source: String },
    DestroyBookmarks { names: Vec<String> },
    Receive(Receive),
}

impl Verb {
    /// Whether it is on disk when it returns, with all before it.
    pub fn is_durable(&self) -> bool {
        !matches!(self, Verb::Write { sync: false, .. })
    }

    /// The verb's name.
    pub fn name(&self) -> &'static str {
        match self {
            Verb::Write { .. } => "write",
            Verb::Create { .. } => "create",
            Verb::Snapshot { .. } => "snapshot",
            Verb::Clone { .. } => "clone",
            Verb::Promote { .. } => "promote",
            Verb::RollBack { .. } => "roll back",
            Verb::RollBackAndWrite { .. } => "roll back and write",
            Verb::Rename { .. } => "rename",
            Verb::RenameSnapshot { .. } => "rename snapshots",
            Verb::Destroy { .. } => "destroy",
            Verb::DestroySnapshots { defer: false, .. } => "destroy snapshots",
            Verb::DestroySnapshots { defer: true, .. } => "destroy snapshots later",
            Verb::Hold { .. } => "hold",
            Verb::Release { .. } => "release",
            Verb::Bookmark { .. } => "bookmark",
            Verb::DestroyBookmarks { .. } => "destroy bookmarks",
            Verb::Receive(Receive { from: None, .. }) => "receive",
            Verb::Receive(Receive { origin: Some(_), .. }) => "receive a clone",
            Verb::Receive(_) => "receive more",
        }
    }
}
