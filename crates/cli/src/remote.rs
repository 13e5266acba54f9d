//! The daemon as the one who answers.
//!
//! # Theory
//!
//! Only what makes or imports a pool needs a daemon to be there; it is started then. Everything else asks the one that
//! runs, and when none runs the answer is known without it: no pool is imported. So listing, in a script or a prompt,
//! leaves no process behind; neither does looking for pools on devices, which this process does itself.
//!
//! A user may have a daemon of their own, and be granted something on pools of root's. What the own daemon does not know, root's is asked; of
//! lists, both.

use std::os::fd::BorrowedFd;

use daemon::{Client, DaemonPaths};
use engine::host::{Host, RealHost};
use tarnfs::control::{Datasets, Failure, FailureKind, PoolSelect, Reply, Request, StreamProgress};

use crate::session::Control;

/// Talks to the daemon of this user, when it has to, and to root's about what that one does not know.
pub(crate) struct Remote {
    paths: DaemonPaths,
    client: Option<Client>,
    /// Root's daemon, for others.
    machine: Option<DaemonPaths>,
    machine_client: Option<Client>,
}

impl Remote {
    pub(crate) fn new() -> Remote {
        Remote { paths: DaemonPaths::of_user(), client: None, machine: DaemonPaths::of_machine(), machine_client: None }
    }

    /// Root's daemon, if that is to be asked, too.
    fn machine_for(&mut self, request: &Request, own: &Reply) -> Option<&mut Client> {
        let machine = self.machine.as_ref().filter(|_| !is_own(request) && leaves_open(own))?;
        if self.machine_client.is_none() {
            self.machine_client = Client::connect(machine).ok()?;
        }
        self.machine_client.as_mut()
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

/// Is it about what a user's own daemon alone can do?
fn is_own(request: &Request) -> bool {
    matches!(request, Request::Ping | Request::Version | Request::Quit | Request::PoolCreate(_) | Request::PoolImport(_) | Request::PoolScan(_) | Request::PoolEvents(_))
}

/// Does the answer say that there is no such thing, or list what there is?
fn leaves_open(reply: &Reply) -> bool {
    match reply {
        Reply::Failed(failure) => matches!(failure.kind, FailureKind::NoSuchPool | FailureKind::NoSuchDataset),
        Reply::Pools(_) | Reply::Status(_) | Reply::Datasets(_) | Reply::Mounts(_) => true,
        _ => false,
    }
}

/// Two answers as one. The second is that of a daemon that knows other pools.
fn together(own: Reply, other: Reply) -> Reply {
    match (own, other) {
        (own, Reply::Failed(failure)) if matches!(failure.kind, FailureKind::NoSuchPool | FailureKind::NoSuchDataset) => own,
        (Reply::Failed(_), other) => other,
        (Reply::Pools(own), Reply::Pools(other)) => Reply::Pools([own, other].concat()),
        (Reply::Status(own), Reply::Status(other)) => Reply::Status([own, other].concat()),
        (Reply::Mounts(own), Reply::Mounts(other)) => Reply::Mounts([own, other].concat()),
        (Reply::Datasets(own), Reply::Datasets(other)) => {
            Reply::Datasets(Datasets { root_kind: own.root_kind.or(other.root_kind), entries: [own.entries, other.entries].concat() })
        }
        (own, _) => own,
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
        let own = match self.client(&request) {
            Ok(Some(client)) => client.call(&request),
            Ok(None) => answer_alone(&request),
            Err(failure) => return Reply::Failed(failure),
        };
        match self.machine_for(&request, &own) {
            Some(machine) => together(own, machine.call(&request)),
            None => own,
        }
    }

    fn call_with(&mut self, request: Request, descriptor: BorrowedFd<'_>, progress: &mut dyn FnMut(StreamProgress)) -> Reply {
        let own = match self.client(&request) {
            Ok(Some(client)) => client.call_with(&request, descriptor, progress),
            Ok(None) => answer_alone(&request),
            Err(failure) => return Reply::Failed(failure),
        };
        match self.machine_for(&request, &own) {
            Some(machine) => together(own, machine.call_with(&request, descriptor, progress)),
            None => own,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tarnfs::control::Wanted;

    #[test]
    fn two_daemons_answer_as_one() {
        let missing = || Reply::Failed(Failure::new(FailureKind::NoSuchDataset));
        assert!(leaves_open(&missing()) && leaves_open(&Reply::Mounts(Vec::new())) && !leaves_open(&Reply::Done));
        assert_eq!(together(missing(), Reply::Done), Reply::Done);
        assert_eq!(together(Reply::Mounts(Vec::new()), missing()), Reply::Mounts(Vec::new()));
        let denied = || Reply::Failed(Failure::new(FailureKind::Permission));
        assert_eq!(together(missing(), denied()), denied());
    }

    #[test]
    fn without_a_daemon_there_is_no_pool() {
        let select = |name: Option<&str>| PoolSelect { name: name.map(str::to_owned), properties: Wanted::All };
        assert_eq!(answer_alone(&Request::PoolList(select(None))), Reply::Pools(Vec::new()));
        assert!(matches!(answer_alone(&Request::PoolStatus(select(Some("tank")))), Reply::Failed(failure) if failure.kind == FailureKind::NoSuchPool));
        assert!(!needs_daemon(&Request::PoolStatus(select(None))));
    }
}
