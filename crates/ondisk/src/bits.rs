//! Get or set a bit range in a `u64`, in units and with a bias.
