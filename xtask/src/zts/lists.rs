//! The lists of scripts: all, and of those the excluded, the waiting, the first and the quick ones.

use std::collections::BTreeMap;
use std::fs;

use anyhow::{Context, Result, bail};

/// Scripts beside those of `../shared/oracle/zts/scripts`: their verbs came later.
const ADDED: &str = include_str!("../../zts/added");
const EXCLUDED: &str = include_str!("../../zts/excluded");
const WAITING: &str = include_str!("../../zts/waiting");
const FIRST: &str = include_str!("../../zts/first");
const QUICK: &str = include_str!("../../zts/quick");

/// The scripts that test us, in the suite's order, and what we know of them.
pub(super) struct Lists {
    all: Vec<String>,
    /// Script, and why it cannot apply.
    excluded: BTreeMap<&'static str, &'static str>,
    /// Script, and the verb that it needs.
    waiting: BTreeMap<&'static str, &'static str>,
    quick: Vec<&'static str>,
}

/// A script's group and name.
pub(super) fn parts(script: &str) -> (&str, &str) {
    script.rsplit_once('/').unwrap_or(("", script))
}

fn lines(text: &str) -> impl Iterator<Item = &str> {
    text.lines().map(|line| line.split('#').next().unwrap_or_default().trim()).filter(|line| !line.is_empty())
}

/// Lines of a script and a reason.
fn reasons(text: &'static str) -> BTreeMap<&'static str, &'static str> {
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    lines.filter_map(|line| line.split_once(char::is_whitespace)).map(|(script, why)| (script, why.trim())).collect()
}

/// As they are listed, but for those that come first in their group.
fn in_order<'a>(listed: impl Iterator<Item = &'a str>, first: &BTreeMap<&str, &str>) -> Vec<String> {
    let mut all: Vec<String> = Vec::new();
    for script in listed {
        let group = parts(script).0;
        let start = all.iter().position(|other| parts(other).0 == group).filter(|_| first.contains_key(script));
        all.insert(start.unwrap_or(all.len()), script.to_owned());
    }
    all
}

impl Lists {
    pub(super) fn read() -> Result<Lists> {
        let path = sim::places::in_shared("oracle/zts/scripts").context("there is no ../shared/oracle/zts/scripts")?;
        let text = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
        Ok(Lists {
            all: in_order(lines(&text).chain(lines(ADDED)), &reasons(FIRST)),
            excluded: reasons(EXCLUDED),
            waiting: reasons(WAITING),
            quick: lines(QUICK).collect(),
        })
    }

    fn is_left_out(&self, script: &str) -> bool {
        self.excluded.contains_key(script) || self.waiting.contains_key(script)
    }

    /// Those to run. A script that is named itself is run whatever the lists say.
    pub(super) fn choose(&self, quick: bool, named: &[&str]) -> Result<Vec<String>> {
        for name in named {
            if !self.all.iter().any(|script| is_named(script, name)) {
                bail!("{name}: there is no such group or script in ../shared/oracle/zts/scripts and xtask/zts/added");
            }
        }
        let chosen = self.all.iter().filter(|script| {
            let itself = named.contains(&script.as_str());
            let wanted = named.is_empty() || named.iter().any(|name| is_named(script, name));
            wanted && (itself || !self.is_left_out(script)) && (!quick || self.quick.contains(&script.as_str()))
        });
        Ok(chosen.cloned().collect())
    }

    /// Tells of those that are not run, and whether they wait.
    pub(super) fn left_out<'a>(&'a self, named: &[&str], tell: &mut impl FnMut(&'a str, bool)) {
        for script in &self.all {
            let itself = named.contains(&script.as_str());
            let wanted = named.is_empty() || named.iter().any(|name| is_named(script, name));
            if wanted && !itself && self.is_left_out(script) {
                tell(script, self.waiting.contains_key(script.as_str()));
            }
        }
    }
}

