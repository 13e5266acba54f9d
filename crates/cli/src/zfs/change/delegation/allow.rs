//! `zfs allow` and `zfs unallow`

use tarnfs::control::{DatasetAllow, DatasetKinds, FailureKind, GrantEdit, Grantee, Reach, Request};

use super::help::{explain, misuse};
use crate::session::{Outcome, Session, Stop, complain};
use crate::text::getopt::{Options, Wrong};
use crate::zfs::datasets;
use crate::zfs::show::allow::show;

pub(in crate::zfs) fn allow(session: &mut Session<'_>, words: &[String]) -> Outcome {
    run(session, words, false)
}

pub(in crate::zfs) fn unallow(session: &mut Session<'_>, words: &[String]) -> Outcome {
    run(session, words, true)
}

/// The letters that were given.
#[derive(Debug, Default, Clone, Copy)]
struct Letters {
    local: bool,
    descendent: bool,
    user: bool,
    group: bool,
    everyone: bool,
    create: bool,
    set: bool,
    recurse: bool,
    help: bool,
}

impl Letters {
    fn count(flags: &[bool]) -> usize {
        flags.iter().filter(|flag| **flag).count()
    }

    /// Of those that say to whom.
    fn to_whom(self) -> usize {
        Letters::count(&[self.user, self.group, self.everyone])
    }

    /// Of those that say to whom, or what the names are.
    fn kinds(self) -> usize {
        self.to_whom() + Letters::count(&[self.create, self.set])
    }
}

/// What the words ask for.
struct Asked {
    dataset: String,
    /// The users and groups, or the set. `None`: everyone, or creators.
    who: Option<String>,
    /// `None`: all of them.
    permissions: Option<String>,
}

fn run(session: &mut Session<'_>, words: &[String], taken: bool) -> Outcome {
    let mut options = Options::new(words, if taken { "ldugecsrh" } else { "ldugecsh" }, &[]);
    let mut letters = Letters::default();
    for option in options.by_ref() {
        match option.map_err(|wrong| session.misuse(wrong_letter(&wrong)))?.0 {
            'l' => letters.local = true,
            'd' => letters.descendent = true,
            'u' => letters.user = true,
            'g' => letters.group = true,
            'e' => letters.everyone = true,
            'c' => letters.create = true,
            's' => letters.set = true,
            'r' => letters.recurse = true,
            _ => letters.help = true,
        }
    }
    let operands = options.operands();
    if letters.to_whom() > 1 {
        return misuse(session, taken, "-u, -g, and -e are mutually exclusive");
    }
    if letters.help {
        let others = letters.kinds() + Letters::count(&[letters.local, letters.descendent, letters.recurse]);
        return if operands.is_empty() && others == 0 { explain(session, taken) } else { Err(Stop::Usage) };
    }
    if let ([dataset], 0, false, false) = (operands.as_slice(), letters.kinds(), taken, operands.iter().any(|word| word == "everyone")) {
        return show(session, dataset);
    }
    let asked = match parse(&mut letters, &operands, taken) {
        Ok(asked) => asked,
        Err(words) => return misuse(session, taken, words),
    };
    if let Err(stop) = datasets::open(session, &asked.dataset, DatasetKinds::HEADS, &[]) {
        complain!(session, "Failed to open dataset: {}", asked.dataset);
        return Err(if matches!(stop, Stop::Code(_)) { Stop::Code(255) } else { stop });
    }
    let changes = match edits(letters, &asked) {
        Ok(changes) => changes,
        Err(words) => return misuse(session, taken, &words),
    };
    let mut names = vec![asked.dataset.clone()];
    if letters.recurse {
        names.extend(datasets::below(session, &asked.dataset, DatasetKinds::HEADS, &[])?.into_iter().map(|entry| entry.name));
        names.dedup();
    }
    for name in names {
        let request = DatasetAllow { name: name.clone(), taken, changes: changes.clone() };
        session.perform(Request::DatasetAllow(request)).map_err(|failure| {
            if failure.kind == FailureKind::BadType {
                name_unknown(session, &changes);
            }
            session.failed(format_args!("cannot set permissions on '{name}'"), &failure)
        })?;
    }
    Ok(0)
}

fn wrong_letter(wrong: &Wrong) -> String {
    match wrong {
        Wrong::Unknown(letter) => format!("invalid option '{letter}'"),
        other => other.to_string(),
    }
}

/// OpenZFS does not say which of the permissions is none.
fn name_unknown(session: &mut Session<'_>, changes: &[GrantEdit]) {
    let names = changes.iter().flat_map(|edit| &edit.permissions).filter(|name| !name.starts_with('@'));
    if let Some(name) = names.into_iter().find(|name| tarnfs::control::permission::stored_name(name).is_none()) {
        session.hint(format!("'{name}' is no permission; 'zfs allow -h' lists them"));
    }
}

