//! What can be done with a pool: the verbs, and where each is.

use std::sync::Arc;

use ondisk::error_scrub::ErrorScrubRecord;
use ondisk::feature::Feature;
use ondisk::uberblock::Uberblock;

use super::check::{CheckOptions, CheckReport};
use super::checkpoint::{self, Checkpoint};
use super::config::{PoolState, properties, upgrade};
use super::devices::auxiliary::{self, Auxiliary, AuxiliaryKind, NewAuxiliary};
use super::devices::removed::{self, Removal};
use super::devices::beside::attach::{self, Beside, Fill};
use super::devices::beside::{detach, split};
use super::devices::states::Stopped;
use super::devices::vdev_properties::{self, StoredOfVdev};
use super::devices::{add, distributed, remove_log, states};
use super::error_log_sync::{self, Damaged};
use super::expansion::{self, ExpansionProgress};
use super::import::Candidate;
use super::open::{close, create, open};
use super::removal;
use super::leaf_work::{self, WorkCommand, WorkKind, WorkProgress};
use super::rebuild::RebuildProgress;
use super::scan::{self, ScanProgress, ScrubOf};
use super::{Import, NewPool, OpenOptions, Pool, check, maintenance};
use crate::arc::NewCacheDevice;
use crate::dsl::PropertyValue;
use crate::error::Result;
use crate::vdev::{NewLeaf, NewTop, VdevState};
use disk::DiskRef;

impl Pool {
    /// Makes a pool and leaves it open.
    ///
    /// # Errors
    /// A device is too small or cannot be written.
    pub fn create(new: NewPool, options: OpenOptions) -> Result<Arc<Pool>> {
        create::create(new, options)
    }

    /// Opens the pool of `candidate`, whose devices are open as `options` needs them.
    ///
    /// # Errors
    /// A device is missing, a feature is not known, something cannot be read: the error names it.
    pub fn open(candidate: &Candidate, options: OpenOptions) -> Result<Arc<Pool>> {
        open::open(candidate, options, Import::default())
    }

    /// As [`Pool::open`], of a pool that is imported.
    ///
    /// # Errors
    /// As there; or another host may have it by now.
    pub fn open_imported(candidate: &Candidate, options: OpenOptions, import: Import) -> Result<Arc<Pool>> {
        open::open(candidate, options, import)
    }

    /// Writes everything, says on the labels that nobody has the pool, and stops. Nothing may use the pool afterwards.
    ///
    /// # Errors
    /// Something could not be written; the threads are stopped all the same.
    pub fn export(&self) -> Result<()> {
        close::end(self.groups(), PoolState::Exported)
    }

    /// As [`Pool::export`], but the labels say that the pool is destroyed.
    ///
    /// # Errors
    /// As for [`Pool::export`].
    pub fn destroy(&self) -> Result<()> {
        close::end(self.groups(), PoolState::Destroyed)
    }

    /// Stops and lets go of the devices, without writing anything more: what a crash does.
    pub fn abandon(&self) {
        close::abandon(self.groups());
    }

    /// Adds top-level vdevs (`zpool add`), and returns when they are in use. `any_ashift`: although their sectors are of another size
    /// than those of the pool's other vdevs, which makes it impossible to remove one of these later.
    ///
    /// # Errors
    /// A device cannot be used, or the pool cannot have such a vdev; the pool is what it was.
    pub fn add_vdevs(&self, new: Vec<NewTop>, any_ashift: bool) -> Result<()> {
        let _one_at_a_time = self.lock_vdev_changes();
        add::add_vdevs(self.groups(), new, any_ashift)
    }

    /// Adds hot spares and cache devices, and returns their guids when that is on disk.
    ///
    /// # Errors
    /// A device is too small, or the pool has it already or cannot have such.
    pub fn add_auxiliary(&self, new: &[NewAuxiliary]) -> Result<Vec<u64>> {
        let _one_at_a_time = self.lock_vdev_changes();
        auxiliary::add(self.groups(), new)
    }

