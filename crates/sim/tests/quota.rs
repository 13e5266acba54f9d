//! Space by owner: as OpenZFS counted it, and as it is counted anew from the files.

use std::collections::BTreeMap;
use std::sync::Arc;

use engine::dmu::Objset;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use sim::golden::Golden;
use sim::oracle::zdb_check;
use sim::places::skipped;
use tarnfs::zpl::{OwnerKind, QuotaOf, file_owner, space_used_by};
use tarnfs::{CreateOptions, Credentials, FileSystem, ImportOptions, Pool, SetAttributes, VdevPaths, WriteMode, XattrMode};

/// Bytes and objects, by kind and id.
type Counts = BTreeMap<(OwnerKind, u64), (u64, u64)>;

/// What each object says of its owner, added up.
fn recount(objset: &Objset) -> Counts {
    let mut counts = Counts::new();
    let mut at = 0;
    while let Some(object) = objset.next_object(at).unwrap() {
        at = object;
        let dnode = objset.hold(object).unwrap();
        let Some(owner) = file_owner(dnode.bonus_type(), &dnode.bonus()) else { continue };
        for key in [(OwnerKind::User, owner.user), (OwnerKind::Group, owner.group), (OwnerKind::Project, owner.project)] {
            let count = counts.entry(key).or_default();
            count.0 += dnode.info().used_bytes + 512;
            count.1 += 1;
        }
    }
    counts
}

#[track_caller]
fn assert_counted(fs: &FileSystem, counts: &Counts) {
    for (&(kind, id), &expected) in counts {
        let counted = [QuotaOf::Bytes, QuotaOf::Objects].map(|of| space_used_by(fs.objset(), kind, of, id).unwrap());
        assert_eq!((counted[0], counted[1]), expected, "{kind:?} {id} in {}", fs.objset().name());
    }
}

#[test]
fn openzfs_counts_as_we_do() {
    let Some(golden) = Golden::find("quota").unwrap() else {
        return skipped("the golden pool quota is not here");
    };
    let place = golden.images[0].parent().unwrap().to_path_buf();
    let options = ImportOptions { read_only: true, force: true, ..ImportOptions::default() };
    let pool = Pool::import(&[place], &golden.manifest.pool.name, options).unwrap();
    let mut compared = 0;
    for dataset in golden.manifest.datasets.iter().filter(|dataset| dataset.userspace.is_some()) {
        let fs = pool.file_system(&dataset.name).unwrap();
        let tables = [(OwnerKind::User, &dataset.userspace), (OwnerKind::Group, &dataset.groupspace), (OwnerKind::Project, &dataset.projectspace)];
        let mut theirs = Counts::new();
        for (kind, table) in tables {
            for row in table.iter().flatten() {
                let number = |column: usize| row[column].parse::<u64>().unwrap();
                let id = number(1);
                theirs.insert((kind, id), (number(2), number(4)));
                let quotas = [QuotaOf::Bytes, QuotaOf::Objects].map(|of| fs.quota_of(kind, of, id).unwrap());
                assert_eq!(quotas, [number(3), number(5)], "{kind:?} {id} in {}", dataset.name);
                compared += 1;
            }
        }
        assert_counted(&fs, &theirs);
        assert_eq!(recount(fs.objset()), theirs, "{}", dataset.name);
    }
    assert!(compared > 20, "{compared}");
}

#[test]
fn nothing_is_lost_or_counted_twice() {
    let seed = std::env::var("TARN_SEED").ok().and_then(|text| text.parse().ok()).unwrap_or(11);
    println!("seed {seed}; another: TARN_SEED=N cargo test -p sim --test quota");
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    let directory = tempfile::tempdir().unwrap();
    let image = directory.path().join("image");
    std::fs::File::create(&image).unwrap().set_len(256 << 20).unwrap();
    let pool = Pool::create("tank", &[VdevPaths { paths: vec![image.clone()], ..VdevPaths::default() }], CreateOptions::default()).unwrap();
    let fs = pool.file_system("tank").unwrap();
    let mut files: Vec<(String, u64)> = Vec::new();
    for step in 0..600u32 {
        let who = Credentials { uid: random.random_range(0..4) * 1000, gid: random.random_range(0..3) * 100, ..Credentials::default() };
        change(&fs, &mut random, &mut files, step, &who);
        if step % 50 == 49 {
            pool.sync().unwrap();
            assert_counted(&fs, &recount(fs.objset()));
        }
    }
    for (name, _) in files.drain(..) {
        fs.unlink(fs.root(), name.as_bytes()).unwrap();
    }
    // Hidden directories are freed by what comes after their files.
    fs.drain_delete_queue().unwrap();
    pool.sync().unwrap();
    let counts = recount(fs.objset());
    assert_eq!(counts.len(), 3, "the root directory alone is left: {counts:?}");
    assert_counted(&fs, &counts);
    for uid in 1..4 {
        assert_eq!(space_used_by(fs.objset(), OwnerKind::User, QuotaOf::Bytes, uid * 1000).unwrap(), 0);
    }
    drop(fs);
    pool.export().unwrap();
    zdb_check(&[&image]).expect_clean("a pool with many owners");
}

fn change(fs: &Arc<FileSystem>, random: &mut ChaCha8Rng, files: &mut Vec<(String, u64)>, step: u32, who: &Credentials) {
    let root = Credentials::root();
    if files.len() < 20 || random.random_bool(0.3) {
        let name = format!("f{step}");
        let stat = fs.create(fs.root(), name.as_bytes(), 0o100_644, 0, who).unwrap();
        fs.forget(stat.inode, 1);
        return files.push((name, stat.inode));
    }
    let at = random.random_range(0..files.len());
    let inode = files[at].1;
    match random.random_range(0..6) {
        0 => {
            let mut data = vec![0; random.random_range(1..300_000)];
            random.fill(&mut data[..]);
            fs.write(inode, WriteMode::At(random.random_range(0..1 << 20)), &data, &root).unwrap();
        }
        1 => fs.truncate(inode, random.random_range(0..200_000), &root).unwrap(),
        2 => {
            let set = SetAttributes { uid: Some(who.uid), gid: Some(who.gid), ..SetAttributes::default() };
            fs.setattr(inode, &set, &root).unwrap();
        }
        3 => {
            let set = SetAttributes { project: Some(random.random_range(0..3)), ..SetAttributes::default() };
            fs.setattr(inode, &set, &root).unwrap();
        }
        // Some are large enough for a hidden directory, which belongs to whom the file does.
        4 => fs.setxattr(inode, b"user.x", &vec![7; random.random_range(1..60_000)], XattrMode::Any).unwrap(),
        _ => {
            let (name, _) = files.swap_remove(at);
            fs.unlink(fs.root(), name.as_bytes()).unwrap();
        }
    }
}
