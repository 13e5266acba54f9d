//! The command lines of tools that people replicate and prune snapshots with, in the order of a normal cycle, through a shell and links named `zfs`
//! and `zpool`, as the tools run them; and what each tool looks for in the answer. `cargo xtask tools` runs the tools themselves.

use std::collections::HashMap;
use std::fs;
use std::os::unix::fs::symlink;
use std::process::Command;

use crate::rig::{LIMIT, Rig, Said, run_for};

const MIB: u64 = 1 << 20;
/// Of the large file: a stream of it is cut in its middle.
const LARGE_BYTES: usize = 6 << 20;

/// Two pools, `tanka/data` with files and a child, and a shell that has the links in its path.
struct Host {
    rig: Rig,
}

impl Host {
    fn new() -> Option<Host> {
        let rig = Rig::new()?;
        fs::create_dir(rig.path("bin")).unwrap();
        for link in ["zfs", "zpool"] {
            symlink(env!("CARGO_BIN_EXE_tarn"), rig.path("bin").join(link)).unwrap();
        }
        for (pool, image) in [("tanka", "a.img"), ("tankb", "b.img")] {
            rig.image(image, 256 * MIB);
            rig.ok(&format!("zpool create -O mountpoint=@{pool} {pool} @{image}"));
        }
        let host = Host { rig };
        host.ok("zfs create tanka/data && zfs create tanka/data/home");
        host.write("tanka/data/file", "first");
        host.write("tanka/data/home/file", "at home");
        fs::write(host.rig.path("tanka/data/large"), noise(1)).unwrap();
        Some(host)
    }

    /// What a shell says to a line; nothing comes in.
    #[track_caller]
    fn run(&self, line: &str) -> Said {
        let path = std::env::var("PATH").unwrap_or_default();
        let mut command = Command::new("bash");
        command.arg("-c").arg(line).env("PATH", format!("{}:{path}", self.rig.text("bin")));
        command.env("TARN_SOCKET", self.rig.path("sock")).env_remove("TARN_LOG_FILE").env("TARN_LOG", "info");
        run_for(&mut command, LIMIT).unwrap_or_else(|| panic!("{line} hangs\n{}", self.rig.log()))
    }

    /// A line that must succeed; what it prints.
    #[track_caller]
    fn ok(&self, line: &str) -> String {
        let said = self.run(line);
        assert!(said.code == 0, "{line}: {said:?}\n{}", self.rig.log());
        said.out
    }

    /// A line that must end with a status; all that it says.
    #[track_caller]
    fn fails(&self, line: &str, code: i32) -> String {
        let said = self.run(line);
        assert_eq!(said.code, code, "{line}: {said:?}\n{}", self.rig.log());
        said.err + &said.out
    }

    fn write(&self, file: &str, text: &str) {
        fs::write(self.rig.path(file), text).unwrap();
    }

    #[track_caller]
    fn same(&self, one: &str, other: &str) {
        let (one, other) = (self.rig.path(one), self.rig.path(other));
        let said = run_for(Command::new("diff").arg("-r").arg(&one).arg(&other), LIMIT).unwrap();
        assert_eq!((said.code, said.out.as_str()), (0, ""), "{said:?}");
    }

    /// The files of the dataset itself.
    #[track_caller]
    fn same_files(&self, one: &str, other: &str) {
        for file in ["file", "large"] {
            self.same(&format!("{one}/{file}"), &format!("{other}/{file}"));
        }
    }

    /// Both pools are let go, and the real zdb finds nothing wrong in them.
    fn end(self) {
        self.ok("zpool export tanka && zpool export tankb");
        self.rig.zdb(&["a.img"]);
        self.rig.zdb(&["b.img"]);
    }
}

/// Bytes that nothing compresses.
fn noise(seed: u64) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()
    };
    (0..LARGE_BYTES / 8).flat_map(|_| next()).collect()
}

fn is_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

/// The fields of each line.
fn rows(text: &str) -> Vec<Vec<&str>> {
    text.lines().map(|line| line.split('\t').collect()).collect()
}

