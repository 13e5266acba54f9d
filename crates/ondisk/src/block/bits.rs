//! Get or set a bit range in a `u64`, in units and with a bias.
//!
//! # Theory
//! ZFS packs several fields into one 64-bit word. A field is named by its lowest bit and its width, exactly as in the
//! diagrams of the format, so that each accessor elsewhere is one line that can be compared with the diagram by eye.
//! Sizes are kept in 512-byte units (a `shift` of 9) and some are kept minus one (a `bias` of 1), because a size of zero
//! makes no sense and 65,536 units would otherwise not fit in 16 bits.

/// The mask of the lowest `width` bits.
pub const fn mask(width: u32) -> u64 {
    if width >= 64 { u64::MAX } else { (1 << width) - 1 }
}

/// The value of the field of `width` bits that begins at bit `low`.
pub const fn get(word: u64, low: u32, width: u32) -> u64 {
    (word >> low) & mask(width)
}

/// `word` with the field of `width` bits that begins at bit `low` replaced by `value`.
///
/// # Panics
/// When `value` does not fit: callers decide sizes, disks do not.
pub const fn set(word: u64, low: u32, width: u32, value: u64) -> u64 {
    assert!(value <= mask(width), "value does not fit its bit field");
    (word & !(mask(width) << low)) | (value << low)
}

/// A field that counts units of `1 << shift` and is stored minus `bias`.
pub const fn get_scaled(word: u64, low: u32, width: u32, shift: u32, bias: u64) -> u64 {
    (get(word, low, width) + bias) << shift
}

/// Stores `value` in units of `1 << shift`, minus `bias`.
///
/// # Panics
/// When `value` is no whole number of units, or does not fit.
pub const fn set_scaled(word: u64, low: u32, width: u32, shift: u32, bias: u64, value: u64) -> u64 {
    assert!(value & mask(shift) == 0, "value is no whole number of units");
    assert!((value >> shift) >= bias, "value is below the bias of its bit field");
    set(word, low, width, (value >> shift) - bias)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_field_reads_back_and_leaves_its_neighbours_alone() {
        let word = set(u64::MAX, 16, 16, 0x1234);
        assert_eq!(get(word, 16, 16), 0x1234);
        assert_eq!(get(word, 0, 16), 0xffff);
        assert_eq!(get(word, 32, 32), 0xffff_ffff);
        assert_eq!(get(set(0, 0, 64, u64::MAX), 0, 64), u64::MAX);
    }

    #[test]
    fn sizes_are_in_sectors_minus_one() {
        let word = set_scaled(0, 0, 16, 9, 1, 131_072);
        assert_eq!(word, 255);
        assert_eq!(get_scaled(word, 0, 16, 9, 1), 131_072);
    }

    #[test]
    #[should_panic(expected = "does not fit")]
    fn too_large_a_value_is_refused() {
        set(0, 0, 4, 16);
    }
}
