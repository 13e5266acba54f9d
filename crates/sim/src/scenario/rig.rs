//! A pool on files in a temporary directory, with a model of each of its file systems.

use std::collections::BTreeMap;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use engine::dsl::prop_table;
use engine::dsl::{PropertyChange, PropertyValue};
use engine::tunables::Tunables;
use engine::vdev::DraidColumns;
use ondisk::feature::Feature;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use tarnfs::{CreateOptions, FileSystem, ImportOptions, Pool, Rewind, VdevPaths};

use super::{Actor, Model};
use crate::golden::Golden;
use crate::oracle;

/// The devices of a pool.
#[derive(Debug, Clone, Copy)]
pub struct Layout {
    /// Top-level vdevs.
    pub tops: usize,
    /// Sides of each: 1 is no mirror.
    pub sides: usize,
    /// Columns of parity of each: then its sides are columns of RAID-Z.
    pub parity: u8,
    /// Bytes of each device.
    pub bytes: u64,
    /// log2 of the smallest allocation.
    pub ashift: u32,
}

impl Default for Layout {
    fn default() -> Self {
        Layout { tops: 1, sides: 1, parity: 0, bytes: 256 << 20, ashift: 12 }
    }
}

/// The images of the pool, and what removes them.
enum Images {
    Own(tempfile::TempDir),
    Golden(Box<Golden>),
}

/// A pool, its images and the models of its file systems.
pub struct Rig {
    images: Images,
    name: String,
    pool: Option<Arc<Pool>>,
    models: BTreeMap<String, Model>,
    /// The file systems that are open.
    open: BTreeMap<String, Arc<FileSystem>>,
    tunables: Tunables,
    judged: u32,
}

/// Property changes from words: `("compression", "zstd-19")`, `("recordsize", "1M")`.
pub fn properties(words: &[(&str, &str)]) -> Vec<(String, PropertyChange)> {
    words.iter().map(|(name, word)| ((*name).to_owned(), PropertyChange::Set(property_value(name, word)))).collect()
}

fn property_value(name: &str, word: &str) -> PropertyValue {
    let property = prop_table::find(name).unwrap_or_else(|| panic!("no property {name}"));
    if property.is_text() {
        return PropertyValue::Text(word.to_owned());
    }
    let number = property.word_to_number(word).or_else(|| {
        let digits = word.trim_end_matches(['K', 'M', 'G']);
        let unit = match &word[digits.len()..] {
            "K" => 10,
            "M" => 20,
            "G" => 30,
            _ => 0,
        };
        digits.parse::<u64>().ok().map(|number| number << unit)
    });
    PropertyValue::Number(number.unwrap_or_else(|| panic!("{name} cannot be {word}")))
}

/// Bytes that do not compress (`texture` 0), compress somewhat, or well: a function of the arguments.
pub fn contents(seed: u64, length: usize, texture: u8) -> Vec<u8> {
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    let mut bytes = vec![0; length];
    random.fill(bytes.as_mut_slice());
    match texture {
        0 => {}
        1 => bytes.iter_mut().enumerate().for_each(|(at, byte)| *byte = if at % 64 < 24 { *byte } else { (at / 64) as u8 }),
        _ => bytes.iter_mut().enumerate().for_each(|(at, byte)| *byte = b"tarnished copper "[at % 17] ^ u8::from(at % 4096 == 0)),
    }
    bytes
}

impl Rig {
    /// A new pool `tank`.
    pub fn create(layout: Layout, words: &[(&str, &str)]) -> Rig {
        Self::create_with(layout, words, Tunables::default())
    }

    /// A new pool `tank` with other limits.
    pub fn create_with(layout: Layout, words: &[(&str, &str)], tunables: Tunables) -> Rig {
        Self::create_any(layout, words, tunables, (None, None))
    }

    /// A new pool `tank` with these features only.
    pub fn create_featured(layout: Layout, words: &[(&str, &str)], features: Vec<Feature>) -> Rig {
        Self::create_any(layout, words, Tunables::default(), (Some(features), None))
    }

