//! What a run says, as a page of Markdown written from its figures: losses first.
//!
//! Nothing stands on it that does not follow from the record, so that it cannot flatter: each line names its workload,
//! and the record beside it has the rounds.

use std::fmt::Write;

use super::table::{clock_words, operations};
use super::verdicts::{Verdicts, factor_words, short_words};
use super::words::{PERCENTILES, figure};
use crate::record::Record;
use crate::statistics::{Comparison, Verdict};
use crate::workload::rounds::{Outcome, Sample};

/// One workload's deciding figure on the first target and on another one.
struct Duel<'a> {
    outcome: &'a Outcome,
    first: &'a Sample,
    other: &'a Sample,
    comparison: Comparison,
}

impl Duel<'_> {
    /// Where there is no factor, something is more than nothing.
    fn factor(&self) -> f64 {
        self.comparison.factor.map_or(f64::INFINITY, |factor| factor.value)
    }
}

fn duel<'a>(outcome: &'a Outcome, verdicts: &Verdicts<'_>, first: &str, other: &str) -> Option<Duel<'a>> {
    let name = &outcome.deciding()?.name;
    let comparison = verdicts.between(outcome, name, first, other)?;
    Some(Duel { outcome, first: outcome.sample(first, name)?, other: outcome.sample(other, name)?, comparison })
}

fn line(duel: &Duel<'_>) -> String {
    let value = |sample: &Sample| figure(sample.median());
    let about = if duel.outcome.workload.starts_with("unit") { &duel.outcome.about } else { duel.first.name.as_ref() };
    format!(
        "- {} ({about}): {}, {} against {} {}",
        duel.outcome.workload,
        factor_words(&duel.comparison),
        value(duel.first),
        value(duel.other),
        duel.first.unit
    )
}

