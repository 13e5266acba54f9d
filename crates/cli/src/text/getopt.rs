//! Options as GNU `getopt_long` reads them, since that is what `zpool` and `zfs` are used with.
//!
//! # Theory
//!
//! Short options may be combined (`-Hp`), an argument may follow at once or as the next word (`-oname`, `-o name`),
//! operands and options may be mixed unless `POSIXLY_CORRECT` is set, and `--` ends the options. A specification is getopt's own: the letters, each
//! with `:` behind it when it takes an argument; a leading `:` tells a missing argument from an unknown letter.
//! Options are handed out one by one, in order, because a command complains about the first wrong one.

/// The defect of an option.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Wrong {
    /// No such option.
    Unknown(char),
    /// No such long option, or several that begin so.
    UnknownWord(String),
    /// It needs an argument.
    Missing(char),
}

/// A long option and the letter it is handed out as.
pub(crate) type Long = (&'static str, char);

/// Reads the options of one command.
pub(crate) struct Options<'a> {
    words: &'a [String],
    short: &'static str,
    long: &'static [Long],
    next: usize,
    /// Rest of a word of combined letters.
    rest: &'a str,
    /// The first operand ends the options.
    posix: bool,
    /// Where the operands are among the words.
    operands: Vec<usize>,
}

impl<'a> Options<'a> {
    /// The words after the command's name; the letters; the long options, which take an argument if their letters do.
    pub(crate) fn new(words: &'a [String], short: &'static str, long: &'static [Long]) -> Options<'a> {
        let posix = std::env::var_os("POSIXLY_CORRECT").is_some();
        Options { words, short, long, next: 0, rest: "", posix, operands: Vec::new() }
    }

    /// The same for a command that runs another one: the first operand ends the options, as those after it are the other command's.
    pub(crate) fn leading(words: &'a [String], short: &'static str) -> Options<'a> {
        Options { posix: true, ..Options::new(words, short, &[]) }
    }

    fn letter(&mut self, letter: char) -> Result<(char, Option<String>), Wrong> {
        let colon = self.short.starts_with(':');
        let spec = self.short.trim_start_matches(':');
        let place = spec.find(letter).filter(|_| letter != ':').ok_or(Wrong::Unknown(letter))?;
        if !spec[place + letter.len_utf8()..].starts_with(':') {
            return Ok((letter, None));
        }
        if !self.rest.is_empty() {
            return Ok((letter, Some(std::mem::take(&mut self.rest).to_owned())));
        }
        let missing = if colon { Wrong::Missing(letter) } else { Wrong::Unknown(letter) };
        let argument = self.words.get(self.next).ok_or(missing)?;
        self.next += 1;
        Ok((letter, Some(argument.clone())))
    }

    /// A long option. Its argument, if the letter takes one, follows behind `=` or as the next word.
    fn named(&mut self, name: &str) -> Result<(char, Option<String>), Wrong> {
        let (name, value) = name.split_once('=').map_or((name, None), |(name, value)| (name, Some(value.to_owned())));
        let letter = self.letter_of(name)?;
        let takes = self.short.find(letter).is_some_and(|place| self.short[place + letter.len_utf8()..].starts_with(':'));
        match value {
            Some(_) if !takes => Err(Wrong::UnknownWord(format!("--{name}"))),
            Some(value) => Ok((letter, Some(value))),
            None if takes => {
                let argument = self.words.get(self.next).ok_or(Wrong::Missing(letter))?;
                self.next += 1;
                Ok((letter, Some(argument.clone())))
            }
            None => Ok((letter, None)),
        }
    }

    fn letter_of(&self, name: &str) -> Result<char, Wrong> {
        if let Some((_, letter)) = self.long.iter().find(|(long, _)| *long == name) {
            return Ok(*letter);
        }
        let mut letters: Vec<char> = self.long.iter().filter(|(long, _)| long.starts_with(name)).map(|(_, letter)| *letter).collect();
        letters.dedup();
        match letters.as_slice() {
            [letter] => Ok(*letter),
            _ => Err(Wrong::UnknownWord(format!("--{name}"))),
        }
    }

