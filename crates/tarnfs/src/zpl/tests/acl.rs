//! Access control lists of POSIX, and what they do to modes.

use std::sync::Arc;

use disk::{DiskRef, MemDisk};
use engine::dmu::{DnodeSpec, ObjsetSettings, OpenTx};
use engine::dsl::{PropertyChange, PropertyValue};
use engine::error::ErrorKind;
use engine::host::RealHost;
use engine::pool::import::discover;
use engine::tunables::Tunables;
use engine::vdev::{NewLeaf, NewTop};
use ondisk::object_type::ObjectType;
use ondisk::sa::Attribute;

use super::rig::Rig;
use crate::{CreateOptions, ImportOptions, Pool};
use crate::zpl::names::create::NewNode;
use crate::zpl::{AclKind, AclType, Credentials, FileSystem, InodeNumber, MountOptions, NewFileSystem, SetAttributes};

const NOBODY: u32 = u32::MAX;

/// A list in the form in which Linux passes it.
pub(super) fn list(entries: &[(u16, u16, u32)]) -> Vec<u8> {
    let mut bytes = 2u32.to_le_bytes().to_vec();
    for (tag, permissions, id) in entries {
        bytes.extend_from_slice(&tag.to_le_bytes());
        bytes.extend_from_slice(&permissions.to_le_bytes());
        bytes.extend_from_slice(&id.to_le_bytes());
    }
    bytes
}

/// `u::rwx,u:1000:rw,g::rX,m::MASK,o::-`
pub(super) fn with_joe(mask: u16) -> Vec<u8> {
    list(&[(1, 7, NOBODY), (2, 6, 1000), (4, 5, NOBODY), (0x10, mask, NOBODY), (0x20, 0, NOBODY)])
}

fn new(in_attributes: bool) -> (Rig, FileSystem) {
    let (rig, fs) = Rig::new(&NewFileSystem::default(), ObjsetSettings::dataset_default(true));
    fs.set_options(MountOptions { acl_type: AclType::Posix, xattr_in_attributes: in_attributes, ..MountOptions::default() });
    (rig, fs)
}

fn mode(fs: &FileSystem, inode: InodeNumber) -> u32 {
    fs.getattr(inode).unwrap().mode & 0o7777
}

fn access(fs: &FileSystem, inode: InodeNumber) -> Option<Vec<u8>> {
    fs.getxattr(inode, AclKind::Access.name()).ok()
}

fn chmod(fs: &FileSystem, inode: InodeNumber, mode: u32) {
    fs.setattr(inode, &SetAttributes { mode: Some(mode), ..SetAttributes::default() }, &Credentials::root()).unwrap();
}

#[test]
fn list_and_mode_keep_in_step() {
    for in_attributes in [true, false] {
        let (rig, fs) = new(in_attributes);
        let inode = fs.create(fs.root(), b"f", 0o100_644, 0, &Credentials { umask: 0o027, ..Credentials::root() }).unwrap().inode;
        assert_eq!(mode(&fs, inode), 0o640, "no default list: the umask counts");
        fs.set_posix_acl(inode, AclKind::Access, Some(&with_joe(6)), false).unwrap();
        assert_eq!((mode(&fs, inode), access(&fs, inode)), (0o760, Some(with_joe(6))));
        chmod(&fs, inode, 0o2740);
        assert_eq!((mode(&fs, inode), access(&fs, inode)), (0o2740, Some(with_joe(4))));
        fs.set_posix_acl(inode, AclKind::Access, Some(&with_joe(7)), true).unwrap();
        assert_eq!(mode(&fs, inode), 0o770, "the set-group-id bit goes when the kernel says so");
        // A list that the mode says as well is not stored.
        fs.setxattr(inode, AclKind::Access.name(), &list(&[(1, 6, NOBODY), (4, 4, NOBODY), (0x20, 4, NOBODY)]), crate::XattrMode::Any).unwrap();
        assert_eq!((mode(&fs, inode), access(&fs, inode)), (0o644, None));
        fs.removexattr(inode, AclKind::Access.name()).unwrap();
        assert_eq!(fs.setxattr(inode, AclKind::Access.name(), b"nonsense", crate::XattrMode::Any).unwrap_err().kind(), ErrorKind::NotSupported);
        rig.sync(fs.objset());
        rig.check();
    }
}

