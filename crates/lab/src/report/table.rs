//! Workloads on several targets, as tables for a terminal: each with all of its figures, and all of them in one.
//!
//! The first target is the one that the others are compared with, and a factor above 1 always means that the first
//! does better, also where less is better. A winner is called only outside of the noise ([`crate::statistics`]).

use std::fmt::Write;

use super::words::{COSTS, aligned, figure, median_cost, spread_words};
use crate::record::{Record, advantage};
use crate::statistics::{self, Verdict};
use crate::workload::Better;
use crate::workload::rounds::{Column, Outcome, Sample, Setting};

fn ratio_words(first: &Sample, other: &Sample) -> String {
    match advantage(first, other) {
        (None, _) => "-".to_owned(),
        (Some(ratio), Verdict::Unknown) => format!("{}x", figure(Some(ratio.value))),
        (Some(ratio), verdict) => {
            let draw = if verdict == Verdict::Draw { " draw" } else { "" };
            format!("{}x ({}-{}){draw}", figure(Some(ratio.value)), figure(Some(ratio.low)), figure(Some(ratio.high)))
        }
    }
}

/// Without the interval: a summary has many columns.
fn short_ratio_words(first: &Sample, other: &Sample) -> String {
    match advantage(first, other) {
        (None, _) => "-".to_owned(),
        (Some(ratio), Verdict::Draw) => format!("{}x draw", figure(Some(ratio.value))),
        (Some(ratio), _) => format!("{}x", figure(Some(ratio.value))),
    }
}

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

fn header(outcome: &Outcome) -> Vec<String> {
    let mut words = vec![String::new()];
    words.extend(outcome.columns.iter().map(|column| column.target.clone()));
    words.extend(outcome.columns.iter().skip(1).map(|column| format!("/{}", column.target)));
    let systems = systems(outcome);
    if !systems.is_empty() {
        words.push("|".to_owned());
        words.extend(systems.iter().map(|system| (*system).to_owned()));
    }
    words
}

