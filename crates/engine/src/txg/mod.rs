//! Which changes belong together.
