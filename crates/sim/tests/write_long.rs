//! The write path at length. Everything here takes long and is ignored; it is run with
//! `cargo test -p sim --test write_long -- --ignored --test-threads 1` (or `cargo xtask oracle`).

use engine::tunables::Tunables;
use sim::scenario::{Actor, Layout, Mix, RandomSteps, Rig, contents};
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
    let more = more.map(|(tops, sides, ashift)| Layout { tops, sides, parity: 0, ashift, bytes: 256 << 20 });
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
        actor.fs.sync_group().unwrap();
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

/// The issue's pool: 50,000 files, a random half of them deleted.
#[test]
#[ignore = "long"]
fn fifty_thousand_files() {
    let mut rig = Rig::create(Layout { bytes: 2 << 30, ..Layout::default() }, &[]);
    let mut actor = rig.actor("tank");
    for directory in 0..50u64 {
        actor.mkdir(&format!("d{directory}"));
    }
    for number in 0..50_000u64 {
        // Half of them in one directory.
        let directory = if number % 2 == 0 { 0 } else { number % 50 };
        let length = if number % 100 == 0 { 70_000 } else { (number * 7 % 3000) as usize };
        actor.file(&format!("d{directory}/f{number}"), &contents(number, length, 1));
    }
    rig.judge_thoroughly("50,000 files");
    let mut steps = RandomSteps::new(7, Mix::default());
    let mut actor = rig.actor("tank");
    for number in 0..50_000u64 {
        let directory = if number % 2 == 0 { 0 } else { number % 50 };
        if steps.below(2) == 0 {
            actor.unlink(&format!("d{directory}/f{number}"));
        }
    }
    rig.judge_thoroughly("half of them");
    let mut actor = rig.actor("tank");
    for directory in 0..50u64 {
        actor.remove_all(&format!("d{directory}"));
    }
    rig.judge_thoroughly("none of them");
}

/// Writes files of `piece` bytes until there is no space; how many fit, at least `least`.
fn until_full(actor: &mut Actor<'_>, prefix: &str, piece: usize, least: u64, what: &str) -> u64 {
    let mut number = 0;
    loop {
        let path = format!("{prefix}-{number}");
        let one = || {
            let stat = actor.fs.create(actor.fs.root(), path.as_bytes(), 0o100_644, 0, &actor.user)?;
            let data = contents(number << 8 | piece as u64 & 0xff, piece, 0);
            let wrote = actor.fs.write(stat.inode, WriteMode::At(0), &data, &actor.user);
            actor.fs.forget(stat.inode, 1);
            if let Err(error) = wrote {
                actor.fs.unlink(actor.fs.root(), path.as_bytes()).unwrap_or_else(|failure| panic!("{what}: {path} cannot be removed from a full pool: {failure} (after {error})"));
                return Err(error);
            }
            Ok((stat, data))
        };
        match one() {
            Ok((stat, data)) => actor.adopt(&path, &data, stat.mode),
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::NoSpace, "{what}: {error}");
                assert!(number >= least, "{what}: only {number} files fit: {error}");
                return number;
            }
        }
        number += 1;
    }
}

/// Writes until there is no space, deletes, writes again; several times.
fn fill(layout: Layout, words: &[(&str, &str)], piece: usize, least: u64) {
    let what = format!("full pool, {layout:?} {words:?}");
    let mut rig = Rig::create(layout, words);
    for round in 0..3u64 {
        let mut actor = rig.actor("tank");
        let number = until_full(&mut actor, &format!("r{round}"), piece, least, &what);
        rig.judge(&format!("{what}: full with {number} files"));
        let mut actor = rig.actor("tank");
        for file in 0..number {
            if file % 4 != 3 {
                actor.unlink(&format!("r{round}-{file}"));
            }
        }
        rig.judge(&format!("{what}: three quarters removed"));
        let mut actor = rig.actor("tank");
        actor.file(&format!("after{round}"), &contents(round, piece, 0));
        let kept: Vec<u64> = (0..number).filter(|file| file % 4 == 3).collect();
        for file in kept {
            actor.unlink(&format!("r{round}-{file}"));
        }
    }
    rig.judge_thoroughly(&what);
}

