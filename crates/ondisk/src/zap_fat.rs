//! The hashed ZAP: header, pointer table, leaves.
