//! `zdb -b` and `-c`: every block, and every byte of space; `-S`: which blocks are the same.

use engine::error::Error;
use engine::pool::Pool;
use engine::pool::check::{CheckOptions, CheckReport, Finding, SameTotals, TypeTotals};
use serde_json::{Value as Json, json};

use super::Flags;
use crate::session::{Session, complain, say};
use crate::text::json::Object;
use crate::text::units::{nice_bytes, nice_number};

/// What `zdb` exits with when something is wrong.
const WRONG: u8 = 2;

pub(super) fn run(session: &mut Session<'_>, flags: &Flags, pool: &Pool, object: Option<&mut Object>) -> Result<u8, Error> {
    let verify_data = flags.checksum > 1;
    if object.is_none() {
        let mut aims = Vec::new();
        if flags.checksum > 0 {
            aims.push(if verify_data { "verify checksums" } else { "verify metadata checksums" });
        }
        if !flags.no_leaks {
            aims.push("verify nothing leaked");
        }
        say!(session, "\nTraversing all blocks to {} ...\n", aims.join(" and "));
        let _ = session.out.flush();
    }
    let mut report = pool.check(CheckOptions { verify_data, ..CheckOptions::default() }, &|_| {})?;
    if flags.no_leaks {
        report.findings.retain(|finding| !matches!(finding, Finding::Leak { .. }));
    }
    match object {
        Some(object) => drop(object.insert("check".into(), report_json(&report))),
        None => print(session, flags, &report),
    }
    Ok(if report.is_clean() { 0 } else { WRONG })
}

/// `-S`: what deduplication would make of the pool.
pub(super) fn simulate_dedup(session: &mut Session<'_>, pool: &Pool) -> Result<u8, Error> {
    let report = pool.check(CheckOptions { find_same: true, ..CheckOptions::default() }, &|_| {})?;
    let histogram = report.same_blocks.histogram();
    say!(session, "Simulated DDT histogram:\n");
    say!(session, "bucket              allocated                       referenced          ");
    say!(session, "______   {0}   {0}", "_".repeat(30));
    dedup_line(session, ["refcnt", "blocks", "LSIZE", "PSIZE", "DSIZE", "blocks", "LSIZE", "PSIZE", "DSIZE"]);
    dedup_line(session, ["------", "------", "-----", "-----", "-----", "------", "-----", "-----", "-----"]);
    let (mut once, mut all) = (SameTotals::default(), SameTotals::default());
    for (references, of_once, of_all) in &histogram {
        dedup_totals(session, &nice_number(*references), of_once, of_all);
        once.add(*of_once);
        all.add(*of_all);
    }
    if once.blocks > 0 {
        dedup_totals(session, "Total", &once, &all);
        let ratio = |above: u64, below: u64| above as f64 / below as f64;
        let (dedup, compress, copies) = (ratio(all.used, once.used), ratio(all.logical, all.physical), ratio(all.used, all.physical));
        let product = dedup * compress / copies;
        say!(session, "\ndedup = {dedup:.2}, compress = {compress:.2}, copies = {copies:.2}, dedup * compress / copies = {product:.2}");
    }
    say!(session, "");
    // What cannot be read is missing from the table.
    let unreadable: Vec<&Finding> = report.findings.iter().filter(|finding| matches!(finding, Finding::Unreadable { .. })).collect();
    unreadable.iter().for_each(|finding| complain!(session, "zdb: not counted: {finding}"));
    Ok(if unreadable.is_empty() { 0 } else { WRONG })
}

fn dedup_totals(session: &mut Session<'_>, name: &str, once: &SameTotals, all: &SameTotals) {
    let cells = |of: &SameTotals| [nice_number(of.blocks), nice_bytes(of.logical), nice_bytes(of.physical), nice_bytes(of.used)];
    let ([a, b, c, d], [e, f, g, h]) = (cells(once), cells(all));
    dedup_line(session, [name, &a, &b, &c, &d, &e, &f, &g, &h]);
}

