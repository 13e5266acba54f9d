//! Options for sharing: OpenZFS's are understood, and kept; nothing is shared.

/// The export options of Linux's NFS server, as OpenZFS passes them on; those of the second list take a value.
const NFS_SWITCHES: [&str; 27] = [
    "ro",
    "rw",
    "secure",
    "insecure",
    "async",
    "sync",
    "wdelay",
    "no_wdelay",
    "hide",
    "nohide",
    "crossmnt",
    "subtree_check",
    "no_subtree_check",
    "nosub",
    "secure_locks",
    "insecure_locks",
    "auth_nlm",
    "no_auth_nlm",
    "no_acl",
    "mountpoint",
    "mp",
    "root_squash",
    "no_root_squash",
    "all_squash",
    "no_all_squash",
    "pnfs",
    "security_label",
];
const NFS_VALUES: [&str; 13] =
    ["ro", "rw", "sec", "anon", "anonuid", "anongid", "root_mapping", "fsid", "fsuid", "refer", "replicas", "mountpoint", "mp"];

/// Is this a value of `sharenfs`?
pub(crate) fn is_nfs(text: &str) -> bool {
    let is_option = |option: &str| match option.split_once('=') {
        Some((name, value)) => !value.is_empty() && NFS_VALUES.contains(&name),
        None => NFS_SWITCHES.contains(&option),
    };
    let mut options = text.split(',').filter(|option| !option.is_empty()).peekable();
    matches!(text, "on" | "off") || (options.peek().is_some() && options.all(is_option))
}

/// Is this a value of `sharesmb`?
pub(crate) fn is_smb(text: &str) -> bool {
    matches!(text, "on" | "off")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_of_exports_are_known() {
        for good in ["on", "off", "rw", "ro,no_root_squash", "rw=@10.0.0.0/24:host,async", "sec=sys:krb5,rw,anon=0", ",rw,"] {
            assert!(is_nfs(good), "{good}");
        }
        for bad in ["", ",", "ON", "sss", "junk,,,", "rw,junk", "rw=", "sync=1"] {
            assert!(!is_nfs(bad), "{bad}");
        }
        assert!(is_smb("on") && is_smb("off") && !is_smb("") && !is_smb("name=x"));
    }
}
