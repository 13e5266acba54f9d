//! What files were before: `tarn fs history`, `undelete`, `at`, `diff`, and `zfs diff`.

use std::fs;
use std::os::unix::fs::{FileExt, PermissionsExt, symlink};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use std::time::Instant;

use crate::rig::{LIMIT, Rig, run_for};

const MIB: u64 = 1 << 20;

/// A checksum of an image, by the system's own program.
fn sum(path: &Path) -> String {
    let said = run_for(Command::new("sha256sum").arg(path), LIMIT).unwrap();
    said.out.split(' ').next().unwrap().to_owned()
}

/// The columns of what a `-H` printed.
fn rows(text: &str) -> Vec<Vec<String>> {
    text.lines().map(|line| line.split('\t').map(str::to_owned).collect()).collect()
}

/// What `zfs diff` says of a head. The kernel says some time later that nothing holds a removed file any more; until then OpenZFS, too, shows it in the delete
/// queue.
fn differences_of_head(rig: &Rig, since: &str) -> String {
    let began = Instant::now();
    loop {
        let said = rig.ok(&format!("zfs diff -F {since}"));
        if !said.contains("(on_delete_queue)") || began.elapsed() > LIMIT {
            return said;
        }
    }
}

/// A pool with a file that was changed over several groups and snapshots, and one that was deleted.
fn pool() -> Option<Rig> {
    let rig = Rig::new()?;
    rig.image("a.img", 256 * MIB);
    rig.ok("zpool create -O mountpoint=@mnt tank @a.img");
    rig.ok("zfs create tank/home");
    fs::create_dir_all(rig.path("mnt/home/d/below")).unwrap();
    fs::write(rig.path("mnt/home/d/below/gone"), b"it was here").unwrap();
    for (text, snapshot) in [("one", "first"), ("two, longer", "second")] {
        fs::write(rig.path("mnt/home/file"), text).unwrap();
        rig.ok("zpool sync tank");
        rig.ok(&format!("zfs snapshot tank/home@{snapshot}"));
    }
    for text in ["three: no snapshot has it", "four: and it is there now"] {
        fs::write(rig.path("mnt/home/file"), text).unwrap();
        rig.ok("zpool sync tank");
    }
    fs::write(rig.path("mnt/home/short-lived"), vec![b'x'; 300_000]).unwrap();
    rig.ok("zpool sync tank");
    fs::remove_file(rig.path("mnt/home/short-lived")).unwrap();
    fs::remove_file(rig.path("mnt/home/d/below/gone")).unwrap();
    rig.ok("zpool sync tank");
    Some(rig)
}

/// Each version comes back, from its snapshot or its group, while the pool is imported and when it is not; and not a byte is written.
#[test]
fn every_version_of_a_file_is_found_and_copied_out() {
    let Some(rig) = pool() else { return };
    let versions = ["four: and it is there now", "three: no snapshot has it", "two, longer", "one"];
    let check = |place: &str, where_: &str| {
        let listed = rows(&rig.ok(&format!("fs history -H {where_} {place}")));
        let sizes: Vec<usize> = listed.iter().map(|row| row[2].parse().unwrap()).collect();
        assert_eq!(sizes, versions.map(str::len), "{listed:?}");
        for (row, text) in listed.iter().zip(versions) {
            assert_eq!(row[4], "0", "nothing of it is gone: {row:?}");
            for moment in row[5].split(',') {
                // In the rig's words an `@` begins a path; the name of a snapshot will do without.
                let moment = moment.trim_start_matches('@');
                assert_eq!(rig.ok(&format!("fs at {where_} {moment} {place}")), text, "{moment}");
            }
        }
        assert!(listed[0][5].split(',').any(|moment| moment == "now") && listed[2][5].contains("@second") && listed[3][5].contains("@first"));
        let shown = rig.ok(&format!("fs history {where_} {place}"));
        assert!(shown.contains("HELD BY") && shown.contains("@first") && shown.contains("tarn fs at"), "{shown}");
        let json: serde_json::Value = serde_json::from_str(&rig.ok(&format!("fs history -j {where_} {place}"))).unwrap();
        assert_eq!(json["versions"].as_array().unwrap().len(), 4);
    };
    check(&rig.text("mnt/home/file"), "");
    check("tank/home:/file", "");
    rig.ok("zpool export tank");
    let before = sum(&rig.path("a.img"));
    check("tank/home:/file", &format!("-d {}", rig.text("a.img")));
    let out = rig.text("out");
    rig.ok(&format!("fs at -d @a.img first tank/home:/d {out}"));
    assert_eq!(fs::read(rig.path("out/below/gone")).unwrap(), b"it was here");
    rig.refused("fs at -d @a.img none tank/home:/file", "@none");
    rig.refused("fs at -d @a.img 1 tank/home:/file", "the oldest group that is left");
    assert_eq!(sum(&rig.path("a.img")), before, "the image was written");
    assert!(rig.find_daemon().is_none());
    rig.zdb(&["a.img"]);
}

