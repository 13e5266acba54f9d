//! The page has what was measured, says it safely, and needs nothing from elsewhere.

use super::*;
use crate::report::changes::tests::record;
use crate::workload::Point;

fn sweep(factor: f64) -> Record {
    let mut record =
        record(&[("1 thread", "/s", [10.0 * factor; 5]), ("2 threads", "/s", [19.0 * factor; 5]), ("total", "us", [5.0; 5])]);
    record.systems.push(crate::record::System { name: "tarn".into(), description: "a <pool>".into(), facts: Vec::new() });
    for (sample, at) in record.workloads[0].columns[0].samples.iter_mut().zip([1.0, 2.0]) {
        sample.point = Some(Point { curve: "operations".into(), axis: "threads".into(), at });
    }
    record
}

#[test]
fn the_page_has_the_figures_and_the_curves() {
    let text = page(&sweep(1.0), None).unwrap();
    assert!(text.contains("sweep: operations") && text.contains("<circle") && text.contains(">19.0<"), "{text}");
    assert!(text.contains("a &lt;pool&gt;"), "descriptions are text");
}

#[test]
fn the_page_needs_no_network() {
    let text = page(&sweep(1.0), None).unwrap();
    let without_namespace = text.replace("http://www.w3.org/2000/svg", "");
    for word in ["http:", "https:", "src=", "@import", "url("] {
        assert!(!without_namespace.contains(word), "{word}");
    }
}

#[test]
fn changes_come_with_their_meaning() {
    let text = page(&sweep(1.5), Some(&sweep(1.0))).unwrap();
    assert!(
        text.contains("+50.0 %")
            && text.contains(">better<")
            && text.contains("+ is better")
            && text.contains("% change of operations"),
        "{text}"
    );
}
