//! `zfs diff`
//!
//! # Theory
//! Snapshots do not change, and are looked at as they are. A head does: its state in the newest group on disk is read from the pool's devices, after
//! a group was written for that; where blocks of that state are written over before the comparison is done, it begins again.
//!
//! # Path
//! `zfs diff` → control socket → here → [`crate::past::differences`] → a line of the stream for each

use std::io::Write;
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::sync::Arc;

use crate::Pool;
use crate::control::pools::{Failure, FailureKind, Pools};
use crate::control::{DatasetDiff, Descriptor, DiffLine, Reply, StreamJob, Streamed, Watch};
use crate::past::{Moment, Past, differences, is_earlier};
use crate::zpl::FileSystem;

/// How often a head that is written over meanwhile is looked at.
const TRIES: usize = 3;

impl Pools {
    pub(in crate::control::pools) fn diff_job(&self, diff: DatasetDiff) -> Result<StreamJob, Failure> {
        self.check_running(&diff.new)?;
        let pool = self.pool_of(&diff.new)?.pool.clone();
        let failed = |error: crate::Error| Failure::about_dataset(&error);
        if !is_earlier(&pool, &diff.old, &diff.new).map_err(failed)? {
            return Err(Failure::new(FailureKind::NotEarlier));
        }
        if diff.new.contains('@') {
            let (old, new) = (pool.file_system(&diff.old).map_err(failed)?, pool.file_system(&diff.new).map_err(failed)?);
            return Ok(Box::new(move |out| compare(&old, &new, &mut Lines::to(out)).map(|()| Streamed::Over(Reply::Done)).map_err(failed)));
        }
        Ok(Box::new(move |out| compare_head(&pool, &diff, &mut Lines::to(out)).map(|()| Streamed::Over(Reply::Done)).map_err(failed)))
    }
}

/// Where the lines go. When their reader has gone, nothing more is looked at.
struct Lines {
    out: Descriptor,
    watch: Arc<Watch>,
    is_over: bool,
}

impl Lines {
    fn to(out: Descriptor) -> Lines {
        let watch = out.watch().clone();
        Lines { out, watch, is_over: false }
    }

    fn write(&mut self, line: &DiffLine) {
        let written = serde_json::to_vec(line).map_err(std::io::Error::from).and_then(|mut text| {
            text.push(b'\n');
            self.out.write_all(&text)
        });
        self.is_over |= written.is_err() || self.watch.is_over();
    }
}

fn compare(old: &FileSystem, new: &FileSystem, lines: &mut Lines) -> Result<(), crate::Error> {
    let lines = std::cell::RefCell::new(lines);
    let mut each = |difference| {
        let mut lines = lines.borrow_mut();
        lines.write(&DiffLine::Differs(difference));
        if lines.is_over { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    };
    differences(old, new, &mut each, &mut |words| lines.borrow_mut().write(&DiffLine::Unclear(words)))
}

fn compare_head(pool: &Pool, diff: &DatasetDiff, lines: &mut Lines) -> Result<(), crate::Error> {
    if !pool.engine().is_read_only() {
        pool.engine().write_group()?;
    }
    let paths: Vec<PathBuf> = pool.engine().vdevs.leaves().iter().map(|leaf| PathBuf::from(leaf.name())).collect();
    let past = Past::find(&paths, &pool.engine().guid().to_string())?;
    let mut tries = 1;
    loop {
        let compared = past.open_at(&diff.new, &Moment::Now).and_then(|(then, _)| {
            compare(&*then.file_system(&diff.old)?, &*then.file_system(&diff.new)?, lines)
        });
        match compared {
            Err(_) if tries < TRIES && !lines.is_over => {
                tries += 1;
                lines.write(&DiffLine::Again);
            }
            compared => return compared,
        }
    }
}
