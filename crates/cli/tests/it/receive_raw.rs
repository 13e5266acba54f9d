//! `zfs receive` of streams that were sent raw, of encrypted datasets: no key is there, and all is kept as it came.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use ondisk::nvlist::{NvList, Value};
use ondisk::stream::RECORD_SIZE;
use sim::golden::Golden;
use sim::scenario::{encode_stream, stream_records};

use crate::rig::{Rig, Said};
use crate::stream::golden as streams_of_openzfs;

const MIB: u64 = 1 << 20;

struct Receiver {
    rig: Rig,
    streams: PathBuf,
    directory: tempfile::TempDir,
}

impl Receiver {
    fn new() -> Option<Receiver> {
        let directory = tempfile::tempdir().expect("a directory");
        let streams = streams_of_openzfs(directory.path())?;
        let rig = Rig::new()?;
        rig.image("a.img", 512 * MIB);
        rig.ok("zpool create -O mountpoint=@mnt tank @a.img");
        Some(Receiver { rig, streams, directory })
    }

    fn golden(&self, name: &str) -> PathBuf {
        self.streams.join(format!("{name}.zfs"))
    }

    fn receive(&self, words: &str, stream: &Path) -> Said {
        let output = self.rig.command(words).stdin(File::open(stream).expect("the stream")).output().expect("tarn");
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        Said { code: output.status.code().unwrap_or(-1), out: text(&output.stdout), err: text(&output.stderr) }
    }

    #[track_caller]
    fn received(&self, words: &str, stream: &Path) {
        let said = self.receive(words, stream);
        assert_eq!((said.code, said.err.as_str()), (0, ""), "tarn {words} < {stream:?}: {}\n{}", said.out, self.rig.log());
    }

    #[track_caller]
    fn refused(&self, words: &str, stream: &Path, message: &str) {
        let said = self.receive(words, stream);
        assert!(said.code == 1 && said.err.contains(message), "tarn {words} < {stream:?}: {} {}{}\n{}", said.code, said.out, said.err, self.rig.log());
    }

    /// What `zfs send` makes of these words.
    #[track_caller]
    fn sent(&self, words: &str) -> PathBuf {
        let path = self.directory.path().join("sent");
        let output = self.rig.command(words).stdout(File::create(&path).expect("a file")).output().expect("tarn");
        assert!(output.status.success(), "tarn {words}: {}", String::from_utf8_lossy(&output.stderr));
        path
    }

    /// The records of a stream, without what another pool may have otherwise: the name, how blocks are verified, the sums.
    fn records(&self, stream: &Path) -> Vec<String> {
        let output = self.rig.command(&format!("stream dump -v {}", stream.display())).output().expect("tarn");
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let is_same_everywhere = |line: &&str| ["OBJECT", "FREE", "WRITE", "SPILL", "\tguid", "\tkey", "\tDSL", "\tportable", "\tto_ivset", "\tmdn"].iter().any(|word| line.contains(word));
        let plain = |line: &str| line.split(' ').scan("", |before, word| Some(match std::mem::replace(before, word) { "type" | "flags" => "", _ => word })).collect::<Vec<_>>().join(" ");
        let line = |line: &str| if line.starts_with("WRITE") { plain(&line.replace("type = ", "type ").replace("flags = ", "flags ")) } else { line.to_owned() };
        text.lines().filter(is_same_everywhere).map(line).collect()
    }

    #[track_caller]
    fn same(&self, one: &Path, other: &Path, what: &str) {
        let (one, other) = (self.records(one), self.records(other));
        assert!(one.len() > 50, "{what}: {} records", one.len());
        let differs = one.iter().zip(&other).find(|(one, other)| one != other);
        assert!(differs.is_none() && one.len() == other.len(), "{what}: {} and {} records, {differs:?}", one.len(), other.len());
    }

    fn finish(self) {
        self.rig.finish("tank", &["a.img"]);
    }
}

