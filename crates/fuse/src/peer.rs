//! The user at the other end of a socket.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd};

/// The user that connected, or that listened when we connected. A process of another namespace has no number in ours;
/// rustix cannot be asked, because it expects one.
///
/// # Errors
/// It is no socket of this machine.
pub fn peer_uid(socket: &impl AsFd) -> io::Result<u32> {
    let mut found = MaybeUninit::<libc::ucred>::uninit();
    let mut length = size_of::<libc::ucred>() as libc::socklen_t;
    // SAFETY: the kernel writes at most `length` bytes to where there is room for as many.
    let result = unsafe {
        libc::getsockopt(
            socket.as_fd().as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PEERCRED,
            found.as_mut_ptr().cast(),
            &raw mut length,
        )
    };
    if result != 0 {
        return Err(io::Error::last_os_error());
    }
    if length as usize != size_of::<libc::ucred>() {
        return Err(io::ErrorKind::InvalidData.into());
    }
    // SAFETY: all of it was written.
    Ok(unsafe { found.assume_init() }.uid)
}
