//! How long single operations take: percentiles beside the rates.
//!
//! # Theory
//!
//! A rate hides the operation that took a second among a million that took a microsecond. Each operation of a workload that
//! does them itself is timed, and goes into a histogram whose steps are 0.1 % of the time (HdrHistogram), one for each
//! thread, so that threads do not wait for each other. A percentile is the smallest time that so many percent of all
//! operations of a round do not exceed; of fewer than a thousand operations p99.9 is the longest one.
//!
//! The clock is taken before and after an operation, or once between two that follow each other. That is the same for every
//! file system, and the results say how long it takes here ([`clock_nanoseconds`]).

use std::time::{Duration, Instant};

use hdrhistogram::Histogram;

use super::Figure;

/// The percentiles that are told, as they are called. The last one is the longest of all.
pub(super) const PERCENTILES: [(&str, f64); 4] = [("p50", 50.0), ("p99", 99.0), ("p99.9", 99.9), ("max", 100.0)];
/// The one that is compared: the middle is what the rates say, and further out a round has too few operations.
pub const COMPARED: &str = "p99";

/// The times of some operations.
#[derive(Debug, Clone)]
pub struct Latencies(Histogram<u32>);

impl Default for Latencies {
    fn default() -> Latencies {
        Latencies(Histogram::new(3).expect("three digits are possible"))
    }
}

impl Latencies {
    /// Does it, and keeps how long it took.
    pub fn time<T>(&mut self, operation: impl FnOnce() -> T) -> T {
        let started = Instant::now();
        let outcome = operation();
        self.add(started.elapsed());
        outcome
    }

    /// One that took so long.
    pub fn add(&mut self, time: Duration) {
        // It grows as it has to: nothing is too long for it.
        let _ = self.0.record(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX));
    }

    /// How many there were.
    pub fn count(&self) -> u64 {
        self.0.len()
    }

    /// Adds those of another thread.
    pub fn join(&mut self, other: &Latencies) {
        let _ = self.0.add(&other.0);
    }

    /// All of several threads.
    pub fn all<'a>(threads: impl IntoIterator<Item = &'a Latencies>) -> Latencies {
        let mut all = Latencies::default();
        threads.into_iter().for_each(|one| all.join(one));
        all
    }

    /// The percentiles of what is called `of`; none, if there was nothing.
    pub fn figures(&self, of: &str) -> Vec<Figure> {
        if self.count() == 0 {
            return Vec::new();
        }
        let value = |percent: f64| self.0.value_at_percentile(percent) as f64 / 1e3;
        PERCENTILES.iter().map(|(name, percent)| Figure::percentile(of, name, value(*percent))).collect()
    }
}

/// What it takes to take the time, in nanoseconds: the middle one of several goes.
pub fn clock_nanoseconds() -> f64 {
    const READINGS: u32 = 1000;
    let mut goes: Vec<f64> = (0..9)
        .map(|_| {
            let started = Instant::now();
            (0..READINGS).for_each(|_| {
                std::hint::black_box(Instant::now());
            });
            started.elapsed().as_nanos() as f64 / f64::from(READINGS)
        })
        .collect();
    goes.sort_by(f64::total_cmp);
    goes[goes.len() / 2]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values(latencies: &Latencies) -> Vec<(String, f64)> {
        latencies.figures("read").into_iter().map(|figure| (figure.name.into_owned(), figure.value.round())).collect()
    }

    #[test]
    fn percentiles_are_the_smallest_times_that_so_many_do_not_exceed() {
        assert!(Latencies::default().figures("read").is_empty());
        let mut latencies = Latencies::default();
        (1..=10_000).rev().for_each(|number| latencies.add(Duration::from_micros(number)));
        let expected = [("p50", 5000.0), ("p99", 9900.0), ("p99.9", 9990.0), ("max", 10_000.0)];
        for ((name, value), (percentile, expected)) in values(&latencies).into_iter().zip(expected) {
            assert_eq!(name, format!("read, {percentile}"));
            assert!((value / expected - 1.0_f64).abs() < 0.002, "{name}: {value}");
        }
        // One thread's longest one is that of all.
        let mut other = Latencies::default();
        other.add(Duration::from_secs(100_000));
        let all = Latencies::all([&latencies, &other]);
        assert_eq!(all.count(), 10_001);
        assert!((values(&all)[3].1 / 1e11 - 1.0).abs() < 0.002, "{:?}", values(&all));
    }

    #[test]
    fn what_is_timed_is_what_was_done() {
        let mut latencies = Latencies::default();
        assert_eq!(latencies.time(|| 7), 7);
        latencies.time(|| std::thread::sleep(Duration::from_millis(2)));
        assert_eq!(latencies.count(), 2);
        assert!(values(&latencies)[3].1 >= 1990.0, "{:?}", values(&latencies));
        assert!(clock_nanoseconds() > 0.0);
    }
}
