//! The caller of a request.

use std::sync::Arc;

use engine::dsl::{Acting, Actor, Identity, act_as};

/// The user that asks, as the kernel says it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Caller {
    /// The user and its groups, which a pool may grant permissions to.
    pub identity: Identity,
    /// Everything is allowed: root, and the user whose pools they are.
    pub is_superuser: bool,
}

impl Caller {
    /// A caller who may do everything.
    pub fn superuser(user: u64) -> Caller {
        Caller { identity: Identity { user, groups: Vec::new() }, is_superuser: true }
    }

    /// A caller who may do what is granted.
    pub fn delegate(user: u64, groups: Vec<u64>) -> Caller {
        Caller { identity: Identity { user, groups }, is_superuser: false }
    }

    /// The calling thread works for this caller until what is returned is dropped.
    #[must_use]
    pub fn act(&self) -> Acting {
        act_as(Arc::new(Actor { identity: self.identity.clone(), is_superuser: self.is_superuser }))
    }
}

impl Default for Caller {
    fn default() -> Caller {
        Caller::superuser(0)
    }
}
