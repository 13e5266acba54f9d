//! What a run measured, as it is kept in a file: every round of every figure, and all that is needed to run it again.
//!
//! # On disk
//!
//! One JSON object. `format` is `fsperf-results`, `version` is [`VERSION`]; a program that knows only another version
//! refuses the file. `workloads[].columns[]` holds what each target came to: `samples[]` with the figure's `name`, its
//! `unit`, whether `higher` or `lower` is `better`, and its `values`, one for each round; `percentile`, if it is one of the
//! times of single operations; `costs[]` and `devices[]`, one for each round too; `failure`, if there was one.
//! `docs/fsperf.md` lists every field.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail, ensure};
use serde::{Deserialize, Serialize};

use crate::system;
use crate::workload::latency;
use crate::workload::rounds::{Outcome, Plan};

/// Of the format; it changes when a reader of the old one would misunderstand the new one.
pub const VERSION: u32 = 1;
const FORMAT: &str = "fsperf-results";

/// The machine that it ran on.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Machine {
    pub processors: usize,
    pub memory_bytes: Option<u64>,
    pub kernel: String,
}

/// A file system that was measured.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct System {
    pub name: String,
    pub description: String,
    /// Versions, options of format and mount.
    pub facts: Vec<(String, String)>,
}

impl System {
    fn facts_in_words(&self) -> String {
        let words: Vec<String> = self.facts.iter().map(|(name, value)| format!("{name} {value}")).collect();
        if words.is_empty() { "nothing is known of it".to_owned() } else { words.join(", ") }
    }
}

/// Something that was asked for and not done.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeftOut {
    pub what: String,
    pub why: String,
}

/// A whole run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Record {
    pub format: String,
    pub version: u32,
    /// The program that wrote it.
    pub program: String,
    /// When it began, UTC.
    pub began: String,
    /// The words it was called with.
    pub command: String,
    pub machine: Machine,
    pub plan: Plan,
    pub systems: Vec<System>,
    pub workloads: Vec<Outcome>,
    pub left_out: Vec<LeftOut>,
    /// Was it cut off, by Ctrl-C or an error?
    pub interrupted: bool,
    /// What it took to take the time, before and after each operation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clock_nanoseconds: Option<f64>,
}

/// As a shell takes it for one word.
fn quoted(word: String) -> String {
    let plain = |letter: char| letter.is_alphanumeric() || "_./=,:+-%@".contains(letter);
    if !word.is_empty() && word.chars().all(plain) { word } else { format!("'{}'", word.replace('\'', "'\\''")) }
}

