//! Pools in which file systems come and go, judged by our checker and by the real zdb.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use engine::dsl::{PropertyChange, PropertyValue};
use ondisk::feature::Feature;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use sim::oracle::zdb_check;
use tarnfs::zpl::{Credentials, WriteMode};
use tarnfs::{CreateOptions, ImportOptions, Pool, VdevPaths};

struct Rig {
    directory: tempfile::TempDir,
    image: PathBuf,
    random: ChaCha8Rng,
}

fn set(name: &str, number: u64) -> (String, PropertyChange) {
    (name.to_owned(), PropertyChange::Set(PropertyValue::Number(number)))
}

impl Rig {
    fn new(seed: u64) -> (Rig, Arc<Pool>) {
        println!("seed {seed}");
        let directory = tempfile::tempdir().unwrap();
        let image = directory.path().join("tank.img");
        std::fs::File::create(&image).unwrap().set_len(512 << 20).unwrap();
        let vdevs = [VdevPaths { paths: vec![image.clone()], ..VdevPaths::default() }];
        let options = CreateOptions { command: "zpool create tank tank.img".into(), ..CreateOptions::default() };
        let pool = Pool::create("tank", &vdevs, options).unwrap();
        (Rig { directory, image, random: ChaCha8Rng::seed_from_u64(seed) }, pool)
    }

    fn import(&self) -> Arc<Pool> {
        Pool::import(&[self.directory.path().to_path_buf()], "tank", ImportOptions::default()).unwrap()
    }

    /// Files with contents that do not compress well, and holes.
    fn fill(&mut self, pool: &Pool, name: &str, files: u32, bytes: usize) {
        let fs = pool.file_system(name).unwrap();
        for number in 0..files {
            let file = fs.create(fs.root(), format!("f{number}").as_bytes(), 0o100_644, 0, &Credentials::root()).unwrap().inode;
            let mut data = vec![0; bytes];
            self.random.fill(&mut data[..]);
            data[bytes / 4..bytes / 2].fill(7);
            fs.write(file, WriteMode::At(0), &data, &Credentials::root()).unwrap();
            fs.write(file, WriteMode::At(8 << 20), b"after a hole", &Credentials::root()).unwrap();
        }
    }

    fn close_and_judge(&self, pool: Arc<Pool>, when: &str) {
        pool.sync().unwrap();
        let report = pool.check(true, &|_| ()).unwrap();
        assert!(report.is_clean(), "{when}: {:?}", report.findings);
        pool.export().unwrap();
        drop(pool);
        judge(&self.image, when);
    }
}

fn judge(image: &Path, when: &str) {
    zdb_check(&[image]).expect_clean(when);
}

#[test]
fn file_systems_come_and_go() {
    let (mut rig, pool) = Rig::new(1);
    pool.create_file_system("tank/a", vec![set("recordsize", 1 << 20), set("compression", 16 | 3 << 7)]).unwrap();
    pool.create_file_system("tank/a/b", vec![set("checksum", 11), set("copies", 2)]).unwrap();
    pool.create_file_system("tank/c", vec![set("dnodesize", 1), set("reservation", 20 << 20)]).unwrap();
    for (name, files, bytes) in [("tank", 3, 100_000), ("tank/a", 5, 3 << 20), ("tank/a/b", 200, 20_000), ("tank/c", 40, 300_000)] {
        rig.fill(&pool, name, files, bytes);
    }
    pool.sync().unwrap();
    for feature in [Feature::LargeBlocks, Feature::ZstdCompress, Feature::Sha512, Feature::LargeDnode] {
        assert!(pool.engine().dsl.meta.features.is_active(feature), "{}", feature.name());
    }
    rig.close_and_judge(pool, "after making and filling");

    let pool = rig.import();
    let free_before = pool.engine().dsl.available(&pool.engine().dsl.root_dir().unwrap(), true);
    pool.destroy_file_system("tank/a/b").unwrap();
    pool.engine().dsl.set_properties("tank/c", vec![set("refreservation", 30 << 20), set("quota", 60 << 20)]).unwrap();
    rig.close_and_judge(pool, "after destroying one");

    let pool = rig.import();
    let dsl = &pool.engine().dsl;
    assert!(!dsl.meta.features.is_active(Feature::Sha512));
    pool.destroy_file_system("tank/a").unwrap();
    pool.destroy_file_system("tank/c").unwrap();
    pool.sync().unwrap();
    pool.sync().unwrap();
    assert!(!dsl.has_background_frees().unwrap());
    assert!(!dsl.meta.features.is_active(Feature::ZstdCompress) && !dsl.meta.features.is_active(Feature::LargeBlocks));
    let free_now = dsl.available(&dsl.root_dir().unwrap(), true);
    assert!(free_now > free_before + (25 << 20), "{free_before} {free_now}");
    pool.create_file_system("tank/a", Vec::new()).unwrap();
    rig.fill(&pool, "tank/a", 3, 100_000);
    rig.close_and_judge(pool, "after destroying all and making one again");
}

#[test]
fn a_destroy_goes_on_after_a_crash() {
    let (mut rig, pool) = Rig::new(2);
    pool.create_file_system("tank/a", Vec::new()).unwrap();
    rig.fill(&pool, "tank/a", 300, 50_000);
    pool.sync().unwrap();
    pool.destroy_file_system("tank/a").unwrap();
    pool.abandon();
    drop(pool);
    judge(&rig.image, "after the crash");
    let pool = Pool::import(&[rig.directory.path().to_path_buf()], "tank", ImportOptions { force: true, ..ImportOptions::default() });
    let pool = pool.unwrap();
    pool.sync().unwrap();
    rig.close_and_judge(pool, "after going on");
}

/// From 65 metaslabs on one is the log's, which is no space for data: OpenZFS 2.4.4 says so of a pool on a device of this size.
#[test]
fn what_is_set_aside_for_the_log_is_not_available() {
    let directory = tempfile::tempdir().unwrap();
    let image = directory.path().join("tank.img");
    std::fs::File::create(&image).unwrap().set_len(40 << 30).unwrap();
    let vdevs = [VdevPaths { paths: vec![image], ..VdevPaths::default() }];
    let pool = Pool::create("tank", &vdevs, CreateOptions { ashift: Some(12), ..CreateOptions::default() }).unwrap();
    pool.sync().unwrap();
    let dsl = &pool.engine().dsl;
    let root = dsl.root_dir().unwrap();
    assert_eq!(pool.engine().capacity().size, 42_412_802_048);
    assert_eq!(dsl.available(&root, true) + root.space().used, 41_103_798_272 + 380_928);
    pool.export().unwrap();
}
