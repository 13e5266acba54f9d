//! A daemon with a backend that has no pools, in this process and as a process of its own.
#![allow(clippy::disallowed_methods)] // real threads and clocks are what is tested

use std::os::unix::fs::PermissionsExt;
use std::io::{Read, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tarnfs::control::wire::{read_message, write_message};
use tarnfs::control::*;
use tarnfs::Pool;

use super::*;
use crate::socket::passing::Sending;

/// Counts what it was asked; "panic" is a pool that makes it panic, "slow" one that takes time.
struct Fake {
    needed: bool,
    beside: Option<Beside>,
    quits: Arc<Mutex<u32>>,
    syncs: u32,
    /// Told how each stream ended.
    ended: Sender<String>,
}

impl Default for Fake {
    fn default() -> Fake {
        Fake { needed: false, beside: None, quits: Arc::default(), syncs: 0, ended: channel().0 }
    }
}

macro_rules! refuse {
    ($($name:ident($argument:ty) -> $result:ty;)*) => {
        $(fn $name(&mut self, _: $argument) -> Result<$result, Failure> { Err(Failure::new(FailureKind::NoSuchPool)) })*
    };
}

impl Backend for Fake {
    fn quit(&mut self) -> Result<(), Failure> {
        *self.quits.lock() += 1;
        self.needed = false;
        Ok(())
    }

    fn pool_sync(&mut self, select: PoolSelect) -> Result<Job, Failure> {
        match select.name.as_deref() {
            Some("panic") => panic!("asked to"),
            Some("slow") => thread::sleep(Duration::from_millis(50)),
            Some("stay") => self.needed = true,
            Some("go") => self.needed = false,
            _ => {}
        }
        self.syncs += 1;
        Ok(Box::new(|| Ok(())))
    }

    fn mount_list(&mut self) -> Result<Vec<Mount>, Failure> {
        Ok(vec![Mount { dataset: self.syncs.to_string(), mountpoint: "/".to_owned() }])
    }

    /// "endless" is a stream without an end; "tank@short" has five bytes.
    fn stream_send(&mut self, send: StreamSend) -> Result<StreamJob, Failure> {
        let ended = self.ended.clone();
        let broken = |error: std::io::Error| Failure::with(FailureKind::Io, error.to_string());
        Ok(Box::new(move |mut descriptor| {
            let endless = send.snapshot == "endless";
            let written = loop {
                let written = descriptor.write_all(b"bytes");
                if !endless || written.is_err() {
                    break written;
                }
            };
            ended.send(written.as_ref().map_or_else(|error| error.to_string(), |()| String::new())).unwrap();
            written.map(|()| Streamed::Over(Reply::Done)).map_err(broken)
        }))
    }

    refuse! {
        pool_create(PoolCreate) -> ();
        pool_destroy(PoolDestroy) -> ();
        pool_scan(PoolScan) -> Vec<FoundPool>;
        pool_import(PoolImport) -> Option<tarnfs::control::ImportRewound>;
        pool_export(PoolExport) -> ();
        pool_list(PoolSelect) -> Vec<PoolEntry>;
        pool_get(PoolSelect) -> Vec<PoolEntry>;
        pool_status(PoolSelect) -> Vec<PoolStatus>;
        pool_set(PoolSet) -> ();
        dataset_create(DatasetCreate) -> ();
        dataset_destroy(DatasetDestroy) -> ();
        dataset_list(DatasetList) -> Datasets;
        dataset_set(DatasetSet) -> ();
        dataset_inherit(DatasetInherit) -> ();
        dataset_mount(DatasetMount) -> ();
        dataset_unmount(DatasetUnmount) -> Job;
    }
}

impl Service for Fake {
    fn is_needed(&self) -> bool {
        self.needed
    }

    fn beside(&self) -> Option<Beside> {
        self.beside.clone()
    }
}

/// A stream goes through the caller's own descriptor, and ends with its command, although somebody else still has the other end and
/// does not read. Nobody waits for it meanwhile.
#[test]
fn a_stream_goes_through_the_callers_descriptor() {
    let (ended, hears) = channel();
    let (_directory, paths, switch, serving) = start(Fake { needed: true, ended, ..Fake::default() });
    let send = |snapshot: &str| Request::StreamSend(StreamSend { snapshot: snapshot.to_owned(), ..StreamSend::default() });
    let mut client = Client::connect(&paths).unwrap().unwrap();
    let (mut reader, writer) = std::io::pipe().unwrap();
    assert_eq!(client.call_with(&send("tank@short"), writer.as_fd(), &mut |_| ()), Reply::Done);
    assert_eq!(hears.recv().unwrap(), "");
    let mut got = [0; 5];
    reader.read_exact(&mut got).unwrap();
    assert_eq!(&got, b"bytes");
    // The wrong end, and none.
    assert!(matches!(client.call_with(&send("tank@short"), reader.as_fd(), &mut |_| ()), Reply::Failed(_)));
    assert!(matches!(client.call(&send("tank@short")), Reply::Failed(_)));
    assert!(matches!(client.call_with(&Request::MountList, writer.as_fd(), &mut |_| ()), Reply::Mounts(_)));

    // Somebody who does not read: others are served, and it is told how far it is, until the command is killed.
    let mut connection = UnixStream::connect(paths.socket()).unwrap();
    write_message(&mut Sending { stream: &connection, descriptor: Some(writer.as_fd()) }, &send("endless")).unwrap();
    let Some(Reply::Progress(progress)) = read_message(&mut connection).unwrap() else { panic!("no progress") };
    assert!(progress.bytes >= 4096, "{progress:?}");
    assert_eq!(client.call(&sync("tank")), Reply::Done);
    drop(connection);
    assert_eq!(hears.recv_timeout(Duration::from_secs(10)).unwrap(), "the command has ended");

    // A reader that goes away.
    let asking = thread::spawn(move || client.call_with(&send("endless"), writer.as_fd(), &mut |_| ()));
    reader.read_exact(&mut got).unwrap();
    drop(reader);
    assert!(matches!(asking.join().unwrap(), Reply::Failed(failure) if failure.message == "Broken pipe"));
    switch.end();
    serving.join().unwrap();
}

/// While 'zpool status' looked for the files of ten thousand damaged blocks it had the turn, and all other callers
/// waited.
#[test]
fn who_only_looks_at_pools_takes_no_turn() {
    let beside = Some(Pools::default().beside());
    let (_directory, paths, switch, serving) = start(Fake { needed: true, beside, ..Fake::default() });
    let select = PoolSelect { name: None, properties: Wanted::All };
    let call = |request: Request| Client::connect(&paths).unwrap().unwrap().call(&request);
    // The backend, which has the turn, would say that there is no such pool.
    assert_eq!(call(Request::PoolStatus(select.clone())), Reply::Status(Vec::new()));
    assert_eq!(call(Request::PoolList(select.clone())), Reply::Pools(Vec::new()));
    assert_eq!(call(Request::PoolHistory(select)), Reply::History(Vec::new()));
    switch.end();
    serving.join().unwrap();
}

fn sync(pool: &str) -> Request {
    Request::PoolSync(PoolSelect { name: Some(pool.to_owned()), properties: Wanted::All })
}

fn wait_until(what: &str, mut done: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !done() {
        assert!(begun.elapsed() < Duration::from_secs(15), "{what}: not within 15 s");
        thread::sleep(Duration::from_millis(5));
    }
}

/// Paths, and a daemon in this process.
fn start<S: Service>(fake: S) -> (tempfile::TempDir, DaemonPaths, Arc<Switch>, thread::JoinHandle<()>) {
    let directory = tempfile::tempdir().unwrap();
    let paths = DaemonPaths::at(directory.path().join("run/daemon.sock"));
    let socket = ControlSocket::claim(&paths).unwrap().expect("the place is free");
    let switch = Arc::new(Switch::default());
    let told = Arc::clone(&switch);
    let serving = thread::spawn(move || socket.serve(&Arc::new(Mutex::new(fake)), &told).unwrap());
    (directory, paths, switch, serving)
}

#[test]
fn requests_are_answered_one_at_a_time() {
    let (_directory, paths, switch, serving) = start(Fake { needed: true, ..Fake::default() });
    thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                let mut client = Client::connect(&paths).unwrap().unwrap();
                for _ in 0..10 {
                    assert_eq!(client.call(&sync("tank")), Reply::Done);
                }
            });
        }
    });
    let mut client = Client::connect(&paths).unwrap().unwrap();
    assert!(matches!(client.call(&Request::MountList), Reply::Mounts(mounts) if mounts[0].dataset == "80"));
    assert!(matches!(client.call(&sync("panic")), Reply::Failed(failure) if failure.kind == FailureKind::Other));
    assert_eq!(client.call(&Request::Ping), Reply::Done);
    switch.end();
    serving.join().unwrap();
    assert!(Client::connect(&paths).unwrap().is_none());
}

