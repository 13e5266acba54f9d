//! Tests that jump about in an existing file: 9 to 14.

use std::thread;

use anyhow::{Result, anyhow};
use rand::Rng;
use rand_chacha::ChaCha8Rng;

use super::KIB;
use super::job::Job;
use crate::aligned::Aligned;
use crate::storage::{Handle, Open};

const BLOCK: u64 = 8 * KIB;
const SHORT: u64 = 2 * KIB;
const THREADS: u64 = 4;

fn block_offset(job: &Job<'_>, random: &mut ChaCha8Rng) -> u64 {
    random.random_range(0..(job.file_bytes / BLOCK).max(1)) * BLOCK
}

fn any_offset(job: &Job<'_>, random: &mut ChaCha8Rng) -> u64 {
    random.random_range(0..=job.file_bytes.saturating_sub(SHORT))
}

/// Test 9: writes of whole 8 K blocks, then fsync.
pub(super) fn writes(job: &Job<'_>) -> Result<u64> {
    let file = job.open(Open::Existing)?;
    let mut random = job.random(0);
    let mut meter = job.meter(job.moved_bytes);
    for number in 0.. {
        let length = meter.next(BLOCK)?;
        if length == 0 {
            break;
        }
        file.write_all_at(job.piece(number, length), block_offset(job, &mut random))?;
        meter.add(length);
    }
    file.sync()?;
    meter.called();
    Ok(meter.done())
}

/// Test 10: writes of 2 K anywhere, O_DSYNC.
pub(super) fn synchronous(job: &Job<'_>) -> Result<u64> {
    short_writes(job, job.open(Open::ExistingSynchronous)?.as_ref(), 0)
}

/// Test 11: the same by four threads through one open file.
pub(super) fn synchronous_by_four(job: &Job<'_>) -> Result<u64> {
    by_four(job.open(Open::ExistingSynchronous)?.as_ref(), |file, number| short_writes(job, file, number))
}

/// Test 12: three reads of 8 K blocks, then a write to the last of them, and again.
pub(super) fn mixed(job: &Job<'_>) -> Result<u64> {
    let file = job.open(Open::Existing)?;
    let mut random = job.random(0);
    let mut meter = job.meter(job.moved_bytes);
    let mut buffer = Aligned::new(BLOCK as usize);
    let mut offset = 0;
    for number in 0_u64.. {
        let length = meter.next(BLOCK)?;
        if length == 0 {
            break;
        }
        if number % 4 < 3 {
            offset = block_offset(job, &mut random);
            file.read_exact_at(&mut buffer[..length], offset)?;
        } else {
            file.write_all_at(job.piece(number, length), offset)?;
        }
        meter.add(length);
    }
    Ok(meter.done())
}

/// Tests 13 and 14: pread(2 K) anywhere, four threads through one open file.
pub(super) fn reads_by_four(job: &Job<'_>) -> Result<u64> {
    by_four(job.open(Open::Existing)?.as_ref(), |file, number| short_reads(job, file, number))
}

fn short_writes(job: &Job<'_>, file: &dyn Handle, thread: u64) -> Result<u64> {
    let mut random = job.random(thread);
    let mut meter = job.meter(job.moved_bytes);
    for number in 0.. {
        let length = meter.next(SHORT)?;
        if length == 0 {
            break;
        }
        file.write_all_at(job.piece(number * THREADS + thread, length), any_offset(job, &mut random))?;
        meter.add(length);
    }
    Ok(meter.done())
}

fn short_reads(job: &Job<'_>, file: &dyn Handle, thread: u64) -> Result<u64> {
    let mut random = job.random(thread);
    let mut meter = job.meter(job.moved_bytes);
    let mut buffer = Aligned::new(SHORT as usize);
    loop {
        let length = meter.next(SHORT)?;
        if length == 0 {
            return Ok(meter.done());
        }
        file.read_exact_at(&mut buffer[..length], any_offset(job, &mut random))?;
        meter.add(length);
    }
}

/// Runs `work` in four threads and adds up what they moved.
fn by_four(file: &dyn Handle, work: impl Fn(&dyn Handle, u64) -> Result<u64> + Sync) -> Result<u64> {
    let work = &work;
    thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS).map(|number| scope.spawn(move || work(file, number))).collect();
        let joined = threads.into_iter().map(|thread| thread.join().map_err(|_| anyhow!("a thread panicked"))?);
        joined.sum::<Result<u64>>()
    })
}
