//! The ZAPs of vdevs: properties and state of each top-level vdev and each device.
//!
//! # On disk
//! The MOS's directory names a ZAP of all of them, by their own numbers; the configuration in the MOS says which is whose.

use ondisk::feature::Feature;
use ondisk::object_type::ObjectType;

use crate::dmu::SyncTx;
use crate::dsl::meta::key;
use crate::dsl::{Meta, Mos};
use crate::error::{Result, Within};
use crate::vdev::{TopVdev, VdevConfig, VdevTree, key as vdev_key};
use crate::zap::{Integers, Zap, ZapSpec};
use crate::{bail, error};

/// In the MOS directory: all ZAPs of vdevs.
const VDEV_ZAP_MAP: &str = "com.delphix:vdev_zap_map";
/// In a top-level vdev's ZAP: what it is for.
pub(in crate::pool) const ALLOCATION_BIAS: &str = "org.zfsonlinux:allocation_bias";

/// Makes those of a new pool.
pub(in crate::pool) fn create_all(meta: &Meta, vdevs: &VdevTree, tx: &SyncTx<'_>) -> Result<()> {
    let all = Zap::create(&meta.mos.0, tx, &ZapSpec::new(ObjectType::ZAP_METADATA))?;
    meta.mos.zap_add_u64(key::DIRECTORY, VDEV_ZAP_MAP, all.object(), tx)?;
    vdevs.tops().iter().try_for_each(|top| create_in(meta, &all, top, tx))
}

/// Makes that of the root vdev, where the pool is to have one (`vdev_zaps_v2`) and has none yet; whether there was something to do.
pub(in crate::pool) fn create_for_root(meta: &Meta, vdevs: &VdevTree, tx: &SyncTx<'_>) -> Result<bool> {
    let there = vdevs.config().get(vdev_key::ROOT_ZAP).is_some_and(|zap| zap != 0);
    if there || !meta.features.is_enabled(Feature::VdevZapsV2) {
        return Ok(false);
    }
    let (mos, all) = (&meta.mos, list(&meta.mos)?);
    let zap = Zap::create(&mos.0, tx, &ZapSpec::new(ObjectType::ZAP_METADATA))?;
    all.add_int(tx, zap.object())?;
    vdevs.update_root_config(|root| root.set(vdev_key::ROOT_ZAP, zap.object()));
    if !meta.features.is_active(Feature::VdevZapsV2) {
        meta.features.increment(mos, Feature::VdevZapsV2, tx)?;
    }
    Ok(true)
}

/// Makes those of a vdev that is added.
///
/// # Errors
/// The pool has none for its other vdevs.
pub(in crate::pool) fn create(meta: &Meta, top: &TopVdev, tx: &SyncTx<'_>) -> Result<()> {
    create_in(meta, &list(&meta.mos)?, top, tx)
}

fn list(mos: &Mos) -> Result<Zap> {
    let object = mos.zap_u64(key::DIRECTORY, VDEV_ZAP_MAP)?;
    mos.zap(object.ok_or_else(|| error!(Corrupt, "the MOS has no list of the vdevs' ZAPs"))?)
}

fn create_in(meta: &Meta, all: &Zap, top: &TopVdev, tx: &SyncTx<'_>) -> Result<()> {
    let mos = &meta.mos;
    let make = || -> Result<Zap> {
        let zap = Zap::create(&mos.0, tx, &ZapSpec::new(ObjectType::ZAP_METADATA))?;
        all.add_int(tx, zap.object())?;
        Ok(zap)
    };
    let zap = make()?;
    let bias = top.bias();
    if let Some(word) = bias.word() {
        zap.add(tx, ALLOCATION_BIAS, Integers::U8(format!("{word}\0").as_bytes()))?;
    }
    if bias.is_class() {
        meta.features.increment(mos, Feature::AllocationClasses, tx)?;
    }
    let leaves = top.leaves().into_iter().map(|leaf| Ok((leaf.guid(), make()?.object()))).collect::<Result<Vec<_>>>()?;
    top.update_config(|config| {
        for (guid, zap) in leaves {
            if let Some(leaf) = config.find_mut(guid) {
                leaf.set(vdev_key::LEAF_ZAP, zap);
            }
        }
        config.set(vdev_key::TOP_ZAP, zap.object());
    });
    Ok(())
}

/// Makes that of a device which comes in.
///
/// # Errors
/// The pool has none for its other vdevs.
pub(in crate::pool) fn create_of_leaf(mos: &Mos, top: &TopVdev, guid: u64, tx: &SyncTx<'_>) -> Result<()> {
    let zap = Zap::create(&mos.0, tx, &ZapSpec::new(ObjectType::ZAP_METADATA))?;
    list(mos)?.add_int(tx, zap.object())?;
    top.update_config(|config| {
        if let Some(leaf) = config.find_mut(guid) {
            leaf.set(vdev_key::LEAF_ZAP, zap.object());
        }
    });
    Ok(())
}

/// Frees that of a device which goes.
///
/// # Errors
/// It is not in the list, or cannot be freed.
pub(in crate::pool) fn free_of_leaf(mos: &Mos, leaf: &VdevConfig, tx: &SyncTx<'_>) -> Result<()> {
    match leaf.number(vdev_key::LEAF_ZAP) {
        0 => Ok(()),
        zap => free_each(mos, &[zap], &leaf.display_name(), tx),
    }
}

/// Frees those of a vdev that is removed.
///
/// # Errors
/// One of them is not in the list, or cannot be freed.
pub(in crate::pool) fn free(mos: &Mos, top: &TopVdev, tx: &SyncTx<'_>) -> Result<()> {
    let config = top.config();
    let of_leaves = config.leaves().into_iter().filter_map(|leaf| leaf.get(vdev_key::LEAF_ZAP));
    let zaps: Vec<u64> = of_leaves.chain(config.get(vdev_key::TOP_ZAP)).filter(|zap| *zap != 0).collect();
    if zaps.is_empty() {
        return Ok(());
    }
    free_each(mos, &zaps, &top.id().to_string(), tx)
}

fn free_each(mos: &Mos, zaps: &[u64], vdev: &str, tx: &SyncTx<'_>) -> Result<()> {
    let all = list(mos)?;
    for zap in zaps.iter().copied() {
        if all.lookup_int(zap)?.is_none() {
            bail!(Corrupt, "ZAP {zap} of vdev {vdev} is not in the list of the vdevs' ZAPs");
        }
        all.remove_int(tx, zap).within(|| format!("ZAP {zap} of vdev {vdev}"))?;
        mos.free(zap, tx)?;
    }
    Ok(())
}
