//! The kernel's FUSE protocol and its transports; knows nothing of ZFS.
