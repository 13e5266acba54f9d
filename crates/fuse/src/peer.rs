//! The user at the other end of a socket.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd};

/// A process at the other end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Peer {
    /// Its user.
    pub uid: u32,
    /// Its first group.
    pub gid: u32,
    /// Its number; 0 if it has none in our namespace.
    pub pid: i32,
}

/// The process that connected, or that listened when we connected. One of another namespace has no number in ours, which is why rustix cannot be asked: it
/// takes each process to have one.
///
/// # Errors
/// It is no socket of this machine.
pub fn peer(socket: &impl AsFd) -> io::Result<Peer> {
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
    let found = unsafe { found.assume_init() };
    Ok(Peer { uid: found.uid, gid: found.gid, pid: found.pid })
}
/// The further groups of the process that connected.
///
/// # Errors
/// It is no socket of this machine.
pub fn peer_groups(socket: &impl AsFd) -> io::Result<Vec<u32>> {
    // Most have few; Linux lets a process have 65,536.
    let mut room = 64;
    loop {
        let mut groups: Vec<libc::gid_t> = vec![0; room];
        let mut length = (room * size_of::<libc::gid_t>()) as libc::socklen_t;
        // SAFETY: the kernel writes at most `length` bytes to where there is room for as many.
        let result = unsafe {
            libc::getsockopt(socket.as_fd().as_raw_fd(), libc::SOL_SOCKET, libc::SO_PEERGROUPS, groups.as_mut_ptr().cast(), &raw mut length)
        };
        let count = length as usize / size_of::<libc::gid_t>();
        match result {
            0 => {
                groups.truncate(count);
                return Ok(groups);
            }
            _ if io::Error::last_os_error().raw_os_error() == Some(libc::ERANGE) && count > room => room = count,
            _ => return Err(io::Error::last_os_error()),
        }
    }
}

