//! What a crash may not lose.
