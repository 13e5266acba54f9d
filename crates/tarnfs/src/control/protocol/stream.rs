//! Streams as requests. The stream itself goes through a descriptor that comes with the request.

use serde::{Deserialize, Serialize};

use super::failure::Failure;
use super::reply::Reply;
use crate::control::descriptor::Descriptor;

/// `zfs send` of one snapshot.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct StreamSend {
    /// The snapshot, or a file system or volume as it is now.
    pub snapshot: String,
    /// The snapshot or bookmark that it is incremental from, by its full name.
    #[serde(default)]
    pub from: Option<String>,
}

/// How far a stream is. Sent while it goes, before the answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct StreamProgress {
    /// Bytes until now.
    pub bytes: u64,
}

/// The rest of a request about a stream: the stream, which goes when nobody waits for the one who answers.
pub type StreamJob = Box<dyn FnOnce(Descriptor) -> Result<Reply, Failure> + Send>;
