//! How large the tests are made and how often they run.

use std::time::Duration;

use super::{MIB, Size, UnitTest};

/// How to run the tests.
#[derive(Debug, Clone, PartialEq)]
pub struct Settings {
    /// Sizes are the published ones, divided by this ...
    pub divisor: u64,
    /// ... but none is made smaller than this by it: a test of a few calls measures nothing.
    pub smallest_bytes: u64,
    /// Half of the free memory, before the division; found out once, so that all targets get the same.
    pub half_of_memory_bytes: u64,
    /// Repetitions of each test on each target.
    pub repetitions: u32,
    /// No further repetition once those of one test on one target took this long, with what prepares them.
    pub enough: Duration,
    /// A measurement is cut short after this.
    pub time_limit: Duration,
    /// Decides offsets, sizes and contents.
    pub seed: u64,
    /// Which tests; all of them if it is empty.
    pub only: Vec<u8>,
}

impl Settings {
    /// The published sizes.
    pub fn full() -> Settings {
        Settings {
            divisor: 1,
            smallest_bytes: MIB,
            half_of_memory_bytes: crate::system::free_memory_bytes().map_or(1024 * MIB, |bytes| bytes / 2),
            repetitions: 3,
            enough: Duration::from_secs(120),
            time_limit: Duration::from_secs(600),
            seed: 1,
            only: Vec::new(),
        }
    }

    /// A quarter of the published sizes: less than a minute for each target.
    pub fn short() -> Settings {
        let full = Settings::full();
        let half_of_memory_bytes = full.half_of_memory_bytes.min(2048 * MIB);
        let (enough, time_limit) = (Duration::from_millis(2500), Duration::from_secs(8));
        Settings { divisor: 4, repetitions: 3, half_of_memory_bytes, enough, time_limit, ..full }
    }

    /// A published size as it is run.
    pub fn bytes(&self, size: Size) -> u64 {
        let published = match size {
            Size::Bytes(bytes) => bytes,
            Size::HalfOfMemory => self.half_of_memory_bytes / MIB * MIB,
        };
        (published / self.divisor.max(1) / 4096 * 4096).max(published.min(self.smallest_bytes))
    }

    /// Whether the test is among those to run.
    pub fn includes(&self, test: &UnitTest) -> bool {
        self.only.is_empty() || self.only.contains(&test.id)
    }

    /// Space that a file system must have for all of it, with room for copies not yet freed.
    pub fn space_bytes(&self) -> u64 {
        let largest = super::TESTS.iter().filter(|test| self.includes(test)).map(|test| self.bytes(test.file)).max();
        largest.unwrap_or(0).saturating_mul(2).saturating_add(512 * MIB)
    }

    /// The sizes in words.
    pub fn sizes(&self) -> String {
        let memory = format!("test 8: {} MB", self.bytes(Size::HalfOfMemory) / MIB);
        match self.divisor {
            0 | 1 => format!("published sizes; {memory}"),
            divisor => format!("1/{divisor} of the published sizes, none below {} MB; {memory}", self.smallest_bytes / MIB),
        }
    }
}
