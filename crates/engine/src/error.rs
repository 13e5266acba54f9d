//! Errors that name the thing.
//!
//! # Theory
//! An error answers two questions: *which party must act* ([`ErrorKind`], small and `Copy`, to match on) and *where*
//! ([`Error::message`], a sentence that names pool, dataset, object, block or device). The place in the source that
//! threw it is kept too, for bug reports. errno does not exist here: the daemon has the one table for it.

use std::fmt;
use std::panic::Location;

use ondisk::corruption::Corruption;

/// The result of everything in the engine that can fail.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// The kind of an error: the party that must act, and how.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ErrorKind {
    /// A device refused a read or a write.
    Io,
    /// Bytes came back that are not the bytes written.
    Checksum,
    /// Bytes have the right checksum and make no sense.
    Corrupt,
    /// The pool is full.
    NoSpace,
    /// A device that is needed is not there.
    NoDevice,
    /// The pool uses something that this program does not know.
    Unsupported,
    /// The pool has stopped after an error that it could not survive.
    Suspended,
    /// There is no such thing.
    NotFound,
    /// There is such a thing already.
    Exists,
    /// In use.
    Busy,
    /// Another operation has changed what this one depends on: it can be tried again from the start.
    Conflict,
    /// The snapshot that something is to be put on top of is not there.
    Mismatch,
    /// The dataset was changed since its last snapshot.
    Modified,
    /// Another host uses the pool.
    InUseElsewhere,
    /// The request makes no sense.
    Invalid,
    /// A quota is used up.
    Quota,
    /// Not allowed.
    Denied,
    /// The pool, dataset or snapshot cannot be written.
    ReadOnly,
    /// The dataset's key is not loaded.
    KeyNotLoaded,
    /// A directory was needed and this is none.
    NotDirectory,
    /// A directory is in the way.
    IsDirectory,
    /// The directory has entries.
    NotEmpty,
    /// A name is longer than the format has room for.
    NameTooLong,
    /// A name is not in the encoding that the dataset demands.
    NotText,
    /// A file is or would become larger than the format has room for.
    TooBig,
    /// A link count has no room for one more.
    TooManyLinks,
    /// The two things are not in one dataset.
    CrossDevice,
    /// There is no such extended attribute.
    NoAttribute,
    /// A buffer is too small for the answer.
    Range,
    /// The operation does not exist for this thing.
    NotSupported,
    /// The inode was removed and its number given to another.
    Stale,
}

/// An error: kind, sentence, and place in the source.
#[derive(Clone)]
pub struct Error(Box<Inner>);

#[derive(Clone)]
struct Inner {
    kind: ErrorKind,
    message: String,
    thrown_at: &'static Location<'static>,
    goes_on: bool,
}

impl Error {
    /// An error of `kind`; `message` names the thing, in words for the user.
    #[track_caller]
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Error(Box::new(Inner { kind, message: message.into(), thrown_at: Location::caller(), goes_on: false }))
    }

    /// The party that must act.
    pub fn kind(&self) -> ErrorKind {
        self.0.kind
    }

    /// Whether data is lost: no copy of it is right, or its contents make no sense.
    pub fn is_loss(&self) -> bool {
        matches!(self.kind(), ErrorKind::Io | ErrorKind::Checksum | ErrorKind::Corrupt)
    }

    /// Whether what was asked for has begun, and is done when the pool goes on, although nobody waits for it: then nothing of it may be undone.
    pub fn goes_on(&self) -> bool {
        self.0.goes_on
    }

    /// As it is, of something that has begun ([`Error::goes_on`]).
    #[must_use]
    pub fn that_goes_on(mut self) -> Self {
        self.0.goes_on = true;
        self.0.message.push_str("; what was asked for has begun, and is done when the pool goes on");
        self
    }

    /// The sentence, without the place in the source.
    pub fn message(&self) -> &str {
        &self.0.message
    }

    /// Where in the source this was thrown.
    pub fn thrown_at(&self) -> &'static Location<'static> {
        self.0.thrown_at
    }

    /// Puts the larger thing before the sentence: `dataset tank/a: object 7: …`.
    #[must_use]
    pub fn within(mut self, thing: impl fmt::Display) -> Self {
        let thing = format!("{thing}: ");
        // Two layers may name the same thing.
        if !self.0.message.starts_with(&thing) {
            self.0.message.insert_str(0, &thing);
        }
        self
    }
}

/// `result.within(|| format!("object {n}"))`.
pub trait Within<T> {
    /// Names the larger thing in the error, if there is one.
    fn within<D: fmt::Display>(self, thing: impl FnOnce() -> D) -> Result<T>;
}

impl<T, E: Into<Error>> Within<T> for std::result::Result<T, E> {
    fn within<D: fmt::Display>(self, thing: impl FnOnce() -> D) -> Result<T> {
        self.map_err(|error| error.into().within(thing()))
    }
}

impl From<Corruption> for Error {
    #[track_caller]
    fn from(corruption: Corruption) -> Self {
        Error::new(ErrorKind::Corrupt, corruption.to_string())
    }
}

impl From<std::io::Error> for Error {
    #[track_caller]
    fn from(error: std::io::Error) -> Self {
        let kind = match error.kind() {
            std::io::ErrorKind::NotFound => ErrorKind::NoDevice,
            std::io::ErrorKind::PermissionDenied => ErrorKind::Denied,
            _ => ErrorKind::Io,
        };
        Error::new(kind, error.to_string())
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.message)
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {} (at {})", self.0.kind, self.0.message, self.0.thrown_at)
    }
}

impl std::error::Error for Error {}

/// Shorthand: `error!(NotFound, "dataset {name} does not exist")`.
#[macro_export]
macro_rules! error {
    ($kind:ident, $($message:tt)*) => {
        $crate::error::Error::new($crate::error::ErrorKind::$kind, format!($($message)*))
    };
}

/// Shorthand: returns the error that [`error!`] makes.
#[macro_export]
macro_rules! bail {
    ($kind:ident, $($message:tt)*) => {
        return Err($crate::error!($kind, $($message)*))
    };
}
