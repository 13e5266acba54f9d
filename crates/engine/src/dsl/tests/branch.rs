//! Clones of the empty snapshot, and heads that change contents.

use super::*;

/// The check of sums and places by a walk, after each step.
#[test]
fn a_clone_of_nothing_is_refused() {
    let rig = rig();
    rig.create();
    rig.with_syncs(|dsl| dsl.create_dataset(new_dataset("pool/a"))).unwrap();
    let clone = |snapshot: &str| NewClone { name: "pool/b".into(), snapshot: snapshot.into(), properties: Vec::new() };
    for (snapshot, kind) in [("pool/a", ErrorKind::Invalid), ("pool/a@none", ErrorKind::NotFound)] {
        let refused = rig.dsl().clone_dataset(clone(snapshot)).unwrap_err();
        assert_eq!(refused.kind(), kind, "{refused}");
    }
    assert_eq!(rig.dsl().promote_dataset("pool/a").unwrap_err().kind(), ErrorKind::Invalid);
    rig.check();
}

/// A file system without a snapshot has nothing to go back to.
#[test]
fn there_is_nothing_to_roll_back_to() {
    let rig = rig();
    rig.create();
    rig.with_syncs(|dsl| dsl.create_dataset(new_dataset("pool/a"))).unwrap();
    for to in [None, Some("none")] {
        let refused = rig.with_syncs(|dsl| dsl.roll_back("pool/a", to)).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::NotFound, "{refused}");
    }
    rig.check();
}
