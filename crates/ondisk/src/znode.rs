//! The file attributes of versions before system attributes.
