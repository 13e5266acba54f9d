//! `tarn fs cp`, `mkdir`

use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;

use super::Flags;
use super::operand::OpenTrees;
use super::tree::{Identity, Kind, Result, Tree, join, last_name, shown};
use crate::session::{Session, Stop, complain};

const BUFFER_BYTES: usize = 1 << 20;
/// Bytes that are tried one after the other where a buffer cannot be read.
const PIECE_BYTES: u64 = 4096;
/// Directories nested deeper are taken for a circle.
const DEPTH_MAX: usize = 1000;

struct Copy<'a> {
    flags: &'a Flags,
    from: &'a mut dyn Tree,
    to: &'a mut dyn Tree,
    /// The directory that was made first: it is not copied itself where it is within what is copied.
    made: Option<Identity>,
    /// Where that is in the copy which has several names.
    linked: &'a mut HashMap<Identity, Vec<u8>>,
    failures: Vec<String>,
    buffer: Vec<u8>,
    /// What of a file cannot be read is left out, and the rest copied.
    salvages: bool,
}

impl Copy<'_> {
    /// Copies one thing; what cannot be copied is noted, and the rest goes on.
    fn any(&mut self, from: &[u8], to: &[u8], depth: usize) {
        if let Err(words) = self.try_any(from, to, depth) {
            self.failures.push(words);
        }
    }

    fn try_any(&mut self, from: &[u8], to: &[u8], depth: usize) -> Result<()> {
        let entry = self.from.entry(from)?;
        let identity = self.from.identity(from);
        if entry.kind != Kind::SymbolicLink && identity.is_some() && identity == self.to.identity(to) {
            return Err(format!("'{}' and '{}' are the same file", self.from.shown(from), self.to.shown(to)));
        }
        let has_names = self.flags.links && entry.links > 1 && matches!(entry.kind, Kind::Regular | Kind::Special);
        if has_names && let Some(there) = identity.as_ref().and_then(|identity| self.linked.get(identity)) {
            let copied = self.to.identity(there);
            return if copied.is_some() && copied == self.to.identity(to) { Ok(()) } else { self.to.make_hard_link(to, there) };
        }
        match entry.kind {
            Kind::Directory if !self.flags.recursive => return Err(format!("-r not specified; omitting directory '{}'", self.from.shown(from))),
            Kind::Directory if depth > DEPTH_MAX => return Err(format!("'{}' is nested too deep", self.from.shown(from))),
            Kind::Directory if identity.is_some() && identity == self.made => {
                return Err(format!("cannot copy a directory into itself, '{}'", self.from.shown(from)));
            }
            Kind::Directory => {
                self.to.make_directory(to, entry.mode)?;
                if depth == 0 {
                    self.made = self.to.identity(to);
                }
                for name in self.from.names(from)? {
                    self.any(&join(from, &name), &join(to, &name), depth + 1);
                }
            }
            Kind::SymbolicLink => {
                let target = self.from.link_target(from)?;
                self.to.make_link(to, &target)?;
            }
            Kind::Regular => {
                self.to.make_file(to, entry.mode)?;
                self.contents(from, to, entry.size)?;
            }
            // What would come out of it, if it ends at all, is not what it is.
            Kind::Special if !self.flags.recursive => {
                return Err(format!("-r not specified; omitting '{}', which is no regular file", self.from.shown(from)));
            }
            Kind::Special => self.to.make_special(to, entry.mode, entry.device)?,
        }
        if self.flags.preserve {
            let attributes = self.from.attributes(from)?;
            self.to.set_entry(to, &entry, &attributes)?;
        }
        if has_names && let Some(identity) = identity {
            self.linked.insert(identity, to.to_vec());
        }
        Ok(())
    }

    /// Holes are not read, and zeros are not written to a file, which is empty: they become holes. On a device old contents would stay.
    fn contents(&mut self, from: &[u8], to: &[u8], size: u64) -> Result<()> {
        let has_holes = self.to.entry(to)?.kind == Kind::Regular;
        let mut offset = 0;
        let mut end_written = 0;
        loop {
            if has_holes {
                match self.from.next_data(from, offset) {
                    Ok(Some(data)) => offset = data,
                    // The size may have changed since it was asked for.
                    Ok(None) => offset = offset.max(self.from.entry(from)?.size),
                    // Each part of it says so itself.
                    Err(_) if self.salvages => {}
                    Err(words) => return Err(words),
                }
            }
            let read = match self.from.read(from, offset, &mut self.buffer) {
                Err(words) if self.salvages => {
                    end_written = self.salvage(from, to, offset, size, end_written, &words)?;
                    offset = size.min(offset + self.buffer.len() as u64);
                    if offset >= size { 0 } else { continue }
                }
                read => read?,
            };
            if read == 0 {
                break;
            }
            let data = &self.buffer[..read];
            if !has_holes || data.iter().any(|byte| *byte != 0) {
                self.to.write(to, offset, data)?;
                end_written = offset + read as u64;
            }
            offset += read as u64;
        }
        if has_holes && end_written < offset.max(size) { self.to.set_size(to, offset.max(if self.salvages { size } else { 0 })) } else { Ok(()) }
    }

    /// Copies what can be read of a buffer's length that cannot be read at once, and says what is missing. Returns the end of what was written.
    fn salvage(&mut self, from: &[u8], to: &[u8], offset: u64, size: u64, mut end_written: u64, words: &str) -> Result<u64> {
        let end = size.min(offset + self.buffer.len() as u64);
        let (mut at, mut missing) = (offset, Vec::<(u64, u64)>::new());
        while at < end {
            let length = (end - at).min(PIECE_BYTES) as usize;
            match self.from.read(from, at, &mut self.buffer[..length]) {
                Ok(read) => {
                    let data = &self.buffer[..read];
                    if data.iter().any(|byte| *byte != 0) {
                        self.to.write(to, at, data)?;
                        end_written = at + read as u64;
                    }
                }
                Err(_) => match missing.last_mut() {
                    Some((_, last)) if *last == at => *last = at + length as u64,
                    _ => missing.push((at, at + length as u64)),
                },
            }
            at += length as u64;
        }
        for (begin, end) in missing {
            self.failures.push(format!("{words}: bytes {begin} to {} are zeros in the copy", end - 1));
        }
        Ok(end_written)
    }
}

