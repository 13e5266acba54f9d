//! Streams of ours, of every kind, received by the kernel module in one boot: each must be taken, and what it becomes must be what was sent.
//!
//! # Path
//! `cargo xtask oracle streams` → [`run`]

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};
use engine::dsl::{NewBookmark, NewSnapshots};
use engine::stream::{SendOptions, Sender, redact};

use super::contents::{a_little_of_everything, access_lists};
use super::packages::{self, BELOW, Facts, PACKAGES, Package, TREE};
use crate::golden::{Compare, Manifest, compare, open_images};
use crate::places;
use crate::scenario::{Layout, Rig, contents};

const GUEST: &str = include_str!("guest-streams.sh");
const MIB: u64 = 1 << 20;
/// For the whole boot, on a busy machine.
const SECONDS: u64 = 5400;
/// What a copy elsewhere has in common with the original.
const RECEIVED: Compare = Compare { inodes: true, allocated: false, segments: true, changed: true, projects: true, properties: &["guid", "creation"] };

/// File systems, each with what is special about it.
const FILE_SYSTEMS: [(&str, &[(&str, &str)]); 12] = [
    ("plain", &[("compression", "off")]),
    ("small", &[("recordsize", "4096"), ("compression", "lz4")]),
    ("large", &[("recordsize", "1048576"), ("compression", "lz4")]),
    ("zstd", &[("compression", "zstd"), ("recordsize", "65536")]),
    ("gzip", &[("compression", "gzip-6")]),
    ("zle", &[("compression", "zle"), ("recordsize", "16384")]),
    ("dnodes", &[("dnodesize", "2048"), ("xattr", "sa")]),
    ("blake3", &[("checksum", "blake3"), ("recordsize", "8192")]),
    ("sha512", &[("checksum", "sha512")]),
    ("copies", &[("copies", "2"), ("recordsize", "32768")]),
    ("acl", &[("acltype", "posix"), ("xattr", "sa")]),
    ("dirs", &[("xattr", "on"), ("recordsize", "512")]),
];

/// A stream: its file, where it goes, and how.
struct Sent {
    file: String,
    dataset: String,
    flags: &'static str,
}

struct Streams {
    rig: Rig,
    directory: PathBuf,
    sent: Vec<Sent>,
    /// Snapshots there, and what they were here.
    compared: Vec<(String, String)>,
    /// What the senders of packages say of themselves.
    facts: Facts,
}

impl Streams {
    fn new(place: &Path) -> Result<Streams> {
        let directory = place.join("streams");
        fs::create_dir_all(&directory)?;
        let mut rig = Rig::create(Layout { bytes: 2048 * MIB, ..Layout::default() }, &[]);
        for (number, (name, words)) in FILE_SYSTEMS.iter().enumerate() {
            let dataset = format!("tank/{name}");
            rig.create_file_system(&dataset, words);
            for (round, snapshot) in ["a", "b", "c"].iter().enumerate() {
                let mut actor = rig.actor(&dataset);
                a_little_of_everything(&mut actor, &format!("d{round}"), (10 * number + round) as u64 + 1);
                if *name == "acl" {
                    access_lists(&mut actor, &format!("d{round}"));
                }
                if round > 0 {
                    actor.write("d0/f8", 70_000 * round, &[round as u8; 90_000]);
                    actor.truncate("d0/f9", 10_000 * round);
                    actor.punch("d0/f6", 8192, 50_000);
                }
                take(&rig, &format!("{dataset}@{snapshot}"))?;
            }
            let bookmark = NewBookmark { name: format!("{dataset}#a"), source: format!("{dataset}@a") };
            ensure!(rig.pool().engine().dsl.snapshot_verbs().create_bookmarks(vec![bookmark])?.is_empty(), "{dataset}#a");
        }
        rig.pool().clone_dataset("tank/plain@b", "tank/clone", Vec::new())?;
        let files = rig.pool().file_system("tank/clone")?;
        let root = tarnfs::Credentials::root();
        let inode = files.create(files.root(), b"of-the-clone", 0o100_644, 0, &root)?.inode;
        files.write(inode, tarnfs::WriteMode::At(5000), &[7; 300_000], &root)?;
        files.release_all();
        take(&rig, "tank/clone@x")?;
        tree(&mut rig)?;
        Ok(Streams { rig, directory, sent: Vec::new(), compared: Vec::new(), facts: Facts::new() })
    }

