//! The table of a program's commands, its usage text, help, and the choice of a command.
//!
//! # Theory
//!
//! `tarn` and each of its parts that has commands (`zpool`, `zfs`, `fs`, `transaction`) is a [`Program`]: a table. What is not in it does
//! not exist; what is in it is found, listed, explained by `help`, `--help` and `-h`, and suggested where it was mistyped.
//!
//! `zpool` and `zfs` name far more commands than this version carries out. All of them are in the table, in OpenZFS's order; one without
//! a function is listed apart, says by its name that it is not there yet, and fails.

use std::ffi::OsString;

use engine::dsl::prop_table::Property;

use crate::session::{Outcome, Session, Stop, complain};
use crate::text::suggest;

/// Carries out a command. The words are those after its name.
pub(crate) type Run = fn(&mut Session<'_>, &[String]) -> Outcome;
/// The same, with the words as given, which need not be UTF-8.
pub(crate) type RunRaw = fn(&mut Session<'_>, &[OsString]) -> Outcome;

/// The action of a command.
#[derive(Clone, Copy)]
pub(crate) enum Action {
    Run(Run),
    RunRaw(RunRaw),
    /// It has commands of its own.
    Program(&'static Program),
    /// Nothing yet. What else may help, or "".
    NotYet(&'static str),
}

/// A command.
#[derive(Clone, Copy)]
pub(crate) struct Command {
    /// Empty for an empty line in the usage text.
    pub(crate) name: &'static str,
    pub(crate) usage: &'static str,
    /// For a list of commands in which each has one line.
    pub(crate) about: &'static str,
    pub(crate) action: Action,
}

/// A command that there is.
pub(crate) const fn has(name: &'static str, usage: &'static str, run: Run) -> Command {
    Command { name, usage, about: "", action: Action::Run(run) }
}

/// A command that there is, and that takes its words as they are given: names of files.
pub(crate) const fn raw(name: &'static str, usage: &'static str, run: RunRaw) -> Command {
    Command { name, usage, about: "", action: Action::RunRaw(run) }
}

/// A command that there is not.
pub(crate) const fn not_yet(name: &'static str, usage: &'static str) -> Command {
    not_yet_but(name, usage, "")
}

/// A command that there is not, and what does something like it.
pub(crate) const fn not_yet_but(name: &'static str, usage: &'static str, instead: &'static str) -> Command {
    Command { name, usage, about: "", action: Action::NotYet(instead) }
}

/// An empty line in the usage text.
pub(crate) const GAP: Command = not_yet("", "");

/// Columns of a line of names.
const NAMES_WIDTH: usize = 68;

/// A program: `zpool`, or `tarn fs`.
pub(crate) struct Program {
    /// As it is called.
    pub(crate) name: &'static str,
    pub(crate) commands: &'static [Command],
    /// Other names of commands.
    pub(crate) aliases: &'static [(&'static str, &'static str)],
    /// The text after a command's own usage lines.
    pub(crate) command_notes: fn(&str) -> String,
    /// The text after the list of all commands.
    pub(crate) notes: &'static str,
    /// Does it look as OpenZFS's program of that name to scripts? Then a version is OpenZFS's, and `-?` after a command a mistake.
    pub(crate) is_openzfs: bool,
}

/// Is it one of the words for help?
pub(crate) fn is_help(word: &str) -> bool {
    matches!(word, "--help" | "-h" | "-?")
}

fn is_refused(command: &Command) -> bool {
    matches!(command.action, Action::NotYet(_))
}

/// `zfs diff -h`, say, is no question for help.
fn has_own_h(command: &Command) -> bool {
    command.usage.split_whitespace().any(|word| word.strip_prefix("[-").is_some_and(|letters| !letters.starts_with('-') && letters.contains('h')))
}

/// Whether the words ask how a command is used. Some commands have an option `-h` of their own: then it is not alone.
/// Words after an operand may be meant for another program.
fn asks_for_help(command: &Command, words: &[String], is_openzfs: bool) -> bool {
    let mut own = words.iter().take_while(|word| *word != "--");
    match words {
        [word] if word == "-h" && is_openzfs && has_own_h(command) => false,
        [word] if is_help(word) => true,
        _ if matches!(command.action, Action::RunRaw(_)) => {
            own.take_while(|word| word.starts_with('-')).any(|word| word == "--help")
        }
        _ => own.any(|word| word == "--help"),
    }
}

impl Program {
    /// The list of all commands, or how one is used.
    pub(crate) fn usage(&self, command: Option<&Command>) -> String {
        if let Some(command) = command {
            let lines = if command.usage.is_empty() { String::new() } else { format!("usage:\n{}", command.usage) };
            return format!("{lines}{}", (self.command_notes)(command.name));
        }
        let mut text = format!("usage: {} command args ...\nwhere 'command' is one of the following:\n", self.name);
        let mut gap = true;
        for command in self.commands {
            match command {
                Command { name: "", .. } => gap = true,
                command if is_refused(command) => {}
                Command { name, usage, about, .. } => {
                    text.push_str(if std::mem::take(&mut gap) { "\n" } else { "" });
                    text.push_str(&if about.is_empty() { (*usage).to_owned() } else { format!("\t{name:<12} {about}\n") });
                }
            }
        }
        text.push_str(&self.refused_names());
        text.push_str(self.notes);
        text
    }

    /// The list of what is not there yet.
    fn refused_names(&self) -> String {
        let names: Vec<&str> = self
            .commands
            .iter()
            .filter(|command| !command.name.is_empty() && is_refused(command))
            .map(|command| command.name)
            .collect();
        if names.is_empty() {
            return String::new();
        }
        let mut text = "\nThese are not yet supported by this version of tarn, and refused:\n\n".to_owned();
        let mut line = String::new();
        for (index, name) in names.iter().enumerate() {
            let word = format!("{name}{}", if index + 1 < names.len() { "," } else { "" });
            if !line.is_empty() && line.len() + word.len() > NAMES_WIDTH {
                text.push_str(&format!("\t{line}\n"));
                line.clear();
            }
            line.push_str(if line.is_empty() { "" } else { " " });
            line.push_str(&word);
        }
        format!("{text}\t{line}\n")
    }

    pub(crate) fn find(&self, name: &str) -> Option<&'static Command> {
        let name = self.aliases.iter().find(|(alias, _)| *alias == name).map_or(name, |(_, real)| real);
        self.commands.iter().find(|command| !name.is_empty() && command.name == name)
    }

    fn finish(&self, session: &mut Session<'_>, command: Option<&Command>, outcome: Outcome) -> u8 {
        let code = match outcome {
            Ok(code) | Err(Stop::Code(code)) => code,
            Err(Stop::Usage) => {
                let usage = self.usage(command);
                complain!(session, "{}", usage.trim_end_matches('\n'));
                2
            }
        };
        let mut hints = std::mem::take(&mut session.hints);
        hints.dedup();
        hints.iter().for_each(|hint| complain!(session, "{hint}"));
        code
    }

    /// Runs the program; the words are those after its own name.
    pub(crate) fn run(&self, session: &mut Session<'_>, given: &[OsString]) -> u8 {
        let Some((first, rest)) = given.split_first() else {
            let stop = session.misuse("missing command");
            return self.finish(session, None, Err(stop));
        };
        let name = first.to_string_lossy();
        match &*name {
            word if is_help(word) => return self.help(session, &[]),
            "help" => return self.help(session, &crate::texts(rest)),
            "-V" | "--version" if self.is_openzfs => return crate::version::print(session),
            _ => {}
        }
        match self.find(&name) {
            Some(command) => self.run_command(session, command, rest),
            None => match self.find("set").filter(|_| name.contains('=')) {
                Some(set) => self.run_command(session, set, given),
                None => self.unknown(session, &name),
            },
        }
    }

    fn run_command(&self, session: &mut Session<'_>, command: &Command, given: &[OsString]) -> u8 {
        if let Action::Program(program) = command.action {
            return program.run(session, given);
        }
        let words = crate::texts(given);
        if asks_for_help(command, &words, self.is_openzfs) {
            if self.is_openzfs && words == ["-?"] {
                return self.finish(session, Some(command), Err(Stop::Usage));
            }
            return self.explain(session, command);
        }
        // What it is taken for instead would be another name, or another value.
        if let (Action::Run(_), Some(odd)) = (command.action, given.iter().find(|word| word.to_str().is_none())) {
            complain!(session, "'{}' is not valid UTF-8, which names, properties and their values have to be here", odd.display());
            return self.finish(session, Some(command), Ok(1));
        }
        let outcome = match command.action {
            Action::Run(run) => run(session, &words),
            Action::RunRaw(run) => run(session, given),
            Action::Program(_) | Action::NotYet(_) => Ok(self.refuse(session, command)),
        };
        if outcome == Ok(0) {
            session.record_history();
        }
        self.finish(session, Some(command), outcome)
    }

    /// That there is no such command yet.
    fn refusal(&self, command: &Command) -> String {
        let Action::NotYet(instead) = command.action else { return String::new() };
        let separator = if instead.is_empty() { "" } else { "\n" };
        format!("{} {}: not yet supported by this version of tarn{separator}{instead}", self.name, command.name)
    }

    fn refuse(&self, session: &mut Session<'_>, command: &Command) -> u8 {
        complain!(session, "{}", self.refusal(command));
        1
    }

    /// How one command is used.
    fn explain(&self, session: &mut Session<'_>, command: &Command) -> u8 {
        if is_refused(command) {
            session.print(format_args!("{}\n\n", self.refusal(command)));
        }
        let usage = self.usage(Some(command));
        session.print(format_args!("{usage}"));
        0
    }

    /// `help`, with the words after it: of nothing, of a command, of a command of a command.
    fn help(&self, session: &mut Session<'_>, topic: &[String]) -> u8 {
        let Some((name, rest)) = topic.split_first().filter(|(name, _)| *name != self.name) else {
            let usage = self.usage(None);
            session.print(format_args!("{usage}"));
            return 0;
        };
        match self.find(name) {
            Some(Command { action: Action::Program(program), .. }) => program.help(session, rest),
            Some(command) => self.explain(session, command),
            None => self.unknown(session, name),
        }
    }

    /// A word that is no command: which may have been meant?
    fn unknown(&self, session: &mut Session<'_>, word: &str) -> u8 {
        let stop = session.misuse(format_args!("unrecognized command '{word}'"));
        if let Some(command) = elsewhere(self.name, word) {
            session.hint(suggest::line(&command));
        } else {
            let known = self.commands.iter().map(|command| command.name).chain(self.aliases.iter().map(|(alias, _)| *alias));
            if let Some(name) = suggest::closest(word, known) {
                let mark =
                    if self.find(name).is_some_and(is_refused) { " (not yet supported by this version of tarn)" } else { "" };
                session.hint(format!("{}{mark}", suggest::line(name)));
            }
        }
        self.finish(session, None, Err(stop))
    }
}

/// The same word where it is a command: `tarn status` is `tarn zpool status`, and so is `zfs status`.
fn elsewhere(name: &str, word: &str) -> Option<String> {
    let parts = crate::own::PROGRAM
        .commands
        .iter()
        .filter_map(|command| if let Action::Program(program) = command.action { Some(program) } else { None });
    let mut others = parts.filter(|other| other.name != name && (other.is_openzfs || name == crate::own::PROGRAM.name));
    let found = others.find(|other| other.find(word).is_some_and(|command| !is_refused(command)))?;
    let tarn = if found.is_openzfs { "tarn " } else { "" };
    Some(format!("{tarn}{} {word}", found.name))
}

/// Properties in the order of usage text: read-only ones first, each part by name.
pub(crate) fn usage_order(table: &'static [Property]) -> Vec<&'static Property> {
    use engine::dsl::prop_table::Rule;
    let mut visible: Vec<&Property> = table.iter().filter(|property| property.is_visible()).collect();
    visible.sort_by_key(|property| (property.rule != Rule::ReadOnly, property.name));
    visible
}
