//! `zpool history`, `zpool reguid`, `zpool clear`, `zpool upgrade`

pub(in crate::control::pools) mod scrub;

use engine::dsl::history::field;
use engine::error::ErrorKind;
use ondisk::nvlist::{NvList, Value};

use crate::control::compatibility::{self, Allowed};
use crate::control::pools::beside::{self, Table};
use crate::control::pools::zpool::devices::beside::{find, look, words};
use crate::control::pools::{Failure, FailureKind, Imported, Pools};
use crate::control::scan::is_device;
use crate::control::{
    HistoryRecord, HistoryWhat, PoolClear, PoolHistory, PoolRecord, PoolReguid, PoolSelect, PoolUpgrade, VdevStatus,
};

/// The longest command that is recorded.
const COMMAND_BYTES_MAX: usize = 8 << 10;
const OLD_EVENT: &str = "history internal event";
const CALL: &str = "ioctl";
const ELAPSED: &str = "elapsed_ns";

/// `zpool history`
pub(in crate::control::pools) fn histories(table: &Table, select: &PoolSelect) -> Result<Vec<PoolHistory>, Failure> {
    let histories = beside::select(table, select.name.as_deref())?.into_iter().map(|(name, imported)| {
        let dsl = &imported.pool.engine().dsl;
        // The command before this one is in it. Of a pool that waits for a device, what is on disk is shown.
        let _ = dsl.wait_for_tasks();
        let records = dsl.history.read(&dsl.meta).map_err(|error| Failure::about_pool(&error))?;
        Ok(PoolHistory { name: name.clone(), records: records.iter().map(HistoryRecord::of).collect() })
    });
    histories.collect()
}

impl Pools {
    /// A command is recorded soon; nobody waits for it.
    pub(in crate::control::pools) fn record(&self, record: &PoolRecord) -> Result<(), Failure> {
        let imported = self.find(&record.pool)?;
        imported.pool.record_command(&record.command.words, record.command.user);
        Ok(())
    }

    pub(in crate::control::pools) fn reguid(&mut self, reguid: &PoolReguid) -> Result<(), Failure> {
        self.change_guid(reguid)?;
        self.write_cachefile(&reguid.name);
        Ok(())
    }

    fn change_guid(&self, reguid: &PoolReguid) -> Result<(), Failure> {
        let imported = self.find(&reguid.name)?;
        let taken = |guid| self.pools.values().any(|other| other.pool.engine().guid() == guid);
        if let Some(guid) = reguid.guid
            && (guid == 0 || taken(guid))
        {
            return Err(Failure::with(FailureKind::BadProperty, format!("guid {guid} cannot be used: it is 0, or that of an imported pool")));
        }
        imported.pool.engine().change_guid(reguid.guid).map_err(|error| match error.kind() {
            ErrorKind::NoDevice => Failure::with(FailureKind::PoolUnavailable, "one or more devices is currently unavailable"),
            ErrorKind::Exists => Failure::with(FailureKind::PoolNotSupported, words(&error)),
            _ => Failure::about_pool(&error),
        })
    }

    pub(in crate::control::pools) fn upgrade(&mut self, upgrade: &PoolUpgrade) -> Result<(), Failure> {
        let engine = self.find(&upgrade.name)?.pool.engine().clone();
        if engine.is_read_only() {
            return Err(Failure::new(FailureKind::PoolReadOnly));
        }
        let compatibility = engine.config().compatibility.map_or_else(String::new, |text| text.to_string());
        if compatibility::load(&compatibility)? == Allowed::These(Vec::new()) {
            return Err(Failure::with(FailureKind::PoolNotSupported, "its property 'compatibility' allows no features; set it to 'off' first"));
        }
        engine.raise_version(upgrade.version).map_err(|error| Failure::about_pool(&error))?;
        self.write_cachefile(&upgrade.name);
        Ok(())
    }
}

/// `zpool checkpoint`
pub(in crate::control::pools) fn checkpoint(engine: &engine::pool::Pool, discard: bool) -> Result<(), Failure> {
    let done = if discard { engine.discard_checkpoint() } else { engine.take_checkpoint() };
    done.map_err(|error| match error.kind() {
        ErrorKind::Exists | ErrorKind::NotFound | ErrorKind::Busy | ErrorKind::NotSupported => Failure::with(FailureKind::PoolNotSupported, words(&error)),
        _ => Failure::about_pool(&error),
    })
}

