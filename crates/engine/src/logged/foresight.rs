//! What the reads of one object foresee.
//!
//! # Theory
//! A read that begins where an earlier one ended makes a *stream*, which goes on forward; three reads at the same distance from each other, forward or backward, make one
//! that goes on in *steps*. A further read that a stream expected moves it, and a window before it is asked for, which doubles from request to request. There are several
//! streams, as several readers of one file have one each. A kernel asks in several pieces at once, and they arrive in any order: a stream
//! remembers pieces before its position until the gap is filled, and is given up when they are too many.
//!
//! A read that no stream expects is *lone*: it is remembered for a while, and nothing is asked for. A stream that is given up although the most of what was asked for it was not
//! read raises the *doubt*: streams of this object have to go on for longer before anything is asked for.
//!
//! All of it is about offsets. What is in memory already is not asked for again, which others see to ([`crate::dmu::Dnode::prefetch`]).

use std::ops::Range;

use crate::arc::Foreseen;

/// Streams of one object.
const STREAMS_MAX: usize = 8;
/// Lone reads that are remembered.
const LONE_MAX: usize = 8;
/// Of these, the ones that may have been the last but one of three at the same distance.
const LONE_NEAR: usize = 4;
/// Pieces that a stream remembers before its position.
const PIECES_MAX: usize = 8;
/// How far before its position a stream expects pieces, and how far behind it pieces that are late.
const REORDER_BYTES: u64 = 2 << 20;
/// How much the length of a step may differ from that of another: programs read bytes, a kernel asks for pages.
const STEP_SLACK: u64 = 4096;
/// The smallest window.
const WINDOW_MIN: u64 = 256 << 10;
/// Steps in a window.
const STEPS_MAX: u64 = 64;
/// At most 2^6 reads before anything is asked for.
const DOUBT_MAX: u32 = 6;

/// Where a stream goes.
#[derive(Debug)]
enum Way {
    /// All up to `position` was read, and what the pieces say.
    Forward { position: u64, pieces: Vec<Range<u64>> },
    /// The last of `count` steps from `origin` was at `last`; each reads `length` bytes.
    Steps { origin: u64, last: u64, count: u64, length: u64 },
}

#[derive(Debug)]
struct Stream {
    way: Way,
    window: u64,
    /// What was asked for: up to this offset, or to this step.
    reached: u64,
    /// Bytes asked for.
    asked: u64,
    /// Reads that moved it.
    moves: u32,
    /// The number of the last read that it expected.
    used_at: u64,
}

/// What reads of one object were like.
#[derive(Debug, Default)]
pub(super) struct Foresight {
    streams: Vec<Stream>,
    /// The newest is the last.
    lone: Vec<Range<u64>>,
    doubt: u32,
    reads: u64,
}

/// The object that is read.
#[derive(Debug, Clone, Copy)]
pub(super) struct Extent {
    /// Bytes of it.
    pub(super) size: u64,
    /// Bytes of a block.
    pub(super) block: u64,
    /// The largest window.
    pub(super) window_max: u64,
}

impl Foresight {
    /// There is a read of `range`: what it was, and what is to be asked for.
    pub(super) fn read(&mut self, range: Range<u64>, of: Extent) -> (Foreseen, Vec<Range<u64>>) {
        self.reads += 1;
        if let Some(expected) = self.expected(&range, of, false) {
            return expected;
        }
        if let Some(way) = self.forward_from(&range) {
            return self.begun(way, of);
        }
        // Streams that lie at the same distance from each other look like steps: reads of steps are remembered, too.
        if self.lone.len() == LONE_MAX {
            self.lone.remove(0);
        }
        self.lone.push(range.clone());
        if let Some(expected) = self.expected(&range, of, true) {
            return expected;
        }
        match self.steps_from(&range) {
            Some(way) => self.begun(way, of),
            None => (Foreseen::Miss, Vec::new()),
        }
    }

    /// Moves the stream that expected this read.
    fn expected(&mut self, range: &Range<u64>, of: Extent, in_steps: bool) -> Option<(Foreseen, Vec<Range<u64>>)> {
        for at in 0..self.streams.len() {
            if matches!(self.streams[at].way, Way::Steps { .. }) != in_steps {
                continue;
            }
            if let Some((what, moved)) = self.streams[at].expects(range) {
                self.streams[at].used_at = self.reads;
                let asks = if moved { self.moved(at, of) } else { Vec::new() };
                if self.streams[at].is_lost() {
                    self.give_up(at, of);
                }
                return Some((what, asks));
            }
        }
        None
    }

