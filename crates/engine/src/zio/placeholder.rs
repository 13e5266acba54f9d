//! Stands in until the real pipeline lands, so that the layers above compile.
#![allow(missing_docs)]
use super::{Bookmark, WriteRequest};
use crate::error::Result;
use ondisk::blkptr::BlkPtr;
use std::sync::Arc;

/// What features allow.
#[derive(Debug, Clone, Copy, Default)]
pub struct IoFeatures {
    /// Holes carry their birth.
    pub hole_birth: bool,
    /// Small blocks go into their pointer.
    pub embedded_data: bool,
}
/// The way to all blocks.
pub struct BlockIo;
impl BlockIo {
    pub fn read(&self, _: &BlkPtr, _: &Bookmark) -> Result<Arc<Vec<u8>>> {
        unimplemented!()
    }
    pub fn write_many(&self, _: Vec<WriteRequest>, _: u64) -> Vec<Result<BlkPtr>> {
        unimplemented!()
    }
    pub fn free(&self, _: &BlkPtr, _: u64) -> Result<()> {
        unimplemented!()
    }
    pub fn deflated_size(&self, _: &BlkPtr) -> u64 {
        unimplemented!()
    }
    pub fn features(&self) -> IoFeatures {
        unimplemented!()
    }
}