#[test]
fn what_was_sent_raw_is_kept_as_it_came() {
    let Some(to) = Receiver::new() else { return };
    to.received("zfs receive tank/e", &to.golden("raw"));
    to.received("zfs receive tank/e", &to.golden("raw-incr"));
    let facts = "encryption,encryptionroot,keyformat,keylocation,keystatus,mounted";
    let said = to.rig.ok(&format!("zfs get -Ho value {facts} tank/e"));
    assert_eq!(said, "aes-256-gcm\ntank/e\nraw\nprompt\nunavailable\nno\n");
    assert_eq!(to.rig.ok("zfs list -Ht snapshot -o name -r tank/e"), "tank/e@a\ntank/e@b\n");
    let said = to.rig.run("zfs mount tank/e");
    assert_eq!((said.code, said.err.as_str()), (1, "cannot mount 'tank/e': encryption key not loaded\n"));
    to.rig.refused("zfs mount -l tank/e", "cannot mount 'tank/e': encryption is not yet supported");
    // Nobody expects that it is mounted where it belongs now.
    to.rig.ok("zfs set mountpoint=@other tank/e");
    to.rig.ok("zfs inherit mountpoint tank/e");
    let first = to.sent("zfs send -w tank/e@a");
    to.same(&to.golden("raw"), &first, "full");
    let second = to.sent("zfs send -w -i tank/e@a tank/e@b");
    to.same(&to.golden("raw-incr"), &second, "incremental");
    // Another pool gets it from here, below what is encrypted too.
    let first = to.sent("zfs send -w tank/e@b");
    to.received("zfs receive tank/e/copy", &first);
    let again = to.directory.path().join("first");
    fs::copy(&first, &again).expect("a copy");
    to.same(&again, &to.sent("zfs send -w tank/e/copy@b"), "the copy");
    // What is locked can be destroyed, renamed and rolled back.
    to.rig.ok("zfs rollback -r tank/e@a");
    to.received("zfs receive tank/e", &to.golden("raw-incr"));
    to.rig.ok("zfs rename tank/e/copy tank/other");
    to.rig.ok("zfs destroy -r tank/other");
    to.rig.ok("zpool export tank");
    to.rig.ok("zpool import -d @ tank");
    to.same(&to.golden("raw-incr"), &to.sent("zfs send -w -i tank/e@a tank/e@b"), "after an import");
    to.finish();
}

/// What is sent of a whole tree has its keys in the same relation.
#[test]
fn keys_of_a_package_stay_in_relation() {
    let Some(to) = Receiver::new() else { return };
    let Some(golden) = Golden::find("encrypt").expect("a golden pool") else { return };
    to.rig.ok(&format!("zpool import -o readonly=on -N -d {} g_encrypt", golden.directory().display()));
    let package = to.sent("zfs send -Rw g_encrypt/pass@e");
    to.received("zfs receive tank/pass", &package);
    let facts = to.rig.ok("zfs get -Hro name,value -t filesystem encryptionroot,keylocation tank/pass");
    let expected = [
        ("tank/pass", "tank/pass", "file:///run/keys/pass"),
        ("tank/pass/changed", "tank/pass/changed", "file:///run/keys/new.key"),
        ("tank/pass/child", "tank/pass", "none"),
    ];
    let lines: String = expected.iter().map(|(name, root, place)| format!("{name}\t{root}\n{name}\t{place}\n")).collect();
    assert_eq!(facts, lines);
    for name in ["pass", "pass/changed", "pass/child"] {
        let theirs = to.directory.path().join("theirs");
        fs::copy(to.sent(&format!("zfs send -w g_encrypt/{name}@e")), &theirs).expect("a copy");
        to.same(&theirs, &to.sent(&format!("zfs send -w tank/{name}@e")), name);
    }
    to.rig.ok("zpool export g_encrypt");
    to.finish();
}

/// A package in whose list what it says of a dataset is changed.
fn with_described(package: &[u8], name: &str, change: fn(&mut NvList)) -> Vec<u8> {
    let payload_bytes = u32::from_le_bytes(package[4..8].try_into().expect("four bytes")) as usize;
    let (head, streams) = package.split_at(2 * RECORD_SIZE + payload_bytes);
    let mut records = stream_records(head);
    let (begin, payload) = &mut records[0];
    let mut list = NvList::decode(payload).expect("a list");
    let Some(Value::List(all)) = list.get_mut("fss") else { panic!("no datasets") };
    let guids: Vec<String> = all.iter().filter_map(|(guid, _)| guid.to_str().map(str::to_owned)).collect();
    for guid in guids {
        if let Some(Value::List(described)) = all.get_mut(&guid)
            && described.str("name") == Some(name)
        {
            change(described);
        }
    }
    *payload = list.encode_native();
    begin.begin_payload_bytes = payload.len() as u32;
    let mut changed = encode_stream(&records);
    changed.extend_from_slice(streams);
    changed
}

