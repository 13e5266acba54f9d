//! How busy a mount is: whether a thread of its own is worth it.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::Instant;

/// Requests within a window that make a mount hot.
const HOT_REQUESTS: u32 = 32;
/// A mount with fewer requests in a whole window is hot no more.
const WINDOW_MILLISECONDS: u64 = 1000;

/// The requests of a mount, counted in windows of a second. Several threads that count beside one another may lose a few: it is an estimate.
#[derive(Debug, Default)]
pub(crate) struct Heat {
    /// When the window began, in milliseconds of the process's clock.
    began: AtomicU64,
    requests: AtomicU32,
    is_hot: AtomicBool,
}

/// Milliseconds since somebody asked first.
fn now() -> u64 {
    static BEGAN: OnceLock<Instant> = OnceLock::new();
    #[allow(clippy::disallowed_methods)] // the real clock: the kernel's callers wait in it
    u64::try_from(BEGAN.get_or_init(Instant::now).elapsed().as_millis()).unwrap_or(u64::MAX)
}

impl Heat {
    /// One more request; says whether the mount is hot.
    pub(crate) fn count(&self) -> bool {
        self.count_at(now())
    }

    fn count_at(&self, now: u64) -> bool {
        let began = self.began.load(Ordering::Relaxed);
        if now.saturating_sub(began) >= WINDOW_MILLISECONDS {
            let seen = self.requests.swap(0, Ordering::Relaxed);
            // A window that ended long ago says nothing about now.
            let is_recent = now.saturating_sub(began) < 2 * WINDOW_MILLISECONDS;
            self.is_hot.store(is_recent && seen >= HOT_REQUESTS, Ordering::Relaxed);
            self.began.store(now, Ordering::Relaxed);
        }
        if self.requests.fetch_add(1, Ordering::Relaxed) + 1 >= HOT_REQUESTS {
            self.is_hot.store(true, Ordering::Relaxed);
        }
        self.is_hot.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_makes_hot_and_a_quiet_window_cold() {
        let heat = Heat::default();
        assert!((0..HOT_REQUESTS - 1).all(|_| !heat.count_at(5)));
        assert!(heat.count_at(6) && heat.count_at(1000));
        // The window before was hot, this one was not.
        assert!(heat.count_at(1500) && !heat.count_at(2500));
        assert!((0..HOT_REQUESTS).any(|_| heat.count_at(2501)));
        assert!(!heat.count_at(9000), "what was long ago is forgotten");
    }
}
