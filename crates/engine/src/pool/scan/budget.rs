//! How long a piece of a scan lasts.

use ondisk::scan::ScanFunction;

use super::scans::Scans;
use crate::host::is_waited_for;
use crate::pool::layers::Layers;
use crate::tunables::Parameter;
use crate::txg::Txg;

const MS: u64 = 1_000_000;
/// Percentage of what may be dirty from which a group is not kept open for a scan.
const DIRTY_PERCENT: u64 = 30;

/// The time that a piece has.
pub(in crate::pool) struct Budget<'a> {
    layers: &'a Layers,
    scans: &'a Scans,
    txg: Txg,
    began: u64,
    /// A piece lasts so long, though the group may be waited for.
    least_ns: u64,
    blocks_max: u64,
}

impl<'a> Budget<'a> {
    pub(in crate::pool) fn new(layers: &'a Layers, scans: &'a Scans, txg: Txg, function: ScanFunction) -> Self {
        let (began, tunables) = (layers.context.host.now_ns(), &layers.context.tunables);
        let least = match function {
            ScanFunction::Scrub => Parameter::ScrubMinTime,
            ScanFunction::Resilver => Parameter::ResilverMinTime,
        };
        let least_ns = tunables.now(least) * MS;
        Budget { layers, scans, txg, began, least_ns, blocks_max: tunables.scan_blocks_max }
    }

    /// The time of the host's clock.
    pub(in crate::pool) fn now_ns(&self) -> u64 {
        self.layers.context.host.now_ns()
    }

    /// Is the piece at its end after so many blocks?
    pub(in crate::pool) fn is_used_up(&self, blocks: u64) -> bool {
        self.is_over(blocks) || self.is_in_the_way()
    }

    /// Is it, whether somebody waits or not?
    pub(in crate::pool) fn is_over(&self, blocks: u64) -> bool {
        blocks >= self.blocks_max || self.passed() >= self.layers.context.tunables.txg_timeout_ns().max(self.least_ns)
    }

    /// How long the piece has lasted, in nanoseconds.
    pub(in crate::pool) fn passed(&self) -> u64 {
        self.now_ns().saturating_sub(self.began)
    }

    /// Can users do nothing before the group is written? Or does somebody wait for it, and the piece has had its least time?
    pub(in crate::pool) fn is_in_the_way(&self) -> bool {
        is_waited_for() || self.passed() >= self.least_ns && self.is_waited_for()
    }

    /// Somebody waits for the group, or much waits for the next one.
    pub(in crate::pool) fn is_waited_for(&self) -> bool {
        let context = &self.layers.context;
        let dirty_max = context.tunables.now(Parameter::DirtyDataMax) / 100 * DIRTY_PERCENT;
        self.scans.is_ending() || context.groups.wanted_txg() >= self.txg || context.dirty.total() > dirty_max || self.layers.vdevs.gate().failure().is_some()
    }
}
