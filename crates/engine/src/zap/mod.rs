//! Objects that are dictionaries.
