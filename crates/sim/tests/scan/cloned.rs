//! Blocks that a device has missed are cloned while it is resilvered, to where the resilver does not come any more, and are nowhere else afterwards.

use tarnfs::{CloneRange, FileSystem, InodeNumber};

use super::*;

/// Whole blocks.
const BYTES: usize = 3 * 131_072;

type File = (InodeNumber, String);

/// Groups are written when the test says so, and in each a scan looks at some blocks.
fn world() -> Rig {
    let tunables = Tunables { scan_blocks_max: 4, scan_hastens: false, txg_timeout_ns: u64::MAX / 4, ..Tunables::default() };
    let mut rig = Rig::create_with(MIRROR, &[("compression", "off")], tunables);
    for name in ["tank/a", "tank/b"] {
        rig.create_file_system(name, &[]);
    }
    rig
}

/// Files with nothing in them, in the order of their numbers.
fn make(fs: &FileSystem) -> Vec<File> {
    let names = (0..FILES).map(|number| format!("f{number}"));
    let mut files: Vec<File> = names.map(|name| (fs.create(fs.root(), name.as_bytes(), 0o100_644, 0, &Credentials::root()).unwrap().inode, name)).collect();
    files.sort();
    files
}

fn fill(fs: &FileSystem, file: &File, seed: u64) {
    fs.write(file.0, WriteMode::At(0), &contents(seed, BYTES, 0), &Credentials::root()).unwrap();
}

/// Writes groups until something is so.
fn until(rig: &Rig, what: &str, is_so: impl Fn() -> bool) {
    for _ in 0..2000 {
        if is_so() {
            return;
        }
        rig.pool().engine().write_group().unwrap();
    }
    panic!("{what}: {:?}", rig.pool().engine().scan_progress());
}

/// A side lacks what was written while it was away, and its resilver begins.
fn come_back(rig: &Rig, written: impl FnOnce()) {
    let engine = rig.pool().engine();
    let guid = engine.vdevs.leaves()[1].guid();
    engine.stop_device(guid, Stopped::Offline, false).unwrap();
    written();
    rig.pool().sync().unwrap();
    let device = disk::open(&side(rig, 1).display().to_string(), disk::Access::Write).unwrap();
    engine.online_device(guid, Some(device), false).unwrap();
    let is_under_way = |record: ScanRecord| record.function == ScanFunction::Resilver && record.state == ScanState::Scanning;
    until(rig, "the resilver begins", || engine.scan_progress().is_some_and(|progress| is_under_way(progress.record)));
}

/// A file gets the blocks of another one, which is removed in the same group.
fn take_over(from: &FileSystem, (source, name): &File, to: &FileSystem, target: &File) {
    let range = CloneRange { source: *source, from: 0, target: target.0, to: 0, length: BYTES as u64 };
    assert_eq!(to.clone_range(from, &range, &Credentials::root()).unwrap(), BYTES as u64);
    from.unlink(from.root(), name.as_bytes()).unwrap();
    from.forget(*source, u64::MAX);
}

/// The resilver comes to its end, and then the side alone has the file and all else. The pool is exported.
fn is_brought(rig: &mut Rig, file: &File, seed: u64) {
    until(rig, "the resilver ends", || !rig.pool().engine().is_scanning());
    let record = rig.pool().engine().scan_progress().unwrap().record;
    assert_eq!((record.function, record.state, record.errors), (ScanFunction::Resilver, ScanState::Finished, 0));
    assert!(rig.pool().engine().vdevs.leaves().iter().all(|leaf| !leaf.is_behind()), "{record:?}");
    rig.export();
    rig.zdb("cloned in a resilver", true);
    alone(&[side(rig, 1)], "tank", |pool| {
        let fs = pool.file_system("tank/a").unwrap();
        let inode = fs.lookup(fs.root(), file.1.as_bytes()).unwrap().inode;
        let found = fs.read(inode, 0, BYTES).unwrap_or_else(|error| panic!("the side alone lacks what was cloned: {error}"));
        assert!(found == contents(seed, BYTES, 0), "it has other contents");
        fs.forget(inode, 1);
    });
}

/// The file that gets the blocks is one that the resilver has seen, or thinks that it has; the one that loses them is one that it would have come to.
#[test]
fn what_is_cloned_behind_a_resilver_is_brought_too() {
    let mut rig = world();
    let fs = rig.pool().file_system("tank/a").unwrap();
    let files = make(&fs);
    rig.pool().sync().unwrap();
    let (first, last) = (&files[0], &files[files.len() - 1]);
    come_back(&rig, || (1_u64..).zip(&files[1..]).for_each(|(seed, file)| fill(&fs, file, seed)));
    let (dataset, seed) = (fs.objset().dataset(), FILES - 1);
    let place = || rig.pool().engine().scan_progress().unwrap().record.bookmark;
    until(&rig, "the resilver is behind the first file", || place().objset.get() == dataset && place().object.get() > first.0);
    take_over(&fs, last, &fs, first);
    rig.pool().engine().write_group().unwrap();
    let at = place();
    assert!(at.objset.get() == dataset && at.object.get() < last.0, "it has come to the last file: {at:?}");
    assert!(fs.objset().hold(last.0).is_err(), "the last file is still there");
    fs.release_all();
    drop(fs);
    is_brought(&mut rig, first, seed);
}

/// All that a dataset got since a snapshot of it was taken is younger than what the device has missed, but for the blocks of clones.
#[test]
fn what_is_cloned_into_something_young_is_brought_too() {
    let mut rig = world();
    let [to, from] = ["tank/a", "tank/b"].map(|name| rig.pool().file_system(name).unwrap());
    let (targets, sources) = (make(&to), make(&from));
    rig.pool().sync().unwrap();
    let parameters = rig.pool().engine().context.tunables.parameters.clone();
    parameters.set(Parameter::ScanSuspendProgress, "1").unwrap();
    come_back(&rig, || fill(&from, &sources[0], 7));
    rig.pool().engine().write_group().unwrap();
    snapshot(rig.pool(), "tank/a@young");
    take_over(&from, &sources[0], &to, &targets[0]);
    rig.pool().engine().write_group().unwrap();
    assert_eq!(rig.pool().engine().scan_progress().unwrap().record.examined, 0);
    parameters.set(Parameter::ScanSuspendProgress, "0").unwrap();
    [to, from].into_iter().for_each(|fs| fs.release_all());
    is_brought(&mut rig, &targets[0], 7);
}
