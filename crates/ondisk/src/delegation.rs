//! What a directory grants to users: the keys of its dictionary of permissions.
//!
//! # On disk
//! [`DirPhys::delegations`](crate::dsl::DirPhys::delegations) names a ZAP. Each of its keys says to whom something is granted and where, and
//! names a ZAP whose keys are the permissions; their values are 0 and mean nothing. A key is a letter for the kind of grantee, one for the
//! reach, `$`, and the grantee: `ul$1000`, `gd$7`, `el$`. Permissions that are themselves sets of permissions (`@name`) are kept apart:
//! the first letter is a capital then.

/// The longest name of a set of permissions, with its `@`.
#[doc(alias = "ZFS_PERMSET_MAXLEN")]
pub const SET_NAME_BYTES_MAX: usize = 63;

/// To whom, or under which name, something is granted.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Grantee {
    /// A set of that name, which begins with `@`.
    Set(String),
    /// The creator of a dataset, on that.
    Creator,
    /// A user, by number.
    User(u64),
    /// A group, by number.
    Group(u64),
    /// All users.
    Everyone,
}

/// Where what is granted is so.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Reach {
    /// On this dataset.
    Local,
    /// On those below it, and on snapshots.
    Descendent,
    /// It is not said: of sets, and of creators.
    Unsaid,
}

/// One key.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct GrantKey {
    /// To whom.
    pub to: Grantee,
    /// Where.
    pub reach: Reach,
    /// What it grants are sets of permissions.
    pub of_sets: bool,
}

impl GrantKey {
    /// The key that has this name; `None`: no program of ours or OpenZFS's writes such a key.
    pub fn parse(name: &str) -> Option<GrantKey> {
        let (letters, who) = name.split_once('$')?;
        let mut letters = letters.chars();
        let (kind, reach) = (letters.next()?, letters.next()?);
        if letters.next().is_some() {
            return None;
        }
        let to = match kind.to_ascii_lowercase() {
            'u' => Grantee::User(who.parse().ok()?),
            'g' => Grantee::Group(who.parse().ok()?),
            'e' => Grantee::Everyone,
            's' => Grantee::Set(who.to_owned()),
            'c' => Grantee::Creator,
            _ => return None,
        };
        let reach = match reach {
            'l' => Reach::Local,
            'd' => Reach::Descendent,
            _ => Reach::Unsaid,
        };
        Some(GrantKey { to, reach, of_sets: kind.is_ascii_uppercase() })
    }

    /// The name of the key.
    pub fn name(&self) -> String {
        let (kind, who) = match &self.to {
            Grantee::User(user) => ('u', user.to_string()),
            Grantee::Group(group) => ('g', group.to_string()),
            Grantee::Everyone => ('e', String::new()),
            Grantee::Set(name) => ('s', name.clone()),
            Grantee::Creator => ('c', String::new()),
        };
        let kind = if self.of_sets { kind.to_ascii_uppercase() } else { kind };
        let reach = match self.reach {
            _ if matches!(self.to, Grantee::Set(_) | Grantee::Creator) => '-',
            Reach::Local => 'l',
            Reach::Descendent => 'd',
            Reach::Unsaid => '-',
        };
        format!("{kind}{reach}${who}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_say_to_whom_and_where() {
        let key = |to, reach, of_sets| Some(GrantKey { to, reach, of_sets });
        assert_eq!(GrantKey::parse("ul$1000"), key(Grantee::User(1000), Reach::Local, false));
        assert_eq!(GrantKey::parse("Gd$7"), key(Grantee::Group(7), Reach::Descendent, true));
        assert_eq!(GrantKey::parse("s-$@basic"), key(Grantee::Set("@basic".to_owned()), Reach::Unsaid, false));
        assert_eq!(GrantKey::parse("c-$"), key(Grantee::Creator, Reach::Unsaid, false));
        assert_eq!(GrantKey::parse("el$"), key(Grantee::Everyone, Reach::Local, false));
        for wrong in ["", "u$1", "ul$x", "zz$1", "uld$1", "$", "ul1"] {
            assert_eq!(GrantKey::parse(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn names_of_keys_are_read_again() {
        for name in ["ul$0", "Ud$18446744073709551615", "gl$7", "S-$@a", "s-$@b", "C-$", "c-$", "Ed$", "el$"] {
            assert_eq!(GrantKey::parse(name).unwrap().name(), name);
        }
    }
}
