//! What a user may do to whom a pool grants something, by commands.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;

use super::people::{GROUP, MEMBER, OWNER, STRANGER};
use crate::rig::{LIMIT, Rig, Said, run_for};

/// A rig that users can reach, with a program that they may run.
pub(super) struct Shared {
    pub(super) rig: Rig,
}

impl Shared {
    pub(super) fn new() -> Option<Shared> {
        let rig = Rig::new()?;
        rig.image("a.img", 64 << 20);
        rig.ok("zpool create -O mountpoint=none tank @a.img");
        rig.ok("zfs create tank/home");
        rig.ok("zfs create tank/home/a");
        fs::set_permissions(rig.path("."), fs::Permissions::from_mode(0o755)).unwrap();
        fs::copy(env!("CARGO_BIN_EXE_tarn"), rig.path("tarn")).unwrap();
        Some(Shared { rig })
    }

    /// What a user's command says. The user's group has the user's number.
    pub(super) fn run(&self, user: u32, words: &str) -> Said {
        let mut command = std::process::Command::new(self.rig.path("tarn"));
        command.args(words.split_whitespace());
        self.run_as(user, command, words)
    }

    /// What a user's shell says. `zfs` is in its path.
    pub(super) fn shell(&self, user: u32, script: &str) -> Said {
        let mut command = std::process::Command::new("/bin/sh");
        command.arg("-c").arg(format!("zfs() {{ {} zfs \"$@\"; }}; {script}", self.rig.text("tarn")));
        self.run_as(user, command, script)
    }

    fn run_as(&self, user: u32, mut command: std::process::Command, words: &str) -> Said {
        command.env("TARN_SOCKET", self.rig.path("sock")).current_dir("/").uid(user).gid(user);
        run_for(&mut command, LIMIT).unwrap_or_else(|| panic!("{words} hangs\n{}", self.rig.log()))
    }

    #[track_caller]
    pub(super) fn may(&self, user: u32, words: &str) -> String {
        let said = self.run(user, words);
        assert!(said.code == 0 && said.err.is_empty(), "{user}: tarn {words}: {said:?}\n{}", self.rig.log());
        said.out
    }

    /// OpenZFS's words.
    #[track_caller]
    pub(super) fn may_not(&self, user: u32, words: &str, message: &str) {
        let said = self.run(user, words);
        assert_eq!((said.code != 0, said.err.trim_end()), (true, message), "{user}: tarn {words}: {said:?}");
    }
}

#[test]
fn what_is_granted_can_be_done_and_nothing_else() {
    let Some(shared) = Shared::new() else { return };
    let rig = &shared.rig;
    let denied = "permission denied";
    shared.may_not(OWNER, "zfs create tank/home/x", &format!("cannot create 'tank/home/x': {denied}"));
    shared.may_not(OWNER, "zfs set compression=lz4 tank/home", &format!("cannot set property for 'tank/home': {denied}"));
    shared.may_not(OWNER, "zfs destroy tank/home/a", &format!("cannot destroy 'tank/home/a': {denied}"));
    shared.may_not(OWNER, "zfs rename tank/home/a tank/b", &format!("cannot rename 'tank/home/a': {denied}"));
    shared.may_not(OWNER, "zpool export tank", &format!("cannot export 'tank': {denied}"));
    assert_eq!(shared.may(OWNER, "zfs list -H -o name"), "tank\ntank/home\ntank/home/a\n");
    rig.ok(&format!("zfs allow -u {OWNER} create tank/home"));
    shared.may_not(OWNER, "zfs create tank/home/x", &format!("cannot create 'tank/home/x': {denied}"));
    rig.ok(&format!("zfs allow -g {GROUP} mount tank/home"));
    shared.may(OWNER, "zfs create tank/home/x");
    shared.may(OWNER, "zfs create tank/home/x/y");
    shared.may_not(OWNER, "zfs create -o compression=lz4 tank/home/z", &format!("cannot create 'tank/home/z': {denied}"));
    shared.may_not(STRANGER, "zfs create tank/home/z", &format!("cannot create 'tank/home/z': {denied}"));
    rig.ok("zfs allow -d everyone compression,userprop tank/home");
    shared.may(OWNER, "zfs create -o compression=lz4 -o a:b=c tank/home/z");
    shared.may(STRANGER, "zfs set compression=off tank/home/z");
    shared.may(STRANGER, "zfs inherit a:b tank/home/z");
    shared.may_not(STRANGER, "zfs set compression=off tank/home", &format!("cannot set property for 'tank/home': {denied}"));
    shared.may_not(OWNER, "zfs destroy tank/home/z", &format!("cannot destroy 'tank/home/z': {denied}"));
    // For the rig, `@all` would be a path.
    shared.may(0, "zfs allow -s @all destroy,rename tank");
    shared.may(0, &format!("zfs allow -u {OWNER} @all tank/home"));
    shared.may(OWNER, "zfs rename tank/home/z tank/home/w");
    shared.may(OWNER, "zfs destroy tank/home/w");
    shared.may_not(OWNER, "zfs rename tank/home/x tank/x", &format!("cannot rename 'tank/home/x': {denied}"));
    // The history names who did it.
    let history = rig.ok("zpool history -l tank");
    assert!(history.contains("zfs destroy tank/home/w [user 54321") , "{history}");
    rig.ok(&format!("zfs unallow -u {OWNER} tank/home"));
    shared.may_not(OWNER, "zfs destroy tank/home/x/y", &format!("cannot destroy 'tank/home/x/y': {denied}"));
    rig.ok("zpool export tank");
    rig.zdb(&["a.img"]);
}

