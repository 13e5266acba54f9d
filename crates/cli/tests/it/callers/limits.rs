//! Limits on how many file systems and snapshots a user may make.

use super::delegates::Shared;
use super::people::OWNER;

/// The counts of file systems and snapshots.
fn counts(shared: &Shared, name: &str) -> String {
    shared.rig.ok(&format!("zfs get -Hpo value filesystem_count,snapshot_count {name}")).split_whitespace().collect::<Vec<_>>().join(" ")
}

#[test]
fn limits_bind_whom_nobody_allows_to_change_them() {
    let Some(shared) = Shared::new() else { return };
    let rig = &shared.rig;
    assert_eq!(counts(&shared, "tank/home"), "none none");
    rig.ok(&format!("zfs allow -u {OWNER} create,mount,snapshot,clone,rename,promote,destroy tank/home"));
    rig.ok("zfs set filesystem_limit=3 tank/home");
    rig.ok("zfs set snapshot_limit=3 tank/home");
    assert_eq!((counts(&shared, "tank/home"), counts(&shared, "tank"), counts(&shared, "tank/home/a")), ("1 0".into(), "none none".into(), "0 0".into()));
    shared.may(OWNER, "zfs create tank/home/a/b");
    shared.may(OWNER, "zfs snapshot -r tank/home@one");
    assert_eq!(counts(&shared, "tank/home"), "2 3");
    // All of them together are too many, wherever the limit is.
    shared.may_not(OWNER, "zfs snapshot tank/home/a@two", "cannot create snapshot 'tank/home/a': out of space");
    shared.may_not(OWNER, "zfs snapshot -r tank/home/a@two", "cannot create snapshot 'tank/home/a': out of space\nno snapshots were created");
    shared.may(OWNER, "zfs clone tank/home/a@one tank/home/c");
    for words in ["zfs create tank/home/d", "zfs clone tank/home/a@one tank/home/d", "zfs create tank/home/a/b/d"] {
        let name = words.split_whitespace().last().unwrap();
        shared.may_not(OWNER, words, &format!("cannot create '{name}': out of space"));
    }
    // Root is not bound, nor is a user that may change the limit, who is bound by those above.
    rig.ok("zfs create tank/home/root");
    rig.ok("zfs snapshot tank/home/root@root");
    assert_eq!(counts(&shared, "tank/home"), "4 4");
    rig.ok(&format!("zfs allow -u {OWNER} filesystem_limit,snapshot_limit tank/home/a"));
    shared.may_not(OWNER, "zfs create tank/home/a/e", "cannot create 'tank/home/a/e': out of space");
    rig.ok(&format!("zfs allow -u {OWNER} filesystem_limit,snapshot_limit tank/home"));
    shared.may(OWNER, "zfs create tank/home/a/e");
    shared.may(OWNER, "zfs snapshot tank/home/a/e@one");
    rig.ok(&format!("zfs unallow -u {OWNER} filesystem_limit,snapshot_limit tank/home"));
    // What comes from elsewhere counts with all that is below it.
    rig.ok("zfs create tank/other");
    rig.ok("zfs create tank/other/x");
    rig.ok("zfs snapshot tank/other/x@one");
    rig.ok(&format!("zfs allow -u {OWNER} create,mount,rename,snapshot tank/other"));
    assert_eq!(counts(&shared, "tank/other"), "1 1", "counts are kept where the pool has them at all");
    rig.ok("zfs set filesystem_limit=6 tank/home");
    shared.may_not(OWNER, "zfs rename tank/other/x tank/home/x", "cannot rename 'tank/other/x': out of space");
    rig.ok("zfs set snapshot_limit=6 tank/home");
    shared.may(OWNER, "zfs rename tank/other/x tank/home/x");
    assert_eq!((counts(&shared, "tank/home"), counts(&shared, "tank/home/x")), ("6 6".into(), "0 1".into()));
    // Within the limit, nothing changes.
    shared.may(OWNER, "zfs rename tank/home/x tank/home/a/x");
    shared.may(OWNER, "zfs destroy tank/home/a/e@one");
    assert_eq!((counts(&shared, "tank/home"), counts(&shared, "tank/home/a")), ("6 5".into(), "3 3".into()));
    rig.ok("zfs set filesystem_limit=none tank/home");
    shared.may(OWNER, "zfs create tank/home/more");
    rig.ok("zpool export tank");
    rig.zdb(&["a.img"]);
}
