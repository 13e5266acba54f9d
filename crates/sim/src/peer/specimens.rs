//! The pools that are shown to the kernel module: one row each, with how it is made.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use ondisk::feature::Feature;
use tarnfs::{ErrorKind, WriteMode};

use super::Specimen;
use super::contents::{a_little_of_everything, access_lists};
use crate::scenario::{Layout, Mix, RandomSteps, Rig, contents};

/// How a specimen is made.
pub(super) struct Recipe {
    pub(super) name: String,
    pub(super) degraded: bool,
    pub(super) full: bool,
    make: Box<dyn Fn() -> Option<Rig>>,
}

const SMALL: Layout = Layout { tops: 1, sides: 1, parity: 0, bytes: 128 << 20, ashift: 12 };

fn recipe(name: impl Into<String>, make: impl Fn() -> Rig + 'static) -> Recipe {
    Recipe { name: name.into(), degraded: false, full: false, make: Box::new(move || Some(make())) }
}

/// A pool with a little of everything, exported.
fn everything(layout: Layout, words: &[(&str, &str)]) -> Rig {
    let mut rig = Rig::create(layout, words);
    a_little_of_everything(&mut rig.actor("tank"), "base", 1);
    rig.export();
    rig
}

/// All of them.
pub(super) fn all() -> Vec<Recipe> {
    let mut all = states();
    all.extend(layouts());
    all.extend(values());
    all.extend(features());
    all.extend(golden());
    all.extend(upgraded());
    all
}

/// A pool in the states that it may be left in.
fn states() -> Vec<Recipe> {
    vec![
        recipe("state-fresh", || {
            let mut rig = Rig::create(SMALL, &[]);
            rig.export();
            rig
        }),
        recipe("state-fresh-killed", || {
            let mut rig = Rig::create(SMALL, &[]);
            rig.crash();
            rig
        }),
        Recipe { full: true, ..recipe("state-full", full) },
        recipe("state-full-half-deleted", || {
            let mut rig = Rig::create(Layout { bytes: 64 << 20, ashift: 9, ..SMALL }, &[("compression", "off"), ("recordsize", "8K")]);
            let files = fill(&mut rig);
            let mut actor = rig.actor("tank");
            (0..files).step_by(2).for_each(|number| actor.unlink(&format!("fill{number}")));
            rig.export();
            rig
        }),
        recipe("state-killed", killed),
        recipe("state-killed-unlinked", killed_with_unlinked),
        recipe("state-killed-destroying", || {
            let mut rig = Rig::create(SMALL, &[]);
            rig.create_file_system("tank/gone", &[("recordsize", "512")]);
            rig.create_file_system("tank/stays", &[]);
            rig.actor("tank/gone").file("many-blocks", &contents(1, 4 << 20, 0));
            a_little_of_everything(&mut rig.actor("tank/stays"), "base", 3);
            rig.sync();
            rig.destroy_file_system("tank/gone");
            rig.crash();
            rig
        }),
        recipe("state-random", random),
        recipe("state-gang", in_gangs),
        recipe("state-directories", directories),
        recipe("state-volume", || {
            let mut rig = everything(SMALL, &[]);
            rig.import();
            rig.pool().create_volume("tank/volume", 8 << 20, 16 << 10, Vec::new()).expect("a volume");
            rig.export();
            rig
        }),
    ]
}

fn random() -> Rig {
    let mut rig = Rig::create(SMALL, &[("dnodesize", "auto"), ("recordsize", "16K")]);
    let mut steps = RandomSteps::new(77, Mix { file_bytes: 300_000, ..Mix::default() });
    for step in 0..600 {
        steps.step(&mut rig.actor("tank"));
        if step % 40 == 39 {
            rig.sync();
        }
    }
    rig.export();
    rig
}

