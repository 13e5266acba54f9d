//! Where the verbs of crash workloads begin, and which there are.

use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;

use super::model::Tree;
use super::random::{Limits, random_verb};
use super::verb::{Change, Cut, Receive, Verb};

const LIMITS: Limits = Limits { datasets: 10, snapshots: 16, file_bytes: 30_000, files: 4 };
/// Verbs of a random workload.
const VERBS: u64 = 5;

fn s(text: &str) -> String {
    text.to_owned()
}

fn write(dataset: &str, file: &str, offset: usize, length: usize, seed: u64, sync: bool) -> Verb {
    Verb::Write { dataset: s(dataset), changes: vec![Change::Write { file: s(file), offset, length, seed }], sync }
}

fn names(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| s(name)).collect()
}

fn receive(snapshot: &str, from: Option<&str>, to: &str) -> Receive {
    Receive { snapshot: s(snapshot), from: from.map(s), to: s(to), force: false, origin: None, cut: Cut::Whole, flags: 0 }
}

/// The verbs that every workload begins after.
pub(super) fn ground() -> Vec<Verb> {
    let snapshot = |all: &[&str]| Verb::Snapshot { names: names(all) };
    let clone = |snapshot: &str, to: &str| Verb::Clone { snapshot: s(snapshot), to: s(to) };
    let mut verbs = vec![Verb::Create { dataset: s("tank/a") }, Verb::Create { dataset: s("tank/a/b") }];
    verbs.extend([write("tank/a", "f", 0, 30_000, 1, true), write("tank/a/b", "f", 0, 9_000, 2, true)]);
    verbs.extend([snapshot(&["tank/a@0"]), write("tank/a", "f", 5_000, 9_000, 3, true), snapshot(&["tank/a@1", "tank/a/b@1"])]);
    // On another pool it would be the same.
    verbs.push(Verb::Receive(receive("tank/a@1", None, "tank/r@1")));
    verbs.extend([write("tank/a", "g", 0, 20_000, 4, true), write("tank/a", "f", 0, 4_000, 5, true), snapshot(&["tank/a@2"])]);
    verbs.extend([clone("tank/a@1", "tank/c"), write("tank/c", "f", 9_000, 9_000, 6, true), snapshot(&["tank/c@1c"]), write("tank/c", "h", 0, 5_000, 7, true)]);
    verbs.extend([snapshot(&["tank/a@d"]), clone("tank/a@d", "tank/d"), Verb::DestroySnapshots { names: names(&["tank/a@d"]), defer: true }]);
    verbs.push(Verb::Hold { names: names(&["tank/a@2"]), tag: s("kept") });
    verbs.push(Verb::DestroySnapshots { names: names(&["tank/a@2"]), defer: true });
    verbs.push(Verb::Bookmark { name: s("tank/a#0"), source: s("tank/a@0") });
    verbs.extend([write("tank/a", "f", 20_000, 9_000, 8, true), write("tank/r", "new", 0, 3_000, 9, true)]);
    verbs
}

/// The verbs that pairs are made of.
pub(super) fn alphabet() -> Vec<Verb> {
    let mut all = vec![
        write("tank/a", "f", 1_000, 12_000, 10, false),
        Verb::Write { dataset: s("tank/c"), changes: vec![Change::Remove { file: s("f") }], sync: true },
        Verb::Create { dataset: s("tank/new") },
        Verb::Snapshot { names: names(&["tank@x", "tank/a@x", "tank/a/b@x", "tank/c@x", "tank/d@x", "tank/r@x"]) },
        Verb::Snapshot { names: names(&["tank/a@y"]) },
        Verb::Clone { snapshot: s("tank/a@1"), to: s("tank/new") },
        Verb::Promote { dataset: s("tank/c") },
        Verb::Promote { dataset: s("tank/d") },
        Verb::RollBack { dataset: s("tank/a"), to: None },
        Verb::RollBack { dataset: s("tank/c"), to: Some(s("1c")) },
        Verb::RollBackAndWrite { dataset: s("tank/c"), changes: vec![Change::Write { file: s("f"), offset: 3_000, length: 12_000, seed: 11 }], snapshot: None },
        Verb::RollBackAndWrite { dataset: s("tank/r"), changes: vec![Change::Write { file: s("n"), offset: 0, length: 9_000, seed: 12 }], snapshot: Some(s("n")) },
        Verb::Rename { from: s("tank/a"), to: s("tank/r/a") },
        Verb::Rename { from: s("tank/c"), to: s("tank/new") },
        Verb::RenameSnapshot { dataset: s("tank/a"), from: s("1"), to: s("z"), recursive: true },
        Verb::DestroySnapshots { names: names(&["tank/a@0"]), defer: false },
        Verb::DestroySnapshots { names: names(&["tank/a@0", "tank/c@1c", "tank/a/b@1"]), defer: false },
        Verb::DestroySnapshots { names: names(&["tank/a@1"]), defer: true },
        Verb::Destroy { dataset: s("tank/d") },
        Verb::Hold { names: names(&["tank/a@0", "tank/a@1"]), tag: s("held") },
        Verb::Release { names: names(&["tank/a@2"]), tag: s("kept") },
        Verb::Bookmark { name: s("tank/a#1"), source: s("tank/a@1") },
        Verb::DestroyBookmarks { names: names(&["tank/a#0"]) },
        Verb::Receive(receive("tank/a@2", None, "tank/new@2")),
        Verb::Receive(Receive { force: true, ..receive("tank/a@2", Some("tank/a@1"), "tank/r@2") }),
        Verb::Receive(Receive { force: true, cut: Cut::Resumed(600), ..receive("tank/a@2", Some("tank/a@1"), "tank/r@2") }),
        Verb::Receive(Receive { origin: Some(s("tank/r@1")), ..receive("tank/c@1c", Some("tank/a@1"), "tank/new@1c") }),
    ];
    all.push(Verb::Receive(Receive { cut: Cut::Lost(700), ..receive("tank/a@1", None, "tank/lost@1") }));
    all
}

