//! What a real pool has, compared with the model.

use std::collections::BTreeMap;
use std::sync::Arc;

use engine::dsl::{Dataset as Real, Dir, Dsl};
use ondisk::dsl::{BookmarkPhys, DATASET_FLAG_DEFER_DESTROY, dataset_field};
use ondisk::object_type::ObjectType;
use tarnfs::{Error, FileSystem, Pool};

use super::model::{Dataset, File, Files, Snapshot, Tree};
use super::perform::XATTR;
use super::space;

/// The guid of each identity, as far as they were seen. A guid does not change, and no two have the same.
pub type Guids = BTreeMap<u64, u64>;

/// Says what is different. `receiving`: a stream may be half received, and nobody sees that.
///
/// # Errors
/// The difference.
pub fn compare(pool: &Arc<Pool>, tree: &Tree, guids: &mut Guids, receiving: bool) -> Result<(), String> {
    let dsl = &pool.engine().dsl;
    let names = names(dsl, receiving).map_err(|error| format!("the tree cannot be read: {error}"))?;
    let expected: Vec<&String> = tree.datasets.keys().collect();
    if names.iter().collect::<Vec<_>>() != expected {
        return Err(format!("the file systems are {names:?}, not {expected:?}"));
    }
    let mut seen = Guids::new();
    for (name, dataset) in &tree.datasets {
        let judge = Judge { pool, dsl, tree, receiving };
        judge.dataset(name, dataset, &mut seen).map_err(|reason| format!("{name}: {reason}"))?;
    }
    for (identity, guid) in seen {
        let known = *guids.entry(identity).or_insert(guid);
        if known != guid {
            return Err(format!("the guid of {identity} was {known}, and is {guid}"));
        }
    }
    Ok(())
}

/// All file systems, sorted. Those whose stream is half received are nobody's.
fn names(dsl: &Arc<Dsl>, receiving: bool) -> Result<Vec<String>, Error> {
    let (mut found, mut waiting) = (Vec::new(), vec![dsl.root_dir()?]);
    while let Some(dir) = waiting.pop() {
        let is_half = receiving && (dir.name().starts_with('%') || dsl.dataset(dir.phys().head_dataset.get())?.is_inconsistent());
        if !is_half {
            found.push(dir.full_name());
            waiting.extend(visible(dsl, &dir)?);
        }
    }
    found.sort();
    Ok(found)
}

/// Those below a directory that are not the pool's own.
fn visible(dsl: &Dsl, dir: &Dir) -> Result<impl Iterator<Item = Arc<Dir>>, Error> {
    Ok(dsl.children(dir)?.into_iter().filter(|(name, _)| !name.starts_with('$')).map(|(_, child)| child))
}

fn differ<T: PartialEq + std::fmt::Debug>(what: &str, found: T, expected: T) -> Result<(), String> {
    if found == expected { Ok(()) } else { Err(format!("{what}: {found:?}, not {expected:?}")) }
}

struct Judge<'a> {
    pool: &'a Arc<Pool>,
    dsl: &'a Arc<Dsl>,
    tree: &'a Tree,
    receiving: bool,
}