/// syncoid's table of snapshots: by name, guid and time.
#[track_caller]
fn syncoid_versions(host: &Host, kind: &str, dataset: &str) -> HashMap<String, (String, String)> {
    let said = host.ok(&format!("zfs get -Hpd 1 -t {kind} guid,creation '{dataset}' 2>&1"));
    let mut found: HashMap<String, (String, String)> = HashMap::new();
    for row in rows(&said) {
        let [name, property, value, source] = row[..] else { panic!("{row:?}") };
        assert!(is_number(value) && source == "-", "{row:?}");
        let short = name.split_once(['@', '#']).unwrap().1;
        let entry = found.entry(short.to_owned()).or_default();
        if property == "guid" { entry.0 = value.to_owned() } else { entry.1 = value.to_owned() }
    }
    found
}

/// syncoid's size of what will be sent: the last field of the last line.
#[track_caller]
fn syncoid_size(host: &Host, words: &str) -> u64 {
    let said = host.ok(&format!("zfs send -nvP {words} 2>&1"));
    let last = said.lines().last().unwrap();
    last.rsplit('\t').next().unwrap().parse().unwrap_or_else(|_| panic!("{said}"))
}

#[test]
fn syncoid_replicates_resumes_and_prunes() {
    let Some(host) = Host::new() else { return };
    for pool in ["tanka", "tankb"] {
        host.ok(&format!(r"zpool get -o value -H feature@extensible_dataset {pool} 2>/dev/null | grep '\(active\|enabled\)'"));
    }
    assert_eq!(host.ok("zfs list -d0 -H -oname"), "tanka\ntankb\n");
    assert_eq!(host.fails("zfs get -H name 'tankb/copy' 2>&1", 1), "cannot open 'tankb/copy': dataset does not exist\n");
    assert!(host.ok("zfs get -H name 'tanka/data' 2>&1").starts_with("tanka/data"));
    assert_eq!(host.ok("zfs list -o name,origin -t filesystem,volume -Hr 'tanka/data'"), "tanka/data\t-\ntanka/data/home\t-\n");
    assert_eq!(host.ok("zfs get -H syncoid:sync 'tanka/data'"), "tanka/data\tsyncoid:sync\t-\t-\n");
    assert!(syncoid_versions(&host, "snapshot", "tanka/data").is_empty());
    // Full.
    let (first, second) = ("syncoid_host_2026-11-26:01:00:00-GMT00:00", "syncoid_host_2026-11-26:02:00:00-GMT00:00");
    host.ok(&format!("zfs snapshot 'tanka/data'@'{first}'"));
    assert!(syncoid_size(&host, &format!("'tanka/data'@'{first}'")) > LARGE_BYTES as u64);
    host.ok(&format!("zfs send 'tanka/data'@'{first}' | zfs receive -s -F 'tankb/copy'"));
    assert_eq!(host.ok("zfs get -H receive_resume_token 'tankb/copy'"), "tankb/copy\treceive_resume_token\t-\t-\n");
    let used = host.ok("zfs get -Hp used 'tankb/copy'");
    assert!(is_number(rows(&used)[0][2]), "{used}");
    assert_eq!(syncoid_versions(&host, "snapshot", "tanka/data"), syncoid_versions(&host, "snapshot", "tankb/copy"), "guids are those of the source");
    // Incremental, with all between.
    host.write("tanka/data/file", "second");
    host.ok("zfs snapshot 'tanka/data'@'between'");
    host.ok(&format!("zfs snapshot 'tanka/data'@'{second}'"));
    let range = format!("-I 'tanka/data'@'{first}' 'tanka/data'@'{second}'");
    assert!((1..100_000).contains(&syncoid_size(&host, &range)));
    host.ok(&format!("zfs send {range} | zfs receive -s -F 'tankb/copy' 2>&1"));
    host.same("tanka/data/file", "tankb/copy/file");
    assert_eq!(syncoid_versions(&host, "snapshot", "tankb/copy").len(), 3);
    // Cut, and resumed by the token.
    fs::write(host.rig.path("tanka/data/large"), noise(2)).unwrap();
    host.ok("zfs snapshot 'tanka/data'@'cut'");
    let cut = format!("zfs send -I 'tanka/data'@'{second}' 'tanka/data'@'cut' | head -c 3000000 | zfs receive -s -F 'tankb/copy' 2>&1");
    let said = host.run(&cut);
    assert!(said.code != 0 && said.out.contains("cannot receive incremental stream: checksum mismatch or incomplete stream."), "{said:?}");
    let token = host.ok("zfs get -H receive_resume_token 'tankb/copy'");
    let token = rows(&token)[0][2].to_owned();
    assert!(token.starts_with("1-"), "{token}");
    let left = syncoid_size(&host, &format!("-t {token}"));
    assert!((1_000_000..LARGE_BYTES as u64).contains(&left), "{left}");
    host.ok(&format!("zfs send -t {token} | zfs receive -s -F 'tankb/copy' 2>&1"));
    assert_eq!(host.ok("zfs get -H receive_resume_token 'tankb/copy'"), "tankb/copy\treceive_resume_token\t-\t-\n");
    host.same_files("tanka/data", "tankb/copy");
    // Cut, and the snapshot is gone: given up.
    fs::write(host.rig.path("tanka/data/large"), noise(3)).unwrap();
    host.ok("zfs snapshot 'tanka/data'@'doomed'");
    let said = host.run("zfs send -i 'tanka/data'@'cut' 'tanka/data'@'doomed' | head -c 3000000 | zfs receive -s -F 'tankb/copy' 2>&1");
    assert_ne!(said.code, 0, "{said:?}");
    let token = rows(&host.ok("zfs get -H receive_resume_token 'tankb/copy'"))[0][2].to_owned();
    host.ok("zfs destroy 'tanka/data'@doomed");
    let said = host.run(&format!("zfs send -t {token} 2>&1 >/dev/null"));
    assert!(said.code != 0 && said.out.contains("used in the initial send no longer exists"), "{said:?}");
    let busy = host.run("zfs snapshot 'tanka/data'@'next'; zfs send -i 'tanka/data'@'cut' 'tanka/data'@'next' | zfs receive -s 'tankb/copy' 2>&1");
    assert!(busy.code != 0 && busy.out.contains("contains partially-complete state"), "{busy:?}");
    host.ok("zfs receive -A 'tankb/copy'");
    assert!(host.fails("zfs receive -A 'tankb/copy' 2>&1", 1).contains("does not have any resumable receive state to abort"));
    // From a bookmark, onto a target that is rolled back first.
    host.ok("zfs bookmark 'tanka/data'@'cut' 'tanka/data'#'cut'");
    let (bookmarks, snapshots) = (syncoid_versions(&host, "bookmark", "tanka/data"), syncoid_versions(&host, "snapshot", "tanka/data"));
    assert_eq!(bookmarks["cut"].0, snapshots["cut"].0);
    assert!(syncoid_versions(&host, "bookmark", "tankb/copy").is_empty());
    host.write("tankb/copy/file", "changed here");
    host.ok("zfs rollback -R 'tankb/copy'@'cut'");
    host.ok("zfs destroy 'tanka/data'@cut");
    host.ok("zfs send -i 'tanka/data'#'cut' 'tanka/data'@'next' | zfs receive -s -F 'tankb/copy' 2>&1");
    host.same_files("tanka/data", "tankb/copy");
    host.ok("zfs set syncoid:sync=false 'tankb/copy'");
    // Pruned, both sides; a file comes back from what is left.
    host.ok(&format!("zfs destroy 'tanka/data'@{first}; zfs destroy 'tanka/data'@{second}; "));
    host.ok(&format!("zfs destroy 'tankb/copy'@{first}; "));
    let restored = format!("tankb/copy/.zfs/snapshot/{second}/file");
    assert_eq!(fs::read(host.rig.path(&restored)).unwrap(), b"second");
    assert!(host.fails(&format!("zfs destroy 'tankb/copy'@{first} 2>&1"), 1).contains("could not find any snapshots to destroy; check snapshot names."));
    host.end();
}

