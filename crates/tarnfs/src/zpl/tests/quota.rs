//! Quotas on a real pool, since it is the pool that counts.

use std::path::PathBuf;
use std::sync::Arc;

use super::acl;
use crate::zpl::{AclKind, AclType, CloneRange, InodeNumber, MountOptions, OwnerKind, QuotaOf, SetAttributes, WriteMode, space_used_by};
use crate::{CreateOptions, Credentials, Error, ErrorKind, FileSystem, Pool, VdevPaths};
use engine::dsl::{PropertyChange, PropertyValue};
use ondisk::znode;

const MIB: u64 = 1 << 20;
const JOE: Credentials = user(1000);
const JIM: Credentials = user(2000);

const fn user(uid: u32) -> Credentials {
    Credentials { uid, gid: 100, groups: Vec::new(), umask: 0 }
}

struct Rig {
    pool: Arc<Pool>,
    fs: Arc<FileSystem>,
    _directory: tempfile::TempDir,
}

impl Rig {
    fn new() -> Rig {
        let directory = tempfile::tempdir().unwrap();
        let image: PathBuf = directory.path().join("image");
        std::fs::File::create(&image).unwrap().set_len(256 * MIB).unwrap();
        let pool = Pool::create("quotas", &[VdevPaths { paths: vec![image], ..VdevPaths::default() }], CreateOptions::default()).unwrap();
        let fs = pool.file_system("quotas").unwrap();
        Rig { pool, fs, _directory: directory }
    }

    fn sync(&self) {
        self.pool.sync().unwrap();
    }

    fn file(&self, directory: InodeNumber, name: &str, who: &Credentials) -> Result<InodeNumber, Error> {
        self.fs.create(directory, name.as_bytes(), 0o100_644, 0, who).map(|stat| stat.inode)
    }

    /// Writes bytes that do not compress.
    fn fill(&self, inode: InodeNumber, bytes: u64) -> Result<(), Error> {
        let mut state = inode | 1;
        let data: Vec<u8> = (0..bytes / 8)
            .flat_map(|_| {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                (state ^ state >> 31).to_le_bytes()
            })
            .collect();
        self.fs.write(inode, WriteMode::At(0), &data, &Credentials::root()).map(drop)
    }

    fn used(&self, kind: OwnerKind, of: QuotaOf, id: u64) -> u64 {
        space_used_by(self.fs.objset(), kind, of, id).unwrap()
    }
}

fn refused<T: std::fmt::Debug>(result: Result<T, Error>) {
    let error = result.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Quota, "{error}");
}

#[test]
fn who_has_reached_a_quota_writes_no_more() {
    let rig = Rig::new();
    let root = rig.fs.root();
    rig.fs.set_quota(OwnerKind::User, QuotaOf::Bytes, 1000, 2 * MIB).unwrap();
    let (joes, jims) = (rig.file(root, "joe", &JOE).unwrap(), rig.file(root, "jim", &JIM).unwrap());
    // What is not on disk yet is not known: as in OpenZFS, one gets beyond the quota, but not far.
    rig.fill(joes, 3 * MIB).unwrap();
    rig.sync();
    let used = rig.used(OwnerKind::User, QuotaOf::Bytes, 1000);
    assert!((3 * MIB..4 * MIB).contains(&used), "{used}");
    assert_eq!(used, rig.fs.getattr(joes).unwrap().allocated);
    refused(rig.fill(joes, 8));
    refused(rig.file(root, "more", &JOE));
    refused(rig.fs.mkdir(root, b"more", 0o755, &JOE));
    refused(rig.fs.setattr(jims, &SetAttributes { uid: Some(1000), ..SetAttributes::default() }, &Credentials::root()));
    rig.fill(jims, MIB).unwrap();
    // Nothing keeps him from making room.
    rig.fs.truncate(joes, 0, &JOE).unwrap();
    rig.sync();
    rig.fill(joes, MIB).unwrap();
    rig.fs.set_quota(OwnerKind::User, QuotaOf::Bytes, 1000, 0).unwrap();
    rig.sync();
    rig.fill(joes, 5 * MIB).unwrap();
}