/// A workload by its name: all else follows from that.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Workload {
    /// Two verbs of the alphabet.
    Pair(u64),
    /// Random verbs of this seed.
    Random(u64),
}

impl std::fmt::Display for Workload {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Workload::Pair(number) => write!(f, "pair:{number}"),
            Workload::Random(seed) => write!(f, "verbs:{seed}"),
        }
    }
}

/// How many pairs there are.
pub fn pair_count() -> u64 {
    (alphabet().len() as u64).pow(2)
}

/// The first of the pairs that begin with a verb of this name.
pub fn first_pair(verb: &str) -> Option<Workload> {
    let all = alphabet();
    let at = all.iter().position(|other| other.name() == verb)?;
    Some(Workload::Pair((at * all.len()) as u64))
}

impl Workload {
    /// As it is printed.
    pub fn parse(text: &str) -> Option<Workload> {
        let (kind, number) = text.split_once(':')?;
        let number = number.parse().ok()?;
        match kind {
            "pair" if number < pair_count() => Some(Workload::Pair(number)),
            "verbs" => Some(Workload::Random(number)),
            _ => None,
        }
    }

    /// A number from which all that is random about it follows.
    pub fn seed(self) -> u64 {
        match self {
            Workload::Pair(number) => number << 1,
            Workload::Random(seed) => seed << 1 | 1,
        }
    }

    /// Its verbs, all of which can be tried: a pair of which the second has nothing to be done to is of interest, too.
    pub(super) fn verbs(self, tree: &Tree) -> Vec<Verb> {
        match self {
            Workload::Pair(number) => {
                let all = alphabet();
                let at = |number: u64| all[(number % all.len() as u64) as usize].clone();
                vec![at(number / all.len() as u64), at(number)]
            }
            Workload::Random(seed) => {
                let (mut tree, mut dice) = (tree.clone(), ChaCha8Rng::seed_from_u64(seed));
                (0..VERBS).map(|_| {
                    let verb = random_verb(&tree, &mut dice, LIMITS);
                    // One that is refused is done all the same.
                    let _ = tree.apply(&verb);
                    verb
                }).collect()
            }
        }
    }
}

/// A verb for a pool that was recovered.
pub(super) fn next_verb(tree: &Tree, dice: &mut ChaCha8Rng) -> Verb {
    random_verb(tree, dice, LIMITS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ground_and_each_verb_can_be_done() {
        let mut tree = Tree::new("tank");
        for verb in ground() {
            assert_eq!(tree.apply(&verb), Ok(()), "{verb:?}");
        }
        for verb in alphabet() {
            let is_lost = matches!(&verb, Verb::Receive(Receive { cut: Cut::Lost(_), .. }));
            assert_eq!(tree.clone().apply(&verb).is_ok(), !is_lost, "{verb:?}");
        }
    }

    #[test]
    fn names_of_workloads_are_read_back() {
        for workload in [Workload::Pair(3), Workload::Random(99)] {
            assert_eq!(Workload::parse(&workload.to_string()), Some(workload));
        }
        assert_eq!(Workload::parse(&Workload::Pair(pair_count()).to_string()), None);
    }
}
