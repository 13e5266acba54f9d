//! Blocks of the intent log: their room, and how they are written.

mod log_room;
mod log_write;

pub use log_room::LogRoom;