/// The free space of a full pool is in pieces of one small file each; what is large must go there in pieces, until nothing fits.
/// Whatever happens, somebody is told that there is no room, and the pool goes on.
fn wear(layout: Layout, words: &[(&str, &str)], small: usize, large: usize) {
    let what = format!("worn pool, {layout:?} {words:?}, files of {small} and {large} bytes");
    let mut rig = Rig::create(layout, words);
    let mut actor = rig.actor("tank");
    let count = until_full(&mut actor, "small", small, 100, &what);
    for number in (0..count).step_by(2) {
        actor.unlink(&format!("small-{number}"));
    }
    rig.judge(&format!("{what}: every second of {count} files removed"));
    for round in 0..2 {
        let mut actor = rig.actor("tank");
        let number = until_full(&mut actor, &format!("large{round}"), large, 1, &what);
        rig.judge(&format!("{what}: full with {number} large files"));
        let mut actor = rig.actor("tank");
        (0..number).for_each(|number| actor.unlink(&format!("large{round}-{number}")));
    }
    rig.judge_thoroughly(&what);
}

#[test]
fn a_worn_pool_fills_up() {
    wear(Layout { bytes: 64 << 20, ..Layout::default() }, &[("compression", "off")], 4000, 1 << 20);
}

#[test]
#[ignore = "long"]
fn worn_pools_fill_up() {
    let small = Layout { bytes: 64 << 20, ..Layout::default() };
    wear(Layout { ashift: 9, ..small }, &[("compression", "off"), ("recordsize", "1M")], 512, 4 << 20);
    wear(small, &[("copies", "3"), ("compression", "off")], 4000, 300_000);
    wear(Layout { tops: 2, ..small }, &[("copies", "2"), ("recordsize", "16M")], 5000, 5 << 20);
    wear(Layout { bytes: 1 << 30, ..small }, &[("recordsize", "16M"), ("compression", "off")], 100_000, 40 << 20);
    wear(Layout { ashift: 13, bytes: 128 << 20, ..small }, &[("compression", "off")], 8000, 1 << 20);
}

#[test]
#[ignore = "long"]
fn nearly_full() {
    let small = Layout { bytes: 64 << 20, ..Layout::default() };
    fill(small, &[("compression", "off")], 1 << 20, 4);
    fill(Layout { bytes: 512 << 20, ..Layout::default() }, &[], 20 << 20, 4);
    fill(Layout { ashift: 9, ..small }, &[], 3000, 4);
    fill(Layout { tops: 3, ..small }, &[("copies", "3")], 100_000, 4);
    fill(Layout { bytes: 512 << 20, ..Layout::default() }, &[("copies", "3"), ("recordsize", "4K")], 8 << 20, 4);
    fill(Layout { ashift: 13, bytes: 256 << 20, ..Layout::default() }, &[("recordsize", "512")], 200_000, 4);
    fill(Layout { ashift: 16, bytes: 512 << 20, ..Layout::default() }, &[("recordsize", "512")], 50_000, 4);
}

/// One block is a good part of what there is: what is written in several groups takes its place twice.
#[test]
fn nearly_full_of_large_blocks() {
    fill(Layout { bytes: 64 << 20, sides: 2, ..Layout::default() }, &[("recordsize", "16M")], 5 << 20, 1);
}

