//! `cargo test` is enough to know that the tree is tidy.

use std::path::Path;

#[test]
fn the_tree_is_tidy() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let findings = xtask::tidy::run(root).unwrap();
    for note in &findings.notes {
        println!("{note}");
    }
    assert!(findings.violations.is_empty(), "not tidy:\n{}", findings.violations.join("\n"));
}
