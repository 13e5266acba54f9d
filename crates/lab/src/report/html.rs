//! One page for a browser, with everything in it: no network is needed to look at it, now or in ten years.
//!
//! The charts are drawn from the figures that stand in the tables below them, round by round. [`curves`] finds the
//! figures that are points of a curve, and [`chart`](super::chart) draws them.

mod changes;
mod curves;
mod details;

use anyhow::Result;
use maud::{DOCTYPE, Markup, PreEscaped, html};

use super::findings::scales;
use super::table::{clock_words, operations};
use super::verdicts::{First, TOO_FEW, Verdicts, word};
use super::words::{PERCENTILES, figure};
use crate::record::Record;
use crate::statistics::{Comparison, Verdict};
use crate::workload::Better;
use crate::workload::rounds::{Outcome, Sample};

const STYLE: &str = include_str!("page.css");
/// Of the palette.
const COLOURS: usize = 8;

/// The place of a target in the palette: the same on the whole page.
fn colour_of(record: &Record, target: &str) -> usize {
    record.systems.iter().position(|system| system.name == target).unwrap_or(COLOURS - 1) % COLOURS
}

fn colour(record: &Record, target: &str) -> String {
    format!("background: var(--series-{})", colour_of(record, target))
}

fn better_words(better: Better) -> &'static str {
    match better {
        Better::Higher => "more is better",
        Better::Lower => "less is better",
    }
}

fn first_words(verdicts: &Verdicts<'_>, outcome: &Outcome, name: &str) -> Markup {
    match verdicts.first(outcome, name) {
        First::Alone(target, factor) => html! { span.win { (target) } @if factor.is_some() { " " (figure(factor)) "x" } },
        First::Shared(all) => html! { (all.join(", ")) },
        First::Nobody => html! { "–" },
        First::TooFewRounds => html! { span.quiet { (TOO_FEW) } },
    }
}

/// How many times better the first system does than the one in whose cell it stands; its interval is shown under the pointer.
fn beside(comparison: Option<Comparison>) -> Markup {
    let Some(comparison) = comparison else { return html! {} };
    let class = match comparison.verdict {
        Verdict::Above => "good",
        Verdict::Below => "bad",
        Verdict::Draw | Verdict::Unknown => "quiet",
    };
    let interval = comparison.factor.and_then(|factor| factor.interval).filter(|_| comparison.verdict != Verdict::Unknown);
    let interval = interval.map(|(low, high)| format!("95 %: {}x to {}x", figure(Some(low)), figure(Some(high))));
    let chance =
        comparison.chance.map(|chance| format!("p {}, corrected {}", figure(Some(chance.alone)), figure(Some(chance.corrected))));
    let title: Vec<String> = interval.into_iter().chain(chance).collect();
    html! {
        br; small.beside title=(title.join("; ")) {
            @if let Some(factor) = comparison.factor { (figure(Some(factor.value))) "x " }
            span class=(class) { (word(comparison.verdict)) }
        }
    }
}

/// The first system beside another one, in a figure.
fn beside_first(record: &Record, verdicts: &Verdicts<'_>, outcome: &Outcome, name: &str, place: usize) -> Markup {
    let own = record.systems.first().filter(|_| place > 0);
    beside(own.and_then(|own| verdicts.between(outcome, name, &own.name, &record.systems[place].name)))
}

/// The page. With a run `before`, what changed since then comes first.
pub fn page(record: &Record, before: Option<&Record>) -> Result<String> {
    let changes = before.map(|before| changes::section(before, record)).transpose()?;
    let curves = curves::section(record)?;
    let verdicts = Verdicts::of(record);
    let markup = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                title { "fsperf: " (names(record)) }
                style { (PreEscaped(STYLE)) }
            }
            body {
                (head(record))
                @if let Some(changes) = changes { (changes) }
                (summary(record, &verdicts))
                (percentiles(record))
                (bars(record, &verdicts))
                (curves)
                (details::section(record, &verdicts))
            }
        }
    };
    Ok(markup.into_string())
}

fn names(record: &Record) -> String {
    let names: Vec<&str> = record.systems.iter().map(|system| system.name.as_str()).collect();
    names.join(", ")
}

fn head(record: &Record) -> Markup {
    let plan = &record.plan;
    html! {
        h1 { (names(record)) ": " (record.workloads.len()) " workloads" }
        p.quiet { (record.began) " · " (record.machine_words()) " · " (record.program) }
        p {
            (plan.rounds) @if plan.rounds == 1 { " round" } @else { " rounds" } ", the file systems taking turns"
            @if plan.warm_up > 0 { ", after " (plan.warm_up) " rounds of warming up" }
            "; seed " (plan.seed) "; " (scales(record)) "."
            " Figures are medians."
        }
        details {
            summary { "made by" }
            @for command in record.command.split("; ") { p.quiet { code { (command) } } }
        }
        @if record.interrupted { p.bad { "This run was cut off; what it had measured until then is here." } }
        @if !record.left_out.is_empty() {
            p { "Left out:" }
            ul { @for left in &record.left_out { li { b { (left.what) } ": " (left.why) } } }
        }
    }
}

