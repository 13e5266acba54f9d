//! The example notebook reads what a run writes: each of its cells is run.
//!
//! `FSPERF_PYTHON` names a Python that has pandas, matplotlib and seaborn, where `python3` has not.
#![allow(clippy::disallowed_methods)] // real processes are what is tested

mod common;

use std::process::{Command, Stdio};

use common::{fsperf, said, scratch};
use sim::places::skipped;

/// Runs the cells of a notebook. Of modules that are not installed it has stand-ins that take everything; it prints their names, and then
/// how many rows the notebook found.
const RUN: &str = r"
import json, sys
from unittest.mock import MagicMock
for name in ['pandas', 'matplotlib', 'matplotlib.pyplot', 'seaborn']:
    try:
        __import__(name)
    except ImportError:
        sys.modules[name] = MagicMock()
        print('missing', name)
names = {}
for cell in json.load(open(sys.argv[1]))['cells']:
    if cell['cell_type'] == 'code':
        try:
            exec(''.join(cell['source']), names)
        except Exception:
            # Of a stand-in nothing can be asked that is not a call.
            if not isinstance(sys.modules['pandas'], MagicMock) or 'rows' not in names:
                raise
print('rows', len(names['rows']))
";

#[test]
fn the_example_reads_what_a_run_writes() {
    let python = std::env::var("FSPERF_PYTHON").unwrap_or_else(|_| "python3".to_owned());
    if lab::process::find(&python).is_none() {
        skipped("the example notebook: python3 is not installed");
        return;
    }
    let scratch = scratch();
    let (work, results) = (scratch.path().join("work"), scratch.path().join("results.json"));
    std::fs::create_dir(&work).unwrap();
    let words = ["run", "unit02", "metadata", "--scale", "1000", "--set", "metadata.to=2", "--on"];
    let output = fsperf(&words).arg(&work).arg("-o").arg(&results).output().unwrap();
    assert!(output.status.success(), "{}", said(&output));
    let notebook = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/fsperf-example.ipynb");
    let mut command = Command::new(python);
    command
        .args(["-c", RUN, notebook])
        .env("FSPERF_RESULTS", &results)
        .env("MPLBACKEND", "Agg")
        .env("MPLCONFIGDIR", scratch.path());
    let output = command.stdin(Stdio::null()).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{text}{}", said(&output));
    // One figure of unit02 and ten of metadata, and four percentiles each of a call and of eight phases, seven rounds of all.
    assert!(text.contains(&format!("rows {}", (1 + 10 + 4 * 9) * 7)), "{text}");
    if text.contains("missing") {
        skipped(&format!(
            "the charts of the example notebook: {}",
            text.lines().filter(|line| line.starts_with("missing")).collect::<Vec<_>>().join(", ")
        ));
    }
}
