//! `zdb`: looks at pools from outside, read-only.
//!
//! # Theory
//!
//! An inspector must not trust what it inspects: labels are read from the devices one by one (`-l`), and a pool is
//! opened without changing it, for its configuration (`-C`), uberblock (`-u`), datasets (`-d`) and, block by block, for
//! leaks and wrong checksums (`-b`, `-c`). It is the one command that uses the engine itself.
//!
//! One dataset can be named, and objects of it by number; given several times, `-d` shows more of each.
//!
//! The text is laid out as OpenZFS's `zdb` lays it out where that has the same thing to say; `--json` has the same
//! data for programs.

mod bookmark;
mod check;
mod label;
pub(crate) mod nvlist;
mod objects;
mod pool;
mod ranges;
mod raw;
mod zap;
mod znode;

use std::path::PathBuf;

use tarnfs::control::MACHINE_CACHEFILE;

use crate::session::{Session, Stop, complain};
use crate::text::getopt::{Long, Options};
use crate::zpool::spec::cachefile::{self, Cached};

const LONG: &[Long] = &[
    ("block-stats", 'b'),
    ("checksum", 'c'),
    ("config", 'C'),
    ("datasets", 'd'),
    ("exported", 'e'),
    ("label", 'l'),
    ("disable-leak-tracking", 'L'),
    ("checkpointed-state", 'k'),
    ("parseable", 'P'),
    ("skip-label", 'q'),
    ("uberblock", 'u'),
    ("verbose", 'v'),
    ("history", 'h'),
    ("metaslabs", 'm'),
    ("object-lookups", 'O'),
    ("read-block", 'R'),
    ("embedded-block-pointer", 'E'),
    ("simulate-dedup", 'S'),
    ("intent-logs", 'i'),
    ("zstd-headers", 'Z'),
    ("json", 'j'),
];

/// `-O` shows as much of an object as `-ddd`.
const PATH_DETAIL: u32 = 3;

/// What it says about itself.
pub(crate) const USAGE: &str = "Usage:\tzdb [-bcCdhikLmPSuvZ] [--json] [-U <cache>] [-e [-p <path> ...]] [<poolname>[/<dataset>] [<object> ...]]
\tzdb [-v] [-e [-p <path> ...]] <dataset>#<bookmark>
\tzdb -O [-v] [-e [-p <path> ...]] <dataset> <path>
\tzdb -R [-e [-p <path> ...]] <poolname> <vdev>:<offset>:<size>[:<flags>] ...
\tzdb -E <word0>:...:<word15>
\tzdb -l [-qu] [--json] <device> ...

    Options to control amount of output:
        -b --block-stats             block statistics, leaks; six times: whole block pointers
        -c --checksum                checksum all metadata (twice: all data) blocks
        -C --config                  config
        -d --datasets                dataset(s); -dd objects, -dddd what they hold, -ddddd blocks
        -E --embedded-block-pointer  what an embedded block pointer holds
        -h --history                 pool history
        -i --intent-logs             heads of intent logs
        -l --label                   read label contents
        -m --metaslabs               metaslabs
        -O --object-lookups          the object of a path; -v: more of it
        -R --read-block              read and show blocks; flags: b c d e g i r v
        -S --simulate-dedup          simulate dedup to measure effect
        -u --uberblock               uberblock
        -v --verbose                 verbose (applies to all others)
        -Z --zstd-headers            with block pointers: headers of blocks that zstd compressed
    Below options are intended for use with other options:
        -e --exported                pool is not imported
        -p PATH                      look for its devices here
        -U PATH                      its devices are where this cache file says; without a pool: show the file (-C)
        -k --checkpointed-state      the pool as its checkpoint keeps it
        -L --disable-leak-tracking   disable leak tracking
        -P --parseable               print numbers in parseable form
        -q --skip-label              don't print label contents
           --json                    print JSON
";

/// What is to be shown. Some options count how often they are given.
#[derive(Debug, Default)]
struct Flags {
    blocks: u32,
    checksum: u32,
    config: bool,
    datasets: u32,
    verbose: u32,
    history: u32,
    metaslabs: bool,
    /// The object that a path leads to.
    path: bool,
    read_block: bool,
    embedded: bool,
    simulate_dedup: bool,
    /// The heads of intent logs.
    logs: bool,
    zstd_headers: bool,
    /// Where the devices are, and what is shown of it.
    cache_file: Option<String>,
    /// `-x`, `-r`...: named by the letter when it is used.
    unknown: Option<char>,
    force: bool,
    /// The pool as its checkpoint keeps it.
    checkpointed: bool,
    exported: bool,
    paths: Vec<PathBuf>,
    labels: u32,
    no_leaks: bool,
    exact: bool,
    quiet: bool,
    uberblock: u32,
    json: bool,
}

impl Flags {
    fn choose_something(&self) -> bool {
        let shown = self.config || self.datasets > 0 || self.uberblock > 0 || self.labels > 0 || self.history > 0 || self.metaslabs;
        shown || self.blocks > 0 || self.checksum > 0 || self.read_block || self.embedded || self.path || self.simulate_dedup || self.logs
    }

