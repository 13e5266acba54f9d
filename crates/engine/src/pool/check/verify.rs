//! The checker on an open pool.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use ondisk::blkptr::BlkPtr;
use ondisk::bpobj::{BlockBookmarkPhys, BptreeEntryPhys, DESTROYED_OBJSET};
use ondisk::dsl::{DatasetPhys, parse_number_key};
use ondisk::dva::Dva;
use ondisk::feature::Feature;
use zerocopy::FromBytes;

use super::{CheckOptions, CheckReport, Finding, Walker};
use crate::dsl::Traversal;
use crate::dsl::bpobj::Bpobj;
use crate::dsl::bptree::Bptree;
use crate::dsl::deadlist::Deadlist;
use crate::dsl::meta::key;
use crate::error::Result;
use crate::pool::checkpoint::checkpoint_ranges;
use crate::pool::devices::removed::half_removed;
use crate::pool::layers::Layers;
use crate::pool::shared_blocks::recorded_references;
use crate::pool::space_maps::SpaceMaps;
use crate::txg::Txg;
use crate::vdev::IndirectMap;
use crate::zio::Bookmark;

/// Walks the pool as it was last written, in the group `written`: every block, every checksum, every byte of space. The pool must be quiet
/// (opened read-only, or just synced with nobody changing it). `progress` is told the number of blocks.
///
/// # Errors
/// The walk could not begin; what is wrong with the pool is in the report.
pub(in crate::pool) fn check(layers: &Layers, written: Txg, options: CheckOptions, progress: &(dyn Fn(u64) + Sync)) -> Result<CheckReport> {
    let mut walker = Walker::new(&layers.context.io, options, progress);
    walker.claims.clones = layers.dsl.meta.features.is_active(Feature::BlockCloning);
    walker.walk_objset(&layers.dsl.meta.mos.0.pointer(), 0, 0);
    for (object, bonus) in std::mem::take(&mut walker.datasets) {
        match DatasetPhys::read_from_prefix(&bonus) {
            Ok((phys, _)) => {
                walker.walk_objset(&phys.block, object, phys.prev_snapshot_txg.get());
                // Only what is no snapshot has a log.
                if phys.children.get() == 0 {
                    walker.walk_log(&phys.block, object, written + 1);
                }
            }
            Err(_) => walker.report.find(Finding::Unreadable {
                block: format!("dataset {object}"),
                reason: format!("record of {} bytes", bonus.len()),
            }),
        }
    }
    claim_waiting(layers, &mut walker)?;
    compare_references(layers, &mut walker);
    if let Some(maps) = &layers.space_maps {
        claim_copies(layers, maps, &mut walker);
        for top in layers.vdevs.data_tops() {
            let vdev = top.id() as u32;
            match checkpoint_ranges(layers, &top) {
                Ok(kept) => {
                    for (offset, length) in kept.segments() {
                        walker.claims.claim_range(vdev, offset, length, "the checkpoint", &mut walker.report);
                    }
                }
                Err(error) => walker.report.find(Finding::Unreadable { block: format!("the checkpoint's map of vdev {vdev}"), reason: error.to_string() }),
            }
            if let Err(error) = compare_space(maps, vdev, &mut walker) {
                walker.report.find(Finding::Unreadable { block: format!("space maps of vdev {vdev}"), reason: error.to_string() });
            }
        }
        std::mem::take(&mut walker.claims).finish(&mut walker.report);
    }
    Ok(walker.report)
}

/// What is claimed on a vdev is what its space maps say, and as much as their headers say.
fn compare_space(maps: &SpaceMaps, vdev: u32, walker: &mut Walker<'_>) -> Result<()> {
    let (allocated, recorded) = (maps.allocated_ranges(vdev)?, maps.allocated(vdev)?);
    if recorded != allocated.bytes() {
        let what = format!("bytes in use on vdev {vdev} by the headers of its space maps");
        walker.report.find(Finding::Accounting { what, recorded, found: allocated.bytes() });
    }
    walker.claims.compare(vdev, &allocated, &mut walker.report);
    Ok(())
}

/// As many pointers lead to each block as the tables of shared blocks say.
fn compare_references(layers: &Layers, walker: &mut Walker<'_>) {
    let has_gaps = walker.report.findings.iter().any(|finding| matches!(finding, Finding::Unreadable { .. }));
    let is_complete = !has_gaps && walker.report.findings_left_out == 0;
    match recorded_references(layers.meta()) {
        Ok(recorded) => walker.claims.compare_references(recorded, is_complete, &mut walker.report),
        Err(error) => walker.report.find(Finding::Unreadable { block: "the tables of shared blocks".to_owned(), reason: error.to_string() }),
    }
}