/// The mode was that of a list which could not be stored then: the group had what the list's mask allowed to one user.
#[test]
fn a_list_that_cannot_be_stored_changes_no_mode() {
    let rig = Rig::new();
    rig.fs.set_options(MountOptions { acl_type: AclType::Posix, xattr_in_attributes: false, ..rig.fs.options() });
    let joes = rig.file(rig.fs.root(), "joe", &JOE).unwrap();
    rig.fs.set_quota(OwnerKind::User, QuotaOf::Objects, 1000, 1).unwrap();
    rig.sync();
    refused(rig.fs.set_posix_acl(joes, AclKind::Access, Some(&acl::with_joe(7)), false));
    assert_eq!(rig.fs.getattr(joes).unwrap().mode & 0o7777, 0o644);
    assert_eq!(rig.fs.getxattr_if_any(joes, AclKind::Access.name()).unwrap(), None);
    // One that the mode says as well is not stored.
    let plain = acl::list(&[(1, 6, u32::MAX), (4, 0, u32::MAX), (0x20, 0, u32::MAX)]);
    rig.fs.set_posix_acl(joes, AclKind::Access, Some(&plain), false).unwrap();
    assert_eq!(rig.fs.getattr(joes).unwrap().mode & 0o7777, 0o600);
}

/// A file whose list could not be stored was there all the same, and its group had what the list's mask allows. In which step the room ends depends on the
/// quota: so there are several.
#[test]
fn a_file_that_cannot_get_its_list_is_not_made() {
    const NOBODY: u32 = u32::MAX;
    let users = (0..8000).map(|user| (2, 6, user));
    let entries: Vec<_> = [(1, 7, NOBODY)].into_iter().chain(users).chain([(4, 5, NOBODY), (0x10, 7, NOBODY), (0x20, 0, NOBODY)]).collect();
    let default = acl::list(&entries);
    let mut rig = Rig::new();
    for round in 0..8_u64 {
        let name = format!("quotas/{round}");
        let quota = PropertyValue::Number(2 * MIB + ((round * 24) << 10));
        rig.pool.create_file_system(&name, vec![("quota".to_owned(), PropertyChange::Set(quota))]).unwrap();
        rig.fs = rig.pool.file_system(&name).unwrap();
        rig.fs.set_options(MountOptions { acl_type: AclType::Posix, ..rig.fs.options() });
        let root = rig.fs.root();
        rig.fs.set_posix_acl(root, AclKind::Default, Some(&default), false).unwrap();
        let made = (0..1000).take_while(|number| rig.file(root, &format!("{number}"), &JOE).is_ok()).count();
        assert!((1..1000).contains(&made), "{name}: {made}");
        assert_eq!(rig.fs.lookup(root, format!("{made}").as_bytes()).unwrap_err().kind(), ErrorKind::NotFound, "{name}");
        for number in 0..made {
            let file = rig.fs.lookup(root, format!("{number}").as_bytes()).unwrap().inode;
            assert!(rig.fs.getxattr(file, AclKind::Access.name()).unwrap().len() > 60_000, "{name}: {number}");
        }
    }
}

/// A clone of many blocks asked once, and what it took was not known before it was on disk.
#[test]
fn clones_do_not_go_around_a_quota() {
    let whole = Rig::new();
    let small = ("recordsize".to_owned(), PropertyChange::Set(PropertyValue::Number(4096)));
    whole.pool.create_file_system("quotas/small", vec![small]).unwrap();
    let rig = Rig { fs: whole.pool.file_system("quotas/small").unwrap(), ..whole };
    let root = rig.fs.root();
    let source = rig.file(root, "source", &Credentials::root()).unwrap();
    rig.fill(source, 16 * MIB).unwrap();
    rig.sync();
    rig.fs.set_quota(OwnerKind::User, QuotaOf::Bytes, 1000, 2 * MIB).unwrap();
    let clone = |target, from, who: &Credentials| rig.fs.clone_range(&rig.fs, &CloneRange { source, from, target, to: from, length: 16 * MIB - from }, who);
    let (jims, joes) = (rig.file(root, "jim", &JIM).unwrap(), rig.file(root, "joe", &JOE).unwrap());
    assert_eq!(clone(jims, 0, &JIM).unwrap(), 16 * MIB);
    let done = clone(joes, 0, &JOE).unwrap();
    assert!(done < 8 * MIB, "{done}");
    refused(clone(joes, done, &JOE));
    rig.sync();
    let used = rig.used(OwnerKind::User, QuotaOf::Bytes, 1000);
    assert!((2 * MIB..8 * MIB).contains(&used), "{used}");
}

