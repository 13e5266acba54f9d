//! Pools whose vdevs have columns are found as they are.
//!
//! A whole RAID-Z pool was refused with "has been truncated: its 67108864 bytes lack 124780544 or more", for each of its devices: the size of the top-level
//! vdev, which is that of all devices together, was compared with that of one.

use sim::golden::Golden;
use sim::places;
use sim::scenario::found_pool;
use tarnfs::control::{VdevAux, VdevState, VdevStatus};

fn leaves(vdev: &VdevStatus) -> Vec<&VdevStatus> {
    if vdev.children.is_empty() { vec![vdev] } else { vdev.children.iter().flat_map(leaves).collect() }
}

#[test]
fn each_device_has_its_part_of_a_vdev() {
    for (name, devices) in [("raidz1", 3), ("raidz3", 8), ("expand", 4), ("expand-part", 5), ("draid2", 8)] {
        let Some(golden) = Golden::find(name).unwrap() else {
            places::skipped(&format!("looking at the golden pool {name}: it is not there"));
            continue;
        };
        let pool = found_pool(&golden.images);
        assert_eq!((pool.status.root.state, pool.status.root.aux), (VdevState::Healthy, VdevAux::None), "{name}");
        assert_eq!(leaves(&pool.status.root).len(), devices);
        for leaf in leaves(&pool.status.root) {
            assert_eq!((leaf.state, leaf.aux), (VdevState::Healthy, VdevAux::None), "{name}: {:?}", leaf.path);
        }
    }
}
