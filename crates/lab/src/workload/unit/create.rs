//! Tests that make their file: 1, 2, 3 and 8.

use anyhow::Result;
use rand::Rng;

use super::job::Job;
use super::sequential::read_pass;
use super::{KIB, MIB};
use crate::storage::{Handle, Open};

/// Small writes are of 1 to 8 KB, each length as likely as the others.
const SMALL: std::ops::RangeInclusive<u64> = KIB..=8 * KIB;

/// Test 1: write(1 MB) into a new file, close.
pub(super) fn large_writes(job: &Job<'_>) -> Result<u64> {
    write_pass(job, job.open(Open::Create)?.as_ref(), MIB)
}

/// Test 2: write(128 K) into a new file opened with O_DSYNC, close.
pub(super) fn synchronous(job: &Job<'_>) -> Result<u64> {
    write_pass(job, job.open(Open::CreateSynchronous)?.as_ref(), 128 * KIB)
}

/// Test 3: small writes into a new file, fsync after every 10 MB, close.
pub(super) fn small_writes(job: &Job<'_>) -> Result<u64> {
    const BETWEEN_SYNCS: u64 = 10 * MIB;
    let file = job.open(Open::Create)?;
    let mut unsynced = 0;
    let written = small_pass(job, file.as_ref(), |length| {
        unsynced += length;
        if unsynced >= BETWEEN_SYNCS {
            file.sync()?;
            unsynced = 0;
            return Ok(true);
        }
        Ok(false)
    })?;
    if unsynced > 0 {
        file.sync()?;
    }
    Ok(written)
}

/// Writes small pieces from where the file stands; `after` is told the length of each, and says whether it synced the file.
pub(super) fn small_pass(job: &Job<'_>, file: &dyn Handle, mut after: impl FnMut(u64) -> Result<bool>) -> Result<u64> {
    let mut random = job.random(0);
    let mut meter = job.meter(job.moved_bytes);
    for number in 0.. {
        let length = meter.next(random.random_range(SMALL))?;
        if length == 0 {
            break;
        }
        file.write(job.piece(number, length))?;
        meter.add(length);
        if after(length as u64)? {
            meter.called();
        }
    }
    Ok(meter.done())
}

/// Test 8: write(1 MB) into a new file, then read(1 MB) all of it, twice.
pub(super) fn write_and_read_twice(job: &Job<'_>) -> Result<u64> {
    let file = job.open(Open::CreateAndRead)?;
    let written = write_pass(job, file.as_ref(), MIB)?;
    let mut moved = written;
    for _ in 0..2 {
        file.rewind()?;
        moved += read_pass(job, file.as_ref(), written, MIB)?;
    }
    Ok(moved)
}

/// Writes from where the file stands, `length` bytes a call.
pub(super) fn write_pass(job: &Job<'_>, file: &dyn Handle, length: u64) -> Result<u64> {
    let mut meter = job.meter(job.moved_bytes);
    for number in 0.. {
        let length = meter.next(length)?;
        if length == 0 {
            break;
        }
        file.write(job.piece(number, length))?;
        meter.add(length);
    }
    Ok(meter.done())
}
