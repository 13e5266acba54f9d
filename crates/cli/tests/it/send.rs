//! `zfs send`: streams of the golden pool are those that OpenZFS's kernel module sent, to the byte; what becomes of a command that is
//! killed, and what is refused.

use std::fs::{self, File};
use std::io::Read;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use sim::golden::Golden;
use sim::places::{in_shared, say, skipped};

use crate::rig::{LIMIT, Rig, Said, run_for, wait_for};

/// Sent with the key of an encrypted dataset, which this program does not load.
const WITH_KEY: [&str; 1] = ["enc-plain.zfs"];

/// OpenZFS sends a spill block that its pointer holds as contents, and its receivers lose it; here it is a SPILL record.
const WITH_EMBEDDED_SPILL: [&str; 2] = ["embedded.zfs", "Lec.zfs"];

/// The golden pool `streams`, imported read-only, and the directory with its streams.
fn golden(rig: &Rig) -> Option<Golden> {
    let Some(archive) = in_shared("oracle/golden/out/streams/streams.tar.zst") else {
        skipped("streams of OpenZFS: no ../shared");
        return None;
    };
    let golden = Golden::find("streams").unwrap()?;
    let status = Command::new("tar").arg("--zstd").arg("-xf").arg(archive).arg("-C").arg(rig.path("")).status().unwrap();
    assert!(status.success(), "tar: {status}");
    let mut import = rig.command("zpool import -f -N -o readonly=on -o cachefile=none -d");
    let said = run_for(import.arg(golden.directory()).arg("g_streams"), LIMIT).unwrap();
    assert_eq!((said.code, said.err.as_str()), (0, ""));
    Some(golden)
}

/// `zfs send` with these words, into a file.
fn send(rig: &Rig, words: &[&str], to: &Path) -> Said {
    let mut command = rig.command("zfs send");
    let err = tempfile::NamedTempFile::new().unwrap();
    command.args(words).stdin(Stdio::null()).stdout(File::create(to).unwrap()).stderr(err.reopen().unwrap());
    let mut child = command.spawn().unwrap();
    let code = wait_for(&mut child, LIMIT).unwrap_or_else(|| panic!("zfs send {words:?} hangs\n{}", rig.log()));
    Said { code, out: String::new(), err: fs::read_to_string(err.path()).unwrap() }
}

/// The first byte in which two files differ, and what their records are there.
fn difference(ours: &[u8], theirs: &[u8]) -> String {
    let at = ours.iter().zip(theirs).position(|(our, their)| our != their).unwrap_or(ours.len().min(theirs.len()));
    format!("{} and {} bytes, different from byte {at} on", ours.len(), theirs.len())
}

/// Whether two streams differ in nothing but in how spill blocks are sent that their pointers hold.
fn same_but_for_spills(ours: &Path, theirs: &Path) -> bool {
    let lines = |path: &Path| {
        let output = Command::new(env!("CARGO_BIN_EXE_tarn")).args(["stream", "dump", "-v"]).arg(path).output().unwrap();
        String::from_utf8_lossy(&output.stdout).lines().map(str::to_owned).collect::<Vec<_>>()
    };
    let (ours, theirs) = (lines(ours), lines(theirs));
    let is_spill = |our: &str, their: &str| our.starts_with("SPILL ") && their.starts_with("WRITE_EMBEDDED ") && their.contains(" offset = 184467440737");
    let is_same = |our: &String, their: &String| our == their || is_spill(our, their) || our.starts_with("END checksum") && their.starts_with("END checksum");
    let end = ours.iter().position(|line| line == "SUMMARY:").unwrap_or(0);
    end > 0 && ours[..end].iter().zip(&theirs).all(|(our, their)| is_same(our, their))
}

