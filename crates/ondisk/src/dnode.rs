//! The dnode: one object.