#[test]
fn a_new_file_begins_with_the_default_list() {
    for in_attributes in [true, false] {
        let (rig, fs) = new(in_attributes);
        let who = Credentials { umask: 0o077, ..Credentials::root() };
        let directory = fs.mkdir(fs.root(), b"d", 0o755, &who).unwrap().inode;
        fs.set_posix_acl(directory, AclKind::Default, Some(&with_joe(7)), false).unwrap();
        assert_eq!(mode(&fs, directory), 0o700, "a default list does nothing to the directory itself");
        let file = fs.create(directory, b"f", 0o100_664, 0, &who).unwrap();
        // The umask does not count; others get nothing, because the list gives them nothing.
        assert_eq!(file.mode & 0o7777, 0o660);
        let expected = list(&[(1, 6, NOBODY), (2, 6, 1000), (4, 5, NOBODY), (0x10, 6, NOBODY), (0x20, 0, NOBODY)]);
        assert_eq!(access(&fs, file.inode), Some(expected.clone()));
        let below = fs.mkdir(directory, b"below", 0o777, &who).unwrap();
        assert_eq!((below.mode & 0o7777, access(&fs, below.inode)), (0o770, Some(with_joe(7))));
        assert_eq!(fs.getxattr(below.inode, AclKind::Default.name()).unwrap(), with_joe(7));
        assert_eq!(fs.symlink(directory, b"l", b"f", &who).unwrap().mode & 0o777, 0o777);
        let unnamed = fs.create_unnamed(directory, 0o664, &who).unwrap().inode;
        assert_eq!(access(&fs, unnamed), Some(expected.clone()));
        assert!(fs.set_posix_acl(file.inode, AclKind::Default, Some(&with_joe(7)), false).is_err());
        fs.forget(unnamed, 1);
        rig.sync(fs.objset());
        rig.check();
        assert_eq!(rig.reopen().getxattr(file.inode, AclKind::Access.name()).unwrap(), expected);
    }
}

#[test]
fn without_the_property_lists_are_kept_and_not_used() {
    let (_rig, fs) = new(true);
    let directory = fs.mkdir(fs.root(), b"d", 0o755, &Credentials::root()).unwrap().inode;
    fs.set_posix_acl(directory, AclKind::Default, Some(&with_joe(7)), false).unwrap();
    fs.set_options(MountOptions::default());
    assert_eq!(fs.set_posix_acl(directory, AclKind::Default, None, false).unwrap_err().kind(), ErrorKind::NotSupported);
    let file = fs.create(directory, b"f", 0o100_666, 0, &Credentials { umask: 0o022, ..Credentials::root() }).unwrap();
    assert_eq!((file.mode & 0o7777, access(&fs, file.inode)), (0o644, None));
    assert_eq!(fs.getxattr(directory, AclKind::Default.name()).unwrap(), with_joe(7));
}

/// With a default list of four thousand users nothing could be made in a directory any more ("argument list too long"): the two lists that a new directory
/// gets were to stand among its attributes, where there is room for one. What has no room there goes into a file of its own, as other extended
/// attributes do.
#[test]
fn default_lists_of_thousands_are_inherited() {
    for users in [3000, 4000, 4090, 8187] {
        let (rig, fs) = new(true);
        let users = (0..users).map(|user| (2, 6, user));
        let entries: Vec<_> = [(1, 7, NOBODY)].into_iter().chain(users).chain([(4, 5, NOBODY), (0x10, 7, NOBODY), (0x20, 0, NOBODY)]).collect();
        let default = list(&entries);
        fs.set_posix_acl(fs.root(), AclKind::Default, Some(&default), false).unwrap();
        let root = Credentials::root();
        let directory = fs.mkdir(fs.root(), b"d", 0o777, &root).unwrap().inode;
        let file = fs.create(fs.root(), b"f", 0o100_777, 0, &root).unwrap().inode;
        let unnamed = fs.create_unnamed(fs.root(), 0o777, &root).unwrap().inode;
        let below = fs.create(directory, b"f", 0o100_777, 0, &root).unwrap().inode;
        let check = |fs: &FileSystem, inodes: &[u64]| {
            assert!(fs.getxattr(directory, AclKind::Default.name()).unwrap() == default, "{} entries", entries.len());
            assert!(inodes.iter().all(|inode| access(fs, *inode).as_deref() == Some(&default[..])), "{} entries", entries.len());
        };
        check(&fs, &[directory, file, unnamed, below]);
        fs.forget(unnamed, 1);
        rig.sync(fs.objset());
        rig.check();
        check(&rig.reopen(), &[directory, file, below]);
    }
}

