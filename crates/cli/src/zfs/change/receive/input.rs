//! The standard input, read to the byte: what is behind a record is for the daemon.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd};

use engine::stream::StreamReader;
use ondisk::stream::{RECORD_SIZE, Record, RecordBody, StreamOrder, stream_order};

/// See the module.
pub(super) struct Input(File);

/// A record that begins or ends something.
pub(super) struct First {
    pub(super) record: Record,
    pub(super) bytes: Vec<u8>,
    pub(super) order: StreamOrder,
}

impl Input {
    pub(super) fn standard() -> io::Result<Input> {
        Ok(Input(io::stdin().as_fd().try_clone_to_owned()?.into()))
    }

    /// For the daemon.
    pub(super) fn descriptor(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }

    /// The next record. `order` is that of the package that it is in. `None`: there are not so many bytes, or they are none.
    pub(super) fn first(&mut self, order: Option<StreamOrder>) -> Result<Option<First>, &'static str> {
        let mut bytes = [0; RECORD_SIZE];
        if self.0.read_exact(&mut bytes).is_err() {
            return Ok(None);
        }
        let own = stream_order(&bytes).ok().or(order).ok_or("invalid stream (bad magic number)")?;
        let record = Record::decode(&bytes, own).map_err(|_| "invalid stream (bad magic number)")?;
        Ok(Some(First { record, bytes: bytes.to_vec(), order: own }))
    }

    /// What is behind a BEGIN record.
    pub(super) fn payload(&mut self, bytes: u64) -> Option<Vec<u8>> {
        let mut payload = Vec::new();
        let read = (&mut self.0).take(bytes).read_to_end(&mut payload).ok()?;
        (read as u64 == bytes).then_some(payload)
    }

    /// Passes over the rest of a stream, up to its END record. `false`: it has none.
    pub(super) fn skip(&mut self, begin: &First) -> bool {
        let Ok(file) = self.0.try_clone() else { return false };
        let mut reader = StreamReader::unchecked(io::Cursor::new(begin.bytes.clone()).chain(file));
        let mut payload = Vec::new();
        loop {
            match reader.next(&mut payload) {
                Ok(Some(received)) if matches!(received.record.body, RecordBody::End(_)) => return true,
                Ok(Some(_)) => {}
                Ok(None) | Err(_) => return false,
            }
        }
    }

    /// Passes over records whose BEGIN record, and what belongs to it, was read.
    pub(super) fn skip_rest(&mut self, begin: &First) -> bool {
        let head = First { record: Record { begin_payload_bytes: 0, ..begin.record.clone() }, bytes: Vec::new(), order: begin.order };
        let bytes = head.record.encode(begin.order).to_vec();
        self.skip(&First { bytes, ..head })
    }
}
