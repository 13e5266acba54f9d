//! What changed since an earlier run: percent, and whether that is better, in words; curves of it where there are curves.

use anyhow::Result;
use maud::{Markup, html};

use super::curves::{curves_of, drawn, is_logarithmic, samples_of};
use super::{colour_of, figure};
use crate::record::Record;
use crate::report::changes::{Change, changes, differences, method};
use crate::report::chart::{Chart, Line};

fn line(change: &Change<'_>) -> Markup {
    let verdict = change.verdict();
    let class = match verdict {
        "better" => "good",
        "WORSE" => "bad",
        _ => "",
    };
    html! {
        tr {
            td { (change.workload) " on " (change.target) ": " (change.after.name) }
            td { (figure(change.before.median())) }
            td { (figure(change.after.median())) }
            td { (change.after.unit) }
            td class=(class) { (change.percent().map_or_else(|| "–".to_owned(), |percent| format!("{percent:+.1} %"))) }
            td { (change.meaning()) }
            td class=(class) { (verdict.to_lowercase()) }
        }
    }
}

fn charts(before: &Record, after: &Record) -> Result<Vec<Markup>> {
    let all = changes(before, after);
    let mut charts = Vec::new();
    for outcome in &after.workloads {
        for curve in curves_of(outcome) {
            let lines = outcome.columns.iter().map(|column| {
                let points = samples_of(column, &curve).into_iter().filter_map(|(at, sample)| {
                    let same = |change: &&Change<'_>| {
                        change.workload == outcome.workload && change.target == column.target && change.after.name == sample.name
                    };
                    Some((at, all.iter().find(same)?.percent()?))
                });
                Line { name: column.target.clone(), colour: colour_of(after, &column.target), points: points.collect() }
            });
            let lines: Vec<Line> = lines.collect();
            if lines.iter().any(|line| !line.points.is_empty()) {
                let title = format!("{}: % change of {}", outcome.workload, curve.name);
                let (across, up) = (curve.axis.to_owned(), "% change".to_owned());
                charts
                    .push(drawn(after, &Chart { title, across, up, log_across: is_logarithmic(&curve), log_up: false, lines })?);
            }
        }
    }
    Ok(charts)
}

pub(super) fn section(before: &Record, after: &Record) -> Result<Markup> {
    let all = changes(before, after);
    let charts = charts(before, after)?;
    Ok(html! {
        h2 { "What changed since " (before.began) }
        p.quiet { "Before: " code { (before.command) } }
        @for difference in differences(before, after) { p.bad { "Note: " (difference) } }
        p.quiet { (method(all.len())) }
        div.grid { @for chart in &charts { (chart) } }
        div.wide { table {
            thead { tr { th { "" } th { "before" } th { "after" } th { "" } th { "change" } th { "the sign" } th { "" } } }
            tbody { @for change in &all { (line(change)) } }
        } }
    })
}
