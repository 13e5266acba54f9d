//! Figures about space: how much is held back, how fragmented free space is.

use ondisk::space_map::HISTOGRAM_BUCKETS;

/// Bytes that ordinary writers may not use, so that a full pool can still free: 1/32 of `pool_bytes` (deflated), at most
/// 128 GiB, at least 128 MiB, but never more than half the pool.  What is set aside for the intent log counts towards it,
/// up to half of it.
#[doc(alias = "spa_get_slop_space")]
pub fn slop_bytes(pool_bytes: u64, embedded_log_bytes: u64) -> u64 {
    let slop = (pool_bytes >> 5).min(128 << 30);
    let slop = slop - embedded_log_bytes.min(slop >> 1);
    slop.max((pool_bytes >> 1).min(128 << 20))
}

/// Percent of fragmentation that free segments of 512, 1024, 2048... bytes stand for.
///
/// OpenZFS's published scale: users compare the figure between implementations.
const FRAGMENTATION_PERCENT: [u64; 21] =
    [100, 99, 97, 93, 88, 83, 77, 71, 64, 57, 50, 43, 36, 29, 23, 17, 12, 7, 3, 1, 0];

/// How fragmented free space is, in percent, from the histogram of its segments (bucket 0: `1 << shift` bytes).
pub fn fragmentation(histogram: &[u64; HISTOGRAM_BUCKETS], shift: u8) -> u64 {
    let (mut total, mut weighted) = (0_u128, 0_u128);
    for (bucket, count) in histogram.iter().enumerate() {
        let log2 = usize::from(shift) + bucket;
        let percent = FRAGMENTATION_PERCENT.get(log2.saturating_sub(9)).copied().unwrap_or(0);
        let bytes = u128::from(*count) << log2.min(63);
        total += bytes;
        weighted += bytes * u128::from(percent);
    }
    weighted.checked_div(total).unwrap_or(0) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slop_has_its_bounds() {
        assert_eq!(slop_bytes(64 << 20, 0), 32 << 20);
        assert_eq!(slop_bytes(1 << 30, 0), 128 << 20);
        assert_eq!(slop_bytes(1 << 40, 0), 32 << 30);
        assert_eq!(slop_bytes(1 << 40, 1 << 40), 16 << 30);
        assert_eq!(slop_bytes(1 << 50, 0), 128 << 30);
    }

    #[test]
    fn fragmentation_is_weighted_by_bytes() {
        let mut histogram = [0; HISTOGRAM_BUCKETS];
        assert_eq!(fragmentation(&histogram, 9), 0);
        histogram[0] = 8;
        assert_eq!(fragmentation(&histogram, 9), 100);
        histogram[3] = 1;
        assert_eq!(fragmentation(&histogram, 9), (100 + 93) / 2);
        histogram = [0; HISTOGRAM_BUCKETS];
        histogram[31] = 1;
        assert_eq!(fragmentation(&histogram, 12), 0);
    }
}