/// Is `name` the script, its group, or what its group is in?
fn is_named(script: &str, name: &str) -> bool {
    script.strip_prefix(name.trim_end_matches('/')).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An exclusion that is misspelt excludes nothing, one without a reason hides a failure, and a script in two lists has two stories.
    #[test]
    fn each_entry_has_a_reason_and_is_there_once() {
        for (name, text) in [("excluded", EXCLUDED), ("waiting", WAITING), ("first", FIRST)] {
            let count = text.lines().filter(|line| !line.starts_with('#') && !line.is_empty()).count();
            let entries = reasons(text);
            assert_eq!(
                entries.len(),
                count,
                "{name}: each line is a script, white space and a reason, and no script is there twice"
            );
            for (script, why) in entries {
                assert!(script.contains('/') && why.len() > 5, "{name}: {script}: {why}");
            }
        }
        let (excluded, waiting) = (reasons(EXCLUDED), reasons(WAITING));
        let twice: Vec<_> = excluded.keys().filter(|script| waiting.contains_key(*script)).collect();
        assert!(twice.is_empty(), "in both lists: {twice:?}");
        let mut quick: Vec<_> = lines(QUICK).collect();
        let count = quick.len();
        quick.sort_unstable();
        quick.dedup();
        assert_eq!(quick.len(), count, "a quick script is there twice");
        assert!((40..=60).contains(&count), "{count} quick scripts: two minutes of CI are for some 45");
        assert!(
            quick.iter().all(|script| !excluded.contains_key(script) && !waiting.contains_key(script)),
            "a quick script is left out"
        );
    }

    #[test]
    fn each_entry_is_a_script_of_the_suite() {
        let Ok(lists) = Lists::read() else {
            sim::places::skipped("the lists of OpenZFS's test suite: there is no ../shared/oracle/zts/scripts");
            return;
        };
        let first = reasons(FIRST);
        let entries = lists.excluded.keys().chain(lists.waiting.keys()).chain(first.keys()).chain(&lists.quick);
        let unknown: Vec<_> = entries.filter(|script| !lists.all.iter().any(|known| known == *script)).collect();
        assert!(unknown.is_empty(), "neither in ../shared/oracle/zts/scripts nor in xtask/zts/added: {unknown:?}");
    }

    #[test]
    fn some_come_first_in_their_group() {
        let first = BTreeMap::from([("h/c", "x"), ("h/d", "x")]);
        assert_eq!(in_order(["g/a", "h/a", "h/c", "h/d", "i/a"].into_iter(), &first).join(" "), "g/a h/d h/c h/a i/a");
    }

    #[test]
    fn groups_and_scripts_are_chosen_by_name() {
        assert!(is_named("cli_root/zpool_get/a", "cli_root/zpool_get"));
        assert!(is_named("cli_root/zpool_get/a", "cli_root/"));
        assert!(is_named("cli_root/zpool_get/a", "cli_root/zpool_get/a"));
        assert!(!is_named("cli_root/zpool_get/a", "cli_root/zpool"));
        let all = ["g/a", "g/b", "g/c", "h/a"].map(str::to_owned).to_vec();
        let lists =
            Lists { all, excluded: BTreeMap::from([("g/a", "x")]), waiting: BTreeMap::from([("g/b", "x")]), quick: vec!["h/a"] };
        let chosen = |quick, named: &[&str]| lists.choose(quick, named).unwrap().join(" ");
        assert_eq!(chosen(false, &[]), "g/c h/a");
        assert_eq!(chosen(true, &[]), "h/a");
        assert_eq!(chosen(false, &["g"]), "g/c");
        assert_eq!(chosen(false, &["g/a"]), "g/a", "a script that is named is run");
        assert!(lists.choose(false, &["k"]).is_err());
        let mut left = Vec::new();
        lists.left_out(&["g"], &mut |script, waits| left.push((script, waits)));
        assert_eq!(left, [("g/a", false), ("g/b", true)]);
    }
}
