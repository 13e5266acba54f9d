//! Devices come in beside others and go while files are synced, and the power goes at any moment of that: the pool is the one from before or the one after, and
//! what was acknowledged is there.

use engine::pool::auxiliary::{AuxiliaryKind, NewAuxiliary};
use engine::pool::{Beside, Fill, Stopped};
use engine::vdev::NewLeaf;
use sim::explore::disk::Image;

use crate::devices::{Rig, beside_syncs, explore_by, judge, synced_file};
use crate::file_system;

fn leaf(rig: &Rig, number: usize) -> NewLeaf {
    let disk = rig.disks[number].clone();
    NewLeaf { path: ::disk::Disk::name(&*disk).to_owned(), disk, whole_disk: false }
}

fn spare(rig: &Rig, number: usize) -> NewAuxiliary {
    NewAuxiliary { leaf: leaf(rig, number), kind: AuxiliaryKind::Spare, ashift: None, shared: None }
}

#[test]
fn a_device_is_there_or_not_when_the_power_goes_while_it_comes_or_goes() {
    for how in [Beside::Mirror, Beside::Replacement, Beside::Spare(0)] {
        let rig = Rig::new(2);
        let pool = rig.open(false);
        let fs = file_system(&pool);
        (0..4).for_each(|number| synced_file(&rig, &fs, number));
        let first = pool.vdevs.leaves()[0].guid();
        let how = match how {
            Beside::Spare(_) => Beside::Spare(pool.add_auxiliary(&[spare(&rig, 1)]).unwrap()[0]),
            how => how,
        };
        beside_syncs(&rig, &fs, || {
            pool.attach_device(first, leaf(&rig, 1), how, None).unwrap();
            pool.sync_all().unwrap();
            // A replacement may be done by now.
            if pool.vdevs.leaves().len() == 1 {
                return;
            }
            let new = pool.vdevs.leaves()[1].guid();
            pool.stop_device(new, Stopped::Offline, false).unwrap();
            pool.sync_all().unwrap();
            pool.online_device(new, Some(rig.disks[1].clone()), false).unwrap();
            pool.detach_device(new).unwrap();
        });
        assert_eq!(pool.vdevs.leaves().len(), 1);
        assert_eq!(pool.auxiliary().unwrap().spares.len(), usize::from(matches!(how, Beside::Spare(_))));
        (4..8).for_each(|number| synced_file(&rig, &fs, number));
        drop(fs);
        pool.abandon();
        let found = explore_by(&rig, &format!("{how:?}"), &|pool| pool.vdevs.leaves().len());
        // How long the two are there together is the resilver's matter.
        assert!(found[1] > 0 && (how == Beside::Replacement || found[2] > 0), "{found:?}");
    }
}

/// A side is filled by a rebuild while files are synced to the log, whose blocks are where it copies. The power goes at any moment; and at the end the new side alone has
/// what was acknowledged.
#[test]
fn a_rebuild_beside_syncs_loses_nothing_when_the_power_goes() {
    let rig = Rig::new(2);
    let pool = rig.open(false);
    let fs = file_system(&pool);
    (0..4).for_each(|number| synced_file(&rig, &fs, number));
    let first = pool.vdevs.leaves()[0].guid();
    beside_syncs(&rig, &fs, || {
        pool.attach_and_fill(first, leaf(&rig, 1), (Beside::Mirror, Fill::Sequential), None).unwrap();
        while pool.is_rebuilding() {
            pool.sync_all().unwrap();
        }
    });
    assert!(!pool.vdevs.leaves()[1].is_behind());
    (4..8).for_each(|number| synced_file(&rig, &fs, number));
    drop(fs);
    pool.abandon();
    let images = rig.disks.iter().enumerate().map(|(number, disk)| if number == 0 { Image::default() } else { disk.image() });
    judge(images.collect(), &[0, 1, 2, 3, 4, 5, 6, 7], true, "the new side alone");
    let found = explore_by(&rig, "a rebuild", &|pool| pool.vdevs.leaves().len());
    assert!(found[1] > 0 && found[2] > 0, "{found:?}");
}
