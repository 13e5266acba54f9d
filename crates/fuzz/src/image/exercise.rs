//! Does with a pool what programs do.
//!
//! Results do not matter here, except that there is one: every error is fine.

use std::sync::Arc;

use disk::DiskRef;
use engine::dsl::Dir;
use engine::tunables::Tunables;
use ondisk::znode::FLAG_NO_DUMP;
use tarnfs::{Credentials, FileSystem, ImportOptions, Pool};
use tarnfs::{RenameMode, Seek, SetAttributes, Stat, WriteMode, XattrMode};

use crate::Input;

/// No more of anything than this is looked at.
const DATASETS_MAX: usize = 40;
const ENTRIES_MAX: usize = 400;
const DEPTH_MAX: usize = 12;
const READ_MAX: usize = 256 << 10;

fn tunables() -> Tunables {
    Tunables {
        cache_bytes_max: 32 << 20,
        dirty_bytes_max: 64 << 20,
        write_workers: 1,
        txg_timeout_ns: u64::MAX / 2,
        ..Tunables::default()
    }
}

/// Imports the pool.
pub fn import(disks: Vec<DiskRef>, read_only: bool) -> Option<Arc<Pool>> {
    let options = ImportOptions { read_only, force: true, tunables: Some(tunables()), ..ImportOptions::default() };
    Pool::import_disks(disks, options).ok()
}

/// Looks at everything.
pub fn look(pool: &Pool) {
    let dsl = &pool.engine().dsl;
    let _ = dsl.history.read(&dsl.meta);
    let _ = pool.engine().uberblock();
    for name in datasets(pool) {
        if let Ok(dataset) = dsl.open_dataset(&name) {
            let _ =
                (dataset.referenced(), dataset.available(), dataset.unique_bytes(), dataset.written(), dataset.user_properties());
            let _ = (
                dataset.snapshots(),
                dataset.origin().is_ok(),
                dataset.number_property("recordsize"),
                dataset.property("mountpoint"),
            );
        }
        if let Ok(files) = pool.file_system(&name) {
            look_at_files(&files);
        }
    }
}

/// The names of the datasets, as far as they can be read.
fn datasets(pool: &Pool) -> Vec<String> {
    let mut names = Vec::new();
    if let Ok(root) = pool.engine().dsl.root_dir() {
        list(pool, &root, &mut names);
    }
    names
}

fn list(pool: &Pool, dir: &Arc<Dir>, names: &mut Vec<String>) {
    let dsl = &pool.engine().dsl;
    let name = dir.full_name();
    if let Ok(head) = dsl.dataset_by_name(&name) {
        names.extend(head.snapshots().unwrap_or_default().iter().map(|(snapshot, _)| format!("{name}@{snapshot}")));
    }
    names.push(name);
    for (_, child) in dsl.children(dir).unwrap_or_default() {
        if names.len() < DATASETS_MAX {
            list(pool, &child, names);
        }
    }
}

fn look_at_files(files: &FileSystem) {
    let _ = files.space();
    let mut left = ENTRIES_MAX;
    look_at_directory(files, files.root(), 0, &mut left);
}

fn entries(files: &FileSystem, directory: u64) -> Vec<Vec<u8>> {
    let mut names = Vec::new();
    let mut from = 0;
    for _ in 0..ENTRIES_MAX {
        let before = names.len();
        let read = files.read_directory(directory, from, &mut |entry| {
            from = entry.next;
            names.push(entry.name);
            names.len() - before < 50
        });
        if read.is_err() || names.len() == before || names.len() > ENTRIES_MAX {
            break;
        }
    }
    names.retain(|name| name != b"." && name != b"..");
    names
}

fn look_at_directory(files: &FileSystem, directory: u64, depth: usize, left: &mut usize) {
    for name in entries(files, directory) {
        if *left == 0 {
            return;
        }
        *left -= 1;
        let Ok(stat) = files.lookup(directory, &name) else { continue };
        look_at_file(files, &stat);
        if depth < DEPTH_MAX {
            look_at_directory(files, stat.inode, depth + 1, left);
        }
        files.forget(stat.inode, 1);
    }
}