fn line(outcome: &Outcome, sample: &Sample) -> Vec<String> {
    let mut words = vec![format!("{}, {}", sample.name, sample.unit)];
    words.extend(outcome.columns.iter().map(|column| cell(column.sample(&sample.name))));
    let first = outcome.columns.first().and_then(|column| column.sample(&sample.name));
    words.extend(outcome.columns.iter().skip(1).map(|column| match (first, column.sample(&sample.name)) {
        (Some(first), Some(other)) => ratio_words(first, other),
        _ => "-".to_owned(),
    }));
    let systems = systems(outcome);
    if !systems.is_empty() {
        words.push("|".to_owned());
        let value =
            |system| outcome.published.iter().find(|published| published.figure == sample.name && published.system == system);
        words.extend(systems.into_iter().map(|system| figure(value(system).map(|published| published.value))));
    }
    words
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

/// Everything that was measured, for a terminal.
pub fn table(outcome: &Outcome) -> String {
    let mut text = format!("{}: {}\n", outcome.workload, outcome.about);
    let parameters: Vec<String> = outcome.parameters.iter().map(parameter).collect();
    let _ = writeln!(text, "{}; seed {}", parameters.join(", "), outcome.plan.seed);
    if outcome.plan.scale > 1 {
        let _ = writeln!(text, "scaled down: 1/{} of the published size", outcome.plan.scale);
    }
    let mut rows = vec![header(outcome)];
    rows.extend(outcome.figures().into_iter().map(|sample| line(outcome, sample)));
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
    text.push_str(&verdicts(outcome));
    text
}

/// Who is ahead in the figure that decides.
fn verdicts(outcome: &Outcome) -> String {
    let mut text = String::new();
    let Some((name, first)) = outcome.columns.first().and_then(|column| Some((&column.target, column.samples.first()?))) else {
        return text;
    };
    for column in outcome.columns.iter().skip(1) {
        let Some(other) = column.sample(&first.name) else { continue };
        let (ratio, verdict) = advantage(first, other);
        let factor = figure(Some(ratio.map_or(f64::INFINITY, |ratio| ratio.value.max(1.0 / ratio.value))));
        let _ = match verdict {
            Verdict::Above => writeln!(text, "{name} is ahead of {}, {factor}x.", column.target),
            Verdict::Below => writeln!(text, "{} is ahead of {name}, {factor}x.", column.target),
            Verdict::Draw => writeln!(text, "{name} against {}: a draw.", column.target),
            Verdict::Unknown => {
                writeln!(text, "{name} against {}: no verdict from fewer than {} rounds.", column.target, statistics::FEWEST)
            }
        };
    }
    text
}

/// The best of the columns in a figure, and by how much it is ahead of the next; nobody if that is within the noise.
#[derive(Debug, Clone, PartialEq)]
pub enum Winner {
    /// Its target, and the factor.
    Clear(String, f64),
    Draw,
    /// Fewer than two have the figure.
    Unknown,
    /// Rounds.
    TooFew,
}

/// Who does best in the figure called `name`.
pub fn winner(outcome: &Outcome, name: &str) -> Winner {
    let samples = outcome.columns.iter().filter_map(|column| Some((column, column.sample(name)?)));
    let mut ranked: Vec<(&Column, &Sample)> = samples.filter(|(_, sample)| !sample.values.is_empty()).collect();
    ranked.sort_by(|(_, one), (_, other)| {
        let (one_median, other_median) = (one.median().unwrap_or(f64::NAN), other.median().unwrap_or(f64::NAN));
        match one.better {
            Better::Higher => other_median.total_cmp(&one_median),
            Better::Lower => one_median.total_cmp(&other_median),
        }
    });
    let [(best, first), (_, second), ..] = ranked.as_slice() else { return Winner::Unknown };
    match advantage(first, second) {
        (ratio, Verdict::Above) => Winner::Clear(best.target.clone(), ratio.map_or(f64::INFINITY, |ratio| ratio.value)),
        (_, Verdict::Draw | Verdict::Below) => Winner::Draw,
        (_, Verdict::Unknown) => Winner::TooFew,
    }
}

/// The same in words.
pub(super) fn winner_words(outcome: &Outcome, name: &str) -> String {
    match winner(outcome, name) {
        Winner::Clear(target, factor) => format!("{target} {}x", figure(Some(factor))),
        Winner::Draw => "draw".to_owned(),
        Winner::Unknown => "-".to_owned(),
        Winner::TooFew => "too few rounds".to_owned(),
    }
}

fn summary_header(record: &Record, systems: &[&str]) -> Vec<String> {
    let mut words = vec![String::new()];
    words.extend(record.systems.iter().map(|system| system.name.clone()));
    words.extend(record.systems.iter().skip(1).map(|system| format!("/{}", system.name)));
    words.push("winner".to_owned());
    if !systems.is_empty() {
        words.push("|".to_owned());
        words.extend(systems.iter().map(|system| (*system).to_owned()));
    }
    words
}

fn summary_line(record: &Record, outcome: &Outcome, systems: &[&str]) -> Option<Vec<String>> {
    let Sample { name, unit, .. } = outcome.deciding()?;
    let sample = |system: &str| outcome.sample(system, name);
    let mut words = vec![match outcome.workload.starts_with("unit") {
        true => format!("{} {}, {unit}", outcome.workload, outcome.about),
        false => format!("{}: {name}, {unit}", outcome.workload),
    }];
    words.extend(record.systems.iter().map(|system| cell(sample(&system.name))));
    let first = record.systems.first().and_then(|system| sample(&system.name));
    words.extend(record.systems.iter().skip(1).map(|system| match (first, sample(&system.name)) {
        (Some(first), Some(other)) => short_ratio_words(first, other),
        _ => "-".to_owned(),
    }));
    words.push(winner_words(outcome, name));
    if !systems.is_empty() {
        words.push("|".to_owned());
        let value =
            |system: &str| outcome.published.iter().find(|published| published.figure == *name && published.system == system);
        words.extend(systems.iter().map(|system| figure(value(system).map(|published| published.value))));
    }
    Some(words)
}

/// Each workload in a line, by the figure that decides.
pub fn summary(record: &Record) -> String {
    let mut published: Vec<&str> = Vec::new();
    for outcome in record.workloads.iter().filter(|outcome| outcome.workload.starts_with("unit")) {
        published.extend(systems(outcome).into_iter().filter(|system| !published.contains(system)).collect::<Vec<_>>());
    }
    let mut rows = vec![summary_header(record, &published)];
    rows.extend(record.workloads.iter().filter_map(|outcome| summary_line(record, outcome, &published)));
    let mut text = aligned(&rows);
    for outcome in &record.workloads {
        for column in &outcome.columns {
            for remark in column.remarks.iter().chain(&column.failure) {
                let _ = writeln!(text, "{} on {}: {remark}", outcome.workload, column.target);
            }
        }
    }
    text
}

/// How often the first target is ahead of each of the others.
pub fn score(record: &Record) -> String {
    let mut text = String::new();
    let Some(first) = record.systems.first() else { return text };
    for other in record.systems.iter().skip(1) {
        let verdicts: Vec<Verdict> =
            record.workloads.iter().filter_map(|outcome| verdict(outcome, &first.name, &other.name)).collect();
        let count = |wanted: Verdict| verdicts.iter().filter(|verdict| **verdict == wanted).count();
        let (ahead, behind, draws, unknown) =
            (count(Verdict::Above), count(Verdict::Below), count(Verdict::Draw), count(Verdict::Unknown));
        let _ = write!(text, "{} against {}: ahead in {ahead}, behind in {behind}, draw in {draws}", first.name, other.name);
        let _ = match unknown {
            0 => writeln!(text, "."),
            unknown => writeln!(text, "; no verdict from fewer than {} rounds in {unknown}.", statistics::FEWEST),
        };
    }
    text
}

/// What the figure that decides says of the two.
fn verdict(outcome: &Outcome, first: &str, other: &str) -> Option<Verdict> {
    let name = &outcome.deciding()?.name;
    Some(advantage(outcome.sample(first, name)?, outcome.sample(other, name)?).1)
}

/// What the columns mean.
pub fn legend(record: &Record) -> String {
    let Some(first) = record.systems.first() else { return String::new() };
    let mut text = format!(
        "Medians of up to {} rounds, taken in turns, and half the spread between the extremes. MB are of 2^20 bytes.
",
        record.plan.rounds
    );
    if record.plan.scale > 1 {
        let _ = writeln!(text, "Scaled down: 1/{} of the published sizes.", record.plan.scale);
    }
    if record.systems.len() > 1 {
        let _ = writeln!(
            text,
            "/NAME: how much better {} does than NAME; below 1x it does worse. draw: inside the noise.",
            first.name
        );
    }
    if record.workloads.iter().any(|outcome| outcome.workload.starts_with("unit") && !outcome.published.is_empty()) {
        text.push_str(
            "Right of the bar: what was published, on machines of that time; compare ratios, not figures.
",
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cost::Cost;
    use crate::record::System;
    use crate::workload::Better;
    use crate::workload::rounds::{Plan, Published};

    fn column(target: &str, rate: [f64; 3], seconds: [f64; 3]) -> Column {
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
                },
                Sample { name: "total".into(), unit: "s".into(), better: Better::Lower, values: seconds.to_vec(), point: None },
            ],
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
            plan: Plan { rounds: 3, seed: 42, scale: 4, ..Plan::default() },
            columns: vec![
                column("tarn", [400.0, 400.0, 440.0], [2.0, 2.0, 2.0]),
                column("ext4", [200.0, 200.0, 200.0], [4.0, 4.0, 4.0]),
                Column { failure: Some("no space".into()), target: "xfs".into(), ..Column::default() },
            ],
        }
    }

    fn squeeze(text: &str) -> String {
        text.split_whitespace().collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn a_table_for_people() {
        let expected = "\
postmark: many files
files 10; seed 42
scaled down: 1/4 of the published size
                                         tarn      ext4  xfs              /ext4  /xfs  |   UFS
transactions, /s                     400.0 ±5%   200.0 ±0%    -  2.00x (2.00-2.20)     -  |     -
";
        let text = table(&outcome());
        assert!(squeeze(&text).starts_with(&squeeze(expected)), "{text}");
        assert!(squeeze(&text).contains("total, s 2.00 ±0% 4.00 ±0% - 2.00x (2.00-2.00) - | 3450"), "{text}");
        assert!(squeeze(&text).contains("processor, whole machine, s 1.50 1.50 -"), "{text}");
        assert!(text.ends_with("xfs failed: no space\ntarn is ahead of ext4, 2.00x.\n"), "{text}");
    }

    #[test]
    fn a_line_for_each_workload() {
        let mut record = Record::begin(outcome().plan);
        let system = |name: &str| System { name: name.into(), description: String::new(), facts: Vec::new() };
        record.systems = ["tarn", "ext4", "xfs"].map(system).to_vec();
        record.workloads = vec![outcome()];
        let text = summary(&record);
        assert!(squeeze(&text).contains("postmark: transactions, /s 400.0 ±5% 200.0 ±0% - 2.00x - tarn 2.00x"), "{text}");
        assert!(text.ends_with("postmark on xfs: no space\n"), "{text}");
        assert_eq!(score(&record).lines().next(), Some("tarn against ext4: ahead in 1, behind in 0, draw in 0."));
    }

    #[test]
    fn the_winner_is_the_best_and_only_if_it_is_clear() {
        let mut outcome = outcome();
        assert_eq!(winner(&outcome, "total"), Winner::Clear("tarn".into(), 2.0));
        outcome.columns[2] = column("xfs", [401.0, 400.0, 402.0], [1.0, 1.0, 1.0]);
        assert_eq!(winner(&outcome, "transactions"), Winner::Draw);
        assert_eq!(winner(&outcome, "total"), Winner::Clear("xfs".into(), 2.0));
        outcome.columns.truncate(1);
        assert_eq!(winner(&outcome, "total"), Winner::Unknown);
    }
}
