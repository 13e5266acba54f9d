//! Fuzz targets: any bytes give an answer or an error, soon, and in bounded memory.
//!
//! # Theory
//! A [`Target`] is a function of bytes that reads them as one of the things that come from outside: a structure on disk, a
//! compressed block, a request of the kernel or of a command, a whole pool. It fails by panicking, by taking more memory than
//! its limit, or by not returning. What decodes is also encoded and decoded again: that must give the same.
//!
//! The same targets have two drivers. [`replay`] runs them in `cargo test`, over the seeds and some thousand seeded mutations
//! of them. The program in the directory `fuzz` of the project runs them under libFuzzer, which is told by the compiler which
//! branches an input took and keeps what is new; `cargo xtask fuzz` builds and starts it.
//!
//! The seeds are cut from the golden pools in the project and from pools made on the spot, so that they are right by
//! construction and nothing needs to be kept. What was found is a test in the crate where it was found.
//!
//! A pool's checksums would keep a fuzzer out: hardly a mutation gets past them. So [`image`] mutates decoded blocks and
//! then makes all checksums right again, up to the uberblock.
//!
//! # Path
//! called by the tests of this crate, and by `fuzz`; calls everything.

use cap::Cap;

pub mod image;
mod input;
mod mutate;
pub mod replay;
mod seeds;
pub mod target;

pub use input::Input;
pub use mutate::mutate;
pub use target::{TARGETS, Target};

/// Counts what is allocated, and refuses what is beyond the limit that [`Target::run`] sets.
#[global_allocator]
static ALLOCATOR: Cap<std::alloc::System> = Cap::new(std::alloc::System, usize::MAX);