#[test]
fn sanoid_takes_prunes_and_watches() {
    let Some(host) = Host::new() else { return };
    host.ok("zfs snapshot -r tanka/data@autosnap_2026-11-26_01:00:00_hourly");
    host.ok("zfs snapshot tanka/data@autosnap_2026-11-26_01:00:00_daily");
    // Of everything: `FS@autosnap_..ly`, tabs, `creation`, tabs, digits.
    let cache = host.ok("zfs get -Hrpt snapshot creation");
    let found: Vec<&str> = rows(&cache).iter().map(|row| { assert!(row.len() == 4 && row[1] == "creation" && is_number(row[2]), "{row:?}"); row[0] }).collect();
    let expected = ["tanka/data@autosnap_2026-11-26_01:00:00_hourly", "tanka/data@autosnap_2026-11-26_01:00:00_daily", "tanka/data/home@autosnap_2026-11-26_01:00:00_hourly"];
    let sorted = |mut names: Vec<&str>| { names.sort_unstable(); names.into_iter().map(str::to_owned).collect::<Vec<_>>() };
    assert_eq!(sorted(found), sorted(expected.to_vec()));
    assert_eq!(host.ok("zfs list -o name -t filesystem,volume -Hr tanka/data"), "tanka/data\ntanka/data/home\n");
    host.ok("zfs destroy tanka/data@autosnap_2026-11-26_01:00:00_hourly");
    assert!(!host.ok("zfs get -Hrpt snapshot creation").contains("tanka/data@autosnap_2026-11-26_01:00:00_hourly\t"));
    // Its health check splits at spaces.
    let listed = host.ok("zpool list -o name,size,cap,health,free tanka");
    let row: Vec<&str> = listed.lines().nth(1).unwrap().split_whitespace().collect();
    assert!(row.len() == 5 && row[0] == "tanka" && row[2].ends_with('%') && row[3] == "ONLINE", "{listed}");
    let capacity = host.ok("zpool list -H -o cap tanka");
    assert!(is_number(capacity.trim_end().strip_suffix('%').unwrap()), "{capacity}");
    // It knows the levels of `zpool status` by the white space before them: a tab and 0, 2, 4 spaces.
    let image = host.rig.image("c.img", 64 * MIB);
    host.rig.image("d.img", 64 * MIB);
    host.ok(&format!("zpool create -O mountpoint=none tankc mirror {image} {}", host.rig.text("d.img")));
    let status = host.ok("zpool status tankc");
    let config: Vec<&str> = status.lines().skip_while(|line| !line.starts_with("\tNAME")).take_while(|line| !line.is_empty()).collect();
    assert_eq!(config[0].split_whitespace().collect::<Vec<_>>(), ["NAME", "STATE", "READ", "WRITE", "CKSUM"]);
    let levels: Vec<(&str, &str)> = config[1..].iter().map(|line| line.split_at(line.find(|letter: char| !letter.is_whitespace()).unwrap())).collect();
    let levels: Vec<(&str, &str)> = levels.into_iter().map(|(before, name)| (before, name.split_whitespace().next().unwrap())).collect();
    let name = |name: &str| host.rig.text(name);
    let (c, d) = (name("c.img"), name("d.img"));
    assert_eq!(levels, [("\t", "tankc"), ("\t  ", "mirror-0"), ("\t    ", c.as_str()), ("\t    ", d.as_str())], "{status}");
    host.ok("zpool export tankc");
    host.end();
}