    /// Whether [`Pool::add_auxiliary`] could add these devices: for a caller that has more to add before them.
    ///
    /// # Errors
    /// A device is too small, or the pool has it already or cannot have such.
    pub fn check_auxiliary(&self, new: &[NewAuxiliary]) -> Result<()> {
        auxiliary::check(self.groups(), new)
    }

    /// Removes the hot spare or cache device with this guid, and returns when that is on disk.
    ///
    /// # Errors
    /// There is none, or it stands in for a device.
    pub fn remove_auxiliary(&self, guid: u64) -> Result<AuxiliaryKind> {
        let _one_at_a_time = self.lock_vdev_changes();
        checkpoint::refuse_change(self.groups().layers())?;
        auxiliary::remove(self.groups(), guid)
    }

    /// Its hot spares and cache devices.
    ///
    /// # Errors
    /// The MOS cannot be read.
    pub fn auxiliary(&self) -> Result<Auxiliary> {
        Auxiliary::read(self.groups().layers().mos())
    }

    /// From now on it uses just these cache devices. If it may not write it reads what they have.
    pub fn use_caches(&self, devices: Vec<NewCacheDevice>) {
        self.context.cache.set_devices(devices, self.guid(), &self.context.tunables, &self.context.host);
    }

    /// Removes the log device, or mirror of log devices, with this guid (`zpool remove`), and returns when that is on disk.
    ///
    /// # Errors
    /// It is no such device, or a log that nobody could replay is on it.
    pub fn remove_log(&self, guid: u64) -> Result<()> {
        let _one_at_a_time = self.lock_vdev_changes();
        remove_log::remove_log(self.groups(), guid)
    }

    /// Begins to remove the top-level vdev with this guid, which holds data (`zpool remove`): what it has is copied to the others in the groups that follow.
    ///
    /// # Errors
    /// `NotSupported`: such a vdev cannot be removed. `Conflict`: it is being removed. `Busy`: another one is, or it has not all of its data. `NoSpace`: the others have not enough room.
    /// `Invalid`: the pool has vdevs of other sectors, or with parity. `Exists`: there is a checkpoint.
    pub fn remove_top(&self, guid: u64) -> Result<()> {
        let _one_at_a_time = self.lock_vdev_changes();
        removal::begin_end_sync::begin(self.groups(), guid)
    }

    /// Gives up the removal that is under way.
    ///
    /// # Errors
    /// `NotFound`: there is none.
    pub fn cancel_removal(&self) -> Result<()> {
        let _one_at_a_time = self.lock_vdev_changes();
        removal::cancel_sync::cancel(self.groups())
    }

    /// Is a vdev being removed, or a map made shorter?
    pub fn is_removing(&self) -> bool {
        self.groups().removals().is_active()
    }

