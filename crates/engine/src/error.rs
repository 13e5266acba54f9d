//! Errors that name the thing.