#[test]
fn what_was_deleted_is_listed_and_comes_back() {
    let Some(rig) = pool() else { return };
    let listed = rows(&rig.ok("fs undelete -H @mnt/home"));
    let paths: Vec<&str> = listed.iter().map(|row| row[3].as_str()).collect();
    assert_eq!(paths, ["/d/below/gone", "/short-lived"], "{listed:?}");
    assert_eq!((listed[0][2].as_str(), listed[0][1].as_str(), listed[1][1].as_str()), ("@second", "11", "300000"));
    assert!(listed[1][2].parse::<u64>().is_ok(), "only a group has it: {listed:?}");
    let below = rows(&rig.ok("fs undelete -H @mnt/home/d"));
    assert_eq!(below.len(), 1);
    fs::create_dir(rig.path("back")).unwrap();
    let said = rig.ok("fs undelete tank/home:/ @back");
    assert!(said.starts_with("2 copied to"), "{said}");
    assert_eq!(fs::read(rig.path("back/d/below/gone")).unwrap(), b"it was here");
    assert_eq!(fs::read(rig.path("back/short-lived")).unwrap(), vec![b'x'; 300_000]);
    // With its directory, too, and from a pool that nobody has.
    fs::remove_dir_all(rig.path("mnt/home/d")).unwrap();
    rig.ok("zpool export tank");
    let before = sum(&rig.path("a.img"));
    let paths: Vec<String> = rows(&rig.ok("fs undelete -H -d @a.img tank/home:/d")).into_iter().map(|row| row[3].clone()).collect();
    assert_eq!(paths, ["/d/", "/d/below/", "/d/below/gone"]);
    rig.ok("fs undelete -d @a.img tank/home:/d @again");
    assert_eq!(fs::read(rig.path("again/d/below/gone")).unwrap(), b"it was here");
    assert_eq!(sum(&rig.path("a.img")), before, "the image was written");
}

/// A user's link was brought back where an older directory had been, and what was in that went through the link: root wrote into `/etc`.
#[test]
fn what_was_deleted_does_not_come_back_through_a_link() {
    let Some(rig) = Rig::with_tank("a.img", 256 * MIB, "-O mountpoint=@mnt") else { return };
    fs::create_dir(rig.path("elsewhere")).unwrap();
    fs::write(rig.path("elsewhere/file"), "precious").unwrap();
    fs::create_dir(rig.path("mnt/d")).unwrap();
    for name in ["file", "other"] {
        fs::write(rig.path("mnt/d").join(name), "a user's").unwrap();
    }
    rig.ok("zpool sync tank");
    rig.ok("zfs snapshot tank@directory");
    fs::remove_dir_all(rig.path("mnt/d")).unwrap();
    symlink(rig.path("elsewhere"), rig.path("mnt/d")).unwrap();
    rig.ok("zpool sync tank");
    rig.ok("zfs snapshot tank@link");
    fs::remove_file(rig.path("mnt/d")).unwrap();
    rig.ok("zpool sync tank");
    let said = rig.run("fs undelete tank:/ @back");
    let in_the_way = |name: &str| said.err.contains(&format!("/d/{name}: '{}' is in the way", rig.text("back/d")));
    assert!(said.code == 1 && in_the_way("file") && in_the_way("other"), "{said:?}");
    assert_eq!(fs::read_link(rig.path("back/d")).unwrap(), rig.path("elsewhere"));
    assert_eq!(fs::read(rig.path("elsewhere/file")).unwrap(), b"precious");
    assert!(!rig.path("elsewhere/other").exists());
}

