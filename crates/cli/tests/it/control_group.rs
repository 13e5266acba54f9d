//! A daemon in a real control group of little memory.

use std::fs::{self, File};
use std::io::Read;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread::sleep;
use std::time::Duration;

use sim::places::{say, skipped};

use crate::rig::{LIMIT, Rig, run_for};

const MB: u64 = 1 << 20;
const FILE_MB: u64 = 2048;
const GROUP_MB: u64 = 512;

/// A control group, below the one that this process is in, that ends with this.
struct Group {
    path: PathBuf,
    is_second_version: bool,
}

impl Group {
    fn make(limit: u64) -> Result<Group, String> {
        let groups = fs::read_to_string("/proc/self/cgroup").map_err(|error| error.to_string())?;
        let mut why = "no control groups for memory are mounted".to_owned();
        for line in groups.lines() {
            let mut parts = line.splitn(3, ':').skip(1);
            let (Some(controllers), Some(path)) = (parts.next(), parts.next()) else { continue };
            let tried: Vec<PathBuf> = if controllers.is_empty() {
                // Only a group without processes of its own may limit the memory of groups below it.
                let above = |mount: &str| Path::new(&format!("{mount}{path}")).ancestors().take_while(|at| at.starts_with(mount)).map(PathBuf::from).collect::<Vec<_>>();
                let gives = |at: &PathBuf| fs::read_to_string(at.join("cgroup.subtree_control")).is_ok_and(|text| text.split_whitespace().any(|word| word == "memory"));
                ["/sys/fs/cgroup", "/sys/fs/cgroup/unified"].into_iter().flat_map(above).filter(gives).collect()
            } else if controllers.split(',').any(|controller| controller == "memory") {
                vec![PathBuf::from(format!("/sys/fs/cgroup/memory{path}"))]
            } else {
                continue;
            };
            for parent in tried {
                let group = Group { path: parent.join(format!("tarn-it-{}", std::process::id())), is_second_version: controllers.is_empty() };
                let file = if group.is_second_version { "memory.max" } else { "memory.limit_in_bytes" };
                match fs::create_dir(&group.path).and_then(|()| fs::write(group.path.join(file), limit.to_string())) {
                    Ok(()) => return Ok(group),
                    Err(error) => why = format!("{}: {error}", group.path.display()),
                }
            }
        }
        Err(why)
    }

    fn number(&self, file: &str, name: &str) -> Option<u64> {
        let text = fs::read_to_string(self.path.join(file)).ok()?;
        text.lines().find_map(|line| line.strip_prefix(name)?.trim().parse().ok())
    }

    /// Processes that the kernel has killed for want of memory.
    fn killed(&self) -> u64 {
        let file = if self.is_second_version { "memory.events" } else { "memory.oom_control" };
        self.number(file, "oom_kill ").expect("the kernel says how many")
    }

    /// The same command, in this group.
    fn within(&self, command: &Command) -> Command {
        let mut inside = Command::new("sh");
        inside.args(["-c", "echo $$ > \"$0/cgroup.procs\" && exec \"$@\""]).arg(&self.path).arg(command.get_program()).args(command.get_args());
        for (name, value) in command.get_envs() {
            match value {
                Some(value) => inside.env(name, value),
                None => inside.env_remove(name),
            };
        }
        inside
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        for _ in 0..100 {
            if fs::remove_dir(&self.path).is_ok() || !self.path.exists() {
                return;
            }
            sleep(Duration::from_millis(100));
        }
    }
}

fn stamp(bytes: &mut [u8], number: u64) {
    bytes.chunks_exact_mut(4096).zip(number << 8..).for_each(|(page, number)| page[..8].copy_from_slice(&number.to_le_bytes()));
}

/// The cache was told that it may have four times as much as the group of its process.
#[test]
fn a_daemon_in_a_small_control_group_reads_four_times_as_much_and_lives() {
    // It ends after the daemon, which is in it.
    let group = match Group::make(GROUP_MB * MB) {
        Ok(group) => group,
        Err(why) => return skipped(&format!("a daemon in a control group of {GROUP_MB} MB: {why}")),
    };
    let Some(rig) = Rig::new() else { return };
    rig.image("img", (FILE_MB + 512) * MB);
    let mut create = rig.command("zpool create -O mountpoint=@mnt -O compression=off tank @img");
    create.env("TARN_CACHE", format!("{}M", 4 * GROUP_MB));
    let said = run_for(&mut group.within(&create), LIMIT).expect("it does not hang");
    assert_eq!(said.code, 0, "{said:?}");
    let daemon = rig.daemon();
    let members = fs::read_to_string(group.path.join("cgroup.procs")).unwrap();
    assert!(members.lines().any(|line| line == daemon.as_raw_nonzero().to_string()), "{members}");
    let counter = |name: &str| {
        let all: serde_json::Value = serde_json::from_str(&rig.ok("arcstat -j tank")).unwrap();
        all["pools"]["tank"][name].as_u64().unwrap()
    };
    // Limits are rounded, to parts of what the cache was given.
    let bounds = (GROUP_MB - 8) * MB * 3 / 4..=GROUP_MB * MB * 3 / 4;
    rig.wait("the cache knows its group", || bounds.contains(&counter("c_max")));
    let (path, mut bytes) = (rig.path("mnt/file"), vec![7; MB as usize]);
    let file = File::create(&path).unwrap();
    for number in 0..FILE_MB {
        stamp(&mut bytes, number);
        file.write_all_at(&bytes, number * MB).unwrap();
    }
    file.sync_all().unwrap();
    drop(file);
    // What the kernel has of it goes.
    rig.ok("zfs unmount tank");
    rig.ok("zfs mount tank");
    for round in 0..2 {
        let (mut file, mut back) = (File::open(&path).unwrap(), vec![0; MB as usize]);
        for number in 0..FILE_MB {
            stamp(&mut bytes, number);
            file.read_exact(&mut back).unwrap();
            assert!(back == bytes, "round {round}, megabyte {number}");
        }
        drop(file);
        rig.ok("zfs unmount tank");
        rig.ok("zfs mount tank");
        let (size, most) = (counter("size"), counter("c"));
        assert!(size <= most && most <= GROUP_MB * MB * 3 / 4, "{size} bytes are cached, {most} may be");
        assert_eq!((group.killed(), rig.daemon()), (0, daemon));
    }
    let status = fs::read_to_string(format!("/proc/{}/status", daemon.as_raw_nonzero())).unwrap();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")?.trim().trim_end_matches(" kB").parse::<u64>().ok()).unwrap() >> 10;
    say(&format!("control group: {} MB, version {}: peak of the daemon {peak} MB, cache {} MB", GROUP_MB, if group.is_second_version { 2 } else { 1 }, counter("size") >> 20));
    assert!(peak <= GROUP_MB, "{peak} MB");
    rig.finish("tank", &["img"]);
    rig.kill();
}
