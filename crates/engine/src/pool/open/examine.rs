//! Looking at a pool that is not to be opened: which devices it lacks, which features it needs.
//!
//! # Theory
//! `zpool import` without a pool lists what could be imported, and why the rest cannot. That takes the configuration and the
//! features from the MOS and nothing else, and changes nothing: the devices may be open for looking only.

use std::sync::Arc;

use super::import::Candidate;
use super::open::{make_context, open_mos, read_config};
use crate::bail;
use crate::dsl::Mos;
use crate::dsl::feature::{Features, Unsupported};
use crate::error::{Result, Within};
use crate::host::HostRef;
use crate::pool::OpenOptions;
use crate::pool::checkpoint;
use crate::pool::devices::auxiliary::Auxiliary;
use crate::pool::devices::removed;
use crate::tunables::Tunables;
use crate::vdev::VdevTree;

/// What was found.
pub struct Examined {
    /// The vdevs as the MOS describes them, with the devices that are there.
    pub vdevs: Arc<VdevTree>,
    /// Features that are active and that this program cannot write, or not even read.
    pub unsupported: Vec<Unsupported>,
    /// The features that are enabled.
    pub features: Features,
    /// Hot spares and cache devices.
    pub auxiliary: Auxiliary,
}

/// Looks at `candidate`.
///
/// # Errors
/// The MOS cannot be read: devices or features are missing, or it is damaged.
pub fn examine(candidate: &Candidate, host: HostRef) -> Result<Examined> {
    let name = candidate.config.name.clone();
    examine_named(candidate, host).within(|| format!("pool {name}"))
}

/// The pool as it was when its checkpoint was made, to be looked at: the MOS keeps the uberblock of that time.
///
/// # Errors
/// The pool has no checkpoint, or its MOS cannot be read.
pub fn at_checkpoint(candidate: &Candidate, host: HostRef) -> Result<Candidate> {
    let name = candidate.config.name.clone();
    checkpoint_of(candidate, host).within(|| format!("pool {name}"))
}

fn checkpoint_of(candidate: &Candidate, host: HostRef) -> Result<Candidate> {
    candidate.config.check_features_for_read()?;
    let mos = open_true_mos(candidate, host)?.1;
    let Some(uberblock) = checkpoint::uberblock(&mos)? else { bail!(NotFound, "it has no checkpoint") };
    if uberblock.txg >= candidate.uberblock().txg {
        bail!(Corrupt, "the checkpoint of txg {} is newer than the pool", uberblock.txg);
    }
    Ok(Candidate { uberblocks: vec![uberblock], ..candidate.clone() })
}

/// The vdevs as the MOS describes them, and the MOS opened by them.
pub(in crate::pool) fn open_true_mos(candidate: &Candidate, host: HostRef) -> Result<(Arc<VdevTree>, Mos)> {
    // A look at the MOS needs neither threads nor much memory.
    let tunables = Tunables { write_workers: 1, read_workers: 1, cache_bytes_max: 16 << 20, ..Tunables::default() };
    let options = OpenOptions { host, tunables, read_only: true, file_owner: None, new_name: None, forget_log: false };
    let uberblock = candidate.uberblock();
    let labelled = Arc::new(candidate.open_tree()?);
    labelled.set_reflow(uberblock);
    let context = make_context(&options, &labelled, uberblock.txg);
    let mos = open_mos(&context, uberblock, Arc::default())?;
    let (_, stored) = read_config(&mos)?;
    drop(mos);
    // With the true tree: what was on a removed vdev is found only by it.
    let vdevs = Arc::new(VdevTree::open(stored.require_nvlist("vdev_tree")?, &candidate.device_map())?);
    vdevs.set_reflow(uberblock);
    let context = make_context(&options, &vdevs, uberblock.txg);
    let mos = open_mos(&context, uberblock, Arc::default())?;
    removed::load_maps(&mos, &vdevs)?;
    Ok((vdevs, mos))
}

fn examine_named(candidate: &Candidate, host: HostRef) -> Result<Examined> {
    candidate.config.check_features_for_read()?;
    let (vdevs, mos) = open_true_mos(candidate, host)?;
    let (features, unsupported) = Features::load(&mos, true)?;
    // Whatever is wrong with these keeps nobody from importing the pool.
    let auxiliary = Auxiliary::read(&mos).unwrap_or_default();
    Ok(Examined { vdevs, unsupported, features, auxiliary })
}
