//! Workloads on several targets, as tables for a terminal: each with all of its figures, and all of them in one.
//!
//! The first target is the one that the others are compared with, and a factor above 1 always means that the first
//! does better, also where less is better. What is called is said by [`Verdicts`], of all workloads together.

use std::fmt::Write;

use super::verdicts::{Verdicts, factor_words, short_words};
use super::words::{COSTS, PERCENTILES, aligned, figure, median_cost, percentile_words, spread_words};
use crate::record::Record;
use crate::statistics::{FEWEST, Verdict};
use crate::workload::rounds::{Outcome, Sample, Setting};

fn cell(sample: Option<&Sample>) -> String {
    format!("{}{}", figure(sample.and_then(Sample::median)), spread_words(sample))
}

/// Whom there are published figures of.
fn systems(outcome: &Outcome) -> Vec<&str> {
    let mut all = Vec::new();
    for published in &outcome.published {
        if !all.contains(&published.system.as_str()) {
            all.push(published.system.as_str());
        }
    }
    all
}

fn header(outcome: &Outcome, compared: bool) -> Vec<String> {
    let mut words = vec![String::new()];
    words.extend(outcome.columns.iter().map(|column| column.target.clone()));
    if compared {
        words.extend(outcome.columns.iter().skip(1).map(|column| format!("/{}", column.target)));
    }
    let systems = systems(outcome);
    if !systems.is_empty() {
        words.push("|".to_owned());
        words.extend(systems.iter().map(|system| (*system).to_owned()));
    }
    words
}

/// The first target beside each of the others.
fn beside_others<'a>(
    outcome: &'a Outcome,
    verdicts: Option<&'a Verdicts<'a>>,
    name: &'a str,
) -> impl Iterator<Item = String> + 'a {
    let first = outcome.columns.first().map_or("", |column| column.target.as_str());
    let others = outcome.columns.iter().skip(1).filter_map(move |column| Some((verdicts?, column)));
    others.map(move |(verdicts, column)| {
        verdicts
            .between(outcome, name, first, &column.target)
            .map_or_else(|| figure(None), |comparison| factor_words(&comparison))
    })
}

fn line(outcome: &Outcome, verdicts: Option<&Verdicts<'_>>, sample: &Sample) -> Vec<String> {
    let mut words = vec![format!("{}, {}", sample.name, sample.unit)];
    words.extend(outcome.columns.iter().map(|column| cell(column.sample(&sample.name))));
    words.extend(beside_others(outcome, verdicts, &sample.name));
    let systems = systems(outcome);
    if !systems.is_empty() {
        words.push("|".to_owned());
        let value =
            |system| outcome.published.iter().find(|published| published.figure == sample.name && published.system == system);
        words.extend(systems.into_iter().map(|system| figure(value(system).map(|published| published.value))));
    }
    words
}

/// Of each operation that was timed, its percentiles; compared by one of them.
fn operation_lines(outcome: &Outcome, verdicts: Option<&Verdicts<'_>>) -> Vec<Vec<String>> {
    let lines = outcome.timed().into_iter().map(|(percentile, sample)| {
        let mut words = vec![format!("{}: {PERCENTILES}, {}", percentile.of, sample.unit)];
        words.extend(outcome.columns.iter().map(|column| percentile_words(Some(column), &percentile.of)));
        words.extend(beside_others(outcome, verdicts, &sample.name));
        words
    });
    lines.collect()
}

fn cost_lines(outcome: &Outcome) -> Vec<Vec<String>> {
    let lines = COSTS.into_iter().map(|(name, of)| {
        let mut words = vec![name.to_owned()];
        words.extend(outcome.columns.iter().map(|column| figure(median_cost(column, of))));
        words
    });
    lines.filter(|words| words.iter().skip(1).any(|word| word != "-")).collect()
}

fn parameter(parameter: &Setting) -> String {
    format!("{} {}", parameter.name, parameter.value)
}

/// Everything that was measured, for a terminal. Without `verdicts` nothing is compared: they are of all workloads together, and
/// those may not have been run yet.
pub fn table(outcome: &Outcome, verdicts: Option<&Verdicts<'_>>) -> String {
    let mut text = format!("{}: {}\n", outcome.workload, outcome.about);
    let parameters: Vec<String> = outcome.parameters.iter().map(parameter).collect();
    let _ = writeln!(text, "{}; seed {}", parameters.join(", "), outcome.plan.seed);
    if outcome.plan.scale > 1 {
        let _ = writeln!(text, "scaled down: 1/{} of the published size", outcome.plan.scale);
    }
    let mut rows = vec![header(outcome, verdicts.is_some())];
    rows.extend(outcome.rates().into_iter().map(|sample| line(outcome, verdicts, sample)));
    rows.extend(operation_lines(outcome, verdicts));
    rows.extend(cost_lines(outcome));
    text.push_str(&aligned(&rows));
    for column in &outcome.columns {
        for remark in &column.remarks {
            let _ = writeln!(text, "{}: {remark}", column.target);
        }
        if let Some(failure) = &column.failure {
            let _ = writeln!(text, "{} failed: {failure}", column.target);
        }
    }
    if let Some(verdicts) = verdicts {
        text.push_str(&verdict_lines(outcome, verdicts));
    }
    text
}