    /// What happened to removals since this was last asked, in the words of events.
    pub fn take_removal_events(&self) -> Vec<&'static str> {
        self.groups().removals().take_events()
    }

    /// Bytes that the map of a top-level vdev takes, or would take, about, if it were removed.
    pub fn map_bytes(&self, vdev: u64) -> Option<u64> {
        let layers = self.groups().layers();
        let map = layers.vdevs.top(vdev)?.map();
        map.map(|map| map.bytes()).or_else(|| removal::estimated_map_bytes(layers, vdev))
    }

    /// Puts a device beside that of guid `old` (`zpool attach`, `zpool replace`), and returns when it is written to. `ashift`: log2 of its
    /// sector, if not what it does best.
    ///
    /// # Errors
    /// `Unsupported`: nothing can be put there. `Invalid`: the device is too small, or its sectors are too large.
    pub fn attach_device(&self, old: u64, new: NewLeaf, how: Beside, ashift: Option<u32>) -> Result<()> {
        self.attach_and_fill(old, new, (how, Fill::Healing), ashift)
    }

    /// As [`Pool::attach_device`]; the device gets what it has missed in the way that is said (`-s`).
    ///
    /// # Errors
    /// As there; also `Busy`: devices are being filled in another way.
    pub fn attach_and_fill(&self, old: u64, new: NewLeaf, how: (Beside, Fill), ashift: Option<u32>) -> Result<()> {
        let _one_at_a_time = self.lock_vdev_changes();
        attach::attach(self.groups(), old, new, how, ashift)
    }

    /// Lets the distributed spare of guid `spare` stand in for the device of guid `old`, and returns when it is written to.
    ///
    /// # Errors
    /// `Unsupported`: it cannot stand in there. `Busy`: it stands in for another device, or devices are being filled in another way.
    pub fn attach_distributed(&self, old: u64, spare: u64, fill: Fill) -> Result<()> {
        let _one_at_a_time = self.lock_vdev_changes();
        distributed::attach(self.groups(), old, spare, fill)
    }

    /// Takes a device out of a mirror (`zpool detach`), and returns when that is on disk.
    ///
    /// # Errors
    /// `Unsupported`: it is not in a mirror. `Busy`: the others have not all that it has.
    pub fn detach_device(&self, guid: u64) -> Result<()> {
        let _one_at_a_time = self.lock_vdev_changes();
        detach::detach(self.groups(), guid)
    }

    /// Makes another pool of the devices with these guids, one of each mirror (`zpool split`), and leaves it open.
    ///
    /// # Errors
    /// `Invalid`: a top-level vdev is no mirror, or none of its sides is among them. `Busy`: the others have not all that they have.
    pub fn split(&self, chosen: &[u64], options: OpenOptions) -> Result<Arc<Pool>> {
        let _one_at_a_time = self.lock_vdev_changes();
        split::split(self.groups(), chosen, options)
    }

    /// Takes a device out of use (`zpool offline`), and returns when that is on disk; `temporary`: until the pool is exported.
    ///
    /// # Errors
    /// `Busy`: the others have not all that it has.
    pub fn stop_device(&self, guid: u64, how: Stopped, temporary: bool) -> Result<()> {
        let _one_at_a_time = self.lock_vdev_changes();
        states::stop(self.groups(), guid, how, temporary)
    }

    /// Uses a device again (`zpool online`), and returns how it is; `disk`: what was found where it should be; `to_stay`: a spare that stands in for it goes
    /// back when the device has everything.
    ///
    /// # Errors
    /// There is no such device, or the pool cannot be written.
    pub fn online_device(&self, guid: u64, disk: Option<DiskRef>, to_stay: bool) -> Result<VdevState> {
        let _one_at_a_time = self.lock_vdev_changes();
        let state = states::online(self.groups(), guid, disk, to_stay)?;
        leaf_work::resume(self.groups());
        Ok(state)
    }

    /// Uses all of the devices of a top-level vdev, if these are larger than they were (`zpool online -e`, `autoexpand`): that with the device
    /// of this guid, or all.
    ///
    /// # Errors
    /// The pool cannot be written.
    pub fn expand(&self, guid: Option<u64>) -> Result<()> {
        let _one_at_a_time = self.lock_vdev_changes();
        states::expand(self.groups(), guid)
    }

    /// Begins or ends work on the free space of the device with this guid (`zpool initialize`, `zpool trim`); it is written with the next group.
    ///
    /// # Errors
    /// `NotFound`: there is no such device. `Invalid`: it cannot be written. `Busy`: it is under way. `Conflict`: it is not. `NotSupported`: the device
    /// knows nothing of what is needed.
    pub fn work_on_leaf(&self, guid: u64, kind: WorkKind, command: WorkCommand) -> Result<()> {
        let _one_at_a_time = self.lock_vdev_changes();
        leaf_work::verbs::command(self.groups(), guid, kind, command)
    }

    /// How far work on the free space of devices is, where there was any.
    pub fn leaf_work(&self) -> Vec<WorkProgress> {
        self.groups().works().progress(self.groups().layers())
    }

    /// Looks at all devices again (`zpool reopen`): `found` is what is where devices should be that are not open, `gone` are devices
    /// that are no longer where they were.
    ///
    /// # Errors
    /// The pool cannot be written.
    pub fn reopen_devices(&self, found: Vec<(u64, DiskRef)>, gone: Vec<u64>) -> Result<()> {
        states::reopen(self.groups(), found, gone)?;
        leaf_work::resume(self.groups());
        Ok(())
    }

    /// The last removal of a vdev, if there was one.
    ///
    /// # Errors
    /// The MOS cannot be read.
    pub fn last_removal(&self) -> Result<Option<Removal>> {
        removed::last_removal(self.groups().layers())
    }

    /// The value of a property, if it is stored.
    ///
    /// # Errors
    /// The dictionary cannot be read.
    pub fn stored_property(&self, name: &str) -> Result<Option<PropertyValue>> {
        properties::stored_property(self.groups().layers(), name)
    }

    /// All stored properties.
    ///
    /// # Errors
    /// The dictionary cannot be read.
    pub fn stored_properties(&self) -> Result<Vec<(String, PropertyValue)>> {
        properties::stored_properties(self.groups().layers())
    }

    /// What users have set of vdevs, by their guids.
    ///
    /// # Errors
    /// The MOS cannot be read.
    pub fn stored_vdev_properties(&self) -> Result<Vec<StoredOfVdev>> {
        vdev_properties::stored(self.groups().layers())
    }

    /// Sets a property of a vdev (`zpool set`), and waits until that is on disk. An empty text removes what a user made up.
    ///
    /// # Errors
    /// `NotFound`: there is no such vdev. `Invalid`: it cannot have the value. `NotSupported`: it cannot have the property.
    pub fn set_vdev_property(&self, guid: u64, name: &str, value: PropertyValue) -> Result<()> {
        let _one_at_a_time = self.lock_vdev_changes();
        vdev_properties::set(self.groups(), guid, name, value)
    }

    /// Stores properties, and waits until that is on disk. An empty text removes. `comment` and `compatibility` go into
    /// the configuration.
    ///
    /// # Errors
    /// The pool is read-only or full.
    pub fn set_properties(&self, values: Vec<(String, PropertyValue)>) -> Result<()> {
        properties::set_properties(self.groups(), values)?;
        leaf_work::autotrim::obey(self.groups())
    }

    /// Enables features with all they depend on, and waits until that is on disk.
    ///
    /// # Errors
    /// `NotSupported`: this program cannot write pools that have it.
    pub fn enable_features(&self, features: Vec<Feature>) -> Result<()> {
        properties::enable_features(self.groups().layers(), self.groups().configuration(), features)
    }

    /// Raises the version, and waits until that is on disk. Features are not enabled yet (`enable_features`).
    ///
    /// # Errors
    /// `NotSupported`: the pool is older than what this program can convert, or there is no such version.
    pub fn raise_version(&self, version: u64) -> Result<()> {
        upgrade::raise_version(self.groups().layers(), self.groups().configuration(), version)
    }

    /// Turns multihost protection on or off, as the property says.
    ///
    /// # Errors
    /// The host has no id to tell it by.
    pub fn set_multihost(&self, on: bool) -> Result<()> {
        self.groups().set_multihost(on)
    }

    /// Gives the pool another guid, so that a copy of its devices can be imported beside it, and waits until that is on disk.
    ///
    /// # Errors
    /// A device is missing: it would no longer belong to the pool.
    pub fn change_guid(&self, guid: Option<u64>) -> Result<()> {
        maintenance::change_guid(self.groups().layers(), self.groups().configuration(), guid)
    }

    /// Does with failed writes what the property `failmode` says: for a program that has somebody to clear them.
    ///
    /// # Errors
    /// The property cannot be read.
    pub fn obey_failmode(&self) -> Result<()> {
        maintenance::obey_failmode(self.groups().layers())
    }

    /// Errors are forgotten, of one device or of all; what waits to be written is tried again.
    pub fn clear_errors(&self, device: Option<u64>) {
        maintenance::clear_errors(self.groups(), device);
        states::begin_to_catch_up(self.groups());
    }

    /// Devices that count as broken are tried again, of one guid or all; `found`: what is where those should be that are not open.
    pub fn forgive_devices(&self, device: Option<u64>, found: Vec<(u64, DiskRef)>) {
        states::forgive(self.groups(), device, found);
        leaf_work::resume(self.groups());
    }

    /// Says in the history, in some txg soon, that this program made or imported the pool.
    ///
    /// # Errors
    /// The pool is read-only or has stopped.
    pub fn record_version_soon(&self, what: &'static str) -> Result<()> {
        maintenance::record_version_soon(self.groups().layers(), self.groups().configuration(), what)
    }

    /// Begins a scrub, or goes on with one that is paused. `from_last`: only what was born since the last one that has seen all.
    ///
    /// # Errors
    /// `Busy`: a scan is under way; the pool is read-only or has stopped.
    pub fn scrub(&self, from_last: bool) -> Result<()> {
        self.scrub_of(if from_last { ScrubOf::SinceLast } else { ScrubOf::All })
    }

    /// As [`Pool::scrub`], of what is said.
    ///
    /// # Errors
    /// As there.
    pub fn scrub_of(&self, what: ScrubOf) -> Result<()> {
        scan::verbs::scrub(self.groups(), what)
    }

    /// Begins an error scrub, which reads again what is known to be damaged, or goes on with one that is paused.
    ///
    /// # Errors
    /// `Busy`: a scan is under way; the pool is read-only or has stopped.
    pub fn scrub_errors(&self) -> Result<()> {
        scan::verbs::scrub_errors(self.groups())
    }

    /// The last error scrub, if no scrub has followed.
    pub fn error_scrub(&self) -> Option<ErrorScrubRecord> {
        self.groups().scans().error_scrub()
    }

    /// Pauses the scrub that is under way; if there is none, nothing happens.
    ///
    /// # Errors
    /// `Busy`: it is paused already.
    pub fn pause_scrub(&self) -> Result<()> {
        scan::verbs::pause(self.groups())
    }

    /// Gives up the scrub that is under way.
    ///
    /// # Errors
    /// `NotFound`: there is none; `Busy`: it is a resilver.
    pub fn stop_scrub(&self) -> Result<()> {
        scan::verbs::stop(self.groups())
    }

    /// Begins anew what devices need (`zpool resilver`).
    ///
    /// # Errors
    /// `NotSupported`: the pool has not the feature for it; the pool is read-only or has stopped.
    pub fn resilver(&self) -> Result<()> {
        scan::verbs::resilver(self.groups())
    }

    /// Adds a device to the RAID-Z vdev of this guid (`zpool attach`), and returns when its sectors are being moved.
    ///
    /// # Errors
    /// `Unsupported`, `Busy`: it cannot have one now. `Invalid`: the device is too small, or its sectors are too large.
    pub fn expand_raidz(&self, guid: u64, new: NewLeaf, ashift: Option<u32>) -> Result<()> {
        let _one_at_a_time = self.lock_vdev_changes();
        expansion::begin_end_sync::begin(self.groups(), guid, new, ashift)
    }

    /// The last time that RAID-Z got a device more, as it is now.
    pub fn expansion_progress(&self) -> Option<ExpansionProgress> {
        self.groups().expansion().progress(self.groups().layers())
    }

    /// The last scan, as it is now.
    pub fn scan_progress(&self) -> Option<ScanProgress> {
        self.groups().scans().progress()
    }

    /// The last sequential rebuild of each vdev, as it is now.
    pub fn rebuild_progress(&self) -> Vec<RebuildProgress> {
        self.groups().rebuilds().progress(self.context.host.now_ns())
    }

    /// Is a vdev being rebuilt?
    pub fn is_rebuilding(&self) -> bool {
        self.groups().rebuilds().is_active()
    }

    /// Is a scan at work, or about to be?
    pub fn is_scanning(&self) -> bool {
        self.groups().scans().is_active()
    }

    /// Does a resilver begin with the next group?
    pub fn is_resilver_due(&self) -> bool {
        self.groups().scans().resilver_wanted().is_some()
    }

    /// The devices whose resilver begins when the one that is under way is done.
    pub fn awaiting_resilver(&self) -> Vec<u64> {
        scan::deferred(self.groups())
    }

    /// What happened to scans since this was last asked, in the words of events.
    pub fn take_scan_events(&self) -> Vec<scan::ScanEvent> {
        self.groups().scans().take_events()
    }

    /// Keeps the pool as it is (`zpool checkpoint`), and returns when that is on disk.
    ///
    /// # Errors
    /// `Exists`: there is a checkpoint, or one is being freed. `Busy`: a vdev is being removed. `NotSupported`: the pool has not the feature.
    pub fn take_checkpoint(&self) -> Result<()> {
        let _one_at_a_time = self.lock_vdev_changes();
        checkpoint::verbs::take(self.groups())
    }

    /// Gives up what is kept; it is freed in the groups that follow.
    ///
    /// # Errors
    /// `NotFound`: there is no checkpoint. `Exists`: it is being freed already.
    pub fn discard_checkpoint(&self) -> Result<()> {
        checkpoint::verbs::discard(self.groups())
    }

    /// The checkpoint, if there is one.
    ///
    /// # Errors
    /// The MOS cannot be read.
    pub fn checkpoint(&self) -> Result<Option<Checkpoint>> {
        checkpoint::checkpoint(self.groups().layers())
    }

    /// The uberblock that the checkpoint keeps.
    ///
    /// # Errors
    /// The MOS cannot be read.
    pub fn checkpoint_uberblock(&self) -> Result<Option<Uberblock>> {
        checkpoint::uberblock(self.groups().layers().mos())
    }

    /// The bytes of a top-level vdev, named by its ZAP, that only the checkpoint keeps.
    ///
    /// # Errors
    /// The MOS cannot be read.
    pub fn checkpoint_bytes(&self, top_zap: u64) -> Result<u64> {
        checkpoint::checkpoint_bytes(self.groups().layers(), top_zap)
    }

    /// The blocks that the pool's log of errors names. What was found since the last group was written is not in it yet.
    ///
    /// # Errors
    /// The log cannot be read.
    pub fn damaged(&self) -> Result<Vec<Damaged>> {
        error_log_sync::all_damaged(self.groups().layers())
    }

    /// Shows the blocks that one of the pool's logs of errors names, until `visit` wants no more.
    ///
    /// # Errors
    /// The log cannot be read.
    pub fn each_damaged(&self, log: &str, visit: &mut dyn FnMut(Damaged) -> bool) -> Result<()> {
        error_log_sync::each(self.groups().layers(), log, visit)
    }

    /// Walks the pool as it was last written: every block, every checksum, every byte of space. The pool must be quiet
    /// (opened read-only, or just synced with nobody changing it). `progress` is told the number of blocks.
    ///
    /// # Errors
    /// The walk could not begin; what is wrong with the pool is in the report.
    pub fn check(&self, options: CheckOptions, progress: &(dyn Fn(u64) + Sync)) -> Result<CheckReport> {
        check::verify::check(self.groups().layers(), self.uberblock().txg, options, progress)
    }
}
