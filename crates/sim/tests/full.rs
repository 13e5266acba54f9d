//! Verbs on datasets of a pool that has no room left: each is done, or refused without a trace; destroying works, and makes room.

use std::sync::Arc;

use engine::error::ErrorKind;
use sim::life::{Change, Cut, Guids, Receive, Tree, Verb, compare, perform};
use sim::oracle::zdb_check;
use sim::places::say;
use sim::scenario::{Layout, MemoryDisks};
use tarnfs::{Error, Pool};

struct Full {
    disks: MemoryDisks,
    pool: Arc<Pool>,
    tree: Tree,
    guids: Guids,
    /// Verbs that found no room.
    refused: Vec<&'static str>,
}

fn s(text: &str) -> String {
    text.to_owned()
}

fn write(dataset: &str, file: &str, length: usize, seed: u64) -> Verb {
    Verb::Write { dataset: s(dataset), changes: vec![Change::Write { file: s(file), offset: 0, length, seed }], sync: true }
}

fn receive(snapshot: &str, from: Option<&str>, to: &str) -> Verb {
    Verb::Receive(Receive { snapshot: s(snapshot), from: from.map(s), to: s(to), force: true, origin: None, cut: Cut::Whole, flags: 0 })
}

impl Full {
    fn new() -> Full {
        let layout = Layout { tops: 1, sides: 1, parity: 0, bytes: 64 << 20, ashift: 12 };
        let disks = MemoryDisks::create(layout, &[("compression", "off"), ("recordsize", "16384"), ("atime", "off")]);
        let pool = disks.import(false).expect("the new pool");
        Full { disks, pool, tree: Tree::new("tank"), guids: Guids::new(), refused: Vec::new() }
    }

    /// A verb for which there is room, if there must be.
    #[track_caller]
    fn does(&mut self, verb: &Verb, must: bool) {
        let mut tree = self.tree.clone();
        let (expected, found) = (tree.apply(verb), perform(&self.pool, verb));
        match found.as_ref().map(|()| ()).map_err(Error::kind) {
            Err(ErrorKind::NoSpace | ErrorKind::Quota) if !must => self.refused.push(verb.name()),
            kind => {
                assert_eq!(kind, expected, "{verb:?}: {found:?}");
                self.tree = if expected.is_ok() { tree } else { self.tree.clone() };
            }
        }
    }

    /// Writes files, smaller ones at the end, until no more goes in.
    fn fill(&mut self) {
        let mut number = 0;
        for length in [2 << 20, 200_000, 16_384, 512] {
            loop {
                number += 1;
                let file = format!("f{number}");
                let verb = write("tank/full", &file, length, number);
                match perform(&self.pool, &verb) {
                    Ok(()) => self.tree.apply(&verb).expect("a write"),
                    Err(error) => {
                        assert_eq!(error.kind(), ErrorKind::NoSpace, "{error}");
                        let remove = Verb::Write { dataset: s("tank/full"), changes: vec![Change::Remove { file }], sync: true };
                        let removed = perform(&self.pool, &remove).map_err(|error| error.kind());
                        assert!(matches!(removed, Ok(()) | Err(ErrorKind::NotFound)), "{removed:?}");
                        break;
                    }
                }
                assert!(number < 1000, "the pool is never full");
            }
        }
    }

    #[track_caller]
    fn compare(&mut self, what: &str) {
        self.pool.sync().expect("a sync");
        compare(&self.pool, &self.tree, &mut self.guids, false).unwrap_or_else(|reason| panic!("{what}: {reason}"));
        let report = self.pool.check(true, &|_| ()).expect("a check");
        assert!(report.is_clean(), "{what}: {:?}", report.findings);
    }
}

#[test]
fn a_full_pool_refuses_or_does() {
    let mut full = Full::new();
    let snapshot = |name: &str| Verb::Snapshot { names: vec![s(name)] };
    for verb in [
        Verb::Create { dataset: s("tank/a") },
        Verb::Create { dataset: s("tank/full") },
        write("tank/a", "f", 3 << 20, 1),
        snapshot("tank/a@1"),
        write("tank/a", "f", 1 << 20, 2),
        snapshot("tank/a@2"),
        Verb::Clone { snapshot: s("tank/a@1"), to: s("tank/c") },
        write("tank/c", "g", 1 << 20, 3),
        receive("tank/a@1", None, "tank/r@1"),
        snapshot("tank/full@0"),
    ] {
        full.does(&verb, true);
    }
    full.fill();
    full.compare("full");
    for verb in [
        write("tank/a", "f", 2 << 20, 4),
        receive("tank/a@2", None, "tank/new@2"),
        receive("tank/a@2", Some("tank/a@1"), "tank/r@2"),
        snapshot("tank/c@x"),
        Verb::Clone { snapshot: s("tank/a@2"), to: s("tank/n") },
        Verb::Create { dataset: s("tank/m") },
        Verb::Promote { dataset: s("tank/c") },
        Verb::Rename { from: s("tank/c"), to: s("tank/d") },
        Verb::Bookmark { name: s("tank/full#0"), source: s("tank/full@0") },
        Verb::Hold { names: vec![s("tank/full@0")], tag: s("t") },
        Verb::Release { names: vec![s("tank/full@0")], tag: s("t") },
        Verb::RollBack { dataset: s("tank/a"), to: None },
    ] {
        full.does(&verb, false);
    }
    say(&format!("full: no room for {:?}", full.refused));
    assert!(full.refused.contains(&"write") && full.refused.contains(&"receive"), "the pool was not full: {:?}", full.refused);
    full.compare("after verbs without room");
    // What was written may have to be given up in part: the filler is snapshotted, so that only destroying makes room.
    full.does(&Verb::DestroySnapshots { names: vec![s("tank/full@0")], defer: false }, true);
    full.does(&Verb::Destroy { dataset: s("tank/full") }, true);
    for _ in 0..100 {
        full.pool.sync().expect("a sync");
    }
    full.compare("after destroying");
    full.does(&write("tank/a", "h", 4 << 20, 5), true);
    full.does(&snapshot("tank/a@after"), true);
    full.compare("at the end");
    full.pool.export().expect("an export");
    let directory = tempfile::tempdir().expect("a directory");
    let images = full.disks.to_images(directory.path());
    zdb_check(&images.iter().map(std::path::PathBuf::as_path).collect::<Vec<_>>()).expect_clean("a pool that was full");
}
