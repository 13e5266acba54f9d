//! The program as a whole: `tarn` and its daemon as processes, pools on image files, real mounts.
#![allow(clippy::disallowed_methods)] // real processes, threads and clocks are what is tested

mod kill;
mod rig;
