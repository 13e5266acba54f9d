//! Two runs beside each other: what changed, by how many percent, and whether that is better, in words.

use std::fmt::Write;

use super::words::{aligned, figure};
use crate::record::{Record, advantage};
use crate::statistics::{self, Verdict};
use crate::workload::Better;
use crate::workload::rounds::{Outcome, Sample, Setting};

/// One figure in both runs.
pub struct Change<'a> {
    pub workload: &'a str,
    pub target: &'a str,
    pub before: &'a Sample,
    pub after: &'a Sample,
    /// Both did the same.
    pub same_work: bool,
}

impl Change<'_> {
    /// Of the median; negative where it became less.
    pub fn percent(&self) -> Option<f64> {
        let before = statistics::median(&self.before.values).filter(|before| *before != 0.0)?;
        Some((statistics::median(&self.after.values)? / before - 1.0) * 100.0)
    }

    /// Better, worse or neither.
    pub fn verdict(&self) -> &'static str {
        match advantage(self.after, self.before).1 {
            _ if !self.same_work => "not the same work",
            Verdict::Above => "better",
            Verdict::Below => "WORSE",
            Verdict::Draw => "same, within the noise",
            Verdict::Unknown => "too few rounds to tell",
        }
    }

    /// What the sign means.
    pub fn meaning(&self) -> &'static str {
        match self.after.better {
            Better::Higher => "+ is better",
            Better::Lower => "- is better",
        }
    }
}

fn changes_of<'a>(before: &'a Outcome, after: &'a Outcome) -> Vec<Change<'a>> {
    let mut all = Vec::new();
    let same_work = other_parameters(before, after).next().is_none();
    for column in &after.columns {
        let Some(old) = before.columns.iter().find(|old| old.target == column.target) else { continue };
        for sample in &column.samples {
            if let Some(earlier) = old.sample(&sample.name) {
                all.push(Change { workload: &after.workload, target: &column.target, before: earlier, after: sample, same_work });
            }
        }
    }
    all
}

/// Every figure that both runs have.
pub fn changes<'a>(before: &'a Record, after: &'a Record) -> Vec<Change<'a>> {
    let pairs = after.workloads.iter().filter_map(|outcome| Some((before.workload(&outcome.workload)?, outcome)));
    pairs.flat_map(|(before, after)| changes_of(before, after)).collect()
}

/// Parameters that had another value before: after and before.
fn other_parameters<'a>(before: &'a Outcome, after: &'a Outcome) -> impl Iterator<Item = (&'a Setting, &'a Setting)> {
    let both = after.parameters.iter().filter_map(|new| Some((new, before.parameters.iter().find(|old| old.name == new.name)?)));
    both.filter(|(new, old)| new.value != old.value)
}

/// Why the two are not quite comparable.
pub fn differences(before: &Record, after: &Record) -> Vec<String> {
    let mut all = Vec::new();
    if before.machine != after.machine {
        all.push(format!("the machines differ: {} and {}", before.machine_words(), after.machine_words()));
    }
    for outcome in &after.workloads {
        let Some(old) = before.workload(&outcome.workload) else {
            all.push(format!("{} was run the second time only", outcome.workload));
            continue;
        };
        for (new, old) in other_parameters(old, outcome) {
            all.push(format!(
                "{}: {} was {} and is {}: the figures are of different work",
                outcome.workload, new.name, old.value, new.value
            ));
        }
        let only = |one: &Outcome, other: &Outcome| {
            one.columns.iter().filter(|column| other.column(&column.target).is_none()).map(|column| column.target.clone()).collect::<Vec<_>>()
        };
        for (targets, time) in [(only(old, outcome), "first"), (only(outcome, old), "second")] {
            if !targets.is_empty() {
                all.push(format!("{} was run on {} the {time} time only", outcome.workload, targets.join(", ")));
            }
        }
    }
    for outcome in before.workloads.iter().filter(|outcome| after.workload(&outcome.workload).is_none()) {
        all.push(format!("{} was run the first time only", outcome.workload));
    }
    all
}

