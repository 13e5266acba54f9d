//! What is in the log has all that came before it.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use engine::dmu::{Membership, OpenTx};
use engine::error::{Error, ErrorKind, Result};
use engine::zil::{LogSource, WantedWrite, Zil};
use parking_lot::Mutex;
use tarnfs::{Credentials, WriteMode};

use crate::directed::{make, names};
use crate::disk::CutDisk;
use crate::{DISK_BYTES, check, create, file_system, open, replay};

/// Longer than anything here takes.
const LONG: Duration = Duration::from_secs(60);
/// The second commit fills its round and waits for its turn meanwhile.
const FILLS: Duration = Duration::from_millis(300);

/// The bytes of the first round cannot be had, which turns out when the second round is filled.
struct Failing {
    asked: Sender<()>,
    go_on: Mutex<Receiver<()>>,
}

impl LogSource for Failing {
    fn fetch(&self, _: &WantedWrite, _: &mut Vec<u8>) -> Result<()> {
        let _ = self.asked.send(());
        let _ = self.go_on.lock().recv_timeout(LONG);
        Err(Error::new(ErrorKind::Io, "these bytes cannot be read"))
    }
}

/// Bytes that are never asked for.
struct NoBytes;

impl LogSource for NoBytes {
    fn fetch(&self, _: &WantedWrite, _: &mut Vec<u8>) -> Result<()> {
        panic!("a round of names needs no bytes");
    }
}

/// A round that is not written leaves what it has to its group. The round after it was filled before that was known, and was written: after a kill later
/// names were there without earlier ones.
#[test]
fn a_round_is_not_in_the_log_without_the_one_before_it() {
    let disk = CutDisk::new(vec![0; DISK_BYTES]);
    let pool = create(&disk);
    let fs = file_system(&pool);
    fs.fsync(make(&fs, "first")).unwrap();
    let zil = Zil::of(fs.objset());
    let ((asked, is_asked), (tell, go_on)) = (channel(), channel());
    let source = Failing { asked, go_on: Mutex::new(go_on) };
    let earlier = make(&fs, "earlier");
    fs.write(earlier, WriteMode::At(0), b"contents", &Credentials::root()).unwrap();
    // The group stays open until the power goes.
    let member = Membership::single(fs.objset().clone());
    let held = OpenTx::assign(&member, 0).unwrap();
    let image = std::thread::scope(|scope| {
        let first = scope.spawn(|| zil.commit(Some(earlier), &source));
        is_asked.recv_timeout(LONG).expect("the first round asks for bytes");
        let later = make(&fs, "later");
        let zil = &zil;
        let second = scope.spawn(move || zil.commit(Some(later), &NoBytes));
        std::thread::sleep(FILLS);
        tell.send(()).unwrap();
        std::thread::sleep(FILLS);
        assert!(!first.is_finished() && !second.is_finished(), "a commit was acknowledged without its record and its group");
        let image = disk.cut(0).image;
        drop(held);
        first.join().unwrap().unwrap();
        second.join().unwrap().unwrap();
        image
    });
    assert_eq!(names(&fs), ["earlier", "first", "later"]);
    fs.release_all();
    drop((zil, fs));
    pool.abandon();
    let disk = CutDisk::new(image);
    let pool = open(&disk, false);
    let fs = file_system(&pool);
    replay(&pool, &fs, "two rounds");
    assert_eq!(names(&fs), ["first"], "a later name is there without an earlier one");
    fs.release_all();
    drop(fs);
    pool.sync_all().unwrap();
    check(&pool, "two rounds, the first without its bytes");
    pool.export().unwrap();
}

/// The record of a link came behind that of the removal of the file's only other name, which had happened later: the replay freed the file, did not find it for
/// the link, and lost the rest.
#[test]
fn a_link_is_logged_before_its_file_can_lose_the_other_name() {
    const FILES: usize = 200;
    let disk = CutDisk::new(vec![0; DISK_BYTES]);
    let pool = create(&disk);
    let fs = file_system(&pool);
    let root = Credentials::root();
    let [from, to] = [b"from".as_slice(), b"to"].map(|name| fs.mkdir(fs.root(), name, 0o755, &root).unwrap().inode);
    let first = make(&fs, "first");
    fs.fsync(first).unwrap();
    {
        #[cfg(debug_assertions)]
        let _pauses = parking_lot::counting::pause(4);
        for number in 0..FILES {
            let name = format!("f{number}");
            let file = fs.create(from, name.as_bytes(), 0o100_644, 0, &root).unwrap().inode;
            std::thread::scope(|scope| {
                let linked = scope.spawn(|| fs.link(file, to, name.as_bytes()).map(drop).unwrap());
                while fs.getattr(file).unwrap().links < 2 && !linked.is_finished() {
                    std::thread::yield_now();
                }
                fs.unlink(from, name.as_bytes()).unwrap();
            });
        }
    }
    fs.fsync(first).unwrap();
    let image = disk.cut(0).image;
    fs.release_all();
    drop(fs);
    pool.abandon();
    let disk = CutDisk::new(image);
    let pool = open(&disk, false);
    let fs = file_system(&pool);
    let replayed = replay(&pool, &fs, "links");
    assert!(replayed.records >= 3 * FILES as u64, "{replayed:?}");
    assert_eq!(replayed.lost, None);
    let mut found = 0;
    let to = fs.lookup(fs.root(), b"to").unwrap().inode;
    fs.read_directory(to, 2, &mut |_| {
        found += 1;
        true
    })
    .unwrap();
    assert_eq!(found, FILES, "links are missing");
    fs.release_all();
    drop(fs);
    pool.sync_all().unwrap();
    check(&pool, "links beside removals");
    pool.export().unwrap();
}