/// As in OpenZFS: a new file system begins with what its parent has then, default quotas too, and goes its own way afterwards.
#[test]
fn a_child_begins_with_its_parents_default_quotas() {
    let rig = Rig::new();
    let number = |value| PropertyChange::Set(PropertyValue::Number(value));
    let given = vec![("utf8only".to_owned(), number(1)), ("defaultuserquota".to_owned(), number(MIB))];
    rig.pool.create_file_system("quotas/parent", given).unwrap();
    rig.pool.create_file_system("quotas/parent/child", Vec::new()).unwrap();
    let value = |dataset: &str, name: &str| {
        let dataset = rig.pool.engine().dsl.open_dataset(dataset).unwrap();
        dataset.any_property(name).unwrap().unwrap().0.number()
    };
    assert_eq!((value("quotas/parent", "utf8only"), value("quotas/parent", "defaultuserquota")), (1, MIB));
    assert_eq!((value("quotas/parent/child", "utf8only"), value("quotas/parent/child", "defaultuserquota")), (1, MIB));
    let parent = rig.pool.file_system("quotas/parent").unwrap();
    parent.set_default_quota(OwnerKind::User, QuotaOf::Bytes, 0).unwrap();
    assert_eq!(value("quotas/parent/child", "defaultuserquota"), MIB);
}

#[test]
fn objects_and_groups_are_limited_too_and_there_are_defaults() {
    let rig = Rig::new();
    let root = rig.fs.root();
    rig.fs.set_quota(OwnerKind::User, QuotaOf::Objects, 1000, 3).unwrap();
    for name in ["a", "b", "c"] {
        rig.file(root, name, &JOE).unwrap();
    }
    rig.sync();
    assert_eq!(rig.used(OwnerKind::User, QuotaOf::Objects, 1000), 3);
    refused(rig.file(root, "d", &JOE));
    let his = rig.file(root, "jims", &JIM).unwrap();
    // The number of files keeps nobody from writing into those that there are.
    rig.fill(rig.fs.lookup(root, b"a").unwrap().inode, MIB).unwrap();
    rig.sync();
    rig.fs.set_default_quota(OwnerKind::Group, QuotaOf::Bytes, MIB).unwrap();
    refused(rig.fill(his, MIB));
    rig.fs.set_quota(OwnerKind::Group, QuotaOf::Bytes, 100, 10 * MIB).unwrap();
    rig.fill(his, MIB).unwrap();
    // All of it is on disk.
    rig.sync();
    let again = FileSystem::open(rig.fs.objset().clone(), rig.fs.options(), || (0, 0)).unwrap();
    assert_eq!(again.quota_of(OwnerKind::Group, QuotaOf::Bytes, 100).unwrap(), 10 * MIB);
    assert_eq!(again.quota_of(OwnerKind::Group, QuotaOf::Bytes, 101).unwrap(), MIB);
    assert_eq!(again.quota_of(OwnerKind::User, QuotaOf::Objects, 1000).unwrap(), 3);
    again.set_default_quota(OwnerKind::Group, QuotaOf::Bytes, 0).unwrap();
    assert_eq!(again.quota_of(OwnerKind::Group, QuotaOf::Bytes, 101).unwrap(), 0);
}

