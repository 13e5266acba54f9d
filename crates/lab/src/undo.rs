//! What has been set up, as a stack of ways to take it down.
//!
//! # Invariants
//!
//! 1. Steps run in the reverse of the order in which they were pushed, each once.
//! 2. A step that fails is reported and does not keep the others from running.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use crate::system;

type Step = Box<dyn FnOnce() -> Result<()>>;

/// Runs its steps when it is dropped.
#[derive(Default)]
pub struct Undo {
    steps: Vec<(String, Step)>,
}

impl Undo {
    /// Nothing to undo yet.
    pub fn new() -> Undo {
        Undo::default()
    }

    /// Adds a step; `what` completes "could not ...".
    pub fn push(&mut self, what: impl Into<String>, step: impl FnOnce() -> Result<()> + 'static) {
        self.steps.push((what.into(), Box::new(step)));
    }

    /// Runs the steps now and says what went wrong.
    pub fn run(&mut self) -> Vec<String> {
        let mut failures = Vec::new();
        while let Some((what, step)) = self.steps.pop() {
            if let Err(error) = step() {
                failures.push(format!("could not {what}: {error:#}"));
            }
        }
        failures
    }
}

/// Makes an empty directory in `parent`; it goes away with all that is in it when `undo` runs.
pub fn scratch_directory(parent: &Path, prefix: &str, undo: &mut Undo) -> Result<PathBuf> {
    let made = tempfile::Builder::new().prefix(prefix).tempdir_in(parent);
    let path = made.with_context(|| format!("cannot make a directory in {}", parent.display()))?.keep();
    let gone = path.clone();
    undo.push(format!("remove {}", path.display()), move || {
        // Never through a mount: what is still mounted there is kept, and told.
        if system::mounts().iter().any(|mount| mount.mount_point.starts_with(&gone)) {
            bail!("something is still mounted in it");
        }
        Ok(fs::remove_dir_all(&gone)?)
    });
    Ok(path)
}

impl Drop for Undo {
    fn drop(&mut self) {
        for failure in self.run() {
            crate::errln!("warning: {failure}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::RefCell;
    use std::rc::Rc;

    #[test]
    fn steps_run_backwards_and_a_failure_stops_none() {
        let log = Rc::new(RefCell::new(Vec::new()));
        let mut undo = Undo::new();
        for number in 0..4 {
            let log = Rc::clone(&log);
            undo.push(format!("undo {number}"), move || {
                log.borrow_mut().push(number);
                if number == 2 { Err(anyhow::anyhow!("stuck")) } else { Ok(()) }
            });
        }
        assert_eq!(undo.run(), ["could not undo 2: stuck"]);
        drop(undo);
        assert_eq!(*log.borrow(), [3, 2, 1, 0]);
    }
}