fn folder_of(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Writes a file, whole or not at all: on a full disk what was there before stays. Into what is no file, such as a terminal, as it comes.
pub fn write_whole(path: &Path, text: &str) -> Result<()> {
    let name = || format!("cannot write {}", path.display());
    if path.metadata().is_ok_and(|there| !there.is_file()) {
        return fs::write(path, text).with_context(name);
    }
    let file = tempfile::NamedTempFile::new_in(folder_of(path)).with_context(name)?;
    fs::write(file.path(), text).with_context(name)?;
    // Temporary files are their owner's alone; results are for everyone.
    let everyone = std::os::unix::fs::PermissionsExt::from_mode(0o644);
    fs::set_permissions(file.path(), everyone).with_context(name)?;
    file.persist(path).with_context(name)?;
    Ok(())
}

impl Record {
    /// Nothing measured yet.
    pub fn begin(plan: Plan) -> Record {
        // By its name: where the program lies is nobody's business.
        let program =
            |word: String| Path::new(&word).file_name().map_or(word.clone(), |name| name.to_string_lossy().into_owned());
        let mut words = std::env::args();
        let command: Vec<String> = words.next().map(program).into_iter().chain(words.map(quoted)).collect();
        Record {
            format: FORMAT.to_owned(),
            version: VERSION,
            program: format!("fsperf {}", env!("CARGO_PKG_VERSION")),
            began: jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string(),
            command: command.join(" "),
            machine: Machine {
                processors: std::thread::available_parallelism().map_or(1, usize::from),
                memory_bytes: system::memory_bytes(),
                kernel: system::kernel(),
            },
            plan,
            systems: Vec::new(),
            workloads: Vec::new(),
            left_out: Vec::new(),
            interrupted: false,
            clock_nanoseconds: Some(latency::clock_nanoseconds()),
        }
    }

    /// The machine in a line.
    pub fn machine_words(&self) -> String {
        let memory = self
            .machine
            .memory_bytes
            .map_or_else(String::new, |bytes| format!(", {:.0} GB of memory", bytes as f64 / f64::from(1 << 30)));
        format!("{} processors{memory}, {}", self.machine.processors, self.machine.kernel)
    }

    /// Fails if nothing could be written there: before anything is measured, and not after a night.
    pub fn expect_writable(path: &Path) -> Result<()> {
        let name = || format!("cannot write {}", path.display());
        ensure!(!path.is_dir(), "cannot write {}: it is a directory", path.display());
        tempfile::NamedTempFile::new_in(folder_of(path)).map(drop).with_context(name)
    }

    /// Writes it, whole or not at all.
    pub fn save(&self, path: &Path) -> Result<()> {
        write_whole(path, &(serde_json::to_string_pretty(self)? + "\n"))
    }

    /// Reads one.
    pub fn load(path: &Path) -> Result<Record> {
        let text = fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
        Self::parse(&text).with_context(|| path.display().to_string())
    }

    fn parse(text: &str) -> Result<Record> {
        let value: serde_json::Value = serde_json::from_str(text).context("no JSON, or not all of it")?;
        if value["format"] != FORMAT {
            bail!("no results of fsperf: it has no \"format\": \"{FORMAT}\" (fsperf run -o FILE.json makes such a file)");
        }
        if value["version"] != VERSION {
            bail!(
                "results of version {}, and this fsperf reads version {VERSION}; use the fsperf that wrote it ({})",
                value["version"],
                value["program"]
            );
        }
        serde_json::from_value(value).context("damaged results")
    }

    /// Adds what another run measured on the same machine: workloads that this one has not.
    pub fn add(&mut self, other: Record) -> Result<()> {
        if self.machine != other.machine {
            bail!(
                "runs of two machines: {} and {}; fsperf compare puts them side by side",
                self.machine_words(),
                other.machine_words()
            );
        }
        for system in &other.systems {
            let Some(seen) = self.systems.iter().find(|seen| seen.name == system.name) else { continue };
            if seen.facts != system.facts {
                bail!(
                    "{} is not the same in both runs: {} and {}; fsperf compare puts them side by side",
                    system.name,
                    seen.facts_in_words(),
                    system.facts_in_words()
                );
            }
        }
        for outcome in other.workloads {
            if self.workload(&outcome.workload).is_some() {
                bail!("{} was run twice; fsperf compare puts two runs side by side", outcome.workload);
            }
            self.workloads.push(outcome);
        }
        for system in other.systems {
            if !self.systems.iter().any(|seen| seen.name == system.name) {
                self.systems.push(system);
            }
        }
        for left in other.left_out {
            if !self.left_out.contains(&left) {
                self.left_out.push(left);
            }
        }
        self.command = format!("{}; {}", self.command, other.command);
        self.interrupted |= other.interrupted;
        // Of two goes at the same clock the slower one: it is a bound.
        self.clock_nanoseconds = self.clock_nanoseconds.into_iter().chain(other.clock_nanoseconds).reduce(f64::max);
        Ok(())
    }

    /// What failed, on what: one line for each.
    pub fn failures(&self) -> Vec<String> {
        let columns = self.workloads.iter().flat_map(|outcome| outcome.columns.iter().map(move |column| (outcome, column)));
        columns
            .filter_map(|(outcome, column)| {
                Some(format!("{} on {}: {}", outcome.workload, column.target, column.failure.as_ref()?))
            })
            .collect()
    }

    /// The outcome of a workload.
    pub fn workload(&self, name: &str) -> Option<&Outcome> {
        self.workloads.iter().find(|outcome| outcome.workload == name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_saved_is_what_is_loaded() {
        let scratch = tempfile::tempdir().unwrap();
        let path = scratch.path().join("results.json");
        let mut record = Record::begin(Plan { rounds: 2, ..Plan::default() });
        record.left_out.push(LeftOut { what: "zfs".into(), why: "no module".into() });
        record.save(&path).unwrap();
        assert_eq!(Record::load(&path).unwrap(), record);
    }

    #[test]
    fn the_command_can_be_typed_again() {
        let quoted = |word: &str| quoted(word.to_owned());
        assert_eq!((quoted("--set"), quoted("a.b=1,2")), ("--set".into(), "a.b=1,2".into()));
        assert_eq!((quoted("make -s"), quoted("it's"), quoted("")), ("'make -s'".into(), r"'it'\''s'".into(), "''".into()));
    }

    #[test]
    fn runs_of_one_machine_become_one() {
        let left = |what: &str| LeftOut { what: what.into(), why: "no module".into() };
        let (mut one, mut other) = (Record::begin(Plan::default()), Record::begin(Plan::default()));
        one.left_out = vec![left("zfs")];
        other.left_out = vec![left("zfs"), left("xfs")];
        other.machine.memory_bytes = one.machine.memory_bytes;
        one.add(other.clone()).unwrap();
        assert_eq!(one.left_out, [left("zfs"), left("xfs")]);
        // Two builds under one name would stand in one column.
        let tarn = |hash: &str| System { name: "tarn".into(), description: String::new(), facts: vec![("sha256".into(), hash.into())] };
        (one.systems, other.systems) = (vec![tarn("12ab")], vec![tarn("34cd")]);
        let refused = one.clone().add(other.clone()).unwrap_err().to_string();
        assert!(refused.starts_with("tarn is not the same in both runs: sha256 12ab and sha256 34cd; "), "{refused}");
        other.systems = vec![tarn("12ab")];
        one.add(other.clone()).unwrap();
        other.machine.processors += 1;
        assert!(one.add(other).unwrap_err().to_string().starts_with("runs of two machines"));
    }

    #[test]
    fn other_files_are_refused_with_a_reason() {
        let refused = |text: &str| format!("{:#}", Record::parse(text).unwrap_err());
        assert_eq!(refused("nonsense").split(':').next(), Some("no JSON, or not all of it"));
        let whole = serde_json::to_string(&Record::begin(Plan::default())).unwrap();
        for length in [0, 1, whole.len() / 2, whole.len() - 1] {
            assert!(refused(&whole[..length]).starts_with("no JSON, or not all of it: "), "{length}");
        }
        assert!(Record::parse(&whole).is_ok());
        assert!(refused("{}").starts_with("no results of fsperf"));
        let future = refused(r#"{"format": "fsperf-results", "version": 7, "program": "fsperf 9"}"#);
        assert!(future.starts_with("results of version 7, and this fsperf reads version 1"), "{future}");
        assert!(refused(r#"{"format": "fsperf-results", "version": 1}"#).starts_with("damaged results"));
    }
}