    /// This read begins a stream.
    fn begun(&mut self, way: Way, of: Extent) -> (Foreseen, Vec<Range<u64>>) {
        let is_full = self.begin(way, of);
        (if is_full { Foreseen::Full } else { Foreseen::Miss }, self.moved(self.streams.len() - 1, of))
    }

    /// The way of a stream of which this read is the second one.
    fn forward_from(&mut self, range: &Range<u64>) -> Option<Way> {
        let forward = |position| Way::Forward { position, pieces: Vec::new() };
        // Most who read the beginning first read all of it.
        if range.start == 0 && self.reads == 1 {
            return Some(forward(range.end));
        }
        let at = self.lone.iter().position(|lone| lone.end == range.start)?;
        self.lone.remove(at);
        Some(forward(range.end))
    }

    /// The way of one of which this read, the newest that is remembered, is the third one.
    fn steps_from(&self, range: &Range<u64>) -> Option<Way> {
        for middle in self.lone.iter().rev().skip(1).take(LONE_NEAR) {
            let step = range.start.abs_diff(middle.start);
            let first = if range.start > middle.start { middle.start.checked_sub(step) } else { middle.start.checked_add(step) };
            let slack = STEP_SLACK.min(step / 4);
            let is_first = |lone: &Range<u64>| first.is_some_and(|first| lone.start.abs_diff(first) <= slack);
            if step > 0 && let Some(origin) = self.lone.iter().find(|lone| is_first(lone)).map(|lone| lone.start) {
                return Some(Way::Steps { origin, last: range.start, count: 2, length: range.end - range.start });
            }
        }
        None
    }

    /// Begins a stream; `true`: another one had to go for it.
    fn begin(&mut self, way: Way, of: Extent) -> bool {
        let is_full = self.streams.len() == STREAMS_MAX;
        if is_full && let Some((oldest, _)) = self.streams.iter().enumerate().min_by_key(|(_, stream)| stream.used_at) {
            self.give_up(oldest, of);
        }
        let reached = if let Way::Steps { count, .. } = way { count } else { 0 };
        self.streams.push(Stream { way, window: 0, reached, asked: 0, moves: 0, used_at: self.reads });
        is_full
    }

    fn give_up(&mut self, at: usize, of: Extent) {
        let stream = self.streams.swap_remove(at);
        if stream.asked > 0 && stream.unread(of) > stream.asked / 2 {
            self.doubt = (self.doubt + 1).min(DOUBT_MAX);
        }
    }

    /// A stream was moved: what is to be asked for.
    fn moved(&mut self, at: usize, of: Extent) -> Vec<Range<u64>> {
        let stream = &mut self.streams[at];
        stream.moves = stream.moves.saturating_add(1);
        // Three reads at the same distance may be chance.
        let at_first = u32::from(matches!(stream.way, Way::Steps { .. }));
        let wanted = at_first + (1 << self.doubt);
        if stream.moves < wanted || of.window_max == 0 {
            return Vec::new();
        }
        if stream.moves == 4 * wanted {
            self.doubt = self.doubt.saturating_sub(1);
        }
        let asks = stream.ask(of);
        stream.asked += asks.iter().map(|ask| ask.end - ask.start).sum::<u64>();
        asks
    }
}

impl Stream {
    /// What this read is to the stream, and whether it moves it; `None`: it was not expected.
    fn expects(&mut self, range: &Range<u64>) -> Option<(Foreseen, bool)> {
        match &mut self.way {
            Way::Forward { position, pieces } => {
                if range.start > position.saturating_add(REORDER_BYTES) || range.end.saturating_add(REORDER_BYTES) < *position {
                    return None;
                }
                if range.start > *position {
                    let is_moved = add_piece(position, pieces, range);
                    return Some((Foreseen::Future, is_moved));
                }
                if range.end <= *position {
                    return Some((Foreseen::Past, false));
                }
                *position = range.end;
                catch_up(position, pieces);
                Some((Foreseen::Hit, true))
            }
            Way::Steps { origin, last, count, length } => {
                let next = step_at(*origin, *last, *count, *count + 1)?;
                let slack = STEP_SLACK.min(last.abs_diff(*origin) / *count / 4);
                if range.start.abs_diff(next) > slack {
                    return None;
                }
                (*last, *length, *count) = (range.start, range.end - range.start, *count + 1);
                Some((Foreseen::Stride, true))
            }
        }
    }

    /// Its pieces do not become one.
    fn is_lost(&self) -> bool {
        matches!(&self.way, Way::Forward { pieces, .. } if pieces.len() > PIECES_MAX)
    }

