//! bonnie++, the real one: its columns, from the line of comma-separated values that it prints.

use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use super::{Figure, Parameter, Parameters, Published, Round, Workload, described};
use crate::process;

/// The workload.
pub struct Bonnie {
    parameters: Parameters,
}

const PARAMETERS: [Parameter; 4] = [
    Parameter::scaled("megabytes", "size of the file; bonnie++ wants twice the memory that caches", 16 << 10, 16).at_most(1 << 30),
    Parameter::scaled("memory", "MB of memory that bonnie++ is told of", 8 << 10, 8).at_most(1 << 30),
    Parameter::scaled("characters", "MB that are written and read byte by byte, a call each; 0: none", 20, 0).at_most(1 << 30),
    Parameter::scaled("files", "small files that are made, looked at and removed, in units of 1024", 16, 1).at_most(1 << 20),
];

/// What is printed instead of a figure when it went too fast.
const TOO_FAST: &str = "+++";

/// A column: its place in the line, its name, its unit, what one of the printed is of that.
const COLUMNS: [(usize, &str, &str, f64); 12] = [
    (11, "sequential output, blocks", "MB/s", 1.0 / 1024.0),
    (9, "sequential output, characters", "MB/s", 1.0 / 1024.0),
    (13, "rewrite", "MB/s", 1.0 / 1024.0),
    (17, "sequential input, blocks", "MB/s", 1.0 / 1024.0),
    (15, "sequential input, characters", "MB/s", 1.0 / 1024.0),
    (19, "random seeks", "/s", 1.0),
    (26, "files created in sequence", "/s", 1.0),
    (28, "files looked at in sequence", "/s", 1.0),
    (30, "files removed in sequence", "/s", 1.0),
    (32, "files created at random", "/s", 1.0),
    (34, "files looked at at random", "/s", 1.0),
    (36, "files removed at random", "/s", 1.0),
];

/// The same for what took longest.
const LATENCIES: [(usize, &str); 4] =
    [(39, "longest write of a block"), (40, "longest rewrite of a block"), (42, "longest read of a block"), (43, "longest seek")];

/// `31225us`, `29ms` or `2s` in microseconds.
fn latency(word: &str) -> Option<f64> {
    let (digits, factor) = match word {
        word if word.ends_with("us") => (&word[..word.len() - 2], 1.0),
        word if word.ends_with("ms") => (&word[..word.len() - 2], 1000.0),
        _ => (word.strip_suffix('s')?, 1e6),
    };
    digits.parse::<f64>().ok().map(|number| number * factor)
}

/// The figures of a line, and what was too fast to be one.
fn parse(output: &str) -> Result<(Vec<Figure>, Vec<&'static str>)> {
    let mut reader = csv::ReaderBuilder::new().has_headers(false).flexible(true).from_reader(output.as_bytes());
    let line =
        reader.records().filter_map(Result::ok).find(|line| line.len() > 43).context("bonnie++ printed no line of values")?;
    ensure!(
        line.get(0).is_some_and(|version| version.starts_with("1.9")),
        "bonnie++ prints its values in another format: {:?}",
        line.get(0)
    );
    let (mut figures, mut too_fast) = (Vec::new(), Vec::new());
    for (index, name, unit, factor) in COLUMNS {
        let word = line.get(index).unwrap_or_default();
        match word.parse::<f64>() {
            Ok(value) => figures.push(Figure::rate(name, unit, value * factor)),
            // It has no number, and is known as one that had none in this round.
            Err(_) if word.starts_with(TOO_FAST) => {
                figures.push(Figure::rate(name, unit, f64::INFINITY));
                too_fast.push(name);
            }
            Err(_) => {}
        }
    }
    figures.extend(LATENCIES.iter().filter_map(|(index, name)| Some(Figure::time(*name, "us", latency(line.get(*index)?)?))));
    Ok((figures, too_fast))
}

impl Default for Bonnie {
    fn default() -> Self {
        Self::new()
    }
}

impl Bonnie {
    /// Twice the memory of a small laptop.
    pub fn new() -> Bonnie {
        Bonnie { parameters: Parameters::new(&PARAMETERS) }
    }
}

