//! ZAPs: micro, and fat with its leaves.

pub mod fat;
pub mod hash;
pub mod leaf;
pub mod micro;
