//! The four labels of a vdev.