#[test]
fn one_daemon_for_a_place() {
    let (_directory, paths, switch, serving) = start(Fake { needed: true, ..Fake::default() });
    assert!(ControlSocket::claim(&paths).unwrap().is_none());
    // Everybody may call root's daemon.
    let mode = if rustix::process::geteuid().is_root() { 0o666 } else { 0o600 };
    assert_eq!(std::fs::metadata(paths.socket()).unwrap().permissions().mode() & 0o777, mode);
    switch.end();
    serving.join().unwrap();
    // Files that a killed daemon leaves behind are taken over.
    drop(std::os::unix::net::UnixListener::bind(paths.socket()).unwrap());
    assert!(paths.socket().exists() && ControlSocket::claim(&paths).unwrap().is_some());
    // Files that it cannot have left are not touched.
    std::fs::remove_file(paths.socket()).unwrap();
    std::fs::write(paths.socket(), b"").unwrap();
    assert!(ControlSocket::claim(&paths).unwrap_err().to_string().contains("not a socket") && paths.socket().exists());
}

/// A script removed its directory while the daemon in it was ending, and began anew there: the second daemon could not be reached any more, and its pool
/// was mounted for ever.
#[test]
fn a_daemon_that_ends_leaves_the_socket_of_the_next_one() {
    let (directory, paths, switch, serving) = start(Fake { needed: true, ..Fake::default() });
    std::fs::remove_dir_all(directory.path().join("run")).unwrap();
    let next = ControlSocket::claim(&paths).unwrap();
    assert!(next.is_some() && paths.socket().exists());
    switch.end();
    serving.join().unwrap();
    assert!(paths.socket().exists());
}

