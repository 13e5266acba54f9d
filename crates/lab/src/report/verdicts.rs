//! What a page says of its systems: every figure of every two of them compared, all comparisons judged together.
//!
//! # Theory
//!
//! A table shows the first system against each of the others, and which is first of all, which is not known before: so the
//! comparisons of a page are those of all pairs of systems, in all figures, whether shown or not ([`statistics::judge`]).
//! The first place belongs to the best by its median; those that cannot be told from it share it. A file system that keeps nothing
//! ([`ceiling`]) has no place: it is there to be compared with.
//!
//! Of the times of single operations only one percentile is compared ([`latency::COMPARED`]).

use std::collections::HashMap;
use std::fmt::Write;

use super::words::figure;
use crate::comparator::ceiling;
use crate::record::Record;
use crate::statistics::{self, Comparison, FEWEST, Verdict};
use crate::workload::rounds::{Column, Outcome, Sample};
use crate::workload::{Better, latency, mail};

/// The comparisons of a page.
pub struct Verdicts<'a> {
    /// By workload, figure and the two systems.
    all: HashMap<[&'a str; 4], Comparison>,
}

/// The system that is first in a figure.
#[derive(Debug, Clone, PartialEq)]
pub enum First {
    /// Its name, and how many times better than the next, if that can be said.
    Alone(String, Option<f64>),
    /// Those that cannot be told apart, the one with the best median in front.
    Shared(Vec<String>),
    /// Fewer than two have the figure.
    Nobody,
    TooFewRounds,
}

/// `first` and `other` in the order in which more is better.
fn samples<'a>(first: &'a Sample, other: &'a Sample) -> (&'a [f64], &'a [f64]) {
    match first.better {
        Better::Higher => (&first.values, &other.values),
        Better::Lower => (&other.values, &first.values),
    }
}

/// Judges pairs of samples that stand on one page: of each, how much better its first one is; above 1 it is, whichever way the
/// figure is meant to go.
pub(super) fn judged(pairs: &[(&Sample, &Sample)]) -> Vec<Comparison> {
    statistics::judge(&pairs.iter().map(|(first, other)| samples(first, other)).collect::<Vec<_>>())
}

/// Is it among what is compared? Not what only says how the work was done.
pub(super) fn is_compared(sample: &Sample) -> bool {
    sample.name != mail::LOOKS && sample.percentile.as_ref().is_none_or(|percentile| percentile.name == latency::COMPARED)
}