/// Copies one thing with all that it is, and whatever can be read of it; says what could not be copied.
pub(super) fn copy_out(from: &mut dyn Tree, source: &[u8], to: &mut dyn Tree, target: &[u8]) -> Vec<String> {
    let flags = Flags { recursive: true, preserve: true, links: true, ..Flags::default() };
    let mut linked = HashMap::new();
    let mut copy =
        Copy { flags: &flags, from: &mut *from, to: &mut *to, made: None, linked: &mut linked, failures: Vec::new(), buffer: vec![0; BUFFER_BYTES], salvages: true };
    copy.any(source, target, 0);
    let mut failures = copy.failures;
    failures.extend(to.finish().err());
    failures
}

pub(super) fn run(session: &mut Session<'_>, flags: &Flags, trees: &mut OpenTrees<'_>, operands: &[OsString]) -> std::result::Result<u8, Stop> {
    let Some((target, sources)) = operands.split_last().filter(|(_, sources)| !sources.is_empty()) else {
        return Err(session.misuse("missing destination"));
    };
    let failures = match copy_all(session, flags, trees, sources, target) {
        Ok(failures) => failures,
        Err(words) => vec![words],
    };
    for words in &failures {
        complain!(session, "tarn fs cp: {words}");
    }
    Ok(u8::from(!failures.is_empty()))
}

fn copy_all(session: &mut Session<'_>, flags: &Flags, trees: &mut OpenTrees<'_>, sources: &[OsString], target: &OsStr) -> Result<Vec<String>> {
    trees.will_write(session, target)?;
    let mut to = trees.open(session, target)?;
    let into_directory = to.tree.entry(&to.path).is_ok_and(|entry| entry.kind == Kind::Directory);
    if sources.len() > 1 && !into_directory {
        return Err(format!("target '{}' is not a directory", shown(target.as_bytes())));
    }
    let mut failures = Vec::new();
    let mut linked = HashMap::new();
    for source in sources {
        let mut from = match trees.open(session, source) {
            Ok(from) => from,
            Err(words) => {
                failures.push(words);
                continue;
            }
        };
        let place = if into_directory {
            let whole = if from.is_host { source.as_bytes().to_vec() } else { from.path.clone() };
            // The root of a dataset has no name: its contents go into the target.
            match last_name(&whole) {
                Some(name) if name != b".." => join(&to.path, name),
                _ => to.path.clone(),
            }
        } else {
            to.path.clone()
        };
        let mut copy = Copy { flags, from: &mut *from.tree, to: &mut *to.tree, made: None, linked: &mut linked, failures: Vec::new(), buffer: vec![0; BUFFER_BYTES], salvages: false };
        copy.any(&from.path, &place, 0);
        failures.append(&mut copy.failures);
    }
    to.tree.finish()?;
    Ok(failures)
}

pub(super) fn mkdir(session: &mut Session<'_>, _: &Flags, trees: &mut OpenTrees<'_>, operands: &[OsString]) -> std::result::Result<u8, Stop> {
    let mut code = 0;
    for operand in operands {
        let made = trees.will_write(session, operand).and_then(|()| trees.open(session, operand)).and_then(|mut place| {
            place.tree.make_directory(&place.path, 0o755)?;
            place.tree.finish()
        });
        if let Err(words) = made {
            complain!(session, "tarn fs mkdir: {words}");
            code = 1;
        }
    }
    Ok(code)
}
