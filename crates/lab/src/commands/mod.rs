//! The verbs of `fsperf`.

pub(crate) mod ceiling;
pub(crate) mod disk;
pub(crate) mod looking_on;
pub(crate) mod manual;
pub(crate) mod results;
pub(crate) mod run;
pub(crate) mod targets;
pub(crate) mod unit;
