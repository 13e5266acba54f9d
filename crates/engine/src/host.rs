//! Time, randomness and threads.
