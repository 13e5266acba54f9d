//! The way to a directory, as root and as the user that runs the tests.

use std::os::unix::fs::{PermissionsExt, chown, symlink};

use super::*;

/// Whose places these are not.
const STRANGER: u32 = 61_234;

fn set(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

fn why(result: io::Result<impl std::fmt::Debug>) -> String {
    result.unwrap_err().to_string()
}

#[test]
fn a_way_that_others_may_change_is_refused() {
    let place = tempfile::tempdir().unwrap();
    let path = |name: &str| place.path().join(name);
    fs::create_dir(path("all")).unwrap();
    set(&path("all"), 0o777);
    fs::create_dir(path("all/below")).unwrap();
    assert!(why(directory(&path("all"))).contains("all: others may write to it; remove it"));
    assert!(directory(&path("all/below")).is_err() && directory(&path("all/../all/below/none")).is_err());
    set(&path("all"), 0o1777);
    assert!(directory(&path("all/below")).unwrap());
    assert!(why(make_private_directory(&path("all"))).contains("others may write"));
    make_private_directory(&path("all/own/deep")).unwrap();
    assert_eq!(fs::metadata(path("all/own/deep")).unwrap().mode() & 0o777, 0o700);
    fs::write(path("file"), "").unwrap();
    assert!(why(directory(&path("file/x"))).contains("not a directory"));
    assert!(!directory(&path("none/x")).unwrap() && !path("none").exists(), "looking makes nothing");
}

#[test]
fn links_are_followed_as_far_as_they_are_ours() {
    let place = tempfile::tempdir().unwrap();
    let path = |name: &str| place.path().join(name);
    fs::create_dir_all(path("a/b")).unwrap();
    symlink("a", path("relative")).unwrap();
    symlink(path("a/b"), path("whole")).unwrap();
    symlink("../relative/b", path("a/up")).unwrap();
    symlink("round", path("round")).unwrap();
    for name in ["relative/b", "whole", "a/up", "relative/../a/b", "whole/../up"] {
        assert!(directory(&path(name)).unwrap(), "{name}");
    }
    assert!(why(directory(&path("round/x"))).contains("too many symbolic links"));
    symlink(path("made"), path("to")).unwrap();
    assert!(why(make_private_directory(&path("whole"))).contains("symbolic link"));
    fs::create_dir(path("all")).unwrap();
    set(&path("all"), 0o777);
    symlink(path("all"), path("hidden")).unwrap();
    assert!(why(directory(&path("hidden"))).contains("all: others may write"));
}

#[test]
fn what_belongs_to_others_is_refused() {
    let place = tempfile::tempdir().unwrap();
    let path = |name: &str| place.path().join(name);
    fs::create_dir(path("theirs")).unwrap();
    fs::write(path("log"), "").unwrap();
    symlink(path("theirs"), path("link")).unwrap();
    if chown(path("theirs"), Some(STRANGER), Some(STRANGER)).is_err() {
        eprintln!("SKIPPED: what belongs to others is refused: only root can give things away");
        return;
    }
    chown(path("log"), Some(STRANGER), None).unwrap();
    let words = format!("it belongs to user {STRANGER}");
    for refused in [why(directory(&path("theirs"))), why(directory(&path("link"))), why(is_there(&path("log"), Thing::File))] {
        assert!(refused.contains(&words), "{refused}");
    }
    // A group of the owner's own is no other; any other group is.
    set(place.path(), 0o770);
    assert!(directory(place.path()).unwrap());
    chown(place.path(), None, Some(STRANGER)).unwrap();
    assert!(why(directory(place.path())).contains("others may write"));
}

#[test]
fn files_are_what_they_should_be() {
    let place = tempfile::tempdir().unwrap();
    let path = |name: &str| place.path().join(name);
    let open = |name: &str| open_file(&path(name), OpenOptions::new().append(true));
    assert_eq!(open("new").unwrap().metadata().unwrap().mode() & 0o777, 0o600);
    open("new").unwrap();
    symlink(path("elsewhere"), path("link")).unwrap();
    fs::hard_link(path("new"), path("second")).unwrap();
    rustix::fs::mknodat(rustix::fs::CWD, path("pipe"), rustix::fs::FileType::Fifo, rustix::fs::Mode::RUSR, 0).unwrap();
    for (name, words) in [("link", "a symbolic link"), ("second", "another name"), ("pipe", "not a regular file")] {
        assert!(why(open(name)).contains(words), "{name}");
    }
    assert!(!path("elsewhere").exists());
    assert!(
        why(is_there(&path("new"), Thing::Socket)).contains("not a socket") && !is_there(&path("none"), Thing::Socket).unwrap()
    );
}
