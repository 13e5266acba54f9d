//! What is in a specimen: a little of everything.

use crate::scenario::{Actor, contents};
use tarnfs::{RenameMode, XattrMode};

/// Files of all kinds in a new directory `base`; some are changed and removed again.
pub(super) fn a_little_of_everything(actor: &mut Actor<'_>, base: &str, seed: u64) {
    actor.mkdir(base);
    let lengths = [0, 1, 100, 511, 4096, 20_000, 131_072, 131_073, 700_000, 1_500_001];
    for (number, length) in lengths.into_iter().enumerate() {
        let (path, number) = (format!("{base}/f{number}"), number as u64);
        actor.file(&path, &contents(seed * 100 + number, length, number as u8 % 3));
        actor.setxattr(&path, "user.a", &contents(number, 40 * number as usize, 0));
    }
    actor.setxattr(&format!("{base}/f3"), "user.big", &contents(seed, 9000, 0));
    actor.setxattr(&format!("{base}/f4"), "security.selinux", b"system_u:object_r:tmp_t:s0\0");
    actor.symlink(&format!("{base}/short"), b"f3");
    actor.symlink(&format!("{base}/long"), &[b't'; 900]);
    actor.special(&format!("{base}/fifo"), 0o010_600, 0);
    actor.special(&format!("{base}/null"), 0o020_666, 1 << 20 | 3);
    actor.link(&format!("{base}/f2"), &format!("{base}/hard"));
    actor.file(&format!("{base}/holes"), &contents(seed, 10_000, 0));
    actor.write(&format!("{base}/holes"), 3_000_000, b"far");
    actor.file(&format!("{base}/zeros"), &vec![0; 300_000]);
    actor.chmod(&format!("{base}/f5"), 0o4711);
    actor.chown(&format!("{base}/f5"), 1234, 567);
    actor.utimens(&format!("{base}/f6"), 1_000_000_000, 123_456_789);
    actor.mkdir(&format!("{base}/d"));
    for number in 0..150 {
        actor.file(&format!("{base}/d/{}", "n".repeat(1 + number % 60) + &number.to_string()), &contents(number as u64, number, 1));
    }
    change(actor, base, seed);
}

/// Changes some of it.
fn change(actor: &mut Actor<'_>, base: &str, seed: u64) {
    actor.fs.sync_group().expect("sync");
    actor.write(&format!("{base}/f9"), 10_000, &contents(seed + 7, 300_000, 0));
    actor.truncate(&format!("{base}/f8"), 30_000);
    actor.punch(&format!("{base}/f7"), 1000, 100_000);
    actor.unlink(&format!("{base}/f1"));
    actor.rename(&format!("{base}/f0"), &format!("{base}/d/moved"), RenameMode::NoReplace);
    actor.removexattr(&format!("{base}/f9"), "user.a");
    for number in (0..150).step_by(3) {
        actor.unlink(&format!("{base}/d/{}", "n".repeat(1 + number % 60) + &number.to_string()));
    }
}

/// Puts POSIX ACLs on a file and on a directory, in the form in which the kernel gives them to a file system.
pub(super) fn access_lists(actor: &mut Actor<'_>, base: &str) {
    const OWNER: u16 = 1;
    const USER: u16 = 2;
    const GROUP: u16 = 4;
    const MASK: u16 = 16;
    const OTHERS: u16 = 32;
    let none = u32::MAX;
    let entries = [(OWNER, 7u16, none), (USER, 5, 1000), (USER, 0, 1001), (GROUP, 4, none), (MASK, 5, none), (OTHERS, 4, none)];
    let mut list = 2u32.to_le_bytes().to_vec();
    for (tag, permissions, id) in entries {
        list.extend(tag.to_le_bytes());
        list.extend(permissions.to_le_bytes());
        list.extend(id.to_le_bytes());
    }
    actor.file(&format!("{base}/with-acl"), b"contents");
    actor.mkdir(&format!("{base}/dir-with-acl"));
    for (path, name) in [("with-acl", "system.posix_acl_access"), ("dir-with-acl", "system.posix_acl_access"), ("dir-with-acl", "system.posix_acl_default")] {
        let inode = actor.inode(&format!("{base}/{path}"));
        actor.fs.setxattr(inode, name.as_bytes(), &list, XattrMode::Any).unwrap_or_else(|error| panic!("{name} of {path}: {error}"));
    }
}
