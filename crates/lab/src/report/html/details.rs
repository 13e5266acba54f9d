//! Every figure of every workload, with its rounds: what the rest of the page is made from.

use maud::{Markup, html};

use super::{beside_first, better_words, figure, first_words};
use crate::record::Record;
use crate::report::verdicts::Verdicts;
use crate::report::words::{COSTS, PERCENTILES, median_cost, percentile_words, spread_words};
use crate::watch::DeviceUse;
use crate::workload::rounds::{Column, Outcome, Sample};

fn published(outcome: &Outcome, name: &str) -> String {
    let of = outcome.published.iter().filter(|published| published.figure == name);
    of.map(|published| format!("{} {}", published.system, figure(Some(published.value)))).collect::<Vec<_>>().join(", ")
}

fn table(record: &Record, verdicts: &Verdicts<'_>, outcome: &Outcome) -> Markup {
    let has_published = !outcome.published.is_empty();
    html! {
        div.wide { table {
            thead { tr {
                th { "figure" }
                @for system in &record.systems { th { (system.name) } }
                th { "first" } th { "" }
                @if has_published { th { "published" } }
            } }
            tbody {
                @for sample in outcome.rates() {
                    tr {
                        td { (sample.name) ", " (sample.unit) }
                        @for (place, system) in record.systems.iter().enumerate() {
                            @let own = outcome.sample(&system.name, &sample.name);
                            td {
                                (figure(own.and_then(Sample::median))) span.quiet { (spread_words(own)) }
                                (beside_first(record, verdicts, outcome, &sample.name, place))
                            }
                        }
                        td { (first_words(verdicts, outcome, &sample.name)) }
                        td.quiet { (better_words(sample.better)) }
                        @if has_published { td { (published(outcome, &sample.name)) } }
                    }
                }
                @for (percentile, sample) in outcome.timed() {
                    tr {
                        td { (percentile.of) br; small { (PERCENTILES) ", " (sample.unit) } }
                        @for (place, system) in record.systems.iter().enumerate() {
                            td {
                                (percentile_words(outcome.column(&system.name), &percentile.of))
                                (beside_first(record, verdicts, outcome, &sample.name, place))
                            }
                        }
                        td { (first_words(verdicts, outcome, &sample.name)) }
                        td.quiet { (better_words(sample.better)) ", by p99" }
                        @if has_published { td {} }
                    }
                }
                @for (name, of) in COSTS.into_iter().filter(|(_, of)| outcome.columns.iter().any(|column| median_cost(column, *of).is_some())) {
                    tr {
                        td.quiet { (name) }
                        @for system in &record.systems {
                            td { (figure(outcome.column(&system.name).and_then(|column| median_cost(column, of)))) }
                        }
                        td {} td.quiet { "cost" }
                        @if has_published { td {} }
                    }
                }
            }
        } }
    }
}

fn rounds(outcome: &Outcome) -> Markup {
    html! {
        details {
            summary { "every round" }
            div.wide { table {
                thead { tr { th { "target" } th { "figure" } th { "rounds" } } }
                tbody {
                    @for column in &outcome.columns {
                        @for sample in &column.samples {
                            tr {
                                td { (column.target) } td { (sample.name) ", " (sample.unit) }
                                td { (sample.values.iter().map(|value| figure(Some(*value))).collect::<Vec<_>>().join("  ")) }
                            }
                        }
                    }
                }
            } }
        }
    }
}

fn device_rows(column: &Column) -> Vec<&DeviceUse> {
    column.devices.last().map(|devices| devices.iter().collect()).unwrap_or_default()
}

fn devices(outcome: &Outcome) -> Markup {
    if outcome.columns.iter().all(|column| device_rows(column).is_empty()) {
        return html! {};
    }
    html! {
        details {
            summary { "disks, averages of the last round" }
            div.wide { table {
                thead { tr { th { "target" } th { "device" } th { "r/s" } th { "w/s" } th { "kr/s" } th { "kw/s" } th { "actv" } th { "asvc_t" } th { "%b" } } }
                tbody {
                    @for column in &outcome.columns {
                        @for device in device_rows(column) {
                            tr {
                                td { (column.target) } td { (device.device) }
                                @for value in [
                                    device.reads_per_second, device.writes_per_second, device.read_kilobytes_per_second,
                                    device.written_kilobytes_per_second, device.active, device.service_milliseconds, device.busy_percent,
                                ] { td { (figure(Some(value))) } }
                            }
                        }
                    }
                }
            } }
        }
    }
}

fn workload(record: &Record, verdicts: &Verdicts<'_>, outcome: &Outcome) -> Markup {
    html! {
        h3 id=(outcome.workload) { (outcome.workload) }
        p { (outcome.about) }
        p.quiet {
            @for setting in &outcome.parameters { (setting.name) " " (setting.value) "; " }
            "seed " (outcome.plan.seed)
            @if outcome.plan.scale > 1 { "; sizes 1/" (outcome.plan.scale) " of the published ones" }
        }
        (table(record, verdicts, outcome))
        @for column in &outcome.columns {
            @for remark in &column.remarks { p.quiet { (column.target) ": " (remark) } }
            @if let Some(failure) = &column.failure { p.bad { (column.target) " failed: " (failure) } }
        }
        (rounds(outcome))
        (devices(outcome))
    }
}

pub(super) fn section(record: &Record, verdicts: &Verdicts<'_>) -> Markup {
    html! {
        h2 { "The file systems" }
        ul {
            @for system in &record.systems {
                li {
                    b { (system.name) } ": " (system.description)
                    @for (name, value) in &system.facts { br; span.quiet { (name) ": " code { (value) } } }
                }
            }
        }
        h2 { "Every figure" }
        @for outcome in &record.workloads { (workload(record, verdicts, outcome)) }
    }
}
