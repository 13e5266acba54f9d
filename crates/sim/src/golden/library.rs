//! The library as a subject: pools opened read-only from image files.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Result, bail, ensure};
use engine::dmu::Objset;
use engine::dsl::{Dataset, Dir, PropertyValue, prop_table};
use engine::host::RealHost;
use engine::pool::check::CheckOptions;
use engine::pool::examine::at_checkpoint;
use engine::pool::import::Candidate;
use engine::pool::{OpenOptions, Pool, import};
use engine::tunables::Tunables;
use ondisk::objset::ObjsetType;
use ondisk::znode;
use tarnfs::zpl::{FileKind, FileSystem, MountOptions, Stat};

use super::manifest::FileType;
use super::subject::{Attributes, DatasetEntry, DatasetType, GoldenFiles, GoldenPool, GoldenVolume, Seek};

/// OpenZFS shows the root of each mounted snapshot with this inode number less the dataset's object number, so that the
/// directories in `.zfs/snapshot` have different ones.
const SNAPSHOT_ROOTS: u64 = (1 << 48) - 4;

/// The name under which a dataset has its bookmarks.
const BOOKMARKS: &str = "com.delphix:bookmarks";

/// Opens the one pool that `images` hold, read-only, even if another host had it last.
pub fn open_images(images: &[impl AsRef<Path>]) -> Result<Box<dyn GoldenPool>> {
    open_candidate(&candidate(images)?)
}

/// As [`open_images`], as it was when its checkpoint was made.
pub fn open_checkpoint(images: &[impl AsRef<Path>]) -> Result<Box<dyn GoldenPool>> {
    open_candidate(&at_checkpoint(&candidate(images)?, RealHost::shared())?)
}

/// What our checker finds in the one pool that `images` hold: all of its metadata and every byte of space.
pub fn findings(images: &[impl AsRef<Path>]) -> Result<Vec<String>> {
    let report = Pool::open(&candidate(images)?, options())?.check(CheckOptions::default(), &|_| ())?;
    Ok(report.findings.iter().map(ToString::to_string).collect())
}

fn candidate(images: &[impl AsRef<Path>]) -> Result<Candidate> {
    let paths: Vec<PathBuf> = images.iter().map(|image| image.as_ref().to_owned()).collect();
    // The partitions of an image of a whole disk are looked at, too, as an import does.
    let candidates = import::discover(disk::find(&paths));
    let [candidate] = candidates.as_slice() else {
        bail!("{} pools in the images, not one", candidates.len());
    };
    Ok(candidate.clone())
}

fn open_candidate(candidate: &Candidate) -> Result<Box<dyn GoldenPool>> {
    Ok(Box::new(LibraryPool { pool: Pool::open(candidate, options())? }))
}

fn options() -> OpenOptions {
    OpenOptions {
        host: RealHost::shared(),
        tunables: Tunables { cache_bytes_max: 64 << 20, ..Tunables::default() },
        read_only: true,
        file_owner: None,
        new_name: None,
        forget_log: false,
    }
}

struct LibraryPool {
    pool: Arc<Pool>,
}

impl LibraryPool {
    fn list(&self, dir: &Arc<Dir>, entries: &mut Vec<DatasetEntry>) -> Result<()> {
        let name = dir.full_name();
        let dsl = &self.pool.dsl;
        let head = dsl.dataset_by_name(&name)?;
        // A dataset whose key is not loaded can be listed, not opened: then the type is not known here.
        let kind = match dsl.objset(&head) {
            Ok(objset) if objset.objset_type() == ObjsetType::Volume => DatasetType::Volume,
            Ok(objset) if objset.objset_type() == ObjsetType::FileSystem => DatasetType::FileSystem,
            Ok(objset) => bail!("{name}: an object set of type {:?}", objset.objset_type()),
            Err(_) => DatasetType::FileSystem,
        };
        entries.push(DatasetEntry { name: name.clone(), kind });
        for (snapshot, _) in head.snapshots()? {
            entries.push(DatasetEntry { name: format!("{name}@{snapshot}"), kind: DatasetType::Snapshot });
        }
        for bookmark in self.bookmarks(&head)? {
            entries.push(DatasetEntry { name: format!("{name}#{bookmark}"), kind: DatasetType::Bookmark });
        }
        for (name, child) in dsl.children(dir)? {
            // Names that no user can give are the pool's own.
            if !name.starts_with(['$', '%']) {
                self.list(&child, entries)?;
            }
        }
        Ok(())
    }