    /// Bytes that were asked for and not read.
    fn unread(&self, of: Extent) -> u64 {
        match &self.way {
            Way::Forward { position, .. } => self.reached.saturating_sub(*position),
            Way::Steps { count, length, .. } => self.reached.saturating_sub(*count).saturating_mul((*length).max(of.block)),
        }
    }

    /// What is to be asked for now. Not for less than half a window, so that there is one request for many reads.
    fn ask(&mut self, of: Extent) -> Vec<Range<u64>> {
        let window = (self.window * 2).max(WINDOW_MIN).min(of.window_max);
        match self.way {
            Way::Forward { position, .. } => {
                let (from, to) = (self.reached.max(position), position.saturating_add(window).min(of.size));
                if to <= from || (to - from < window / 2 && to != of.size) {
                    return Vec::new();
                }
                (self.window, self.reached) = (window, to);
                std::iter::once(from..to).collect()
            }
            Way::Steps { origin, last, count, length } => {
                let step = last.abs_diff(origin) / count;
                let each = if step > of.block { length.max(of.block) } else { step.max(1) };
                let ahead = if step > of.block { (window / each).clamp(1, STEPS_MAX) } else { window.div_ceil(each) };
                let (from, to) = (self.reached.max(count) + 1, count + ahead);
                if to < from || to - from + 1 < ahead.div_ceil(2) {
                    return Vec::new();
                }
                (self.window, self.reached) = (window, to);
                let place = |number| step_at(origin, last, count, number).map(|at| at..at.saturating_add(length).min(of.size)).filter(|place| !place.is_empty());
                if step > of.block {
                    return (from..=to).map_while(place).collect();
                }
                // They lie in the same blocks, and the last of them may not be there.
                let end = place(to).unwrap_or(if last < origin { 0..length } else { of.size..of.size });
                place(from).map(|begin| begin.start.min(end.start)..begin.end.max(end.end)).into_iter().collect()
            }
        }
    }
}

/// Where the step of this number is, when the one of number `count` is at `last`.
fn step_at(origin: u64, last: u64, count: u64, number: u64) -> Option<u64> {
    let distance = u128::from(last.abs_diff(origin)) * u128::from(number) / u128::from(count.max(1));
    let distance = u64::try_from(distance).ok()?;
    if last >= origin { origin.checked_add(distance) } else { origin.checked_sub(distance) }
}

/// Takes pieces that begin where all was read.
fn catch_up(position: &mut u64, pieces: &mut Vec<Range<u64>>) {
    while let Some(at) = pieces.iter().position(|piece| piece.start <= *position) {
        *position = (*position).max(pieces.swap_remove(at).end);
    }
}

