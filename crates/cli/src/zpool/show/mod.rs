//! The verbs of `zpool` that only show.

pub(super) mod events;
pub(super) mod get;
pub(super) mod history;
pub(super) mod iostat;
pub(super) mod iostat_requests;
pub(super) mod list;
pub(super) mod reason;
pub(super) mod removal;
pub(super) mod scan;
pub(super) mod status;
pub(super) mod status_json;
