//! The head of a set of objects.
