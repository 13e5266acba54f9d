//! What a file system says of a file.

use std::collections::HashMap;
use std::sync::Arc;

use engine::dmu::Objset;
use engine::error::Error;
use engine::zap::Zap;
use ondisk::nvlist::Value;
use ondisk::znode::{self, FLAG_XATTR};
use tarnfs::{FileKind, FileSystem, MountOptions, Stat};

use crate::session::{Session, say};
use crate::text::units::clock_time;

/// Paths deeper than this are taken for a circle.
const DEPTH_MAX: usize = 4096;

const TYPES: [&str; 16] = [
    "not specified",
    "FIFO",
    "Character Device",
    "3 (invalid)",
    "Directory",
    "5 (invalid)",
    "Block Device",
    "7 (invalid)",
    "Regular File",
    "9 (invalid)",
    "Symbolic Link",
    "11 (invalid)",
    "Socket",
    "Door",
    "Event Port",
    "15 (invalid)",
];

/// The type that a directory's entry gives to what it names.
pub(super) fn type_words(number: u64) -> &'static str {
    TYPES[usize::try_from(number).unwrap_or(0) % TYPES.len()]
}

/// Bytes as text, or each in octal digits if one of them is no text.
fn shown_bytes(bytes: &[u8], exact: bool) -> String {
    if !exact && bytes.iter().all(|byte| (b' '..=b'~').contains(byte)) {
        return String::from_utf8_lossy(bytes).into_owned();
    }
    bytes.iter().map(|byte| format!("\\{byte:03o}")).collect()
}

/// The files of a file system, and the names that were looked up.
pub(super) struct Files {
    objset: Arc<Objset>,
    files: FileSystem,
    /// By directory: the names of what it holds.
    names: HashMap<u64, HashMap<u64, String>>,
}

impl Files {
    pub(super) fn open(objset: &Arc<Objset>) -> Option<Files> {
        let files = FileSystem::open(objset.clone(), MountOptions { read_only: true, ..MountOptions::default() }, || (0, 0)).ok()?;
        Some(Files { objset: objset.clone(), files, names: HashMap::new() })
    }

    /// The object that a path leads to, from the root; symbolic links are not followed.
    pub(super) fn object_at(&self, path: &str) -> Result<u64, Error> {
        let names = path.split('/').filter(|name| !name.is_empty());
        names.into_iter().try_fold(self.files.root(), |directory, name| Ok(self.files.lookup(directory, name.as_bytes())?.inode))
    }

    fn name_in(&mut self, directory: u64, object: u64) -> Option<String> {
        let objset = &self.objset;
        let names = self.names.entry(directory).or_insert_with(|| {
            let entries = Zap::open(objset, directory).and_then(|zap| zap.entries()).unwrap_or_default();
            entries.iter().map(|entry| (znode::entry_object(entry.value.first()), entry.text())).collect()
        });
        names.get(&object).cloned()
    }

    /// `/a/b`, or why there is no path.
    fn path(&mut self, object: u64, stat: &Stat) -> String {
        if stat.links == 0 {
            return "on delete queue".to_owned();
        }
        let mut parts = Vec::new();
        let (mut object, mut stat) = (object, stat.clone());
        while object != self.files.root() {
            let above = stat.parent;
            let name = match stat.flags & FLAG_XATTR != 0 && stat.kind() == FileKind::Directory {
                true => Some("<xattrdir>".to_owned()),
                false => self.name_in(above, object),
            };
            let (Some(name), Ok(next)) = (name, self.files.getattr(above)) else {
                return "path not found, possibly leaked".to_owned();
            };
            parts.push(name);
            if parts.len() > DEPTH_MAX {
                return "path without an end".to_owned();
            }
            (object, stat) = (above, next);
        }
        parts.reverse();
        format!("/{}", super::shown_name(&parts.join("/")))
    }

    pub(super) fn show(&mut self, session: &mut Session<'_>, object: u64, verbosity: u32, exact: bool) {
        let stat = match self.files.getattr(object) {
            Ok(stat) => stat,
            Err(error) => {
                say!(session, "\t({error})");
                return;
            }
        };
        if verbosity >= 5 {
            say!(session, "\tpath\t{}", self.path(object, &stat));
        }
        if stat.kind() == FileKind::SymbolicLink
            && let Ok(target) = self.files.readlink(object)
        {
            say!(session, "\ttarget\t{}", super::shown_name(&String::from_utf8_lossy(&target)));
        }
        say!(session, "\tuid     {}\n\tgid     {}", stat.uid, stat.gid);
        let times = [
            ("atime", stat.access_time),
            ("mtime", stat.modification_time),
            ("ctime", stat.change_time),
            ("crtime", stat.creation_time),
        ];
        for (name, time) in times {
            let text = clock_time(u64::try_from(time.seconds).unwrap_or(0), &session.zone.clone());
            say!(session, "\t{name}\t{text}");
        }
        say!(session, "\tgen\t{}\n\tmode\t{:o}\n\tsize\t{}", stat.generation, stat.mode, stat.size);
        say!(session, "\tparent\t{}\n\tlinks\t{}\n\tpflags\t{:x}", stat.parent, stat.links, stat.flags);
        if stat.flags & znode::FLAG_PROJECT_ID != 0 {
            say!(session, "\tprojid\t{}", stat.project);
        }
        let xattrs = self.files.raw_xattrs(object).unwrap_or_default();
        if let Some(directory) = xattrs.directory {
            say!(session, "\txattr\t{directory}");
        }
        if matches!(stat.kind(), FileKind::CharacterDevice | FileKind::BlockDevice) {
            say!(session, "\trdev\t{:#018x}", stat.device);
        }
        if let Some((bytes, list)) = xattrs.listed {
            say!(session, "\tSA xattrs: {bytes} bytes, {} entries\n", list.iter().count());
            for (name, value) in list.iter() {
                let value = match value {
                    Value::ByteArray(bytes) => shown_bytes(bytes, exact),
                    other => format!("{other:?}"),
                };
                say!(session, "\t\t{} = {value}", super::shown_name(&name.to_string_lossy()));
            }
        }
    }
}