/// A directory came from its snapshot, and a file from the snapshot of an older version: what was written after that was left out, and nobody was told.
#[test]
fn what_was_deleted_comes_back_as_it_was_last() {
    let Some(rig) = Rig::with_tank("a.img", 256 * MIB, "-O mountpoint=@mnt") else { return };
    let write = |name: &str, text: &str| fs::write(rig.path("mnt").join(name), text).unwrap();
    fs::create_dir_all(rig.path("mnt/d/below")).unwrap();
    for name in ["d/kept", "d/changed", "d/below/early", "changed"] {
        write(name, "old");
    }
    rig.ok("zpool sync tank");
    rig.ok("zfs snapshot tank@first");
    fs::remove_file(rig.path("mnt/d/below/early")).unwrap();
    for name in ["d/changed", "changed", "d/new", "d/below/new"] {
        write(name, "it is newer");
    }
    rig.ok("zpool sync tank");
    fs::remove_dir_all(rig.path("mnt/d")).unwrap();
    fs::remove_file(rig.path("mnt/changed")).unwrap();
    rig.ok("zpool sync tank");
    rig.ok("fs undelete tank:/ @back");
    for (name, text) in [("d/kept", "old"), ("d/below/early", "old"), ("d/changed", "it is newer"), ("changed", "it is newer"), ("d/new", "it is newer"), ("d/below/new", "it is newer")] {
        assert_eq!(fs::read_to_string(rig.path("back").join(name)).ok().as_deref(), Some(text), "{name}");
    }
}

/// Each of them was copied over the one before, and the oldest was left.
#[test]
fn of_files_that_had_one_name_the_last_comes_back() {
    let Some(rig) = Rig::with_tank("a.img", 256 * MIB, "-O mountpoint=@mnt") else { return };
    for (text, snapshot) in [("one", "first"), ("two, longer", "second"), ("three, the last", "third")] {
        fs::write(rig.path("mnt/file"), text).unwrap();
        rig.ok("zpool sync tank");
        rig.ok(&format!("zfs snapshot tank@{snapshot}"));
        fs::remove_file(rig.path("mnt/file")).unwrap();
    }
    rig.ok("zpool sync tank");
    let listed = rows(&rig.ok("fs undelete -H tank:/"));
    assert!(listed.len() == 1 && listed[0][1..] == ["15", "@third", "/file"], "{listed:?}");
    let said = rig.ok("fs undelete tank:/ @back");
    assert!(said.starts_with("1 copied to"), "{said}");
    assert_eq!(fs::read(rig.path("back/file")).unwrap(), b"three, the last");
}

