//! Describes what a subject holds in the manifest's terms.
//!
//! # Theory
//! A file is described exactly as the manifest's maker did on the real mount: attributes from `stat`, contents hashed
//! along the data segments, a large directory summed up. A file that cannot be read is described with the error in
//! place of the hash, so that one bad block does not hide the rest of the pool.

use std::collections::{BTreeMap, HashMap, HashSet};

use anyhow::{Context, Result, ensure};
use sha2::{Digest, Sha256};

use super::manifest::{
    BIG_DIRECTORY, BigDirectory, DatasetRecord, FileRecord, FileType, HUGE_FILE, Manifest, PoolRecord, Volume,
};
use super::subject::{DatasetType, GoldenFiles, GoldenPool, GoldenVolume, Seek};

/// Bytes read at once, and the unit in which a volume is summed up.
const CHUNK: usize = 1 << 20;
/// The unit in which a huge file is summed up.
const PAGE: usize = 4096;
/// A subject that shows more than this in one dataset is going round in circles.
const FILES_MAX: usize = 4_000_000;
/// More segments than this in one file, and it is going round in circles.
const SEGMENTS_MAX: usize = 4_000_000;

/// Describes all of a pool.
pub fn describe(pool: &dyn GoldenPool) -> Result<Manifest> {
    let mut datasets = Vec::new();
    for entry in pool.datasets()? {
        let mut record = DatasetRecord {
            name: entry.name.clone(),
            props: BTreeMap::new(),
            kind: entry.kind.name().to_owned(),
            files: None,
            content: None,
            locked: false,
            mount_error: None,
            userspace: None,
            groupspace: None,
            projectspace: None,
            holds: None,
            allow: None,
        };
        match entry.kind {
            DatasetType::FileSystem | DatasetType::Snapshot => {
                let files = pool.open_files(&entry.name).with_context(|| entry.name.clone())?;
                record.files = Some(describe_files(files.as_ref()).with_context(|| entry.name.clone())?);
            }
            DatasetType::Volume => record.content = Some(describe_volume(pool.open_volume(&entry.name)?.as_ref())?),
            DatasetType::Bookmark => {}
        }
        datasets.push(record);
    }
    Ok(Manifest {
        format: 1,
        name: pool.name(),
        zfs: String::new(),
        pool: PoolRecord { name: pool.name(), props: BTreeMap::new(), status: None },
        images: Vec::new(),
        notes: Vec::new(),
        keys: Vec::new(),
        space_before_export: None,
        zdb: String::new(),
        import: String::new(),
        zdb_status: None,
        streams: None,
        datasets,
    })
}

/// Describes every file of a file system, directories before what is in them.
pub(crate) fn describe_files(files: &dyn GoldenFiles) -> Result<Vec<FileRecord>> {
    let mut records = Vec::new();
    let mut seen = HashSet::new();
    let mut waiting = vec![(b".".to_vec(), files.root())];
    while let Some((path, inode)) = waiting.pop() {
        ensure!(records.len() < FILES_MAX, "more than {FILES_MAX} files");
        let mut record = describe_file(files, &path, inode).with_context(|| String::from_utf8_lossy(&path).into_owned())?;
        if record.kind == FileType::Dir {
            ensure!(seen.insert(inode), "directory {} (inode {inode}) is in two places", String::from_utf8_lossy(&path));
            match sorted_entries(files, inode) {
                Ok(entries) if entries.len() > BIG_DIRECTORY => record.big = Some(describe_big(files, &path, &entries)?),
                Ok(entries) => waiting.extend(entries.into_iter().rev().map(|(name, inode)| (join(&path, &name), inode))),
                Err(error) => record.error = Some(errno_name(&error)),
            }
        }
        records.push(record);
    }
    Ok(records)
}

fn sorted_entries(files: &dyn GoldenFiles, inode: u64) -> Result<Vec<(Vec<u8>, u64)>> {
    let mut entries = files.read_directory(inode)?;
    entries.sort();
    for pair in entries.windows(2) {
        ensure!(pair[0].0 != pair[1].0, "name {} twice in directory inode {inode}", String::from_utf8_lossy(&pair[0].0));
    }
    for (name, entry) in &entries {
        let found = files.lookup(inode, name).with_context(|| format!("look up {}", String::from_utf8_lossy(name)))?;
        ensure!(found == *entry, "readdir says inode {entry} for {}, lookup {found}", String::from_utf8_lossy(name));
    }
    Ok(entries)
}

fn join(directory: &[u8], name: &[u8]) -> Vec<u8> {
    if directory == b"." { name.to_vec() } else { [directory, b"/", name].concat() }
}

