//! Do the vdevs of a pool survive the same losses?
//!
//! # Theory
//! A pool is lost with any of its top-level vdevs, so that the weakest decides. Every new vdev is compared with the one before it, and the last of them with
//! those of the pool that they are added to, unless those differ already: then nothing is said. Logs do not count. A mirror is as good as RAID-Z that
//! survives as many devices; RAID-Z of another width is as good.

use std::fs::File;
use std::io::{Seek, SeekFrom};
use std::path::Path;

use tarnfs::control::{AllocationClass, PoolStatus, VdevKind, VdevSpec, VdevStatus};

use super::vdev_spec::{Complaints, group_word};
use crate::session::Session;

/// Devices of a group may differ by so many bytes.
const SIZE_DIFFERENCE_MAX: u64 = 16 << 20;
/// What all complaints begin with that are not about sizes.
const MISMATCH: &str = "mismatched replication level:";

/// What a vdev survives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Redundancy {
    word: &'static str,
    children: usize,
    parity: usize,
}

/// In what two vdevs are not the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Difference {
    /// Parity, and sides of a mirror less one.
    ParityAndMirror { parity: Redundancy, mirror: Redundancy },
    Parity,
    Kind,
    Width,
}

impl Redundancy {
    fn new(kind: VdevKind, children: usize) -> Redundancy {
        let parity = match kind {
            VdevKind::Raidz { parity } | VdevKind::Draid { parity, .. } => usize::from(parity),
            _ => 0,
        };
        Redundancy { word: group_word(kind), children: children.max(1), parity }
    }

    fn difference(self, other: Redundancy) -> Option<Difference> {
        let (parity, mirror) = if self.parity > 0 { (self, other) } else { (other, self) };
        if parity.parity > 0 && mirror.word == "mirror" {
            (parity.parity != mirror.children - 1).then_some(Difference::ParityAndMirror { parity, mirror })
        } else if self.parity > 0 && other.parity > 0 {
            (self.parity != other.parity).then_some(Difference::Parity)
        } else if self.word != other.word {
            Some(Difference::Kind)
        } else {
            (self.children != other.children).then_some(Difference::Width)
        }
    }
}

/// Complains of what is not the same. `pool`: what the vdevs are added to.
pub(super) fn check(session: &mut Session<'_>, specs: &[VdevSpec], pool: Option<&PoolStatus>, complaints: &mut Complaints) {
    let is_counted = |spec: &&VdevSpec| matches!(spec.class, AllocationClass::Normal | AllocationClass::Special | AllocationClass::Dedup);
    let counted: Vec<&VdevSpec> = specs.iter().filter(is_counted).collect();
    let old = match pool.map(of_pool) {
        Some(None) => return,
        old => old.flatten(),
    };
    let mut last: Option<Redundancy> = None;
    let mut is_even = true;
    for spec in counted {
        let this = Redundancy::new(spec.kind, spec.children.len());
        is_even &= check_children(session, spec, complaints);
        if let Some(last) = last
            && let Some(difference) = last.difference(this)
        {
            is_even = false;
            complain_of_new(session, last, this, difference, complaints);
        }
        last = Some(this);
    }
    if let (Some(old), Some(new), true) = (old, last, is_even)
        && let Some(difference) = old.difference(new)
    {
        complain_of_pool(session, old, new, difference, complaints);
    }
}

/// What the vdevs of a pool survive, if that is the same for all.
fn of_pool(pool: &PoolStatus) -> Option<Redundancy> {
    let counts = |vdev: &&VdevStatus| vdev.class != AllocationClass::Log && !matches!(vdev.kind, VdevKind::Hole | VdevKind::Indirect);
    let mut last: Option<Redundancy> = None;
    for vdev in pool.root.children.iter().filter(counts) {
        let this = Redundancy::new(vdev.kind, vdev.children.len());
        let is_other = last.is_some_and(|last| last.difference(this).is_some());
        if is_other || sizes_differ(vdev.children.iter().filter_map(path_of)) {
            return None;
        }
        last = Some(this);
    }
    last
}

/// Where a child of a group is: of one that is being replaced, or that a spare stands in for, the device that was there first.
fn path_of(vdev: &VdevStatus) -> Option<&Path> {
    match (&vdev.path, vdev.children.first()) {
        (Some(path), _) => (vdev.class != AllocationClass::Spare).then(|| Path::new(path)),
        (None, Some(first)) => path_of(first),
        (None, None) => None,
    }
}

