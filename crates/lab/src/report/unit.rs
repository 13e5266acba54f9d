//! The fourteen unit tests side by side: a table for people, JSON for programs.
//!
//! The first target is the one that the others are compared with: a ratio above 1 means that it is faster.

use std::fmt::Write;

use serde_json::{Value, json};

use super::words::{aligned, figure};
use crate::workload::unit::{Results, Row, Series};

/// Differences below this factor are noise on most machines.
const NOISE: f64 = 1.25;

fn factor(above: Option<f64>, below: Option<f64>) -> Option<f64> {
    Some(above? / below.filter(|below| *below > 0.0)?)
}

fn ratio(above: Option<f64>, below: Option<f64>) -> String {
    factor(above, below).map_or_else(|| "-".to_owned(), |factor| format!("{}x", figure(Some(factor))))
}

/// The median, with a mark for what to think of it.
fn cell(series: &Series) -> String {
    if series.failure.is_some() {
        return "failed".to_owned();
    }
    let noisy = series.maximum() > series.minimum().map(|minimum| 2.0 * minimum);
    let mark = match (series.cut_short(), noisy) {
        (true, _) => '*',
        (_, true) => '~',
        _ => ' ',
    };
    format!("{}{mark}", figure(series.median()))
}

fn header(results: &Results) -> Vec<String> {
    let names: Vec<&str> = results.columns.iter().map(|column| column.name.as_str()).collect();
    let mut words = vec!["MB/s".to_owned()];
    words.extend(names.iter().map(|name| format!("{name} ")));
    words.extend(names.iter().skip(1).map(|name| format!("/{name}")));
    words.extend(["|", "ZFS", "UFS", "ZFS/UFS"].map(str::to_owned));
    words
}

fn line(row: &Row) -> Vec<String> {
    let mut words = vec![format!("{:2} {}", row.test.id, row.test.name)];
    words.extend(row.series.iter().map(cell));
    let first = row.series.first().and_then(Series::median);
    words.extend(row.series.iter().skip(1).map(|other| ratio(first, other.median())));
    let published = row.test.published;
    words.extend(["|".to_owned(), figure(published.zfs), figure(published.ufs), ratio(published.zfs, published.ufs)]);
    words
}

/// The table alone.
pub fn table(results: &Results) -> String {
    let mut rows = vec![header(results)];
    rows.extend(results.rows.iter().map(line));
    aligned(&rows)
}

/// How often the first target is ahead of each of the others.
pub fn verdicts(results: &Results) -> String {
    let mut text = String::new();
    let Some(first) = results.columns.first() else { return text };
    for (index, other) in results.columns.iter().enumerate().skip(1) {
        let factors = results.rows.iter().map(|row| factor(row.series[0].median(), row.series[index].median()));
        let factors: Vec<f64> = factors.flatten().collect();
        let ahead = factors.iter().filter(|factor| **factor >= NOISE).count();
        let behind = factors.iter().filter(|factor| **factor <= 1.0 / NOISE).count();
        let level = factors.len() - ahead - behind;
        let _ = writeln!(text, "{} against {}: ahead in {ahead}, behind in {behind}, level (within 25 %) in {level}.", first.name, other.name);
    }
    text
}

/// What the marks and columns mean, and what failed.
pub fn legend(results: &Results) -> String {
    let mut text = format!(
        "MB of 2^20 bytes per second, median of up to {} turns; {}.\nWhat is written does not compress.\n",
        results.settings.repetitions,
        results.settings.sizes()
    );
    if results.columns.len() > 1 {
        let _ = writeln!(text, "/NAME: {} against NAME; above 1x, {0} is faster.", results.columns[0].name);
    }
    text.push_str("Right of the bar: what ZFS and UFS were published with, on a machine of their time; compare ratios, not MB/s.\n");
    let series = || results.rows.iter().flat_map(|row| row.series.iter());
    if series().any(|series| cell(series).ends_with('~')) {
        text.push_str("~ the turns differ by more than a factor of 2.\n");
    }
    if series().any(|series| cell(series).ends_with('*')) {
        let _ = writeln!(text, "* cut short after {} s; the figure is for the bytes moved until then.", results.settings.time_limit.as_secs());
    }
    for row in &results.rows {
        for (column, series) in results.columns.iter().zip(&row.series) {
            if let Some(failure) = &series.failure {
                let _ = writeln!(text, "test {} on {} failed: {failure}", row.test.id, column.name);
            }
        }
    }
    text
}

