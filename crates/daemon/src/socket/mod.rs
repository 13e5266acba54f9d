//! How commands reach the daemon.

pub(crate) mod caller_rights;
pub(crate) mod client;
pub(crate) mod control_socket;
mod crowd;
pub(crate) mod passing;
pub(crate) mod paths;
pub(crate) mod streaming;
pub(crate) mod trust;
