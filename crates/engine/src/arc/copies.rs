//! What the cache has of one block: its bytes as they are on disk, as they are used, or both.

use std::sync::Arc;

/// Shared and never changed.
pub(super) type Data = Arc<Vec<u8>>;

/// At least one copy of a block.
#[derive(Debug, Clone)]
pub(super) enum Copies {
    /// On disk it is as it is used: one copy is both.
    Same(Data),
    /// As it is used. It was written just now, or what is on disk is not smaller, or is not needed.
    Plain(Data),
    /// As it is on disk.
    Physical(Data),
    /// Both.
    Both { physical: Data, plain: Data },
}

impl Copies {
    /// As the block is used: decompressed, in our byte order.
    pub(super) fn plain(&self) -> Option<&Data> {
        match self {
            Copies::Same(data) | Copies::Plain(data) | Copies::Both { plain: data, .. } => Some(data),
            Copies::Physical(_) => None,
        }
    }

    /// As the block is on disk.
    pub(super) fn physical(&self) -> Option<&Data> {
        match self {
            Copies::Same(data) | Copies::Physical(data) | Copies::Both { physical: data, .. } => Some(data),
            Copies::Plain(_) => None,
        }
    }

    /// Bytes of memory.
    pub(super) fn bytes(&self) -> u64 {
        match self {
            Copies::Same(data) | Copies::Plain(data) | Copies::Physical(data) => data.len() as u64,
            Copies::Both { physical, plain } => (physical.len() + plain.len()) as u64,
        }
    }

    /// What of it is worth its memory: what is on disk only where that is smaller.
    pub(super) fn worth_keeping(self) -> Copies {
        match self {
            Copies::Both { physical, plain } if physical.len() >= plain.len() => Copies::Plain(plain),
            copies => copies,
        }
    }

    /// Gives up the plain one of two.
    pub(super) fn give_up_plain(&mut self) -> Option<Data> {
        let Copies::Both { physical, plain } = self else { return None };
        let (physical, plain) = (Arc::clone(physical), Arc::clone(plain));
        *self = Copies::Physical(physical);
        Some(plain)
    }

    /// Gives up the physical one of two.
    pub(super) fn give_up_physical(&mut self) -> Option<Data> {
        let Copies::Both { physical, plain } = self else { return None };
        let (physical, plain) = (Arc::clone(physical), Arc::clone(plain));
        *self = Copies::Plain(plain);
        Some(physical)
    }

    /// All of it, to be dropped elsewhere.
    pub(super) fn into_data(self) -> impl Iterator<Item = Data> {
        let (first, second) = match self {
            Copies::Same(data) | Copies::Plain(data) | Copies::Physical(data) => (data, None),
            Copies::Both { physical, plain } => (physical, Some(plain)),
        };
        std::iter::once(first).chain(second)
    }
}
