//! A workload on several targets: a table for people, JSON for programs.
//!
//! The first target is the one that the others are compared with, and a factor above 1 always means that the first
//! does better, also where less is better. A winner is called only outside of the noise ([`crate::statistics`]).

use std::fmt::Write;

use serde_json::{Value, json};

use super::words::{aligned, figure};
use crate::cost::Cost;
use crate::statistics::{self, Ratio, Verdict};
use crate::workload::rounds::{Column, Outcome, Sample};
use crate::workload::{Better, Parameter};

fn better(sample: &Sample) -> &'static str {
    match sample.better {
        Better::Higher => "more is better",
        Better::Lower => "less is better",
    }
}

/// How much better `first` is than `other`.
fn advantage(first: &Sample, other: &Sample) -> (Option<Ratio>, Verdict) {
    let (above, below) = match first.better {
        Better::Higher => (&first.values, &other.values),
        Better::Lower => (&other.values, &first.values),
    };
    (statistics::ratio(above, below), statistics::verdict(above, below))
}

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

fn cell(sample: Option<&Sample>) -> String {
    let Some(sample) = sample else { return "-".to_owned() };
    let median = figure(statistics::median(&sample.values));
    match statistics::spread(&sample.values) {
        Some(spread) if sample.values.len() > 1 => format!("{median} ±{:.0}%", spread * 50.0),
        _ => median,
    }
}

/// The names of the figures, in the order in which the first target that has them measured them.
fn figures(outcome: &Outcome) -> Vec<&Sample> {
    let mut all: Vec<&Sample> = Vec::new();
    for sample in outcome.columns.iter().flat_map(|column| &column.samples) {
        if !all.iter().any(|seen| seen.name == sample.name) {
            all.push(sample);
        }
    }
    all
}

fn systems(outcome: &Outcome) -> Vec<&'static str> {
    let mut all = Vec::new();
    for published in outcome.published {
        if !all.contains(&published.system) {
            all.push(published.system);
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
        let value = |system| outcome.published.iter().find(|published| published.figure == sample.name && published.system == system);
        words.extend(systems.into_iter().map(|system| figure(value(system).map(|published| published.value))));
    }
    words
}

fn median_cost(column: &Column, of: impl Fn(&Cost) -> Option<f64>) -> Option<f64> {
    statistics::median(&column.costs.iter().filter_map(of).collect::<Vec<f64>>())
}

fn megabytes(bytes: Option<u64>) -> Option<f64> {
    bytes.map(|bytes| bytes as f64 / f64::from(1 << 20))
}

/// What a row of the costs takes from one round.
type CostOf = fn(&Cost) -> Option<f64>;

const COSTS: [(&str, CostOf); 4] = [
    ("processor, whole machine, s", |cost| Some(cost.machine_seconds)),
    ("processor, its own process, s", |cost| cost.process_seconds),
    ("peak memory of that process, MB", |cost| megabytes(cost.process_peak_bytes)),
    ("written to its device or file, MB", |cost| megabytes(cost.written_bytes)),
];

fn cost_lines(outcome: &Outcome) -> Vec<Vec<String>> {
    let lines = COSTS.into_iter().map(|(name, of)| {
        let mut words = vec![name.to_owned()];
        words.extend(outcome.columns.iter().map(|column| figure(median_cost(column, of))));
        words
    });
    lines.filter(|words| words.iter().skip(1).any(|word| word != "-")).collect()
}

