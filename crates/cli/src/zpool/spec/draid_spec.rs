//! The word for a dRAID vdev: `draid2:4d:11c:1s`, of which all but the first five letters may be left out.

use tarnfs::control::VdevKind;

use crate::session::{Session, Stop, complain};

/// A group has so many columns of data, if there are so many devices and nobody says otherwise.
const DATA_DEFAULT: u64 = 8;
/// The most spares.
const SPARES_MAX: u64 = 100;

/// Is it the name of a spare of a dRAID vdev, such as `draid2-0-1`?
pub(in crate::zpool) fn is_spare(word: &str) -> bool {
    let Some(rest) = word.strip_prefix("draid") else { return false };
    let numbers: Vec<Option<u64>> = rest.split('-').map(|part| part.parse().ok()).collect();
    matches!(numbers.as_slice(), [Some(1..=3), Some(_), Some(_)])
}

/// What the word says of a vdev with so many devices.
pub(super) fn parse(session: &mut Session<'_>, word: &str, parity: u8, children: u64) -> Result<VdevKind, Stop> {
    shape(word, parity, children).map_err(|words| {
        complain!(session, "{words}");
        Stop::Code(1)
    })
}

fn shape(word: &str, parity: u8, children: u64) -> Result<VdevKind, String> {
    let (mut data, mut spares) = (None, 0);
    for part in word.split(':').skip(1) {
        let digits = part.len() - part.trim_start_matches(|letter: char| letter.is_ascii_digit()).len();
        let suffix = part[digits..].chars().next().map(|letter| letter.to_ascii_lowercase());
        match (part[..digits].parse::<u64>(), suffix) {
            (Ok(number), Some('c')) if number != children => {
                return Err(format!("invalid number of dRAID children; {number} required but {children} provided"));
            }
            (Ok(_), Some('c')) => {}
            (Ok(number), Some('d')) => data = Some(number),
            (Ok(number), Some('s')) => spares = number,
            _ => return Err(format!("invalid dRAID syntax; expected [:<number><c|d|s>] not '{word}'")),
        }
    }
    let left = children.checked_sub(spares).and_then(|left| left.checked_sub(parity.into())).unwrap_or(0);
    let data = match data {
        Some(data) => data,
        None if left > 0 => left.min(DATA_DEFAULT),
        None => return Err(format!("request number of distributed spares {spares} and parity level {parity}\nleaves no disks available for data")),
    };
    if data == 0 || data > left {
        return Err(format!("requested number of dRAID data disks per group {data} is too high,\nat most {left} disks are available for data"));
    }
    if spares > SPARES_MAX {
        return Err(format!("invalid number of dRAID spares {spares}; additional disks would be required"));
    }
    Ok(VdevKind::Draid { parity, data, children, spares })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_out_has_defaults() {
        for (word, parity, children, data, spares) in
            [("draid", 1, 5, 4, 0), ("draid2", 2, 20, 8, 0), ("draid2:4d:8c:1s", 2, 8, 4, 1), ("draid3:2S:12C", 3, 12, 7, 2), ("draid:1d", 1, 2, 1, 0)]
        {
            assert_eq!(shape(word, parity, children), Ok(VdevKind::Draid { parity, data, children, spares }), "{word}");
        }
        for (word, parity, children, words) in [
            ("draid:x", 1, 5, "invalid dRAID syntax"),
            ("draid:4", 1, 5, "expected [:<number><c|d|s>] not 'draid:4'"),
            ("draid::4d", 1, 5, "invalid dRAID syntax"),
            ("draid:6c", 1, 5, "6 required but 5 provided"),
            ("draid2:3s", 2, 5, "leaves no disks available for data"),
            ("draid2:4d", 2, 5, "per group 4 is too high,\nat most 3 disks"),
            ("draid:0d", 1, 5, "per group 0 is too high"),
            ("draid:1d:101s", 1, 200, "invalid number of dRAID spares 101"),
            ("draid:99999999999999999999d", 1, 5, "invalid dRAID syntax"),
        ] {
            assert!(shape(word, parity, children).unwrap_err().contains(words), "{word}");
        }
        assert!(is_spare("draid2-0-1") && is_spare("draid1-12-0"));
        assert!(!is_spare("draid2-0") && !is_spare("draid4-0-0") && !is_spare("draid2:4d-0") && !is_spare("disk"));
    }
}