#[test]
fn zfs_autobackup_selects_sends_and_thins() {
    let Some(host) = Host::new() else { return };
    let test = "zfs_autobackup_option_test";
    for option in ["-L", "-e", "-c"] {
        host.fails(&format!("zfs send {option} {test} 2>/dev/null"), 1);
    }
    host.fails(&format!("zfs recv -s {test} 2>/dev/null </dev/null"), 1);
    host.fails(&format!("zfs send -Z {test} 2>/dev/null"), 2);
    host.ok("zfs set autobackup:test=true tanka/data");
    let selected = host.ok("zfs get -t volume,filesystem -o name,value,source -H autobackup:test");
    let expected = ["tanka\t-\t-", "tanka/data\ttrue\tlocal", "tanka/data/home\ttrue\tinherited from tanka/data", "tankb\t-\t-"];
    assert_eq!(selected.lines().collect::<Vec<_>>(), expected);
    for row in rows(&host.ok("zpool get -H -p all tanka")) {
        assert_eq!((row.len(), row[0]), (4, "tanka"), "{row:?}");
    }
    assert_eq!(host.ok("zfs list -d 1 -r -t snapshot -H -o name tanka/data"), "");
    host.ok("zfs snapshot tanka/data@test-20261126010000 tanka/data/home@test-20261126010000");
    host.fails("zfs list tankb/backup 2>/dev/null", 1);
    host.ok("zfs create -o canmount=off tankb/backup && zfs create -o canmount=off tankb/backup/tanka");
    let properties = host.ok("zfs get -H -o property,value -p all tanka/data");
    assert!(rows(&properties).iter().all(|row| row.len() == 2) && properties.lines().any(|line| line == "type\tfilesystem"), "{properties}");
    for (dataset, snapshot) in [("tanka/data", "tanka/data@test-20261126010000"), ("tanka/data/home", "tanka/data/home@test-20261126010000")] {
        let line = format!("set -o pipefail; zfs send -L -e -c -v -P -p {snapshot} | zfs recv -u -x mountpoint -o canmount=noauto -v -s tankb/backup/{dataset}");
        host.ok(&line);
        host.ok(&format!("zfs hold zfs_autobackup:test {snapshot}"));
        host.ok(&format!("zfs hold zfs_autobackup:test tankb/backup/{snapshot}"));
    }
    assert_eq!(host.ok("zfs get -H -o value canmount tankb/backup/tanka/data"), "noauto\n");
    assert_eq!(rows(&host.ok("zfs holds -H tanka/data@test-20261126010000"))[0][1], "zfs_autobackup:test");
    // Only what has changed is sent again.
    let written = |snapshot: &str| host.ok(&format!("zfs get -H -ovalue -p written@{snapshot} tanka/data")).trim_end().parse::<u64>().unwrap();
    assert_eq!(written("test-20261126010000"), 0);
    fs::write(host.rig.path("tanka/data/large"), noise(2)).unwrap();
    host.ok("zpool sync tanka");
    assert!(written("test-20261126010000") > LARGE_BYTES as u64);
    host.ok("zfs snapshot tanka/data@test-20261126020000 tanka/data/home@test-20261126020000");
    let send = "zfs send -L -e -c -v -P -p -i @test-20261126010000 tanka/data@test-20261126020000";
    let said = host.run(&format!("{send} | head -c 3000000 | zfs recv -u -x mountpoint -o canmount=noauto -v -s tankb/backup/tanka/data"));
    assert_ne!(said.code, 0, "{said:?}");
    let token = host.ok("zfs get -H -o value -p receive_resume_token tankb/backup/tanka/data");
    let contents = host.ok(&format!("zfs send -t {} -n -v", token.trim_end()));
    assert!(contents.lines().any(|line| line.contains("toname = tanka/data@test-20261126020000")), "{contents}");
    let resumed = format!("set -o pipefail; zfs send -L -e -c -v -P -t {} | zfs recv -u -v -s tankb/backup/tanka/data", token.trim_end());
    host.ok(&resumed);
    // Held: not thinned until it is released.
    assert!(host.fails("zfs destroy tanka/data@test-20261126010000 2>&1", 1).contains("it's being held. Run 'zfs holds -r tanka/data@test-20261126010000' to see holders."));
    host.ok("zfs release zfs_autobackup:test tanka/data@test-20261126010000");
    host.fails("zfs release zfs_autobackup:test tanka/data@test-20261126010000 2>/dev/null", 1);
    host.ok("zfs destroy -d tanka/data@test-20261126010000");
    assert_eq!(host.ok("zfs list -r -t snapshot -o name -H -d 1 tanka/data"), "tanka/data@test-20261126020000\n");
    // A file comes back from a clone of the backup.
    host.ok("zfs clone tankb/backup/tanka/data@test-20261126020000 tankb/look");
    host.same_files("tanka/data", "tankb/look");
    host.ok("zfs destroy tankb/look");
    let said = host.run("zfs mount tankb/backup/tanka/data");
    assert!(said.code <= 1, "{said:?}");
    for (dataset, snapshot) in [("tankb/backup/tanka/data", "test-20261126010000"), ("tanka/data/home", "test-20261126010000"), ("tankb/backup/tanka/data/home", "test-20261126010000")] {
        host.ok(&format!("zfs release zfs_autobackup:test {dataset}@{snapshot}"));
    }
    host.end();
}

