//! Which callers may send which requests: the table of those that the kernel passes on unchecked, or not fully checked.
//!
//! # Theory
//! The kernel checks modes, owners and access control lists itself (`default_permissions`): a caller that names a file,
//! opens, reads or writes it has passed. Some requests need no more than an open file, or nothing at all; for these,
//! the table says which callers pass. The kernel does not know marks (`chattr +i`, `+a`): the library checks them at
//! every change, for every caller. It leaves to us the set-id bits that a change takes away: see `files::writer`.
//!
//! A request that is in no row is refused.

use fuse::{Context, Errno, Result};
use rustix::process::geteuid;
use tarnfs::AclKind;
use tarnfs::control::Caller;

use super::caller::{CAP_SYS_ADMIN, Rights};
use super::flags;

/// Something that can be asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Request {
    /// An `ioctl` of this number.
    Control(u32),
    ReadXattr(Namespace),
    ChangeXattr(Namespace),
    /// To learn that there is one.
    NameXattr(Namespace),
    Fallocate,
    Seek,
    CopyRange,
    /// Anything that would change `.zfs` and what is in it.
    ChangeControlDirectory,
    /// To take, rename or destroy a snapshot through `.zfs/snapshot`: the pool decides for those who are not the superuser.
    ChangeSnapshots,
}

/// Where a name of an extended attribute belongs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Namespace {
    User,
    Trusted,
    Security,
    /// Access control lists.
    Lists,
    /// Others of the system's.
    System,
    /// Names without a namespace, which Linux does not have. Stored as they are they would come back as users'
    /// attributes: that is how other systems store these.
    None,
}

impl Namespace {
    pub(super) fn of(name: &[u8]) -> Namespace {
        let begins = |prefix: &[u8]| name.starts_with(prefix);
        match () {
            () if AclKind::of_name(name).is_some() => Namespace::Lists,
            () if begins(b"user.") => Namespace::User,
            () if begins(b"trusted.") => Namespace::Trusted,
            () if begins(b"security.") => Namespace::Security,
            () if begins(b"system.") => Namespace::System,
            () => Namespace::None,
        }
    }
}

/// The callers that pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Who {
    /// All callers that the kernel lets pass.
    Anybody,
    /// Callers with this capability.
    Capable(u32),
    Nobody(Errno),
}

/// `.zfs` and what is in it cannot be changed.
pub(super) const CONTROL_DIRECTORY_IS_FIXED: Errno = Errno::EPERM;

/// A row of the table.
#[derive(Debug)]
pub struct Rule {
    /// What a test that walks the table calls it.
    pub name: &'static str,
    request: Request,
    who: Who,
}

const fn rule(name: &'static str, request: Request, who: Who) -> Rule {
    Rule { name, request, who }
}

use Namespace::{Lists, Security, System, Trusted, User};
use Request::{ChangeControlDirectory, ChangeSnapshots, ChangeXattr, Control, CopyRange, Fallocate, NameXattr, ReadXattr, Seek};
use Who::{Anybody, Capable, Nobody};

