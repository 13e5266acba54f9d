//! Why a request was refused: a kind to decide by, and OpenZFS's phrase for it.

use std::fmt;

use engine::error::ErrorKind;
use serde::{Deserialize, Serialize};

/// What OpenZFS says of a device that is given twice.
pub const SAME_DEVICE: &str =
    "one or more vdevs refer to the same device, or one of\nthe devices is part of an active md or lvm device";

/// What kind of refusal; callers match on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum FailureKind {
    /// There is no such pool.
    NoSuchPool,
    /// There is no such dataset, snapshot or bookmark.
    NoSuchDataset,
    /// There is a pool of that name already.
    PoolExists,
    /// There is a dataset of that name already.
    DatasetExists,
    /// The dataset is in use.
    DatasetBusy,
    /// The pool is in use.
    PoolBusy,
    /// Some property value is not acceptable.
    BadProperty,
    /// The property cannot be set.
    ReadOnlyProperty,
    /// The property does not apply to datasets of this type.
    PropertyType,
    /// The property cannot be inherited.
    NotInheritable,
    /// The quota or reservation does not fit.
    PropertySpace,
    /// The operation does not apply to datasets of this type.
    BadType,
    /// The name is not acceptable.
    InvalidName,
    /// The name is too long.
    NameTooLong,
    /// The pool uses a version or feature that this program has not.
    Unsupported,
    /// The operation is not possible on this pool.
    PoolNotSupported,
    /// The pool cannot be opened, or is suspended.
    PoolUnavailable,
    /// The pool is read-only.
    PoolReadOnly,
    /// Another host uses the pool, or used it last.
    OtherHost,
    /// The dataset is read-only.
    DatasetReadOnly,
    /// A device cannot be used.
    BadDevice,
    /// Not enough devices are there.
    NoReplicas,
    /// The vdev specification makes no sense.
    BadVdevs,
    /// Mounting failed.
    MountFailed,
    /// Unmounting failed.
    UnmountFailed,
    /// Not allowed.
    Permission,
    /// The pool is full.
    NoSpace,
    /// A device refused a read or write.
    Io,
    /// Data cannot be read back as written.
    Checksum,
    /// The encryption key is missing or wrong.
    Encryption,
    /// A stream cannot be incremental from what is not older.
    NotEarlier,
    /// The stream is damaged, or of no use there.
    BadStream,
    /// The snapshot that a stream is incremental from is not the newest one.
    SnapshotMismatch,
    /// The dataset was changed since its newest snapshot.
    DatasetModified,
    /// What was asked for is done, and takes effect when something is mounted anew: the message says what, and why.
    TakesEffectLater,
    /// Somebody else has changed what a transaction has seen.
    Conflict,
    /// The daemon cannot be reached.
    NoDaemon,
    /// Anything else; the message says what.
    Other,
}

impl FailureKind {
    /// The phrase for a failure that has nothing more exact to say.
    #[must_use]
    pub fn phrase(self) -> &'static str {
        match self {
            FailureKind::NoSuchPool => "no such pool",
            FailureKind::NoSuchDataset => "dataset does not exist",
            FailureKind::PoolExists => "pool already exists",
            FailureKind::DatasetExists => "dataset already exists",
            FailureKind::DatasetBusy => "dataset is busy",
            FailureKind::PoolBusy => "pool is busy",
            FailureKind::BadProperty => "invalid property value",
            FailureKind::ReadOnlyProperty => "read-only property",
            FailureKind::PropertyType => "property doesn't apply to datasets of this type",
            FailureKind::NotInheritable => "property cannot be inherited",
            FailureKind::PropertySpace => "invalid quota or reservation",
            FailureKind::BadType => "operation not applicable to datasets of this type",
            FailureKind::InvalidName => "invalid name",
            FailureKind::NameTooLong => "dataset name is too long",
            FailureKind::Unsupported => "unsupported version or feature",
            FailureKind::PoolNotSupported => "operation not supported on this type of pool",
            FailureKind::PoolUnavailable => "pool is unavailable",
            FailureKind::PoolReadOnly => "pool is read-only",
            FailureKind::OtherHost => "pool is imported on a different host",
            FailureKind::DatasetReadOnly => "dataset is read-only",
            FailureKind::BadDevice => "invalid device",
            FailureKind::NoReplicas => "no valid replicas",
            FailureKind::BadVdevs => "invalid vdev configuration",
            FailureKind::MountFailed => "mount failed",
            FailureKind::UnmountFailed => "unmount failed",
            FailureKind::Permission => "permission denied",
            FailureKind::NoSpace => "out of space",
            FailureKind::Io => "I/O error",
            FailureKind::Checksum => "insufficient replicas",
            FailureKind::Encryption => "encryption failure",
            FailureKind::NotEarlier => "not an earlier snapshot from the same fs",
            FailureKind::BadStream => "invalid backup stream",
            FailureKind::SnapshotMismatch => "most recent snapshot does not match incremental source",
            FailureKind::DatasetModified => "destination has been modified since most recent snapshot",
            FailureKind::TakesEffectLater => "takes effect when it is mounted anew",
            FailureKind::Conflict => "changed by somebody else",
            FailureKind::NoDaemon => "the tarn daemon cannot be reached",
            FailureKind::Other => "unknown error",
        }
    }
}