#[test]
fn creators_get_what_is_granted_to_creators() {
    let Some(shared) = Shared::new() else { return };
    let rig = &shared.rig;
    rig.ok("zfs allow -e create,mount tank/home");
    shared.may(0, "zfs allow -c destroy,quota,@more tank/home");
    shared.may(0, "zfs allow -s @more recordsize tank");
    shared.may(MEMBER, "zfs create -o quota=10m -o recordsize=8k tank/home/m");
    let shown = rig.ok("zfs allow tank/home/m");
    assert!(shown.contains(&format!("Local permissions:\n\tuser (unknown: {MEMBER}) @more,destroy,quota\n")), "{shown}");
    shared.may_not(OWNER, "zfs destroy tank/home/m", "cannot destroy 'tank/home/m': permission denied");
    shared.may(MEMBER, "zfs set quota=20m tank/home/m");
    shared.may(MEMBER, "zfs destroy tank/home/m");
    rig.ok("zpool export tank");
    rig.zdb(&["a.img"]);
}

#[test]
fn grants_are_handed_on_by_those_who_may() {
    let Some(shared) = Shared::new() else { return };
    let rig = &shared.rig;
    let refused = "cannot set permissions on 'tank/home': permission denied";
    shared.may_not(OWNER, &format!("zfs allow -u {MEMBER} send tank/home"), refused);
    rig.ok(&format!("zfs allow -u {OWNER} allow,send tank/home"));
    shared.may(OWNER, &format!("zfs allow -u {MEMBER} send tank/home"));
    shared.may_not(OWNER, &format!("zfs allow -u {MEMBER} hold tank/home"), refused);
    shared.may_not(OWNER, &format!("zfs allow -u {MEMBER} allow tank/home"), refused);
    shared.may_not(OWNER, &format!("zfs unallow -u {MEMBER} send tank/home"), refused);
    shared.may(OWNER, &format!("zfs unallow -u {OWNER} send tank/home"));
    rig.ok("zpool set delegation=off tank");
    let off = "cannot set permissions on 'tank/home': delegated administration is disabled on pool";
    shared.may_not(OWNER, &format!("zfs allow -u {MEMBER} compression tank/home"), off);
    rig.ok("zpool export tank");
    rig.zdb(&["a.img"]);
}

#[test]
fn what_is_mounted_is_roots() {
    let Some(shared) = Shared::new() else { return };
    let rig = &shared.rig;
    rig.ok(&format!("zfs allow -u {OWNER} create,mount,destroy,mountpoint,canmount tank/home"));
    rig.ok("zfs set mountpoint=@mnt tank/home/a");
    let said = shared.run(OWNER, "zfs create tank/home/a/b");
    assert_eq!((said.code, said.err.as_str()), (0, "filesystem successfully created, but it may only be mounted by root\n"), "{said:?}");
    shared.may_not(OWNER, "zfs mount tank/home/a/b", "cannot mount 'tank/home/a/b': Insufficient privileges");
    shared.may_not(OWNER, "zfs destroy tank/home/a", "cannot destroy 'tank/home/a': filesystem has children\nuse '-r' to destroy the following datasets:\ntank/home/a/b");
    shared.may(OWNER, "zfs destroy tank/home/a/b");
    let place = rig.text("mnt");
    shared.may_not(OWNER, "zfs destroy tank/home/a", &format!("cannot unmount '{place}': permission denied"));
    shared.may_not(OWNER, "zfs set mountpoint=/etc tank/home/a", &format!("cannot unmount '{place}': permission denied"));
    shared.may_not(OWNER, "zfs set canmount=off tank/home/a", &format!("cannot unmount '{place}': permission denied"));
    assert!(rig.is_mounted("mnt"));
    rig.ok("zfs snapshot tank/home/a@s");
    fs::create_dir(rig.path("snap")).unwrap();
    rig.ok("mount tank/home/a@s @snap");
    shared.may_not(OWNER, "zfs destroy tank/home/a@s", "cannot destroy snapshot tank/home/a@s: dataset is busy");
    assert!(rig.is_mounted("snap"));
    shared.may(OWNER, "zfs set -u mountpoint=/somewhere tank/home/a");
    rig.ok("zpool export tank");
    rig.zdb(&["a.img"]);
}

/// The space of owners is seen by themselves, and by those who are granted that.
#[test]
fn owners_see_their_own_space() {
    let Some(shared) = Shared::new() else { return };
    let rig = &shared.rig;
    let of = |user: u32, owner: u32| shared.may(user, &format!("zfs get -Hp -o value userused@{owner},userquota@{owner} tank/home"));
    assert_eq!((of(OWNER, OWNER).as_str(), of(OWNER, MEMBER).as_str()), ("0\n0\n", "-\n-\n"));
    rig.ok(&format!("zfs allow -u {OWNER} userused,userquota tank/home"));
    assert_eq!(of(OWNER, MEMBER), "0\n0\n");
    shared.may(OWNER, &format!("zfs set userquota@{MEMBER}=5m tank/home"));
    shared.may_not(MEMBER, &format!("zfs set userquota@{MEMBER}=6m tank/home"), "cannot set property for 'tank/home': permission denied");
    rig.ok("zpool export tank");
    rig.zdb(&["a.img"]);
}
