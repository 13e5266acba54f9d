//! What is asked and what is answered, as data.

pub(super) mod branch;
pub(super) mod failure;
pub(super) mod maintenance;
pub(super) mod property;
pub(super) mod reply;
pub(super) mod request;
pub(super) mod rights;
pub(super) mod snapshots;
pub(super) mod status;
pub(super) mod stream;
pub(super) mod transaction;
