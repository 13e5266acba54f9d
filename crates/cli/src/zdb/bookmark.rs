//! `zdb POOL/FS#BOOKMARK`: a bookmark, and what it redacts.

use engine::dsl::redaction_bonus;
use engine::error::{Error, ErrorKind};
use engine::pool::Pool;
use ondisk::dsl::{BookmarkPhys, RedactBlockPhys, RedactionListPhys, dataset_field};

use crate::session::{Session, say};

/// Bytes of an entry of a redaction list.
const ENTRY_BYTES: usize = size_of::<RedactBlockPhys>();
/// Entries that are read at a time.
const ENTRIES_AT_A_TIME: u64 = 1024;

/// Shows the bookmark of that whole name; `with_list`: with every range that it redacts.
pub(super) fn show(session: &mut Session<'_>, pool: &Pool, name: &str, with_list: bool) -> Result<(), Error> {
    let missing = || Error::new(ErrorKind::NotFound, "there is no such bookmark");
    let (head, short) = name.split_once('#').ok_or_else(missing)?;
    let head = pool.dsl.open_dataset(head)?;
    let mos = &pool.dsl.meta.mos;
    let bookmarks = if head.is_snapshot { None } else { mos.zap_u64(head.object, dataset_field::BOOKMARKS).unwrap_or(None) };
    let entry = bookmarks.map(|object| mos.zap_get(object, short)).transpose()?.flatten().ok_or_else(missing)?;
    let phys = BookmarkPhys::from_words(&entry.to_u64s())?;
    let list = phys.redaction_list.get();
    let (guid, txg, time) = (phys.guid.get(), phys.creation_txg.get(), phys.creation_time.get());
    say!(session, "\t#{short}: {{guid: {guid:x} creation_txg: {txg} creation_time: {time} redaction_obj: {list}}}");
    if list == 0 {
        return Ok(());
    }
    let bonus = redaction_bonus(mos, list)?;
    let head = RedactionListPhys::from_bonus(&bonus)?;
    let progress = match (head.last_object.get(), head.last_block.get()) {
        (u64::MAX, u64::MAX) => "complete".to_owned(),
        (object, block) => format!("{object} {block} (incomplete)"),
    };
    let guids: Vec<_> = RedactionListPhys::snapshot_guids(&bonus)?.iter().map(u64::to_string).collect();
    say!(session, "\tRedacted:\n\t\tProgress: {progress}\n\t\tSnapshots: [{}]\n\t\tLength: {}", guids.join(", "), head.entries.get());
    if with_list {
        session.print(format_args!("\t\tRedaction List: ["));
        show_list(session, pool, list, head.entries.get())?;
        say!(session, "]\n");
    }
    Ok(())
}

fn show_list(session: &mut Session<'_>, pool: &Pool, list: u64, entries: u64) -> Result<(), Error> {
    // What the object does not have is not shown, whatever its head says.
    let dnode = pool.dsl.meta.mos.0.hold(list)?;
    let bytes = dnode.max_block().saturating_add(1).saturating_mul(dnode.block_bytes());
    let entries = entries.min(bytes / ENTRY_BYTES as u64);
    let mut next = 0;
    while next < entries && session.hand_over() {
        let count = (entries - next).min(ENTRIES_AT_A_TIME);
        let bytes = pool.dsl.meta.mos.read(list, next.saturating_mul(ENTRY_BYTES as u64), count as usize * ENTRY_BYTES)?;
        for (index, entry) in bytes.chunks_exact(ENTRY_BYTES).enumerate() {
            let entry = RedactBlockPhys::from_bonus(entry)?;
            let (object, block, size, count) = (entry.object.get(), entry.block.get(), entry.block_bytes(), entry.count());
            let before = if next + index as u64 == 0 { "" } else { ",\n\t\t" };
            session.print(format_args!("{before}{{object: {object:x}, offset: {block:x}, blksz: {size:x}, count: {count:x}}}"));
        }
        next += count;
    }
    Ok(())
}