/// What `zstream dump` would say of the first records that differ.
fn records(ours: &Path, theirs: &Path) -> String {
    let dump = |path: &Path| {
        let output = Command::new(env!("CARGO_BIN_EXE_tarn")).args(["stream", "dump", "-v", "-C"]).arg(path).output().unwrap();
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    let (ours, theirs) = (dump(ours), dump(theirs));
    let first = ours.lines().zip(theirs.lines()).enumerate().find(|(_, (our, their))| our != their);
    first.map_or_else(String::new, |(number, (our, their))| format!("line {number}\n  ours:   {our}\n  theirs: {their}"))
}

#[test]
fn streams_are_those_of_openzfs_to_the_byte() {
    let Some(rig) = Rig::new() else { return };
    let Some(golden) = golden(&rig) else { return };
    let manifest = Command::new("zstd").arg("-dc").arg(Golden::place("streams").unwrap().join("manifest.json.zst")).output().unwrap();
    let manifest: serde_json::Value = serde_json::from_slice(&manifest.stdout).unwrap();
    let (mut same, mut wrong) = (0, Vec::new());
    for stream in manifest["streams"].as_array().unwrap() {
        let file = stream["file"].as_str().unwrap();
        if WITH_KEY.contains(&file) {
            continue;
        }
        let words: Vec<&str> = stream["send"].as_array().unwrap().iter().map(|word| word.as_str().unwrap()).collect();
        let (ours, theirs) = (rig.path("ours"), rig.path("streams").join(file));
        let said = send(&rig, &words, &ours);
        let (our_bytes, their_bytes) = (fs::read(&ours).unwrap(), fs::read(&theirs).unwrap());
        let is_same = our_bytes == their_bytes || (WITH_EMBEDDED_SPILL.contains(&file) && same_but_for_spills(&ours, &theirs));
        if said.code == 0 && said.err.is_empty() && is_same {
            same += 1;
        } else {
            wrong.push(format!("{file} {words:?}: {said:?} {}\n{}", difference(&our_bytes, &their_bytes), records(&ours, &theirs)));
        }
    }
    say(&format!("golden: {same} streams are OpenZFS's to the byte"));
    assert!(wrong.is_empty(), "{same} are the same, not these:\n{}", wrong.join("\n"));
    assert!(same >= 21, "{same}");
    drop(golden);
    rig.ok("zpool export g_streams");
}

/// Nothing is sent, and the sizes are said; what cannot be sent is refused in OpenZFS's words.
#[test]
fn what_will_be_sent_is_said_in_the_words_that_tools_parse() {
    let Some(rig) = Rig::new() else { return };
    let Some(golden) = golden(&rig) else { return };
    let run = |words: &[&str]| run_for(rig.command("zfs send").args(words), LIMIT).unwrap();
    let said = run(&["-nP", "g_streams/src@a"]);
    let size: u64 = said.out.lines().find_map(|line| line.strip_prefix("size\t")).unwrap().parse().unwrap();
    assert_eq!((said.code, said.out.as_str()), (0, format!("full\tg_streams/src@a\t{size}\nsize\t{size}\n").as_str()), "{said:?}");
    assert!((3_700_000..4_300_000).contains(&size), "{size}");
    let said = run(&["-nv", "-i", "@a", "g_streams/src@b"]);
    assert!(said.out.starts_with("send from g_streams/src@a to g_streams/src@b estimated size is "), "{said:?}");
    assert!(said.out.contains("\ntotal estimated size is "), "{said:?}");
    let said = run(&["-nvP", "-I", "@a", "g_streams/src@c"]);
    assert!(said.out.starts_with("incremental\ta\tg_streams/src@b\t") && said.out.contains("\nincremental\tb\tg_streams/src@c\t"), "{said:?}");
    let token = fs::read_to_string(rig.path("streams").join("resume.token")).unwrap();
    let said = run(&["-nvt", token.trim()]);
    assert!(said.out.starts_with("resume token contents:\nnvlist version: 0\n\tobject = 0x"), "{said:?}");
    for (words, message) in [
        (&["g_streams/src@none"][..], "cannot open 'g_streams/src@none': dataset does not exist"),
        (&["-i", "@b", "g_streams/src@a"], "warning: cannot send 'g_streams/src@a': not an earlier snapshot from the same fs"),
        (&["-i", "#none", "g_streams/src@a"], "warning: cannot send 'g_streams/src@a': incremental source (g_streams/src#none) does not exist"),
        (&["-I", "@c", "g_streams/src@b"], "is not earlier than it"),
        (&["-R", "g_streams@none"], "cannot open 'g_streams@none': dataset does not exist"),
        (&["g_streams/enc@a"], "warning: cannot send 'g_streams/enc@a': dataset key must be loaded"),
        (&["-t", "1-2-3-4"], "cannot resume send: "),
        (&[], "missing snapshot argument"),
    ] {
        let said = run(words);
        assert!(said.code != 0 && said.err.contains(message), "{words:?}: {said:?}");
    }
    drop(golden);
    rig.ok("zpool export g_streams");
}

/// A reader that does not read stops nobody, and the work ends with the command.
#[test]
fn a_killed_command_ends_its_stream() {
    let Some(rig) = Rig::new() else { return };
    let Some(golden) = golden(&rig) else { return };
    let (mut reader, writer) = std::io::pipe().unwrap();
    let mut child = rig.command("zfs send g_streams/large@a").stdout(writer.try_clone().unwrap()).stderr(Stdio::null()).spawn().unwrap();
    let mut first = [0; 312];
    reader.read_exact(&mut first).unwrap();
    // Others are served, and the pool is not let go.
    rig.ok("zfs list -r g_streams");
    std::thread::sleep(Duration::from_millis(300));
    child.kill().unwrap();
    child.wait().unwrap();
    drop(writer);
    let (sent, hears) = std::sync::mpsc::channel();
    std::thread::spawn(move || sent.send(std::io::copy(&mut reader, &mut std::io::sink())));
    let rest = hears.recv_timeout(LIMIT).expect("the daemon still has the pipe").unwrap();
    assert!(rest < 13_000_000, "all was sent: {rest}");
    drop(golden);
    rig.ok("zpool export g_streams");
}
