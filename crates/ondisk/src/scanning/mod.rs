//! What pools know of scrubs, resilvers and rebuilds.

pub mod error_scrub;
pub mod rebuild;
pub mod scan;
pub mod time_log;