/// The system that is ahead in the deciding figure.
fn verdict_lines(outcome: &Outcome, verdicts: &Verdicts<'_>) -> String {
    let mut text = String::new();
    let Some((name, deciding)) = outcome.columns.first().map(|column| &column.target).zip(outcome.deciding()) else {
        return text;
    };
    for column in outcome.columns.iter().skip(1) {
        let Some(comparison) = verdicts.between(outcome, &deciding.name, name, &column.target) else { continue };
        let factor = comparison.factor.map(|factor| factor.value.max(1.0 / factor.value)).filter(|factor| factor.is_finite());
        let factor = factor.map_or_else(String::new, |factor| format!(", {}x", figure(Some(factor))));
        let _ = match comparison.verdict {
            Verdict::Above => writeln!(text, "{name} is ahead of {}{factor}.", column.target),
            Verdict::Below => writeln!(text, "{} is ahead of {name}{factor}.", column.target),
            Verdict::Draw => writeln!(text, "{name} against {}: a draw.", column.target),
            Verdict::Unknown => {
                writeln!(text, "{name} against {}: too few rounds for a verdict (at least {FEWEST}).", column.target)
            }
        };
    }
    text
}

fn summary_header(record: &Record, systems: &[&str]) -> Vec<String> {
    let mut words = vec![String::new()];
    words.extend(record.systems.iter().map(|system| system.name.clone()));
    words.extend(record.systems.iter().skip(1).map(|system| format!("/{}", system.name)));
    words.push("first".to_owned());
    if !systems.is_empty() {
        words.push("|".to_owned());
        words.extend(systems.iter().map(|system| (*system).to_owned()));
    }
    words
}

fn summary_line(record: &Record, verdicts: &Verdicts<'_>, outcome: &Outcome, systems: &[&str]) -> Option<Vec<String>> {
    let Sample { name, unit, .. } = outcome.deciding()?;
    let sample = |system: &str| outcome.sample(system, name);
    let mut words = vec![match outcome.workload.starts_with("unit") {
        true => format!("{} {}, {unit}", outcome.workload, outcome.about),
        false => format!("{}: {name}, {unit}", outcome.workload),
    }];
    words.extend(record.systems.iter().map(|system| cell(sample(&system.name))));
    let first = record.systems.first().map_or("", |system| system.name.as_str());
    words.extend(record.systems.iter().skip(1).map(|system| {
        verdicts.between(outcome, name, first, &system.name).map_or_else(|| figure(None), |comparison| short_words(&comparison))
    }));
    words.push(verdicts.first_words(outcome, name));
    if !systems.is_empty() {
        words.push("|".to_owned());
        let value =
            |system: &str| outcome.published.iter().find(|published| published.figure == *name && published.system == system);
        words.extend(systems.iter().map(|system| figure(value(system).map(|published| published.value))));
    }
    Some(words)
}

/// Each workload in a line, by the figure that decides; then how long single operations take.
pub fn summary(record: &Record, verdicts: &Verdicts<'_>) -> String {
    let mut published: Vec<&str> = Vec::new();
    for outcome in record.workloads.iter().filter(|outcome| outcome.workload.starts_with("unit")) {
        published.extend(systems(outcome).into_iter().filter(|system| !published.contains(system)).collect::<Vec<_>>());
    }
    let mut rows = vec![summary_header(record, &published)];
    rows.extend(record.workloads.iter().filter_map(|outcome| summary_line(record, verdicts, outcome, &published)));
    let mut text = aligned(&rows);
    let operations = operations(record);
    if !operations.is_empty() {
        let mut rows = vec![vec![format!("an operation takes, us: {PERCENTILES}")]];
        rows[0].extend(record.systems.iter().map(|system| system.name.clone()));
        rows.extend(operations);
        let _ = write!(text, "\n{}", aligned(&rows));
    }
    for outcome in &record.workloads {
        for column in &outcome.columns {
            for remark in column.remarks.iter().chain(&column.failure) {
                let _ = writeln!(text, "{} on {}: {remark}", outcome.workload, column.target);
            }
        }
    }
    text
}

