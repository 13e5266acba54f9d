//! The write path at length. Everything here takes long and is ignored; it is run with
//! `cargo test -p sim --test write_long -- --ignored --test-threads 1` (or `cargo xtask oracle`).

use sim::scenario::{Layout, Mix, RandomSteps, Rig, contents};
use tarnfs::{ErrorKind, WriteMode};

/// Some files with everything in them, a few changes, and half of it removed.
fn everything(rig: &mut Rig, dataset: &str, seed: u64, what: &str) {
    let mut actor = rig.actor(dataset);
    let base = format!("dir{seed}");
    actor.mkdir(&base);
    for number in 0..12u64 {
        let path = format!("{base}/f{number}");
        let length = [0, 1, 100, 511, 513, 4096, 20_000, 131_072, 131_073, 700_000, 2_000_000, 3_000_001][number as usize];
        actor.file(&path, &contents(seed * 100 + number, length, number as u8 % 3));
        actor.setxattr(&path, "user.a", &contents(number, 40 * number as usize, 0));
    }
    actor.symlink(&format!("{base}/s"), b"somewhere");
    actor.file(&format!("{base}/zeros"), &vec![0; 600_000]);
    actor.write(&format!("{base}/zeros"), 5_000_000, b"end");
    actor.setxattr(&format!("{base}/f3"), "user.big", &contents(seed, 9000, 0));
    rig.judge(&format!("{what}: made"));
    let mut actor = rig.actor(dataset);
    for number in 0..12 {
        let path = format!("{base}/f{number}");
        match number % 4 {
            0 => actor.unlink(&path),
            1 => actor.truncate(&path, 30_000),
            2 => actor.write(&path, 10_000, &contents(seed + 7, 300_000, 0)),
            _ => actor.chown(&path, 1000, 1000),
        }
    }
    rig.judge_thoroughly(&format!("{what}: changed"));
}

#[test]
#[ignore = "long"]
fn record_sizes() {
    let mut rig = Rig::create(Layout { bytes: 1 << 30, ..Layout::default() }, &[]);
    for (seed, size) in ["512", "1K", "4K", "16K", "64K", "1M", "2M", "4M", "8M", "16M"].iter().enumerate() {
        let dataset = format!("tank/r{size}");
        rig.create_file_system(&dataset, &[("recordsize", size)]);
        let mut actor = rig.actor(&dataset);
        actor.file("large", &contents(seed as u64, 20_000_000, 1));
        actor.file("two", &contents(seed as u64, 2 * 65_536 + 1, 0));
        everything(&mut rig, &dataset, seed as u64, &dataset);
    }
    for size in ["512", "16K", "16M"] {
        rig.destroy_file_system(&format!("tank/r{size}"));
    }
    rig.judge_thoroughly("datasets destroyed");
}

#[test]
#[ignore = "long"]
fn compressions() {
    let mut rig = Rig::create(Layout { bytes: 1 << 30, ..Layout::default() }, &[]);
    let words = ["off", "lzjb", "lz4", "gzip-1", "gzip", "gzip-9", "zle", "zstd", "zstd-1", "zstd-19", "zstd-fast", "zstd-fast-10", "zstd-fast-1000", "on"];
    for (seed, word) in words.iter().enumerate() {
        let dataset = format!("tank/{word}");
        rig.create_file_system(&dataset, &[("compression", word)]);
        everything(&mut rig, &dataset, seed as u64, &dataset);
    }
    for (seed, word) in words.iter().enumerate() {
        rig.set("tank/on", &[("compression", word)]);
        let mut actor = rig.actor("tank/on");
        actor.file(&format!("with-{word}"), &contents(seed as u64 + 1000, 1_000_000, 1));
    }
    rig.judge_thoroughly("all in one");
    for word in words {
        rig.destroy_file_system(&format!("tank/{word}"));
    }
    rig.judge_thoroughly("datasets destroyed");
}

