//! `zpool iostat`
//!
//! # Theory
//!
//! The daemon counts from the moment of the import and never starts again. The first table has the averages since then; each
//! further one what was counted since the table before, by the second. What a vdev does is the sum of what the devices below
//! it do. The columns of `-l` and `-q` and the histograms of `-w` and `-r` are in [`super::iostat_requests`].

use std::collections::BTreeMap;

use tarnfs::control::{PoolStatus, VdevKind, VdevStats, VdevStatus};

use super::iostat_requests::{Histogram, LATENCY_TITLES, QUEUE_TITLES, Title, latencies, queues};
use super::status::{is_listed_apart, is_ordinary};
use crate::session::{Outcome, Session, Stop, complain, say};
use crate::text::getopt::Options;
use crate::text::units::{nice_number, nice_time};
use crate::zpool::spec::pools::{self, Timestamp};
use crate::zpool::spec::vdev_name::{CLASSES, Naming};

const NAME_WIDTH_MIN: usize = 10;
const TITLES: [Title; 3] =
    [("capacity", &["alloc", "free"]), ("operations", &["read", "write"]), ("bandwidth", &["read", "write"])];

#[derive(Default)]
struct Flags {
    naming: Naming,
    scripted: bool,
    exact: bool,
    verbose: bool,
    skip_first: bool,
    heading_once: bool,
    latency: bool,
    queues: bool,
    histogram: Option<Histogram>,
    timestamp: Timestamp,
    /// Only these vdevs.
    vdevs: Vec<String>,
}

impl Flags {
    /// The groups of columns: their titles, and how wide each column is.
    fn groups(&self) -> Vec<(&'static [Title], usize)> {
        let wide = |exact| if self.exact { exact } else { 5 };
        let mut groups: Vec<(&'static [Title], usize)> = vec![(&TITLES, wide(15))];
        if self.latency {
            groups.push((&LATENCY_TITLES, wide(10)));
        }
        if self.queues {
            groups.push((&QUEUE_TITLES, wide(6)));
        }
        groups
    }

    /// The width of each column.
    fn widths(&self) -> Vec<usize> {
        let columns = |titles: &[Title]| titles.iter().map(|(_, columns)| columns.len()).sum::<usize>();
        self.groups().into_iter().flat_map(|(titles, width)| vec![width; columns(titles)]).collect()
    }

    fn title(&self) -> &'static str {
        match &self.histogram {
            Some(histogram) => histogram.title(),
            None if self.vdevs.is_empty() => "pool",
            None => "vdev",
        }
    }
}

fn parse(session: &mut Session<'_>, words: &[String]) -> Result<(Flags, Vec<String>), Stop> {
    let mut flags = Flags::default();
    let mut options = Options::new(words, "c:gLPT:vyhplqrwnH", &[]);
    for option in options.by_ref() {
        let (letter, argument) = option.map_err(|wrong| session.misuse(wrong))?;
        match letter {
            'g' => flags.naming.guid = true,
            'L' => flags.naming.follow = true,
            'P' => flags.naming.path = true,
            'H' => flags.scripted = true,
            'p' => flags.exact = true,
            'v' => flags.verbose = true,
            'y' => flags.skip_first = true,
            'T' => flags.timestamp = pools::parse_timestamp(session, &argument.unwrap_or_default())?,
            'n' => flags.heading_once = true,
            'l' => flags.latency = true,
            'q' => flags.queues = true,
            'w' | 'r' => {
                let histogram = if letter == 'w' { Histogram::Wait } else { Histogram::Size };
                if flags.histogram.as_ref().is_some_and(|other| *other != histogram) {
                    return Err(session.misuse("Only one of [-r|-w] can be passed at a time"));
                }
                flags.histogram = Some(histogram);
            }
            'h' => return Err(Stop::Usage),
            letter => {
                complain!(session, "zpool iostat: option '{letter}' is not yet supported by this version of tarn: it runs no programs of others");
                return Err(Stop::Code(1));
            }
        }
    }
    if flags.histogram.is_some() && (flags.latency || flags.queues) {
        complain!(session, "[-r|-w] isn't allowed with [-c|-l|-q]");
        return Err(Stop::Usage);
    }
    Ok((flags, options.operands()))
}

