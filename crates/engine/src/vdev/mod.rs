//! Where bytes live and how they are protected.
