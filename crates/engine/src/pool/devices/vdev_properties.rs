//! Properties of vdevs: what users set of them, and what is done about it.
//!
//! # On disk
//! In the ZAP of the vdev: of the root, a top-level vdev, or a device. That a vdev is closed to allocations is in the description of it, too.

use std::sync::Arc;

use crate::bail;
use crate::alloc::ClassKind;
use crate::dmu::SyncTx;
use crate::dsl::prop_sync::check_fits;
use crate::dsl::prop_table::is_user_property;
use crate::dsl::{Dsl, Mos, PropertyValue, SpaceCheck};
use crate::error::Result;
use crate::pool::config::vdev_prop_table;
use crate::pool::layers::Layers;
use crate::pool::sync::writer::GroupWriter;
use crate::vdev::{TopVdev, VdevConfig, key};

/// Blocks of the MOS that change, about.
const BLOCKS: u64 = 6;
const ALLOCATING: &str = "allocating";
const SIT_OUT: &str = "sit_out";
/// In the ZAP of a top-level vdev.
const AUTOSIT: &str = "autosit";

/// What is stored of a vdev: its guid, and names with values.
pub type StoredOfVdev = (u64, Vec<(String, PropertyValue)>);

/// The ZAP that has the properties of a vdev; 0: none.
#[doc(alias = "vdev_prop_get_objid")]
fn zap_of(vdev: &VdevConfig) -> u64 {
    [key::ROOT_ZAP, key::TOP_ZAP, key::LEAF_ZAP].iter().map(|name| vdev.number(name)).find(|zap| *zap != 0).unwrap_or(0)
}

/// What is stored of each vdev of the pool, the root first.
///
/// # Errors
/// A ZAP cannot be read.
pub(in crate::pool) fn stored(layers: &Layers) -> Result<Vec<StoredOfVdev>> {
    let mut all = Vec::new();
    gather(layers, &layers.vdevs.config(), &mut all)?;
    Ok(all)
}

fn gather(layers: &Layers, vdev: &VdevConfig, all: &mut Vec<StoredOfVdev>) -> Result<()> {
    let mut found = Vec::new();
    let zap = zap_of(vdev);
    if zap != 0 {
        for (name, value) in layers.mos().zap_entries(zap)? {
            // Other numbers are the pool's own.
            match value.integer_size() {
                1 => found.push((name, PropertyValue::Text(value.to_text()))),
                _ if vdev_prop_table::find(&name).is_some_and(|property| property.name == name) => found.push((name, PropertyValue::Number(value.first()))),
                _ => {}
            }
        }
    }
    all.push((vdev.guid, found));
    vdev.children.iter().try_for_each(|child| gather(layers, child, all))
}

/// Sets a property of the vdev with this guid, and returns when that is on disk. One call at a time.
///
/// # Errors
/// `NotFound`: there is no such vdev. `Invalid`, `TooBig`, `NameTooLong`: it cannot have the value. `NotSupported`: it cannot have the property.
#[doc(alias = "vdev_prop_set")]
pub(in crate::pool) fn set(writer: &Arc<GroupWriter>, guid: u64, name: &str, value: PropertyValue) -> Result<()> {
    let layers = writer.layers();
    let tree = layers.vdevs.config();
    let Some(vdev) = tree.find(guid) else { bail!(NotFound, "no such device in pool") };
    let zap = zap_of(vdev);
    if zap == 0 {
        bail!(Invalid, "the pool has no place for properties of it");
    }
    check_fits(name, &value)?;
    let is_on = || value.number() != 0;
    match name {
        ALLOCATING => set_allocating(writer, guid, is_on())?,
        SIT_OUT => {
            let Some((top, leaf)) = layers.vdevs.find_leaf(guid) else { bail!(NotSupported, "operation not supported on this type of vdev") };
            top.sit_out(&leaf, is_on())?;
        }
        AUTOSIT if !layers.vdevs.data_tops().iter().any(|top| top.guid() == guid && top.set_autosit(is_on())) => {
            bail!(NotSupported, "operation not supported on this type of vdev");
        }
        _ => {}
    }
    let (stored, shown) = (name.to_owned(), match &value {
        PropertyValue::Text(text) => text.clone(),
        PropertyValue::Number(number) => number.cast_signed().to_string(),
    });
    layers.dsl.run_task(BLOCKS, SpaceCheck::ExtraReserved, |_| Ok(()), move |dsl, tx| {
        store(dsl, zap, &stored, &value, tx)?;
        dsl.record_event("vdev set", &format!("vdev_guid={guid}: {stored}={shown}"), tx)
    })
}

fn store(dsl: &Arc<Dsl>, zap: u64, name: &str, value: &PropertyValue, tx: &SyncTx<'_>) -> Result<()> {
    let mos = &dsl.meta.mos;
    match value {
        PropertyValue::Text(text) if text.is_empty() && is_user_property(name) => mos.zap_remove(zap, name, tx).map(|_| ()),
        PropertyValue::Text(text) => mos.zap_set_text(zap, name, text, tx),
        PropertyValue::Number(number) => mos.zap_set_u64(zap, name, *number, tx),
    }
}

/// What is stored of `autosit` of a top-level vdev holds.
///
/// # Errors
/// Its ZAP cannot be read.
pub(in crate::pool) fn load_autosit(mos: &Mos, top: &TopVdev) -> Result<()> {
    if top.zap() != 0
        && let Some(value) = mos.zap_get(top.zap(), AUTOSIT)?
    {
        top.set_autosit(value.first() == 1);
    }
    Ok(())
}

/// Closes a top-level vdev to new blocks, or opens it.
#[doc(alias("spa_vdev_noalloc", "spa_vdev_alloc"))]
fn set_allocating(writer: &GroupWriter, guid: u64, allocating: bool) -> Result<()> {
    let layers = writer.layers();
    let tops = layers.vdevs.data_tops();
    let Some(top) = tops.iter().find(|top| top.guid() == guid) else { bail!(NotSupported, "operation not supported on this type of vdev") };
    let is_closed = |top: &TopVdev| top.config().number(key::NON_ALLOCATING) != 0;
    if is_closed(top) != allocating || top.is_removing() {
        return Ok(());
    }
    let allocator = layers.context.io.allocator();
    let group = allocator.group(top.id() as u32)?;
    let is_other = |other: &&Arc<TopVdev>| other.id() != top.id() && !is_closed(other);
    let class_of = |top: &TopVdev| allocator.group(top.id() as u32).map(|group| group.config().class);
    let mut others = tops.iter().filter(is_other).filter(|other| class_of(other).is_ok_and(|class| class == ClassKind::Normal));
    if !allocating && group.config().class == ClassKind::Normal && others.next().is_none() {
        bail!(Invalid, "invalid argument for this pool operation");
    }
    group.set_usable(allocating && top.state().is_readable());
    top.update_config(|config| if allocating { config.remove(key::NON_ALLOCATING) } else { config.set(key::NON_ALLOCATING, 1) });
    writer.configuration().set_dirty();
    writer.refresh_space();
    Ok(())
}