/// Takes the vdevs from the end of the operands: what remains are pools.
fn take_vdevs(session: &mut Session<'_>, flags: &mut Flags, operands: &mut Vec<String>) -> Result<(), Stop> {
    let all = pools::statuses(session, &[]).0;
    let is_pool = |word: &String| all.iter().any(|status| status.name == *word);
    let knows = |status: &PoolStatus, word: &str| names(flags.naming, &status.root, &status.name).iter().any(|name| name == word);
    if operands.iter().all(is_pool) {
        return Ok(());
    }
    if operands.iter().all(|word| all.iter().any(|status| knows(status, word))) {
        flags.vdevs = std::mem::take(operands);
        return Ok(());
    }
    if let Some(status) = all.iter().find(|status| status.name == operands[0]) {
        if operands[1..].iter().all(|word| knows(status, word)) {
            flags.vdevs = operands.split_off(1);
            return Ok(());
        }
        complain!(session, "Expected either a list of pools, or list of vdevs in \"{}\", but got:", status.name);
        for word in &operands[1..] {
            let what = match () {
                () if is_pool(word) => "pool",
                () if knows(status, word) => "vdev in this pool",
                () if all.iter().any(|status| knows(status, word)) => "vdev in another pool",
                () => "unknown",
            };
            complain!(session, "\t{word} ({what})");
        }
        complain!(session, "");
        return Err(Stop::Usage);
    }
    complain!(session, "Unable to parse pools/vdevs list.\n");
    for word in operands.iter().filter(|word| !is_pool(word)) {
        session.hint(format!("'{word}' is no pool that is imported, and no device of one"));
    }
    Err(Stop::Code(1))
}

fn names(naming: Naming, vdev: &VdevStatus, pool: &str) -> Vec<String> {
    let mut all = vec![naming.name(vdev, pool)];
    // A device may be named by the end of its path.
    all.extend(vdev.path.as_ref().and_then(|path| path.rsplit('/').next()).map(str::to_owned));
    vdev.children.iter().for_each(|child| all.extend(names(naming, child, pool)));
    all
}

pub(in crate::zpool) fn run(session: &mut Session<'_>, words: &[String]) -> Outcome {
    let (mut flags, mut operands) = parse(session, words)?;
    let mut interval = pools::take_interval(session, &mut operands)?;
    if !operands.is_empty() {
        take_vdevs(session, &mut flags, &mut operands)?;
    }
    flags.verbose |= !flags.vdevs.is_empty();
    let mut before: BTreeMap<u64, VdevStats> = BTreeMap::new();
    let mut round = 0;
    let mut pools_before = Vec::new();
    let (mut statuses, code) = pools::statuses(session, &operands);
    loop {
        if statuses.is_empty() {
            complain!(session, "no pools available");
            if interval.is_none() {
                return Ok(1);
            }
            pools_before.clear();
        } else {
            let pools: Vec<u64> = statuses.iter().map(|status| status.guid).collect();
            if pools_before != pools {
                (round, pools_before) = (0, pools);
                before.clear();
            }
            round += 1;
            let skipped = flags.skip_first && round == 1;
            if !skipped {
                let repeated = flags.verbose && !flags.heading_once;
                let heading = round == 1 || repeated || (flags.skip_first && round == 2);
                print(session, &flags, &statuses, &before, heading);
            }
            statuses.iter().for_each(|status| remember(&status.root, status.root.stats.age_ns, &mut before));
            if skipped {
                let _ = session.out.flush();
                pools::pause(session, interval.as_ref());
                statuses = still_there(session, &operands);
                continue;
            }
        }
        if !pools::next_round(session, &mut interval) {
            return Ok(code);
        }
        statuses = still_there(session, &operands);
    }
}

/// The pools named, or all, that are imported now: what is watched may be exported, and come back.
fn still_there(session: &mut Session<'_>, named: &[String]) -> Vec<PoolStatus> {
    let (mut statuses, _) = pools::statuses(session, &[]);
    statuses.retain(|status| named.is_empty() || named.contains(&status.name));
    statuses
}

fn remember(vdev: &VdevStatus, age_ns: u64, before: &mut BTreeMap<u64, VdevStats>) {
    before.insert(vdev.guid, VdevStats { age_ns, ..vdev.stats.clone() });
    vdev.children.iter().for_each(|child| remember(child, age_ns, before));
}