#[test]
fn ends_when_nobody_needs_it() {
    let (_directory, paths, _switch, serving) = start(Fake::default());
    let mut client = Client::connect(&paths).unwrap().unwrap();
    assert_eq!(client.call(&sync("stay")), Reply::Done);
    drop(client);
    thread::sleep(Duration::from_millis(1500));
    let mut client = Client::connect(&paths).unwrap().expect("it has a pool and stays");
    assert_eq!(client.call(&sync("go")), Reply::Done);
    thread::sleep(Duration::from_millis(1500));
    assert_eq!(client.call(&Request::Ping), Reply::Done, "it has a client and stays");
    drop(client);
    serving.join().unwrap();
    assert!(!paths.socket().exists());
}

#[test]
fn quit_ends_it() {
    let quits = Arc::new(Mutex::new(0));
    let (_directory, paths, _switch, serving) = start(Fake { needed: true, quits: Arc::clone(&quits), ..Fake::default() });
    let mut client = Client::connect(&paths).unwrap().unwrap();
    assert_eq!(client.call(&Request::Quit), Reply::Done);
    serving.join().unwrap();
    assert!(*quits.lock() >= 1);
}

#[test]
fn hostile_bytes_cost_only_their_connection() {
    use std::io::Write;
    let (_directory, paths, switch, serving) = start(Fake { needed: true, ..Fake::default() });
    for bytes in [&[0xff; 64][..], b"\x04\0\0\0Ping", b"\x01", b""] {
        let mut stream = UnixStream::connect(paths.socket()).unwrap();
        stream.write_all(bytes).unwrap();
    }
    let mut client = Client::connect(&paths).unwrap().unwrap();
    assert_eq!(client.call(&Request::Ping), Reply::Done);
    switch.end();
    serving.join().unwrap();
}

