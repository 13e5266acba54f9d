//! With whose rights a request is carried out.
//!
//! # Theory
//! Only root and the daemon's own user are listened to. Root may be less than the daemon: in a container, say, without the capability to pass over the modes of
//! files. Such a caller must not get at a file through the daemon that is closed to itself: as a device of a pool it would be overwritten. So the thread of a
//! connection has these capabilities, while it carries out a request, only if its caller has them, and the kernel decides where a device is opened.
//! A thread that is begun meanwhile (a pool's, at its import) stays without them: what it opens again, it can.
//!
//! As for a request of the kernel (`ops/caller.rs`), a process that cannot be seen from here has what its user has, and one of another user namespace has nothing.
//!
//! # Path
//! [`crate::ControlSocket`] → here

use std::fs;
use std::io;
use std::os::unix::net::UnixStream;

use rustix::process::Pid;
use rustix::thread::{CapabilitySet, CapabilitySets, capabilities, set_capabilities};

/// What passes over the modes of files.
const PASSING_MODES: CapabilitySet = CapabilitySet::DAC_OVERRIDE.union(CapabilitySet::DAC_READ_SEARCH);

/// What of [`PASSING_MODES`] a caller has.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CallerRights(CapabilitySet);

/// Gives a thread its capabilities back.
struct GivenBack(CapabilitySets);

impl Drop for GivenBack {
    fn drop(&mut self) {
        if let Err(error) = set_capabilities(None, self.0) {
            tracing::warn!(%error, "a connection is left without rights of the daemon");
        }
    }
}

impl CallerRights {
    /// Those of the process that connected.
    pub(crate) fn of(stream: &UnixStream) -> io::Result<CallerRights> {
        let Some(pid) = Pid::from_raw(fuse::peer(stream)?.pid) else { return Ok(CallerRights(PASSING_MODES)) };
        let namespace = |process: &str| fs::read_link(format!("/proc/{process}/ns/user"));
        let is_of_ours = matches!((namespace("self"), namespace(&pid.as_raw_nonzero().to_string())), (Ok(ours), Ok(theirs)) if ours == theirs);
        let has = if is_of_ours { capabilities(Some(pid))?.effective } else { CapabilitySet::empty() };
        Ok(CallerRights(has & PASSING_MODES))
    }

    /// Does `work` with no more of these rights than the caller has.
    pub(crate) fn during<T>(self, work: impl FnOnce() -> T) -> io::Result<T> {
        let own = capabilities(None)?;
        let effective = own.effective - (PASSING_MODES - self.0);
        if effective == own.effective {
            return Ok(work());
        }
        set_capabilities(None, CapabilitySets { effective, ..own })?;
        let _given_back = GivenBack(own);
        Ok(work())
    }
}
