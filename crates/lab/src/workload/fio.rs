//! What the real fio says of its operations, in its JSON.

use anyhow::{Context, Result};
use serde_json::Value;

use super::Figure;
use super::latency::PERCENTILES;

/// Its report; warnings come before the object.
pub(super) fn report(text: &str) -> Result<Value> {
    let json = text.find('{').map_or(text, |start| &text[start..]);
    serde_json::from_str(json).context("fio's report is no JSON")
}

/// The percentiles of one direction, called `of`; fio times every operation itself. Older versions have microseconds, newer ones nanoseconds.
pub(super) fn percentiles(report: &Value, direction: &str, of: &str) -> Result<Vec<Figure>> {
    let part = &report["jobs"][0][direction];
    let (times, divisor) = if part["clat_ns"].is_object() { (&part["clat_ns"], 1000.0) } else { (&part["clat"], 1.0) };
    let one = |(name, percent): &(&'static str, f64)| {
        let value = if *percent == 100.0 { &times["max"] } else { &times["percentile"][format!("{percent:.6}")] };
        let value = value.as_f64().with_context(|| format!("fio's report has no {name} of {direction}"))?;
        Ok(Figure::percentile(of, name, value / divisor))
    };
    PERCENTILES.iter().map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_ages_of_fio() {
        let parts = |unit: &str| {
            let times = r#"{"max": 9000, "percentile": {"50.000000": 81, "99.000000": 2000, "99.900000": 3000}}"#;
            report(&format!(r#"a warning {{"jobs":[{{"write":{{"{unit}":{times}}}}}]}}"#)).unwrap()
        };
        let values = |report: &Value| {
            percentiles(report, "write", "a write").unwrap().iter().map(|figure| figure.value).collect::<Vec<f64>>()
        };
        assert_eq!(values(&parts("clat_ns")), [0.081, 2.0, 3.0, 9.0]);
        assert_eq!(values(&parts("clat")), [81.0, 2000.0, 3000.0, 9000.0]);
        assert!(percentiles(&parts("clat"), "read", "a read").is_err() && report("nonsense").is_err());
    }
}
