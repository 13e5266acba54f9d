//! Sizes as users write them: a number, perhaps with a fraction, and a suffix.

/// Reads `10G`, `1.5k`, `512` or `1GiB`. The error is the phrase that OpenZFS uses.
pub fn parse_size(text: &str) -> Result<u64, String> {
    if !text.starts_with(|c: char| c.is_ascii_digit() || c == '.') {
        return Err(format!("bad numeric value '{text}'"));
    }
    let digits = text.len() - text.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    let too_large = || "numeric value is too large".to_owned();
    if !text[digits..].starts_with('.') {
        let number: u64 = if digits == 0 { 0 } else { text[..digits].parse().map_err(|_| too_large())? };
        let unit = suffix_unit(&text[digits..])?;
        return unit.and_then(|unit| number.checked_mul(unit)).ok_or_else(too_large);
    }
    let fraction = text[digits + 1..].len() - text[digits + 1..].trim_start_matches(|c: char| c.is_ascii_digit()).len();
    let end = digits + 1 + fraction;
    let value: f64 = if end == 1 { 0.0 } else { format!("0{}0", &text[..end]).parse().map_err(|_| too_large())? };
    let unit = suffix_unit(&text[end..])?.ok_or_else(too_large)?;
    let value = value * unit as f64;
    if value >= u64::MAX as f64 {
        return Err(too_large());
    }
    Ok(value as u64)
}

/// The number of bytes a suffix stands for; `None` if 64 bits cannot hold it.
fn suffix_unit(suffix: &str) -> Result<Option<u64>, String> {
    let upper = suffix.to_ascii_uppercase();
    let Some(first) = upper.chars().next() else { return Ok(Some(1)) };
    let invalid = || format!("invalid numeric suffix '{suffix}'");
    let power = "BKMGTPEZ".find(first).ok_or_else(invalid)?;
    match &upper[first.len_utf8()..] {
        "" => {}
        "B" | "IB" if power > 0 => {}
        _ => return Err(invalid()),
    }
    Ok(1u64.checked_shl(10 * power as u32))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_as_they_are_written() {
        for (text, number) in [
            ("0", 0), ("1k", 1024), ("1.5K", 1536), ("10g", 10 << 30), ("1GiB", 1 << 30), ("1gb", 1 << 30), ("512B", 512), ("16E", 0),
            (".5k", 512), ("1.", 1), ("15e", 15 << 60),
        ] {
            if text == "16E" {
                assert_eq!(parse_size(text), Err("numeric value is too large".into()));
            } else {
                assert_eq!(parse_size(text), Ok(number), "{text}");
            }
        }
        assert_eq!(parse_size("x"), Err("bad numeric value 'x'".into()));
        assert_eq!(parse_size(""), Err("bad numeric value ''".into()));
        assert_eq!(parse_size("-1"), Err("bad numeric value '-1'".into()));
        assert_eq!(parse_size("1Q"), Err("invalid numeric suffix 'Q'".into()));
        assert_eq!(parse_size("1BB"), Err("invalid numeric suffix 'BB'".into()));
        assert_eq!(parse_size("99999999999999999999"), Err("numeric value is too large".into()));
    }
}
