//! The groups and capabilities of a request's caller, which the kernel leaves out, from `/proc`.
//!
//! # Theory
//! A request names its thread and the thread's file-system user and group. The thread waits for the answer, so it is
//! still there. Capabilities count where the daemon is: in a user namespace of its own every process has all of them. A
//! thread that cannot be seen from here (in a process namespace beside ours) has the rights of its user: the superuser
//! all, others none.

use std::fs;

use fuse::Context;

/// The capability to see and change what is the administrator's.
pub(super) const CAP_SYS_ADMIN: u32 = 21;
/// The capability to keep set-id bits.
pub(super) const CAP_FSETID: u32 = 4;

/// What a thread may do, beyond what its user and its first group may.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Rights {
    pub(super) groups: Vec<u32>,
    capabilities: u64,
}

impl Rights {
    /// The rights of the thread that sent a request. Costs some system calls, so it is for rare requests only.
    pub(super) fn of(cx: &Context) -> Rights {
        let thread = |file: &str| format!("/proc/{}/{file}", cx.pid);
        let known =
            fs::read_to_string(thread("status")).ok().filter(|_| cx.pid != 0).and_then(|status| Rights::parse(&status, cx.uid));
        let Some(mut rights) = known else {
            return Rights { groups: Vec::new(), capabilities: if cx.uid == 0 { !0 } else { 0 } };
        };
        let is_ours = |theirs| fs::read_link("/proc/self/ns/user").is_ok_and(|ours| ours == theirs);
        if !fs::read_link(thread("ns/user")).is_ok_and(is_ours) {
            rights.capabilities = 0;
        }
        rights
    }

    /// From the text of `/proc/THREAD/status`; `None` if it is of a thread of another user.
    fn parse(status: &str, uid: u32) -> Option<Rights> {
        let words =
            |name: &str| status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).map(str::split_whitespace);
        // The numbers are the real, effective, saved and file-system user.
        if words("Uid")?.nth(3)?.parse() != Ok(uid) {
            return None;
        }
        let groups = words("Groups")?.filter_map(|group| group.parse().ok()).collect();
        Some(Rights { groups, capabilities: u64::from_str_radix(words("CapEff")?.next()?, 16).ok()? })
    }

    pub(super) fn has(&self, capability: u32) -> bool {
        self.capabilities & 1 << capability != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rights_are_read_of_the_right_thread_only() {
        let status = "Name:\tsh\nUid:\t0\t7\t7\t7\nGid:\t1\t1\t1\t1\nGroups:\t4 24 1000 \nCapEff:\t0000000000200000\n";
        let rights = Rights::parse(status, 7).unwrap();
        assert_eq!(
            (rights.groups.as_slice(), rights.has(CAP_SYS_ADMIN), rights.has(CAP_FSETID)),
            (&[4, 24, 1000][..], true, false)
        );
        assert_eq!((Rights::parse(status, 0), Rights::parse("", 0), Rights::parse("Uid:\t1\n", 1)), (None, None, None));
        let unseen = |uid| Rights::of(&Context { unique: 0, uid, gid: uid, pid: 0, other_group: None });
        assert!(unseen(0).has(CAP_FSETID) && !unseen(7).has(CAP_FSETID));
    }
}
