//! Did batching the log's blocks gain what it was published to gain? The sync-sweep of two builds against the published table.
//!
//! # Theory
//!
//! Figures of other machines cannot be compared, but factors can: with so many threads on so many disks the later build was so
//! many times as fast as the earlier one. Two targets of one run stand for the two builds.

use std::fmt::Write;

use anyhow::{Context, Result, ensure};

use super::words::{aligned, figure};
use crate::record::Record;
use crate::workload::rounds::Outcome;
use crate::workload::sync_sweep;

/// A factor may be off by this part of the published one.
const TOLERANCE: f64 = 0.25;
/// Numbers of threads that are judged: one thread has nothing to batch with, and above these the published disks were at their end.
const JUDGED: std::ops::RangeInclusive<u64> = 2..=256;

/// Both tables in one, and which cells are off.
#[derive(Debug)]
pub struct Shape {
    pub text: String,
    pub off: Vec<String>,
}

/// Operations a second of a target with so many threads.
fn rate(outcome: &Outcome, target: &str, threads: u64) -> Option<f64> {
    outcome.sample(target, &sync_sweep::label(threads))?.median()
}

/// The target of that name on so many disks: `tarn:4`, or `tarn` if it has one.
fn named(outcome: &Outcome, name: &str, disks: usize) -> Option<String> {
    let full = format!("{name}:{disks}");
    let name = if disks == 1 && outcome.column(&full).is_none() { name.to_owned() } else { full };
    outcome.column(&name).map(|_| name)
}

/// Compares; `before` and `after` are names of targets, without the number of their disks.
pub fn of(record: &Record, before: &str, after: &str) -> Result<Shape> {
    let outcome = record.workload("sync-sweep").context("the results have no sync-sweep")?;
    let mut rows =
        vec![["disks", "threads", "published", "", "factor", "measured", "", "factor", "off by"].map(str::to_owned).to_vec()];
    let mut off = Vec::new();
    for disks in sync_sweep::DISKS {
        let (Some(before), Some(after)) = (named(outcome, before, disks), named(outcome, after, disks)) else { continue };
        for threads in (0..=10).map(|power| 1 << power) {
            let published = sync_sweep::published_rates(threads, disks);
            let measured = rate(outcome, &before, threads).zip(rate(outcome, &after, threads));
            let (Some((old, new)), Some((slow, fast))) = (published, measured) else { continue };
            let (wanted, got) = (new / old, fast / slow);
            let error = got / wanted - 1.0;
            let is_off = JUDGED.contains(&threads) && error.abs() > TOLERANCE;
            if is_off {
                off.push(format!("{disks} disks, {threads} threads"));
            }
            let number = |value: f64| figure(Some(value));
            rows.push(vec![
                disks.to_string(),
                threads.to_string(),
                number(old),
                number(new),
                number(wanted),
                number(slow),
                number(fast),
                number(got),
                format!("{:+.0} %{}", error * 100.0, if is_off { " OFF" } else { "" }),
            ]);
        }
    }
    ensure!(
        rows.len() > 1,
        "the sync-sweep has no figures of {before} and {after} (fsperf run sync-sweep --on {after} --variant {before}=...)"
    );
    let mut text = format!("sync-sweep: {before} and {after} against the published figures before and after (operations/s)\n");
    text.push_str(&aligned(&rows));
    let judged = rows.iter().skip(1).filter(|row| row[1].parse().is_ok_and(|threads: u64| JUDGED.contains(&threads))).count();
    let _ = writeln!(text, "{} of {judged} factors within {:.0} % of the published ones.", judged - off.len(), TOLERANCE * 100.0);
    Ok(Shape { text, off })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::changes::tests::record;
    use crate::workload::rounds::Column;

    /// The published rates of one disk at half their speed: the same shape. `spoil` multiplies the last one.
    fn sweep(spoil: f64) -> Record {
        let rates = |after: bool| {
            [1, 2, 64].map(|threads| {
                let (old, new) = sync_sweep::published_rates(threads, 1).unwrap();
                let name = ["1 thread", "2 threads", "64 threads"][usize::from(threads > 1) + usize::from(threads > 2)];
                let spoiled = if after && threads == 64 { spoil } else { 1.0 };
                (name, "/s", [if after { new } else { old } * 0.5 * spoiled; 3])
            })
        };
        let mut whole = record(&rates(true));
        whole.workloads[0].workload = "sync-sweep".into();
        let before = record(&rates(false)).workloads.remove(0).columns.remove(0);
        whole.workloads[0].columns.push(Column { target: "before".into(), ..before });
        whole
    }

    #[test]
    fn the_same_factors_are_the_same_shape() {
        let shape = of(&sweep(1.0), "before", "tarn").unwrap();
        assert_eq!(shape.off, Vec::<String>::new());
        assert!(shape.text.ends_with("2 of 2 factors within 25 % of the published ones.\n"), "{}", shape.text);
    }

    #[test]
    fn another_shape_is_told() {
        assert_eq!(of(&sweep(1.24), "before", "tarn").unwrap().off, Vec::<String>::new());
        for spoil in [1.3, 0.7] {
            let shape = of(&sweep(spoil), "before", "tarn").unwrap();
            assert_eq!(shape.off, ["1 disks, 64 threads"]);
            assert!(shape.text.contains(" OFF\n") && shape.text.contains("1 of 2 factors"), "{}", shape.text);
        }
        assert!(of(&sweep(1.0), "old", "tarn").unwrap_err().to_string().contains("no figures of old and tarn"));
    }
}
