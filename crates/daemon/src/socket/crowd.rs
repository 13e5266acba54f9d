//! How many connections those may have whom the daemon need not listen to.
//!
//! # Theory
//! A connection costs a thread. Root, and the user whose daemon it is, may have as many as there are; anybody else may have few, and all of them
//! together may not keep root from being heard.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;

/// Most connections of one user.
const OF_ONE_MAX: usize = 16;
/// Most connections of all of them.
const OF_ALL_MAX: usize = 64;

/// The connections of each user.
#[derive(Debug, Clone, Default)]
pub(super) struct Crowd(Arc<Mutex<BTreeMap<u32, usize>>>);

/// One of them, while it lasts.
#[derive(Debug)]
pub(super) struct Place {
    crowd: Crowd,
    user: u32,
}

impl Crowd {
    /// One more; `None`: there are too many.
    pub(super) fn enter(&self, user: u32) -> Option<Place> {
        let mut counts = self.0.lock();
        let (all, own) = (counts.values().sum::<usize>(), counts.get(&user).copied().unwrap_or(0));
        if all >= OF_ALL_MAX || own >= OF_ONE_MAX {
            return None;
        }
        counts.insert(user, own + 1);
        Some(Place { crowd: self.clone(), user })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut counts = self.crowd.0.lock();
        if let Some(count) = counts.get_mut(&self.user) {
            *count -= 1;
            if *count == 0 {
                counts.remove(&self.user);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_takes_all_places() {
        let crowd = Crowd::default();
        let mut places: Vec<_> = (0..OF_ONE_MAX).map(|_| crowd.enter(7).unwrap()).collect();
        assert!(crowd.enter(7).is_none());
        for user in 8..8 + (OF_ALL_MAX - OF_ONE_MAX) as u32 {
            places.push(crowd.enter(user).unwrap());
        }
        assert!(crowd.enter(1000).is_none());
        places.pop();
        assert!(crowd.enter(1000).is_some());
        drop(places);
        assert!(crowd.0.lock().is_empty());
    }
}
