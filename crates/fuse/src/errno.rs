//! An error number, the only error that the kernel understands.

use std::fmt;

/// A positive `errno` value.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Errno(i32);

/// What an operation returns.
pub type Result<T> = std::result::Result<T, Errno>;

macro_rules! errnos {
    ($($name:ident)*) => {
        #[allow(missing_docs)] // the names are the system's
        impl Errno { $(pub const $name: Errno = Errno(libc::$name);)* }
    };
}

errnos! {
    EPERM ENOENT EINTR EIO ENXIO E2BIG EBADF EAGAIN ENOMEM EACCES EBUSY EEXIST EXDEV ENODEV ENOTDIR EISDIR EINVAL ENFILE ENOTTY EFBIG ENOSPC ESPIPE EROFS
    EMLINK ERANGE ENAMETOOLONG ENOSYS ENOTEMPTY ELOOP ENODATA EOVERFLOW EILSEQ EOPNOTSUPP ESTALE EDQUOT ENOKEY EPROTO ENOTCONN ETIMEDOUT ECANCELED
}

impl Errno {
    /// From a number; what is no error number becomes `EIO`.
    pub const fn new(number: i32) -> Errno {
        if number > 0 && number < 512 { Errno(number) } else { Errno::EIO }
    }

    /// The number.
    pub const fn raw(self) -> i32 {
        self.0
    }
}

impl From<std::io::Error> for Errno {
    fn from(error: std::io::Error) -> Errno {
        error.raw_os_error().map_or(Errno::EIO, Errno::new)
    }
}

impl From<rustix::io::Errno> for Errno {
    fn from(error: rustix::io::Errno) -> Errno {
        Errno::new(error.raw_os_error())
    }
}

impl fmt::Display for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        std::io::Error::from_raw_os_error(self.0).fmt(f)
    }
}

impl fmt::Debug for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Errno({}: {self})", self.0)
    }
}

impl std::error::Error for Errno {}