fn dedup_line(session: &mut Session<'_>, [name, a, b, c, d, e, f, g, h]: [&str; 9]) {
    say!(session, "{name:>6}   {a:>6}   {b:>5}   {c:>5}   {d:>5}   {e:>6}   {f:>5}   {g:>5}   {h:>5}");
}

fn total(report: &CheckReport) -> TypeTotals {
    let mut sum = TypeTotals::default();
    for totals in report.totals.values() {
        sum.blocks += totals.blocks;
        sum.logical += totals.logical;
        sum.physical += totals.physical;
        sum.allocated += totals.allocated;
    }
    sum
}

fn print(session: &mut Session<'_>, flags: &Flags, report: &CheckReport) {
    for finding in &report.findings {
        say!(session, "{finding}");
    }
    if report.findings_left_out > 0 {
        say!(session, "... and {} more", report.findings_left_out);
    }
    if report.is_clean() && !flags.no_leaks {
        say!(session, "\n\tNo leaks (block sum matches space maps exactly)");
    } else if !report.is_clean() {
        say!(session, "\n\tblock traversal size {} != alloc {}", report.claimed_bytes, report.allocated_bytes);
    }
    let sum = total(report);
    let average = |bytes: u64| bytes / sum.blocks.max(1);
    let against = |bytes: u64| if bytes == 0 { 1.0 } else { sum.logical as f64 / bytes as f64 };
    say!(session, "\n\tbp count:        {:>14}", sum.blocks);
    say!(session, "\tbp logical:      {:>14}      avg: {:>6}", sum.logical, average(sum.logical));
    let (physical, allocated) = (against(sum.physical), against(sum.allocated));
    say!(session, "\tbp physical:     {:>14}      avg: {:>6}     compression: {physical:>6.2}", sum.physical, average(sum.physical));
    say!(session, "\tbp allocated:    {:>14}      avg: {:>6}     compression: {allocated:>6.2}", sum.allocated, average(sum.allocated));
    if flags.blocks > 0 {
        print_types(session, report);
    }
}

fn print_types(session: &mut Session<'_>, report: &CheckReport) {
    say!(session, "\nBlocks\tLSIZE\tPSIZE\tASIZE\tType");
    for ((name, level), totals) in &report.totals {
        let TypeTotals { blocks, logical, physical, allocated } = totals;
        say!(session, "{blocks:>6}\t{logical}\t{physical}\t{allocated}\tL{level} {name}");
    }
}

fn report_json(report: &CheckReport) -> Json {
    let types = report.totals.iter().map(|((name, level), totals)| {
        json!({
            "type": name, "level": level, "blocks": totals.blocks, "logical": totals.logical, "physical": totals.physical,
            "allocated": totals.allocated,
        })
    });
    json!({
        "clean": report.is_clean(),
        "findings": report.findings.iter().map(finding_json).collect::<Vec<_>>(),
        "findings_left_out": report.findings_left_out,
        "blocks": report.blocks,
        "verified": report.verified,
        "datasets": report.datasets,
        "claimed": report.claimed_bytes,
        "allocated": report.allocated_bytes,
        "types": types.collect::<Vec<_>>(),
    })
}

fn finding_json(finding: &Finding) -> Json {
    let kind = match finding {
        Finding::Leak { .. } => "leak",
        Finding::DoubleAllocation { .. } => "double allocation",
        Finding::NotAllocated { .. } => "not allocated",
        Finding::Unreadable { .. } => "unreadable",
        Finding::WrongCopy { .. } => "wrong copy",
        Finding::Accounting { .. } => "accounting",
    };
    let mut json = json!({ "kind": kind, "text": finding.to_string() });
    if let Finding::Leak { vdev, offset, length } | Finding::DoubleAllocation { vdev, offset, length, .. } | Finding::NotAllocated { vdev, offset, length } = finding {
        json["vdev"] = (*vdev).into();
        json["offset"] = (*offset).into();
        json["length"] = (*length).into();
    }
    json
}