/// The operands, as the letters say they are to be read.
fn parse(letters: &mut Letters, operands: &[String], taken: bool) -> Result<Asked, &'static str> {
    let kinds = letters.kinds();
    let with_reach = kinds + Letters::count(&[letters.local, letters.descendent]);
    let mut who = operands.first().cloned();
    let mut rest = operands;
    if letters.set {
        if kinds > 1 {
            return Err("invalid options combined with -s");
        }
        rest = operands.get(1..).unwrap_or_default();
    } else if letters.create {
        if with_reach > 1 {
            return Err("invalid options combined with -c");
        }
        who = None;
    } else if letters.everyone {
        if kinds > 1 {
            return Err("invalid options combined with -e");
        }
        who = None;
    } else if letters.to_whom() == 0 && who.as_deref() == Some("everyone") {
        letters.everyone = true;
        (who, rest) = (None, &operands[1..]);
    } else {
        rest = operands.get(1..).unwrap_or_default();
    }
    let (permissions, dataset) = match rest {
        [dataset] if taken => (None, dataset),
        [permissions, dataset] => (Some(permissions.clone()), dataset),
        _ => return Err("wrong number of parameters"),
    };
    if letters.set && !who.as_deref().is_some_and(|name| name.starts_with('@')) {
        return Err("invalid set name: missing '@' prefix");
    }
    if !letters.local && !letters.descendent {
        (letters.local, letters.descendent) = (true, true);
    }
    Ok(Asked { dataset: dataset.clone(), who, permissions })
}

/// What is to be granted, for each grantee and reach.
fn edits(letters: Letters, asked: &Asked) -> Result<Vec<GrantEdit>, String> {
    let permissions: Vec<String> =
        asked.permissions.iter().flat_map(|list| list.split(',')).filter(|name| !name.is_empty()).map(str::to_owned).collect();
    let one = |to: Grantee, reach: Reach| GrantEdit { to, reach, permissions: permissions.clone() };
    let grantees = match &asked.who {
        Some(set) if letters.set => return Ok(vec![one(Grantee::Set(set.clone()), Reach::Unsaid)]),
        None if letters.create => return Ok(vec![one(Grantee::Creator, Reach::Unsaid)]),
        None => vec![Grantee::Everyone],
        Some(names) => names.split(',').filter(|name| !name.is_empty()).map(|name| grantee(letters, name)).collect::<Result<_, _>>()?,
    };
    let reaches = [(letters.local, Reach::Local), (letters.descendent, Reach::Descendent)].into_iter().filter(|(given, _)| *given);
    let reaches: Vec<Reach> = reaches.map(|(_, reach)| reach).collect();
    Ok(grantees.iter().flat_map(|to| reaches.iter().map(|reach| one(to.clone(), *reach))).collect())
}

/// A user or group, by name or number.
fn grantee(letters: Letters, name: &str) -> Result<Grantee, String> {
    let number: Option<u32> = name.parse().ok();
    let user = || match number {
        Some(id) => uzers::get_user_by_uid(id),
        None => uzers::get_user_by_name(name),
    };
    let group = || match number {
        Some(id) => uzers::get_group_by_gid(id),
        None => uzers::get_group_by_name(name),
    };
    let user = || user().map(|user| Grantee::User(user.uid().into()));
    let group = || group().map(|group| Grantee::Group(group.gid().into()));
    // A number that nobody has yet is taken, where it is said what it is.
    match (letters.user, letters.group) {
        (true, _) => user().or(number.map(|id| Grantee::User(id.into()))).ok_or_else(|| format!("invalid user {name}")),
        (_, true) => group().or(number.map(|id| Grantee::Group(id.into()))).ok_or_else(|| format!("invalid group {name}")),
        _ => user().or_else(group).ok_or_else(|| format!("invalid user/group {name}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(mut letters: Letters, words: &str, taken: bool) -> Result<String, String> {
        let operands: Vec<String> = words.split_whitespace().map(str::to_owned).collect();
        let asked = parse(&mut letters, &operands, taken)?;
        let word = |edit: GrantEdit| format!("{:?} {:?} {}", edit.to, edit.reach, edit.permissions.join(","));
        Ok(format!("{}: {}", asked.dataset, edits(letters, &asked)?.into_iter().map(word).collect::<Vec<_>>().join("; ")))
    }

    #[test]
    fn words_are_read_as_the_letters_say() {
        let none = Letters::default();
        assert_eq!(asked(none, "root create,@s p", false).unwrap(), "p: User(0) Local create,@s; User(0) Descendent create,@s");
        assert_eq!(asked(Letters { local: true, ..none }, "everyone send p/a", false).unwrap(), "p/a: Everyone Local send");
        assert_eq!(asked(Letters { everyone: true, ..none }, "p", true).unwrap(), "p: Everyone Local ; Everyone Descendent ");
        assert_eq!(asked(Letters { create: true, ..none }, "destroy p", false).unwrap(), "p: Creator Unsaid destroy");
        assert_eq!(asked(Letters { set: true, ..none }, "@s send,@t p", false).unwrap(), "p: Set(\"@s\") Unsaid send,@t");
        assert_eq!(asked(Letters { group: true, descendent: true, ..none }, "54399 hold p", false).unwrap(), "p: Group(54399) Descendent hold");
        let wrong = |letters, words, taken| asked(letters, words, taken).unwrap_err();
        assert_eq!(wrong(none, "root p", false), "wrong number of parameters");
        assert_eq!(wrong(Letters { set: true, ..none }, "s send p", false), "invalid set name: missing '@' prefix");
        assert_eq!(wrong(Letters { set: true, create: true, ..none }, "@s send p", false), "invalid options combined with -s");
        assert_eq!(wrong(Letters { create: true, local: true, ..none }, "send p", false), "invalid options combined with -c");
        assert_eq!(wrong(Letters { user: true, ..none }, "no-such-user send p", false), "invalid user no-such-user");
        assert_eq!(wrong(none, "54399 send p", false), "invalid user/group 54399");
    }
}