fn look_at_file(files: &FileSystem, stat: &Stat) {
    let inode = stat.inode;
    let _ = files.getattr(inode);
    for name in files.listxattr(inode).unwrap_or_default() {
        let _ = files.getxattr(inode, &name);
    }
    let _ = files.getxattr(inode, b"system.posix_acl_access");
    let _ = files.readlink(inode);
    let _ = files.read(inode, 0, READ_MAX);
    let _ = files.read(inode, stat.size.saturating_sub(5000), 10_000);
    let _ = files.read(inode, stat.size / 2, 100);
    for offset in [0, stat.size / 3, stat.size.saturating_sub(1), u64::MAX] {
        let _ = (files.seek(inode, offset, Seek::Data), files.seek(inode, offset, Seek::Hole));
    }
}

/// Changes many things, as `input` says, and writes it.
pub fn change(pool: &Pool, input: &mut Input<'_>) {
    for name in datasets(pool).into_iter().take(6) {
        if let Ok(files) = pool.file_system(&name) {
            let _ = files.drain_delete_queue();
            change_files(&files, input);
            files.release_all();
        }
        let _ = pool.sync();
    }
    if input.u8() & 1 == 0 {
        let name = pool.name();
        let _ = pool.create_file_system(&format!("{name}/new"), Vec::new());
        if let Some(last) = datasets(pool).last() {
            let _ = pool.destroy_file_system(last);
        }
    }
    let _ = pool.sync();
}

fn change_files(files: &FileSystem, input: &mut Input<'_>) {
    let root = Credentials::root();
    let top = files.root();
    let directory = entries(files, top).iter().find_map(|name| {
        let stat = files.lookup(top, name).ok()?;
        matches!(stat.kind(), tarnfs::FileKind::Directory).then_some(stat.inode)
    });
    let directory = directory.unwrap_or(top);
    if let Ok(stat) = files.create(directory, b"new file", 0o644, 0, &root) {
        let _ = files.write(stat.inode, WriteMode::At(0), &[7; 20_000], &root);
        let _ = files.setxattr(stat.inode, b"user.new", &[1; 300], XattrMode::Any);
    }
    let _ = files.mkdir(top, b"new directory", 0o755, &root);
    let _ = files.symlink(top, b"new link", b"target", &root);
    let mut names: Vec<(u64, Vec<u8>)> = entries(files, top).into_iter().map(|name| (top, name)).collect();
    names.extend(entries(files, directory).into_iter().map(|name| (directory, name)));
    for (parent, name) in names.into_iter().take(24) {
        let Ok(stat) = files.lookup(parent, &name) else { continue };
        change_file(files, parent, &name, &stat, input);
        files.forget(stat.inode, 1);
    }
}

fn change_file(files: &FileSystem, parent: u64, name: &[u8], stat: &Stat, input: &mut Input<'_>) {
    let (root, inode) = (Credentials::root(), stat.inode);
    let offset = [0, stat.size / 2, stat.size, 100_000, 1 << 33][input.below(5)];
    match input.u8() % 12 {
        0 => drop(files.unlink(parent, name)),
        1 => drop(files.rmdir(parent, name)),
        2 => drop(files.rename(parent, name, files.root(), b"renamed", RenameMode::Replace)),
        3 => drop(files.rename(parent, name, files.root(), b"new link", RenameMode::Exchange)),
        4 => drop(files.truncate(inode, offset, &root)),
        5 => drop(files.punch_hole(inode, offset / 2, 70_000, &root)),
        6 => drop(files.link(inode, files.root(), b"another name")),
        7 => drop(files.setxattr(inode, b"user.some", &[3; 2000], XattrMode::Any)),
        8 => {
            let some = files.listxattr(inode).unwrap_or_default();
            drop(some.first().map(|name| files.removexattr(inode, name)));
        }
        9 => {
            let set = SetAttributes {
                mode: Some(0o600),
                uid: Some(77),
                gid: Some(78),
                flags: Some((FLAG_NO_DUMP, FLAG_NO_DUMP)),
                ..SetAttributes::default()
            };
            drop(files.setattr(inode, &set, &root));
        }
        10 => drop(files.fsync(inode)),
        _ => drop(files.write(inode, WriteMode::At(offset), &[9; 3000], &root)),
    }
}
