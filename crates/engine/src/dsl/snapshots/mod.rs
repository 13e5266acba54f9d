//! Snapshots, and what refers to them.

pub(in crate::dsl) mod bookmark_moves_sync;
pub(in crate::dsl) mod bookmarks_sync;
pub(in crate::dsl) mod changed;
pub(in crate::dsl) mod destroy_sync;
pub(in crate::dsl) mod rollback_sync;
pub(in crate::dsl) mod rolling_back;
pub(in crate::dsl) mod holds_sync;
pub(in crate::dsl) mod bookmark_verbs_sync;
pub(in crate::dsl) mod redaction_sync;
pub(in crate::dsl) mod snapshot_sync;
pub(in crate::dsl) mod verbs;
