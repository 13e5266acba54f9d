//! Figures as words, and words in columns.

use std::fmt::Write;

use crate::cost::Cost;
use crate::statistics;
use crate::workload::rounds::{Column, Sample};

/// What a row of the costs takes from one round.
type CostOf = fn(&Cost) -> Option<f64>;

const MEGABYTE: f64 = 1_048_576.0;

/// The rows of the costs.
pub(super) const COSTS: [(&str, CostOf); 4] = [
    ("processor, whole machine, s", |cost| Some(cost.machine_seconds)),
    ("processor, its own process, s", |cost| cost.process_seconds),
    ("peak memory of that process in the round, MB", |cost| cost.process_peak_bytes.map(|bytes| bytes as f64 / MEGABYTE)),
    ("written to its device or file, MB", |cost| cost.written_bytes.map(|bytes| bytes as f64 / MEGABYTE)),
];

/// One of them, over all rounds.
pub(super) fn median_cost(column: &Column, of: CostOf) -> Option<f64> {
    statistics::median(&column.costs.iter().filter_map(of).collect::<Vec<f64>>())
}

/// How far the rounds lie apart, to stand behind their median.
pub(super) fn spread_words(sample: Option<&Sample>) -> String {
    sample.and_then(Sample::spread_percent).map_or_else(String::new, |percent| format!(" ±{percent:.0}%"))
}

/// The percentiles of an operation on a target, in the order of [`PERCENTILES`]; `-` for none.
pub(super) fn percentile_words(column: Option<&Column>, of: &str) -> String {
    let all = column.map(|column| column.percentiles(of)).unwrap_or_default();
    if all.is_empty() {
        return figure(None);
    }
    all.iter().map(|(_, sample)| figure(sample.median())).collect::<Vec<_>>().join(" / ")
}

/// What [`percentile_words`] are.
pub(super) const PERCENTILES: &str = "p50 / p99 / p99.9 / max";

/// About three digits; `-` for none. What is very large or very small has its power of ten.
pub(super) fn figure(value: Option<f64>) -> String {
    match value {
        None => "-".to_owned(),
        Some(value) if value.is_infinite() => "∞".to_owned(),
        Some(value) if value.abs() >= 1e8 || value != 0.0 && value.abs() < 1e-4 => format!("{value:.1e}"),
        Some(value) if value.abs() >= 1000.0 => format!("{value:.0}"),
        Some(value) if value.abs() >= 10.0 => format!("{value:.1}"),
        Some(value) if value.abs() >= 0.1 || value == 0.0 => format!("{value:.2}"),
        Some(value) => format!("{value:.4}"),
    }
}

/// Rows of words, each column as wide as its widest word; the first is aligned to the left.
pub(super) fn aligned(rows: &[Vec<String>]) -> String {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| rows.iter().filter_map(|row| row.get(column)).map(|word| word.chars().count()).max();
    let widths: Vec<usize> = (0..columns).map(|column| width(column).unwrap_or(0)).collect();
    let mut text = String::new();
    for row in rows {
        let mut line = String::new();
        for (column, word) in row.iter().enumerate() {
            let _ = match column {
                0 => write!(line, "{word:<0$}", widths[0]),
                _ => write!(line, "  {word:>0$}", widths[column]),
            };
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_short() {
        let all = [0.0, 0.000_01, 0.012_34, 0.5, 1.0, 12.34, 999.96, 1234.5, 12_345_678.0, 1e9, 2.5e15, f64::INFINITY];
        let words = all.map(|value| figure(Some(value)));
        assert_eq!(
            words,
            ["0.00", "1.0e-5", "0.0123", "0.50", "1.00", "12.3", "1000.0", "1234", "12345678", "1.0e9", "2.5e15", "∞"]
        );
        assert_eq!(figure(None), "-");
    }
}