/// Remembers a piece before the position. Where the most of what lies before a piece is there, the rest is not waited for: the reader had it already. `true`: the
/// position moved.
fn add_piece(position: &mut u64, pieces: &mut Vec<Range<u64>>, range: &Range<u64>) -> bool {
    match pieces.iter_mut().find(|piece| piece.start <= range.end && range.start <= piece.end) {
        Some(piece) => *piece = piece.start.min(range.start)..piece.end.max(range.end),
        None => pieces.push(range.clone()),
    }
    let end = pieces.iter().map(|piece| piece.end).max().unwrap_or(*position);
    let bytes: u64 = pieces.iter().map(|piece| piece.end - piece.start).sum();
    if bytes < (end - *position) / 4 * 3 {
        return false;
    }
    *position = end;
    pieces.clear();
    true
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    use rand::{Rng, SeedableRng};
    use rand_chacha::ChaCha8Rng;

    const MB: u64 = 1 << 20;
    const OF: Extent = Extent { size: 1 << 30, block: 128 << 10, window_max: 8 * MB };

    /// Does reads; how many of them were of blocks that had been asked for, how many there were, and how many bytes were asked for.
    fn run(reads: impl IntoIterator<Item = Range<u64>>) -> (usize, usize, u64) {
        let (mut foresight, mut asked, mut hits, mut count) = (Foresight::default(), BTreeSet::new(), 0, 0);
        let blocks = |range: &Range<u64>| range.start / OF.block..range.end.div_ceil(OF.block);
        for read in reads {
            count += 1;
            hits += usize::from(blocks(&read).all(|block| asked.contains(&block)));
            asked.extend(foresight.read(read, OF).1.iter().flat_map(blocks));
            assert!(foresight.streams.len() <= STREAMS_MAX && foresight.lone.len() <= LONE_MAX);
        }
        (hits, count, asked.len() as u64 * OF.block)
    }

    fn reads_of(length: u64, starts: impl Iterator<Item = u64>) -> impl Iterator<Item = Range<u64>> {
        starts.map(move |start| start..start + length)
    }

    #[test]
    fn what_goes_on_is_foreseen() {
        let cases: [(&str, Vec<Range<u64>>); 7] = [
            ("forward", reads_of(32 << 10, (0..1000).map(|n| n << 15)).collect()),
            ("forward from the middle", reads_of(32 << 10, (0..1000).map(|n| 100 * MB + (n << 15))).collect()),
            ("backward", reads_of(32 << 10, (0..1000).rev().map(|n| n << 15)).collect()),
            ("strided", reads_of(4 << 10, (0..200).map(|n| n * MB)).collect()),
            ("strided backward, with pages as a kernel asks for them", reads_of(4 << 10, (0..200).rev().map(|n| n * 1_000_000 / 4096 * 4096)).collect()),
            ("strided within blocks", reads_of(4 << 10, (0..1000).map(|n| n << 14)).collect()),
            ("four streams", (0..1000).flat_map(|n| (0..4).map(move |stream| (stream * 200 * MB + (n << 15))..(stream * 200 * MB + (n << 15) + (32 << 10)))).collect()),
        ];
        for (name, reads) in cases {
            let touched = reads.iter().map(|read| read.start / OF.block).collect::<BTreeSet<_>>().len() as u64 * OF.block;
            let (hits, count, asked) = run(reads);
            assert!(hits * 100 >= count * 95, "{name}: {hits} of {count}");
            assert!(asked <= touched + 4 * OF.window_max, "{name}: {} MB for {} MB", asked / MB, touched / MB);
        }
    }

    /// A kernel asks in pieces, from several threads.
    #[test]
    fn pieces_in_any_order_are_a_stream() {
        let mut random = ChaCha8Rng::seed_from_u64(7);
        let mut reads: Vec<_> = reads_of(128 << 10, (0..1000).map(|n| n << 17)).collect();
        for at in 1..reads.len() {
            reads.swap(at, at.saturating_sub(random.random_range(0..4)));
        }
        let (hits, count, _) = run(reads);
        assert!(hits * 100 >= count * 90, "{hits} of {count}");
    }

    #[test]
    fn what_is_read_at_random_is_not() {
        for size in [8 * MB, 64 * MB, 1 << 30] {
            let mut random = ChaCha8Rng::seed_from_u64(size);
            let (_, count, asked) = run(reads_of(4096, (0..5000).map(|_| random.random_range(0..size / 4096) * 4096)));
            // Of all that the reads would have asked for, one by one, with the smallest window.
            assert!(asked.min(size) * 20 <= count as u64 * WINDOW_MIN, "{} MB asked in {} MB", asked / MB, size / MB);
        }
    }

    /// Pairs of reads that go on no further.
    #[test]
    fn it_stops_when_it_is_of_no_use() {
        let mut random = ChaCha8Rng::seed_from_u64(7);
        let pairs: Vec<u64> = (0..5000).map(|_| random.random_range(0..(1 << 30) / 4096 - 2) * 4096).collect();
        let (_, _, asked) = run(pairs.iter().flat_map(|at| [*at..at + 4096, at + 4096..at + 8192]));
        assert!(asked < 16 * MB, "{} MB", asked / MB);
        // And begins again.
        let long = reads_of(32 << 10, (0..1000).map(|n| n << 15));
        let (hits, count, _) = run(pairs.iter().take(100).flat_map(|at| [*at..at + 4096, at + 4096..at + 8192]).chain(long));
        assert!(hits >= (count - 200) * 9 / 10, "{hits} of {count}");
    }

    #[test]
    fn the_end_and_the_largest_offsets_are_no_trouble() {
        for of in [OF, Extent { size: u64::MAX, ..OF }, Extent { size: 0, ..OF }, Extent { window_max: 0, ..OF }] {
            let mut foresight = Foresight::default();
            for start in [0, u64::MAX / 2, u64::MAX - 4, u64::MAX - 3, u64::MAX - 2, 3, 2, 1, 0, u64::MAX - 1, u64::MAX / 4, u64::MAX / 2, 0, 1 << 63] {
                let (_, asks) = foresight.read(start..start.saturating_add(1), of);
                assert!(asks.iter().all(|ask| ask.start < ask.end && ask.end <= of.size), "{asks:?}");
            }
        }
    }
}
