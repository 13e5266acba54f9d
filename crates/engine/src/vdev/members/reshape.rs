//! Descriptions of vdevs that get or lose a device: pure functions.
//!
//! # Theory
//! A device comes in beside another one, in a group of both: `mirror`, `replacing` or `spare`. A group with one member left is no
//! group, and that member takes its place. What belongs to the top-level vdev, such as its space maps, stays at the top: it goes to the
//! new group, and back. A device that takes the place of a top-level group gets the guid of that, for the top-level vdev keeps its
//! own.
//!
//! In a group with spares the first member is the device that they stand in for. Without it the last one is a spare no more.

use crate::bail;
use crate::error::Result;
use crate::vdev::{VdevConfig, VdevKind, key};

/// What the path of a device is while another one with the same path replaces it.
const OLD: &str = "/old";

impl VdevConfig {
    /// The parent of the vdev with this guid, from here down; `None`: this is that vdev, or it is not there.
    pub fn parent_of(&self, guid: u64) -> Option<&VdevConfig> {
        if self.children.iter().any(|child| child.guid == guid) {
            return Some(self);
        }
        self.children.iter().find_map(|child| child.parent_of(guid))
    }

    fn parent_of_mut(&mut self, guid: u64) -> Option<&mut VdevConfig> {
        if self.children.iter().any(|child| child.guid == guid) {
            return Some(self);
        }
        self.children.iter_mut().find_map(|child| child.parent_of_mut(guid))
    }

    /// The description of a top-level vdev, this, with `new` beside the device of guid `old`: in the group that is there, if it is of
    /// that kind, or else in a new one with the guid `group`.
    ///
    /// # Errors
    /// There is no such device.
    pub fn with_beside(&self, old: u64, mut new: VdevConfig, kind: VdevKind, group: u64) -> Result<VdevConfig> {
        let mut top = self.clone();
        let Some(place) = top.find_mut(old) else { bail!(NotFound, "no vdev has guid {old}") };
        new.set(key::CREATE_TXG, place.number(key::CREATE_TXG));
        if let Some(path) = place.string(key::PATH).filter(|path| Some(path) == new.string(key::PATH).as_ref()) {
            place.set_string(key::PATH, format!("{path}{OLD}"));
            place.remove(key::DEVID);
        }
        if let Some(parent) = top.parent_of_mut(old).filter(|parent| parent.kind == kind) {
            new.id = parent.children.len() as u64;
            parent.children.push(new);
            return Ok(top);
        }
        let is_top = top.guid == old;
        let Some(place) = top.find_mut(old) else { bail!(NotFound, "no vdev has guid {old}") };
        let mut outer = VdevConfig::new(kind, place.id, group);
        outer.set(key::CREATE_TXG, place.number(key::CREATE_TXG));
        let mut inner = std::mem::replace(place, outer);
        if is_top {
            inner.move_top_values(place);
        }
        (inner.id, new.id) = (0, 1);
        place.children = vec![inner, new];
        Ok(top)
    }

    /// The description of a top-level vdev, this, without the device of this guid.
    ///
    /// # Errors
    /// It is not in a group whose members hold the same.
    pub fn without(&self, guid: u64) -> Result<VdevConfig> {
        let mut top = self.clone();
        let is_group = |parent: &&mut VdevConfig| parent.kind.is_replicated() && parent.children.len() > 1;
        let Some(parent) = top.parent_of_mut(guid).filter(is_group) else { bail!(Unsupported, "it is no member of a mirror") };
        let at = parent.children.iter().position(|child| child.guid == guid).unwrap_or(0);
        let gone = parent.children.remove(at);
        (0..).zip(&mut parent.children).for_each(|(id, child)| child.id = id);
        if parent.kind == VdevKind::Replacing && at > 0 {
            parent.give_back_path(&gone);
        }
        let is_spared = parent.kind == VdevKind::Spare && at == 0;
        // A distributed spare stays one.
        if let Some(last) = parent.children.last_mut().filter(|last| is_spared && last.flag(key::IS_SPARE) && last.kind != VdevKind::DraidSpare) {
            last.remove(key::IS_SPARE);
            last.set(key::UNSPARE, 1);
        }
        let (parent_guid, is_of_spares) = (parent.guid, parent.kind == VdevKind::Spare);
        if parent.children.len() > 1 {
            return Ok(top);
        }
        let is_top = top.guid == parent_guid;
        let Some(place) = top.find_mut(parent_guid) else { bail!(NotFound, "no vdev has guid {parent_guid}") };
        if let Some(mut last) = place.children.pop() {
            last.id = place.id;
            if is_of_spares {
                last.remove(key::UNSPARE);
            }
            if is_top {
                last.guid = place.guid;
                place.move_top_values(&mut last);
            }
            *place = last;
        }
        Ok(top)
    }

    /// The spare that stays for good if the device of guid `gone` goes, for which it stands in.
    pub fn spare_for_good(&self, gone: u64) -> Option<u64> {
        let group = self.parent_of(gone).filter(|parent| parent.kind == VdevKind::Spare && parent.children[0].guid == gone)?;
        group.children.last().filter(|last| last.flag(key::IS_SPARE)).map(|last| last.guid)
    }

