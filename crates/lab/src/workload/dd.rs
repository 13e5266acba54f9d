//! One file, written and read in sequence by the real dd.
//!
//! What was published does not say how large the file was, nor what was in it; here it holds random bytes, which come
//! through a pipe, and the time of writing includes that of making it stable.

use std::io::Write;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result};
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;

use super::contents::{Contents, LONGEST};
use super::{Figure, Parameter, Parameters, Published, Round, Workload, described};
use crate::process;

/// The workload.
pub struct Dd {
    parameters: Parameters,
}

const PARAMETERS: [Parameter; 1] = [Parameter::scaled("megabytes", "size of the file, in MB of 2^20 bytes", 4096, 4).at_most(1 << 30)];
const LIMIT: Duration = Duration::from_secs(3600);

const fn published(figure: &'static str, system: &'static str, value: f64) -> Published {
    Published { figure, system, value }
}

static PUBLISHED: [Published; 6] = [
    published("write", "ZFS", 573.0),
    published("write", "ext4", 201.0),
    published("write", "XFS", 301.0),
    published("read", "ZFS", 884.0),
    published("read", "ext4", 458.0),
    published("read", "XFS", 712.0),
];

/// MB a second, from dd's last line: `N bytes (...) copied, S s, ...`.
fn speed(said: &str) -> Result<f64> {
    let line = said.lines().find(|line| line.contains(" copied, ")).with_context(|| format!("dd said no time: {said}"))?;
    let bytes: f64 = line.split(' ').next().unwrap_or_default().parse().with_context(|| format!("dd said {line}"))?;
    let after = line.rsplit_once(" copied, ").map_or("", |(_, after)| after);
    let seconds: f64 = after.split(' ').next().unwrap_or_default().parse().with_context(|| format!("dd said {line}"))?;
    Ok(bytes / f64::from(1 << 20) / seconds.max(1e-9))
}

fn dd(words: &[String]) -> Command {
    let mut command = process::command("dd");
    command.env("LC_ALL", "C").args(words);
    command
}

impl Default for Dd {
    fn default() -> Self {
        Self::new()
    }
}

impl Dd {
    /// As large as the memory of a small machine.
    pub fn new() -> Dd {
        Dd { parameters: Parameters::new(&PARAMETERS) }
    }

    fn write(&self, round: &Round<'_>) -> Result<f64> {
        let (reader, mut writer) = std::io::pipe()?;
        let megabytes = self.parameters.get("megabytes");
        let mut command = dd(&[
            format!("of={}", round.directory.join("file").display()),
            "bs=1M".to_owned(),
            "iflag=fullblock".to_owned(),
            format!("count={megabytes}"),
            "conv=fdatasync".to_owned(),
        ]);
        command.stdin(reader);
        let seed = round.seed;
        let feeder = std::thread::spawn(move || {
            let (contents, mut random) = (Contents::new(seed), ChaCha8Rng::seed_from_u64(seed));
            // It ends early if dd does.
            (0..megabytes).try_for_each(|_| writer.write_all(contents.piece(&mut random, LONGEST)))
        });
        let outcome = process::attended_success(&mut command, LIMIT);
        // Its end of the pipe must be closed before the feeder can notice.
        drop(command);
        let _ = feeder.join();
        speed(&outcome?.stderr)
    }
}

impl Workload for Dd {
    described!("dd", "one large file, written and then read uncached, in sequence (dd)");

    fn published(&self) -> &'static [Published] {
        &PUBLISHED
    }

    fn space_bytes(&self) -> u64 {
        (self.parameters.get("megabytes") << 20).saturating_mul(2).saturating_add(1 << 30)
    }

    fn missing(&self) -> Option<String> {
        process::find("dd").is_none().then(|| "dd is not installed (apt-get install coreutils)".to_owned())
    }

    fn measure(&self, round: &Round<'_>) -> Result<Vec<Figure>> {
        let write = self.write(round)?;
        round.target.drop_caches().context("cannot empty the caches")?;
        let words = [format!("if={}", round.directory.join("file").display()), "of=/dev/null".to_owned(), "bs=1M".to_owned()];
        let read = process::attended_success(dd(&words).stdin(Stdio::null()), LIMIT)?;
        Ok(vec![Figure::rate("write", "MB/s", write), Figure::rate("read", "MB/s", speed(&read.stderr)?)])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::target::{HostDirectory, Target};

    #[test]
    fn the_file_has_its_size_and_does_not_compress() {
        let host = HostDirectory::new("host", &std::env::temp_dir()).unwrap();
        let mut workload = Dd::new();
        workload.parameters_mut().set("megabytes", 4).unwrap();
        let figures = workload.measure(&Round::new(&host, host.directory(), 0, 1)).unwrap();
        let bytes = std::fs::read(host.directory().join("file")).unwrap();
        assert_eq!((figures.len(), bytes.len()), (2, 4 << 20));
        let zeros = bytes.iter().filter(|byte| **byte == 0).count();
        assert!(zeros < bytes.len() / 200, "{zeros}");
    }

    #[test]
    fn what_dd_says() {
        assert_eq!(speed("4+0 records in\n4194304 bytes (4.2 MB, 4.0 MiB) copied, 0.5 s, 8.4 MB/s\n").unwrap(), 8.0);
        assert!(speed("dd: failed").is_err());
    }
}
