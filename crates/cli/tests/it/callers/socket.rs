//! The rights over the control socket: every request, by every kind of caller, to root's daemon and to a user's.

use std::fs;
use std::io::{Read, Write};
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use tarnfs::control::permission::{Need, needs};
use tarnfs::control::wire::{read_message, write_message};
use tarnfs::control::{
    CommandLine, DatasetDestroy, DatasetSet, DatasetUnmount, FailureKind, PoolDestroy, PoolExport, PoolRecord, PoolSelect, PoolSet, Reply,
    Request, Setting, TransactionBegin, Wanted,
};

use super::people::{OWNER, Somebody, everybody};
use crate::rig::{LIMIT, Rig, wait_for};

/// Where the requests are declared: also those that come later are asked.
const DECLARED: &str = include_str!("../../../../tarnfs/src/control/protocol/request.rs");

/// The names of all requests, as messages have them.
fn names() -> Vec<&'static str> {
    let (_, body) = DECLARED.split_once("pub enum Request {").expect("the requests are declared there");
    let (body, _) = body.split_once("\n}").expect("the declaration ends");
    let variants = body.lines().map(str::trim).filter(|line| line.starts_with(|first: char| first.is_ascii_uppercase()));
    variants.map(|line| line.split(['(', ',', ' ']).next().unwrap()).collect()
}

/// Requests that would be carried out as they are, the worst first.
fn requests() -> Vec<Request> {
    let name = || "tank".to_owned();
    let select = PoolSelect { name: None, properties: Wanted::All };
    vec![
        Request::PoolDestroy(PoolDestroy { name: name(), force: true }),
        Request::PoolExport(PoolExport { name: name(), force: true, hard_force: false }),
        Request::DatasetDestroy(DatasetDestroy { names: vec!["tank/kept".to_owned()], defer: false, force: true }),
        Request::DatasetUnmount(DatasetUnmount { name: name(), at: None, tree: false, force: true, unload_key: false }),
        Request::DatasetSet(DatasetSet { name: name(), settings: vec![Setting::new("readonly", "on")], no_remount: false, received: false }),
        Request::PoolSet(PoolSet { name: name(), settings: vec![Setting::new("comment", "theirs")] }),
        Request::TransactionBegin(TransactionBegin { dataset: name(), owner: std::process::id().cast_signed() }),
        Request::PoolList(select.clone()),
        Request::PoolHistory(select.clone()),
        Request::PoolSync(select),
        Request::MountList,
        Request::Version,
        Request::Ping,
        Request::Quit,
    ]
}

/// What a daemon answers to a message that is written as it is. `None`: nothing; it hangs up.
fn ask(socket: &Path, message: &[u8]) -> Option<Vec<u8>> {
    let mut stream =
        UnixStream::connect(socket).unwrap_or_else(|error| panic!("{}: everybody may connect: {error}", socket.display()));
    stream.set_read_timeout(Some(LIMIT)).unwrap();
    let length = u32::try_from(message.len()).unwrap();
    // It may have hung up already.
    let _ = stream.write_all(&length.to_le_bytes()).and_then(|()| stream.write_all(message));
    let mut answer = vec![0; 4];
    let read = stream.read_exact(&mut answer);
    assert!(
        read.as_ref().is_err_and(|error| error.kind() != std::io::ErrorKind::WouldBlock) || read.is_ok(),
        "no answer in time, and no end"
    );
    read.ok().map(|()| answer)
}

/// Everybody but those whom the daemon listens to asks for everything, and is not even listened to.
fn strangers_are_not_heard(socket: &Path, strangers: &[&Somebody]) {
    let typed = requests().into_iter().map(|request| serde_json::to_vec(&request).unwrap());
    let others = names().into_iter().map(|name| format!("{{\"{name}\":{{\"name\":\"tank\"}}}}").into_bytes());
    for message in typed.chain(others) {
        for stranger in strangers {
            let (socket, asked) = (socket.to_owned(), message.clone());
            let answer = stranger.act(move || ask(&socket, &asked));
            assert!(answer.is_none(), "{} was answered to {}", stranger.name, String::from_utf8_lossy(&message));
        }
    }
}

fn open_to_everybody(path: &Path) {
    fs::set_permissions(path, fs::Permissions::from_mode(0o777)).unwrap();
}

fn call(socket: PathBuf, request: Request) -> Reply {
    let mut stream = UnixStream::connect(socket).unwrap();
    stream.set_read_timeout(Some(LIMIT)).unwrap();
    write_message(&mut stream, &request).unwrap();
    read_message(&mut stream).unwrap().expect("those whom it listens to are answered")
}

/// A process that ends with the test, whatever becomes of that.
struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Answers to those whom the pool grants nothing.
fn answers_to(caller: &Somebody, socket: &Path, request: Request) -> Reply {
    let socket = socket.to_owned();
    caller.act(move || call(socket, request))
}

fn is_denied(reply: &Reply) -> bool {
    matches!(reply, Reply::Failed(failure) if failure.kind == FailureKind::Permission)
}