    /// The device of this guid is as it should be again: the spare that stands in for it goes when it has everything. Whether there is one.
    pub fn set_unspare(&mut self, guid: u64) -> bool {
        let Some(group) = self.parent_of_mut(guid).filter(|parent| parent.kind == VdevKind::Spare && parent.children[0].guid == guid) else { return false };
        let was = group.children[0].flag(key::UNSPARE);
        group.children[0].set(key::UNSPARE, 1);
        !was
    }

    /// The description of a tree, this, in which of each mirror that is a top-level vdev one side is left, which is `stays`: it is the
    /// top-level vdev from then on, and keeps its own guid. Also the sides that are not there any more. Logs stay as they are.
    ///
    /// # Errors
    /// A top-level vdev is no mirror, or has no such side.
    pub fn split(&self, stays: &dyn Fn(u64) -> bool) -> Result<(VdevConfig, Vec<VdevConfig>)> {
        let (mut root, mut gone) = (self.clone(), Vec::new());
        for top in root.children.iter_mut().filter(|top| !top.kind.is_placeholder() && !top.flag(key::IS_LOG)) {
            let Some(at) = top.children.iter().position(|side| side.kind.is_leaf() && stays(side.guid)).filter(|_| top.kind == VdevKind::Mirror) else {
                bail!(Invalid, "vdev {} is no mirror of which one side is here", top.display_name());
            };
            let mut side = top.children.swap_remove(at);
            gone.append(&mut top.children);
            side.id = top.id;
            top.move_top_values(&mut side);
            *top = side;
        }
        Ok((root, gone))
    }

