//! Tables of what others keep alive.

use std::collections::HashMap;
use std::hash::{BuildHasher, Hash};
use std::sync::{Arc, Weak};

/// Puts something into a table. What is gone is swept out when the table is full, and the table then has room for as much again as is left, at least: so what one more
/// costs does not grow with the table.
pub fn insert_weak<K: Eq + Hash, V, S: BuildHasher>(table: &mut HashMap<K, Weak<V>, S>, key: K, value: &Arc<V>) {
    if table.len() == table.capacity() {
        table.retain(|_, value| value.strong_count() > 0);
        table.reserve(table.len() + 1);
    }
    table.insert(key, Arc::downgrade(value));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_gone_is_swept_out_in_time() {
        let (mut table, mut kept) = (HashMap::new(), Vec::new());
        for number in 0..10_000 {
            let value = Arc::new(number);
            insert_weak(&mut table, number, &value);
            if number % 100 == 0 {
                kept.push(value);
            }
            assert!(table.len() <= 8 * kept.len() + 8, "{number}: {} of {}", table.len(), kept.len());
        }
        assert!(kept.iter().all(|value| table[&**value].upgrade().is_some()));
    }
}
