//! The intent log: operations as records, and records as operations.

pub(super) mod records;
pub(super) mod replay;
pub(super) mod source;

pub(super) use records::Log;