/// The sender gave a file system a key of its own, and took that of another away, between two packages. The keys came as they were wrapped by then, and the roots
/// stayed: no key could be loaded here any more.
#[test]
fn keys_that_the_sender_changed_stay_in_relation() {
    let Some(to) = Receiver::new() else { return };
    let Some(golden) = Golden::find("encrypt").expect("a golden pool") else { return };
    to.rig.ok(&format!("zpool import -o readonly=on -N -d {} g_encrypt", golden.directory().display()));
    to.received("zfs receive tank/pass", &to.sent("zfs send -Rw g_encrypt/pass@e"));
    to.rig.ok("zpool export g_encrypt");
    to.received("zfs receive tank/copy", &to.sent("zfs send -Rw tank/pass@e"));
    let facts = |name: &str| to.rig.ok(&format!("zfs get -Ho value encryptionroot,keylocation tank/copy{name}"));
    assert_eq!(facts("/child"), "tank/copy\nnone\n");
    to.rig.ok("zfs snapshot -r tank/pass@f");
    let package = fs::read(to.sent("zfs send -Rw -i tank/pass@e tank/pass@f")).expect("a package");
    let package = with_described(&package, "tank/pass/child", |list| list.set_flag("is_encroot"));
    let package = with_described(&package, "tank/pass/changed", |list| assert!(list.remove("is_encroot")));
    let path = to.directory.path().join("changed");
    fs::write(&path, package).expect("a package");
    to.received("zfs receive tank/copy", &path);
    assert_eq!(facts(""), "tank/copy\nfile:///run/keys/pass\n");
    assert_eq!(facts("/child"), "tank/copy/child\nprompt\n");
    assert_eq!(facts("/changed"), "tank/copy\nnone\n");
    // And back again.
    to.rig.ok("zfs snapshot -r tank/pass@g");
    to.received("zfs receive tank/copy", &to.sent("zfs send -Rw -i tank/pass@f tank/pass@g"));
    assert_eq!(facts("/child"), "tank/copy\nnone\n");
    assert_eq!(facts("/changed"), "tank/copy/changed\nfile:///run/keys/new.key\n");
    to.finish();
}

/// A clone shares the object with the key of its origin. When it was promoted, that still named the old file system as the encryption root; and when that one was
/// destroyed, nobody could load the key any more.
#[test]
fn a_promoted_clone_is_the_encryption_root() {
    let Some(to) = Receiver::new() else { return };
    let Some(golden) = Golden::find("encrypt").expect("a golden pool") else { return };
    to.rig.ok(&format!("zpool import -o readonly=on -N -d {} g_encrypt", golden.directory().display()));
    let package = to.sent("zfs send -Rw g_encrypt/pass@e");
    to.received("zfs receive tank/pass", &package);
    to.rig.ok("zpool export g_encrypt");
    to.rig.ok("zfs snapshot tank/pass@f");
    let more = to.sent("zfs send -w -i tank/pass@e tank/pass@f");
    to.received("zfs receive -o origin=tank/pass@e tank/clone", &more);
    let facts = |names: &str| to.rig.ok(&format!("zfs get -Ho value encryptionroot,keylocation {names}"));
    assert_eq!(facts("tank/clone"), "tank/pass\nnone\n");
    to.rig.ok("zfs promote tank/clone");
    assert_eq!(facts("tank/clone"), "tank/clone\nfile:///run/keys/pass\n");
    assert_eq!(facts("tank/pass"), "tank/clone\nnone\n");
    assert_eq!(facts("tank/pass/child"), "tank/clone\nnone\n");
    assert_eq!(facts("tank/pass/changed"), "tank/pass/changed\nfile:///run/keys/new.key\n", "what has its own key keeps it");
    to.rig.ok("zfs destroy -r tank/pass");
    to.rig.ok("zpool export tank");
    to.rig.ok("zpool import -d @ tank");
    assert_eq!(facts("tank/clone"), "tank/clone\nfile:///run/keys/pass\n");
    to.sent("zfs send -w tank/clone@f");
    to.rig.ok("zpool export tank");
    to.rig.check("tank");
    to.rig.zdb(&["a.img"]);
    // With the key OpenZFS reads the files.
    let images = to.rig.path("images");
    fs::create_dir(&images).expect("a directory");
    std::os::unix::fs::symlink(to.rig.path("a.img"), images.join("a.img")).expect("a link");
    let Some(place) = Golden::place("encrypt") else { return };
    let key = fs::read_to_string(place.join("keys/pass")).expect("the pass phrase");
    let Some(said) = sim::oracle::zdb_text(&images, &["-K", key.trim_end(), "-dddd", "tank/clone@f"]) else { return };
    let files = said.lines().filter(|line| line.starts_with("\tuid ")).count();
    assert!(said.contains("Unlocked encryption root: tank/clone\n") && files > 50, "{files} files in\n{said}");
}

