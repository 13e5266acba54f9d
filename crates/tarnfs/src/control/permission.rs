//! Which permission each verb needs: the one table.
//!
//! # Theory
//! Root, and the user whose daemon it is, may do everything. Anybody else who reaches the daemon may look at pools, as with OpenZFS, and do what
//! the pool grants (`zfs allow`). [`needs`] says, for each request, what that is; it has no default arm, so a new verb does not compile until
//! somebody has decided. Three things are asked elsewhere, where more is known: whether a grant may be handed on ([`crate::control::pools`],
//! `zfs/rights.rs`), whether an owner's space may be seen (`zfs/quotas.rs`), and which properties a stream may bring or take away (`zfs/streams/properties.rs`):
//! a stream is not refused for one of them.
//!
//! To mount and to unmount is the superuser's, whatever is granted: Linux asks that of OpenZFS's users, too.
//!
//! # Path
//! the daemon → `Backend::admit` → here

use engine::dsl::prop_table::{find, is_user_property};

use super::protocol::branch::DatasetClone;
use super::protocol::maintenance::OwnerKind;
use super::protocol::property::Setting;
use super::protocol::stream::StreamReceive;
use super::protocol::request::{DatasetCreate, DatasetDestroy, Request};

/// What may be granted beside properties, in the order in which `zfs allow -h` has them.
pub const PERMISSIONS: [&str; 33] = [
    "allow",
    "clone",
    "create",
    "destroy",
    "diff",
    "hold",
    "mount",
    "promote",
    "receive",
    "release",
    "rename",
    "rollback",
    "send",
    "send:raw",
    "send:encrypted",
    "share",
    "snapshot",
    "bookmark",
    "load-key",
    "change-key",
    "groupquota",
    "groupused",
    "userprop",
    "userquota",
    "userused",
    "userobjquota",
    "userobjused",
    "groupobjquota",
    "groupobjused",
    "projectused",
    "projectquota",
    "projectobjused",
    "projectobjquota",
];
/// A permission to send raw that counts for encrypted datasets only.
pub(crate) const SEND_ENCRYPTED: &str = "send:encrypted";
/// What may be granted, and is not listed there.
const UNLISTED: [&str; 1] = ["receive:append"];

/// The name under which a permission is stored; `None`: nothing of this name can be granted.
#[doc(alias = "zfs_deleg_canonicalize_perm")]
pub fn stored_name(name: &str) -> Option<&'static str> {
    if let Some(known) = PERMISSIONS.iter().chain(&UNLISTED).find(|known| **known == name) {
        return Some(known);
    }
    find(name).filter(|property| property.name != "mlslabel" && !is_never_set(property.name)).map(|property| property.name)
}

fn is_never_set(name: &str) -> bool {
    find(name).is_some_and(|property| property.is_read_only() && !property.is_set_once())
}

/// Of which dataset a permission is asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Of {
    /// Of this one: a file system, a volume, a snapshot.
    Dataset(String),
    /// Of one that is to be made, and that it lies in: the nearest that is there counts.
    New(String),
    /// Of what this one lies in.
    Parent(String),
    /// Of this one, or, if it is not there yet, of what it lies in.
    Target(String),
    /// Of what this one is a clone of.
    Origin(String),
}

impl Of {
    /// The dataset, which need not be there yet.
    pub fn name(&self) -> &str {
        let (Of::Dataset(name) | Of::New(name) | Of::Parent(name) | Of::Target(name) | Of::Origin(name)) = self;
        name
    }
}

/// A permission, and where it is asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Asked {
    /// The permission; one of several, if `|` stands between them.
    pub permission: String,
    /// Where.
    pub of: Of,
}

/// What a request needs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Need {
    /// Nothing: everybody may look.
    Nothing,
    /// To be the superuser.
    Superuser,
    /// To be the superuser; these words refuse it.
    SuperuserOr(&'static str),
    /// All of these.
    All(Vec<Asked>),
}