/// A damaged block is said by name, and the rest of the file is copied.
#[test]
fn what_of_a_file_can_be_read_is_copied() {
    let Some(rig) = Rig::new() else { return };
    rig.image("a.img", 128 * MIB);
    rig.ok("zpool create -O mountpoint=@mnt -O compression=off -O recordsize=16K tank @a.img");
    let record = |byte: u8| vec![byte; 16 << 10];
    let whole: Vec<u8> = [b'A', b'B', b'C', b'D'].into_iter().flat_map(record).collect();
    fs::write(rig.path("mnt/file"), &whole).unwrap();
    rig.ok("zfs snapshot tank@snap");
    rig.ok("zpool export tank");
    let image = fs::read(rig.path("a.img")).unwrap();
    let found: Vec<usize> = (0..image.len()).step_by(512).filter(|at| image[*at..*at + 512].iter().all(|byte| *byte == b'C')).collect();
    assert_eq!(found.len(), 32);
    let file = fs::OpenOptions::new().write(true).open(rig.path("a.img")).unwrap();
    file.write_all_at(b"!", found[1] as u64).unwrap();
    drop(file);
    let said = rig.run("fs at -d @a.img snap tank:/file @copy");
    assert!(said.code == 1 && said.err.contains("tank@snap:/file") && said.err.contains("bytes 32768 to 49151 are zeros"), "{said:?}");
    let copy = fs::read(rig.path("copy")).unwrap();
    let expected: Vec<u8> = [b'A', b'B', 0, b'D'].into_iter().flat_map(record).collect();
    assert!(copy == expected);
}

/// The words of `zfs diff`, on each kind of change.
#[test]
fn differences_in_the_words_of_openzfs() {
    let Some(rig) = Rig::new() else { return };
    rig.image("a.img", 256 * MIB);
    rig.ok("zpool create -O mountpoint=@mnt tank @a.img");
    rig.ok("zfs create tank/a");
    let root = rig.path("mnt/a");
    for name in ["modified", "deleted", "renamed", "linked", "replaced", "same", "od d\u{e4}"] {
        fs::write(root.join(name), "1").unwrap();
    }
    fs::create_dir(root.join("dir")).unwrap();
    rig.ok("zfs snapshot tank/a@1");
    fs::write(root.join("modified"), "2").unwrap();
    fs::write(root.join("od d\u{e4}"), "2").unwrap();
    fs::remove_file(root.join("deleted")).unwrap();
    fs::rename(root.join("renamed"), root.join("dir/new")).unwrap();
    fs::hard_link(root.join("linked"), root.join("link")).unwrap();
    fs::write(root.join("added"), "2").unwrap();
    symlink("x", root.join("symlink")).unwrap();
    let top = rig.text("mnt/a");
    let expected = |separator: &str| {
        let mut lines = vec![
            format!("M\t/\t{top}/"),
            format!("M\tF\t{top}/modified"),
            format!("-\tF\t{top}/deleted"),
            format!("R\tF\t{top}/renamed{separator}{top}/dir/new"),
            format!("M\tF\t{top}/linked\t(+1)"),
            format!("M\tF\t{top}/od\\0040d\\0303\\0244"),
            format!("M\t/\t{top}/dir"),
            format!("+\tF\t{top}/added"),
            format!("+\t@\t{top}/symlink"),
        ];
        lines.sort();
        lines
    };
    let sorted = |text: &str| {
        let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
        lines.sort();
        lines
    };
    let head = differences_of_head(&rig, "tank/a@1");
    assert_eq!(sorted(&head), expected(" -> "), "the head counts as it is now");
    rig.ok("zfs snapshot tank/a@2");
    for words in [["tank/a@1", "tank/a@2"], ["tank/a@1", "@2"], ["@1", "tank/a@2"], ["tank/a@1", "tank/a"]] {
        let said = run_for(rig.command("zfs diff -FH").args(words), LIMIT).unwrap();
        assert_eq!((said.code, sorted(&said.out)), (0, expected("\t")), "{words:?}: {}", said.err);
    }
    assert!(rig.ok("zfs diff -h tank/a@1").contains("/od d\u{e4}\n"));
    let timed = rig.ok("zfs diff -t tank/a@1 tank/a@2");
    assert!(timed.lines().all(|line| line.split('\t').next().unwrap().trim().split_once('.').unwrap().1.len() == 9), "{timed}");
    assert_eq!(rig.ok("zfs diff tank/a@2 tank/a@2"), "");
    rig.refused("zfs diff tank/a@2 tank/a@1", "Not an earlier snapshot from the same fs");
    rig.refused("zfs diff tank/a@none", "cannot open 'tank/a@none': dataset does not exist");
    rig.refused("zfs diff tank/a", "Badly formed snapshot name tank/a: invalid name");
    rig.refused("zfs diff", "must provide at least one snapshot name");
    // The same, of a pool that nobody has.
    rig.ok("zpool export tank");
    let shown = sorted(&rig.ok("fs diff -FH -d @a.img tank/a@1 tank/a@2").replace("\t/", &format!("\t{top}/")).replace(&format!("\t{top}/\t{top}/"), &format!("\t/\t{top}/")));
    assert_eq!(shown.len(), expected("\t").len(), "{shown:?}");
    rig.zdb(&["a.img"]);
}

