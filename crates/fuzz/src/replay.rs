//! Runs targets without a fuzzer: over their seeds, and over mutations of them.
//!
//! # Theory
//! Pools have threads of their own, and requests catch panics: so every panic is counted, wherever it is. A target that hangs
//! cannot be ended, only the process can: a thread waits for that.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, Once, PoisonError};
use std::time::{Duration, Instant};

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

use crate::{Target, mutate};

static PANICS: AtomicU64 = AtomicU64::new(0);
/// What runs, and until when it may.
static RUNNING: Mutex<Option<(String, Instant)>> = Mutex::new(None);

/// How long beyond its limit a target may run before the process is ended.
const PATIENCE: Duration = Duration::from_secs(60);

#[allow(clippy::disallowed_methods)] // measures; decides nothing
fn now() -> Instant {
    Instant::now()
}

fn set_running(running: Option<(String, Instant)>) {
    *RUNNING.lock().unwrap_or_else(PoisonError::into_inner) = running;
}

/// Counts panics, and ends the process when something hangs.
#[allow(clippy::disallowed_methods)] // watches real threads
fn watch() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let shown = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            PANICS.fetch_add(1, Ordering::SeqCst);
            shown(panic);
        }));
        std::thread::spawn(|| {
            loop {
                std::thread::sleep(Duration::from_secs(1));
                let running = RUNNING.lock().unwrap_or_else(PoisonError::into_inner).clone();
                if let Some((what, until)) = running
                    && now() > until + PATIENCE
                {
                    sim::places::say(&format!("HANGS: {what}"));
                    std::process::abort();
                }
            }
        });
    });
}

/// Runs `target` over its seeds and then over `rounds` mutations, which depend on `seed` alone.
///
/// # Panics
/// When the target does, in any thread, or is too slow. The message has what is needed to do it again.
pub fn replay(target: &Target, rounds: u64, seed: u64) {
    watch();
    let seeds = (target.seeds)();
    assert!(!seeds.is_empty(), "{}: no seeds", target.name);
    for bytes in &seeds {
        run(target, bytes, || format!("{}: a seed", target.name));
    }
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    for round in 0..rounds {
        let mut input = seeds[random.random_range(0..seeds.len())].clone();
        mutate(&mut input, &seeds, target.bytes_max, &mut random);
        run(target, &input, || format!("target {}, seed {seed}, round {round}", target.name));
    }
}

fn run(target: &Target, input: &[u8], what: impl Fn() -> String) {
    set_running(Some((what(), now() + target.time_max)));
    let before = PANICS.load(Ordering::SeqCst);
    let outcome = std::panic::catch_unwind(|| target.run(input));
    set_running(None);
    if outcome.is_err() || PANICS.load(Ordering::SeqCst) != before {
        let shown: String = input.iter().map(|byte| format!("{byte:02x}")).collect();
        panic!("{}: panicked on {} bytes: {shown}", what(), input.len());
    }
}
