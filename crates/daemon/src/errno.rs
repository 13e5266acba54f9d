//! The one table from the engine's kinds of errors to the numbers that programs know.

use fuse::Errno;
use tarnfs::ErrorKind;

/// The number for a kind of error.
pub fn errno(kind: ErrorKind) -> Errno {
    match kind {
        ErrorKind::Io | ErrorKind::NoDevice | ErrorKind::Suspended => Errno::EIO,
        // OpenZFS's ECKSUM is EBADE outside the kernel module, which programs do not expect of a file; EIO they do.
        ErrorKind::Checksum | ErrorKind::Corrupt => Errno::EIO,
        ErrorKind::NoSpace => Errno::ENOSPC,
        ErrorKind::Unsupported | ErrorKind::NotSupported => Errno::EOPNOTSUPP,
        ErrorKind::NotFound => Errno::ENOENT,
        ErrorKind::Exists => Errno::EEXIST,
        ErrorKind::Busy | ErrorKind::InUseElsewhere => Errno::EBUSY,
        ErrorKind::Conflict => Errno::EAGAIN,
        ErrorKind::Mismatch => Errno::ENODEV,
        ErrorKind::Modified => Errno::EBUSY,
        ErrorKind::Invalid => Errno::EINVAL,
        ErrorKind::Quota => Errno::EDQUOT,
        ErrorKind::Denied => Errno::EPERM,
        ErrorKind::ReadOnly => Errno::EROFS,
        ErrorKind::KeyNotLoaded => Errno::EACCES,
        ErrorKind::NotDirectory => Errno::ENOTDIR,
        ErrorKind::IsDirectory => Errno::EISDIR,
        ErrorKind::NotEmpty => Errno::ENOTEMPTY,
        ErrorKind::NameTooLong => Errno::ENAMETOOLONG,
        ErrorKind::NotText => Errno::EILSEQ,
        ErrorKind::TooBig => Errno::EFBIG,
        ErrorKind::TooManyLinks => Errno::EMLINK,
        ErrorKind::CrossDevice => Errno::EXDEV,
        ErrorKind::NoAttribute => Errno::ENODATA,
        ErrorKind::Range => Errno::ERANGE,
        ErrorKind::Stale => Errno::ESTALE,
    }
}

/// The number for an error. What a user cannot bring about is logged, because the number says so little.
pub(crate) fn of(error: tarnfs::Error) -> Errno {
    let errno = errno(error.kind());
    if errno == Errno::EIO {
        tracing::error!(kind = ?error.kind(), at = %error.thrown_at(), "{error}");
    }
    errno
}
