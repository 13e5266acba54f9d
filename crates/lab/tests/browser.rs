//! The page in a real browser: nothing complained of, nothing cut off, light and dark, on a wide screen and on a phone.
//!
//! `FSPERF_SCREENSHOTS=DIR` keeps pictures to look at.
#![allow(clippy::disallowed_methods)] // a real browser is what is tested

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use lab::cost::Cost;
use lab::record::{LeftOut, Record, System};
use lab::report::html;
use lab::watch::DeviceUse;
use lab::workload::rounds::{Column, Outcome, Plan, Sample, Setting};
use lab::workload::{Better, Percentile, Point};
use sim::places::skipped;

const BROWSERS: [&str; 4] = ["chromium", "chromium-browser", "google-chrome", "google-chrome-stable"];
const PHONE: u32 = 375;
const DESK: u32 = 1280;

fn browser() -> Option<PathBuf> {
    let found = BROWSERS.iter().find_map(|name| lab::process::find(name));
    if found.is_none() {
        skipped("the page in a browser: chromium is not installed (apt-get install chromium)");
    }
    found
}

/// Runs the browser without a window; what it wrote to both streams.
fn browse(browser: &Path, directory: &Path, words: &[String]) -> (String, String) {
    let mut command = Command::new("timeout");
    command.args(["-k", "5", "90"]).arg(browser).args([
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--disable-dev-shm-usage",
        "--hide-scrollbars",
        "--no-first-run",
        "--enable-logging=stderr",
        "--virtual-time-budget=4000",
    ]);
    command.arg(format!("--user-data-dir={}", directory.join("profile").display())).args(words);
    let output = command.env("HOME", directory).stdin(Stdio::null()).output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(output.status.success(), "{words:?}: {}", text(&output.stderr));
    (text(&output.stdout), text(&output.stderr))
}

/// Everything that a page can have: seven file systems, curves, long names and descriptions, failures, remarks.
fn record() -> Record {
    let mut record = Record::begin(Plan { scale: 16, ..Plan::default() });
    let names = ["tarn", "tarn-embedded", "ext4", "xfs", "btrfs", "zfs-fuse", "ext4:/a/long/path/to/a/directory/of/somebody"];
    record.command = format!("fsperf run {}", "a-word-of-a-long-command ".repeat(20));
    record.systems = names
        .map(|name| System {
            name: name.into(),
            description: format!("{name} on a loop device over a written file of 1536 MB, noatime"),
            facts: vec![("format options".into(), "-q -F -E nodiscard,lazy_itable_init=0,lazy_journal_init=0".into())],
        })
        .to_vec();
    record.left_out = vec![LeftOut { what: "zfs".into(), why: "this kernel has no OpenZFS (apt-get install zfs-dkms)".into() }];
    for (workload, about) in [("unit07", "rewrite of a cached file in writes of 1 to 8K"), ("sync-sweep", "synchronous writers")]
    {
        let column = |(index, name): (usize, &&str)| Column {
            target: (*name).into(),
            description: String::new(),
            samples: samples(workload, index as f64 + 1.0),
            costs: vec![Cost { machine_seconds: 1.5, written_bytes: Some(3 << 20), ..Cost::default() }; 3],
            devices: vec![vec![device(name)]; 3],
            remarks: vec!["cut short after 3 s; the figure is for the 31 MB moved until then".into()],
            failure: (index == 5)
                .then(|| "cannot write /a/long/path/to/a/file/that/is/not/there/any/more: No space left on device".into()),
        };
        record.workloads.push(Outcome {
            workload: workload.into(),
            about: about.into(),
            parameters: vec![Setting { name: "bytes".into(), value: 65_536_000, about: String::new() }; 4],
            published: Vec::new(),
            plan: record.plan,
            columns: names.iter().enumerate().map(column).collect(),
        });
    }
    record
}

