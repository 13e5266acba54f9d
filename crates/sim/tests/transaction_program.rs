//! A real program in a transaction: SQLite, without any journal of its own, changes a database of two files; the power goes at every
//! write of the commit. What is there afterwards is the old database or the new one, and SQLite finds nothing wrong with it.
//!
//! The program works on a copy of the files, which is taken back in one transaction. Without SQLite (python3) this is skipped.

use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use sim::explore::disk::{Cutter, Image, Keep, Recorder, Vices};
use sim::explore::run::{LAYOUTS, Opened, create};
use sim::places::{say, skipped};
use tarnfs::{Credentials, Durability, Error, FileSystem, WriteMode};

const FILES: [&str; 2] = ["accounts.db", "names.db"];

/// Money goes from account to account, in two files: the sum in each stays, and both have done the same.
const PROGRAM: &str = r#"
import sqlite3, sys
step, where = sys.argv[1], sys.argv[2]
def database(name):
    db = sqlite3.connect(f"{where}/{name}", isolation_level=None)
    db.execute("pragma journal_mode=off")
    db.execute("pragma synchronous=off")
    return db
for name in ("accounts.db", "names.db"):
    db = database(name)
    if step == "make":
        db.execute("create table account(id integer primary key, balance integer, note text)")
        db.executemany("insert into account values(?, 1000, ?)", [(i, "x" * (i % 300)) for i in range(800)])
        db.execute("create table done(transfers integer)")
        db.execute("insert into done values(0)")
    if step == "work":
        for i in range(300):
            a, b = (i * 7919) % 800, (i * 104729 + 3) % 800
            db.execute("update account set balance = balance - 10, note = note || 'y' where id = ?", (a,))
            db.execute("update account set balance = balance + 10 where id = ?", (b,))
        db.execute("update done set transfers = transfers + 300")
        db.execute("create index by_note on account(note)")
    if step == "check":
        assert db.execute("pragma integrity_check").fetchall() == [("ok",)]
        assert db.execute("select sum(balance) from account").fetchone() == (800000,)
        print(db.execute("select transfers from done").fetchone()[0])
    db.close()
"#;

fn python(step: &str, directory: &Path) -> Option<String> {
    let output = Command::new("python3").args(["-c", PROGRAM, step]).arg(directory).output().ok()?;
    if !output.status.success() {
        println!("{step}: {}", String::from_utf8_lossy(&output.stderr));
        return None;
    }
    Some(String::from_utf8_lossy(&output.stdout).into_owned())
}

fn read(fs: &FileSystem) -> Result<Vec<Vec<u8>>, Error> {
    let one = |name: &&str| {
        let stat = fs.lookup(fs.root(), name.as_bytes())?;
        fs.forget(stat.inode, 1);
        fs.read(stat.inode, 0, stat.size as usize)
    };
    FILES.iter().map(one).collect()
}

fn open(images: &[Image], read_only: bool, recorder: Option<&Arc<Recorder>>) -> Opened {
    Opened::import(images, read_only, recorder, None, Vices::default()).unwrap_or_else(|error| panic!("import: {error}"))
}

/// Makes the databases, lets the program work on them, takes the result back. The images before that, what came to the disks, and
/// both contents.
fn story(directory: &Path) -> Option<(Vec<Image>, Vec<sim::explore::disk::Event>, [Vec<Vec<u8>>; 2])> {
    let load = || FILES.map(|name| std::fs::read(directory.join(name)).expect("a database")).to_vec();
    python("make", directory)?;
    let old = load();
    let recorder = Arc::new(Recorder::default());
    let opened = open(&create(&LAYOUTS[0]), false, Some(&recorder));
    let fs = opened.pool.file_system("tank").unwrap();
    let user = Credentials::root();
    for (name, data) in FILES.iter().zip(&old) {
        let stat = fs.create(fs.root(), name.as_bytes(), 0o100_644, 0, &user).unwrap();
        fs.write(stat.inode, WriteMode::At(0), data, &user).unwrap();
        fs.forget(stat.inode, 1);
    }
    opened.pool.sync().unwrap();
    let before = opened.images();
    recorder.take();
    python("work", directory)?;
    let new = load();
    fs.transaction(Durability::Now, |tx| {
        for (name, data) in FILES.iter().zip(&new) {
            let node = tx.resolve(name)?;
            let is = tx.read(node, 0, data.len())?;
            for (piece, wanted) in data.chunks(4096).enumerate() {
                if is.get(piece * 4096..piece * 4096 + wanted.len()) != Some(wanted) {
                    tx.write(node, (piece * 4096) as u64, wanted)?;
                }
            }
            tx.truncate(node, data.len() as u64)?;
        }
        Ok(())
    })
    .unwrap();
    assert!(read(&fs).unwrap() == new, "the commit is not what was written");
    Some((before, recorder.take(), [old, new]))
}

#[test]
fn sqlite_without_a_journal_survives_a_crash_at_every_write() {
    let directory = tempfile::tempdir().unwrap();
    let Some((before, events, [old, new])) = story(directory.path()) else {
        return skipped("SQLite in a transaction: there is no python3 with sqlite3");
    };
    assert!(old != new);
    let mut counts = [0; 2];
    let mut dice = ChaCha8Rng::seed_from_u64(1);
    let mut cutter = Cutter::new(&events, before, 0);
    for cut in 0..=events.len() {
        cutter.advance(cut);
        for keep in [Keep::Nothing, Keep::Everything, Keep::Some] {
            let opened = open(&cutter.cut(keep, &mut dice), true, None);
            let found = read(&opened.pool.file_system("tank").unwrap()).unwrap_or_else(|error| panic!("cut {cut}, {keep:?}: {error}"));
            let which = [&old, &new].iter().position(|contents| **contents == found);
            counts[which.unwrap_or_else(|| panic!("cut {cut} of {}, {keep:?}: neither the old nor the new databases", events.len()))] += 1;
            assert!(cut < events.len() || which == Some(1), "it was durable");
        }
    }
    assert!(counts[0] > 10 && counts[1] > 0, "{counts:?}");
    for (contents, transfers) in [(&old, "0\n0\n"), (&new, "300\n300\n")] {
        for (name, data) in FILES.iter().zip(contents) {
            std::fs::write(directory.path().join(name), data).unwrap();
        }
        assert_eq!(python("check", directory.path()).as_deref(), Some(transfers));
    }
    say(&format!("SQLite in a transaction: cut off in {} states, {} times the old databases, {} times the new", counts[0] + counts[1], counts[0], counts[1]));
}
