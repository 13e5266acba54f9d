//! The rules that no compiler checks.
//!
//! # Theory
//! Each rule reads the sources as text, with comments and strings blanked out where they do not count, and returns
//! what is against it. A rule that is about order (layers) has its table here, and nowhere else. An exception list may
//! only shrink.

mod comments;
mod docs;
mod layers;
mod sizes;
mod source;
mod words;

use std::path::Path;

use anyhow::Result;

pub use source::{Source, Tree};

/// What was found.
#[derive(Debug, Default)]
pub struct Findings {
    /// Against a rule: one line each, with the file and the line where there is one.
    pub violations: Vec<String>,
    /// Worth knowing.
    pub notes: Vec<String>,
}

/// Applies every rule to the workspace at `root`.
pub fn run(root: &Path) -> Result<Findings> {
    let tree = Tree::read(root)?;
    anyhow::ensure!(tree.sources.len() > 50, "only {} sources below {}", tree.sources.len(), root.display());
    let mut findings = Findings::default();
    layers::check(&tree, &mut findings);
    sizes::check(&tree, &mut findings);
    words::check(&tree, &mut findings);
    docs::check(&tree, &mut findings);
    comments::check(&tree, &mut findings);
    Ok(findings)
}
