//! The arithmetic of a disk without moving parts.

use std::time::Duration;

/// A flash disk.
#[derive(Debug, Clone, PartialEq)]
pub struct Flash {
    /// Of a read, before its data moves.
    pub read: Duration,
    pub write: Duration,
    pub flush: Duration,
    /// Requests that are worked on at a time.
    pub channels: usize,
    /// Of the bus that the channels share.
    pub bytes_per_second: f64,
}

/// When each channel, and the bus, is free.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Channels {
    free_at: Vec<f64>,
    bus_free_at: f64,
}

impl Channels {
    pub(super) fn new(disk: &Flash) -> Channels {
        Channels { free_at: vec![0.0; disk.channels.max(1)], bus_free_at: 0.0 }
    }

    /// Takes a request, and says when it is done.
    pub(super) fn take(&mut self, disk: &Flash, bytes: u64, is_read: bool, arrival: f64) -> f64 {
        let latency = if is_read { disk.read } else { disk.write };
        let channel =
            (0..self.free_at.len()).min_by(|one, other| self.free_at[*one].total_cmp(&self.free_at[*other])).unwrap_or(0);
        let ready = self.free_at[channel].max(arrival) + latency.as_secs_f64();
        let done = self.bus_free_at.max(ready) + bytes as f64 / disk.bytes_per_second;
        self.bus_free_at = done;
        self.free_at[channel] = done;
        done
    }

    /// When everything that was taken is done, and a flush of it too.
    pub(super) fn flush(&self, disk: &Flash, arrival: f64) -> f64 {
        self.free_at.iter().copied().fold(arrival, f64::max) + disk.flush.as_secs_f64()
    }
}

impl Flash {
    /// Seconds of a write that nothing else is in the way of.
    pub fn one_write(&self, bytes: u64) -> f64 {
        self.write.as_secs_f64() + bytes as f64 / self.bytes_per_second
    }

    /// Seconds of a read that nothing else is in the way of.
    pub fn one_read(&self, bytes: u64) -> f64 {
        self.read.as_secs_f64() + bytes as f64 / self.bytes_per_second
    }
}