impl Workload for Bonnie {
    described!("bonnie++", "sequential output, rewriting, input, seeks, and small files (bonnie++)");

    /// It was published as a ranking only: lowest write latency and highest sequential output for ZFS.
    fn published(&self) -> &'static [Published] {
        &[]
    }

    fn space_bytes(&self) -> u64 {
        (self.parameters.get("megabytes") << 20).saturating_mul(2).saturating_add(1 << 30)
    }

    fn missing(&self) -> Option<String> {
        process::find("bonnie++").is_none().then(|| "bonnie++ is not installed (apt-get install bonnie++)".to_owned())
    }

    fn measure(&self, round: &Round<'_>) -> Result<Vec<Figure>> {
        let value = |name: &str| self.parameters.get(name);
        let mut command = process::command("bonnie++");
        command.arg("-d").arg(round.directory).args(["-q", "-m", "fsperf"]);
        command.args([
            "-s",
            &format!("{}M", value("megabytes")),
            "-r",
            &format!("{}M", value("memory")),
            "-n",
            &value("files").to_string(),
        ]);
        // Without a number right behind it, it leaves them out.
        let characters = value("characters");
        command.arg(if characters == 0 { "-f".to_owned() } else { format!("-f{characters}") });
        command.args(["-z", &round.seed.to_string()]);
        if rustix::process::geteuid().is_root() {
            command.args(["-u", "0:0"]);
        }
        let output = process::attended_success(command.stdin(Stdio::null()), Duration::from_secs(7200))?;
        let (figures, too_fast) = parse(&output.stdout)?;
        if !too_fast.is_empty() {
            round.remark(format!("too fast for bonnie++ to give a figure: {}", too_fast.join(", ")));
        }
        Ok(figures)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sim::places::skipped;
    use crate::target::{HostDirectory, Target};

    const LINE: &str = "1.98,2.00a,vm,1,1795298527,64M,,8192,5,512,40,+++++,+++,2048,20,716,38,+++++,+++,99.5,+++,1,,,,,+++++,+++,\
        +++++,+++,700,+++,+++++,+++,+++++,+++,+++++,+++,31225us,11670us,16ms,29150us,8087us,2s,12104us,57us,4076us,17611us,15us,6762us\n";

    #[test]
    fn the_line_is_read() {
        let (figures, too_fast) = parse(LINE).unwrap();
        let value = |name: &str| figures.iter().find(|figure| figure.name == name).map(|figure| (figure.value, figure.unit));
        assert_eq!(value("sequential output, characters"), Some((0.5, "MB/s")));
        assert_eq!((value("rewrite"), value("random seeks")), (Some((2.0, "MB/s")), Some((99.5, "/s"))));
        assert_eq!(value("files removed in sequence"), Some((700.0, "/s")));
        assert_eq!((value("longest write of a block"), value("longest seek")), (Some((11_670.0, "us")), Some((2e6, "us"))));
        assert_eq!((too_fast.len(), too_fast[0]), (7, "sequential output, blocks"));
        assert_eq!(value("sequential output, blocks"), Some((f64::INFINITY, "MB/s")));
        assert_eq!(figures[0].name, "sequential output, blocks", "what decides stays what it is");
        assert!(parse("nothing").is_err());
    }

    #[test]
    fn the_real_one_runs() {
        let mut workload = Bonnie::new();
        if let Some(missing) = workload.missing() {
            skipped(&format!("bonnie++: {missing}"));
            return;
        }
        workload.parameters_mut().shrink(1024);
        let host = HostDirectory::new("host", &std::env::temp_dir()).unwrap();
        let figures = workload.measure(&Round::new(&host, host.directory(), 0, 1)).unwrap();
        assert!(figures.iter().any(|figure| figure.name == "longest write of a block"), "{figures:?}");
        assert!(!figures.iter().any(|figure| figure.name.contains("characters")), "at this scale there are none: {figures:?}");
        assert_eq!(std::fs::read_dir(host.directory()).unwrap().count(), 0, "it cleans up");
    }
}