    /// The words that are no options. To be asked when the options have run out.
    pub(crate) fn operands(self) -> Vec<String> {
        let words = self.words;
        self.places().into_iter().map(|place| words[place].clone()).collect()
    }

    /// Where these are among the words.
    pub(crate) fn places(mut self) -> Vec<usize> {
        self.operands.extend(self.next..self.words.len());
        self.operands
    }
}

impl Iterator for Options<'_> {
    type Item = Result<(char, Option<String>), Wrong>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some(letter) = self.rest.chars().next() {
                self.rest = &self.rest[letter.len_utf8()..];
                return Some(self.letter(letter));
            }
            let word = self.words.get(self.next)?;
            self.next += 1;
            if word == "--" {
                return None;
            }
            if let Some(name) = word.strip_prefix("--") {
                return Some(self.named(name));
            }
            match word.strip_prefix('-') {
                Some(letters) if !letters.is_empty() => self.rest = letters,
                _ if self.posix => {
                    self.next -= 1;
                    return None;
                }
                _ => self.operands.push(self.next - 1),
            }
        }
    }
}

impl std::fmt::Display for Wrong {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Wrong::UnknownWord(word) => write!(f, "invalid option '{word}'"),
            Wrong::Unknown(letter) => write!(f, "invalid option '{letter}'"),
            Wrong::Missing(letter) => write!(f, "missing argument for '{letter}' option"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(words: &[&str], short: &'static str, long: &'static [Long]) -> (Vec<Result<(char, Option<String>), Wrong>>, Vec<String>) {
        let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
        let mut options = Options::new(&words, short, long);
        let read = options.by_ref().collect();
        (read, options.operands())
    }

    #[test]
    fn letters_combine_and_operands_may_come_first() {
        let (options, operands) = read(&["tank", "-Hpoused", "-o", "name", "b", "--", "-r"], ":Hpo:r", &[]);
        let some = |text: &str| Some(text.to_owned());
        assert_eq!(options, [Ok(('H', None)), Ok(('p', None)), Ok(('o', some("used"))), Ok(('o', some("name")))]);
        assert_eq!(operands, ["tank", "b", "-r"]);
    }

    #[test]
    fn posix_wants_options_first() {
        let words = ["-H", "tank", "-p", "--", "-r"].map(str::to_owned);
        let mut options = Options::leading(&words, ":Hpr");
        assert_eq!(options.by_ref().collect::<Vec<_>>(), [Ok(('H', None))]);
        assert_eq!(options.operands(), ["tank", "-p", "--", "-r"]);
    }

    #[test]
    fn wrong_options_are_told_apart() {
        assert_eq!(read(&["-x"], ":ab:", &[]).0, [Err(Wrong::Unknown('x'))]);
        assert_eq!(read(&["-b"], ":ab:", &[]).0, [Err(Wrong::Missing('b'))]);
        assert_eq!(read(&["-b"], "ab:", &[]).0, [Err(Wrong::Unknown('b'))]);
        assert_eq!(read(&["-:"], "ab:", &[]).0, [Err(Wrong::Unknown(':'))]);
        assert_eq!(read(&["-"], "a", &[]).1, ["-"]);
    }

    #[test]
    fn long_options_may_be_shortened() {
        const LONG: &[Long] = &[("json", 'j'), ("json-int", 'J')];
        assert_eq!(read(&["--json", "--json-i", "--js"], "j", LONG).0, [Ok(('j', None)), Ok(('J', None)), Err(Wrong::UnknownWord("--js".into()))]);
        assert_eq!(read(&["--help"], "j", &[]).0, [Err(Wrong::UnknownWord("--help".into()))]);
    }
}