    /// Nothing was chosen: that is all. Of that, what JSON has.
    fn choose_everything(&mut self) {
        self.config = true;
        (self.blocks, self.datasets, self.uberblock) = (1, 1, 1);
        if !self.json {
            (self.metaslabs, self.checksum, self.history) = (true, 1, 1);
        }
    }
}

/// Runs the command; the words are those after its name.
pub(crate) fn run(session: &mut Session<'_>, words: &[String]) -> u8 {
    match run_parsed(session, words) {
        Ok(code) | Err(Stop::Code(code)) => code,
        Err(Stop::Usage) => {
            complain!(session, "{}", USAGE.trim_end());
            2
        }
    }
}

fn parse(session: &mut Session<'_>, words: &[String]) -> Result<(Flags, Vec<String>), Stop> {
    let mut flags = Flags::default();
    let mut options = Options::new(words, "AbcCdDeEFGhiklLmMNOp:PqRrsSuvXyZU:t:o:I:T:B:K:", LONG);
    for option in options.by_ref() {
        let (letter, argument) = option.map_err(|wrong| session.misuse(format_args!("zdb: {wrong}")))?;
        match letter {
            'b' => flags.blocks += 1,
            'c' => flags.checksum += 1,
            'C' => flags.config = true,
            'd' => flags.datasets += 1,
            'v' => flags.verbose += 1,
            'h' => flags.history += 1,
            'm' => flags.metaslabs = true,
            'O' => flags.path = true,
            'R' => flags.read_block = true,
            'E' => flags.embedded = true,
            'F' | 'G' | 'A' | 'o' | 'I' => flags.force = true,
            'S' => flags.simulate_dedup = true,
            'i' => flags.logs = true,
            'U' => flags.cache_file = argument,
            'Z' => flags.zstd_headers = true,
            'k' => flags.checkpointed = true,
            't' | 'M' | 'r' | 'X' | 'y' | 's' | 'D' | 'T' | 'B' | 'K' | 'N' => flags.unknown = Some(letter),
            'e' => flags.exported = true,
            'l' => flags.labels += 1,
            'L' => flags.no_leaks = true,
            'p' => flags.paths.push(argument.unwrap_or_default().into()),
            'P' => flags.exact = true,
            'q' => flags.quiet = true,
            'u' => flags.uberblock += 1,
            'j' => flags.json = true,
            _ => {}
        }
    }
    if let Some(letter) = flags.unknown {
        complain!(session, "zdb: option '{letter}' is not yet supported by this version of tarn");
        return Err(Stop::Code(1));
    }
    if !flags.choose_something() {
        flags.choose_everything();
    }
    if flags.path {
        flags.datasets = PATH_DETAIL;
    }
    // What was asked for is shown in as much more detail.
    for count in [&mut flags.blocks, &mut flags.checksum, &mut flags.datasets, &mut flags.uberblock, &mut flags.labels, &mut flags.history] {
        if *count > 0 {
            *count += flags.verbose;
        }
    }
    Ok((flags, options.operands()))
}

fn run_parsed(session: &mut Session<'_>, words: &[String]) -> Result<u8, Stop> {
    let (mut flags, operands) = parse(session, words)?;
    if flags.labels > 0 {
        if operands.is_empty() {
            return Err(Stop::Usage);
        }
        return Ok(operands.iter().map(|device| label::run(session, &flags, device)).fold(0, u8::max));
    }
    if !flags.exported && !flags.paths.is_empty() {
        return Err(session.misuse("-p option requires use of -e"));
    }
    // Without a pool the configurations of all are shown, as they are on the machine.
    let usual = (operands.is_empty() && flags.config && !flags.exported && !flags.json).then(|| MACHINE_CACHEFILE.to_owned());
    if let Some(path) = flags.cache_file.clone().or(usual) {
        let all = cachefile::load(&path).map_err(|words| {
            complain!(session, "zdb: {path}: {words}");
            Stop::Code(1)
        })?;
        if operands.is_empty() && flags.config {
            session.print(format_args!("{}", nvlist::text(&all, 0)));
            return Ok(0);
        }
        flags.paths.extend(Cached::of(&all).map(|cached| cached.places()).unwrap_or_default());
    }
    match operands.as_slice() {
        [words] if flags.embedded => Ok(raw::embedded(session, words)),
        [name, path] if flags.path => pool::show_path(session, &flags, name, path),
        [name, blocks @ ..] if flags.read_block && !blocks.is_empty() => pool::read_blocks(session, &flags, name, blocks),
        _ if flags.path || flags.read_block || flags.embedded => Err(Stop::Usage),
        [name, objects @ ..] => pool::run(session, &flags, name, objects),
        _ => Err(Stop::Usage),
    }
}

/// A name as it can be shown on a line.
fn shown_name(name: &str) -> String {
    if name.chars().any(char::is_control) { name.escape_debug().to_string() } else { name.to_owned() }
}

#[cfg(test)]
mod tests;