/// Crashes at random moments: what was synced is there, and nothing is wrong with the pool.
#[test]
#[ignore = "long"]
fn crashes() {
    let tunables = Tunables { txg_timeout_ns: 20_000_000, ..Tunables::default() };
    let mut rig = Rig::create_with(Layout::default(), &[("recordsize", "16K")], tunables);
    let mut steps = RandomSteps::new(11, Mix::default());
    for round in 0..20 {
        for _ in 0..50 {
            steps.step(&mut rig.actor("tank"));
        }
        rig.sync();
        let synced = rig.model("tank").clone();
        // What comes now may be lost, wholly or in part; its names do not collide with those of the model.
        let actor = rig.actor("tank");
        let stat = actor.fs.mkdir(actor.fs.root(), format!("lost{round}").as_bytes(), 0o755, &actor.user).unwrap();
        for number in 0..steps.below(400) as u64 {
            let made = actor.fs.create(stat.inode, format!("f{number}").as_bytes(), 0o100_644, 0, &actor.user).unwrap();
            let length = steps.below(60_000);
            actor.fs.write(made.inode, WriteMode::At(0), &contents(number, length, 0), &actor.user).unwrap();
            if number % 3 == 0 {
                actor.fs.unlink(stat.inode, format!("f{number}").as_bytes()).unwrap();
            }
            if number % 2 == 0 {
                actor.fs.forget(made.inode, 1);
            }
        }
        rig.judge_crash(&format!("crash {round}"));
        let actor = rig.actor("tank");
        actor.fs.drain_delete_queue().unwrap();
        if let Ok(stat) = actor.fs.lookup(actor.fs.root(), format!("lost{round}").as_bytes()) {
            let mut names = Vec::new();
            actor.fs.read_directory(stat.inode, 2, &mut |entry| { names.push(entry.name); true }).unwrap();
            for name in names {
                actor.fs.unlink(stat.inode, &name).unwrap();
            }
            actor.fs.forget(stat.inode, 1);
            actor.fs.rmdir(actor.fs.root(), format!("lost{round}").as_bytes()).unwrap();
        }
        rig.set_model("tank", synced);
        rig.compare(&format!("crash {round}"));
        if round % 5 == 4 {
            rig.judge(&format!("after crash {round}"));
        }
    }
}

/// Several threads write their own parts of one file, and files of their own, over many groups.
#[test]
#[ignore = "long"]
#[allow(clippy::disallowed_methods)] // this test is about threads
fn threads() {
    const THREADS: usize = 4;
    const PIECE: usize = 37_777;
    for (record, seed) in [("128K", 1u64), ("4K", 2), ("1M", 3)] {
        let tunables = Tunables { txg_timeout_ns: 10_000_000, dirty_bytes_max: 8 << 20, ..Tunables::default() };
        let mut rig = Rig::create_with(Layout { bytes: 512 << 20, ..Layout::default() }, &[("recordsize", record)], tunables);
        for round in 0..4u64 {
            let mut actor = rig.actor("tank");
            let path = format!("shared{round}");
            let inode = actor.create_held(&path);
            let pieces = 400;
            std::thread::scope(|scope| {
                for thread in 0..THREADS {
                    let (fs, user) = (actor.fs, &actor.user);
                    scope.spawn(move || {
                        let directory = fs.mkdir(fs.root(), format!("t{round}-{thread}").as_bytes(), 0o755, user).unwrap().inode;
                        for piece in (thread..pieces).step_by(THREADS) {
                            let data = contents(seed << 32 | piece as u64, PIECE, piece as u8 % 3);
                            fs.write(inode, WriteMode::At((piece * PIECE) as u64), &data, user).unwrap();
                            let own = fs.create(directory, format!("f{piece}").as_bytes(), 0o100_644, 0, user).unwrap();
                            fs.write(own.inode, WriteMode::At(0), &data[..piece * 20], user).unwrap();
                            if piece % 3 == 0 {
                                fs.unlink(directory, format!("f{piece}").as_bytes()).unwrap();
                            }
                            fs.forget(own.inode, 1);
                        }
                        fs.forget(directory, 1);
                    });
                }
            });
            actor.fs.forget(inode, 1);
            for piece in 0..pieces {
                actor.wrote(&path, piece * PIECE, &contents(seed << 32 | piece as u64, PIECE, piece as u8 % 3));
            }
            for thread in 0..THREADS {
                actor.adopt_directory(&format!("t{round}-{thread}"));
                for piece in (thread..pieces).step_by(THREADS).filter(|piece| piece % 3 != 0) {
                    let data = contents(seed << 32 | piece as u64, PIECE, piece as u8 % 3);
                    actor.adopt(&format!("t{round}-{thread}/f{piece}"), &data[..piece * 20], 0o100_644);
                }
            }
            rig.judge(&format!("threads, record size {record}, round {round}"));
        }
    }
}