/// Of each workload the operation that it times first, with its percentiles on each system.
pub(super) fn operations(record: &Record) -> Vec<Vec<String>> {
    let lines = record.workloads.iter().filter_map(|outcome| {
        let of = &outcome.timed().first()?.0.of;
        let mut words = vec![format!("{}: {of}", outcome.workload)];
        words.extend(record.systems.iter().map(|system| percentile_words(outcome.column(&system.name), of)));
        Some(words)
    });
    lines.collect()
}

/// How often the first target is ahead of each of the others.
pub fn score(record: &Record, verdicts: &Verdicts<'_>) -> String {
    let mut text = String::new();
    let Some(first) = record.systems.first() else { return text };
    for other in record.systems.iter().skip(1) {
        let verdict =
            |outcome: &Outcome| Some(verdicts.between(outcome, &outcome.deciding()?.name, &first.name, &other.name)?.verdict);
        let all: Vec<Verdict> = record.workloads.iter().filter_map(verdict).collect();
        let count = |wanted: Verdict| all.iter().filter(|verdict| **verdict == wanted).count();
        let (ahead, behind, draws, unknown) =
            (count(Verdict::Above), count(Verdict::Below), count(Verdict::Draw), count(Verdict::Unknown));
        let _ = match (all.len(), unknown) {
            (0, _) => Ok(()),
            (all, unknown) if all == unknown => {
                writeln!(text, "{} against {}: no verdicts: too few rounds (at least {FEWEST} of both).", first.name, other.name)
            }
            (_, unknown) => {
                let few = if unknown > 0 {
                    format!("; too few rounds for a verdict (at least {FEWEST} of both) in {unknown}")
                } else {
                    String::new()
                };
                writeln!(
                    text,
                    "{} against {}: ahead in {ahead}, behind in {behind}, draw in {draws}{few}.",
                    first.name, other.name
                )
            }
        };
    }
    text
}

/// What the columns mean.
pub fn legend(record: &Record, verdicts: &Verdicts<'_>) -> String {
    let Some(first) = record.systems.first() else { return String::new() };
    let mut text = format!(
        "Medians of up to {} rounds, taken in turns, and half the spread between the extremes. MB are of 2^20 bytes.\n",
        record.plan.rounds
    );
    if record.plan.scale > 1 {
        let _ = writeln!(text, "Scaled down: 1/{} of the published sizes.", record.plan.scale);
    }
    if record.systems.len() > 1 {
        let _ = writeln!(
            text,
            "/NAME: how many times better {} does than NAME. first: the best, with those that cannot be told from it.",
            first.name
        );
        let _ = writeln!(text, "{}", verdicts.words());
    }
    if let Some(words) = clock_words(record) {
        let _ = writeln!(text, "{words}");
    }
    if record.workloads.iter().any(|outcome| outcome.workload.starts_with("unit") && !outcome.published.is_empty()) {
        text.push_str("Right of the bar: what was published, on machines of that time; compare ratios, not figures.\n");
    }
    text
}

