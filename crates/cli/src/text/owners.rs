//! Users and groups by name.

/// The name of a user, if this system knows it.
pub(crate) fn name_of_user(user: u64) -> Option<String> {
    let user = uzers::get_user_by_uid(u32::try_from(user).ok()?)?;
    user.name().to_str().map(str::to_owned)
}

/// The name of a group, if this system knows it.
pub(crate) fn name_of_group(group: u64) -> Option<String> {
    let group = uzers::get_group_by_gid(u32::try_from(group).ok()?)?;
    group.name().to_str().map(str::to_owned)
}
