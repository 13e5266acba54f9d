//! The daemon as the one who answers.
//!
//! # Theory
//!
//! Only what makes or imports a pool needs a daemon to be there; it is started then. Everything else asks the one that
//! runs, and when none runs the answer is known without it: no pool is imported. So listing, in a script or a prompt,
//! leaves no process behind; neither does looking for pools on devices, which this process does itself.

use std::os::fd::BorrowedFd;

use daemon::{Client, DaemonPaths};
use engine::host::{Host, RealHost};
use tarnfs::control::{Datasets, Failure, FailureKind, PoolSelect, Reply, Request, StreamProgress};

use crate::session::Control;

/// Talks to the daemon of this user, when it has to.
pub(crate) struct Remote {
    paths: DaemonPaths,
    client: Option<Client>,
}

impl Remote {
    pub(crate) fn new() -> Remote {
        Remote { paths: DaemonPaths::of_user(), client: None }
    }
}

/// Does the request change who owns which pool, or need pools that are not imported?
fn needs_daemon(request: &Request) -> bool {
    matches!(request, Request::PoolCreate(_) | Request::PoolImport(_))
}

/// The answer when no pool is imported.
fn answer_alone(request: &Request) -> Reply {
    let no_such = |name: &Option<String>| name.as_ref().map(|_| Reply::Failed(Failure::new(FailureKind::NoSuchPool)));
    match request {
        Request::PoolList(PoolSelect { name, .. }) | Request::PoolGet(PoolSelect { name, .. }) => no_such(name).unwrap_or(Reply::Pools(Vec::new())),
        Request::PoolStatus(PoolSelect { name, .. }) => no_such(name).unwrap_or(Reply::Status(Vec::new())),
        Request::PoolSync(PoolSelect { name, .. }) => no_such(name).unwrap_or(Reply::Done),
        Request::DatasetList(list) | Request::DatasetGet(list) => match list.root {
            Some(_) => Reply::Failed(Failure::new(FailureKind::NoSuchDataset)),
            None => Reply::Datasets(Datasets { root_kind: None, entries: Vec::new() }),
        },
        Request::MountList => Reply::Mounts(Vec::new()),
        Request::PoolEvents(_) => Reply::Events(Vec::new()),
        Request::PoolScan(scan) => Reply::Found(tarnfs::control::scan::scan(scan, RealHost.host_id())),
        Request::Quit => Reply::Done,
        _ => Reply::Failed(Failure::new(FailureKind::NoSuchPool)),
    }
}

impl Remote {
    /// The daemon, if one runs or is needed.
    fn client(&mut self, request: &Request) -> Result<Option<&mut Client>, Failure> {
        if self.client.is_none() {
            let connected = if needs_daemon(request) { Client::connect_or_start(&self.paths).map(Some) } else { Client::connect(&self.paths) };
            self.client = connected.map_err(|error| Failure::with(FailureKind::NoDaemon, format!("the tarn daemon cannot be reached: {error}")))?;
        }
        Ok(self.client.as_mut())
    }
}

impl Control for Remote {
    fn call(&mut self, request: Request) -> Reply {
        match self.client(&request) {
            Ok(Some(client)) => client.call(&request),
            Ok(None) => answer_alone(&request),
            Err(failure) => Reply::Failed(failure),
        }
    }

    fn call_with(&mut self, request: Request, descriptor: BorrowedFd<'_>, progress: &mut dyn FnMut(StreamProgress)) -> Reply {
        match self.client(&request) {
            Ok(Some(client)) => client.call_with(&request, descriptor, progress),
            Ok(None) => answer_alone(&request),
            Err(failure) => Reply::Failed(failure),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tarnfs::control::Wanted;

    #[test]
    fn without_a_daemon_there_is_no_pool() {
        let select = |name: Option<&str>| PoolSelect { name: name.map(str::to_owned), properties: Wanted::All };
        assert_eq!(answer_alone(&Request::PoolList(select(None))), Reply::Pools(Vec::new()));
        assert!(matches!(answer_alone(&Request::PoolStatus(select(Some("tank")))), Reply::Failed(failure) if failure.kind == FailureKind::NoSuchPool));
        assert!(!needs_daemon(&Request::PoolStatus(select(None))));
    }
}
