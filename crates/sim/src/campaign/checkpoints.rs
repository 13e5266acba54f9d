//! Checkpoints, and the way back.

#![allow(clippy::disallowed_methods)] // what is under way is done by real threads

use std::time::Instant;

use engine::error::ErrorKind;
use rand::Rng;
use tarnfs::Rewind;

use super::round::{PATIENCE, Round};
use super::spares::allow;

impl Round {
    /// Takes a checkpoint, or gives up the one that there is, or goes back to it.
    pub(super) fn keep_or_go_back(&mut self) -> Result<(), String> {
        match (self.kept.is_some(), self.random.random_range(0..3)) {
            (false, _) => self.keep(),
            (true, 0) => self.discard(),
            (true, _) => self.go_back(),
        }
    }

    fn keep(&mut self) -> Result<(), String> {
        self.sync()?;
        let taken = self.pool.engine().take_checkpoint();
        self.say(format!("checkpoint: {taken:?}"));
        // Something is being removed or expanded, or the last one is being freed.
        let taken = allow(taken, &[ErrorKind::Busy, ErrorKind::Exists, ErrorKind::Conflict]).map_err(|error| format!("checkpoint: {error}"))?;
        if taken.is_some() {
            self.tally.checkpoints += 1;
            self.kept = Some(self.files.clone());
        }
        Ok(())
    }

    /// Gives up the checkpoint, and waits until it is freed.
    pub(super) fn discard(&mut self) -> Result<(), String> {
        if self.kept.take().is_none() {
            return Ok(());
        }
        self.say("discard the checkpoint");
        let engine = self.pool.engine().clone();
        engine.discard_checkpoint().map_err(|error| format!("discard: {error}"))?;
        let begun = Instant::now();
        while engine.checkpoint().map_err(|error| format!("discard: {error}"))?.is_some() {
            if begun.elapsed() > PATIENCE {
                return Err("the checkpoint is not freed".to_owned());
            }
            self.diagnose()?;
            self.pass()?;
        }
        Ok(())
    }

    /// The pool is what it was when the checkpoint was taken.
    fn go_back(&mut self) -> Result<(), String> {
        self.say("go back to the checkpoint");
        self.export()?;
        let Some(kept) = self.kept.take() else { return Ok(()) };
        self.files = kept;
        self.tally.checkpoints += 1;
        self.open_again_at(Rewind::ToCheckpoint)?;
        self.read()
    }
}