fn in_gangs() -> Rig {
    let mut rig = Rig::create(Layout { bytes: 64 << 20, ashift: 9, ..SMALL }, &[("compression", "off"), ("recordsize", "512")]);
    let files = fill_with(&mut rig, 20_000);
    let mut actor = rig.actor("tank");
    (0..files).step_by(2).for_each(|number| actor.unlink(&format!("fill{number}")));
    (0..3).for_each(|_| rig.sync());
    rig.set("tank", &[("recordsize", "1M")]);
    rig.actor("tank").file("in-pieces", &contents(9, 4 << 20, 0));
    rig.export();
    rig
}

fn directories() -> Rig {
    let mut rig = Rig::create(SMALL, &[]);
    let mut actor = rig.actor("tank");
    actor.mkdir("large");
    for number in 0..4000 {
        actor.file(&format!("large/{number}-{}", "x".repeat(number % 120)), b"");
    }
    (0..4000).step_by(7).for_each(|number| actor.unlink(&format!("large/{number}-{}", "x".repeat(number % 120))));
    rig.export();
    rig
}

fn killed_with_unlinked() -> Rig {
    let mut rig = Rig::create(SMALL, &[]);
    let mut actor = rig.actor("tank");
    for number in 0..40 {
        let path = format!("open{number}");
        let inode = actor.create_held(&path);
        actor.fs.write(inode, WriteMode::At(0), &contents(number, 200_000, 0), &actor.user).expect("a write");
        actor.unlink(&path);
    }
    rig.sync();
    rig.crash();
    rig
}

fn full() -> Rig {
    let mut rig = Rig::create(Layout { bytes: 64 << 20, ..SMALL }, &[("compression", "off")]);
    fill(&mut rig);
    rig.export();
    rig
}

/// Killed while several groups were on their way.
fn killed() -> Rig {
    let tunables = engine::tunables::Tunables { txg_timeout_ns: 20_000_000, ..engine::tunables::Tunables::default() };
    let mut rig = Rig::create_with(SMALL, &[("recordsize", "8K")], tunables);
    a_little_of_everything(&mut rig.actor("tank"), "base", 5);
    rig.sync();
    let actor = rig.actor("tank");
    for number in 0..300u64 {
        let stat = actor.fs.create(actor.fs.root(), format!("l{number}").as_bytes(), 0o100_644, 0, &actor.user).expect("a file");
        actor.fs.write(stat.inode, WriteMode::At(0), &contents(number, 30_000, 0), &actor.user).expect("a write");
        actor.fs.forget(stat.inode, 1);
    }
    rig.crash();
    rig
}

/// Fills the root file system with files of 1 MB. Returns how many.
fn fill(rig: &mut Rig) -> u64 {
    fill_with(rig, 1_000_000)
}

fn fill_with(rig: &mut Rig, bytes: usize) -> u64 {
    let mut actor = rig.actor("tank");
    for number in 0.. {
        let path = format!("fill{number}");
        let created = actor.fs.create(actor.fs.root(), path.as_bytes(), 0o100_644, 0, &actor.user);
        let data = contents(number, bytes, 0);
        let wrote = created.and_then(|stat| {
            let wrote = actor.fs.write(stat.inode, WriteMode::At(0), &data, &actor.user);
            actor.fs.forget(stat.inode, 1);
            wrote
        });
        match wrote {
            Ok(_) => actor.adopt(&path, &data, 0o100_644),
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::NoSpace, "{error}");
                let _ = actor.fs.unlink(actor.fs.root(), path.as_bytes());
                return number;
            }
        }
    }
    unreachable!("a pool that is never full")
}

fn layouts() -> Vec<Recipe> {
    let mut all: Vec<Recipe> = [9, 10, 13, 14, 16]
        .into_iter()
        .map(|ashift| recipe(format!("ashift-{ashift}"), move || everything(Layout { ashift, bytes: 256 << 20, ..SMALL }, &[])))
        .collect();
    for (name, tops, sides, ashift) in [("stripe-3", 3, 1, 12), ("mirror-2", 1, 2, 9), ("mirror-3", 1, 3, 12), ("mirrors-2x2", 2, 2, 12)] {
        all.push(recipe(name, move || everything(Layout { tops, sides, ashift, ..SMALL }, &[])));
    }
    all.push(Recipe { degraded: true, ..recipe("mirror-missing", || behind(false)) });
    all.push(Recipe { degraded: true, ..recipe("mirror-behind", || behind(true)) });
    all
}