    fn bookmarks(&self, head: &Dataset) -> Result<Vec<String>> {
        let mos = &self.pool.dsl.meta.mos;
        // Only a dataset that is a ZAP can have any.
        match mos.zap_u64(head.object, BOOKMARKS) {
            Ok(Some(object)) => Ok(mos.zap_entries(object)?.into_iter().map(|(name, _)| name).collect()),
            Ok(None) | Err(_) => Ok(Vec::new()),
        }
    }

    fn objset(&self, name: &str) -> Result<Arc<Objset>> {
        let dataset = self.pool.dsl.open_dataset(name)?;
        Ok(self.pool.dsl.objset(&dataset)?)
    }
}

impl GoldenPool for LibraryPool {
    fn name(&self) -> String {
        self.pool.name()
    }

    fn datasets(&self) -> Result<Vec<DatasetEntry>> {
        let _names = self.pool.dsl.lock_names();
        let mut entries = Vec::new();
        self.list(&self.pool.dsl.root_dir()?, &mut entries)?;
        Ok(entries)
    }

    fn open_files<'a>(&'a self, name: &str) -> Result<Box<dyn GoldenFiles + 'a>> {
        let objset = self.objset(name)?;
        let root_shown = objset.is_snapshot().then(|| SNAPSHOT_ROOTS - objset.dataset());
        let options = MountOptions { read_only: true, long_names: true, ..MountOptions::default() };
        let files = FileSystem::open(objset, options, || (0, 0))?;
        Ok(Box::new(LibraryFiles { files, root_shown }))
    }

    fn open_volume<'a>(&'a self, name: &str) -> Result<Box<dyn GoldenVolume + 'a>> {
        let objset = self.objset(name)?;
        ensure!(objset.objset_type() == ObjsetType::Volume, "{name}: not a volume");
        Ok(Box::new(LibraryVolume { objset }))
    }

    fn property(&self, name: &str, property: &str) -> Result<Option<String>> {
        if name.contains('#') {
            return Ok(None);
        }
        let Some((value, _)) = self.pool.dsl.open_dataset(name)?.any_property(property)? else { return Ok(None) };
        Ok(Some(printed(property, &value)))
    }
}

/// As `zfs get -p` prints a value.
fn printed(property: &str, value: &PropertyValue) -> String {
    match value {
        PropertyValue::Text(text) => text.clone(),
        PropertyValue::Number(hundredths) if property.ends_with("ratio") => format!("{}.{:02}", hundredths / 100, hundredths % 100),
        PropertyValue::Number(number) => {
            let word = prop_table::find(property).and_then(|row| row.number_to_word(*number));
            word.map_or_else(|| number.to_string(), str::to_owned)
        }
    }
}

struct LibraryFiles {
    files: FileSystem,
    /// The inode number that `stat` shows for the root directory, where it is not its object number.
    root_shown: Option<u64>,
}

fn file_type(stat: &Stat) -> Result<FileType> {
    Ok(match stat.kind() {
        FileKind::Regular => FileType::File,
        FileKind::Directory => FileType::Dir,
        FileKind::SymbolicLink => FileType::Symlink,
        FileKind::Fifo => FileType::Fifo,
        FileKind::Socket => FileType::Socket,
        FileKind::CharacterDevice => FileType::Chr,
        FileKind::BlockDevice => FileType::Blk,
        FileKind::Unknown => bail!("inode {}: mode {:o} has no type", stat.inode, stat.mode),
    })
}

