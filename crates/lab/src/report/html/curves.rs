//! Figures that are points of a curve, as charts: a line for each target.

use anyhow::Result;
use maud::{Markup, PreEscaped, html};

use super::{colour, colour_of};
use crate::record::Record;
use crate::report::chart::{Chart, Line, draw};
use crate::workload::rounds::{Column, Outcome, Sample};

/// A curve of a workload: its name, what it is drawn over, its unit.
#[derive(PartialEq)]
pub(super) struct Curve<'a> {
    pub(super) name: &'a str,
    pub(super) axis: &'a str,
    pub(super) unit: &'a str,
}

/// The curves of a workload, in the order of its figures.
pub(super) fn curves_of(outcome: &Outcome) -> Vec<Curve<'_>> {
    let mut all: Vec<Curve<'_>> = Vec::new();
    for sample in outcome.columns.iter().flat_map(|column| &column.samples) {
        if let Some(point) = &sample.point {
            let curve = Curve { name: &point.curve, axis: &point.axis, unit: &sample.unit };
            if !all.contains(&curve) {
                all.push(curve);
            }
        }
    }
    all
}

/// The samples of a curve on a target.
pub(super) fn samples_of<'a>(column: &'a Column, curve: &Curve<'_>) -> Vec<(f64, &'a Sample)> {
    let points = column.samples.iter().filter_map(|sample| Some((sample.point.as_ref()?, sample)));
    points
        .filter(|(point, _)| point.curve == curve.name && point.axis == curve.axis)
        .map(|(point, sample)| (point.at, sample))
        .collect()
}

/// Numbers of threads double; what fills a disk does not.
pub(super) fn is_logarithmic(curve: &Curve<'_>) -> bool {
    curve.axis == "threads"
}

fn chart(record: &Record, outcome: &Outcome, curve: &Curve<'_>) -> Chart {
    let line = |column: &Column| {
        let points = samples_of(column, curve).into_iter().filter_map(|(at, sample)| Some((at, sample.median()?)));
        Line { name: column.target.clone(), colour: colour_of(record, &column.target), points: points.collect() }
    };
    let log = is_logarithmic(curve);
    Chart {
        title: format!("{}: {}", outcome.workload, curve.name),
        across: curve.axis.to_owned(),
        up: format!("{}, {}", curve.name, curve.unit),
        log_across: log,
        // A percentage has a zero.
        log_up: log && curve.unit != "%",
        lines: outcome.columns.iter().map(line).collect(),
    }
}

/// A chart with its key.
pub(super) fn drawn(record: &Record, chart: &Chart) -> Result<Markup> {
    let svg = draw(chart)?;
    Ok(html! {
        figure {
            figcaption { (chart.title) }
            (PreEscaped(svg))
            div.key {
                @for line in chart.lines.iter().filter(|line| !line.points.is_empty()) {
                    span { i style=(colour(record, &line.name)) {} (line.name) }
                }
            }
        }
    })
}

pub(super) fn section(record: &Record) -> Result<Markup> {
    let mut charts = Vec::new();
    for outcome in &record.workloads {
        for curve in curves_of(outcome) {
            let chart = chart(record, outcome, &curve);
            if chart.lines.iter().any(|line| !line.points.is_empty()) {
                // Nothing but zeros has no logarithm.
                charts.extend(drawn(record, &chart).ok());
            }
        }
    }
    Ok(html! {
        @if !charts.is_empty() {
            h2 { "Curves" }
            div.grid { @for chart in &charts { (chart) } }
        }
    })
}