impl Judge<'_> {
    fn dataset(&self, name: &str, expected: &Dataset, seen: &mut Guids) -> Result<(), String> {
        let text = |error: Error| error.to_string();
        let head = self.dsl.open_dataset(name).map_err(text)?;
        let snapshots = head.snapshots().map_err(text)?;
        let names: Vec<&str> = snapshots.iter().map(|(name, _)| name.as_str()).collect();
        differ("the snapshots", names, expected.snapshots.iter().map(|snapshot| snapshot.name.as_str()).collect())?;
        self.files(name, &expected.files)?;
        for ((_, object), snapshot) in snapshots.iter().zip(&expected.snapshots) {
            let real = self.dsl.dataset(*object).map_err(text)?;
            self.snapshot(&real, snapshot, seen).map_err(|reason| format!("@{}: {reason}", snapshot.name))?;
            self.files(&format!("{name}@{}", snapshot.name), &snapshot.files).map_err(|reason| format!("@{}: {reason}", snapshot.name))?;
        }
        let origin = head.origin().map_err(text)?.map(|origin| origin.name()).transpose().map_err(text)?;
        differ("the origin", origin, expected.origin.and_then(|number| self.tree.name_of(number)))?;
        for (short, guid) in self.bookmarks(&head).map_err(text)? {
            let Some(bookmark) = expected.bookmarks.get(&short) else { return Err(format!("the bookmark {short} is there")) };
            note(seen, bookmark.identity, guid)?;
        }
        differ("the number of bookmarks", self.bookmarks(&head).map_err(text)?.len(), expected.bookmarks.len())?;
        space::compare(self.dsl, &head)
    }

    fn snapshot(&self, real: &Arc<Real>, expected: &Snapshot, seen: &mut Guids) -> Result<(), String> {
        let text = |error: Error| error.to_string();
        note(seen, expected.identity, real.phys().guid.get())?;
        differ("it waits to be destroyed", real.phys().flags.get() & DATASET_FLAG_DEFER_DESTROY != 0, expected.is_doomed)?;
        let holds = match real.phys().user_holds.get() {
            0 => Vec::new(),
            holds => self.dsl.meta.mos.zap_entries(holds).map_err(text)?,
        };
        let mut holds: Vec<String> = holds.into_iter().map(|(tag, _)| tag).collect();
        holds.sort();
        differ("the holds", holds, expected.holds.iter().cloned().collect())?;
        let clones: Vec<String> = real.clones().map_err(text)?.into_iter().filter(|name| !(self.receiving && self.is_half(name))).collect();
        differ("the clones", clones.clone(), self.tree.clones(expected.number).into_iter().map(str::to_owned).collect())?;
        if self.receiving { Ok(()) } else { differ("the children", real.phys().children.get(), clones.len() as u64 + 1) }
    }

    fn is_half(&self, name: &str) -> bool {
        name.contains('%') || self.dsl.open_dataset(name).is_ok_and(|dataset| dataset.is_inconsistent())
    }

    fn bookmarks(&self, head: &Real) -> Result<Vec<(String, u64)>, Error> {
        let mos = &self.dsl.meta.mos;
        let object = match mos.info(head.object)?.object_type {
            ObjectType::ZAP_METADATA => mos.zap_u64(head.object, dataset_field::BOOKMARKS)?,
            _ => None,
        };
        let Some(object) = object else { return Ok(Vec::new()) };
        let guid = |words: Vec<u64>| BookmarkPhys::from_words(&words).map(|phys| phys.guid.get());
        mos.zap_entries(object)?.into_iter().map(|(name, value)| Ok((name, guid(value.to_u64s())?))).collect()
    }

    fn files(&self, name: &str, expected: &Files) -> Result<(), String> {
        let fs = self.pool.file_system(name).map_err(|error| format!("it cannot be opened: {error}"))?;
        let found = read_all(&fs).map_err(|error| format!("it cannot be read: {error}"));
        fs.release_all();
        let found = found?;
        if !found.keys().eq(expected.keys()) {
            return Err(format!("the files are {:?}, not {:?}", found.keys(), expected.keys()));
        }
        let mut pairs = found.iter().zip(expected.values());
        match pairs.find(|((_, found), expected)| found != expected) {
            None => Ok(()),
            Some(((file, found), expected)) => Err(difference(file, found, expected)),
        }
    }
}

fn difference(file: &str, found: &File, expected: &File) -> String {
    let at = found.contents.iter().zip(expected.contents.iter()).position(|(found, expected)| found != expected);
    let lengths = (found.contents.len(), expected.contents.len());
    let (ours, theirs) = (found.xattr.as_ref().map(Vec::len), expected.xattr.as_ref().map(Vec::len));
    format!("file {file}: {} bytes, not {}, first difference at {at:?}; mode {:o}, not {:o}; attribute {ours:?}, not {theirs:?}", lengths.0, lengths.1, found.mode, expected.mode)
}

fn note(seen: &mut Guids, identity: u64, guid: u64) -> Result<(), String> {
    if seen.iter().any(|(other, theirs)| (*other == identity) != (*theirs == guid)) {
        return Err(format!("the guid {guid} is another's, or another is its own"));
    }
    seen.insert(identity, guid);
    Ok(())
}

fn read_all(fs: &FileSystem) -> Result<Files, Error> {
    let mut entries = Vec::new();
    fs.read_directory(fs.root(), 2, &mut |entry| {
        entries.push((String::from_utf8_lossy(&entry.name).into_owned(), entry.inode));
        true
    })?;
    let mut files = Files::new();
    for (name, inode) in entries {
        let stat = fs.getattr(inode)?;
        let has_xattr = fs.listxattr(inode)?.iter().any(|name| name == XATTR.as_bytes());
        let xattr = if has_xattr { Some(fs.getxattr(inode, XATTR.as_bytes())?) } else { None };
        let contents = Arc::new(fs.read(inode, 0, stat.size as usize)?);
        files.insert(name, File { contents, mode: stat.mode & 0o7777, xattr });
    }
    Ok(files)
}
