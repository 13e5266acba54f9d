//! Pools of a kind that we do not read are refused by the name of the kind.
//!
//! A whole RAID-Z pool was refused with "has been truncated: its 67108864 bytes lack 124780544 or more", for each of its devices: the size of the top-level
//! vdev, which is that of all devices together, was compared with that of one.

use sim::golden::Golden;
use sim::places;
use sim::scenario::{found_pool, import_of};
use tarnfs::control::{Backend, Pools, VdevAux, VdevState, VdevStatus};

fn leaves(vdev: &VdevStatus) -> Vec<&VdevStatus> {
    if vdev.children.is_empty() { vec![vdev] } else { vdev.children.iter().flat_map(leaves).collect() }
}

#[test]
fn a_kind_of_vdev_that_is_not_supported_is_named() {
    for (name, kind) in [("draid2", "draid")] {
        let Some(golden) = Golden::find(name).unwrap() else {
            places::skipped(&format!("refusing the golden pool {name}: it is not there"));
            continue;
        };
        let paths = golden.images.clone();
        let pool = found_pool(&paths);
        assert_eq!((pool.status.root.state, pool.status.root.aux), (VdevState::CantOpen, VdevAux::UnsupportedFeature), "{name}");
        for leaf in leaves(&pool.status.root) {
            assert_eq!((leaf.state, leaf.aux), (VdevState::Healthy, VdevAux::None), "{name}: {:?}", leaf.path);
        }
        let refused = Pools::default().pool_import(import_of(&pool, &paths)).expect_err("imported");
        let words = format!("{:?} {}", refused.kind, refused.message);
        assert!(words.contains(kind) && words.contains("supported") && !words.contains("truncated"), "{name}: {words}");
    }
}