#[test]
fn zrepl_lists_plans_sends_and_resumes() {
    let Some(host) = Host::new() else { return };
    // It asks usages for what there is.
    for (line, words) in [
        ("zfs receive", "-A <filesystem|volume>"),
        ("zfs destroy", "<filesystem|volume>@<snap>[%<snap>][,...]"),
        ("zfs send", "receive_resume_token"),
    ] {
        let said = host.fails(&format!("{line} 2>&1"), 2);
        assert!(said.contains(words), "{line}: {said}");
    }
    // Without keys there is no such word, and zrepl plans no raw streams.
    assert!(!host.fails("zfs load-key 2>&1", 1).contains("keylocation"));
    let feature = host.ok("zpool get -H -p -o value feature@extensible_dataset tanka");
    assert!(["active\n", "enabled\n"].contains(&feature.as_str()), "{feature}");
    let datasets = host.ok("zfs list -H -p -o name -r -t filesystem,volume");
    assert_eq!(datasets, "tanka\ntanka/data\ntanka/data/home\ntankb\n");
    host.ok("zfs snapshot tanka/data@zrepl_1");
    let versions = "zfs list -H -p -o name,guid,createtxg,creation,userrefs -r -d 1 -t bookmark,snapshot -s createtxg tanka/data";
    let listed = host.ok(versions);
    let listed = rows(&listed);
    assert!(listed.len() == 1 && listed[0].len() == 5 && listed[0][1..].iter().all(|field| is_number(field)), "{listed:?}");
    let guid = host.ok("zfs get -Hp -o name,property,value,source createtxg,guid,creation,userrefs tanka/data@zrepl_1");
    assert!(rows(&guid).len() == 4 && guid.lines().all(|line| line.ends_with("\t-")), "{guid}");
    let said = host.fails("zfs get -Hp -o name,property,value,source guid tankb/none 2>&1", 1);
    assert_eq!(said, "cannot open 'tankb/none': dataset does not exist\n");
    // A place for what comes, full, with a size that was said before.
    host.ok("zfs create -o zrepl:placeholder=on -o mountpoint=none tankb/sink");
    let plan = host.ok("zfs send -n -v -P -p tanka/data@zrepl_1 2>&1");
    assert!(rows(&plan).iter().any(|row| row.len() == 3 && row[..2] == ["full", "tanka/data@zrepl_1"] && is_number(row[2])), "{plan}");
    host.ok("set -o pipefail; zfs send -p tanka/data@zrepl_1 | zfs recv -s -o canmount=off -x mountpoint tankb/sink/data");
    for line in ["zfs hold zrepl_last_received tankb/sink/data@zrepl_1", "zfs bookmark tanka/data@zrepl_1 tanka/data#zrepl_CURSOR_1"] {
        host.ok(line);
    }
    assert!(host.fails("zfs hold zrepl_last_received tankb/sink/data@zrepl_1 2>&1", 1).contains("tag already exists on this dataset"));
    assert_eq!(rows(&host.ok("zfs holds -H tankb/sink/data@zrepl_1"))[0][1], "zrepl_last_received");
    assert!(host.fails("zfs bookmark tanka/data@zrepl_1 tanka/data#zrepl_CURSOR_1 2>&1", 1).starts_with("cannot create bookmark 'tanka/data#zrepl_CURSOR_1': bookmark exists"));
    let listed = host.ok(versions);
    let names: Vec<&str> = rows(&listed).iter().map(|row| row[0]).collect();
    assert_eq!(names.len(), 2, "{listed}");
    assert!(names.contains(&"tanka/data#zrepl_CURSOR_1"), "{listed}");
    // Incremental from the bookmark, cut and resumed.
    fs::write(host.rig.path("tanka/data/large"), noise(2)).unwrap();
    host.ok("zfs snapshot tanka/data@zrepl_2");
    let plan = host.ok("zfs send -n -v -P -p -i tanka/data@zrepl_1 tanka/data@zrepl_2 2>&1");
    let is_step = |row: &Vec<&str>| row.len() == 4 && row[0] == "incremental" && row[2] == "tanka/data@zrepl_2" && is_number(row[3]);
    assert!(rows(&plan).iter().any(is_step), "{plan}");
    let said = host.run("zfs send -p -i tanka/data#zrepl_CURSOR_1 tanka/data@zrepl_2 | head -c 3000000 | zfs recv -s tankb/sink/data");
    let words: Vec<&str> = said.err.split_whitespace().collect();
    let told = words.windows(4).find(|four| four[..3] == ["zfs", "send", "-t"]).map(|four| four[3]);
    assert!(said.code == 1 && said.err.contains("A resuming stream can be generated on the sending system by running:"), "{said:?}");
    let token = host.ok("zfs get -Hp -o name,property,value,source receive_resume_token tankb/sink/data");
    assert_eq!(Some(rows(&token)[0][2]), told, "{said:?}");
    let contents = host.ok(&format!("zfs send -nvt {} 2>&1", told.unwrap()));
    assert!(contents.contains("resume token contents:\nnvlist version: 0\n"), "{contents}");
    for key in ["toguid = 0x", "fromguid = 0x", "toname = tanka/data@zrepl_2"] {
        assert!(contents.lines().any(|line| line.starts_with(&format!("\t{key}"))), "{key}: {contents}");
    }
    assert!(host.fails("zfs send -nvt 1-junk 2>&1", 255).contains("resume token is corrupt"));
    host.ok(&format!("set -o pipefail; zfs send -t {} | zfs recv -s tankb/sink/data", told.unwrap()));
    let said = host.fails("head -c 100 /dev/zero | zfs recv -s tankb/sink/other", 1);
    assert!(said.contains("cannot receive:"), "{said}");
    // Pruned several at a time; what is held stays, and is named.
    host.ok("zfs snapshot tankb/sink/data@a && zfs snapshot tankb/sink/data@b && zfs snapshot tankb/sink/data@c");
    let said = host.fails("zfs destroy tankb/sink/data@a,zrepl_1,none 2>&1", 1);
    assert_eq!(said, "cannot destroy snapshot tankb/sink/data@zrepl_1: it's being held. Run 'zfs holds -r tankb/sink/data@zrepl_1' to see holders.\n");
    host.ok("zfs destroy tankb/sink/data@a,b,c");
    assert!(host.fails("zfs destroy tankb/sink/data@none 2>&1", 1).starts_with("could not find any snapshots to destroy; check snapshot names."));
    assert!(host.fails("zfs destroy tanka/data#none 2>&1", 1).starts_with("bookmark 'tanka/data#none' does not exist"));
    host.ok("zfs release zrepl_last_received tankb/sink/data@zrepl_1");
    assert!(host.fails("zfs release zrepl_last_received tankb/sink/data@zrepl_1 2>&1", 1).contains("no such tag on this dataset"));
    host.ok("zfs destroy tanka/data#zrepl_CURSOR_1");
    host.ok("zfs rollback tankb/sink/data@zrepl_2");
    host.end();
}