/// Permissions on one dataset.
fn on(dataset: &str, permissions: &[&str]) -> Vec<Asked> {
    let asked = |permission: &&str| Asked { permission: (*permission).to_owned(), of: Of::Dataset(dataset.to_owned()) };
    permissions.iter().map(asked).collect()
}

/// Permissions on what a dataset lies in.
fn above(dataset: &str, permissions: &[&str]) -> Vec<Asked> {
    let asked = |permission: &&str| Asked { permission: (*permission).to_owned(), of: Of::Parent(dataset.to_owned()) };
    permissions.iter().map(asked).collect()
}

/// What it takes to change a property.
pub(in crate::control) fn permission_of_property(name: &str) -> String {
    match find(name) {
        Some(property) => property.name.to_owned(),
        None if is_user_property(name) => "userprop".to_owned(),
        // `userquota@joe`
        None => name.split('@').next().unwrap_or(name).to_owned(),
    }
}

/// Properties that a new dataset is to have. What is fixed when it is made comes with `create`.
fn set_on_new(name: &str, settings: &[Setting]) -> Vec<Asked> {
    let comes_along = |name: &str| name == "version" || find(name).is_some_and(|property| property.is_set_once());
    let set = settings.iter().filter(|setting| !comes_along(&setting.name));
    set.map(|setting| Asked { permission: permission_of_property(&setting.name), of: Of::New(name.to_owned()) }).collect()
}

fn created(create: &DatasetCreate) -> Vec<Asked> {
    let mut asked = above(&create.name, &["create", "mount"]);
    asked.extend(set_on_new(&create.name, &create.properties));
    asked
}

fn destroyed(destroy: &DatasetDestroy) -> Vec<Asked> {
    let one = |name: &String| match name.split_once('#') {
        Some((head, _)) => on(head, &["destroy"]),
        None => on(name, &["mount", "destroy"]),
    };
    destroy.names.iter().flat_map(one).collect()
}

fn cloned(clone: &DatasetClone) -> Vec<Asked> {
    let mut asked = on(&clone.snapshot, &["clone"]);
    asked.extend(above(&clone.name, &["create", "mount"]));
    asked.extend(set_on_new(&clone.name, &clone.properties));
    asked
}

/// Of both: the clone takes snapshots away from what it was cloned from.
fn promoted(clone: &str) -> Vec<Asked> {
    let mut asked = on(clone, &["promote", "mount"]);
    asked.push(Asked { permission: "promote".to_owned(), of: Of::Origin(clone.to_owned()) });
    asked
}

fn received(receive: &StreamReceive) -> Vec<Asked> {
    let receive_permission = if receive.force { "receive" } else { "receive|receive:append" };
    let target = |permission: &str| Asked { permission: permission.to_owned(), of: Of::Target(receive.dataset.clone()) };
    let mut asked: Vec<Asked> = [receive_permission, "mount", "create"].map(target).into();
    // All that the origin has can be read in its clone, whatever the stream says: that takes what it takes to clone it, or to have received it.
    asked.extend(receive.origin.iter().flat_map(|origin| on(head_of(origin), &["clone|receive|receive:append"])));
    asked.extend(set_on_new(&receive.dataset, &receive.settings));
    asked
}

/// What a snapshot or bookmark is of.
fn head_of(name: &str) -> &str {
    name.split(['@', '#']).next().unwrap_or(name)
}

/// A property of the space of owners, for each kind of owner.
fn owner_permissions(kind: OwnerKind) -> &'static [&'static str] {
    match kind {
        OwnerKind::User => &["userused", "userquota", "userobjused", "userobjquota"],
        OwnerKind::Group => &["groupused", "groupquota", "groupobjused", "groupobjquota"],
        OwnerKind::Project => &["projectused", "projectquota", "projectobjused", "projectobjquota"],
    }
}

