//! The verbs on pools in files, without mounts.