/// A table for a terminal.
pub fn table(before: &Record, after: &Record) -> String {
    let mut rows = vec![["", "", "before", "after", "change", "", ""].map(str::to_owned).to_vec()];
    let all = changes(before, after);
    for change in &all {
        let value = |sample: &Sample| figure(statistics::median(&sample.values));
        let percent = change.percent().map_or_else(|| "-".to_owned(), |percent| format!("{percent:+.1} %"));
        let name = format!("{} on {}: {}", change.workload, change.target, change.after.name);
        rows.push(vec![
            name,
            change.after.unit.to_string(),
            value(change.before),
            value(change.after),
            percent,
            change.meaning().to_owned(),
            change.verdict().to_owned(),
        ]);
    }
    let mut text = format!("before: {} ({})\nafter:  {} ({})\n", before.began, before.command, after.began, after.command);
    for difference in differences(before, after) {
        let _ = writeln!(text, "note: {difference}");
    }
    text.push_str(&aligned(&rows));
    let count = |word: &str| all.iter().filter(|change| change.verdict() == word).count();
    let _ = writeln!(
        text,
        "{} figures: {} better, {} worse; the rest within the noise, from too few rounds, or of different work.",
        all.len(),
        count("better"),
        count("WORSE")
    );
    text
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::workload::rounds::{Column, Plan};

    /// A run of one workload on one target, whose figures in `us` are times.
    pub(in crate::report) fn record(figures: &[(&'static str, &'static str, [f64; 3])]) -> Record {
        let mut record = Record::begin(Plan::default());
        let samples = figures.iter().map(|(name, unit, values)| Sample {
            name: (*name).into(),
            unit: (*unit).into(),
            better: if *unit == "us" { Better::Lower } else { Better::Higher },
            values: values.to_vec(),
            point: None,
        });
        record.workloads.push(Outcome {
            workload: "sweep".into(),
            about: String::new(),
            parameters: vec![Setting { name: "seconds".into(), value: 5, about: String::new() }],
            published: Vec::new(),
            plan: Plan::default(),
            columns: vec![Column { target: "tarn".into(), samples: samples.collect(), ..Column::default() }],
        });
        record
    }

    #[test]
    fn the_sign_is_said_in_words() {
        let before =
            record(&[("1 thread", "/s", [100.0, 101.0, 100.0]), ("latency", "us", [10.0, 10.0, 10.0]), ("gone", "/s", [1.0; 3])]);
        let after =
            record(&[("1 thread", "/s", [150.0, 151.0, 150.0]), ("latency", "us", [20.0, 20.0, 20.0]), ("new", "/s", [1.0; 3])]);
        let all = changes(&before, &after);
        let said: Vec<_> =
            all.iter().map(|change| (change.percent().unwrap().round(), change.meaning(), change.verdict())).collect();
        assert_eq!(said, [(50.0, "+ is better", "better"), (100.0, "- is better", "WORSE")]);
        assert!(
            table(&before, &after).ends_with("2 figures: 1 better, 1 worse; the rest within the noise, from too few rounds, or of different work.\n")
        );
    }

    #[test]
    fn other_work_is_told() {
        let (before, mut after) = (record(&[]), record(&[]));
        assert!(differences(&before, &after).is_empty());
        after.workloads[0].parameters[0].value = 60;
        assert_eq!(differences(&before, &after), ["sweep: seconds was 5 and is 60: the figures are of different work"]);
        after.workloads[0].columns[0].target = "ext4".into();
        assert_eq!(differences(&before, &after)[1..], ["sweep was run on tarn the first time only", "sweep was run on ext4 the second time only"]);
        after.workloads[0].workload = "other".into();
        assert_eq!(differences(&before, &after), ["other was run the second time only", "sweep was run the first time only"]);
        // Four times as fast, at a twelfth of the work.
        let (mut before, after) = (record(&[("rate", "/s", [10.0; 3])]), record(&[("rate", "/s", [40.0; 3])]));
        assert_eq!(changes(&before, &after)[0].verdict(), "better");
        before.workloads[0].parameters[0].value = 60;
        assert_eq!(changes(&before, &after)[0].verdict(), "not the same work");
    }
}
