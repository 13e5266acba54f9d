//! Two runs beside each other: what changed, by how many percent, and whether that is better, in words.

use std::fmt::Write;

use super::verdicts::{TOO_FEW, is_compared, judged};
use super::words::{aligned, figure};
use crate::record::Record;
use crate::statistics::{self, Comparison, FEWEST, Verdict};
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
    /// The later beside the earlier, judged with all other changes.
    comparison: Comparison,
}

impl Change<'_> {
    /// Of the median; negative where it became less.
    pub fn percent(&self) -> Option<f64> {
        let before = statistics::median(&self.before.values).filter(|before| *before != 0.0)?;
        Some((statistics::median(&self.after.values)? / before - 1.0) * 100.0)
    }

    /// Better, worse or neither.
    pub fn verdict(&self) -> &'static str {
        match self.comparison.verdict {
            _ if !self.same_work => "not the same work",
            Verdict::Above => "better",
            Verdict::Below => "WORSE",
            Verdict::Draw => "not told apart",
            Verdict::Unknown => TOO_FEW,
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

/// A figure that both runs have, before it is judged.
type Pair<'a> = (&'a Outcome, &'a str, &'a Sample, &'a Sample, bool);

fn pairs_of<'a>(before: &'a Outcome, after: &'a Outcome) -> Vec<Pair<'a>> {
    let mut all = Vec::new();
    let same_work = other_parameters(before, after).next().is_none();
    for column in &after.columns {
        let Some(old) = before.columns.iter().find(|old| old.target == column.target) else { continue };
        for sample in column.samples.iter().filter(|sample| is_compared(sample)) {
            if let Some(earlier) = old.sample(&sample.name)
                && old.has_every_round(earlier)
                && column.has_every_round(sample)
            {
                all.push((after, column.target.as_str(), earlier, sample, same_work));
            }
        }
    }
    all
}

/// Every figure that both runs have; of the times of single operations one percentile. What is said of them is said of all together.
pub fn changes<'a>(before: &'a Record, after: &'a Record) -> Vec<Change<'a>> {
    let both = after.workloads.iter().filter_map(|outcome| Some((before.workload(&outcome.workload)?, outcome)));
    let pairs: Vec<Pair<'a>> = both.flat_map(|(before, after)| pairs_of(before, after)).collect();
    let comparisons = judged(&pairs.iter().map(|(_, _, earlier, sample, _)| (*sample, *earlier)).collect::<Vec<_>>());
    let change = |((outcome, target, before, after, same_work), comparison): (Pair<'a>, Comparison)| Change {
        workload: &outcome.workload,
        target,
        before,
        after,
        same_work,
        comparison,
    };
    pairs.into_iter().zip(comparisons).map(change).collect()
}

/// How the verdicts came about.
pub fn method(figures: usize) -> String {
    format!(
        "Better and worse are said where the exact two-sided rank-sum test (Wilcoxon, Mann and Whitney) finds a difference, after the correction of Benjamini and \
         Hochberg over all of these figures, and it is 5 % or more: at most one in twenty of them is expected to be chance. It takes {FEWEST} rounds of both runs, and {} if a \
         difference stands alone among {figures}. What differs between the runs besides, such as the state of the machine, no test can tell from what was changed.",
        statistics::rounds_for_one(figures)
    )
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
            one.columns
                .iter()
                .filter(|column| other.column(&column.target).is_none())
                .map(|column| column.target.clone())
                .collect::<Vec<_>>()
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
        "{} figures: {} better, {} worse; the rest not told apart, from too few rounds, or of different work.\n{}",
        all.len(),
        count("better"),
        count("WORSE"),
        method(all.len())
    );
    text
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::workload::rounds::{Column, Plan};

    /// A run of one workload on one target, whose figures in `us` are times.
    pub(in crate::report) fn record<const ROUNDS: usize>(figures: &[(&'static str, &'static str, [f64; ROUNDS])]) -> Record {
        let mut record = Record::begin(Plan::default());
        let samples = figures.iter().map(|(name, unit, values)| Sample {
            name: (*name).into(),
            unit: (*unit).into(),
            better: if *unit == "us" { Better::Lower } else { Better::Higher },
            values: values.to_vec(),
            point: None,
            percentile: None,
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
        let before = record(&[
            ("1 thread", "/s", [100.0, 101.0, 100.0, 100.0, 99.0]),
            ("latency", "us", [10.0; 5]),
            ("gone", "/s", [1.0; 5]),
        ]);
        let after = record(&[
            ("1 thread", "/s", [150.0, 151.0, 150.0, 150.0, 149.0]),
            ("latency", "us", [20.0; 5]),
            ("new", "/s", [1.0; 5]),
        ]);
        let all = changes(&before, &after);
        let said: Vec<_> =
            all.iter().map(|change| (change.percent().unwrap().round(), change.meaning(), change.verdict())).collect();
        assert_eq!(said, [(50.0, "+ is better", "better"), (100.0, "- is better", "WORSE")]);
        let text = table(&before, &after);
        assert!(
            text.contains("2 figures: 1 better, 1 worse; the rest not told apart, from too few rounds, or of different work.\n"),
            "{text}"
        );
        let few = |value| record(&[("1 thread", "/s", [value; 4])]);
        assert_eq!(changes(&few(1.0), &few(2.0))[0].verdict(), "too few rounds");
    }

    #[test]
    fn other_work_is_told() {
        let (before, mut after) = (record::<0>(&[]), record::<0>(&[]));
        assert!(differences(&before, &after).is_empty());
        after.workloads[0].parameters[0].value = 60;
        assert_eq!(differences(&before, &after), ["sweep: seconds was 5 and is 60: the figures are of different work"]);
        after.workloads[0].columns[0].target = "ext4".into();
        assert_eq!(
            differences(&before, &after)[1..],
            ["sweep was run on tarn the first time only", "sweep was run on ext4 the second time only"]
        );
        after.workloads[0].workload = "other".into();
        assert_eq!(differences(&before, &after), ["other was run the second time only", "sweep was run the first time only"]);
        // Four times as fast, at a twelfth of the work.
        let (mut before, after) = (record(&[("rate", "/s", [10.0; 5])]), record(&[("rate", "/s", [40.0; 5])]));
        assert_eq!(changes(&before, &after)[0].verdict(), "better");
        before.workloads[0].parameters[0].value = 60;
        assert_eq!(changes(&before, &after)[0].verdict(), "not the same work");
    }
}
