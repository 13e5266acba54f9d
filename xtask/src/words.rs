//! Words of a command line: options with values, then the rest.

use std::str::FromStr;

use anyhow::{Context, Result, ensure};

pub(crate) struct Words<'a> {
    left: Vec<&'a str>,
}

impl<'a> Words<'a> {
    pub(crate) fn new(words: &[&'a str]) -> Words<'a> {
        Words { left: words.to_vec() }
    }

    /// The word after `option`.
    pub(crate) fn value(&mut self, option: &str) -> Result<Option<&'a str>> {
        let Some(at) = self.left.iter().position(|word| *word == option) else { return Ok(None) };
        ensure!(at + 1 < self.left.len(), "{option} needs a value");
        self.left.remove(at);
        Ok(Some(self.left.remove(at)))
    }

    /// Is `option` there?
    pub(crate) fn flag(&mut self, option: &str) -> bool {
        let before = self.left.len();
        self.left.retain(|word| *word != option);
        self.left.len() < before
    }

    /// As a number.
    pub(crate) fn number<T: FromStr>(&mut self, option: &str) -> Result<Option<T>> {
        let Some(text) = self.value(option)? else { return Ok(None) };
        Ok(Some(text.parse().ok().with_context(|| format!("{option} {text}: no number"))?))
    }

    /// What is no option.
    pub(crate) fn rest(self) -> Vec<&'a str> {
        self.left
    }

    /// Nothing more is understood.
    pub(crate) fn none_left(self) -> Result<()> {
        ensure!(self.left.is_empty(), "not understood: {}", self.left.join(" "));
        Ok(())
    }
}
