//! Figures about space: how large metaslabs are, how much is held back, how fragmented free space is.

use ondisk::space_map::HISTOGRAM_BUCKETS;

const LARGEST_BLOCK_SHIFT: u8 = 24;
const METASLAB_SHIFT_DEFAULT: u8 = 29;
const METASLAB_SHIFT_MAX: u8 = 34;
const METASLABS_MIN: u64 = 16;
const METASLABS_DEFAULT: u64 = 200;
const METASLABS_MAX: u64 = 1 << 17;

/// Log2 of the size of the metaslabs of a new top-level vdev of `vdev_bytes`.
///
/// 512 MiB each, but at least 16 of them (fewer only where they would be smaller than the largest block) and not many more
/// than 200, each at most 16 GiB, and then never more than 2^17.
#[doc(alias = "vdev_metaslab_set_size")]
pub fn metaslab_shift(vdev_bytes: u64) -> u8 {
    // The power of two above: `parts` metaslabs of this size cover the vdev.
    let shift_for = |parts: u64| (vdev_bytes / parts).checked_ilog2().map_or(0, |log2| log2 as u8 + 1);
    let count = vdev_bytes >> METASLAB_SHIFT_DEFAULT;
    let shift = if count < METASLABS_MIN {
        shift_for(METASLABS_MIN)
    } else if count > METASLABS_DEFAULT {
        shift_for(METASLABS_DEFAULT)
    } else {
        METASLAB_SHIFT_DEFAULT
    };
    if shift > METASLAB_SHIFT_MAX && vdev_bytes >> METASLAB_SHIFT_MAX > METASLABS_MAX {
        return shift_for(METASLABS_MAX);
    }
    shift.clamp(LARGEST_BLOCK_SHIFT, METASLAB_SHIFT_MAX)
}

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
    fn metaslabs_are_sized_as_documented() {
        let count = |bytes: u64| bytes >> metaslab_shift(bytes);
        assert_eq!(metaslab_shift(60 << 20), 24);
        assert_eq!(metaslab_shift(4 << 30), 29);
        assert_eq!(count(8 << 30), 16);
        assert_eq!(count(50 << 30), 100);
        assert!((100..=200).contains(&count(1 << 40)));
        assert_eq!(metaslab_shift(1 << 50), 34);
        assert!(count(1 << 53) <= 1 << 17);
        assert_eq!(metaslab_shift(0), 24);
    }

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
