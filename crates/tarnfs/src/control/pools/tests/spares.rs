//! Hot spares that several pools have.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::time::Duration;

use disk::{Access, WatchedDisk};
use engine::vdev::NewLeaf;

use super::*;

/// Whether it becomes so within a while.
fn comes(is_so: impl Fn() -> bool) -> bool {
    (0..1000).any(|_| {
        std::thread::sleep(Duration::from_millis(10));
        is_so()
    })
}

fn add_spare(rig: &mut Rig, pool: &str, path: &Path) {
    let vdevs = vec![VdevSpec { kind: VdevKind::File, path: Some(path.to_path_buf()), class: AllocationClass::Spare, children: Vec::new() }];
    rig.pools.pool_add(PoolAdd { name: pool.into(), vdevs, force: false, any_ashift: false, ashift: None }).unwrap();
}

/// `zpool replace` looked whether a spare was free, and did not take it: until it was in, the agent put it into another pool, too, and both wrote to it.
#[test]
fn a_spare_that_a_verb_brings_in_is_not_taken_for_another_pool() {
    let mut rig = Rig::new();
    let [a, b, c, d, shared, slow] = ["a.img", "b.img", "c.img", "d.img", "shared.img", "slow.img"].map(|name| rig.image(name));
    rig.create("one", &[&a, &b], Vec::new()).unwrap();
    rig.create("two", &[&c, &d], Vec::new()).unwrap();
    add_spare(&mut rig, "one", &shared);
    add_spare(&mut rig, "two", &shared);
    let [one, two] = ["one", "two"].map(|name| rig.pools.pool(name).unwrap().engine().clone());
    let spare = one.auxiliary().unwrap().spares[0].guid;
    let has_spare = |engine: &engine::pool::Pool| engine.vdevs.find_leaf(spare).is_some();
    let beside = rig.pools.beside();
    let (release, released) = channel::<()>();
    let (begun, released) = (Arc::new(AtomicBool::new(false)), Mutex::new(released));
    let is_begun = begun.clone();
    // No verb on devices of the pool goes on before the labels of this one are written.
    let before = move |request: disk::Request| -> std::io::Result<()> {
        if matches!(request, disk::Request::Write(_)) {
            begun.store(true, Ordering::SeqCst);
            let _ = released.lock().recv();
        }
        Ok(())
    };
    let device = Arc::new(WatchedDisk::new(disk::open(&slow.to_string_lossy(), Access::Write).unwrap(), before));
    let new = NewLeaf { disk: device, path: slow.display().to_string(), whole_disk: false };
    let (engine, old) = (one.clone(), one.vdevs.leaves()[0].guid());
    let attach = DeviceAttach { device: b.display().to_string(), new: shared.clone(), replace: true, force: false, sequential: false, ashift: None };
    std::thread::scope(|scope| {
        // It goes also where an assertion fails.
        let held_back = release;
        let first = scope.spawn(move || engine.attach_device(old, new, engine::pool::Beside::Mirror, None));
        assert!(comes(|| is_begun.load(Ordering::SeqCst)), "the labels are written");
        let second = scope.spawn(|| rig.pools.pool_device(PoolDevice { name: "one".into(), verb: DeviceVerb::Attach(attach) }));
        assert!(comes(|| beside.reserved().lock().contains(&spare)), "the verb takes the spare");
        two.stop_device(two.vdevs.leaves()[0].guid(), engine::pool::Stopped::Faulted, false).unwrap();
        for _ in 0..20 {
            beside.look_after();
            std::thread::sleep(Duration::from_millis(20));
        }
        assert!(!has_spare(&two), "the agent does not");
        drop(held_back);
        first.join().unwrap().unwrap();
        second.join().unwrap().unwrap();
    });
    assert!(has_spare(&one) && !has_spare(&two));
    assert!(comes(|| beside.reserved().lock().is_empty()), "nothing is on its way in");
}
