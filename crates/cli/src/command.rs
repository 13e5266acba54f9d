//! The table of a program's commands, its usage text, and the choice of one.
//!
//! # Theory
//!
//! `zpool` and `zfs` name far more commands than this version carries out. All of them are in the table, in OpenZFS's
//! order and with its usage lines, because scripts look into the usage text for what exists; one without a function
//! says by its name that it is not there yet, and fails.

use engine::dsl::prop_table::Property;

use crate::session::{Outcome, Session, Stop, complain};

/// Carries out a command. The words are those after its name.
pub(crate) type Run = fn(&mut Session<'_>, &[String]) -> Outcome;

/// A command.
pub(crate) struct Command {
    /// Empty for an empty line in the usage text.
    pub(crate) name: &'static str,
    pub(crate) usage: &'static str,
    pub(crate) run: Option<Run>,
}

/// A program, `zpool` or `zfs`.
pub(crate) struct Program {
    pub(crate) name: &'static str,
    pub(crate) commands: &'static [Command],
    /// Other names of commands.
    pub(crate) aliases: &'static [(&'static str, &'static str)],
    /// What follows a command's own usage lines.
    pub(crate) command_notes: fn(&str) -> String,
    /// What follows the list of all commands.
    pub(crate) notes: &'static str,
}

impl Program {
    fn usage(&self, command: Option<&Command>) -> String {
        if let Some(command) = command {
            return format!("usage:\n{}{}", command.usage, (self.command_notes)(command.name));
        }
        let mut text = format!("usage: {} command args ...\nwhere 'command' is one of the following:\n\n", self.name);
        for command in self.commands {
            text.push_str(if command.name.is_empty() { "\n" } else { command.usage });
        }
        text.push_str(self.notes);
        text
    }

    fn find(&self, name: &str) -> Option<&Command> {
        let name = self.aliases.iter().find(|(alias, _)| *alias == name).map_or(name, |(_, real)| real);
        self.commands.iter().find(|command| !name.is_empty() && command.name == name)
    }

    fn finish(&self, session: &mut Session<'_>, command: Option<&Command>, outcome: Outcome) -> u8 {
        match outcome {
            Ok(code) | Err(Stop::Code(code)) => code,
            Err(Stop::Usage) => {
                let usage = self.usage(command);
                complain!(session, "{}", usage.trim_end_matches('\n'));
                2
            }
        }
    }

    /// Runs the program; the words are those after its own name.
    pub(crate) fn run(&self, session: &mut Session<'_>, words: &[String]) -> u8 {
        let Some(name) = words.first() else {
            let stop = session.misuse("missing command");
            return self.finish(session, None, Err(stop));
        };
        match name.as_str() {
            "-?" | "--help" => {
                session.print(format_args!("{}", self.usage(None)));
                return 0;
            }
            "-V" | "--version" => return crate::version::print(session),
            "help" => return self.help(session, words.get(1)),
            _ => {}
        }
        let (command, words) = match self.find(name) {
            Some(command) => (command, &words[1..]),
            None if name.contains('=') => (self.find("set").expect("both programs can set properties"), words),
            None => {
                let stop = session.misuse(format_args!("unrecognized command '{name}'"));
                return self.finish(session, None, Err(stop));
            }
        };
        let outcome = match command.run {
            Some(run) => {
                let outcome = run(session, words);
                if outcome == Ok(0) {
                    session.record_history();
                }
                outcome
            }
            None => {
                complain!(session, "{} {}: not yet supported by this version of tarn", self.name, command.name);
                Ok(1)
            }
        };
        self.finish(session, Some(command), outcome)
    }

    fn help(&self, session: &mut Session<'_>, topic: Option<&String>) -> u8 {
        let command = topic.and_then(|topic| self.find(topic));
        let usage = self.usage(command);
        session.print(format_args!("{usage}"));
        0
    }
}

/// Properties in the order of usage text: those that nobody sets first, each part by name.
pub(crate) fn usage_order(table: &'static [Property]) -> Vec<&'static Property> {
    use engine::dsl::prop_table::Rule;
    let mut visible: Vec<&Property> = table.iter().filter(|property| property.is_visible()).collect();
    visible.sort_by_key(|property| (property.rule != Rule::ReadOnly, property.name));
    visible
}
