//! Every limit of every queue and cache.