#[test]
#[ignore = "long"]
fn checksums() {
    let mut rig = Rig::create(Layout { bytes: 1 << 30, ..Layout::default() }, &[]);
    let words = ["off", "fletcher2", "fletcher4", "sha256", "sha512", "skein", "edonr", "blake3", "on"];
    for (seed, word) in words.iter().enumerate() {
        let dataset = format!("tank/{word}");
        rig.create_file_system(&dataset, &[("checksum", word)]);
        everything(&mut rig, &dataset, seed as u64, &dataset);
    }
    for (seed, word) in words.iter().enumerate() {
        rig.set("tank/on", &[("checksum", word)]);
        let mut actor = rig.actor("tank/on");
        actor.file(&format!("with-{word}"), &contents(seed as u64 + 1000, 1_000_000, 1));
    }
    rig.judge_thoroughly("all in one");
    for word in words {
        rig.destroy_file_system(&format!("tank/{word}"));
    }
    rig.judge_thoroughly("datasets destroyed");
}

#[test]
#[ignore = "long"]
fn copies_and_redundant_metadata() {
    for tops in [1, 3] {
        let mut rig = Rig::create(Layout { tops, bytes: 512 << 20, ..Layout::default() }, &[]);
        for (seed, copies) in ["2", "3"].iter().enumerate() {
            let dataset = format!("tank/c{copies}");
            rig.create_file_system(&dataset, &[("copies", copies)]);
            everything(&mut rig, &dataset, seed as u64, &dataset);
        }
        for (seed, word) in ["all", "most", "some", "none"].iter().enumerate() {
            let dataset = format!("tank/{word}");
            rig.create_file_system(&dataset, &[("redundant_metadata", word), ("recordsize", "4K")]);
            everything(&mut rig, &dataset, seed as u64, &dataset);
        }
        rig.destroy_file_system("tank/c3");
        rig.destroy_file_system("tank/none");
        rig.judge_thoroughly("datasets destroyed");
    }
}

#[test]
#[ignore = "long"]
fn dnode_sizes() {
    let mut rig = Rig::create(Layout { bytes: 512 << 20, ..Layout::default() }, &[]);
    let words = ["legacy", "auto", "1k", "2k", "4k", "8k", "16k"];
    for (seed, word) in words.iter().enumerate() {
        let dataset = format!("tank/{word}");
        rig.create_file_system(&dataset, &[("dnodesize", word), ("xattr", "sa")]);
        everything(&mut rig, &dataset, seed as u64, &dataset);
    }
    // Sizes side by side, and slots that are used again.
    rig.create_file_system("tank/mixed", &[("xattr", "sa")]);
    for round in 0..3u64 {
        for (at, word) in words.iter().enumerate() {
            rig.set("tank/mixed", &[("dnodesize", word)]);
            let mut actor = rig.actor("tank/mixed");
            for number in 0..60u64 {
                let path = format!("f{at}-{number}");
                if actor.model.find(&path).is_some() {
                    if !(number + round).is_multiple_of(3) {
                        actor.unlink(&path);
                    }
                } else {
                    actor.file(&path, &contents(number, 1000, 1));
                    actor.setxattr(&path, "user.a", &contents(number, 100 * (number as usize % 20), 0));
                }
            }
        }
        rig.judge(&format!("mixed sizes, round {round}"));
    }
    for word in words {
        rig.destroy_file_system(&format!("tank/{word}"));
    }
    rig.judge_thoroughly("datasets destroyed");
}

#[test]
#[ignore = "long"]
fn layouts() {
    let shapes = (9..=16).map(|ashift| Layout { ashift, bytes: 512 << 20, ..Layout::default() });
    let more = [(2, 1, 12), (4, 1, 9), (4, 1, 12), (1, 2, 9), (1, 3, 12), (2, 2, 12), (3, 2, 13)];
    let more = more.map(|(tops, sides, ashift)| Layout { tops, sides, ashift, bytes: 256 << 20 });
    for layout in shapes.chain(more) {
        let what = format!("{layout:?}");
        let mut rig = Rig::create(layout, &[]);
        everything(&mut rig, "tank", 1, &what);
        rig.create_file_system("tank/a", &[("recordsize", "1M"), ("compression", "zstd")]);
        everything(&mut rig, "tank/a", 2, &what);
        rig.destroy_file_system("tank/a");
        rig.judge(&format!("{what}: destroyed"));
    }
}