/// A long list of a file of an old file system is an object of its own, which a chmod frees. The number may be that of another file then, whose record is among the
/// names while that of the chmod is not: so no `fsync` returns before the chmod is on disk.
#[test]
fn the_object_of_a_long_list_is_free_on_disk_before_anything_is_logged() {
    let never = || Some(Tunables { txg_timeout_ns: 3_600_000_000_000, ..Tunables::default() });
    let disk = Arc::new(MemDisk::new("old", 128 << 20));
    let top = NewTop { leaves: vec![NewLeaf { disk: disk.clone(), path: "/old".into(), whole_disk: false }], ashift: Some(12), ..NewTop::default() };
    let version = ("version".to_owned(), PropertyChange::Set(PropertyValue::Number(4)));
    let options = CreateOptions { properties: vec![version], tunables: never(), ..CreateOptions::default() };
    let pool = Pool::create_on("tank", vec![top], options, RealHost::shared()).unwrap();
    let fs = pool.file_system("tank").unwrap();
    let [old, other] = [b"old".as_slice(), b"other"].map(|name| fs.create(fs.root(), name, 0o100_644, 0, &Credentials::root()).unwrap().inode);
    // The commit that begins a log waits for the group in which it begins.
    fs.fsync(other).unwrap();
    {
        let inode = fs.inode(old).unwrap();
        let tx = OpenTx::assign(&fs.membership, 1 << 20).unwrap();
        let list = fs.objset().allocate(&tx, &DnodeSpec::new(ObjectType::ACL, 512)).unwrap();
        let mut edit = inode.edit(&tx);
        let mut value = edit.attributes.get(Attribute::ZnodeAcl).expect("it is an old znode").to_vec();
        value[..8].copy_from_slice(&list.object().to_le_bytes());
        edit.set(&[(Attribute::ZnodeAcl, &value)]).unwrap();
    }
    pool.sync().unwrap();
    chmod(&fs, old, 0o600);
    fs.fsync(other).unwrap();
    let crashed: DiskRef = Arc::new(disk.snapshot());
    drop(fs);
    pool.abandon();
    let options = ImportOptions { force: true, tunables: never(), ..ImportOptions::default() };
    let (pool, _) = Pool::import_on(discover(vec![crashed]).pop().unwrap(), options, RealHost::shared()).unwrap();
    let fs = pool.file_system("tank").unwrap();
    assert_eq!(mode(&fs, old), 0o600);
    drop(fs);
    pool.export().unwrap();
}

/// Where the property `xattr` was changed while a file was made, it could be left without its list, and its group had what the list's mask allows.
#[test]
fn a_new_file_has_its_list_whatever_becomes_of_xattr_meanwhile() {
    for in_attributes in [true, false] {
        let (_rig, fs) = new(in_attributes);
        fs.set_posix_acl(fs.root(), AclKind::Default, Some(&with_joe(7)), false).unwrap();
        let directory = fs.inode(fs.root()).unwrap();
        let (mode, lists) = fs.begin_lists(&directory, 0o100_740, &Credentials::root()).unwrap();
        let new = NewNode::inherit(&fs.files, &directory, mode, 0, &Credentials::root()).unwrap();
        let inode = fs.make_entry(&directory, b"f", &new, None, &lists).unwrap();
        fs.set_options(MountOptions { xattr_in_attributes: !in_attributes, ..fs.options() });
        fs.put_new_lists_aside(&inode, &lists).unwrap();
        assert_eq!(access(&fs, inode.object), Some(with_joe(4)));
    }
}