/// Each request is made by strangers; what only looks is answered, and all else is refused, whatever it is called.
#[test]
fn strangers_may_look_and_no_more() {
    let Some(rig) = Rig::new() else { return };
    assert!(names().len() > 30 && names().contains(&"Quit"), "{:?}", names());
    rig.image("a.img", 64 << 20);
    rig.ok("zpool create -O mountpoint=@mnt tank @a.img");
    rig.ok("zfs create tank/kept");
    open_to_everybody(&rig.path("."));
    let socket = rig.path("sock");
    assert_eq!(fs::metadata(&socket).unwrap().permissions().mode() & 0o777, 0o666, "everybody may call root's daemon");
    let people = everybody();
    for stranger in &people[1..] {
        for request in requests() {
            let looks = needs(&request) == Need::Nothing;
            let reply = answers_to(stranger, &socket, request.clone());
            assert_eq!(is_denied(&reply), !looks, "{} asked {request:?}: {reply:?}", stranger.name);
        }
        // Those that come later too: what is not understood is not answered, and no answer says that something was done.
        for name in names() {
            let (socket, message) = (socket.clone(), format!("{{\"{name}\":{{\"name\":\"tank\"}}}}").into_bytes());
            let answer = stranger.act(move || ask(&socket, &message));
            assert!(answer.is_none_or(|answer| !String::from_utf8_lossy(&answer).contains("Done")), "{name}");
        }
        // Nobody writes into the history of a pool that they have not changed.
        let command = CommandLine { words: "zfs theirs".into(), user: 0 };
        let record = Request::PoolRecord(PoolRecord { pool: "tank".into(), command });
        assert!(is_denied(&answers_to(stranger, &socket, record)), "{}", stranger.name);
    }
    // Commands do not go where everybody may write.
    fs::set_permissions(rig.path("."), fs::Permissions::from_mode(0o700)).unwrap();
    assert_eq!((rig.get("tank", "readonly").as_str(), rig.ok("zpool get -H -o value comment tank").trim()), ("off", "-"));
    assert!(rig.is_mounted("mnt") && rig.ok("zfs list -H -o name").contains("tank/kept"));
    assert!(!rig.ok("zpool history tank").contains("theirs"));
    // The same requests are carried out for root.
    let listed = answers_to(&people[0], &socket, Request::PoolList(PoolSelect { name: None, properties: Wanted::All }));
    assert!(!matches!(listed, Reply::Failed(_)), "{listed:?}");
    rig.ok("zpool export tank");
    rig.zdb(&["a.img"]);
}

/// A stranger cannot take all places, nor have the daemon read for ever.
#[test]
fn strangers_do_not_keep_root_from_being_heard() {
    let Some(rig) = Rig::new() else { return };
    rig.image("a.img", 64 << 20);
    rig.ok("zpool create -O mountpoint=none tank @a.img");
    fs::set_permissions(rig.path("."), fs::Permissions::from_mode(0o755)).unwrap();
    let (socket, stranger) = (rig.path("sock"), &everybody()[3]);
    let kept = {
        let socket = socket.clone();
        stranger.act(move || (0..300).filter_map(|_| UnixStream::connect(&socket).ok()).collect::<Vec<_>>())
    };
    assert!(kept.len() > 16, "{}", kept.len());
    assert_eq!(rig.ok("zfs list -H -o name"), "tank\n");
    drop(kept);
    let long = socket.clone();
    let answer = stranger.act(move || {
        let mut stream = UnixStream::connect(long).unwrap();
        stream.set_read_timeout(Some(LIMIT)).unwrap();
        stream.write_all(&(200u32 << 20).to_le_bytes()).unwrap();
        stream.read(&mut [0; 1])
    });
    assert!(answer.is_ok_and(|count| count == 0) , "a long message is not read");
    rig.ok("zpool export tank");
}

#[test]
fn the_daemon_of_a_user_listens_to_that_user_and_to_root() {
    let Some(rig) = Rig::new() else { return };
    fs::set_permissions(rig.path("."), fs::Permissions::from_mode(0o755)).unwrap();
    let own = rig.path("own");
    fs::create_dir(&own).unwrap();
    chown(&own, Some(OWNER), Some(OWNER)).unwrap();
    let socket = own.join("sock");
    // The program may lie where only root comes.
    let program = own.join("tarn");
    fs::copy(env!("CARGO_BIN_EXE_tarn"), &program).unwrap();
    let mut command = Command::new(&program);
    command.arg("daemon").env("TARN_SOCKET", &socket).env_remove("TARN_LOG_FILE").current_dir("/").uid(OWNER).gid(OWNER);
    let mut daemon = Killed(command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap());
    rig.wait("the user's daemon", || UnixStream::connect(&socket).is_ok());
    // While somebody is connected it stays.
    let kept = UnixStream::connect(&socket).unwrap();
    fs::set_permissions(&own, fs::Permissions::from_mode(0o755)).unwrap();
    open_to_everybody(&socket);
    let people = everybody();
    let (root, owner) = (&people[0], &people[1]);
    strangers_are_not_heard(&socket, &people[2..].iter().collect::<Vec<_>>());
    for friend in [owner, root] {
        let socket = socket.clone();
        assert_eq!(friend.act(move || call(socket, Request::Ping)), Reply::Done, "{}", friend.name);
    }
    drop(kept);
    let left = socket.clone();
    assert_eq!(owner.act(move || call(left, Request::Quit)), Reply::Done);
    assert_eq!(wait_for(&mut daemon.0, LIMIT), Some(0), "it ends when its user says so");
}