/// The flags of FS_IOC_FSGETXATTR for the ones that are stored.
fn visible_flags(stored: u64) -> u32 {
    let pairs = [
        (znode::FLAG_IMMUTABLE, 0x8),
        (znode::FLAG_APPEND_ONLY, 0x10),
        (znode::FLAG_NO_DUMP, 0x80),
        (znode::FLAG_PROJECT_INHERIT, 0x200),
    ];
    pairs.iter().filter(|(flag, _)| stored & flag != 0).fold(0, |shown, (_, flag)| shown | flag)
}

impl GoldenFiles for LibraryFiles {
    fn root(&self) -> u64 {
        self.files.root()
    }

    fn read_directory(&self, inode: u64) -> Result<Vec<(Vec<u8>, u64)>> {
        let mut entries = Vec::new();
        let mut from = 0;
        // In portions, as a kernel asks.
        loop {
            let mut left = 1000;
            let before = from;
            self.files.read_directory(inode, from, &mut |entry| {
                if left == 0 {
                    return false;
                }
                left -= 1;
                from = entry.next;
                if entry.name != b"." && entry.name != b".." {
                    entries.push((entry.name, entry.inode));
                }
                true
            })?;
            if left > 0 {
                return Ok(entries);
            }
            ensure!(from != before, "the position in directory {inode} does not move on from {from}");
        }
    }

    fn lookup(&self, inode: u64, name: &[u8]) -> Result<u64> {
        let found = self.files.lookup(inode, name)?.inode;
        self.files.forget(found, 1);
        Ok(found)
    }

    fn attributes(&self, inode: u64) -> Result<Attributes> {
        let stat = self.files.getattr(inode)?;
        let device = (((stat.device >> 20) & 0xfff) as u32, (stat.device & 0xf_ffff) as u32);
        Ok(Attributes {
            kind: file_type(&stat)?,
            mode: stat.mode & 0o7777,
            uid: u64::from(stat.uid),
            gid: u64::from(stat.gid),
            size: stat.size,
            links: stat.links,
            inode: self.root_shown.filter(|_| inode == self.files.root()).unwrap_or(stat.inode),
            modified: (stat.modification_time.seconds, stat.modification_time.nanoseconds),
            changed: (stat.change_time.seconds, stat.change_time.nanoseconds),
            allocated: stat.allocated,
            device: Some(device),
            project: Some(stat.project),
            flags: Some(visible_flags(stat.flags)),
        })
    }

    fn read(&self, inode: u64, offset: u64, buffer: &mut [u8]) -> Result<usize> {
        let bytes = self.files.read(inode, offset, buffer.len())?;
        ensure!(bytes.len() <= buffer.len(), "{} bytes read where {} were asked for", bytes.len(), buffer.len());
        buffer[..bytes.len()].copy_from_slice(&bytes);
        Ok(bytes.len())
    }

    fn seek(&self, inode: u64, offset: u64, what: Seek) -> Result<Option<u64>> {
        let what = match what {
            Seek::Data => tarnfs::zpl::Seek::Data,
            Seek::Hole => tarnfs::zpl::Seek::Hole,
        };
        Ok(self.files.seek(inode, offset, what)?)
    }

    fn read_link(&self, inode: u64) -> Result<Vec<u8>> {
        Ok(self.files.readlink(inode)?)
    }

    fn xattrs(&self, inode: u64) -> Result<Vec<(String, Vec<u8>)>> {
        let mut found = Vec::new();
        for name in self.files.listxattr(inode)? {
            let value = self.files.getxattr(inode, &name)?;
            found.push((String::from_utf8_lossy(&name).into_owned(), value));
        }
        Ok(found)
    }
}

struct LibraryVolume {
    objset: Arc<Objset>,
}

/// A volume's objects: its contents, and a ZAP with its size.
const VOLUME_DATA: u64 = 1;
const VOLUME_ZAP: u64 = 2;

impl GoldenVolume for LibraryVolume {
    fn size(&self) -> Result<u64> {
        Ok(engine::zap::Zap::open(&self.objset, VOLUME_ZAP)?.get_u64("size")?)
    }

    fn read(&self, offset: u64, buffer: &mut [u8]) -> Result<usize> {
        self.objset.hold(VOLUME_DATA)?.read(offset, buffer)?;
        Ok(buffer.len())
    }
}