/// The listings of others, which count the columns: a line, and how many columns each line of its answer has.
const LISTINGS: [(&str, usize); 26] = [
    // zfs-auto-snapshot
    ("zfs list -H -t filesystem,volume -s name -o name,com.sun:auto-snapshot,com.sun:auto-snapshot:daily", 3),
    ("zfs list -H -t snapshot -S creation -o name", 1),
    ("zfs get -Hp -o value written tanka/data", 1),
    // znapzend
    ("zfs list -H -o name -t snapshot -s creation -d 1 tanka/data", 1),
    ("zfs get -H -s local -t filesystem,volume -o property,value all tanka/data", 2),
    // bzfs
    ("zfs list -t snapshot -d 1 -s createtxg -Hp -o guid,name tanka/data", 2),
    ("zfs list -t filesystem -Hp -s name -o snapshots_changed,volblocksize,recordsize,name -r tanka", 4),
    ("zfs list -t bookmark,snapshot -d 1 -Hp -s createtxg -s type -o createtxg,guid,name tanka/data", 3),
    ("zpool get -Hp -o property,value all tanka", 2),
    // pyznap and zxfer
    ("zfs list -H -o name,type -t filesystem,volume,snapshot -r tanka", 2),
    ("zfs get -Hpo property,value,source all tanka/data", 3),
    ("zfs list -Ho mountpoint tanka/data", 1),
    // Proxmox
    ("zfs list -o name,volsize,origin,type,refquota -t volume,filesystem -d1 -Hp tanka", 5),
    ("zfs get -o value -Hp available,used tanka", 1),
    ("zfs list -Hp -r -t snapshot -o name,guid,creation tanka/data", 3),
    ("zpool list -o name -H tanka", 1),
    // Incus
    ("zfs list -H -p -o name,type,incus:content_type -r -t filesystem,volume,snapshot tanka", 3),
    ("zfs get -H -p -r -o value clones tanka/data@one", 1),
    // go-zfs: moby, containerd, podman
    ("zfs list -rHp -t filesystem -o name,origin,used,available,mountpoint,compression,type,volsize,quota,referenced,written,logicalused,usedbydataset tanka", 13),
    ("zpool get -Hp name,health,allocated,size,free,readonly,dedupratio,fragmentation,freeing,leaked tanka", 4),
    // openebs and democratic-csi
    ("zfs list -d 1 -s name -o name,guid,available,used -H -p tanka", 4),
    ("zfs get -H -p -o name,property,value,received,source all tanka/data", 5),
    // zfs_exporter
    ("zpool get -Hpo name,property,value allocated,dedupratio,fragmentation,free,freeing,health,leaked,readonly,size tanka", 3),
    ("zfs get -Hprt filesystem -o name,property,value available,logicalused,quota,referenced,used,usedbydataset,written tanka", 3),
    // netdata, of which the first is the header's
    ("zpool list -H -p tanka", 11),
    // sanoid's findoid
    ("zfs list -H -t filesystem -o name,mountpoint", 2),
];