/// What the percentiles are, and what it cost to take them.
pub(super) fn clock_words(record: &Record) -> Option<String> {
    let timed = record.workloads.iter().any(|outcome| !outcome.timed().is_empty());
    let nanoseconds = record.clock_nanoseconds.filter(|_| timed)?;
    Some(format!(
        "p50, p99, p99.9, max: so many percent of the operations of a round took no longer, and the longest one; medians of the rounds; p99 is compared. \
         The clock is read once or twice for an operation, {nanoseconds:.0} ns each time, on every file system alike."
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cost::Cost;
    use crate::record::System;
    use crate::workload::rounds::{Column, Plan, Published};
    use crate::workload::{Better, Percentile};

    fn operation(microseconds: [f64; 4]) -> impl Iterator<Item = Sample> {
        ["p50", "p99", "p99.9", "max"].into_iter().zip(microseconds).map(|(name, value)| Sample {
            name: format!("a transaction, {name}").into(),
            unit: "us".into(),
            better: Better::Lower,
            values: vec![value; 5],
            point: None,
            percentile: Some(Percentile { of: "a transaction".into(), name: name.into() }),
        })
    }

    fn column(target: &str, rate: [f64; 5], seconds: [f64; 5], p99: f64) -> Column {
        Column {
            target: target.into(),
            description: format!("{target} somewhere"),
            samples: vec![
                Sample {
                    name: "transactions".into(),
                    unit: "/s".into(),
                    better: Better::Higher,
                    values: rate.to_vec(),
                    point: None,
                    percentile: None,
                },
                Sample {
                    name: "total".into(),
                    unit: "s".into(),
                    better: Better::Lower,
                    values: seconds.to_vec(),
                    point: None,
                    percentile: None,
                },
            ]
            .into_iter()
            .chain(operation([10.0, p99, 30.0, p99 * p99 / 10.0]))
            .collect(),
            costs: vec![Cost { machine_seconds: 1.5, written_bytes: Some(3 << 20), ..Cost::default() }],
            ..Column::default()
        }
    }

    fn outcome() -> Outcome {
        Outcome {
            workload: "postmark".into(),
            about: "many files".into(),
            parameters: vec![Setting { name: "files".into(), about: String::new(), value: 10 }],
            published: vec![Published { figure: "total".into(), system: "UFS".into(), value: 3450.0 }],
            plan: Plan { rounds: 5, seed: 42, scale: 4, ..Plan::default() },
            columns: vec![
                column("tarn", [400.0, 400.0, 440.0, 400.0, 400.0], [2.0; 5], 20.0),
                column("ext4", [200.0; 5], [4.0; 5], 30.0),
                Column { failure: Some("no space".into()), target: "xfs".into(), ..Column::default() },
            ],
        }
    }

    fn record() -> Record {
        let mut record = Record::begin(outcome().plan);
        let system = |name: &str| System { name: name.into(), description: String::new(), facts: Vec::new() };
        record.systems = ["tarn", "ext4", "xfs"].map(system).to_vec();
        record.workloads = vec![outcome()];
        record
    }

    fn squeeze(text: &str) -> String {
        text.split_whitespace().collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn a_table_for_people() {
        let record = record();
        let text = table(&record.workloads[0], Some(&Verdicts::of(&record)));
        let head = "postmark: many files files 10; seed 42 scaled down: 1/4 of the published size tarn ext4 xfs /ext4 /xfs | UFS";
        assert!(squeeze(&text).starts_with(head), "{text}");
        assert!(squeeze(&text).contains("transactions, /s 400.0 ±5% 200.0 ±0% - 2.00x (2.00-2.20) ahead - | -"), "{text}");
        assert!(squeeze(&text).contains("total, s 2.00 ±0% 4.00 ±0% - 2.00x (2.00-2.00) ahead - | 3450"), "{text}");
        assert!(squeeze(&text).contains("a transaction: p50 / p99 / p99.9 / max, us 10.0 / 20.0 / 30.0 / 40.0 10.0 / 30.0 / 30.0 / 90.0 - 1.50x (1.50-1.50) ahead"), "{text}");
        assert!(squeeze(&text).contains("processor, whole machine, s 1.50 1.50 -"), "{text}");
        assert!(text.ends_with("xfs failed: no space\ntarn is ahead of ext4, 2.00x.\n"), "{text}");
        // While a run goes on nothing is compared.
        let text = table(&record.workloads[0], None);
        assert!(squeeze(&text).contains("transactions, /s 400.0 ±5% 200.0 ±0% - | -") && !text.contains("ahead"), "{text}");
    }

    #[test]
    fn a_line_for_each_workload() {
        let mut record = record();
        let text = summary(&record, &Verdicts::of(&record));
        assert!(squeeze(&text).contains("postmark: transactions, /s 400.0 ±5% 200.0 ±0% - 2.00x ahead - tarn 2.00x"), "{text}");
        assert!(
            squeeze(&text).contains("postmark: a transaction 10.0 / 20.0 / 30.0 / 40.0 10.0 / 30.0 / 30.0 / 90.0 -"),
            "{text}"
        );
        assert!(text.ends_with("postmark on xfs: no space\n"), "{text}");
        assert_eq!(score(&record, &Verdicts::of(&record)), "tarn against ext4: ahead in 1, behind in 0, draw in 0.\n");
        let legend = legend(&record, &Verdicts::of(&record));
        assert!(
            legend.contains("Of 3 comparisons (each figure, each two file systems) 3 differ") && legend.contains(" ns each time"),
            "{legend}"
        );
        for column in &mut record.workloads[0].columns {
            column.samples.iter_mut().for_each(|sample| sample.values.truncate(3));
        }
        let verdicts = Verdicts::of(&record);
        let text = summary(&record, &verdicts);
        assert!(squeeze(&text).contains("400.0 ±5% 200.0 ±0% - 2.00x - too few rounds"), "{text}");
        assert_eq!(score(&record, &verdicts), "tarn against ext4: no verdicts: too few rounds (at least 5 of both).\n");
    }
}