fn parameter(parameter: &Parameter) -> String {
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
    rows.extend(figures(outcome).into_iter().map(|sample| line(outcome, sample)));
    rows.extend(cost_lines(outcome));
    text.push_str(&aligned(&rows));
    for column in &outcome.columns {
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
    let Some((name, first)) = outcome.columns.first().and_then(|column| Some((&column.target, column.samples.first()?))) else { return text };
    for column in outcome.columns.iter().skip(1) {
        let Some(other) = column.sample(&first.name) else { continue };
        let (ratio, verdict) = advantage(first, other);
        let factor = ratio.map_or(f64::NAN, |ratio| ratio.value.max(1.0 / ratio.value));
        let _ = match verdict {
            Verdict::Above => writeln!(text, "{name} is ahead of {}, {factor:.2}x.", column.target),
            Verdict::Below => writeln!(text, "{} is ahead of {name}, {factor:.2}x.", column.target),
            Verdict::Draw => writeln!(text, "{name} against {}: a draw.", column.target),
            Verdict::Unknown => writeln!(text, "{name} against {}: no verdict from fewer than {} rounds.", column.target, statistics::FEWEST),
        };
    }
    text
}

fn sample_json(sample: &Sample) -> Value {
    json!({
        "unit": sample.unit,
        "better": better(sample),
        "median": statistics::median(&sample.values),
        "rounds": sample.values,
    })
}

fn cost_json(cost: &Cost) -> Value {
    json!({
        "machine_processor_seconds": cost.machine_seconds,
        "process_processor_seconds": cost.process_seconds,
        "process_peak_bytes": cost.process_peak_bytes,
        "written_bytes": cost.written_bytes,
    })
}

/// Everything, each round included.
pub fn to_json(outcome: &Outcome) -> Value {
    let columns = outcome.columns.iter().map(|column| {
        let samples: serde_json::Map<String, Value> = column.samples.iter().map(|sample| (sample.name.to_string(), sample_json(sample))).collect();
        json!({
            "target": column.target,
            "description": column.description,
            "figures": samples,
            "costs": column.costs.iter().map(cost_json).collect::<Vec<_>>(),
            "failure": column.failure,
        })
    });
    let published = outcome.published.iter().map(|published| {
        json!({ "figure": published.figure, "system": published.system, "value": published.value })
    });
    let parameters: serde_json::Map<String, Value> =
        outcome.parameters.iter().map(|parameter| (parameter.name.to_owned(), json!(parameter.value))).collect();
    json!({
        "workload": outcome.workload,
        "parameters": parameters,
        "scale": outcome.plan.scale,
        "seed": outcome.plan.seed,
        "rounds": outcome.plan.rounds,
        "published": published.collect::<Vec<_>>(),
        "targets": columns.collect::<Vec<_>>(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::Published;
    use crate::workload::rounds::Plan;

    fn outcome() -> Outcome {
        let column = |target: &str, rate: [f64; 3], seconds: [f64; 3]| Column {
            target: target.into(),
            description: format!("{target} somewhere"),
            samples: vec![
                Sample { name: "transactions".into(), unit: "/s", better: Better::Higher, values: rate.to_vec() },
                Sample { name: "total".into(), unit: "s", better: Better::Lower, values: seconds.to_vec() },
            ],
            costs: vec![Cost { machine_seconds: 1.5, written_bytes: Some(3 << 20), ..Cost::default() }],
            failure: None,
        };
        Outcome {
            workload: "postmark",
            about: "many files",
            parameters: vec![Parameter { name: "files", about: "", value: 10, scales: true, smallest: 1 }],
            published: &[Published { figure: "total", system: "UFS", value: 3450.0 }],
            plan: Plan { rounds: 3, seed: 42, scale: 4 },
            columns: vec![
                column("tarn", [400.0, 400.0, 440.0], [2.0, 2.0, 2.0]),
                column("ext4", [200.0, 200.0, 200.0], [4.0, 4.0, 4.0]),
                Column { failure: Some("no space".into()), target: "xfs".into(), ..Column::default() },
            ],
        }
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
        let squeeze = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(squeeze(&text).starts_with(&squeeze(expected)), "{text}");
        assert!(squeeze(&text).contains("total, s 2.00 ±0% 4.00 ±0% - 2.00x (2.00-2.00) - | 3450"), "{text}");
        assert!(squeeze(&text).contains("processor, whole machine, s 1.50 1.50 -"), "{text}");
        assert!(text.ends_with("xfs failed: no space\ntarn is ahead of ext4, 2.00x.\n"), "{text}");
    }

    #[test]
    fn json_has_every_round() {
        let json = to_json(&outcome());
        assert_eq!(json["targets"][0]["figures"]["transactions"]["rounds"], json!([400.0, 400.0, 440.0]));
        assert_eq!(json["targets"][1]["figures"]["total"]["better"], "less is better");
        assert_eq!(json["targets"][2]["failure"], "no space");
        assert_eq!(json["parameters"]["files"], 10);
    }
}