/// Old pools of the kernel module's, upgraded by us while they are open.
fn upgraded() -> Vec<Recipe> {
    let make = |name: &'static str| Recipe {
        make: Box::new(move || {
            let mut rig = Rig::golden(name)?;
            let dataset = format!("{}/new", rig.golden_pool().manifest.pool.name);
            rig.pool().engine().raise_version(5000).expect("a version that we convert");
            rig.pool().engine().enable_features(Feature::for_new_pools().collect()).expect("features that we write");
            rig.create_file_system(&dataset, &[("compression", "zstd"), ("recordsize", "1M")]);
            a_little_of_everything(&mut rig.actor(&dataset), "base", 1);
            rig.export();
            Some(rig)
        }),
        name: format!("upgraded-{name}"),
        degraded: false,
        full: false,
    };
    ["v28", "nofeat"].into_iter().map(make).collect()
}

/// A mirror one side of which was away while we wrote; `back`: it is there again.
fn behind(back: bool) -> Rig {
    let mut rig = Rig::create(Layout { sides: 2, ..SMALL }, &[]);
    a_little_of_everything(&mut rig.actor("tank"), "base", 1);
    rig.export();
    let away = rig.images().pop().expect("two sides");
    let aside = away.with_extension("away");
    let hidden = tempfile::tempdir().expect("a directory");
    let kept = hidden.path().join(aside.file_name().expect("a name"));
    copy(&away, &kept).expect("a copy");
    std::fs::remove_file(&away).expect("the side goes");
    rig.import();
    a_little_of_everything(&mut rig.actor("tank"), "alone", 2);
    rig.sync();
    rig.actor("tank").remove_all("base");
    rig.export();
    if back {
        copy(&kept, &away).expect("the side comes back");
    }
    rig
}

