//! A server that is killed while it waits for an answer of its own.

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::time::Duration;

use fuse::SessionOptions;

use crate::Fixture;

/// What this program is when it is not the tests: `server`, or the id of the server of which it is the witness.
const ROLE: &str = "FUSE_TEST_ROLE";
/// The test that plays a role.
const PLAYER: &str = "witness::a_process";

fn player(role: &str) -> Command {
    let mut command = Command::new("/proc/self/exe");
    command.args([PLAYER, "--exact", "--nocapture"]).env(ROLE, role);
    command
}

/// Plays a role, if there is one.
#[test]
fn a_process() {
    match std::env::var(ROLE).as_deref() {
        Err(_) => {}
        Ok("server") => serve_and_wait(),
        Ok(server) => {
            let _ = fuse::witness::watch(server.parse().unwrap());
        }
    }
}

/// Serves a file, and reads it; nobody ever lets the read go on.
fn serve_and_wait() {
    fuse::witness::enable(|| player(&std::process::id().to_string()));
    let fixture = Fixture::new(SessionOptions::default()).unwrap();
    let path = fixture.path("slow");
    File::create(&path).unwrap().write_all(b"slow").unwrap();
    // The page cache would answer.
    let file = OpenOptions::new().read(true).custom_flags(libc::O_DIRECT).open(path).unwrap();
    let mut buffer = [0; 4096];
    let _ = rustix::io::read(&file, &mut buffer);
}

/// The kernel does not let go of a thread that waits for an answer, and so not of the process that would have to answer. The daemon hung like
/// that when it was killed while it made the directory of one mount in another (`many_kills` of the commands' tests).
#[test]
fn a_server_that_waits_for_itself_dies() {
    let Some(fixture) = Fixture::new(SessionOptions::default()) else { return };
    drop(fixture);
    let place = tempfile::tempdir().unwrap();
    let mut server = player("server").env("TMPDIR", place.path()).stdout(Stdio::null()).process_group(0).spawn().unwrap();
    let threads = format!("/proc/{}/task", server.id());
    let waits = |thread: fs::DirEntry| fs::read_to_string(thread.path().join("wchan")).is_ok_and(|place| place == "request_wait_answer");
    let within = |seconds: u32, done: &mut dyn FnMut() -> bool| {
        (0..seconds * 20).any(|_| {
            std::thread::sleep(Duration::from_millis(50));
            done()
        })
    };
    assert!(within(60, &mut || fs::read_dir(&threads).unwrap().flatten().any(waits)), "the server never waited for itself");
    server.kill().unwrap();
    assert!(within(60, &mut || server.try_wait().unwrap().is_some()), "killed, and still there");
    for left in fs::read_dir(place.path()).unwrap().flatten() {
        rustix::mount::unmount(left.path(), rustix::mount::UnmountFlags::DETACH).unwrap();
    }
}
