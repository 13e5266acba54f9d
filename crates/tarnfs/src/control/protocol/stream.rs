//! Streams as requests. The stream itself goes through a descriptor that comes with the request.

use serde::{Deserialize, Serialize};

use super::failure::Failure;
use super::property::Setting;
use super::reply::Reply;
use super::snapshots::Refusal;
use crate::control::descriptor::Descriptor;
use crate::past::Difference;

/// `zfs send` of one snapshot.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct StreamSend {
    /// The snapshot, by its full name; or a file system or volume itself, which nobody has open.
    pub snapshot: String,
    /// The snapshot or bookmark that it is incremental from, by its full name.
    #[serde(default)]
    pub from: Option<String>,
    /// `-L`
    #[serde(default)]
    pub large_blocks: bool,
    /// `-e`
    #[serde(default)]
    pub embedded: bool,
    /// `-c`
    #[serde(default)]
    pub compressed: bool,
    /// `-w`
    #[serde(default)]
    pub raw: bool,
    /// Where another stream of the same broke off: object and offset.
    #[serde(default)]
    pub resume: Option<(u64, u64)>,
    /// Bytes that went before it broke off: an estimate is less by that.
    #[serde(default)]
    pub resumed_bytes: u64,
    /// The redaction bookmark, without the dataset's name.
    #[serde(default)]
    pub redact: Option<String>,
    /// `-S`: `snapshot` is a file system or volume that a broken receive left something of, which is sent.
    #[serde(default)]
    pub saved: bool,
}

/// `zfs receive` of one stream of one snapshot. The command has read the stream's first record, and what is behind it comes through the descriptor.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct StreamReceive {
    /// The file system or volume.
    pub dataset: String,
    /// The name of the snapshot, without the `@`.
    pub snapshot: String,
    /// The snapshot that a new dataset is a clone of.
    #[serde(default)]
    pub origin: Option<String>,
    /// The stream's first record, as it is.
    pub begin: Vec<u8>,
    /// `-F`
    #[serde(default)]
    pub force: bool,
    /// `-s`
    #[serde(default)]
    pub resumable: bool,
    /// `-c`: the snapshot is there, and what is damaged of it gets the contents of the stream.
    #[serde(default)]
    pub heal: bool,
    /// Properties that came with the stream, in the place of those that came before. `None`: those that came before stay.
    #[serde(default)]
    pub received: Option<Vec<Setting>>,
    /// Properties of the snapshot that came with the stream.
    #[serde(default)]
    pub of_snapshot: Vec<Setting>,
    /// `-o`
    #[serde(default)]
    pub settings: Vec<Setting>,
    /// `-x`
    #[serde(default)]
    pub inherited: Vec<String>,
    /// Whether the sender's dataset is encrypted with the key of the one above it, or with its own. `None`: that is not said, or does not matter here.
    #[serde(default, rename = "key_inherited")]
    pub inherits_key: Option<bool>,
    /// Where the sender has its key.
    #[serde(default)]
    pub key_location: Option<String>,
}

/// To [`StreamReceive`].
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Received {
    /// How many bytes of the stream that was.
    pub bytes: u64,
    /// Properties that could not be set.
    pub refused: Vec<Refusal>,
}

/// `zfs receive -A`
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ReceiveAbort {
    /// The file system or volume.
    pub dataset: String,
}

/// How far a stream is. Sent while it goes, before the answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct StreamProgress {
    /// Bytes until now.
    pub bytes: u64,
}

/// What a package of streams (`zfs send -R`, `-p`, `-b`, `-h`) says of its datasets.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct PackageAsk {
    /// The file system or volume.
    pub dataset: String,
    /// The snapshot that it is incremental from, without the dataset's name.
    pub from: Option<String>,
    /// The snapshot, without the dataset's name.
    pub to: String,
    /// And all below it (`-R`).
    pub replicate: bool,
    /// All snapshots between the two (`-I`).
    pub all: bool,
    /// Properties (`-p`).
    pub properties: bool,
    /// Received properties instead of those in effect (`-b`).
    pub received: bool,
    /// Holds (`-h`).
    pub holds: bool,
    /// `-w`
    pub raw: bool,
    /// `--skip-missing`
    pub skip_missing: bool,
    /// `-v`
    pub verbose: bool,
    /// Datasets that are left out with all below them (`-X`).
    pub exclude: Vec<String>,
}

/// One dataset of a package.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PackageDataset {
    /// Its name.
    pub name: String,
    /// The guid of its parent's snapshot that must be sent before it, or 0.
    pub parent_from: u64,
    /// The guid of the snapshot that it is a clone of.
    pub origin: Option<u64>,
    /// Names and guids of its snapshots, oldest first.
    pub snapshots: Vec<(String, u64)>,
}

/// To [`PackageAsk`].
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Package {
    /// The packed list of all datasets (`fss`).
    pub list: Vec<u8>,
    /// The datasets in its order.
    pub datasets: Vec<PackageDataset>,
    /// What is to be said of those that were passed over.
    pub notes: Vec<String>,
    /// Why there is none.
    pub refused: Option<String>,
}

/// `zfs diff`: both by full name, the newer one a head or a snapshot.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DatasetDiff {
    /// The older one, a snapshot.
    pub old: String,
    /// The newer one.
    pub new: String,
}

/// What comes through the descriptor of `zfs diff`, one in a line.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum DiffLine {
    /// A file that differs.
    Differs(Difference),
    /// Nothing of what came before counts: it was written over meanwhile.
    Again,
    /// What cannot be told of a file.
    Unclear(String),
}

/// The rest of a request about a stream: the stream, which goes when nobody waits for the one who answers.
pub type StreamJob = Box<dyn FnOnce(Descriptor) -> Result<Streamed, Failure> + Send>;

/// What has a dataset get other contents: where it is mounted, nobody uses it meanwhile.
pub type ReplaceContents<'r> = dyn FnMut(&str, &mut dyn FnMut() -> Result<(), Failure>) -> Result<(), Failure> + 'r;

/// What is left when all of a stream is there.
pub type StreamEnd = Box<dyn FnOnce(&mut ReplaceContents<'_>) -> Result<Reply, Failure> + Send>;

/// What a stream comes to.
pub enum Streamed {
    /// It is over.
    Over(Reply),
    /// All of it is there; the rest is for the one who answers.
    There(StreamEnd),
}

/// The rest of a request for the size of a stream.
pub type SizeJob = Box<dyn FnOnce() -> Result<u64, Failure> + Send>;