fn print(session: &mut Session<'_>, flags: &Flags, statuses: &[PoolStatus], before: &BTreeMap<u64, VdevStats>, heading: bool) {
    let name_width = |status: &PoolStatus| if flags.verbose { flags.naming.width(status, &status.name) } else { status.name.len() };
    let width = statuses.iter().map(name_width).fold(NAME_WIDTH_MIN, usize::max);
    if let Some(text) = flags.timestamp.text(session) {
        say!(session, "{text}");
    }
    if heading && !flags.scripted && flags.histogram.is_none() {
        print_heading(session, flags, width);
    }
    for status in statuses {
        let mut table = Table { flags, before, width, age_ns: status.root.stats.age_ns, pool: &status.name };
        let lines = table.print_vdev(session, &status.root, 0) + table.print_caches(session, &status.caches);
        if lines > 0 && flags.verbose && flags.vdevs.is_empty() && !flags.scripted && flags.histogram.is_none() {
            separator(session, flags, width, None);
        }
    }
    if !flags.scripted && flags.histogram.is_none() && ((statuses.len() > 1 && !flags.verbose) || !flags.vdevs.is_empty()) {
        separator(session, flags, width, None);
    }
}

fn print_heading(session: &mut Session<'_>, flags: &Flags, width: usize) {
    let mut lines = [format!("{:width$}", ""), format!("{:<width$}", flags.title())];
    for (titles, cell) in flags.groups() {
        add_titles(&mut lines, titles, cell);
    }
    lines.iter().for_each(|line| say!(session, "{line}"));
    separator(session, flags, width, None);
}

/// Titles, each over its columns, which are `cell` wide.
fn add_titles([upper, lower]: &mut [String; 2], titles: &[Title], cell: usize) {
    for (title, columns) in titles {
        columns.iter().for_each(|column| lower.push_str(&format!("  {column:>cell$}")));
        if title.is_empty() {
            continue;
        }
        let all = columns.len() * cell + 2 * (columns.len() - 1);
        let begin = (all / columns.len()).saturating_sub(title.len() / columns.len());
        upper.push_str(&format!("  {:begin$}{title:<rest$}", "", rest = all.saturating_sub(begin)));
    }
}

/// A line of dashes, or the name of a class of vdevs in such a line.
fn separator(session: &mut Session<'_>, flags: &Flags, width: usize, class: Option<&str>) {
    let mut line = match class {
        Some(class) => format!("{class:<width$}"),
        None => "-".repeat(width.max(flags.title().len())),
    };
    for cell in flags.widths() {
        match class {
            Some(_) => line.push_str(&format!("  {:>cell$}", "-")),
            None => line.push_str(&format!("  {}", "-".repeat(cell))),
        }
    }
    say!(session, "{line}");
}

struct Table<'a> {
    flags: &'a Flags,
    before: &'a BTreeMap<u64, VdevStats>,
    width: usize,
    age_ns: u64,
    pool: &'a str,
}

