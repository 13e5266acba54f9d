//! Pools written by machines of the other byte order.
