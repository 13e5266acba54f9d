//! Tests that go through an existing file from its beginning to its end: 4, 5, 6 and 7.

use anyhow::{Result, bail};

use super::KIB;
use super::create::{small_pass, write_pass};
use super::job::Job;
use crate::aligned::Aligned;
use crate::storage::{Handle, Open};

/// Tests 4 and 5: read(32 K).
pub(super) fn read(job: &Job<'_>) -> Result<u64> {
    read_pass(job, job.open(Open::Existing)?.as_ref(), job.moved_bytes, 32 * KIB)
}

/// Test 6: write(32 K) over what is there, O_DSYNC, close.
pub(super) fn rewrite_synchronous(job: &Job<'_>) -> Result<u64> {
    write_pass(job, job.open(Open::ExistingSynchronous)?.as_ref(), 32 * KIB)
}

/// Test 7: small writes over what is there, close.
pub(super) fn rewrite_small(job: &Job<'_>) -> Result<u64> {
    small_pass(job, job.open(Open::Existing)?.as_ref(), |_| Ok(false))
}

/// Reads `bytes` from where the file stands, `length` a call.
pub(super) fn read_pass(job: &Job<'_>, file: &dyn Handle, bytes: u64, length: u64) -> Result<u64> {
    let mut buffer = Aligned::new(length as usize);
    let mut meter = job.meter(bytes);
    loop {
        let wanted = meter.next(length)?;
        if wanted == 0 {
            return Ok(meter.done());
        }
        match file.read(&mut buffer[..wanted])? {
            0 => bail!("{} ends after {} of {bytes} bytes", job.path.display(), meter.done()),
            got => meter.add(got),
        }
    }
}