impl Table<'_> {
    /// Prints the cache devices; returns how many lines those were.
    fn print_caches(&mut self, session: &mut Session<'_>, caches: &[VdevStatus]) -> usize {
        if !self.flags.verbose || caches.is_empty() {
            return 0;
        }
        if !self.flags.scripted && self.flags.vdevs.is_empty() && self.flags.histogram.is_none() {
            separator(session, self.flags, self.width, Some("cache"));
        }
        caches.iter().map(|cache| self.print_vdev(session, cache, 2)).sum()
    }

    /// Prints a vdev and, if asked for, those below it; returns how many lines those were.
    fn print_vdev(&mut self, session: &mut Session<'_>, vdev: &VdevStatus, depth: usize) -> usize {
        let name = self.flags.naming.name(vdev, self.pool);
        let short = vdev.path.as_ref().and_then(|path| path.rsplit('/').next());
        let is_chosen = self.flags.vdevs.iter().any(|wanted| *wanted == name || Some(wanted.as_str()) == short);
        let mut lines = 0;
        if self.flags.vdevs.is_empty() || is_chosen {
            let depth = if is_chosen { 0 } else { depth };
            self.print_line(session, vdev, &name, depth);
            lines += 1;
        }
        if !self.flags.verbose {
            return lines;
        }
        for child in vdev.children.iter().filter(|child| is_ordinary(vdev, child)) {
            lines += self.print_vdev(session, child, depth + 2);
        }
        if vdev.kind != VdevKind::Root {
            return lines;
        }
        for (class, title) in CLASSES {
            let mut children = vdev.children.iter().filter(|child| is_listed_apart(child, class)).peekable();
            let separate = !self.flags.scripted && self.flags.vdevs.is_empty() && self.flags.histogram.is_none();
            if children.peek().is_some() && separate {
                separator(session, self.flags, self.width, Some(title));
            }
            for child in children {
                lines += self.print_vdev(session, child, depth + 2);
            }
        }
        lines
    }

    fn print_line(&self, session: &mut Session<'_>, vdev: &VdevStatus, name: &str, depth: usize) {
        let stats = &vdev.stats;
        let none = VdevStats::default();
        let before = self.before.get(&vdev.guid).unwrap_or(&none);
        let elapsed = self.age_ns.saturating_sub(before.age_ns);
        let scale = if elapsed == 0 { 1.0 } else { 1e9 / elapsed as f64 };
        if let Some(histogram) = self.flags.histogram {
            // Without a table before it, a histogram has everything since the import.
            let scale = if before.age_ns == 0 { 1.0 } else { scale };
            self.print_histogram(session, &histogram.columns(stats, before, scale), histogram, name);
            return;
        }
        let rate = |now: u64, before: u64| (now.saturating_sub(before) as f64 * scale) as u64;
        let text = |number: u64| if self.flags.exact { number.to_string() } else { nice_number(number) };
        let space = |number: u64| match (stats.space, self.flags.exact) {
            (0, true) => "0".to_owned(),
            (0, false) => "-".to_owned(),
            _ => text(number),
        };
        let mut cells = vec![
            space(stats.allocated),
            space(stats.space.saturating_sub(stats.allocated)),
            text(rate(stats.reads, before.reads)),
            text(rate(stats.writes, before.writes)),
            text(rate(stats.read_bytes, before.read_bytes)),
            text(rate(stats.written_bytes, before.written_bytes)),
        ];
        if self.flags.latency {
            let time = |number: u64| if self.flags.exact && number > 0 { number.to_string() } else { nice_time(number) };
            cells.extend(latencies(stats, before).map(time));
        }
        if self.flags.queues {
            cells.extend(queues(stats).map(text));
        }
        if self.flags.scripted {
            say!(session, "{name}\t{}", cells.join("\t"));
            return;
        }
        let width = self.width;
        let cells: String = cells.iter().zip(self.flags.widths()).map(|(text, cell)| format!("  {text:>cell$}")).collect();
        say!(session, "{:<width$}{cells}", format!("{:depth$}{name}", ""));
    }

    fn print_histogram(&self, session: &mut Session<'_>, columns: &[Vec<u64>], histogram: Histogram, name: &str) {
        let largest = columns.iter().flatten().max().copied().unwrap_or(0);
        let cell = if self.flags.exact { 5.max(largest.to_string().len()) } else { 5 };
        let width = self.width.max(histogram.title().len());
        say!(session, "");
        if self.flags.scripted {
            say!(session, "{name}");
        } else {
            let mut lines = [format!("{name:<width$}"), format!("{:<width$}", histogram.title())];
            add_titles(&mut lines, histogram.titles(), cell);
            lines.iter().for_each(|line| say!(session, "{line}"));
            let dashes: String = columns.iter().map(|_| format!("  {}", "-".repeat(cell))).collect();
            say!(session, "{}{dashes}", "-".repeat(width));
        }
        for bucket in histogram.buckets() {
            let text = |column: &Vec<u64>| match (column[bucket], self.flags.exact) {
                (number, true) => number.to_string(),
                (number, false) => nice_number(number),
            };
            if self.flags.scripted {
                let cells: String = columns.iter().map(|column| format!("\t{}", text(column))).collect();
                say!(session, "{}{cells}", histogram.bound(bucket));
            } else {
                let cells: String = columns.iter().map(|column| format!("  {:>cell$}", text(column))).collect();
                say!(session, "{:<width$}{cells}", histogram.label(bucket));
            }
        }
        if !self.flags.scripted {
            say!(session, "{}", "-".repeat(width + columns.len() * (cell + 2)));
        }
    }
}
