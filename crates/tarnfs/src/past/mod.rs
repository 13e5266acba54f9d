//! What a pool was before: in snapshots, and in groups whose uberblocks are still there.
//!
//! # Theory
//! A snapshot keeps all that a dataset was. Beside that, every uberblock in the rings of the labels leads to a whole pool as it was at the
//! end of one group, some minutes ago or less. Nobody keeps those: space that was freed since then is used again after two groups. But
//! every block has a checksum in the pointer to it, so whatever was written over is found out, and is *gone*; all else is as it was.
//!
//! So a pool can be looked at in the past while somebody else has it imported and writes it: devices are opened without a claim, nothing
//! is ever written, and what is read is either right or said to be gone.
//!
//! Two states of one file system are compared by the births of their blocks ([`engine::dsl::changed_objects`]), so only what was changed
//! between them is read.
//!
//! # Path
//! `cli` (`tarn fs history`, `undelete`, `at`, `diff`; `zfs diff`) → [`Past`], [`differences`] → `FileSystem`

mod deleted;
mod differences;
mod history;
mod states;

pub use deleted::{Deleted, deleted};
pub use differences::{Change, Difference, differences, is_earlier};
pub use history::{History, Holder, Version, history};
pub use states::{Moment, Past, PastPool, SnapshotMoment, State};
