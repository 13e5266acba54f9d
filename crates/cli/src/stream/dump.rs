//! `tarn stream dump`: the records, as OpenZFS's `zstream dump` prints them.

use std::io::{Result, Write};

use engine::stream::{Received, StreamReader, hexadecimal};
use ondisk::nvlist::NvList;
use ondisk::stream::{Begin, RECORD_SIZE, RecordBody, StreamRecordType};

use crate::text::getopt::Options;
use crate::session::{Outcome, Session, complain};

/// What may be asked for.
#[derive(Debug, Default)]
struct Flags {
    records: bool,
    checksums: bool,
    contents: bool,
    unchecked: bool,
}

pub(super) fn run(session: &mut Session<'_>, words: &[String]) -> Outcome {
    let mut flags = Flags::default();
    let mut options = Options::new(words, ":vCd", &[]);
    for option in options.by_ref() {
        match option.map_err(|wrong| session.misuse(wrong))?.0 {
            'C' => flags.unchecked = true,
            'd' => (flags.records, flags.checksums, flags.contents) = (true, true, true),
            _ => (flags.checksums, flags.records) = (flags.records, true),
        }
    }
    let operands = options.operands();
    if operands.len() > 1 {
        return Err(session.misuse("too many arguments"));
    }
    let input = super::open(session, operands.first())?;
    let mut reader = if flags.unchecked { StreamReader::unchecked(input) } else { StreamReader::new(input) };
    let mut totals = Totals::default();
    let mut right = true;
    let mut payload = Vec::new();
    loop {
        match reader.next(&mut payload) {
            Ok(Some(received)) => {
                totals.add(received.record.record_type(), payload.len());
                right &= flags.unchecked || received.end_is_right();
                if print(session.out, &flags, &received, &payload).is_err() {
                    return Ok(0);
                }
            }
            Ok(None) => break,
            Err(error) => {
                complain!(session, "{error}");
                right = false;
                break;
            }
        }
    }
    let _ = totals.print(session.out);
    Ok(u8::from(!right))
}

fn print(out: &mut dyn Write, flags: &Flags, received: &Received, payload: &[u8]) -> Result<()> {
    match &received.record.body {
        RecordBody::Begin(begin) => return print_begin(out, flags, begin, payload),
        RecordBody::End(end) => {
            if !flags.unchecked && !received.end_is_right() {
                writeln!(out, "Expected checksum differs from checksum in stream.")?;
                writeln!(out, "Expected checksum = {}", hexadecimal(received.sum_before))?;
            }
            writeln!(out, "END checksum = {}", hexadecimal(end.checksum))?;
        }
        body if flags.records => {
            writeln!(out, "{}", line(body, payload.len()))?;
            if flags.contents {
                print_contents(out, payload)?;
            }
        }
        _ => {}
    }
    if flags.checksums {
        writeln!(out, "    checksum = {}", hexadecimal(received.record.checksum))?;
    }
    Ok(())
}

fn print_begin(out: &mut dyn Write, flags: &Flags, begin: &Begin, payload: &[u8]) -> Result<()> {
    writeln!(out, "BEGIN record")?;
    writeln!(out, "\thdrtype = {}", begin.header_type())?;
    writeln!(out, "\tfeatures = {:x}", begin.features().bits())?;
    writeln!(out, "\tmagic = {:x}", begin.magic)?;
    writeln!(out, "\tcreation_time = {:x}", begin.creation_time)?;
    writeln!(out, "\ttype = {}", begin.objset_type)?;
    writeln!(out, "\tflags = {:#x}", begin.flags)?;
    writeln!(out, "\ttoguid = {:x}", begin.to_guid)?;
    writeln!(out, "\tfromguid = {:x}", begin.from_guid)?;
    out.write_all(b"\ttoname = ")?;
    out.write_all(begin.name())?;
    writeln!(out, "\n\tpayloadlen = {}", payload.len())?;
    if flags.records {
        writeln!(out)?;
    }
    if !payload.is_empty() {
        match NvList::decode(payload) {
            Ok(list) => super::nvlist::print(out, &list, 0)?,
            Err(error) => writeln!(out, "{error}")?,
        }
    }
    Ok(())
}