/// The targets, each in a line.
pub fn targets(results: &Results) -> String {
    let mut text = String::new();
    for column in &results.columns {
        let _ = writeln!(text, "{}: {}", column.name, column.description);
    }
    text
}

fn series_json(results: &Results, row: &Row) -> Value {
    let mut all = serde_json::Map::new();
    for (column, series) in results.columns.iter().zip(&row.series) {
        let turns = series.measurements.iter().map(|measurement| {
            json!({
                "bytes": measurement.bytes,
                "seconds": measurement.seconds,
                "mb_per_second": measurement.throughput(),
                "complete": measurement.complete,
            })
        });
        let value = json!({
            "median_mb_per_second": series.median(),
            "minimum_mb_per_second": series.minimum(),
            "maximum_mb_per_second": series.maximum(),
            "turns": turns.collect::<Vec<_>>(),
            "failure": series.failure,
        });
        all.insert(column.name.clone(), value);
    }
    Value::Object(all)
}

/// Everything, each turn included.
pub fn to_json(results: &Results) -> Value {
    let rows = results.rows.iter().map(|row| {
        json!({
            "id": row.test.id,
            "name": row.test.name,
            "file_bytes": row.file_bytes,
            "published": { "zfs": row.test.published.zfs, "ufs": row.test.published.ufs },
            "targets": series_json(results, row),
        })
    });
    let targets = results.columns.iter().map(|column| json!({ "name": column.name, "description": column.description }));
    json!({
        "workload": "unit",
        "unit": "MB/s, MB = 2^20 bytes",
        "machine": crate::system::describe(),
        "sizes": results.settings.sizes(),
        "divisor": results.settings.divisor,
        "seed": results.settings.seed,
        "targets": targets.collect::<Vec<_>>(),
        "tests": rows.collect::<Vec<_>>(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::unit::{Column, Measurement, Settings, TESTS};

    fn results() -> Results {
        let series = |seconds: &[f64]| {
            let measure = |seconds: &f64| Measurement { id: 4, bytes: 1 << 30, seconds: *seconds, complete: true };
            Series { measurements: seconds.iter().map(measure).collect(), failure: None }
        };
        let broken = Series { failure: Some("no space".into()), ..Series::default() };
        let column = |name: &str| Column { name: name.into(), description: format!("{name} on a disk") };
        Results {
            columns: vec![column("tarn"), column("ext4")],
            rows: vec![
                Row { test: &TESTS[3], file_bytes: 1 << 30, series: vec![series(&[0.5, 2.0]), series(&[1.0])] },
                Row { test: &TESTS[4], file_bytes: 1 << 30, series: vec![broken, series(&[1.0])] },
            ],
            settings: Settings { half_of_memory_bytes: 1 << 30, ..Settings::full() },
        }
    }

    #[test]
    fn a_table_for_people() {
        let expected = "\
MB/s                    tarn    ext4   /ext4  |     ZFS     UFS  ZFS/UFS
 4 read 32K, cached    1280~   1024        1.25x  |   674.8   612.9    1.10x
 5 read 32K, uncached  failed  1024            -  |       -       -        -
";
        let squeeze = |text: &str| text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect::<Vec<_>>();
        assert_eq!(squeeze(&table(&results())), squeeze(expected));
        let text = table(&results());
        let bars: Vec<_> = text.lines().map(|line| line.find('|')).collect();
        assert!(bars.iter().all(|bar| bar.is_some() && *bar == bars[0]), "{text}");
        assert_eq!(verdicts(&results()), "tarn against ext4: ahead in 1, behind in 0, level (within 25 %) in 0.\n");
        assert!(legend(&results()).contains("test 5 on tarn failed: no space\n"));
    }

    #[test]
    fn json_for_programs() {
        let json = to_json(&results());
        assert_eq!(json["tests"][0]["targets"]["tarn"]["median_mb_per_second"], 1280.0);
        assert_eq!(json["tests"][1]["targets"]["tarn"]["failure"], "no space");
        assert_eq!(json["tests"][0]["published"]["ufs"], 612.93);
    }
}