fn failed(outcome: &Outcome, system: &str) -> bool {
    outcome.column(system).is_some_and(|column| column.failure.is_some())
}

/// Where there is no figure: it failed, or it was not to be run there, or not every round has one.
fn lacking(outcome: &Outcome, system: &str) -> Markup {
    match failed(outcome, system) {
        true => html! { td.bad { "failed" } },
        false => html! { td.quiet { "–" } },
    }
}

fn summary(record: &Record, verdicts: &Verdicts<'_>) -> Markup {
    html! {
        h2 { "In short" }
        @if let [first, _, ..] = record.systems.as_slice() {
            p {
                "Under each median: how many times better " b { (first.name) } " does than that one, and whether it is ahead or behind. Last: who is first of all, alone \
                 and how far ahead of the next, or those that cannot be told from the best."
            }
            p.quiet { (verdicts.words()) }
        }
        div.wide { table {
            thead { tr {
                th { "workload" }
                @for system in &record.systems { th { (system.name) } }
                th { "first" }
            } }
            tbody {
                @for outcome in &record.workloads { (summary_row(record, verdicts, outcome)) }
            }
        } }
    }
}

fn summary_row(record: &Record, verdicts: &Verdicts<'_>, outcome: &Outcome) -> Markup {
    let link = html! { a href={ "#" (outcome.workload) } { (outcome.workload) } };
    let Some(sample) = outcome.deciding() else {
        return html! { tr {
            td { (link) }
            @for system in &record.systems { (lacking(outcome, &system.name)) }
            td {}
        } };
    };
    html! { tr {
        td { (link) br; small { (sample.name) ", " (sample.unit) } }
        @for (place, system) in record.systems.iter().enumerate() {
            @match outcome.sample(&system.name, &sample.name).and_then(Sample::median) {
                Some(median) => td { (figure(Some(median))) (beside_first(record, verdicts, outcome, &sample.name, place)) },
                None => { (lacking(outcome, &system.name)) },
            }
        }
        td { (first_words(verdicts, outcome, &sample.name)) }
    } }
}

/// How long single operations take.
fn percentiles(record: &Record) -> Markup {
    let Some(words) = clock_words(record) else { return html! {} };
    html! {
        h2 { "How long an operation takes" }
        p.quiet { (words) }
        div.wide { table {
            thead { tr { th { (PERCENTILES) ", us" } @for system in &record.systems { th { (system.name) } } } }
            tbody { @for line in operations(record) { tr { @for word in line { td { (word) } } } } }
        } }
    }
}

/// One group of bars for each workload whose deciding figure is no point of a curve.
fn bars(record: &Record, verdicts: &Verdicts<'_>) -> Markup {
    html! {
        h2 { "Side by side" }
        div.grid {
            @for outcome in &record.workloads {
                @if let Some(sample) = outcome.deciding().filter(|sample| sample.point.is_none()) { (bar_group(record, verdicts, outcome, sample)) }
            }
        }
    }
}

fn bar_group(record: &Record, verdicts: &Verdicts<'_>, outcome: &Outcome, sample: &Sample) -> Markup {
    let values: Vec<(&str, Option<f64>)> = outcome
        .columns
        .iter()
        .map(|column| (column.target.as_str(), column.sample(&sample.name).and_then(Sample::median)))
        .collect();
    let longest = values.iter().filter_map(|(_, value)| *value).fold(f64::MIN_POSITIVE, f64::max);
    html! {
        figure {
            figcaption { (outcome.workload) ": " (outcome.about) }
            @for (target, value) in &values {
                div.bar {
                    span title=(target) { (target) }
                    div {
                        @if let Some(value) = value {
                            b style={ "width: " (format!("{:.1}", value / longest * 68.0)) "%; " (colour(record, target)) } {}
                        }
                        em { @if value.is_none() && failed(outcome, target) { "failed" } @else { (figure(*value)) } }
                    }
                }
            }
            div.quiet {
                (sample.unit) ", " (better_words(sample.better)) "."
                @if !matches!(verdicts.first(outcome, &sample.name), First::Nobody | First::TooFewRounds) {
                    " First: " (first_words(verdicts, outcome, &sample.name)) "."
                }
            }
        }
    }
}

#[cfg(test)]
mod tests;