fn section(text: &mut String, title: &str, duels: &[Duel<'_>], wanted: Verdict) {
    let chosen: Vec<&Duel<'_>> = duels.iter().filter(|duel| duel.comparison.verdict == wanted).collect();
    if !chosen.is_empty() {
        let _ = writeln!(text, "\n{title}:\n");
        chosen.iter().for_each(|duel| text.push_str(&(line(duel) + "\n")));
    }
}

fn against(text: &mut String, record: &Record, verdicts: &Verdicts<'_>, first: &str, other: &str) {
    let mut duels: Vec<Duel<'_>> = record.workloads.iter().filter_map(|outcome| duel(outcome, verdicts, first, other)).collect();
    if duels.is_empty() {
        return;
    }
    duels.sort_by(|one, another| one.factor().total_cmp(&another.factor()));
    let count = |wanted: Verdict| duels.iter().filter(|duel| duel.comparison.verdict == wanted).count();
    let (below, above, draw) = (count(Verdict::Below), count(Verdict::Above), count(Verdict::Draw));
    let _ = match count(Verdict::Unknown) == duels.len() {
        true => writeln!(text, "\n## {first} against {other}: no verdicts"),
        false => writeln!(text, "\n## {first} against {other}: behind in {below}, ahead in {above}, draw in {draw}"),
    };
    section(text, &format!("{first} is behind"), &duels, Verdict::Below);
    section(text, &format!("{first} is ahead"), &duels, Verdict::Above);
    section(text, "Draws: not told apart, or by less than 5 %", &duels, Verdict::Draw);
    section(text, "Too few rounds for a verdict", &duels, Verdict::Unknown);
}

/// A table of medians: each workload in a line, by the figure that decides; the first system beside each of the others, and which is first.
pub fn summary(record: &Record, verdicts: &Verdicts<'_>) -> String {
    let names: Vec<&str> = record.systems.iter().map(|system| system.name.as_str()).collect();
    let mut text = format!("| workload | {} | first |\n| --- |{} --- |\n", names.join(" | "), " ---: |".repeat(names.len()));
    for outcome in &record.workloads {
        let Some(decides) = outcome.deciding() else { continue };
        let cell = |(place, name): (usize, &&str)| {
            let median = figure(outcome.sample(name, &decides.name).and_then(Sample::median));
            let comparison = verdicts.between(outcome, &decides.name, names[0], name).filter(|_| place > 0);
            comparison.map_or_else(|| median.clone(), |comparison| format!("{median} ({})", short_words(&comparison)))
        };
        let _ = writeln!(
            text,
            "| {}: {}, {} | {} | {} |",
            outcome.workload,
            decides.name,
            decides.unit,
            names.iter().enumerate().map(cell).collect::<Vec<_>>().join(" | "),
            verdicts.first_words(outcome, &decides.name)
        );
    }
    text
}

/// How long single operations take, a line for each workload.
fn percentiles(record: &Record) -> String {
    let names: Vec<&str> = record.systems.iter().map(|system| system.name.as_str()).collect();
    let mut text = format!("| us: {PERCENTILES} | {} |\n| --- |{}\n", names.join(" | "), " ---: |".repeat(names.len()));
    for line in operations(record) {
        let _ = writeln!(text, "| {} |", line.join(" | "));
    }
    text
}

/// What the sizes were divided by: each piece of a run may have its own scale.
pub(super) fn scales(record: &Record) -> String {
    let mut all: Vec<u64> = record.workloads.iter().map(|outcome| outcome.plan.scale).collect();
    all.sort_unstable();
    match (all.first(), all.last()) {
        (Some(1), Some(1)) | (None, _) | (_, None) => "the published sizes".to_owned(),
        (Some(least), Some(most)) if least == most => format!("sizes 1/{least} of the published ones"),
        (Some(least), Some(most)) => format!("sizes 1/{least} to 1/{most} of the published ones, as the page has it for each"),
    }
}

/// What the table of medians has beside them.
const MEDIANS: &str = "In brackets, how many times better the first column does than that one; then who is first of all: alone, and how far ahead of the next, or \
    those that cannot be told from the best.";

/// The page. `results` and `page` are what it links to.
pub fn markdown(record: &Record, results: &str, page: &str) -> String {
    let mut text = format!("# fsperf, {}\n\n{}; {}.", record.began, record.machine_words(), record.program);
    let _ = writeln!(text, " Every round is in [{results}]({results}), charts are in [{page}]({page}).");
    let _ = writeln!(text, "\n{} rounds in turns, seed {}, {}. Made by:\n", record.plan.rounds, record.plan.seed, scales(record));
    record.command.split("; ").for_each(|command| text.push_str(&format!("    {command}\n")));
    let verdicts = Verdicts::of(record);
    let _ = writeln!(text, "\n{}\n", verdicts.words());
    record.systems.iter().for_each(|system| text.push_str(&format!("- {}: {}\n", system.name, system.description)));
    record.left_out.iter().for_each(|left| text.push_str(&format!("- left out: {}: {}\n", left.what, left.why)));
    if record.interrupted {
        text.push_str("\nThis run was cut off before its end.\n");
    }
    if let Some((first, others)) = record.systems.split_first() {
        others.iter().for_each(|other| against(&mut text, record, &verdicts, &first.name, &other.name));
    }
    let _ = write!(text, "\n## Medians\n\n{MEDIANS}\n\n{}", summary(record, &verdicts));
    if let Some(words) = clock_words(record) {
        let _ = write!(text, "\n## How long an operation takes\n\n{words}\n\n{}", percentiles(record));
    }
    let mut remarks = String::new();
    for (outcome, column) in
        record.workloads.iter().flat_map(|outcome| outcome.columns.iter().map(move |column| (outcome, column)))
    {
        for remark in column.remarks.iter().chain(&column.failure) {
            let _ = writeln!(remarks, "- {} on {}: {remark}", outcome.workload, column.target);
        }
    }
    if !remarks.is_empty() {
        let _ = write!(text, "\n## Failures and remarks\n\n{remarks}");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::System;
    use crate::report::changes::tests::record;

    #[test]
    fn losses_come_first() {
        let mut both = record(&[("rate", "/s", [10.0; 5])]);
        let slower = record(&[("rate", "/s", [40.0; 5])]).workloads.remove(0).columns.remove(0);
        both.workloads[0].columns.push(crate::workload::rounds::Column {
            target: "ext4".into(),
            failure: Some("no space".into()),
            ..slower
        });
        let mut won = both.workloads[0].clone();
        won.workload = "won".into();
        won.columns[0].samples[0].values = vec![80.0; 5];
        both.workloads.insert(0, won);
        let system = |name: &str| System { name: name.into(), description: "a disk".into(), facts: Vec::new() };
        both.systems = vec![system("tarn"), system("ext4")];
        let text = markdown(&both, "results.json", "index.html");
        assert!(text.contains("## tarn against ext4: behind in 1, ahead in 1, draw in 0"), "{text}");
        let place = |words: &str| text.find(words).unwrap_or_else(|| panic!("{words}: {text}"));
        assert!(
            place("- sweep (rate): 0.25x (0.25-0.25) behind, 10.0 against 40.0 /s")
                < place("- won (rate): 2.00x (2.00-2.00) ahead")
        );
        assert!(place("| won: rate, /s | 80.0 | 40.0 (2.00x ahead) | tarn 2.00x |") < place("- sweep on ext4: no space"));
        assert!(text.contains("Moses' 95 % interval") && text.contains("Benjamini and Hochberg"), "{text}");
        // Of three rounds nothing is said: "draw" is a verdict, too.
        for outcome in &mut both.workloads {
            outcome.columns.iter_mut().for_each(|column| column.samples[0].values.truncate(3));
        }
        let text = markdown(&both, "results.json", "index.html");
        assert!(
            text.contains("## tarn against ext4: no verdicts\n\nToo few rounds for a verdict:\n\n- sweep (rate): 0.25x, 10.0"),
            "{text}"
        );
        assert!(text.contains("| won: rate, /s | 80.0 | 40.0 (2.00x) | too few rounds |"), "{text}");
    }
}
