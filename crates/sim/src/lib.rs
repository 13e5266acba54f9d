//! What judges the project: golden pools, the oracle, models. Development only: no product crate depends on this one.
//!
//! - [`golden`] pools that the real OpenZFS made, each with a manifest of everything in it, and the comparison with
//!   what we read from them;
//! - [`oracle`] the real `zdb` and the real kernel module, which judge the pools that we wrote;
//! - [`peer`] the kernel module works on pools of ours, and we on what it made of them;
//! - [`places`] where the two are found;
//! - [`scenario`] what programs do to a pool, done through the library, and judged.

pub mod campaign;
pub mod explore;
pub mod golden;
pub mod life;
pub mod oracle;
pub mod parameters;
pub mod peer;
pub mod places;
pub mod scenario;