    /// A new pool `tank` whose sides are columns of dRAID.
    pub fn create_draid(layout: Layout, draid: DraidColumns, words: &[(&str, &str)]) -> Rig {
        Self::create_any(layout, words, Tunables::default(), (None, Some(draid)))
    }

    fn create_any(layout: Layout, words: &[(&str, &str)], tunables: Tunables, (features, draid): (Option<Vec<Feature>>, Option<DraidColumns>)) -> Rig {
        let directory = tempfile::Builder::new().prefix("tarn-write-").tempdir().expect("a directory for the images");
        let mut vdevs = Vec::new();
        for top in 0..layout.tops {
            let paths: Vec<PathBuf> = (0..layout.sides).map(|side| directory.path().join(format!("d{top}-{side}.img"))).collect();
            for path in &paths {
                File::create(path).and_then(|file| file.set_len(layout.bytes)).expect("an image");
            }
            vdevs.push(VdevPaths { paths, parity: layout.parity, draid, ..VdevPaths::default() });
        }
        let options = CreateOptions {
            ashift: Some(layout.ashift),
            properties: properties(words),
            command: "zpool create tank".into(),
            tunables: Some(tunables.clone()),
            features,
            ..CreateOptions::default()
        };
        let pool = Pool::create("tank", &vdevs, options).unwrap_or_else(|error| panic!("creating the pool: {error}"));
        let models = BTreeMap::from([("tank".to_owned(), Model::new())]);
        Rig { images: Images::Own(directory), name: "tank".into(), pool: Some(pool), models, open: BTreeMap::new(), tunables, judged: 0 }
    }

    /// A golden pool, imported for writing. `None` if it is not there.
    pub fn golden(name: &str) -> Option<Rig> {
        Golden::find(name).unwrap_or_else(|error| panic!("{name}: {error:#}")).map(Self::of_golden)
    }

    /// An unpacked golden pool, imported for writing.
    pub fn of_golden(golden: Golden) -> Rig {
        let pool_name = golden.manifest.pool.name.clone();
        Self::imported(Images::Golden(Box::new(golden)), pool_name)
    }

    /// A copy of the pool on these images, imported for writing.
    pub fn copy_of(name: &str, images: &[PathBuf]) -> Rig {
        let directory = tempfile::Builder::new().prefix("tarn-write-").tempdir().expect("a directory for the images");
        for image in images {
            let copied = std::process::Command::new("cp").arg("--sparse=always").arg(image).arg(directory.path()).status();
            assert!(copied.is_ok_and(|status| status.success()), "copying {}", image.display());
        }
        Self::imported(Images::Own(directory), name.to_owned())
    }

    /// A pool that is there already.
    fn imported(images: Images, name: String) -> Rig {
        let (models, open) = (BTreeMap::new(), BTreeMap::new());
        let mut rig = Rig { images, name, pool: None, models, open, tunables: Tunables::default(), judged: 0 };
        rig.import();
        rig
    }

    /// The golden pool under this rig.
    pub fn golden_pool(&self) -> &Golden {
        match &self.images {
            Images::Golden(golden) => golden,
            Images::Own(_) => panic!("not a golden pool"),
        }
    }

    fn directory(&self) -> &Path {
        match &self.images {
            Images::Own(directory) => directory.path(),
            Images::Golden(golden) => golden.directory(),
        }
    }

    /// The images, in the order of their names.
    pub fn images(&self) -> Vec<PathBuf> {
        match &self.images {
            // A test may have taken one away.
            Images::Golden(golden) => golden.images.iter().filter(|image| image.exists()).cloned().collect(),
            Images::Own(directory) => {
                let listed = std::fs::read_dir(directory.path()).expect("the images");
                let mut images: Vec<PathBuf> = listed.map(|entry| entry.expect("an image").path()).collect();
                images.sort();
                images
            }
        }
    }