/// What a record says, but BEGIN and END.
fn line(body: &RecordBody, payload_bytes: usize) -> String {
    let sealed = |salt: &[u8], iv: &[u8], mac: &[u8]| format!("salt = {} iv = {} mac = {}", hex::encode(salt), hex::encode(iv), hex::encode(mac));
    match body {
        RecordBody::Begin(_) | RecordBody::End(_) => String::new(),
        RecordBody::Object(it) => format!(
            "OBJECT object = {} type = {} bonustype = {} blksz = {} bonuslen = {} dn_slots = {} raw_bonuslen = {} flags = {} maxblkid = {} \
             indblkshift = {} nlevels = {} nblkptr = {}",
            it.object,
            it.object_type,
            it.bonus_type,
            it.block_bytes,
            it.bonus_bytes,
            it.slots,
            it.raw_bonus_bytes,
            it.flags,
            it.last_block,
            it.indirect_shift,
            it.levels,
            it.pointers
        ),
        RecordBody::FreeObjects(it) => format!("FREEOBJECTS firstobj = {} numobjs = {}", it.first_object, it.objects),
        RecordBody::Write(it) => format!(
            "WRITE object = {} type = {} checksum type = {} compression type = {} flags = {} offset = {} logical_size = {} \
             compressed_size = {} payload_size = {payload_bytes} props = {:x} {}",
            it.object,
            it.object_type,
            it.checksum,
            it.compression,
            it.flags,
            it.offset,
            it.logical_bytes,
            it.compressed_bytes,
            it.key_properties,
            sealed(&it.salt, &it.iv, &it.mac)
        ),
        RecordBody::Free(it) => format!("FREE object = {} offset = {} length = {}", it.object, it.offset, it.bytes.cast_signed()),
        RecordBody::WriteByReference(it) => format!(
            "WRITE_BYREF object = {} checksum type = {} props = {:x} offset = {} length = {} toguid = {:x} refguid = {:x} refobject = {} \
             refoffset = {}",
            it.object, it.checksum, it.key_properties, it.offset, it.bytes, it.to_guid, it.from_guid, it.from_object, it.from_offset
        ),
        RecordBody::Spill(it) => format!(
            "SPILL block for object = {} length = {} flags = {} compression type = {} compressed_size = {} payload_size = {payload_bytes} {}",
            it.object,
            it.logical_bytes,
            it.flags,
            it.compression,
            it.compressed_bytes,
            sealed(&it.salt, &it.iv, &it.mac)
        ),
        RecordBody::WriteEmbedded(it) => format!(
            "WRITE_EMBEDDED object = {} offset = {} length = {} toguid = {:x} comp = {} etype = {} lsize = {} psize = {}",
            it.object, it.offset, it.bytes, it.to_guid, it.compression, it.embedded_type, it.logical_bytes, it.physical_bytes
        ),
        RecordBody::ObjectRange(it) => format!(
            "OBJECT_RANGE firstobj = {} numslots = {} flags = {} {}",
            it.first_object,
            it.slots,
            it.flags,
            sealed(&it.salt, &it.iv, &it.mac)
        ),
        RecordBody::Redact(it) => format!("REDACT object = {} offset = {} length = {}", it.object, it.offset, it.bytes),
    }
}

/// Bytes as numbers and as text, in lines of 16 and groups of 4.
fn print_contents(out: &mut dyn Write, bytes: &[u8]) -> Result<()> {
    const LINE: usize = 16;
    const GROUP: usize = 4;
    /// Where the text begins: three columns for each byte, one for each group, and a gap.
    const TEXT: usize = LINE * 3 + LINE / GROUP + 2;
    for line in bytes.chunks(LINE) {
        let numbers: String = line.chunks(GROUP).map(|group| group.iter().fold(" ".to_owned(), |text, byte| text + &format!("{byte:02x} "))).collect();
        let shown = |byte: &u8| if (b' '..=b'~').contains(byte) { char::from(*byte) } else { '.' };
        let text: Vec<String> = line.chunks(GROUP).map(|group| group.iter().map(shown).collect()).collect();
        writeln!(out, "{numbers:TEXT$}{}", text.join(" "))?;
    }
    Ok(())
}

/// What was counted, by type of record.
#[derive(Debug, Default)]
struct Totals {
    records: [u64; 11],
    payload_bytes: [u64; 11],
}

impl Totals {
    fn add(&mut self, record_type: StreamRecordType, payload_bytes: usize) {
        self.records[record_type as usize] += 1;
        self.payload_bytes[record_type as usize] += payload_bytes as u64;
    }

    fn print(&self, out: &mut dyn Write) -> Result<()> {
        use StreamRecordType::{Begin, End, Free, FreeObjects, Object, Spill, Write, WriteByReference, WriteEmbedded};
        writeln!(out, "SUMMARY:")?;
        for record_type in [Begin, End, Object, FreeObjects, Write, WriteByReference, WriteEmbedded, Free, Spill] {
            let index = record_type as usize;
            writeln!(out, "\tTotal DRR_{} records = {} ({} bytes)", record_type.name(), self.records[index], self.payload_bytes[index])?;
        }
        let records: u64 = self.records.iter().sum();
        let (payload, heads) = (self.payload_bytes.iter().sum::<u64>(), records * RECORD_SIZE as u64);
        writeln!(out, "\tTotal records = {records}")?;
        writeln!(out, "\tTotal payload size = {payload} ({payload:#x})")?;
        writeln!(out, "\tTotal header overhead = {heads} ({heads:#x})")?;
        writeln!(out, "\tTotal stream length = {0} ({0:#x})", payload + heads)
    }
}