impl<'a> Verdicts<'a> {
    /// Of all that was measured.
    pub fn of(record: &'a Record) -> Verdicts<'a> {
        let (mut keys, mut pairs) = (Vec::new(), Vec::new());
        for outcome in &record.workloads {
            for name in outcome.figures().into_iter().filter(|sample| is_compared(sample)).map(|sample| sample.name.as_ref()) {
                let sample = |column: &'a Column| column.sample(name).filter(|sample| column.has_every_round(sample));
                let having: Vec<(&str, &Sample)> =
                    outcome.columns.iter().filter_map(|column| Some((column.target.as_str(), sample(column)?))).collect();
                for (place, (first, own)) in having.iter().enumerate() {
                    for (other, its) in &having[place + 1..] {
                        keys.push([outcome.workload.as_str(), name, first, other]);
                        pairs.push((*own, *its));
                    }
                }
            }
        }
        Verdicts { all: keys.into_iter().zip(judged(&pairs)).collect() }
    }

    /// What is to be said of `first` beside `other`.
    pub fn between(&self, outcome: &Outcome, name: &str, first: &str, other: &str) -> Option<Comparison> {
        let found = |first, other| self.all.get(&[outcome.workload.as_str(), name, first, other]).copied();
        found(first, other).or_else(|| found(other, first).map(Comparison::reversed))
    }

    /// The system that does best in the figure called `name`, among those that keep what is written.
    pub fn first(&self, outcome: &Outcome, name: &str) -> First {
        let samples = outcome.columns.iter().filter_map(|column| Some((column, column.sample(name)?)));
        let samples: Vec<(&Column, &Sample)> = samples.filter(|(column, _)| !ceiling::is_one(&column.target)).collect();
        let mut ranked = samples.clone();
        ranked.retain(|(_, sample)| !sample.values.is_empty());
        ranked.sort_by(|(_, one), (_, other)| {
            let (one_median, other_median) = (one.median().unwrap_or(f64::NAN), other.median().unwrap_or(f64::NAN));
            match one.better {
                Better::Higher => other_median.total_cmp(&one_median),
                Better::Lower => one_median.total_cmp(&other_median),
            }
        });
        let [(best, _), others @ ..] = ranked.as_slice() else { return First::Nobody };
        let Some((next, _)) = others.first() else { return First::Nobody };
        // Rounds that are missing may be the fastest ones of all.
        if samples.iter().any(|(column, sample)| !column.has_every_round(sample)) {
            return First::TooFewRounds;
        }
        let against = |other: &Column| self.between(outcome, name, &best.target, &other.target);
        let verdict = |other: &Column| against(other).map_or(Verdict::Unknown, |comparison| comparison.verdict);
        if others.iter().any(|(other, _)| verdict(other) == Verdict::Unknown) {
            return First::TooFewRounds;
        }
        let beside: Vec<String> =
            others.iter().filter(|(other, _)| verdict(other) != Verdict::Above).map(|(other, _)| other.target.clone()).collect();
        if beside.is_empty() {
            return First::Alone(
                best.target.clone(),
                against(next).and_then(|comparison| comparison.factor).map(|factor| factor.value),
            );
        }
        First::Shared([vec![best.target.clone()], beside].concat())
    }

    /// The first system, in words.
    pub(super) fn first_words(&self, outcome: &Outcome, name: &str) -> String {
        match self.first(outcome, name) {
            First::Alone(target, None) => target,
            First::Alone(target, Some(factor)) => format!("{target} {}x", figure(Some(factor))),
            First::Shared(all) => all.join(", "),
            First::Nobody => "-".to_owned(),
            First::TooFewRounds => TOO_FEW.to_owned(),
        }
    }

    /// How many comparisons were judged, and how many were found to differ.
    fn counts(&self) -> (usize, usize) {
        let judged = self.all.values().filter(|comparison| comparison.verdict != Verdict::Unknown).count();
        (judged, self.all.values().filter(|comparison| matches!(comparison.verdict, Verdict::Above | Verdict::Below)).count())
    }

    /// How the verdicts came about, for their readers.
    pub fn words(&self) -> String {
        let mut text = String::from(METHOD);
        let (judged, apart) = self.counts();
        if judged < self.all.len() {
            let few = self.all.len() - judged;
            let _ = write!(text, " {few} comparisons have no verdict: too few rounds (at least {FEWEST} of both).");
        }
        if judged > 0 {
            let _ = write!(
                text,
                " Of {judged} comparisons (each figure, each two file systems) {apart} differ after the correction of Benjamini and Hochberg over all of them: \
                 of those {apart} at most one in twenty is expected to be chance. To be found, a difference that stands alone among so many takes {} rounds.",
                statistics::rounds_for_one(judged)
            );
        }
        text
    }
}

/// Instead of a verdict.
pub(super) const TOO_FEW: &str = "too few rounds";
const METHOD: &str = "A factor is the Hodges-Lehmann estimate of how many times better the one does (below 1: worse), with Moses' 95 % interval for that \
    comparison by itself. Ahead and behind are said where the exact two-sided rank-sum test (Wilcoxon, Mann and Whitney) finds a difference, and it is 5 % \
    or more; else it is a draw: not told apart.";

/// `ahead`, `behind` or `draw`; nothing without a verdict.
pub(super) fn word(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Above => "ahead",
        Verdict::Below => "behind",
        Verdict::Draw => "draw",
        Verdict::Unknown => "",
    }
}

/// The factor with its interval, and the verdict.
pub(super) fn factor_words(comparison: &Comparison) -> String {
    let Some(factor) = comparison.factor else { return word(comparison.verdict).to_owned() };
    let mut text = format!("{}x", figure(Some(factor.value)));
    if let Some((low, high)) = factor.interval.filter(|_| comparison.verdict != Verdict::Unknown) {
        let _ = write!(text, " ({}-{})", figure(Some(low)), figure(Some(high)));
    }
    with_word(text, comparison.verdict)
}

/// The factor and the verdict: a summary has many columns.
pub(super) fn short_words(comparison: &Comparison) -> String {
    match comparison.factor {
        None => word(comparison.verdict).to_owned(),
        Some(factor) => with_word(format!("{}x", figure(Some(factor.value))), comparison.verdict),
    }
}

fn with_word(text: String, verdict: Verdict) -> String {
    match word(verdict) {
        "" => text,
        word => format!("{text} {word}"),
    }
}

#[cfg(test)]
mod tests;
