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
use super::table::{Winner, winner};
use super::words::figure;
use crate::record::Record;
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

fn winner_words(outcome: &Outcome, name: &str) -> Markup {
    match winner(outcome, name) {
        Winner::Clear(target, factor) => html! { span.win { (target) } " " (figure(Some(factor))) "x" },
        Winner::Draw => html! { "draw" },
        Winner::Unknown => html! { "–" },
        Winner::TooFew => html! { span.quiet { "too few rounds" } },
    }
}

/// The page. With a run `before`, what changed since then comes first.
pub fn page(record: &Record, before: Option<&Record>) -> Result<String> {
    let changes = before.map(|before| changes::section(before, record)).transpose()?;
    let curves = curves::section(record)?;
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
                (summary(record))
                (bars(record))
                (curves)
                (details::section(record))
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
            " Figures are medians; a winner is named only outside of the noise, with how far it is ahead of the next, otherwise it is a draw."
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

/// Where there is no figure: it failed, or it was not to be run there.
fn lacking(outcome: &Outcome, system: &str) -> &'static str {
    if outcome.column(system).is_some_and(|column| column.failure.is_some()) { "failed" } else { "-" }
}

fn summary(record: &Record) -> Markup {
    html! {
        h2 { "In short" }
        div.wide { table {
            thead { tr {
                th { "workload" }
                @for system in &record.systems { th { (system.name) } }
                th { "winner" }
            } }
            tbody {
                @for outcome in &record.workloads {
                    @if outcome.deciding().is_none() {
                        tr {
                            td { a href={ "#" (outcome.workload) } { (outcome.workload) } }
                            @for system in &record.systems { td.bad { (lacking(outcome, &system.name)) } }
                            td {}
                        }
                    }
                    @if let Some(sample) = outcome.deciding() {
                        tr {
                            td { a href={ "#" (outcome.workload) } { (outcome.workload) } br; small { (sample.name) ", " (sample.unit) } }
                            @for system in &record.systems {
                                @match outcome.sample(&system.name, &sample.name).and_then(Sample::median) {
                                    Some(median) => td { (figure(Some(median))) },
                                    None => td.bad { (lacking(outcome, &system.name)) },
                                }
                            }
                            td { (winner_words(outcome, &sample.name)) }
                        }
                    }
                }
            }
        } }
    }
}

/// One group of bars for each workload whose deciding figure is no point of a curve.
fn bars(record: &Record) -> Markup {
    html! {
        h2 { "Side by side" }
        div.grid {
            @for outcome in &record.workloads {
                @if let Some(sample) = outcome.deciding().filter(|sample| sample.point.is_none()) { (bar_group(record, outcome, sample)) }
            }
        }
    }
}

fn bar_group(record: &Record, outcome: &Outcome, sample: &Sample) -> Markup {
    let values: Vec<(&str, Option<f64>)> =
        outcome.columns.iter().map(|column| (column.target.as_str(), column.sample(&sample.name).and_then(Sample::median))).collect();
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
                        em { (value.map_or_else(|| "failed".to_owned(), |value| figure(Some(value)))) }
                    }
                }
            }
            div.quiet { (sample.unit) ", " (better_words(sample.better)) ". Winner: " (winner_words(outcome, &sample.name)) }
        }
    }
}

#[cfg(test)]
mod tests;