    /// The imported pool.
    pub fn pool(&self) -> &Arc<Pool> {
        self.pool.as_ref().expect("the pool is imported")
    }

    /// Works on the file system `dataset`.
    pub fn actor(&mut self, dataset: &str) -> Actor<'_> {
        let pool = self.pool.as_ref().expect("the pool is imported");
        let fs = self.open.entry(dataset.to_owned()).or_insert_with(|| pool.file_system(dataset).unwrap_or_else(|error| panic!("{dataset}: {error}")));
        let model = self.models.get_mut(dataset).unwrap_or_else(|| panic!("{dataset} has no model"));
        Actor::new(fs, model)
    }

    /// The model of `dataset`.
    pub fn model(&self, dataset: &str) -> &Model {
        &self.models[dataset]
    }

    /// Makes a file system.
    pub fn create_file_system(&mut self, dataset: &str, words: &[(&str, &str)]) {
        self.pool().create_file_system(dataset, properties(words)).unwrap_or_else(|error| panic!("creating {dataset}: {error}"));
        self.models.insert(dataset.to_owned(), Model::new());
    }

    /// Begins a model of a file system that is not empty: it knows only what is made from now on.
    pub fn adopt(&mut self, dataset: &str) {
        self.models.insert(dataset.to_owned(), Model::new());
    }

    /// Destroys a file system.
    pub fn destroy_file_system(&mut self, dataset: &str) {
        self.open.remove(dataset);
        self.pool().destroy_file_system(dataset).unwrap_or_else(|error| panic!("destroying {dataset}: {error}"));
        self.models.remove(dataset);
    }

    /// Sets properties.
    pub fn set(&self, dataset: &str, words: &[(&str, &str)]) {
        self.pool().engine().dsl.set_properties(dataset, properties(words)).unwrap_or_else(|error| panic!("{dataset} {words:?}: {error}"));
        self.pool().refresh_mount_options().expect("new properties");
    }

    /// Waits until all is on disk.
    pub fn sync(&self) {
        self.pool().sync().unwrap_or_else(|error| panic!("sync: {error}"));
    }

    fn release_files(&mut self) {
        for fs in std::mem::take(&mut self.open).values() {
            fs.release_all();
        }
    }

    /// Exports the pool.
    pub fn export(&mut self) {
        self.release_files();
        self.pool().export().unwrap_or_else(|error| panic!("export: {error}"));
        self.pool = None;
    }

    /// Lets go of the pool as a crash does.
    pub fn crash(&mut self) {
        self.open.clear();
        self.pool().abandon();
        self.pool = None;
    }

    /// The limits with which the pool is imported from now on.
    pub fn set_tunables(&mut self, tunables: Tunables) {
        self.tunables = tunables;
    }

    /// Imports the pool for writing.
    pub fn import(&mut self) {
        assert!(self.pool.is_none(), "the pool is imported");
        let options = ImportOptions { force: true, tunables: Some(self.tunables.clone()), ..ImportOptions::default() };
        let pool = Pool::import(&[self.directory().to_owned()], &self.name, options);
        self.pool = Some(pool.unwrap_or_else(|error| panic!("import of {}: {error}", self.name)));
    }

    /// Imports the pool as its checkpoint has it: to look at it, or for good.
    ///
    /// # Errors
    /// It has none, or that cannot be read.
    pub fn rewind(&mut self, read_only: bool) -> Result<(), tarnfs::Error> {
        assert!(self.pool.is_none(), "the pool is imported");
        let options = ImportOptions { force: true, read_only, rewind: Rewind::ToCheckpoint, tunables: Some(self.tunables.clone()), ..ImportOptions::default() };
        self.pool = Some(Pool::import(&[self.directory().to_owned()], &self.name, options)?);
        Ok(())
    }

    /// Our own checker on the images of the exported pool.
    pub fn check(&self, what: &str) {
        let options = ImportOptions { read_only: true, force: true, ..ImportOptions::default() };
        let pool = Pool::import(&[self.directory().to_owned()], &self.name, options);
        let pool = pool.unwrap_or_else(|error| panic!("{what}: read-only import: {error}"));
        let report = pool.check(true, &|_| ()).unwrap_or_else(|error| panic!("{what}: check: {error}"));
        let shown = report.findings.iter().take(20).fold(String::new(), |shown, finding| format!("{shown}\n    {finding}"));
        let verdict = report.is_clean();
        pool.export().expect("nothing to write");
        if !verdict {
            self.keep(what);
        }
        assert!(verdict, "{what}: our checker found {} things:{shown}", report.findings.len());
        assert!(report.blocks > 0 && report.claimed_bytes > 0, "{what}: nothing was checked");
    }

    /// With `TARN_KEEP=DIR`, the images of a pool that failed are copied there.
    fn keep(&self, what: &str) {
        let Some(place) = std::env::var_os("TARN_KEEP") else { return };
        let place = PathBuf::from(place).join(what.replace(['/', ' '], "_"));
        std::fs::create_dir_all(&place).expect("TARN_KEEP");
        for image in self.images() {
            let copied = std::process::Command::new("cp").arg("--sparse=always").arg(&image).arg(&place).status();
            assert!(copied.is_ok_and(|status| status.success()), "copying {}", image.display());
        }
        eprintln!("{what}: the images are in {}", place.display());
    }

    /// The real `zdb` on the images of the exported pool. It reads the contents of files only where `thorough`, or where
    /// `TARN_ORACLE=thorough` says so.
    pub fn zdb(&self, what: &str, thorough: bool) {
        let images = self.images();
        let images: Vec<&Path> = images.iter().map(PathBuf::as_path).collect();
        let thorough = thorough || std::env::var_os("TARN_ORACLE").is_some_and(|value| value == "thorough");
        let result = if thorough { oracle::zdb_check(&images) } else { oracle::zdb_check_metadata(&images) };
        if matches!(result, oracle::OracleResult::Wrong(_)) {
            self.keep(what);
        }
        result.expect_clean(what);
    }

    /// Compares every file system with its model.
    pub fn compare(&self, what: &str) {
        for (dataset, model) in &self.models {
            let fs = self.pool().file_system(dataset).unwrap_or_else(|error| panic!("{what}: {dataset}: {error}"));
            model.compare(&fs, &format!("{what}: {dataset}"));
        }
    }

    /// Compare, export, our checker (which reads all contents), the real `zdb` (which does not), import, compare.
    pub fn judge(&mut self, what: &str) {
        self.judge_with(what, false);
    }

    /// As [`Rig::judge`]; `zdb` reads all contents too, which takes seconds even of a small pool.
    pub fn judge_thoroughly(&mut self, what: &str) {
        self.judge_with(what, true);
    }

    fn judge_with(&mut self, what: &str, thorough: bool) {
        self.judged += 1;
        let what = format!("{what} (judgement {})", self.judged);
        self.compare(&format!("{what}, before the export"));
        self.export();
        self.check(&what);
        self.zdb(&what, thorough);
        self.import();
        self.compare(&format!("{what}, after the import"));
    }

    /// A crash now; then what [`Rig::judge`] does, except that the models are not compared: the caller knows what may
    /// be there.
    pub fn judge_crash(&mut self, what: &str) {
        self.crash();
        self.check(&format!("{what}: as the crash left it"));
        self.zdb(&format!("{what}: as the crash left it"), false);
        self.import();
    }

    /// Replaces the model of `dataset`.
    pub fn set_model(&mut self, dataset: &str, model: Model) {
        self.models.insert(dataset.to_owned(), model);
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        // A test that failed leaves the threads of the pool behind otherwise.
        self.open.clear();
        if let Some(pool) = self.pool.take() {
            pool.abandon();
        }
    }
}