fn describe_big(files: &dyn GoldenFiles, path: &[u8], entries: &[(Vec<u8>, u64)]) -> Result<BigDirectory> {
    let (mut names, mut all) = (Sha256::new(), Sha256::new());
    let mut hashes: HashMap<u64, String> = HashMap::new();
    let mut sample = Vec::new();
    for (position, (name, inode)) in entries.iter().enumerate() {
        names.update(name);
        names.update(b"\n");
        let file = files.attributes(*inode)?;
        let content = match file.kind {
            FileType::Symlink => files.read_link(*inode)?,
            FileType::File => match hashes.get(inode) {
                Some(hash) => hash.clone().into_bytes(),
                None => {
                    let hash = describe_file(files, name, *inode)?.sha256.unwrap_or_default();
                    hashes.insert(*inode, hash.clone());
                    hash.into_bytes()
                }
            },
            _ => Vec::new(),
        };
        all.update([name.as_slice(), file.kind.name().as_bytes(), file.size.to_string().as_bytes(), &content].join(&0));
        all.update(b"\n");
        if position % (entries.len() / 40) == 0 {
            sample.push(describe_file(files, &join(path, name), *inode)?);
        }
    }
    Ok(BigDirectory {
        entries: entries.len() as u64,
        names_sha256: hex::encode(names.finalize()),
        entries_sha256: hex::encode(all.finalize()),
        sample,
    })
}

/// Describes one file; `path` is only noted.
pub fn describe_file(files: &dyn GoldenFiles, path: &[u8], inode: u64) -> Result<FileRecord> {
    let file = files.attributes(inode)?;
    let (path, path_hex) = text_or_hex(path);
    let mut record = FileRecord {
        path,
        path_hex,
        kind: file.kind,
        mode: format!("{:04o}", file.mode & 0o7777),
        uid: file.uid,
        gid: file.gid,
        size: file.size,
        nlink: file.links,
        ino: file.inode,
        mtime: file.modified,
        ctime: file.changed,
        alloc: file.allocated,
        xattrs: files.xattrs(inode)?.into_iter().map(|(name, value)| (name, hex::encode(value))).collect(),
        target: None,
        target_hex: None,
        rdev: file.device.filter(|_| matches!(file.kind, FileType::Chr | FileType::Blk)),
        projid: None,
        xflags: None,
        data: None,
        sha256: None,
        pages_sha256: None,
        error: None,
        big: None,
    };
    match file.kind {
        FileType::Symlink => (record.target, record.target_hex) = text_or_hex(&files.read_link(inode)?),
        FileType::File | FileType::Dir => {
            record.projid = file.project.filter(|project| *project != 0);
            record.xflags = file.flags.filter(|flags| *flags != 0);
        }
        _ => {}
    }
    if file.kind == FileType::File {
        describe_content(files, inode, file.size, &mut record)?;
    }
    Ok(record)
}

fn describe_content(files: &dyn GoldenFiles, inode: u64, size: u64, record: &mut FileRecord) -> Result<()> {
    let segments = segments(files, inode, size)?;
    let digest =
        if size > HUGE_FILE { pages_digest(files, inode, size, &segments) } else { digest(files, inode, size, &segments) };
    match digest {
        Ok(hash) if size > HUGE_FILE => record.pages_sha256 = Some(hash),
        Ok(hash) => record.sha256 = Some(hash),
        Err(error) => record.error = Some(errno_name(&error)),
    }
    if size != 0 && segments != [(0, size)] {
        record.data = Some(segments);
    }
    Ok(())
}

fn text_or_hex(bytes: &[u8]) -> (Option<String>, Option<String>) {
    match std::str::from_utf8(bytes) {
        Ok(text) => (Some(text.to_owned()), None),
        Err(_) => (None, Some(hex::encode(bytes))),
    }
}

/// What the manifest says in place of a hash. The whole chain of the error stays readable in the report.
fn errno_name(error: &anyhow::Error) -> String {
    let io = error.chain().find_map(|cause| cause.downcast_ref::<std::io::Error>()).and_then(std::io::Error::raw_os_error);
    let engine = error.chain().find_map(|cause| cause.downcast_ref::<engine::error::Error>()).map(engine::error::Error::kind);
    use engine::error::ErrorKind;
    match (io, engine) {
        (Some(code), _) if code == rustix::io::Errno::IO.raw_os_error() => "EIO".to_owned(),
        (_, Some(ErrorKind::Io | ErrorKind::Checksum | ErrorKind::Corrupt)) => "EIO".to_owned(),
        _ => format!("{error:#}"),
    }
}