/// What the system's errors have at their end, which says nothing to users: ` (os error 2)`.
const NUMBER: &str = " (os error ";

/// A message without the numbers of the system's errors.
#[must_use]
pub fn plain_words(mut message: String) -> String {
    while let Some(at) = message.find(NUMBER) {
        let digits = message[at + NUMBER.len()..].bytes().take_while(u8::is_ascii_digit).count();
        let end = at + NUMBER.len() + digits;
        match message.as_bytes().get(end) {
            Some(b')') if digits > 0 => message.replace_range(at..=end, ""),
            // Somebody's own words.
            _ => break,
        }
    }
    message
}

/// A refusal.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    /// What kind.
    pub kind: FailureKind,
    /// The words after `cannot …: `. They name the thing when the command cannot.
    pub message: String,
}

impl Failure {
    /// A failure with its usual phrase.
    #[must_use]
    pub fn new(kind: FailureKind) -> Failure {
        Failure { kind, message: kind.phrase().to_owned() }
    }

    /// A failure with words of its own.
    pub fn with(kind: FailureKind, message: impl Into<String>) -> Failure {
        Failure { kind, message: plain_words(message.into()) }
    }

    /// An engine error about a dataset: the phrase where OpenZFS has one, else the engine's own sentence.
    #[must_use]
    pub fn about_dataset(error: &engine::error::Error) -> Failure {
        match error.kind() {
            ErrorKind::NotFound => Failure::new(FailureKind::NoSuchDataset),
            ErrorKind::Exists => Failure::new(FailureKind::DatasetExists),
            ErrorKind::Busy => Failure::new(FailureKind::DatasetBusy),
            _ => Failure::common(error),
        }
    }

    /// An engine error about a pool.
    #[must_use]
    pub fn about_pool(error: &engine::error::Error) -> Failure {
        match error.kind() {
            ErrorKind::NotFound => Failure::new(FailureKind::NoSuchPool),
            ErrorKind::Exists => Failure::new(FailureKind::PoolExists),
            ErrorKind::Busy => Failure::new(FailureKind::PoolBusy),
            _ => Failure::common(error),
        }
    }

    /// The sentence without the pool's name in front: the command has said it.
    fn words(error: &engine::error::Error) -> &str {
        let message = error.message();
        message.strip_prefix("pool ").and_then(|rest| rest.split_once(": ")).map_or(message, |(_, rest)| rest)
    }

    fn common(error: &engine::error::Error) -> Failure {
        let words = Failure::words(error);
        match error.kind() {
            ErrorKind::Io => Failure::with(FailureKind::Io, words),
            ErrorKind::Checksum | ErrorKind::Corrupt => Failure::with(FailureKind::Checksum, words),
            ErrorKind::NoSpace | ErrorKind::Quota => Failure::new(FailureKind::NoSpace),
            ErrorKind::Conflict => Failure::with(FailureKind::Conflict, words),
            ErrorKind::NoDevice => Failure::with(FailureKind::BadDevice, words),
            ErrorKind::Unsupported => Failure::with(FailureKind::Unsupported, words),
            ErrorKind::Suspended if error.goes_on() => {
                Failure::with(FailureKind::PoolUnavailable, "pool I/O is currently suspended; what was asked for has begun, and is done when the pool goes on")
            }
            ErrorKind::Suspended => Failure::with(FailureKind::PoolUnavailable, "pool I/O is currently suspended"),
            ErrorKind::Denied => Failure::new(FailureKind::Permission),
            ErrorKind::InUseElsewhere => Failure::with(FailureKind::OtherHost, words),
            ErrorKind::ReadOnly => Failure::new(FailureKind::PoolReadOnly),
            ErrorKind::KeyNotLoaded => Failure::with(FailureKind::Encryption, "encryption key not loaded"),
            ErrorKind::NameTooLong => Failure::new(FailureKind::NameTooLong),
            _ => Failure::with(FailureKind::Other, words),
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Failure {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_errors_are_not_for_users() {
        let error = std::io::Error::from_raw_os_error(2);
        let failure = Failure::with(FailureKind::MountFailed, format!("/a: {error}, and /b: {error}; export it"));
        assert_eq!(failure.message, "/a: No such file or directory, and /b: No such file or directory; export it");
        for own in ["cannot open 'a (os error 2'", " (os error )", "x (os error 2x)"] {
            assert_eq!(plain_words(own.to_owned()), own);
        }
    }
}