/// A caller that came while 256 others were served took the daemon for absent: `zpool list` said that there are no
/// pools.
#[test]
fn who_comes_when_all_lines_are_busy_waits() {
    let (_directory, paths, switch, serving) = start(Fake { needed: true, ..Fake::default() });
    let others: Vec<Client> = (0..256).map(|_| Client::connect(&paths).unwrap().unwrap()).collect();
    thread::scope(|scope| {
        let late = scope.spawn(|| Client::connect(&paths).unwrap().is_some());
        thread::sleep(Duration::from_millis(200));
        assert!(!late.is_finished(), "there is no line for it");
        drop(others);
        assert!(late.join().unwrap(), "there is a daemon");
    });
    switch.end();
    serving.join().unwrap();
}

/// Not a test by itself: the body of the processes that the next tests start.
#[test]
fn child() {
    if std::env::var_os("TARN_TEST_CHILD").is_some() {
        let code = run(&DaemonPaths::of_user(), || Fake { needed: true, ..Fake::default() });
        assert_eq!(format!("{code:?}"), format!("{:?}", ExitCode::SUCCESS));
    }
}

fn child_command() -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "tests::child"]).env("TARN_TEST_CHILD", "1");
    command
}

#[test]
fn commands_start_it_once() {
    let directory = tempfile::tempdir().unwrap();
    let paths = DaemonPaths::at(directory.path().join("daemon.sock"));
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let mut client = Client::connect_or_start_with(&paths, child_command).unwrap();
                assert_eq!(client.call(&sync("tank")), Reply::Done);
            });
        }
    });
    let mut client = Client::connect(&paths).unwrap().unwrap();
    // All four were answered by the same daemon.
    assert!(matches!(client.call(&Request::MountList), Reply::Mounts(mounts) if mounts[0].dataset == "4"));
    assert_eq!(client.call(&Request::Quit), Reply::Done);
    let gone = || {
        // On a busy machine a daemon that was started in vain may come so late that it finds the paths free.
        if let Ok(Some(mut late)) = Client::connect(&paths) {
            late.call(&Request::Quit);
        }
        !paths.socket().exists()
    };
    wait_until("the socket goes away", gone);
    let free = || std::fs::OpenOptions::new().write(true).open(paths.lock()).unwrap().try_lock().is_ok();
    wait_until("the lock is free", free);
}

#[test]
fn a_signal_ends_it_in_good_order() {
    let directory = tempfile::tempdir().unwrap();
    let paths = DaemonPaths::at(directory.path().join("daemon.sock"));
    let mut child = child_command().env("TARN_SOCKET", paths.socket()).stdout(Stdio::null()).spawn().unwrap();
    wait_until("it answers", || Client::connect(&paths).unwrap().is_some_and(|mut client| client.call(&Request::Ping) == Reply::Done));
    rustix::process::kill_process(rustix::process::Pid::from_child(&child), rustix::process::Signal::TERM).unwrap();
    assert!(child.wait().unwrap().success());
    assert!(!paths.socket().exists());
}

#[test]
fn a_daemon_that_cannot_start_is_reported() {
    let directory = tempfile::tempdir().unwrap();
    let paths = DaemonPaths::at(directory.path().join("daemon.sock"));
    let error = Client::connect_or_start_with(&paths, || Command::new("false")).unwrap_err();
    assert!(error.to_string().contains("ended at once"), "{error}");
}

/// A kernel that hands over what it has, or ends a mount, only when it is told to.
struct Stuck {
    begun: Sender<()>,
    release: Arc<Mutex<Receiver<()>>>,
}

impl Stuck {
    fn wait(begun: &Sender<()>, release: &Mutex<Receiver<()>>) {
        begun.send(()).unwrap();
        release.lock().recv_timeout(Duration::from_secs(30)).unwrap();
    }
}

impl Mounter for Stuck {
    fn mount(&mut self, _: MountPlan) -> Result<(), Failure> {
        Ok(())
    }