    /// Sends one, to be received into `dataset`.
    fn send(&mut self, (dataset, flags): (&str, &'static str), snapshot: &str, from: Option<&str>, options: &SendOptions) -> Result<()> {
        let file = format!("{:03}-{dataset}", self.sent.len());
        let mut out = fs::File::create(self.directory.join(&file))?;
        Sender::new(&self.rig.pool().engine().dsl, snapshot, from, options)?.send(&mut out, &|| false)?;
        if options.redact.is_none() && !flags.contains('!') {
            self.compare(&format!("recv/{dataset}"), snapshot);
        }
        self.sent.push(Sent { file, dataset: dataset.to_owned(), flags });
        Ok(())
    }

    fn compare(&mut self, received: &str, snapshot: &str) {
        let short = snapshot.split('@').nth(1).unwrap_or_default();
        self.compared.push((format!("{received}@{short}"), snapshot.to_owned()));
    }

    /// What the command sends.
    fn packages(&mut self, tarn: &Path, place: &Path) -> Result<()> {
        self.rig.export();
        let images = self.rig.images().first().and_then(|image| image.parent()).context("the images")?.to_owned();
        let mut sent = Vec::new();
        let (directory, before) = (self.directory.clone(), self.sent.len());
        let mut named = |package: &Package| {
            let file = format!("{:03}-{}", before + sent.len(), package.dataset);
            sent.push(Sent { file: file.clone(), dataset: package.dataset.to_owned(), flags: package.flags });
            directory.join(file)
        };
        self.facts = packages::send(tarn, place, &images, &mut named)?;
        self.sent.append(&mut sent);
        // Of several into the same dataset the last one says what is there.
        let last: BTreeMap<&str, &Package> = PACKAGES.iter().map(|package| (package.dataset, package)).collect();
        for package in last.values() {
            for below in package.below {
                // A clone has only what came after its origin.
                let snapshots = package.snapshots.iter().filter(|snapshot| *below != "/clone" || **snapshot != "r1");
                for snapshot in snapshots {
                    self.compare(&format!("recv/{}{below}", package.dataset), &format!("{TREE}{below}@{snapshot}"));
                }
            }
        }
        self.rig.import();
        Ok(())
    }

    fn all(&mut self) -> Result<()> {
        let plain = SendOptions { large_blocks: true, ..SendOptions::default() };
        let (embedded, compressed) = (SendOptions { embedded: true, ..plain.clone() }, SendOptions { compressed: true, ..plain.clone() });
        let all = SendOptions { embedded: true, ..compressed.clone() };
        for (name, _) in FILE_SYSTEMS {
            let snapshot = |short: &str| format!("tank/{name}@{short}");
            for (kind, options) in [("full", &plain), ("e", &embedded), ("c", &compressed), ("Lec", &all)] {
                self.send((&format!("{name}-{kind}"), ""), &snapshot("a"), None, options)?;
            }
            let (one, other) = (format!("{name}-full"), format!("{name}-Lec"));
            self.send((&one, ""), &snapshot("b"), Some(&snapshot("a")), &plain)?;
            self.send((&one, ""), &snapshot("c"), Some(&snapshot("b")), &all)?;
            self.send((&other, ""), &snapshot("c"), Some(&format!("tank/{name}#a")), &all)?;
        }
        // Without -L large blocks become small ones.
        self.send(("large-noL", ""), "tank/large@b", None, &SendOptions::default())?;
        self.send(("plain-clone", ""), "tank/clone@x", Some("tank/plain@b"), &plain)?;
        self.resumed(&all)?;
        self.redacted(&plain)
    }

    /// Cut, and the rest.
    fn resumed(&mut self, options: &SendOptions) -> Result<()> {
        let whole = self.directory.join("whole");
        let snapshot = "tank/small@b";
        let dsl = self.rig.pool().engine().dsl.clone();
        Sender::new(&dsl, snapshot, None, options)?.send(&mut fs::File::create(&whole)?, &|| false)?;
        let bytes = fs::read(&whole)?;
        fs::remove_file(&whole)?;
        // We receive it, too: that says where it goes on.
        let half = &bytes[..bytes.len() / 2];
        let target = engine::dsl::ReceiveTarget { dataset: "tank/half".into(), snapshot: "b".into(), resumable: true, ..Default::default() };
        let reader = engine::stream::StreamReader::new(std::io::Cursor::new(half.to_vec()));
        let receiving = engine::stream::receive::Receiving::open(reader, engine::stream::Progress::default())?;
        ensure!(receiving.receive(&dsl, target, |_, _| ()).1.is_err(), "it is cut");
        let dataset = dsl.open_dataset("tank/half")?;
        let field = |name: &str| dsl.meta.mos.zap_u64(dataset.object, name).map(Option::unwrap_or_default);
        let resume = Some((field("com.delphix:resume_object")?, field("com.delphix:resume_offset")?));
        drop(dataset);
        dsl.receiving().abort_receive("tank/half")?;
        let file = format!("{:03}-resumed", self.sent.len());
        fs::write(self.directory.join(&file), half)?;
        self.sent.push(Sent { file, dataset: "resumed".into(), flags: "-s !" });
        self.send(("resumed", "-s"), snapshot, None, &SendOptions { resume, ..options.clone() })
    }

    fn redacted(&mut self, options: &SendOptions) -> Result<()> {
        let dsl = self.rig.pool().engine().dsl.clone();
        for clone in ["tank/secret1", "tank/secret2"] {
            self.rig.pool().clone_dataset("tank/small@b", clone, Vec::new())?;
            let (files, user) = (self.rig.pool().file_system(clone)?, tarnfs::Credentials::root());
            let d0 = files.lookup(files.root(), b"d0")?.inode;
            files.unlink(d0, b"f7")?;
            let inode = files.lookup(d0, b"f9")?.inode;
            files.write(inode, tarnfs::WriteMode::At(8192), &[1; 20_000], &user)?;
            files.release_all();
            drop(files);
            take(&self.rig, &format!("{clone}@s"))?;
        }
        redact(&dsl, "tank/small@b", "book", &["tank/secret1@s".to_owned(), "tank/secret2@s".to_owned()])?;
        self.send(("redacted", ""), "tank/small@b", None, &SendOptions { redact: Some("book".into()), ..options.clone() })?;
        self.send(("unredacted", "-o origin=recv/redacted@b"), "tank/secret1@s", Some("tank/small#book"), options)
    }
}

/// A tree of file systems with three generations of snapshots, and a clone in it.
fn tree(rig: &mut Rig) -> Result<()> {
    for name in [TREE, "tank/tree/k"] {
        rig.create_file_system(name, &[]);
    }
    for (round, snapshot) in ["r1", "r2", "r3"].iter().enumerate() {
        for (number, below) in BELOW.iter().enumerate().filter(|(_, below)| round > 0 || **below != "/clone") {
            let mut actor = rig.actor(&format!("{TREE}{below}"));
            actor.file(&format!("f{round}"), &contents(90 + number as u64, 100_000 * (round + 1), 0));
            actor.setxattr(&format!("f{round}"), "user.round", snapshot.as_bytes());
        }
        let names = BELOW.iter().filter(|below| round > 0 || **below != "/clone").map(|below| format!("{TREE}{below}@{snapshot}"));
        take_all(rig, names.collect())?;
        if round == 0 {
            rig.pool().clone_dataset("tank/tree/k@r1", "tank/tree/clone", Vec::new())?;
            rig.adopt("tank/tree/clone");
        }
    }
    Ok(())
}

fn take(rig: &Rig, name: &str) -> Result<()> {
    take_all(rig, vec![name.to_owned()])
}

fn take_all(rig: &Rig, names: Vec<String>) -> Result<()> {
    let name = names.join(" ");
    let new = NewSnapshots { names, properties: Vec::new() };
    ensure!(rig.pool().engine().dsl.snapshot_verbs().create_snapshots(new)?.is_empty(), "{name}");
    Ok(())
}

/// Makes streams, packages with the program `tarn`, has the kernel module receive them, and compares. Everything is left in `place`.
///
/// # Errors
/// Something is wrong.
pub fn run(place: &Path, tarn: &Path) -> Result<()> {
    let shared = |path: &str| places::in_shared(path).with_context(|| format!("no ../shared/{path}"));
    let (machine, manifest) = (shared("oracle/vm/run")?, shared("oracle/golden/guest/manifest.py")?);
    let mut streams = Streams::new(place)?;
    streams.all()?;
    streams.packages(tarn, place)?;
    let plan: String = streams.sent.iter().map(|sent| format!("{} {} {}\n", sent.file, sent.dataset, sent.flags)).collect();
    let (script, plan_file, seen) = (place.join("guest.sh"), place.join("plan"), place.join("seen"));
    fs::write(&script, GUEST)?;
    fs::write(&plan_file, plan)?;
    fs::create_dir_all(&seen)?;
    println!("{} streams go to the kernel module", streams.sent.len());
    let mut command = Command::new(machine);
    command.args(["-m", "10240", "-t", &SECONDS.to_string(), "-o"]).arg(&seen).arg(&script).arg(manifest).arg(&plan_file).arg(&streams.directory);
    command.env("ORACLE_BOOT_S", "600");
    let status = command.status()?;
    ensure!(status.code() != Some(97), "the virtual machine cannot run: {status}");
    let differences = judge(&mut streams, &seen)?;
    ensure!(differences == 0, "{differences} differences");
    ensure!(status.success(), "the kernel module found something wrong: {status} (what it said is above)");
    Ok(())
}

/// How many things differ.
fn judge(streams: &mut Streams, seen: &Path) -> Result<usize> {
    let theirs = Manifest::read(&seen.join("manifest.json"))?;
    streams.rig.export();
    streams.rig.check("what was sent");
    let pool = open_images(&streams.rig.images())?;
    let (mut compared, mut differences) = (0, 0);
    for (name, original) in &streams.compared {
        let name = name.as_str();
        let mut manifest = theirs.clone();
        let Some(record) = theirs.datasets.iter().find(|record| record.name == name) else { bail!("{name} is not in the kernel module's manifest") };
        let mut record = record.clone();
        record.name.clone_from(original);
        (manifest.pool.name, manifest.datasets) = ("tank".to_owned(), vec![record]);
        let report = compare(pool.as_ref(), &manifest, RECEIVED)?;
        ensure!(report.datasets == 1, "{name} was not compared");
        let is_expected = |line: &&String| line.ends_with("is not in the manifest") || line.contains(": .: ino ") || line.contains(": holey: data");
        for line in report.differences.iter().filter(|line| !is_expected(line)) {
            println!("WRONG {name}: {line}");
            differences += 1;
        }
        compared += 1;
    }
    println!("{compared} received snapshots were compared with what was sent: {differences} differences");
    let said = |file: &str| fs::read_to_string(seen.join(file)).with_context(|| format!("{file}: the kernel module did not come so far"));
    differences += packages::judge(&streams.facts, &said("properties")?);
    if said("holds")?.trim() != "recv/Rh@r1\tkeep" {
        println!("WRONG holds: {}", said("holds")?);
        differences += 1;
    }
    Ok(differences)
}