#[test]
#[ignore = "long"]
fn datasets_come_and_go() {
    let mut rig = Rig::create(Layout { bytes: 1 << 30, ..Layout::default() }, &[]);
    for round in 0..4u64 {
        for number in 0..8u64 {
            let dataset = format!("tank/d{number}");
            if (number + round).is_multiple_of(3) && round > 0 && rig.pool().engine().dsl.open_dataset(&dataset).is_ok() {
                rig.destroy_file_system(&dataset);
                continue;
            }
            if rig.pool().engine().dsl.open_dataset(&dataset).is_err() {
                rig.create_file_system(&dataset, &[("recordsize", "4K"), ("quota", "200M")]);
            }
            let mut actor = rig.actor(&dataset);
            for file in 0..40 {
                let path = format!("r{round}-{file}");
                actor.file(&path, &contents(round * 1000 + file, 300_000, 0));
            }
        }
        rig.judge(&format!("round {round}"));
    }
    for number in 0..8 {
        let dataset = format!("tank/d{number}");
        if rig.pool().engine().dsl.open_dataset(&dataset).is_ok() {
            rig.destroy_file_system(&dataset);
        }
    }
    rig.judge_thoroughly("all destroyed");
}

#[test]
#[ignore = "long"]
fn quota() {
    let mut rig = Rig::create(Layout { bytes: 512 << 20, ..Layout::default() }, &[("compression", "off")]);
    rig.create_file_system("tank/q", &[("quota", "20M")]);
    rig.create_file_system("tank/r", &[("reservation", "300M")]);
    let mut actor = rig.actor("tank/q");
    let inode = actor.create_held("big");
    let mut wrote = 0;
    let error = loop {
        let data = contents(wrote, 1 << 20, 0);
        match actor.fs.write(inode, WriteMode::At(wrote << 20), &data, &actor.user) {
            Ok(_) => actor.wrote("big", (wrote << 20) as usize, &data),
            Err(error) => break error,
        }
        wrote += 1;
        actor.fs.sync().unwrap();
        assert!(wrote < 40, "the quota stops nobody");
    };
    assert_eq!(error.kind(), ErrorKind::Quota, "{error}");
    assert!(wrote >= 16, "only {wrote} MiB fit");
    rig.judge("a full quota");
    let mut actor = rig.actor("tank/q");
    actor.unlink("big");
    rig.sync();
    rig.sync();
    let mut actor = rig.actor("tank/q");
    actor.file("again", &contents(1, 8 << 20, 0));
    rig.judge_thoroughly("again");
}

#[test]
#[ignore = "long"]
fn random_seeds() {
    let seeds = std::env::var("TARN_SEEDS").ok().and_then(|number| number.parse().ok()).unwrap_or(6);
    for seed in 0..seeds {
        let layout = [
            Layout::default(),
            Layout { ashift: 9, ..Layout::default() },
            Layout { tops: 3, ..Layout::default() },
            Layout { sides: 2, ashift: 9, ..Layout::default() },
        ][seed as usize % 4];
        let words: &[(&str, &str)] = [
            &[("recordsize", "4K"), ("dnodesize", "auto")] as &[_],
            &[("xattr", "on"), ("compression", "zstd")],
            &[("recordsize", "1M"), ("copies", "2"), ("checksum", "sha256")],
            &[("compression", "off"), ("recordsize", "512")],
            &[("dnodesize", "16k"), ("compression", "gzip"), ("checksum", "blake3")],
        ][seed as usize % 5];
        let mut rig = Rig::create(layout, words);
        rig.create_file_system("tank/other", &[]);
        let mut steps = RandomSteps::new(seed + 100, Mix::default());
        for round in 0..5 {
            for step in 0..400 {
                let dataset = if step % 3 == 0 { "tank/other" } else { "tank" };
                steps.step(&mut rig.actor(dataset));
                if step % 97 == 96 {
                    rig.sync();
                }
            }
            rig.judge(&format!("seed {seed}, round {round}"));
        }
        rig.judge_thoroughly(&format!("seed {seed}"));
    }
}
