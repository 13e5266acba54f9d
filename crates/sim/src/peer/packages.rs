//! Packages of streams, which the command sends: with properties, holds, and what is below a file system.
//!
//! # Theory
//! The pool is exported, and a daemon of its own imports it without mounting anything. What the sender's file systems say of themselves when a package
//! is sent is kept: what was set there must be what was received here.

use std::collections::BTreeMap;
use std::fs::File;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};

/// The file systems below [`TREE`], of which one is a clone.
pub(super) const BELOW: [&str; 3] = ["", "/k", "/clone"];
/// What is sent.
pub(super) const TREE: &str = "tank/tree";

/// A package: how it is sent, the dataset that it goes into, flags of the receive, snapshots that are there then.
pub(super) struct Package {
    pub(super) words: &'static str,
    pub(super) dataset: &'static str,
    pub(super) flags: &'static str,
    pub(super) snapshots: &'static [&'static str],
    /// The file systems that are in it, of [`BELOW`].
    pub(super) below: &'static [&'static str],
}

const ALL: &[&str] = &BELOW;

/// In the order in which they are sent and received.
pub(super) const PACKAGES: [Package; 9] = [
    Package { words: "-p tank/tree@r1", dataset: "p", flags: "", snapshots: &["r1"], below: &[""] },
    Package { words: "-p -I @r1 tank/tree@r3", dataset: "p", flags: "-F", snapshots: &["r1", "r2", "r3"], below: &[""] },
    Package { words: "-R tank/tree@r2", dataset: "R", flags: "", snapshots: &["r1", "r2"], below: ALL },
    Package { words: "-R -i @r2 tank/tree@r3", dataset: "R", flags: "-F", snapshots: &["r1", "r2", "r3"], below: ALL },
    Package { words: "-R -L -e -c tank/tree@r3", dataset: "RLec", flags: "", snapshots: &["r1", "r2", "r3"], below: ALL },
    Package { words: "-R -w tank/tree@r3", dataset: "Rw", flags: "", snapshots: &["r1", "r2", "r3"], below: ALL },
    Package { words: "-R -h tank/tree@r3", dataset: "Rh", flags: "", snapshots: &["r1", "r2", "r3"], below: ALL },
    Package { words: "-R -X tank/tree/clone tank/tree@r3", dataset: "RX", flags: "", snapshots: &["r1", "r2", "r3"], below: &["", "/k"] },
    Package { words: "-R -I @r2 tank/tree@r3", dataset: "RX2", flags: "!", snapshots: &[], below: &[] },
];

/// What is set on the sender's side, before the package of that number.
const SETTINGS: [(usize, &str); 11] = [
    (0, "compression=zstd-3 atime=off recordsize=64K tarn:text=some tank/tree"),
    (0, "quota=3G tank/tree"),
    (0, "checksum=sha256 copies=2 devices=off tank/tree/k"),
    (0, "snapdir=visible dnodesize=auto tank/tree/clone"),
    (0, "tarn:of=r1 tank/tree@r1"),
    (1, "atime=on tarn:more=x tank/tree"),
    (1, "tarn:of=r2 tank/tree@r2"),
    (3, "exec=off tank/tree/k"),
    (3, "tarn:late=yes tank/tree@r2"),
    (4, "compression=gzip-3 tank/tree"),
    (5, "refquota=2G tank/tree/clone"),
];

/// The command, for a daemon of its own.
struct Sender<'p> {
    tarn: &'p Path,
    place: &'p Path,
}

impl Sender<'_> {
    fn command(&self, words: &str) -> Command {
        let mut command = Command::new(self.tarn);
        command.args(words.split(' ')).stdin(Stdio::null()).env("TARN_SOCKET", self.place.join("sock"));
        command
    }

    fn ok(&self, words: &str) -> Result<String> {
        let output = self.command(words).output()?;
        ensure!(output.status.success(), "tarn {words}: {}", String::from_utf8_lossy(&output.stderr));
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    fn send(&self, package: &Package, to: &Path) -> Result<()> {
        let mut command = self.command(&format!("zfs send {}", package.words));
        let status = command.stdout(File::create(to)?).status()?;
        ensure!(status.success(), "zfs send {}", package.words);
        Ok(())
    }
}

/// What file systems and snapshots say of themselves, by name below the dataset that a package went into.
pub(super) type Facts = BTreeMap<String, Vec<String>>;

/// Sends all, from the exported pool in `images`, into `directory`; `named` says which file is next. Returns for each dataset what was set
/// and held when its last package was sent.
pub(super) fn send(tarn: &Path, place: &Path, images: &Path, named: &mut dyn FnMut(&Package) -> std::path::PathBuf) -> Result<Facts> {
    let sender = Sender { tarn, place };
    sender.ok(&format!("zpool import -N -d {} tank", images.display()))?;
    let sent = send_all(&sender, named);
    sender.ok("zpool export tank").context("after the packages")?;
    sent
}

fn send_all(sender: &Sender<'_>, named: &mut dyn FnMut(&Package) -> std::path::PathBuf) -> Result<Facts> {
    sender.ok("zfs hold keep tank/tree@r1")?;
    let mut facts = Facts::new();
    for (number, package) in PACKAGES.iter().enumerate() {
        for (_, words) in SETTINGS.iter().filter(|(at, _)| *at == number) {
            sender.ok(&format!("zfs set {words}"))?;
        }
        sender.send(package, &named(package))?;
        if package.flags.contains('!') {
            continue;
        }
        let said = sender.ok("zfs get -Hpr -s local -t filesystem,snapshot -o name,property,value all tank/tree")?;
        let is_in = |name: &str| {
            let (below, snapshot) = name.split_once('@').map_or((name, None), |(below, snapshot)| (below, Some(snapshot)));
            package.below.contains(&below) && snapshot.is_none_or(|snapshot| package.snapshots.contains(&snapshot))
        };
        facts.insert(package.dataset.to_owned(), below(&said, TREE, &is_in));
    }
    Ok(facts)
}

/// Lines of what `zfs get` said, without the name of the root, in their order.
fn below(said: &str, root: &str, is_in: &dyn Fn(&str) -> bool) -> Vec<String> {
    let own = said.lines().filter_map(|line| line.strip_prefix(root));
    let mut lines: Vec<String> = own.filter(|line| is_in(line.split('\t').next().unwrap_or_default())).map(str::to_owned).collect();
    // Where something is mounted is the receiver's.
    lines.retain(|line| !line.contains("\tmountpoint\t"));
    lines.sort();
    lines
}

/// How many packages' properties are not what was set, of what the kernel module says of its pool.
pub(super) fn judge(facts: &Facts, said: &str) -> usize {
    let mut differences = 0;
    for (dataset, ours) in facts {
        let root = format!("recv/{dataset}");
        let is_own = |name: &str| name.is_empty() || name.starts_with(['/', '@']);
        let theirs = below(said, &root, &is_own);
        for line in ours.iter().filter(|line| !theirs.contains(line)) {
            println!("WRONG {root}: not received: {line}");
            differences += 1;
        }
        for line in theirs.iter().filter(|line| !ours.contains(line)) {
            println!("WRONG {root}: received, and not set: {line}");
            differences += 1;
        }
        println!("{root}: {} properties were compared", ours.len());
    }
    differences
}
