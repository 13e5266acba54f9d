//! What was counted, as a table: kinds of requests down, work across.

use std::collections::BTreeSet;

use super::trace::Counts;
use super::work::Wanted;

/// What came of a piece of work.
pub(super) struct Row {
    pub(super) name: &'static str,
    pub(super) unit: &'static str,
    pub(super) units: u64,
    pub(super) wanted: Option<Wanted>,
    pub(super) counts: Counts,
    pub(super) seconds: f64,
}

impl Row {
    pub(super) fn all(&self) -> u64 {
        self.counts.values().sum()
    }

    fn each(&self) -> f64 {
        self.all() as f64 / self.units.max(1) as f64
    }

    /// What is wanted, and whether it is so.
    fn wanted(&self) -> String {
        let (words, met) = match self.wanted {
            None => return "-".to_owned(),
            Some(Wanted::InAll(most)) => (format!("{} in all", thousands(most)), self.all() <= most),
            // Programs also look at what leads to their files.
            Some(Wanted::Each(most)) => (format!("{most} each"), self.each() < most + 0.05),
        };
        if met { words } else { format!("{words}: NO") }
    }
}

/// 1234567 as 1,234,567.
fn thousands(number: u64) -> String {
    let digits = number.to_string();
    let with_comma = |(place, digit): (usize, char)| {
        let comma = (place > 0 && (digits.len() - place) % 3 == 0).then_some(',');
        comma.into_iter().chain([digit])
    };
    digits.chars().enumerate().flat_map(with_comma).collect()
}

pub(super) fn table(rows: &[Row]) -> String {
    let of = |title: &str, cell: &dyn Fn(&Row) -> String| -> Vec<String> { [title.to_owned()].into_iter().chain(rows.iter().map(cell)).collect() };
    let kinds: BTreeSet<&String> = rows.iter().flat_map(|row| row.counts.keys()).collect();
    let sum = |kind: &str| rows.iter().filter_map(|row| row.counts.get(kind)).sum::<u64>();
    let mut kinds: Vec<&String> = kinds.into_iter().collect();
    kinds.sort_by_key(|kind| (std::cmp::Reverse(sum(kind)), *kind));
    let mut lines = vec![of("", &|row| row.name.to_owned())];
    for kind in kinds {
        lines.push(of(kind, &|row| row.counts.get(kind).map_or_else(|| "-".to_owned(), |count| thousands(*count))));
    }
    lines.push(of("requests", &|row| thousands(row.all())));
    lines.push(of("of", &|row| if row.units == 1 { format!("1 {}", row.unit) } else { format!("{} {}s", thousands(row.units), row.unit) }));
    lines.push(of("for each", &|row| format!("{:.2}", row.each())));
    lines.push(of("wanted", &Row::wanted));
    lines.push(of("seconds", &|row| format!("{:.3}", row.seconds)));
    lines.push(of("us a request", &|row| if row.all() == 0 { "-".to_owned() } else { format!("{:.1}", row.seconds * 1e6 / row.all() as f64) }));
    let width = |column: usize| lines.iter().map(|line| line[column].len()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..=rows.len()).map(width).collect();
    let line = |line: &Vec<String>| {
        let cells = line.iter().zip(&widths).enumerate();
        let padded = cells.map(|(column, (cell, width))| if column == 0 { format!("{cell:width$}") } else { format!("{cell:>width$}") });
        padded.collect::<Vec<_>>().join("  ").trim_end().to_owned() + "\n"
    };
    lines.iter().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_wanted_stands_beside_what_was_counted() {
        let row = |name, units, wanted, counts: &[(&str, u64)]| Row {
            name,
            unit: "file",
            units,
            wanted,
            counts: counts.iter().map(|(kind, count)| ((*kind).to_owned(), *count)).collect(),
            seconds: 0.5,
        };
        let rows = [
            row("tar -x", 1000, Some(Wanted::Each(4.0)), &[("CREATE", 1000), ("WRITE", 3049)]),
            row("postmark", 10, Some(Wanted::InAll(1_999_999)), &[("WRITE", 2_000_000)]),
            row("rm -r", 1, None, &[]),
        ];
        let expected = "\
                        tar -x           postmark   rm -r
WRITE                    3,049          2,000,000       -
CREATE                   1,000                  -       -
requests                 4,049          2,000,000       0
of                 1,000 files           10 files  1 file
for each                  4.05          200000.00    0.00
wanted                  4 each  1,999,999 in all: NO      -
seconds                  0.500              0.500   0.500
us a request             123.5                0.2       -
";
        let squeezed = |text: &str| text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect::<Vec<_>>();
        assert_eq!(squeezed(&table(&rows)), squeezed(expected));
        let lengths: Vec<usize> = table(&rows).lines().map(str::len).collect();
        assert!(lengths.iter().all(|length| *length == lengths[0]), "{lengths:?}");
        assert!(!table(&[row("stat", 4000, Some(Wanted::Each(0.0)), &[("LOOKUP", 2)])]).contains("NO"), "a few on the way there");
        assert!(table(&[row("stat", 4000, Some(Wanted::Each(0.0)), &[("LOOKUP", 400)])]).contains("NO"));
    }
}