/// Spoils the root of the newest group of a pool on one disk, all copies of it, and returns the group.
fn spoil_newest(path: &Path) -> u64 {
    let image = fs::read(path).unwrap();
    let word = |at: usize| u64::from_le_bytes(image[at..at + 8].try_into().unwrap());
    let slots = (0..2).flat_map(|label| (0..128).map(move |slot| label * (256 << 10) + (128 << 10) + slot * 1024));
    let newest = slots.filter(|at| word(*at) == 0x00ba_b10c).max_by_key(|at| word(at + 16)).unwrap();
    let file = fs::OpenOptions::new().write(true).open(path).unwrap();
    for address in (0..3).map(|copy| newest + 40 + copy * 16).filter(|at| word(*at) != 0) {
        let offset = (word(address + 8) & !(1 << 63)) * 512 + (4 << 20);
        file.write_all_at(&[0x55; 512], offset).unwrap();
    }
    word(newest + 16)
}

/// A pool of which the newest group cannot be read was not looked at at all.
#[test]
fn a_damaged_newest_group_hides_no_older_one() {
    let Some(rig) = pool() else { return };
    rig.ok("zfs set a:b=c tank/home");
    rig.ok("zpool export tank");
    let lost = spoil_newest(&rig.path("a.img"));
    let before = sum(&rig.path("a.img"));
    let warning = format!("txg {lost}, its newest, cannot be read");
    let ok = |words: &str| {
        let said = rig.run(words);
        assert!(said.code == 0 && said.err.contains(&warning), "{words}: {said:?}");
        said.out
    };
    let listed = rows(&ok("fs history -H -d @a.img tank/home:/file"));
    assert!(listed.len() == 4 && !listed.iter().any(|row| row[5].contains("now")), "{listed:?}");
    assert_eq!(ok("fs at -d @a.img second tank/home:/file"), "two, longer");
    assert_eq!(ok("fs at -d @a.img now tank/home:/file"), "four: and it is there now");
    let paths: Vec<String> = rows(&ok("fs undelete -H -d @a.img tank/home:/")).into_iter().map(|row| row[3].clone()).collect();
    assert_eq!(paths, ["/d/below/gone", "/short-lived"]);
    let changes = ok("fs diff -H -d @a.img tank/home@first tank/home@now");
    assert!(changes.contains("-\t/d/below/gone") && changes.contains("M\t/file"), "{changes}");
    assert_eq!(sum(&rig.path("a.img")), before, "the image was written");
}

