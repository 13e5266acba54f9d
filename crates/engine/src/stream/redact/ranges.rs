//! Sorted ranges of blocks of objects, and what two of them have in common.

/// A place: an object and a block of it.
type Place = (u64, u64);

/// From one place to another, both in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Range {
    pub(super) first: Place,
    pub(super) last: Place,
}

impl Range {
    /// Blocks of one object.
    pub(super) fn of_object(object: u64, first: u64, last: u64) -> Range {
        Range { first: (object, first), last: (object, last) }
    }

    /// Whether `next` begins where this one ends.
    fn goes_on_in(&self, next: &Range) -> bool {
        let (object, block) = self.last;
        match block.checked_add(1) {
            Some(after) => next.first == (object, after),
            None => object.checked_add(1) == Some(next.first.0) && next.first.1 == 0,
        }
    }
}

/// Ranges in their order, none within or next to another.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Ranges(Vec<Range>);

impl Ranges {
    /// All blocks of all objects.
    pub(super) fn all() -> Ranges {
        Ranges(vec![Range { first: (1, 0), last: (u64::MAX, u64::MAX) }])
    }

    /// Takes the next range. What is not behind all others was there already.
    pub(super) fn push(&mut self, range: Range) {
        match self.0.last_mut() {
            Some(last) if last.goes_on_in(&range) => last.last = range.last,
            Some(last) if range.first <= last.last => last.last = last.last.max(range.last),
            _ => self.0.push(range),
        }
    }

    /// What is in both.
    pub(super) fn common(&self, other: &Ranges) -> Ranges {
        let mut common = Ranges::default();
        let (mut ours, mut theirs) = (self.0.iter().peekable(), other.0.iter().peekable());
        while let (Some(a), Some(b)) = (ours.peek(), theirs.peek()) {
            let (first, last) = (a.first.max(b.first), a.last.min(b.last));
            if first <= last {
                common.push(Range { first, last });
            }
            if a.last <= b.last { ours.next() } else { theirs.next() };
        }
        common
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Range> {
        self.0.iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ranges(all: &[(u64, u64, u64)]) -> Ranges {
        let mut ranges = Ranges::default();
        all.iter().for_each(|(object, first, last)| ranges.push(Range::of_object(*object, *first, *last)));
        ranges
    }

    #[test]
    fn neighbours_become_one() {
        assert_eq!(ranges(&[(2, 0, 3), (2, 4, 7), (2, 9, 9)]), ranges(&[(2, 0, 7), (2, 9, 9)]));
        assert_eq!(ranges(&[(2, 5, u64::MAX), (3, 0, u64::MAX)]).0, [Range { first: (2, 5), last: (3, u64::MAX) }]);
        assert_eq!(ranges(&[(2, 0, 9), (2, 4, 5), (2, 8, 12)]), ranges(&[(2, 0, 12)]), "what was there already");
    }

    #[test]
    fn only_what_is_in_both_is_common() {
        let ours = ranges(&[(2, 0, 9), (2, 20, 29), (4, 0, u64::MAX)]);
        let theirs = ranges(&[(1, 0, 5), (2, 5, 24), (3, 0, 7), (4, 7, 8), (4, 10, 11)]);
        assert_eq!(ours.common(&theirs), ranges(&[(2, 5, 9), (2, 20, 24), (4, 7, 8), (4, 10, 11)]));
        assert_eq!(ours.common(&Ranges::all()), ours);
        assert_eq!(ours.common(&Ranges::default()), Ranges::default());
    }

    /// Block by block it is the same.
    #[test]
    fn what_is_common_is_what_blocks_say() {
        let mut random = 7u64;
        let mut next = |end: u64| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (random >> 33) % end
        };
        for _ in 0..200 {
            let mut some = || {
                let (mut all, mut at) = (Vec::new(), 0);
                for _ in 0..next(6) {
                    let first = at + next(4);
                    let last = first + next(5);
                    all.push((1, first, last));
                    at = last + 1;
                }
                ranges(&all)
            };
            let (a, b) = (some(), some());
            let has = |ranges: &Ranges, block: u64| ranges.iter().any(|range| (range.first.1..=range.last.1).contains(&block));
            let common = a.common(&b);
            assert!((0..70).all(|block| has(&common, block) == (has(&a, block) && has(&b, block))), "{a:?} {b:?} {common:?}");
        }
    }
}