    /// A device that was to be replaced by another one with the same path stays.
    fn give_back_path(&mut self, gone: &VdevConfig) {
        let Some(path) = gone.string(key::PATH) else { return };
        let old = format!("{path}{OLD}");
        if let Some(kept) = self.children.iter_mut().find(|child| child.string(key::PATH).as_ref() == Some(&old)) {
            kept.set_string(key::PATH, path.as_str());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn disk(id: u64, guid: u64, path: &str) -> VdevConfig {
        let mut disk = VdevConfig::new(VdevKind::File, id, guid);
        disk.set_string(key::PATH, path);
        disk.set(key::CREATE_TXG, 4);
        disk
    }

    fn top() -> VdevConfig {
        let mut top = disk(3, 10, "/a");
        for name in [key::METASLAB_ARRAY, key::METASLAB_SHIFT, key::ASHIFT, key::ASIZE, key::TOP_ZAP, key::IS_LOG] {
            top.set(name, 7);
        }
        top.set(key::LEAF_ZAP, 8);
        top
    }

    #[test]
    fn a_disk_becomes_a_mirror_and_a_disk_again() {
        let mirror = top().with_beside(10, disk(0, 11, "/b"), VdevKind::Mirror, 99).unwrap();
        assert_eq!((mirror.guid, mirror.id, &mirror.kind), (99, 3, &VdevKind::Mirror));
        assert_eq!((mirror.number(key::ASIZE), mirror.number(key::TOP_ZAP), mirror.get(key::LEAF_ZAP)), (7, 7, None));
        let first = &mirror.children[0];
        assert_eq!((first.guid, first.id, first.get(key::ASIZE), first.get(key::TOP_ZAP), first.number(key::LEAF_ZAP)), (10, 0, None, None, 8));
        assert_eq!((mirror.children[1].guid, mirror.children[1].id, mirror.children[1].number(key::CREATE_TXG)), (11, 1, 4));
        let three = mirror.with_beside(11, disk(0, 12, "/c"), VdevKind::Mirror, 98).unwrap();
        assert_eq!(three.children.iter().map(|child| (child.id, child.guid)).collect::<Vec<_>>(), [(0, 10), (1, 11), (2, 12)]);
        assert_eq!(three.without(12).unwrap(), mirror);
        // The guid of the top-level vdev stays.
        let again = mirror.without(11).unwrap();
        let mut expected = top();
        expected.guid = 99;
        assert_eq!(again.to_mos(), expected.to_mos());
        assert!(again.without(99).is_err());
    }

    #[test]
    fn one_side_of_each_mirror_makes_a_tree_of_its_own() {
        let data = || {
            let mut data = top();
            data.remove(key::IS_LOG);
            data
        };
        let mirror = data().with_beside(10, disk(0, 11, "/b"), VdevKind::Mirror, 99).unwrap();
        let mut root = VdevConfig::new(VdevKind::Root, 0, 1);
        root.children = vec![mirror, VdevConfig::new(VdevKind::Hole, 1, 0)];
        root.children[0].id = 0;
        let (split, gone) = root.split(&|guid| guid == 11).unwrap();
        let new = &split.children[0];
        assert_eq!((new.guid, new.id, new.number(key::ASIZE), new.number(key::TOP_ZAP), &new.kind), (11, 0, 7, 7, &VdevKind::File));
        assert_eq!(split.children[1], root.children[1]);
        assert_eq!(gone.iter().map(|side| side.guid).collect::<Vec<_>>(), [10]);
        assert!(root.split(&|guid| guid == 12).is_err());
        root.children[0] = data();
        assert!(root.split(&|guid| guid == 10).is_err(), "no mirror");
        root.children[0] = top();
        assert_eq!(root.split(&|_| false).unwrap().0, root, "a log stays as it is");
    }

    #[test]
    fn a_device_is_replaced_in_its_place() {
        let mut raidz = VdevConfig::new(VdevKind::Raidz, 0, 50);
        raidz.set(key::PARITY, 1);
        raidz.set(key::ASIZE, 7);
        raidz.children = vec![disk(0, 1, "/a"), disk(1, 2, "/b"), disk(2, 3, "/c")];
        let filling = raidz.with_beside(2, disk(0, 4, "/b"), VdevKind::Replacing, 60).unwrap();
        let group = &filling.children[1];
        assert_eq!((group.guid, group.id, &group.kind, group.children.len()), (60, 1, &VdevKind::Replacing, 2));
        assert_eq!(group.children[0].string(key::PATH).as_deref(), Some("/b/old"));
        assert_eq!(filling.number(key::ASIZE), 7, "the top keeps what is its own");
        // The new one is given up: the old one has its name again.
        assert_eq!(filling.without(4).unwrap(), raidz);
        // The old one goes.
        let done = filling.without(2).unwrap();
        assert_eq!((done.children[1].guid, done.children[1].id, done.children[1].string(key::PATH).as_deref()), (4, 1, Some("/b")));
        assert!(raidz.without(1).is_err() && raidz.without(50).is_err() && raidz.without(77).is_err());
    }

    fn spare(guid: u64, path: &str) -> VdevConfig {
        let mut spare = disk(0, guid, path);
        spare.set(key::IS_SPARE, 1);
        spare
    }

    #[test]
    fn a_spare_stands_in_and_goes_back_or_stays() {
        let one = top().with_beside(10, spare(11, "/s"), VdevKind::Spare, 99).unwrap();
        assert_eq!((one.guid, &one.kind, one.children[1].flag(key::IS_SPARE)), (99, &VdevKind::Spare, true));
        // It goes back.
        assert_eq!(one.spare_for_good(11), None);
        let back = one.without(11).unwrap();
        assert_eq!((back.guid, back.children.len(), back.string(key::PATH).as_deref()), (99, 0, Some("/a")));
        // It stays: no spare any more.
        assert_eq!(one.spare_for_good(10), Some(11));
        let stays = one.without(10).unwrap();
        assert_eq!((stays.guid, stays.get(key::IS_SPARE), stays.get(key::UNSPARE)), (99, None, None));
        assert_eq!(stays.string(key::PATH).as_deref(), Some("/s"));
        let mut distributed = spare(13, "draid1-0-0");
        distributed.kind = VdevKind::DraidSpare;
        let stays = top().with_beside(10, distributed, VdevKind::Spare, 99).unwrap().without(10).unwrap();
        assert_eq!((stays.guid, stays.get(key::IS_SPARE), stays.get(key::UNSPARE)), (99, Some(1), None), "a distributed spare is always one");
        // Of two that stand in the last one stays, and the other goes when that has everything.
        let two = one.with_beside(11, spare(12, "/t"), VdevKind::Spare, 98).unwrap();
        assert_eq!((two.children.len(), two.spare_for_good(10)), (3, Some(12)));
        let left = two.without(10).unwrap();
        assert_eq!(left.children.iter().map(|child| (child.guid, child.flag(key::IS_SPARE), child.flag(key::UNSPARE))).collect::<Vec<_>>(), [(11, true, false), (12, false, true)]);
        let last = left.without(11).unwrap();
        assert_eq!((last.guid, last.get(key::UNSPARE)), (99, None));
    }

    #[test]
    fn the_device_that_has_a_spare_is_replaced() {
        let mut mirror = VdevConfig::new(VdevKind::Mirror, 0, 50);
        mirror.children = vec![disk(0, 1, "/a"), disk(1, 2, "/b")];
        let spared = mirror.with_beside(2, spare(3, "/s"), VdevKind::Spare, 60).unwrap();
        let both = spared.with_beside(2, disk(0, 4, "/c"), VdevKind::Replacing, 61).unwrap();
        let group = &both.children[1];
        assert_eq!((group.guid, group.children[0].guid, group.children[1].guid), (60, 61, 3));
        assert_eq!(both.spare_for_good(2), None, "the new one is in its place");
        let done = both.without(2).unwrap();
        assert_eq!((done.children[1].children[0].guid, done.children[1].children[0].id), (4, 0));
        assert_eq!(done.without(3).unwrap().children[1].guid, 4);
        let mut well = spared.clone();
        assert!(well.set_unspare(2) && !well.set_unspare(2) && !well.set_unspare(1) && !well.set_unspare(3));
        assert!(well.children[1].children[0].flag(key::UNSPARE));
        assert_eq!(well.without(3).unwrap(), mirror);
    }
}
