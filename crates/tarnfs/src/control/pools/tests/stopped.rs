//! Verbs during which the pool stops. What they have begun is done when it goes on, though they fail: what follows from it must follow.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};

use disk::{Access, WatchedDisk};
use engine::host::RealHost;
use engine::vdev::{FailureMode, NewLeaf, NewTop};

use super::*;

/// Has one file system mounted, and keeps what it is told.
struct Listener(Arc<Mutex<Vec<String>>>);

impl Mounter for Listener {
    fn mount(&mut self, plan: MountPlan) -> Result<(), Failure> {
        self.0.lock().push(format!("{} is to be mounted", plan.dataset));
        Ok(())
    }

    fn remount(&mut self, _: &Arc<Pool>, _: &str, _: &[String]) -> Result<(), Failure> {
        Ok(())
    }

    fn unmount(&mut self, _: &str, _: bool) -> Result<(), Failure> {
        Ok(())
    }

    fn unmount_tree(&mut self, _: &str, _: bool) -> Result<(), Failure> {
        Ok(())
    }

    fn renamed(&mut self, from: &str, to: &str) {
        self.0.lock().push(format!("{from} is {to}"));
    }

    fn is_mounted(&self, dataset: &str) -> bool {
        dataset == "tank/a"
    }

    fn list(&self) -> Vec<Mount> {
        vec![Mount { dataset: "tank/a".into(), mountpoint: "/nowhere".into() }]
    }

    fn refresh(&mut self, _: &Arc<Pool>) -> Vec<(String, Failure)> {
        self.0.lock().push("properties are others".into());
        Vec::new()
    }
}

/// A device that begins to refuse writes when it is asked to.
#[derive(Default)]
struct Switch {
    is_broken: AtomicBool,
    /// Asked before each write: is this the first one that it refuses?
    breaks: Mutex<Option<Box<dyn Fn() -> bool + Send>>>,
}

impl Switch {
    fn refuses(&self) -> bool {
        let mut breaks = self.breaks.lock();
        if breaks.as_ref().is_some_and(|breaks| breaks()) {
            *breaks = None;
            self.is_broken.store(true, Ordering::SeqCst);
        }
        self.is_broken.load(Ordering::SeqCst)
    }
}

/// The pool `tank` with the file system `tank/a`, on such a device.
struct Stopping {
    rig: Rig,
    told: Arc<Mutex<Vec<String>>>,
    switch: Arc<Switch>,
    engine: Arc<engine::pool::Pool>,
}

impl Stopping {
    fn new() -> Stopping {
        let (mut rig, told, switch) = (Rig::new(), Arc::default(), Arc::new(Switch::default()));
        rig.pools = Pools::new(Listener(Arc::clone(&told)));
        let (path, asked) = (rig.image("a.img"), switch.clone());
        let before = move |request: disk::Request| -> io::Result<()> {
            match request {
                disk::Request::Write(_) if asked.refuses() => Err(io::Error::other("it takes no writes now")),
                _ => Ok(()),
            }
        };
        let device = Arc::new(WatchedDisk::new(disk::open(&path.to_string_lossy(), Access::Write).unwrap(), before));
        let leaf = NewLeaf { disk: device, path: path.display().to_string(), whole_disk: false };
        let top = NewTop { leaves: vec![leaf], ashift: Some(12), ..NewTop::default() };
        // No group ends by itself.
        let tunables = Tunables { txg_timeout_ns: 3_600_000_000_000, ..Tunables::default() };
        let nowhere = crate::PropertyChange::Set(engine::dsl::PropertyValue::Text("none".into()));
        let options = crate::CreateOptions { tunables: Some(tunables), properties: vec![("mountpoint".into(), nowhere)], ..crate::CreateOptions::default() };
        let pool = Pool::create_on("tank", vec![top], options, RealHost::shared()).unwrap();
        let engine = pool.engine().clone();
        engine.vdevs.gate().set_mode(FailureMode::Wait);
        rig.pools.pools.insert("tank".into(), Arc::new(Imported::new(pool)));
        rig.pools.table_changed();
        rig.make("tank/a", Vec::new()).unwrap();
        Stopping { rig, told, switch, engine }
    }

    /// What is told while a verb is done during which the device begins to refuse writes: its change is made, and not on disk. Then all goes on.
    fn amid(&mut self, verb: impl FnOnce(&mut Rig) -> Result<(), Failure>) -> Vec<String> {
        // Nothing else is left to do.
        (0..4).for_each(|_| self.engine.write_group().unwrap());
        self.told.lock().clear();
        let (asked, first) = (self.engine.clone(), self.engine.context.groups.open_txg());
        let is_made = move || asked.context.groups.syncing_txg().is_some_and(|txg| txg >= first && !asked.dsl.has_tasks(txg));
        *self.switch.breaks.lock() = Some(Box::new(is_made));
        let failure = verb(&mut self.rig).expect_err("nothing can be written");
        assert!(self.switch.is_broken.load(Ordering::SeqCst) && failure.message.contains("has begun"), "{failure}");
        let told = std::mem::take(&mut *self.told.lock());
        self.switch.is_broken.store(false, Ordering::SeqCst);
        self.engine.clear_errors(None);
        self.engine.sync_all().unwrap();
        told
    }
}

fn rename(from: &str, to: &str) -> DatasetRename {
    DatasetRename { from: from.into(), to: to.into(), parents: false, recursive: false, no_remount: true, force: false }
}

/// What was mounted went by the old name from then on, and a new file system or snapshot of that name was taken for it.
#[test]
fn what_is_mounted_gets_its_new_name_though_the_pool_stops() {
    let mut stopping = Stopping::new();
    let take = stopping.rig.pools.snapshots_create(SnapshotsCreate { names: vec!["tank/a@s".into()], properties: Vec::new() }).unwrap();
    assert_eq!(take().unwrap(), []);
    let told = stopping.amid(|rig| rig.pools.dataset_rename(rename("tank/a@s", "tank/a@t")));
    assert_eq!(told, ["tank/a@s is tank/a@t", "properties are others"]);
    assert!(stopping.engine.dsl.open_dataset("tank/a@t").is_ok());
    let told = stopping.amid(|rig| rig.pools.dataset_rename(rename("tank/a", "tank/b")));
    assert_eq!(told, ["tank/a is tank/b", "properties are others"]);
    assert!(stopping.engine.dsl.open_dataset("tank/b").is_ok());
}

/// `zfs set sync=disabled` was obeyed when the file system was mounted anew only.
#[test]
fn properties_are_obeyed_though_the_pool_stops() {
    let mut stopping = Stopping::new();
    let told = stopping.amid(|rig| rig.set("tank/a", Setting::new("sync", 2)));
    assert_eq!(told, ["properties are others"]);
}

/// Nobody had the device of a new spare open: it was shown as missing, and did not stand in for any device.
#[test]
fn a_spare_is_held_though_the_pool_stops() {
    let mut stopping = Stopping::new();
    let path = stopping.rig.image("spare.img");
    let vdevs = vec![VdevSpec { kind: VdevKind::File, path: Some(path.clone()), class: AllocationClass::Spare, children: Vec::new() }];
    let add = PoolAdd { name: "tank".into(), vdevs, force: false, any_ashift: false, ashift: None };
    stopping.amid(|rig| rig.pools.pool_add(add));
    let listed = stopping.engine.auxiliary().unwrap().spares;
    let held: Vec<(u64, String)> = stopping.rig.pools.pools["tank"].auxiliary.lock().spares().map(|(guid, disk)| (guid, disk.name().to_owned())).collect();
    assert_eq!(held, [(listed[0].guid, path.display().to_string())]);
}
