//! The daemon: owns pools, serves mounts and the control socket.
