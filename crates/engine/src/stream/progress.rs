//! Which record may follow which.
//!
//! # Theory
//! A stream of one snapshot is BEGIN, what changed, END, all with the guid of that snapshot. A package (`zfs send -R`, `-p`) is BEGIN
//! with an nvlist of what follows, END, the streams, and one more END without a guid or a checksum.

use ondisk::stream::{HEADER_COMPOUND, RecordBody, StreamRecordType};

use super::reader::Received;
use crate::error;
use crate::error::Result;

/// Where in a stream a reader is.
#[derive(Debug, Default)]
pub struct Progress {
    /// Within a package.
    in_package: bool,
    /// Between a BEGIN and its END: the snapshot's guid, and whether it is the list of a package.
    open: Option<(u64, bool)>,
    /// Something has ended and nothing is open.
    complete: bool,
}

impl Progress {
    /// Takes the next record, in its turn.
    ///
    /// # Errors
    /// It may not stand there, belongs to another snapshot, or is an END whose checksum is not that of what was before it.
    pub fn take(&mut self, received: &Received) -> Result<()> {
        let place = received.place();
        let record_type = received.record.record_type();
        match (&received.record.body, self.open) {
            (RecordBody::Begin(begin), None) if !self.complete || self.in_package => {
                let is_package = begin.header_type() == HEADER_COMPOUND;
                if is_package && self.in_package {
                    return Err(error!(Corrupt, "{place}: a package of streams cannot be in another"));
                }
                self.in_package |= is_package;
                self.open = Some((begin.to_guid, is_package));
                self.complete = false;
            }
            (RecordBody::Begin(_), Some(_)) => return Err(error!(Corrupt, "{place}: the stream before it has no END record")),
            (RecordBody::End(_), Some((guid, is_package))) => {
                if !received.end_is_right() {
                    return Err(error!(Checksum, "{place}: its checksum is not that of the stream before it, which is damaged"));
                }
                check_guid(received, guid)?;
                self.open = None;
                self.complete = !is_package;
            }
            (RecordBody::End(_), None) if self.in_package => {
                self.in_package = false;
                self.complete = true;
            }
            (_, Some((_, true))) => {
                return Err(error!(Corrupt, "{place}: a package's list of streams ends with an END record, not with {}", record_type.name()));
            }
            (_, Some((guid, false))) => check_guid(received, guid)?,
            (_, None) => return Err(error!(Corrupt, "{place}: nothing may follow the end of a stream but another's beginning")),
        }
        Ok(())
    }

    /// The input has ended: was that its end?
    ///
    /// # Errors
    /// An END record is missing.
    pub fn finish(&self) -> Result<()> {
        match (self.open, self.in_package, self.complete) {
            (None, false, true) => Ok(()),
            (None, false, false) => Err(error!(Corrupt, "the stream is empty")),
            (Some(_), ..) => Err(error!(Corrupt, "the stream ends before its END record: the sender or the way broke off")),
            (None, true, _) => Err(error!(Corrupt, "the package of streams ends before its last END record: the sender or the way broke off")),
        }
    }
}

fn check_guid(received: &Received, guid: u64) -> Result<()> {
    let found = received.record.to_guid();
    // The END of a package's list has none.
    if found == guid || received.record.record_type() == StreamRecordType::End && found == 0 {
        return Ok(());
    }
    Err(error!(Corrupt, "{}: it belongs to the snapshot with guid {found}, the stream to {guid}", received.place()))
}
