//! Reads a stream record by record, and checks it on the way.

use std::fmt;
use std::io::{ErrorKind as IoErrorKind, Read};

use ondisk::stream::{RECORD_CHECKSUM_OFFSET, RECORD_SIZE, Record, RecordBody, StreamOrder, StreamRecordType, stream_order};
use transform::checksum::{Fletcher4, Words};

use crate::error::{Error, Result, Within};
use crate::error;

/// The largest payload of a BEGIN record: it grows with the number of datasets and snapshots in a package.
const BEGIN_PAYLOAD_MAX: u64 = 256 << 20;

/// So much memory is had for a payload before any of it is there.
const RESERVED_BYTES_MAX: u64 = 1 << 20;

/// A record, and where it was.
#[derive(Debug, Clone)]
pub struct Received {
    /// What it says.
    pub record: Record,
    /// The how manieth record of the input it is, from 1.
    pub number: u64,
    /// Where it begins, in bytes from the beginning of the input.
    pub position: u64,
    /// The checksum of what was before it, since the last END.
    pub sum_before: Words,
}

impl Received {
    /// Has an END record the checksum of what was before it? The one that ends a package has none.
    pub fn end_is_right(&self) -> bool {
        match &self.record.body {
            RecordBody::End(end) => end.checksum == self.sum_before,
            _ => true,
        }
    }

    /// For messages: which record, and where.
    pub fn place(&self) -> impl fmt::Display + use<> {
        Place { number: self.number, position: self.position, record_type: Some(self.record.record_type()) }
    }
}

struct Place {
    number: u64,
    position: u64,
    record_type: Option<StreamRecordType>,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = self.record_type.map_or_else(String::new, |record_type| format!(" ({})", record_type.name()));
        write!(f, "record {}{name} at byte {}", self.number, self.position)
    }
}

/// Reads a stream from `input`, which should be buffered.
#[derive(Debug)]
pub struct StreamReader<R> {
    input: R,
    /// Known from the first record on.
    order: Option<StreamOrder>,
    checks: bool,
    sum: Fletcher4,
    position: u64,
    records: u64,
}

impl<R: Read> StreamReader<R> {
    /// A reader that compares checksums.
    pub fn new(input: R) -> StreamReader<R> {
        StreamReader { input, order: None, checks: true, sum: Fletcher4::new(false), position: 0, records: 0 }
    }

    /// A reader that takes what comes, for a look at what is left of a damaged stream.
    pub fn unchecked(input: R) -> StreamReader<R> {
        StreamReader { checks: false, ..StreamReader::new(input) }
    }

    /// What it reads from, behind the last record.
    pub fn into_input(self) -> R {
        self.input
    }

    /// Bytes read until now.
    pub fn position(&self) -> u64 {
        self.position
    }

    /// The byte order of the stream, once a record was read.
    pub fn order(&self) -> Option<StreamOrder> {
        self.order
    }

    /// The next record, its payload in `payload`; `None` where the input ends between two records.
    ///
    /// # Errors
    /// The input cannot be read, ends within the record, or the record has another checksum or no meaning. Each names the record.
    pub fn next(&mut self, payload: &mut Vec<u8>) -> Result<Option<Received>> {
        payload.clear();
        let mut place = Place { number: self.records + 1, position: self.position, record_type: None };
        let mut bytes = [0; RECORD_SIZE];
        let got = read_up_to(&mut self.input, &mut bytes).map_err(|error| self.cannot_read(&place, &error))?;
        if got == 0 {
            return Ok(None);
        }
        if got < RECORD_SIZE {
            return Err(ends_within(&place, RECORD_SIZE as u64, got as u64));
        }
        let order = match self.order {
            Some(order) => order,
            None => {
                let order = stream_order(&bytes).map_err(|_| error!(Corrupt, "this is no send stream: it does not begin as one"))?;
                self.sum = Fletcher4::new(order == StreamOrder::Big);
                *self.order.insert(order)
            }
        };
        let began_with = self.sum.words();
        self.sum.update(&bytes[..RECORD_CHECKSUM_OFFSET]);
        let expected = self.sum.words();
        self.sum.update(&bytes[RECORD_CHECKSUM_OFFSET..]);
        let record = Record::decode(&bytes, order).within(|| &place)?;
        place.record_type = Some(record.record_type());
        if self.checks && record.checksum != [0; 4] && record.checksum != expected {
            return Err(error!(
                Checksum,
                "{place} is damaged, or what is before it: the checksum is {}, the stream has {}",
                hexadecimal(expected),
                hexadecimal(record.checksum)
            ));
        }
        let wanted = record.payload_bytes().within(|| &place)?;
        if wanted > BEGIN_PAYLOAD_MAX {
            return Err(error!(Corrupt, "{place}: a payload of {wanted} bytes is more than a stream begins with"));
        }
        // More than this comes as it is read.
        payload.reserve(wanted.min(RESERVED_BYTES_MAX) as usize);
        let read = (&mut self.input).take(wanted).read_to_end(payload).map_err(|error| self.cannot_read(&place, &error))?;
        if (read as u64) < wanted {
            return Err(ends_within(&place, RECORD_SIZE as u64 + wanted, (RECORD_SIZE + read) as u64));
        }
        self.sum.update(payload);
        self.records += 1;
        self.position += RECORD_SIZE as u64 + wanted;
        let received = Received { record, number: place.number, position: place.position, sum_before: began_with };
        if matches!(received.record.body, RecordBody::End(_)) {
            // What follows is a stream of its own.
            self.sum = Fletcher4::new(order == StreamOrder::Big);
        }
        Ok(Some(received))
    }

    fn cannot_read(&self, place: &Place, error: &std::io::Error) -> Error {
        error!(Io, "{place}: the stream cannot be read: {error}")
    }
}

fn ends_within(place: &Place, bytes: u64, got: u64) -> Error {
    error!(Corrupt, "the stream ends within {place}: {got} of its {bytes} bytes are there")
}

/// The words of a checksum as the tools print them.
pub fn hexadecimal(words: Words) -> String {
    words.map(|word| format!("{word:x}")).join("/")
}

/// Fills `bytes`, or as much of it as there is.
fn read_up_to(input: &mut impl Read, bytes: &mut [u8]) -> std::io::Result<usize> {
    let mut got = 0;
    while got < bytes.len() {
        match input.read(&mut bytes[got..]) {
            Ok(0) => break,
            Ok(more) => got += more,
            Err(error) if error.kind() == IoErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(got)
}