/// Nobody said where a file system that was destroyed can still be had.
#[test]
fn a_destroyed_file_system_is_found_in_an_older_group() {
    let Some(rig) = Rig::new() else { return };
    rig.image("a.img", 64 * MIB);
    rig.ok("zpool create -O mountpoint=@mnt tank @a.img");
    rig.ok("zfs create tank/gone");
    fs::write(rig.path("mnt/gone/file"), "it was here").unwrap();
    rig.ok("zpool sync tank");
    rig.ok("zfs destroy tank/gone");
    rig.ok("zpool export tank");
    assert_eq!(rows(&rig.ok("fs history -H -d @a.img tank/gone:/file")).len(), 1);
    let shown = rig.ok("fs history -d @a.img tank/gone:/file");
    assert!(shown.contains(&format!("To copy one out: tarn fs at -d '{}' ", rig.text("a.img"))), "the hint works as it stands: {shown}");
    let said = rig.run("fs undelete -d @a.img tank/gone:/");
    let txg = said.err.split(" has it still").next().unwrap().rsplit(' ').next().unwrap().to_owned();
    assert!(said.code == 1 && said.err.contains("the dataset was destroyed") && txg.parse::<u64>().is_ok(), "{said:?}");
    rig.ok(&format!("fs at -d @a.img {txg} tank/gone:/ @back"));
    assert_eq!(fs::read(rig.path("back/file")).unwrap(), b"it was here");
    for verb in ["history", "undelete"] {
        rig.refused(&format!("fs {verb} -d @a.img tank/never:/file"), "dataset does not exist, and no group that is left has it");
    }
    rig.refused("fs history -d @nowhere tank/gone:/file", "No such file or directory");
}

/// A directory may be named by a link to it; what is newer than the newest group is said to be.
#[test]
fn links_to_directories_and_files_that_are_not_yet_on_disk() {
    let Some(rig) = pool() else { return };
    symlink(rig.path("mnt/home/d"), rig.path("outside")).unwrap();
    symlink("d", rig.path("mnt/home/inside")).unwrap();
    for place in ["@outside", "@mnt/home/inside", "@outside/../d"] {
        let listed = rows(&rig.ok(&format!("fs undelete -H {place}")));
        assert!(listed.len() == 1 && listed[0][3] == "/d/below/gone", "{place}: {listed:?}");
    }
    assert!(rig.ok("fs history @outside/below/gone").contains("tank/home:/d/below/gone\n"));
    // A group may be written at any time: one of some attempts is before it.
    let is_said = |attempt: u32| {
        fs::write(rig.path("mnt/home/new"), format!("{attempt}")).unwrap();
        rig.ok("fs history @mnt/home/new").contains("What is there now is not yet on disk: 'zpool sync tank' writes it.")
    };
    assert!((0..20).any(is_said));
    rig.ok("zpool sync tank");
    let shown = rig.ok("fs history @mnt/home/new");
    assert!(!shown.contains("not yet on disk") && shown.contains("now"), "{shown}");
}

/// The pool is read from its devices: a user who may not read these is told so, not that there is no such pool.
#[test]
fn other_users_see_the_past_if_they_may_read_the_devices() {
    const USER: u32 = 54_321;
    let Some(rig) = pool() else { return };
    fs::set_permissions(rig.path(""), fs::Permissions::from_mode(0o755)).unwrap();
    let program = rig.path("tarn");
    fs::copy(env!("CARGO_BIN_EXE_tarn"), &program).unwrap();
    let run = |words: &[&str]| {
        let mut command = Command::new(&program);
        command.args(words).env("TARN_SOCKET", rig.path("sock")).current_dir("/").uid(USER).gid(USER);
        run_for(&mut command, LIMIT).unwrap()
    };
    fs::set_permissions(rig.path("a.img"), fs::Permissions::from_mode(0o600)).unwrap();
    for words in [&["fs", "history", "tank/home:/file"][..], &["fs", "at", "now", "tank/home:/file"], &["fs", "diff", "tank/home@first", "@now"]] {
        let said = run(words);
        assert!(said.code == 1 && said.err.contains("this user may not read them") && said.out.is_empty(), "{words:?}: {said:?}");
    }
    fs::set_permissions(rig.path("a.img"), fs::Permissions::from_mode(0o644)).unwrap();
    assert_eq!(run(&["fs", "at", "@first", "tank/home:/file"]).out, "one");
}