fn samples(workload: &str, factor: f64) -> Vec<Sample> {
    let sample = |name: String, unit: &'static str, value: f64, point| {
        let better = if unit == "us" { Better::Lower } else { Better::Higher };
        let values = [1.0, 1.04, 0.97, 1.01, 0.99, 1.02, 1.0].map(|noise| value * noise).to_vec();
        Sample { name: name.into(), unit: unit.into(), better, values, point, percentile: None }
    };
    if workload == "unit07" {
        let percentile = |(name, value): (&'static str, f64)| Sample {
            percentile: Some(Percentile { of: "a call".into(), name: name.into() }),
            ..sample(format!("a call, {name}"), "us", value / factor, None)
        };
        let percentiles = [("p50", 12.3), ("p99", 345.6), ("p99.9", 4567.8), ("max", 98_765.4)].map(percentile);
        return [vec![sample("throughput".into(), "MB/s", 123.0 * factor, None)], percentiles.to_vec()].concat();
    }
    let at = |curve: &'static str, threads: f64| Some(Point { curve: curve.into(), axis: "threads".into(), at: threads });
    let threads = (0..8).map(|power| f64::from(1 << power));
    let rates = threads.clone().map(|n| sample(format!("{n} threads"), "/s", 160.0 * n * factor, at("operations", n)));
    let times = threads.map(|n| sample(format!("{n} threads, latency"), "us", 900.0 * n / factor, at("latency", n)));
    rates.chain(times).collect()
}

fn device(name: &str) -> DeviceUse {
    DeviceUse {
        device: format!("loop-{name}"),
        reads_per_second: 1.0,
        writes_per_second: 1234.5,
        read_kilobytes_per_second: 8.0,
        written_kilobytes_per_second: 123_456.0,
        active: 3.2,
        service_milliseconds: 0.7,
        busy_percent: 99.0,
    }
}

/// A page that holds the other one in a frame of a width, and says how it came out: a browser's own window cannot be as narrow
/// as a phone. `body` is what the browser is to look at.
fn framed(page: &str, width: u32, height: u32, measure: bool) -> String {
    let text = serde_json::to_string(page).unwrap().replace("</", "<\\/");
    let look = "
        const page = frame.contentDocument, root = page.documentElement, style = frame.contentWindow.getComputedStyle(page.body);
        const seen = element => { for (let e = element; e; e = e.parentElement) if (getComputedStyle(e).overflowX !== 'visible') return true; return false; };
        const out = [...page.body.querySelectorAll('*')].filter(e => e.getBoundingClientRect().right > root.clientWidth + 1 && !seen(e));
        const said = { scroll: root.scrollWidth, client: root.clientWidth, paper: style.backgroundColor, ink: style.color,
            out: out.slice(0, 5).map(e => e.outerHTML.slice(0, 100)), charts: page.querySelectorAll('svg').length };
        document.body.innerHTML = '<pre>SAID' + JSON.stringify(said).replace(/</g, '&lt;') + 'DIAS</pre>';";
    let look = if measure { look } else { "" };
    format!(
        "<!DOCTYPE html><meta charset=utf-8><style>:root {{ color-scheme: light dark }} body {{ margin: 0 }} iframe {{ border: 0 }}</style>
        <body><iframe width={width} height={height}></iframe><script>
        const frame = document.querySelector('iframe');
        frame.onload = () => {{ {look} }};
        frame.srcdoc = {text};
        </script>"
    )
}

