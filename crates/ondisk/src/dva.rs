//! Data virtual addresses.