/// A dataset for each value of each property that changes what is on disk.
fn values() -> Vec<Recipe> {
    const VALUES: &[(&str, &[&str], &[(&str, &str)])] = &[
        ("compression", &["off", "lzjb", "lz4", "gzip-1", "gzip", "gzip-9", "zle", "zstd", "zstd-1", "zstd-19", "zstd-fast", "zstd-fast-1000"], &[]),
        ("checksum", &["off", "fletcher2", "fletcher4", "sha256", "sha512", "skein", "edonr", "blake3"], &[]),
        ("recordsize", &["512", "1K", "4K", "16K", "64K", "256K", "1M", "4M", "16M"], &[("compression", "off")]),
        ("dnodesize", &["legacy", "auto", "1k", "2k", "4k", "8k", "16k"], &[("xattr", "sa")]),
        ("xattr", &["sa", "on"], &[("acltype", "posix")]),
        ("copies", &["1", "2", "3"], &[]),
        ("redundant_metadata", &["all", "most", "some", "none"], &[("recordsize", "4K")]),
        ("acltype", &["off", "posix", "nfsv4"], &[]),
        ("normalization", &["none", "formD", "formKC"], &[]),
        ("casesensitivity", &["sensitive", "insensitive", "mixed"], &[]),
    ];
    let make = |property: &'static str, values: &'static [&'static str], also: &'static [(&'static str, &'static str)]| {
        move || {
            let mut rig = Rig::create(Layout { bytes: 256 << 20, ..SMALL }, &[]);
            for (number, value) in values.iter().enumerate() {
                let dataset = format!("tank/{value}");
                let words: Vec<(&str, &str)> = also.iter().copied().chain([(property, *value)]).collect();
                rig.create_file_system(&dataset, &words);
                let mut actor = rig.actor(&dataset);
                a_little_of_everything(&mut actor, "base", number as u64);
                if words.contains(&("acltype", "posix")) {
                    access_lists(&mut actor, "base");
                }
            }
            rig.export();
            rig
        }
    };
    VALUES.iter().map(|(property, values, also)| recipe(format!("each-{property}"), make(property, values, also))).collect()
}

/// A pool without each feature and those that need it, and one without any.
fn features() -> Vec<Recipe> {
    let make = |features: Vec<Feature>| {
        move || {
            let mut rig = Rig::create_featured(SMALL, &[], features.clone());
            a_little_of_everything(&mut rig.actor("tank"), "base", 1);
            rig.create_file_system("tank/other", &[]);
            a_little_of_everything(&mut rig.actor("tank/other"), "base", 2);
            rig.create_file_system("tank/gone", &[]);
            rig.actor("tank/gone").file("file", &contents(3, 100_000, 0));
            rig.sync();
            rig.destroy_file_system("tank/gone");
            rig.export();
            rig.import();
            a_little_of_everything(&mut rig.actor("tank/other"), "again", 7);
            rig.export();
            rig
        }
    };
    let mut all = vec![recipe("features-none", make(Vec::new()))];
    for off in Feature::for_new_pools() {
        let needs_it = |feature: &Feature| {
            let mut waiting = vec![*feature];
            while let Some(at) = waiting.pop() {
                if at == off {
                    return true;
                }
                waiting.extend(at.info().depends_on);
                // OpenZFS allows logs without histograms, and its zdb then counts one for each log all the same.
                waiting.extend((at == Feature::LogSpacemap).then_some(Feature::SpacemapHistogram));
            }
            false
        };
        let left = Feature::for_new_pools().filter(|feature| !needs_it(feature)).collect();
        all.push(recipe(format!("without-{}", off.name()), make(left)));
    }
    all
}

/// Pools that the kernel module made, changed by us.
fn golden() -> Vec<Recipe> {
    let names = ["v28", "nofeat", "upgraded", "mirror2", "crash", "copies", "quota", "snap", "clone", "special", "bclone", "dedup-legacy", "dedup-fast", "resilver"];
    let make = |name: &'static str| Recipe {
        name: format!("golden-{name}"),
        degraded: name == "resilver",
        full: false,
        make: Box::new(move || {
            // Where we refuse to write it, there is nothing to show.
            let mut rig = catch_unwind(AssertUnwindSafe(|| Rig::golden(name))).ok().flatten()?;
            let datasets: Vec<_> = rig.golden_pool().manifest.datasets.iter().map(|dataset| (dataset.name.clone(), dataset.kind.clone())).collect();
            for (dataset, _) in datasets.iter().filter(|(_, kind)| kind == "filesystem") {
                rig.adopt(dataset);
                if !rig.actor(dataset).fs.is_read_only() {
                    a_little_of_everything(&mut rig.actor(dataset), "tarn-was-here", 4);
                }
            }
            rig.export();
            Some(rig)
        }),
    };
    names.into_iter().map(make).collect()
}

fn copy(from: &Path, to: &Path) -> Result<()> {
    let status = Command::new("cp").arg("--sparse=always").arg(from).arg(to).status()?;
    ensure!(status.success(), "{} was not copied to {}", from.display(), to.display());
    Ok(())
}

/// Makes a specimen below `place`.
pub(super) fn make(recipe: &Recipe, place: &Path) -> Result<Specimen, (String, anyhow::Error)> {
    println!("making {}", recipe.name);
    let directory = place.join(&recipe.name);
    let made = || -> Result<()> {
        let rig = catch_unwind(AssertUnwindSafe(&recipe.make));
        let rig = rig.map_err(|panic| anyhow::anyhow!("{}", words_of(&*panic)))?.context("we do not write this pool")?;
        if directory.exists() {
            std::fs::remove_dir_all(&directory)?;
        }
        std::fs::create_dir_all(&directory)?;
        rig.images().iter().try_for_each(|image| copy(image, &directory.join(image.file_name().context("a name")?)))
    };
    match made() {
        Ok(()) => Ok(Specimen { name: recipe.name.clone(), directory, degraded: recipe.degraded, full: recipe.full }),
        Err(error) => Err((recipe.name.clone(), error)),
    }
}

fn words_of(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().cloned();
    text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned())).unwrap_or_else(|| "a panic".to_owned())
}