/// `zpool clear`
pub(in crate::control::pools) fn clear(table: &Table, clear: &PoolClear) -> Result<(), Failure> {
    let Some(imported) = table.get(&clear.name) else { return Err(Failure::new(FailureKind::NoSuchPool)) };
    let engine = imported.pool.engine().clone();
    let chosen = match &clear.device {
        None => vec![None],
        Some(device) if *device == engine.guid().to_string() => vec![None],
        Some(device) => to_be_cleared(&imported, device)?.into_iter().map(Some).collect(),
    };
    if engine.is_read_only() {
        return Err(Failure::new(FailureKind::PoolReadOnly));
    }
    // Before anything is done: another host may have the pool, and its devices.
    check_not_stopped(&engine)?;
    let found = look(&engine);
    chosen.iter().for_each(|device| engine.forgive_devices(*device, found.clone()));
    for device in chosen {
        engine.clear_errors(device);
        device.into_iter().for_each(|cache| engine.context.cache.clear_device_errors(cache));
    }
    check_not_stopped(&engine)
}

/// The devices that have this name, or belong to the group of this name.
fn to_be_cleared(imported: &Imported, name: &str) -> Result<Vec<u64>, Failure> {
    let failure = match find(&imported.pool.engine().vdevs.config(), name) {
        Ok(found) => return Ok(found.leaves().iter().map(|leaf| leaf.guid).collect()),
        Err(failure) => failure,
    };
    // What is in memory: a pool that is stopped reads nothing.
    let listed = &imported.auxiliary.lock().status;
    let is_called = |of: &&VdevStatus| of.guid.to_string() == name || of.path.as_deref().is_some_and(|path| is_device(path, of.whole_disk, name));
    if listed.spares.iter().any(|spare| is_called(&spare)) {
        return Err(Failure::with(FailureKind::BadDevice, "device is reserved as a hot spare"));
    }
    listed.caches.iter().find(is_called).map(|cache| vec![cache.guid]).ok_or(failure)
}

/// Refuses a pool that something has stopped for good.
fn check_not_stopped(engine: &engine::pool::Pool) -> Result<(), Failure> {
    if engine.context.groups.failure().is_some() {
        return Err(Failure::with(
            FailureKind::PoolUnavailable,
            "pool I/O is currently suspended and cannot be resumed: end it with 'zpool export -F' and import it again",
        ));
    }
    Ok(())
}

impl HistoryRecord {
    /// A record in the words of `control`. Its fields may be anything.
    #[must_use]
    pub fn of(record: &NvList) -> HistoryRecord {
        let text = |name: &str| record.str(name).map(str::to_owned);
        let txg = record.u64(field::TXG).unwrap_or(0);
        let details = text(field::DETAILS).unwrap_or_default();
        let what = if let Some(command) = text(field::COMMAND) {
            HistoryWhat::Command(command)
        } else if let Some(number) = record.u64(OLD_EVENT) {
            HistoryWhat::OldEvent { txg, number, details }
        } else if let Some(name) = text(field::EVENT) {
            let dataset = text(field::DATASET).map(|dataset| (dataset, record.u64(field::DATASET_OBJECT).unwrap_or(0)));
            HistoryWhat::Event { txg, name, dataset, details }
        } else if let Some(name) = text(CALL) {
            HistoryWhat::Call { name, record: record.encode_xdr() }
        } else {
            HistoryWhat::Unknown(record.encode_xdr())
        };
        let elapsed_ns = record.get(ELAPSED).and_then(|value| if let Value::Int64(number) = value { Some(*number) } else { None });
        HistoryRecord { time: record.u64(field::TIME), elapsed_ns, what, user: record.u64(field::WHO), host: text(field::HOST), zone: text(field::ZONE) }
    }
}

impl crate::Pool {
    /// Puts a command into the pool's history. That is best effort: the command was carried out already.
    pub fn record_command(&self, words: &str, user: u32) {
        if self.engine().is_read_only() {
            return;
        }
        let words: String = words.chars().filter(|letter| *letter != '\0').take(COMMAND_BYTES_MAX).collect();
        if let Err(error) = self.engine().dsl.record_command(words, user.into()) {
            tracing::warn!(pool = self.name(), %error, "a command is missing from the history");
        }
    }
}