#[test]
fn the_listings_of_others_have_the_columns_that_they_count() {
    let Some(host) = Host::new() else { return };
    host.ok("zfs snapshot -r tanka@one && zfs bookmark tanka/data@one tanka/data#mark && zfs set org.znapzend:enabled=on tanka/data");
    for (line, columns) in LISTINGS {
        let said = host.ok(line);
        assert!(!said.is_empty() && rows(&said).iter().all(|row| row.len() == columns), "{line}: {said}");
    }
    // zfs-auto-snapshot makes and prunes so, Proxmox sends so, and zfs_autobackup asks for the version so.
    host.ok("zfs snapshot -o com.sun:auto-snapshot-desc='-' -r 'tanka/data@zfs-auto-snap_daily-2026-11-26-0100'");
    host.ok("zfs destroy -d -r 'tanka/data@zfs-auto-snap_daily-2026-11-26-0100'");
    let said = host.run("set -o pipefail; zfs send -RpvU -- tanka/data@one 2>/dev/null | zfs recv -F -x encryption -- tankb/moved");
    assert_eq!((said.code, said.err.as_str()), (0, ""), "keys are not inherited where there are none");
    host.same("tanka/data", "tankb/moved");
    let version = host.ok("zfs --version");
    assert!(version.lines().count() == 2 && version.starts_with("zfs-") && version.lines().nth(1).unwrap().starts_with("zfs-kmod-"), "{version}");
    host.ok("LC_MESSAGES=C LC_DATE=C zpool status -v tanka | grep -q 'errors: No known data errors'");
    host.end();
}
