//! `tarn completion`: words for a shell's TAB key.
//!
//! # Theory
//! A shell is given a script (`tarn completion bash`), which has the program asked for candidates each time (`completion words zfs destroy tank/`): so
//! datasets and snapshots are those that there are, and commands are those of the table. Only what is one step further is listed: of ten thousand
//! datasets the shell sees those in one.

use tarnfs::control::{DatasetKind, DatasetKinds, DatasetList, PoolSelect, Request, Wanted};

use crate::command::{Action, Program};
use crate::own;
use crate::session::{Outcome, Session, Stop, say};

const SHELLS: [(&str, &str); 3] = [("bash", include_str!("bash")), ("zsh", include_str!("zsh")), ("fish", include_str!("fish"))];
/// In the scripts: where this program is.
const PLACE: &str = "@TARN@";
/// What the scripts ask with.
const WORDS: &str = "words";

pub(crate) fn run(session: &mut Session<'_>, words: &[String]) -> Outcome {
    match words {
        [asked, line @ ..] if asked == WORDS => {
            for candidate in candidates(session, line) {
                say!(session, "{candidate}");
            }
            Ok(0)
        }
        [shell] => {
            let Some((_, script)) = SHELLS.iter().find(|(name, _)| name == shell) else {
                return Err(session.misuse(format_args!("no completion for '{shell}': it is bash, zsh or fish")));
            };
            let place = std::env::current_exe().map_or_else(|_| "tarn".to_owned(), |place| place.display().to_string());
            session.print(format_args!("{}", script.replace(PLACE, &quoted(&place))));
            Ok(0)
        }
        [] => Err(session.misuse("missing shell: it is bash, zsh or fish")),
        _ => Err(Stop::Usage),
    }
}

/// As one word of a shell.
fn quoted(word: &str) -> String {
    format!("'{}'", word.replace('\'', "'\\''"))
}

/// What may stand for the last word of a command line.
fn candidates(session: &mut Session<'_>, line: &[String]) -> Vec<String> {
    let Some((name, rest)) = line.split_first() else { return Vec::new() };
    let mut program: &Program = if *name == own::PROGRAM.name { &own::PROGRAM } else { return of_part(session, name, rest) };
    let mut rest = rest;
    while let [first, more @ ..] = rest
        && !more.is_empty()
        && let Some(part) = part(program, first)
    {
        (program, rest) = (part, more);
    }
    of_program(session, program, rest)
}

fn part(program: &Program, name: &str) -> Option<&'static Program> {
    program.find(name).and_then(|command| if let Action::Program(part) = command.action { Some(part) } else { None })
}

/// `zfs` or `zpool`, through a link.
fn of_part(session: &mut Session<'_>, name: &str, rest: &[String]) -> Vec<String> {
    part(&own::PROGRAM, name).map_or_else(Vec::new, |program| of_program(session, program, rest))
}

fn of_program(session: &mut Session<'_>, program: &Program, rest: &[String]) -> Vec<String> {
    let begins = |words: Vec<String>, begin: &str| words.into_iter().filter(|word| word.starts_with(begin)).collect();
    match rest {
        [] => Vec::new(),
        [begin] => begins(program.commands.iter().filter(|command| !command.name.is_empty()).map(|command| command.name.to_owned()).collect(), begin),
        [.., word] if word.starts_with('-') => Vec::new(),
        [.., word] if program.name == "zpool" => begins(pools(session), word),
        [verb, .., word] if program.name == "zfs" => begins(datasets(session, verb, word), word),
        _ => Vec::new(),
    }
}

fn pools(session: &mut Session<'_>) -> Vec<String> {
    let select = PoolSelect { name: None, properties: Wanted::Only(Vec::new()) };
    session.pools(Request::PoolGet(select)).unwrap_or_default().into_iter().map(|pool| pool.name).collect()
}

/// What a verb takes beside file systems and volumes, by the letter before its name.
fn versions_of(verb: &str) -> &'static [(char, DatasetKind)] {
    const SNAPSHOT: (char, DatasetKind) = ('@', DatasetKind::Snapshot);
    const BOOKMARK: (char, DatasetKind) = ('#', DatasetKind::Bookmark);
    match verb {
        "destroy" | "send" | "bookmark" | "get" | "list" => &[SNAPSHOT, BOOKMARK],
        "rollback" | "clone" | "hold" | "holds" | "release" | "diff" | "rename" | "redact" | "snapshot" | "set" | "inherit" | "mount" => &[SNAPSHOT],
        _ => &[],
    }
}

fn datasets(session: &mut Session<'_>, verb: &str, word: &str) -> Vec<String> {
    if let Some(at) = word.find(['@', '#']) {
        let letter = if word[at..].starts_with('@') { '@' } else { '#' };
        let Some((_, kind)) = versions_of(verb).iter().find(|(of, _)| *of == letter) else { return Vec::new() };
        // Of several (`a@b,c`, `a@b%c`) the last one.
        let (begin, last) = word.split_at(word[at + 1..].rfind([',', '%']).map_or(at + 1, |more| at + more + 2));
        let own = format!("{}{letter}", &word[..at]);
        let named = below(session, &word[..at], DatasetKinds::NONE.with(*kind));
        let short = named.iter().filter_map(|name| name.strip_prefix(&own)).filter(|name| name.starts_with(last));
        return short.map(|name| format!("{begin}{name}")).collect();
    }
    let heads = match word.rfind('/') {
        None => pools(session),
        Some(at) => below(session, &word[..at], DatasetKinds::HEADS),
    };
    let mut all = Vec::new();
    for head in heads.into_iter().filter(|head| head.starts_with(word)) {
        let exact = head == word;
        all.push(head.clone());
        if exact {
            // It is spelt out: what may follow.
            all.extend(versions_of(verb).iter().filter(|(_, kind)| !below(session, &head, DatasetKinds::NONE.with(*kind)).is_empty()).map(|(letter, _)| format!("{head}{letter}")));
            all.extend(below(session, &head, DatasetKinds::HEADS).first().map(|_| format!("{head}/")));
        }
    }
    all
}

/// Those of some kinds that are right below a dataset.
fn below(session: &mut Session<'_>, root: &str, kinds: DatasetKinds) -> Vec<String> {
    let list = DatasetList {
        root: Some(root.to_owned()),
        depth: Some(1),
        kinds,
        snapshots_where_listed: false,
        properties: Wanted::Only(Vec::new()),
        received: false,
    };
    let found = session.datasets(Request::DatasetList(list)).map(|datasets| datasets.entries).unwrap_or_default();
    found.into_iter().map(|entry| entry.name).filter(|name| name != root).collect()
}