#[test]
fn a_project_is_inherited_and_has_its_own_room() {
    let rig = Rig::new();
    let root = rig.fs.root();
    let directory = rig.fs.mkdir(root, b"project", 0o755, &Credentials::root()).unwrap().inode;
    let mark = SetAttributes { project: Some(7), flags: Some((znode::FLAG_PROJECT_INHERIT, 0)), ..SetAttributes::default() };
    rig.fs.setattr(directory, &mark, &Credentials::root()).unwrap();
    rig.fs.set_quota(OwnerKind::Project, QuotaOf::Bytes, 7, 2 * MIB).unwrap();
    rig.fs.set_quota(OwnerKind::Project, QuotaOf::Objects, 7, 5).unwrap();
    let below = rig.fs.mkdir(directory, b"below", 0o755, &JOE).unwrap();
    assert_eq!((below.project, below.flags & znode::FLAG_PROJECT_INHERIT), (7, znode::FLAG_PROJECT_INHERIT));
    let file = rig.file(below.inode, "file", &JOE).unwrap();
    rig.fill(file, MIB).unwrap();
    rig.sync();
    let used = rig.used(OwnerKind::Project, QuotaOf::Bytes, 7);
    let space = rig.fs.space_at(below.inode).unwrap();
    assert_eq!((space.available, space.referenced), (2 * MIB - used, used));
    assert_eq!((space.objects, space.objects_available), (3, 2));
    assert!(rig.fs.space_at(root).unwrap().available > 10 * MIB);
    rig.fill(file, 3 * MIB).unwrap();
    rig.sync();
    refused(rig.fill(file, 8));
    refused(rig.file(below.inode, "another", &JIM));
    assert_eq!(rig.fs.space_at(directory).unwrap().available, 0);
    // What belongs to another project stays out, unless it changes over, for which there is no room.
    let outside = rig.file(root, "outside", &JIM).unwrap();
    let rename = || rig.fs.rename(root, b"outside", directory, b"inside", crate::RenameMode::Replace);
    assert_eq!(rename().unwrap_err().kind(), ErrorKind::CrossDevice);
    assert_eq!(rig.fs.link(outside, directory, b"inside").unwrap_err().kind(), ErrorKind::CrossDevice);
    let change = SetAttributes { project: Some(7), ..SetAttributes::default() };
    refused(rig.fs.setattr(outside, &change, &Credentials::root()));
    rig.fs.truncate(file, 0, &JOE).unwrap();
    rig.sync();
    rig.fs.setattr(outside, &change, &Credentials::root()).unwrap();
    rename().unwrap();
    rig.sync();
    assert_eq!(rig.used(OwnerKind::Project, QuotaOf::Objects, 7), 4);
}

/// It asked for the quotas of users and groups only.
#[test]
fn a_transaction_asks_for_the_quota_of_a_project() {
    let rig = Rig::new();
    let directory = rig.fs.mkdir(rig.fs.root(), b"project", 0o755, &Credentials::root()).unwrap().inode;
    let mark = SetAttributes { project: Some(7), flags: Some((znode::FLAG_PROJECT_INHERIT, 0)), ..SetAttributes::default() };
    rig.fs.setattr(directory, &mark, &Credentials::root()).unwrap();
    rig.fs.set_quota(OwnerKind::Project, QuotaOf::Objects, 7, 1).unwrap();
    rig.sync();
    refused(rig.file(directory, "file", &JOE));
    refused(rig.fs.transaction(crate::Durability::Soon, |tx| tx.create(directory, b"file", 0o100_644, 0, &JOE).map(drop)));
}

/// What was let once is done again, whatever is known of use by now: else the replay ended there, and all that came later was lost.
#[test]
fn a_log_asks_for_no_quota() {
    use engine::zil::Replay;
    use ondisk::zil::{Record, SetAttrRecord};
    use zerocopy::FromZeros;
    let rig = Rig::new();
    let root = rig.fs.root();
    let (joes, roots) = (rig.file(root, "joe", &JOE).unwrap(), rig.file(root, "root", &Credentials::root()).unwrap());
    rig.fill(joes, MIB).unwrap();
    rig.sync();
    rig.fs.set_quota(OwnerKind::User, QuotaOf::Bytes, 1000, MIB).unwrap();
    refused(rig.fs.setattr(roots, &SetAttributes { uid: Some(1000), ..SetAttributes::default() }, &Credentials::root()));
    let mut record = SetAttrRecord::new_zeroed();
    (record.object, record.mask, record.uid) = (roots.into(), (1 << 1).into(), 1000.into());
    crate::zpl::FileReplay(&rig.fs).replay(Record::SetAttr(record, &[]), None).unwrap();
    assert_eq!(rig.fs.getattr(roots).unwrap().uid, 1000);
}