fn size(path: &Path) -> Option<u64> {
    let mut file = File::open(path).ok()?;
    file.seek(SeekFrom::End(0)).ok().filter(|size| *size != 0)
}

fn sizes_differ<'a>(paths: impl Iterator<Item = &'a Path>) -> bool {
    let sizes: Vec<u64> = paths.filter_map(size).collect();
    sizes.windows(2).any(|pair| pair[0].abs_diff(pair[1]) > SIZE_DIFFERENCE_MAX)
}

/// Are the devices of a group of one kind and size?
fn check_children(session: &mut Session<'_>, spec: &VdevSpec, complaints: &mut Complaints) -> bool {
    let word = group_word(spec.kind);
    if spec.children.windows(2).any(|pair| pair[0].kind != pair[1].kind) {
        complaints.add(session, format_args!("{MISMATCH} {word} contains both files and devices"));
        return false;
    }
    let differ = sizes_differ(spec.children.iter().filter_map(|child| child.path.as_deref()));
    if differ {
        complaints.add(session, format_args!("{word} contains devices of different sizes"));
    }
    !differ
}

fn complain_of_new(session: &mut Session<'_>, last: Redundancy, this: Redundancy, difference: Difference, complaints: &mut Complaints) {
    match difference {
        Difference::ParityAndMirror { parity, mirror } => complaints.add(session, format_args!(
            "{MISMATCH} {} and {} vdevs with different redundancy, {} vs. {} ({}-way) are present",
            parity.word, mirror.word, parity.parity, mirror.children - 1, mirror.children
        )),
        Difference::Parity => complaints.add(session, format_args!(
            "{MISMATCH} {} and {} vdevs with different redundancy, {} vs. {} are present",
            last.word, this.word, last.parity, this.parity
        )),
        Difference::Kind => complaints.add(session, format_args!("{MISMATCH} both {} and {} vdevs are present", last.word, this.word)),
        Difference::Width => {
            complaints.add(session, format_args!("{MISMATCH} both {}-way and {}-way {} vdevs are present", last.children, this.children, this.word));
        }
    }
}

fn complain_of_pool(session: &mut Session<'_>, old: Redundancy, new: Redundancy, difference: Difference, complaints: &mut Complaints) {
    match difference {
        Difference::ParityAndMirror { parity, mirror } => complaints.add(session, format_args!(
            "{MISMATCH} pool and new vdev with different redundancy, {} and {} vdevs, {} vs. {} ({}-way)",
            parity.word, mirror.word, parity.parity, mirror.children - 1, mirror.children
        )),
        Difference::Parity => complaints.add(session, format_args!(
            "{MISMATCH} pool and new vdev with different redundancy, {} and {} vdevs, {} vs. {}",
            old.word, new.word, old.parity, new.parity
        )),
        Difference::Kind => complaints.add(session, format_args!("{MISMATCH} pool uses {} and new vdev is {}", old.word, new.word)),
        Difference::Width => complaints.add(session, format_args!(
            "{MISMATCH} pool uses {}-way {} and new vdev uses {}-way {}",
            old.children, old.word, new.children, new.word
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_survives_as_much_is_the_same() {
        let of = |kind, children| Redundancy::new(kind, children);
        let (raidz, mirror) = (|parity, children| of(VdevKind::Raidz { parity }, children), |children| of(VdevKind::Mirror, children));
        assert_eq!(raidz(1, 3).difference(mirror(2)), None);
        assert_eq!(mirror(3).difference(raidz(2, 5)), None);
        assert_eq!(raidz(2, 4).difference(raidz(2, 9)), None, "of another width");
        assert_eq!(raidz(1, 4).difference(raidz(2, 4)), Some(Difference::Parity));
        assert_eq!(mirror(2).difference(mirror(3)), Some(Difference::Width));
        assert_eq!(of(VdevKind::File, 0).difference(of(VdevKind::Disk, 0)), Some(Difference::Kind));
        assert_eq!(of(VdevKind::File, 0).difference(raidz(1, 3)), Some(Difference::Kind));
        assert!(matches!(mirror(2).difference(raidz(2, 4)), Some(Difference::ParityAndMirror { .. })));
    }
}
