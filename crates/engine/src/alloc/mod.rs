//! Which bytes are free.