/// Of a vdev that is being removed: what has been copied is in two places, and blocks still name the old one.
fn claim_copies(layers: &Layers, maps: &SpaceMaps, walker: &mut Walker<'_>) {
    let copies = |(vdev, map): (u32, IndirectMap)| -> Result<Vec<Dva>> {
        let allocated = maps.allocated_ranges(vdev)?;
        Ok(allocated.segments().flat_map(|(offset, length)| map.copied(offset, length)).collect())
    };
    match half_removed(layers).and_then(|found| found.map_or_else(|| Ok(Vec::new()), copies)) {
        Ok(copies) => {
            for copy in copies {
                walker.claims.claim_range(copy.vdev, copy.offset, copy.allocated, "the vdev that is being removed", &mut walker.report);
            }
        }
        Err(error) => walker.report.find(Finding::Unreadable { block: "what was copied of a vdev that is being removed".to_owned(), reason: error.to_string() }),
    }
}

/// Blocks that nothing refers to any more and that are still to be freed.
fn claim_waiting(layers: &Layers, walker: &mut Walker<'_>) -> Result<()> {
    let meta = &layers.dsl.meta;
    for name in [key::DEFERRED_BPOBJ, key::FREE_BPOBJ] {
        let Some(object) = meta.mos.zap_u64(key::DIRECTORY, name)? else { continue };
        Bpobj(object).for_each(meta, |bp, _| {
            walker.visit(bp, &Bookmark { objset: 0, object, level: 0, block: 0 });
            Ok(ControlFlow::Continue(()))
        })?;
    }
    if let Some(lists) = meta.mos.zap_u64(key::DIRECTORY, key::DELETED_CLONES)? {
        for (name, _) in meta.mos.zap_entries(lists)? {
            claim_livelist(layers, walker, parse_number_key(&name)?)?;
        }
    }
    if let Some(object) = meta.mos.zap_u64(key::DIRECTORY, key::BPTREE)? {
        for entry in Bptree(object).entries(meta)? {
            if entry.resume == BlockBookmarkPhys::default() {
                walker.walk_objset(&entry.block, u64::MAX, entry.birth_txg.get());
            } else {
                claim_half_freed(layers, walker, &entry);
            }
        }
    }
    Ok(())
}

/// What a clone that was destroyed had for itself: what its livelist says was born, but for what it says was freed.
fn claim_livelist(layers: &Layers, walker: &mut Walker<'_>, object: u64) -> Result<()> {
    let meta = &layers.dsl.meta;
    let at = Bookmark { objset: 0, object, level: 0, block: 0 };
    for list in Deadlist::open(meta, object)?.lists(meta)? {
        // How often each block was born and freed.
        let mut blocks: BTreeMap<(Option<Dva>, u64), (u64, u64, BlkPtr)> = BTreeMap::new();
        list.for_each(meta, |bp, is_freed| {
            let (born, freed, _) = blocks.entry((bp.first_dva(), bp.birth())).or_insert((0, 0, *bp));
            *(if is_freed { freed } else { born }) += 1;
            Ok(ControlFlow::Continue(()))
        })?;
        for (born, freed, bp) in blocks.values() {
            if freed > born {
                let what = format!("livelist {object}: how often it frees the block {bp}");
                walker.report.find(Finding::Accounting { what, recorded: *freed, found: *born });
            }
            for _ in *freed..*born {
                walker.visit(bp, &at);
            }
        }
    }
    Ok(())
}

/// What is left of a destroyed dataset of which some blocks have been freed: the walk goes on where that stopped.
fn claim_half_freed(layers: &Layers, walker: &mut Walker<'_>, entry: &BptreeEntryPhys) {
    let walk = Traversal::new(&layers.context, DESTROYED_OBJSET, entry.birth_txg.get()).children_first().resume(&entry.resume);
    let walked = walk.run(&entry.block, &mut |block| {
        walker.visit(block.pointer, &block.at);
        Ok(ControlFlow::Continue(()))
    });
    if let Err(error) = walked {
        walker.report.find(Finding::Unreadable { block: "a destroyed dataset".to_owned(), reason: error.to_string() });
    }
}