/// All rules. Beside each: what the kernel has checked.
pub const RULES: &[Rule] = &[
    rule("mark read", Control(flags::GET_FLAGS), Anybody), // an open file
    rule("mark read by the newer request", Control(flags::GET_XATTR), Anybody), // an open file
    rule("mark generation read", Control(flags::GET_VERSION), Anybody), // an open file
    rule("mark", Control(flags::SET_FLAGS), Anybody),      // its owner; CAP_LINUX_IMMUTABLE for what only that may
    rule("mark immutable by the newer request", Control(flags::SET_XATTR), Anybody), // as above
    rule("mark read by the 32-bit number", Control(flags::GET_FLAGS_32), Nobody(Errno::ENOTTY)), // nothing: it translates those of 32-bit programs
    rule("mark immutable by the 32-bit number", Control(flags::SET_FLAGS_32), Nobody(Errno::ENOTTY)), // nothing
    rule("xattr get user", ReadXattr(User), Anybody),                                            // the right to read
    rule("xattr get trusted", ReadXattr(Trusted), Anybody),                                      // CAP_SYS_ADMIN
    rule("xattr get security", ReadXattr(Security), Anybody), // nothing: everybody may, on any file system
    rule("xattr get list", ReadXattr(Lists), Anybody),        // nothing, as above
    rule("xattr get of the system", ReadXattr(System), Nobody(Errno::EOPNOTSUPP)), // nothing
    rule("xattr get without a namespace", ReadXattr(Namespace::None), Nobody(Errno::EOPNOTSUPP)), // nothing
    rule("xattr user", ChangeXattr(User), Anybody),           // the right to write
    rule("xattr trusted", ChangeXattr(Trusted), Anybody),     // CAP_SYS_ADMIN
    rule("xattr security", ChangeXattr(Security), Anybody),   // CAP_SYS_ADMIN, or CAP_SETFCAP for capabilities
    rule("xattr list", ChangeXattr(Lists), Anybody),          // its owner
    rule("xattr of the system", ChangeXattr(System), Nobody(Errno::EOPNOTSUPP)), // nothing
    rule("xattr without a namespace", ChangeXattr(Namespace::None), Nobody(Errno::EOPNOTSUPP)), // nothing
    rule("xattr names", NameXattr(User), Anybody),            // nothing: everybody may, on any file system
    rule("xattr names: trusted", NameXattr(Trusted), Capable(CAP_SYS_ADMIN)), // nothing
    rule("xattr names: security", NameXattr(Security), Anybody), // nothing
    rule("xattr names: lists", NameXattr(Lists), Anybody),    // nothing
    rule("fallocate", Fallocate, Anybody),                    // a file that is open for writing
    rule("seek", Seek, Anybody),                              // an open file
    rule("copy", CopyRange, Anybody),                         // one file open for reading, one for writing and not for appending
    rule("control directory", ChangeControlDirectory, Nobody(CONTROL_DIRECTORY_IS_FIXED)), // the right to write, which the superuser has everywhere
    rule("snapshot by its directory", ChangeSnapshots, Anybody), // nothing: the pool is asked what it grants
];

/// Fails unless the table lets this caller in.
pub(super) fn check(cx: &Context, request: Request) -> Result<()> {
    let who = RULES.iter().find(|rule| rule.request == request).map_or(unknown(request), |rule| rule.who);
    match who {
        Anybody => Ok(()),
        Capable(capability) if Rights::of(cx).has(capability) => Ok(()),
        Capable(_) => Err(Errno::EPERM),
        Nobody(errno) => Err(errno),
    }
}

/// For whom a snapshot is taken, renamed or destroyed through `.zfs/snapshot`: as on the control socket, the superuser, the user whose daemon it is,
/// or one who may do what the pool grants.
pub(super) fn snapshot_caller(cx: &Context) -> Result<Caller> {
    check(cx, ChangeSnapshots)?;
    let rights = Rights::of(cx);
    let own = geteuid();
    if rights.has(CAP_SYS_ADMIN) || (!own.is_root() && cx.uid == own.as_raw()) {
        return Ok(Caller::superuser(cx.uid.into()));
    }
    let groups = [cx.gid].into_iter().chain(rights.groups).map(u64::from).collect();
    Ok(Caller::delegate(cx.uid.into(), groups))
}

fn unknown(request: Request) -> Who {
    Nobody(if matches!(request, Control(_)) { Errno::ENOTTY } else { Errno::EOPNOTSUPP })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each row is found by what it is about, no two are about the same, and what is in none is refused: to root and to others.
    #[test]
    fn the_table_has_one_row_for_each_request() {
        let who = |uid| Context { unique: 0, uid, gid: uid, pid: 0, other_group: None };
        for (at, rule) in RULES.iter().enumerate() {
            let same = |other: &&Rule| other.request == rule.request || other.name == rule.name;
            assert_eq!(RULES.iter().filter(same).count(), 1, "{}", rule.name);
            assert!(RULES[..at].iter().all(|before| before.request != rule.request));
            let (root, nobody) = (check(&who(0), rule.request), check(&who(65534), rule.request));
            match rule.who {
                Anybody => assert_eq!((root, nobody), (Ok(()), Ok(())), "{}", rule.name),
                Capable(_) => assert_eq!((root, nobody), (Ok(()), Err(Errno::EPERM)), "{}", rule.name),
                Nobody(errno) => assert_eq!((root, nobody), (Err(errno), Err(errno)), "{}", rule.name),
            }
        }
        assert_eq!(check(&who(0), Control(0x1234)), Err(Errno::ENOTTY));
        assert_eq!(check(&who(0), NameXattr(System)), Err(Errno::EOPNOTSUPP));
    }

    #[test]
    fn names_belong_to_namespaces() {
        let of = |name: &str| Namespace::of(name.as_bytes());
        assert_eq!((of("user.x"), of("trusted."), of("security.capability")), (User, Trusted, Security));
        assert_eq!(
            (of("system.posix_acl_default"), of("system.nfs4_acl"), of("users"), of("")),
            (Lists, System, Namespace::None, Namespace::None)
        );
    }
}