/// What the page said of itself.
fn said(browser: &Path, directory: &Path, width: u32, dark: bool) -> serde_json::Value {
    let wrapper = directory.join("wrapper.html");
    fs::write(&wrapper, framed(&html::page(&record(), Some(&record())).unwrap(), width, 900, true)).unwrap();
    let words = [theme(dark), "--dump-dom".to_owned(), format!("file://{}", wrapper.display())];
    // On a busy machine the browser's time may be over before the frame is there.
    let mut doms = (0..4).map(|_| browse(browser, directory, &words).0);
    let dom = doms.find(|dom| dom.contains("DIAS</pre>")).expect("the page did not load");
    let json = dom.split("SAID").nth(1).and_then(|rest| rest.split("DIAS").next());
    let json = json.unwrap_or_else(|| panic!("{dom:.2000}"));
    serde_json::from_str(&json.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&")).unwrap()
}

/// Chromium numbers them so.
fn theme(dark: bool) -> String {
    format!("--blink-settings=preferredColorScheme={}", if dark { 0 } else { 1 })
}

/// Of 0 to 1: black to white, as the rules for readable pages (WCAG 2) have it.
fn luminance(colour: &str) -> f64 {
    let parts: Vec<f64> =
        colour.trim_start_matches("rgb(").trim_end_matches(')').split(", ").map(|part| part.parse().unwrap()).collect();
    let linear =
        |part: f64| if part <= 0.03928 * 255.0 { part / 255.0 / 12.92 } else { ((part / 255.0 + 0.055) / 1.055).powf(2.4) };
    0.2126 * linear(parts[0]) + 0.7152 * linear(parts[1]) + 0.0722 * linear(parts[2])
}

#[test]
fn the_page_is_readable_on_every_screen() {
    let Some(browser) = browser() else { return };
    let scratch = tempfile::tempdir().unwrap();
    for (width, dark) in [(PHONE, false), (DESK, true)] {
        let said = said(&browser, scratch.path(), width, dark);
        let name = format!("{width} pixels, {}: {said}", if dark { "dark" } else { "light" });
        assert_eq!((said["client"].as_u64(), said["scroll"].as_u64()), (Some(width.into()), Some(width.into())), "{name}");
        assert_eq!(said["out"], serde_json::json!([]), "{name}");
        assert!(said["charts"].as_u64().unwrap() >= 4, "{name}");
        let (paper, ink) = (luminance(said["paper"].as_str().unwrap()), luminance(said["ink"].as_str().unwrap()));
        assert_eq!(paper < 0.2, dark, "{name}");
        assert!((paper.max(ink) + 0.05) / (paper.min(ink) + 0.05) > 7.0, "contrast: {name}");
    }
}

#[test]
fn the_page_loads_without_a_complaint() {
    let Some(browser) = browser() else { return };
    let scratch = tempfile::tempdir().unwrap();
    let page = html::page(&record(), Some(&record())).unwrap();
    let complaints = |page: &str| {
        let path = scratch.path().join("page.html");
        fs::write(&path, page).unwrap();
        let (dom, log) = browse(&browser, scratch.path(), &["--dump-dom".to_owned(), format!("file://{}", path.display())]);
        assert!(dom.contains("</html>"), "{dom:.500}");
        log.lines().filter(|line| line.contains("CONSOLE")).map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(complaints(&page), Vec::<String>::new());
    let broken = page.replace("</body>", "<script>nothing.there()</script></body>");
    assert!(!complaints(&broken).is_empty(), "a complaint is heard");
}

/// Only for people.
#[test]
fn pictures_are_kept_for_whoever_asks() {
    let (Some(directory), Some(browser)) = (std::env::var_os("FSPERF_SCREENSHOTS").map(PathBuf::from), browser()) else { return };
    fs::create_dir_all(&directory).unwrap();
    let scratch = tempfile::tempdir().unwrap();
    let page = match std::env::var_os("FSPERF_PAGE") {
        Some(path) => fs::read_to_string(path).unwrap(),
        None => html::page(&record(), Some(&record())).unwrap(),
    };
    for (name, width, height, dark) in [
        ("wide", DESK, 2600, false),
        ("dark", DESK, 2600, true),
        ("phone", PHONE, 2600, false),
        ("phone-dark", PHONE, 2600, true),
    ] {
        let wrapper = scratch.path().join("wrapper.html");
        fs::write(&wrapper, framed(&page, width, height, false)).unwrap();
        let picture = directory.join(format!("{name}.png"));
        let words = [
            theme(dark),
            format!("--screenshot={}", picture.display()),
            format!("--window-size={},{height}", width.max(500)),
            format!("file://{}", wrapper.display()),
        ];
        browse(&browser, scratch.path(), &words);
        assert!(picture.exists());
    }
}