#[test]
fn raw_streams_that_do_not_fit_are_refused() {
    let Some(to) = Receiver::new() else { return };
    to.refused("zfs receive tank/e", &to.golden("raw-incr"), "destination 'tank/e' does not exist");
    to.received("zfs receive tank/e", &to.golden("raw"));
    to.received("zfs receive tank/src", &to.golden("full"));
    let destroys = "zfs receive -F cannot be used to destroy an encrypted filesystem or overwrite an unencrypted one with an encrypted one";
    to.rig.ok("zfs create tank/plain");
    to.refused("zfs receive -F tank/plain", &to.golden("raw"), destroys);
    to.refused("zfs receive tank/src", &to.golden("raw-incr"), "does not\nmatch incremental source");
    to.refused("zfs receive -F tank/e", &to.golden("incr-a-b"), "inherited key must be loaded");
    // Below it, what is sent plain was stored as it is, though the parent's key was to encrypt it.
    to.refused("zfs receive -u tank/e/plain", &to.golden("full"), "inherited key must be loaded");
    assert_eq!(to.rig.ok("zfs list -Ht snapshot -o name"), "tank/e@a\ntank/src@a\n");
    for (change, refusal) in [(flip as fn(&mut [u8]), "IV set guid mismatch."), (|guid| guid.fill(0), "IV set guid missing.")] {
        let path = to.directory.path().join("other");
        fs::write(&path, with_other_vectors(&fs::read(to.golden("raw-incr")).expect("a stream"), change)).expect("a stream");
        to.refused("zfs receive tank/e", &path, refusal);
    }
    to.received("zfs receive tank/e", &to.golden("raw-incr"));
    to.received("zfs receive -u -o encryption=off tank/e/plain", &to.golden("full"));
    assert_eq!(to.rig.ok("zfs get -Ho value encryption tank/e/plain"), "off\n");
    to.finish();
}

fn flip(guid: &mut [u8]) {
    guid[0] ^= 1;
}

/// A stream that says of other vectors that it is incremental from them, and whose checksums are right.
fn with_other_vectors(stream: &[u8], change: fn(&mut [u8])) -> Vec<u8> {
    const NAME: &[u8] = b"from_ivset_guid\0";
    let mut records = stream_records(stream);
    // A pair as it lies in memory: its name, and behind that its value.
    let begin = &mut records[0].1;
    let value = begin.windows(NAME.len()).position(|window| window == NAME).expect("the guid") + NAME.len();
    change(&mut begin[value..value + 8]);
    encode_stream(&records)
}

#[test]
fn a_raw_stream_that_broke_off_goes_on() {
    let Some(to) = Receiver::new() else { return };
    to.received("zfs receive tank/e", &to.golden("raw"));
    let whole = fs::read(to.sent("zfs send -w tank/e@a")).expect("a stream");
    for (number, share) in [20, 55, 80].into_iter().enumerate() {
        let part = to.directory.path().join("part");
        fs::write(&part, &whole[..whole.len() * share / 100]).expect("a part");
        let name = format!("tank/r{number}");
        to.refused(&format!("zfs receive -s {name}"), &part, "A resuming stream can be generated");
        to.rig.ok("zpool export tank");
        to.rig.ok("zpool import -d @ tank");
        let token = to.rig.ok(&format!("zfs get -Ho value receive_resume_token {name}"));
        let rest = to.sent(&format!("zfs send -t {}", token.trim()));
        to.received(&format!("zfs receive -s {name}"), &rest);
        to.same(&to.golden("raw"), &to.sent(&format!("zfs send -w {name}@a")), &name);
    }
    to.finish();
}