    fn remount(&mut self, _: &Arc<Pool>, _: &str, _: &[String]) -> Result<(), Failure> {
        Ok(())
    }

    fn unmount(&mut self, _: &str, _: bool) -> Result<(), Failure> {
        Ok(())
    }

    fn unmount_tree(&mut self, _: &str, _: bool) -> Result<(), Failure> {
        Stuck::wait(&self.begun, &self.release);
        Ok(())
    }

    fn is_mounted(&self, _: &str) -> bool {
        false
    }

    fn list(&self) -> Vec<Mount> {
        Vec::new()
    }

    fn refresh(&mut self, _: &Arc<Pool>) -> Vec<(String, Failure)> {
        Vec::new()
    }

    fn flush(&mut self, _: &Arc<Pool>) -> Flush {
        let (begun, release) = (self.begun.clone(), Arc::clone(&self.release));
        Box::new(move || {
            Stuck::wait(&begun, &release);
            Box::new(|| ())
        })
    }
}

fn create(directory: &std::path::Path, name: &str) -> Request {
    let path = directory.join(format!("{name}.img"));
    std::fs::File::create_new(&path).unwrap().set_len(128 << 20).unwrap();
    Request::PoolCreate(PoolCreate {
        name: name.into(),
        temporary_name: None,
        vdevs: vec![VdevSpec { kind: VdevKind::File, path: Some(path), class: AllocationClass::Normal, children: Vec::new() }],
        force: false,
        properties: vec![Setting::new("cachefile", "none")],
        features: FeatureChoice { all_others: true, ..FeatureChoice::default() },
        dataset_properties: vec![Setting::new("mountpoint", "none")],
        command: CommandLine::default(),
    })
}

/// While 'zpool sync' or 'zpool export' waited for the kernel, and the kernel for the devices of a pool, no pool's
/// status could be had; and 'zpool clear', which the devices waited for, waited for them.
#[test]
fn what_waits_for_a_pool_holds_nobody_up() {
    let ((begun, has_begun), (release, released)) = (channel(), channel());
    let stuck = Stuck { begun, release: Arc::new(Mutex::new(released)) };
    let (directory, paths, switch, serving) = start(Pools::new(stuck));
    let call = |request: &Request| Client::connect(&paths).unwrap().unwrap().call(request);
    for name in ["tank", "other"] {
        assert_eq!(call(&create(directory.path(), name)), Reply::Done);
    }
    let one = |name: &str| PoolSelect { name: Some(name.into()), properties: Wanted::Only(vec!["size".into()]) };
    let export = Request::PoolExport(PoolExport { name: "tank".into(), force: false, hard_force: false });
    for (slow, has_turn) in [(sync("tank"), false), (export, true)] {
        thread::scope(|scope| {
            let waits = scope.spawn(|| call(&slow));
            has_begun.recv_timeout(Duration::from_secs(15)).unwrap();
            // Each of these would wait until the channel gives up.
            let asked = Instant::now();
            for name in ["tank", "other"] {
                assert!(matches!(call(&Request::PoolStatus(one(name))), Reply::Status(found) if found[0].name == name));
                assert!(matches!(call(&Request::PoolList(one(name))), Reply::Pools(found) if found[0].properties.len() == 1));
                assert_eq!(call(&Request::PoolClear(PoolClear { name: name.into(), device: None })), Reply::Done);
            }
            assert!(matches!(call(&Request::PoolStatus(one("none"))), Reply::Failed(failure) if failure.kind == FailureKind::NoSuchPool));
            if !has_turn {
                assert!(matches!(call(&Request::MountList), Reply::Mounts(_)));
            }
            assert!(asked.elapsed() < Duration::from_secs(15) && !waits.is_finished(), "{slow:?}");
            release.send(()).unwrap();
            assert_eq!(waits.join().unwrap(), Reply::Done, "{slow:?}");
        });
    }
    assert!(matches!(call(&Request::PoolStatus(one("tank"))), Reply::Failed(failure) if failure.kind == FailureKind::NoSuchPool));
    switch.end();
    has_begun.recv_timeout(Duration::from_secs(15)).unwrap();
    release.send(()).unwrap();
    serving.join().unwrap();
}
