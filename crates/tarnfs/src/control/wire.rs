//! Requests and replies on a byte stream.
//!
//! # Theory
//!
//! A message is its length (four bytes, little-endian) and that many bytes of JSON. JSON, because anybody can speak it
//! and `tarn` of one build may talk to the daemon of another; a length in front, because then a reader need not trust
//! the writer to end. A length above [`LENGTH_MAX`] is refused before anything is allocated.

use std::io::{self, Read, Write};

use serde::Serialize;
use serde::de::DeserializeOwned;

/// The longest message that is read or written, in bytes: room for a listing of some hundred thousand snapshots.
pub const LENGTH_MAX: u32 = 256 << 20;

/// Writes one message.
pub fn write_message<M: Serialize>(stream: &mut impl Write, message: &M) -> io::Result<()> {
    let body = serde_json::to_vec(message).map_err(io::Error::other)?;
    let length = u32::try_from(body.len()).ok().filter(|length| *length <= LENGTH_MAX);
    let length = length.ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "control message too long"))?;
    stream.write_all(&length.to_le_bytes())?;
    stream.write_all(&body)?;
    stream.flush()
}

/// Reads one message; `None` when the stream ends before one begins.
pub fn read_message<M: DeserializeOwned>(stream: &mut impl Read) -> io::Result<Option<M>> {
    read_message_within(stream, LENGTH_MAX)
}

/// The same, of so many bytes at the most.
pub fn read_message_within<M: DeserializeOwned>(stream: &mut impl Read, length_max: u32) -> io::Result<Option<M>> {
    let mut length = [0; 4];
    let mut have = 0;
    while have < length.len() {
        match stream.read(&mut length[have..]) {
            Ok(0) if have == 0 => return Ok(None),
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(n) => have += n,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    let length = u32::from_le_bytes(length);
    if length > length_max {
        return Err(io::Error::new(io::ErrorKind::InvalidData, format!("control message of {length} bytes")));
    }
    // The buffer grows with what arrives, not with what was announced.
    let mut body = Vec::new();
    stream.take(u64::from(length)).read_to_end(&mut body)?;
    if body.len() != length as usize {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    serde_json::from_slice(&body).map(Some).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
}