/// What a request needs.
pub fn needs(request: &Request) -> Need {
    match request {
        Request::Ping
        | Request::Version
        | Request::PoolList(_)
        | Request::PoolGet(_)
        | Request::PoolStatus(_) | Request::PoolCache(_)
        | Request::VdevGet(_)
        | Request::PoolSync(_)
        | Request::DatasetList(_)
        | Request::DatasetGet(_)
        | Request::SnapshotHolds(_)
        | Request::SnapshotsSpace(_)
        | Request::StreamSize(_)
        | Request::StreamPackage(_)
        | Request::DatasetGrants(_)
        // Which users may hand on what is asked where it is done.
        | Request::DatasetAllow(_)
        // The daemon takes only what the same caller has done.
        | Request::PoolRecord(_)
        | Request::DeleteQueue(_)
        | Request::MountList => Need::Nothing,
        Request::Quit
        | Request::PoolCreate(_)
        | Request::PoolDestroy(_)
        | Request::PoolScan(_)
        | Request::PoolImport(_)
        | Request::PoolExport(_)
        | Request::PoolSet(_)
        | Request::PoolHistory(_)
        | Request::PoolReguid(_)
        | Request::PoolClear(_)
        | Request::PoolScrub(_)
        | Request::PoolAdd(_)
        | Request::PoolRemove(_)
        | Request::PoolDevice(_)
        | Request::PoolUpgrade(_)
        | Request::PoolEvents(_)
        | Request::SnapshotRedact(_)
        | Request::TransactionBegin(_)
        | Request::TransactionEnd(_)
        | Request::DatasetsUnmount(_)
        | Request::DatasetUnmount(_) => Need::Superuser,
        Request::DatasetMount(_) | Request::DatasetsMount(_) => Need::SuperuserOr("Insufficient privileges"),
        Request::DatasetCreate(create) => Need::All(created(create)),
        Request::DatasetDestroy(destroy) => Need::All(destroyed(destroy)),
        Request::SnapshotsCreate(create) => Need::All(create.names.iter().flat_map(|name| on(head_of(name), &["snapshot"])).collect()),
        Request::StreamSend(send) if send.raw => Need::All(on(&send.snapshot, &["send|send:raw|send:encrypted"])),
        Request::SnapshotsDestroy(destroy) => Need::All(destroy.names.iter().flat_map(|name| on(name, &["mount", "destroy"])).collect()),
        Request::SnapshotsHold(held) => Need::All(held.names.iter().flat_map(|name| on(name, &["hold"])).collect()),
        Request::SnapshotsRelease(held) => Need::All(held.names.iter().flat_map(|name| on(name, &["release"])).collect()),
        Request::BookmarksCreate(create) => Need::All(create.pairs.iter().flat_map(|(name, _)| on(head_of(name), &["bookmark"])).collect()),
        Request::DatasetDiff(diff) => Need::All([on(head_of(&diff.old), &["diff"]), on(head_of(&diff.new), &["diff"])].concat()),
        Request::StreamSend(send) => Need::All(on(&send.snapshot, &["send"])),
        Request::StreamReceive(receive) => Need::All(received(receive)),
        Request::ReceiveAbort(abort) => Need::All(on(&abort.dataset, &["mount", "destroy"])),
        Request::DatasetClone(clone) => Need::All(cloned(clone)),
        Request::DatasetPromote(promote) => Need::All(promoted(&promote.name)),
        Request::DatasetRollback(rollback) => Need::All(on(head_of(&rollback.snapshot), &["rollback"])),
        Request::DatasetRename(rename) => {
            Need::All([on(&rename.from, &["rename", "mount"]), above(&rename.to, &["create", "mount"])].concat())
        }
        Request::DatasetSet(set) => {
            let permissions = set.settings.iter().map(|setting| permission_of_property(&setting.name));
            Need::All(permissions.flat_map(|permission| on(&set.name, &[&permission])).collect())
        }
        Request::DatasetInherit(inherit) => Need::All(on(&inherit.name, &[&permission_of_property(&inherit.property)])),
        Request::OwnerSpace(space) => Need::All(on(&space.name, owner_permissions(space.kind))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::{DatasetInherit, DatasetPromote, DatasetRename, DatasetSet, StreamSend};

    fn asked(request: &Request) -> String {
        let Need::All(all) = needs(request) else { panic!("{:?}", needs(request)) };
        let words = all.into_iter().map(|Asked { permission, of }| match of {
            Of::Dataset(name) => format!("{permission} {name}"),
            Of::New(name) => format!("{permission} new {name}"),
            Of::Parent(name) => format!("{permission} above {name}"),
            Of::Origin(name) => format!("{permission} origin of {name}"),
            Of::Target(name) => format!("{permission} target {name}"),
        });
        words.collect::<Vec<_>>().join(", ")
    }

    #[test]
    fn verbs_need_what_openzfs_asks() {
        let properties = vec![Setting::new("compression", 15u64), Setting::new("utf8only", 1u64), Setting::new("a:b", "x")];
        let create = DatasetCreate { name: "p/a/b".into(), volume_size: None, properties, parents: false };
        assert_eq!(asked(&Request::DatasetCreate(create)), "create above p/a/b, mount above p/a/b, compression new p/a/b, userprop new p/a/b");
        let destroy = DatasetDestroy { names: vec!["p/a@s".into(), "p/a#b".into()], defer: false, force: false };
        assert_eq!(asked(&Request::DatasetDestroy(destroy)), "mount p/a@s, destroy p/a@s, destroy p/a");
        let rename = DatasetRename { from: "p/a".into(), to: "p/b/c".into(), parents: false, no_remount: false, force: false, recursive: false };
        assert_eq!(asked(&Request::DatasetRename(rename)), "rename p/a, mount p/a, create above p/b/c, mount above p/b/c");
        let settings = vec![Setting::new("userquota@joe", 1u64), Setting::new("compress", 1u64)];
        let set = DatasetSet { name: "p".into(), settings, no_remount: false, received: false };
        assert_eq!(asked(&Request::DatasetSet(set)), "userquota p, compression p");
        let clone = DatasetClone { snapshot: "p/a@s".into(), name: "p/c".into(), properties: Vec::new(), parents: false };
        assert_eq!(asked(&Request::DatasetClone(clone)), "clone p/a@s, create above p/c, mount above p/c");
        let promote = DatasetPromote { name: "p/c".into() };
        assert_eq!(asked(&Request::DatasetPromote(promote)), "promote p/c, mount p/c, promote origin of p/c");
        let receive = StreamReceive { dataset: "p/r".into(), force: true, settings: vec![Setting::new("compression", 15u64)], ..StreamReceive::default() };
        assert_eq!(asked(&Request::StreamReceive(receive)), "receive target p/r, mount target p/r, create target p/r, compression new p/r");
        let of_clone = StreamReceive { dataset: "p/r".into(), origin: Some("p/a@s".into()), ..StreamReceive::default() };
        let of_origin = "clone|receive|receive:append p/a";
        assert_eq!(asked(&Request::StreamReceive(of_clone)), format!("receive|receive:append target p/r, mount target p/r, create target p/r, {of_origin}"));
        let send = StreamSend { snapshot: "p/a@s".into(), raw: true, ..StreamSend::default() };
        assert_eq!(asked(&Request::StreamSend(send)), "send|send:raw|send:encrypted p/a@s");
        let inherit = DatasetInherit { name: "p".into(), property: "mountpoint".into(), received: false };
        assert_eq!(asked(&Request::DatasetInherit(inherit)), "mountpoint p");
    }

    #[test]
    fn names_of_permissions_are_checked() {
        assert_eq!((stored_name("create"), stored_name("receive:append")), (Some("create"), Some("receive:append")));
        assert_eq!((stored_name("compress"), stored_name("volsize"), stored_name("utf8only")), (Some("compression"), Some("volsize"), Some("utf8only")));
        for wrong in ["used", "mounted", "mlslabel", "scrub", "a:b", "userquota@joe", ""] {
            assert_eq!(stored_name(wrong), None, "{wrong}");
        }
    }
}