fn segments(files: &dyn GoldenFiles, inode: u64, size: u64) -> Result<Vec<(u64, u64)>> {
    let mut segments = Vec::new();
    let mut offset = 0;
    while offset < size {
        ensure!(segments.len() < SEGMENTS_MAX, "more than {SEGMENTS_MAX} segments");
        let Some(data) = files.seek(inode, offset, Seek::Data)? else { break };
        ensure!(data >= offset && data < size, "data after {offset} is at {data} of {size}");
        let hole = files.seek(inode, data, Seek::Hole)?.with_context(|| format!("no hole after {data}, not even the end"))?;
        ensure!(hole > data && hole <= size, "the hole after {data} is at {hole} of {size}");
        segments.push((data, hole - data));
        offset = hole;
    }
    Ok(segments)
}

fn read_exactly(files: &dyn GoldenFiles, inode: u64, offset: u64, buffer: &mut [u8]) -> Result<()> {
    let read = files.read(inode, offset, buffer)?;
    ensure!(read == buffer.len(), "read {read} bytes of {} at {offset}", buffer.len());
    Ok(())
}

fn digest(files: &dyn GoldenFiles, inode: u64, size: u64, segments: &[(u64, u64)]) -> Result<String> {
    let mut hash = Sha256::new();
    let mut buffer = vec![0; CHUNK];
    let zeros = vec![0; CHUNK];
    let mut at = 0;
    for &(start, length) in segments.iter().chain(&[(size, 0)]) {
        while at < start {
            let step = (start - at).min(CHUNK as u64);
            hash.update(&zeros[..step as usize]);
            at += step;
        }
        while at < start + length {
            let step = (start + length - at).min(CHUNK as u64) as usize;
            read_exactly(files, inode, at, &mut buffer[..step])?;
            hash.update(&buffer[..step]);
            at += step as u64;
        }
    }
    // What lies in the holes must read as zeros too; one look at each end tells most mistakes.
    check_holes(files, inode, size, segments)?;
    Ok(hex::encode(hash.finalize()))
}

fn check_holes(files: &dyn GoldenFiles, inode: u64, size: u64, segments: &[(u64, u64)]) -> Result<()> {
    let mut page = vec![0; PAGE];
    let mut at = 0;
    for &(start, length) in segments.iter().chain(&[(size, 0)]) {
        if start > at {
            let step = (start - at).min(PAGE as u64) as usize;
            for offset in [at, start - step as u64] {
                read_exactly(files, inode, offset, &mut page[..step])?;
                ensure!(page[..step].iter().all(|byte| *byte == 0), "the hole at {offset} does not read as zeros");
            }
        }
        at = start + length;
    }
    Ok(())
}

fn pages_digest(files: &dyn GoldenFiles, inode: u64, size: u64, segments: &[(u64, u64)]) -> Result<String> {
    let mut hash = Sha256::new();
    let mut buffer = vec![0; CHUNK];
    let mut at = 0;
    for &(start, length) in segments {
        at = at.max(start - start % PAGE as u64);
        let end = (start + length).min(size);
        while at < end {
            let step = (size - at).min(CHUNK as u64) as usize;
            read_exactly(files, inode, at, &mut buffer[..step])?;
            for (number, page) in buffer[..step].chunks(PAGE).enumerate() {
                if page.iter().any(|byte| *byte != 0) {
                    hash.update((at / PAGE as u64 + number as u64).to_le_bytes());
                    hash.update(page);
                }
            }
            at += CHUNK as u64;
        }
    }
    check_holes(files, inode, size, segments)?;
    Ok(hex::encode(hash.finalize()))
}

/// Sums up a volume.
pub(crate) fn describe_volume(volume: &dyn GoldenVolume) -> Result<Volume> {
    let size = volume.size()?;
    let mut whole = Sha256::new();
    let mut nonzero_mib = Vec::new();
    let mut buffer = vec![0; CHUNK];
    let mut at = 0;
    while at < size {
        let step = (size - at).min(CHUNK as u64) as usize;
        let read = volume.read(at, &mut buffer[..step])?;
        ensure!(read == step, "read {read} bytes of {step} at {at}");
        whole.update(&buffer[..step]);
        if buffer[..step].iter().any(|byte| *byte != 0) {
            nonzero_mib.push((at, step as u64, hex::encode(Sha256::digest(&buffer[..step]))));
        }
        at += step as u64;
    }
    Ok(Volume { size, sha256: hex::encode(whole.finalize()), nonzero_mib })
}
