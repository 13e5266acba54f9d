//! A read of a mapped I/O: which sides to ask, what is right, and which side was wrong.
//!
//! # Theory
//! At first the best side of each column of data is asked, another one of it where that fails, and parity only in place
//! of columns that no side has, or whose device is so slow that it sits out. While the checksum is right, that is all. Else every other side is asked, those last
//! that have missed what is wanted, and what was given is combined: for each column of data one of the answers, or what
//! parity makes of the other columns. Combinations that rebuild few columns are tried first.
//!
//! With the right bytes known each answer is compared with them. A checksum may leave out a part of a block, as that of
//! an intent log does: an answer that differs is right too, if it is so in the place of what is known to be right.
//!
//! # Invariants
//! 1. A side is asked once, so that the conversation ends.
//! 2. At most [`COMBINATIONS_MAX`] combinations are tried each time that something new is known.

use std::borrow::Cow;
use std::ops::Range;

use transform::parity;

use super::{Column, Content, IoMap, LeafId, Position, Row, Side, View, mirror};

/// The most combinations of answers that are tried: a checksum of each is computed.
const COMBINATIONS_MAX: usize = 4096;

/// A question to a leaf.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ask {
    /// Which side of which column.
    pub at: Position,
    /// The answer may be put where it belongs in the buffer ([`Answer::InPlace`]).
    pub in_place: bool,
}

/// What came back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// The column, which is in its place in the buffer.
    InPlace,
    /// The column.
    Bytes(Vec<u8>),
    /// It could not be read.
    Failed,
}

/// What is known of a side when the right bytes are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// It was not asked.
    NotAsked,
    /// It gave what is right.
    Right,
    /// It gave something else.
    Wrong,
    /// It gave nothing.
    Missing,
}

/// Whom to ask next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// As few sides as can have everything.
    Few,
    /// All others that should have it.
    Others,
    /// Those that have missed it.
    Stale,
    Over,
}

#[derive(Debug)]
struct Known {
    at: Position,
    view: View,
    answer: Option<Answer>,
}

/// The state of a read. It is told of the same map each time.
#[derive(Debug)]
pub struct Reading {
    offset: u64,
    sides: Vec<Known>,
    stage: Stage,
}

/// Where the bytes of a column come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Pick {
    /// This answer.
    Given(usize),
    /// Parity and the other columns.
    Rebuilt,
    /// It is parity that is not needed, or zeros.
    Unused,
}

/// What may be wrong as a whole.
#[derive(Debug, Clone, Copy)]
enum Suspect {
    /// A leaf.
    Leaf(LeafId),
    /// What was on one of so many children before it was moved.
    Child { width: u64, child: u64 },
}

impl Suspect {
    fn has(self, column: &Column) -> bool {
        match self {
            Suspect::Leaf(leaf) => column.sides.iter().all(|side| side.leaf == leaf),
            Suspect::Child { width, child } => column.sector % width == child,
        }
    }
}

/// The sets of so many of the first numbers.
struct Sets {
    of: usize,
    next: Option<Vec<usize>>,
}

impl Sets {
    fn new(of: usize, count: usize) -> Sets {
        Sets { of, next: (count <= of).then(|| (0..count).collect()) }
    }

    fn next(&mut self) -> Option<Vec<usize>> {
        let found = self.next.take()?;
        let count = found.len();
        self.next = (0..count).rev().find(|place| found[*place] + count - place < self.of).map(|place| {
            let mut next = found.clone();
            (place..count).for_each(|at| next[at] = found[place] + 1 + at - place);
            next
        });
        Some(found)
    }
}

impl Reading {
    /// A read of what `map` says of the I/O at `offset`, where each leaf is as `view` says.
    pub fn new(map: &IoMap, offset: u64, view: impl Fn(super::LeafId) -> View) -> Reading {
        let known = |(at, _, side): (Position, &Column, Side)| {
            let view = view(side.leaf);
            let view = View { missed: view.missed || side.is_stale, behind: view.behind || side.is_stale, ..view };
            Known { at, view, answer: None }
        };
        let sides = map.sides().map(known);
        Reading { offset, sides: sides.collect(), stage: Stage::Few }
    }

    /// The next sides to ask. None: what was not found is not to be had.
    pub fn next(&mut self, map: &IoMap) -> Vec<Ask> {
        if self.stage == Stage::Few {
            let asks = self.few(map);
            if !asks.is_empty() {
                return asks;
            }
            self.stage = Stage::Others;
        }
        if self.stage == Stage::Others {
            self.stage = Stage::Stale;
            let asks = self.others();
            if !asks.is_empty() {
                return asks;
            }
        }
        if self.stage == Stage::Stale {
            self.stage = Stage::Over;
            return self.unasked(|_| true);
        }
        Vec::new()
    }

    /// All sides that should have it and were not asked: of what is read from another place, or to look at all copies.
    pub fn others(&self) -> Vec<Ask> {
        self.unasked(|view| !view.missed)
    }

    fn unasked(&self, is_meant: impl Fn(&View) -> bool) -> Vec<Ask> {
        let meant = self.sides.iter().filter(|known| known.answer.is_none() && known.view.readable && is_meant(&known.view));
        meant.map(|known| Ask { at: known.at, in_place: false }).collect()
    }

    /// For each column of data of which there is nothing its best side, and as much parity as there are columns without any. A column of which every side has
    /// missed what is wanted is asked only if there is not so much parity; one that sits out, too, and before that.
    fn few(&self, map: &IoMap) -> Vec<Ask> {
        let mut asks = Vec::new();
        for (row, found) in map.rows.iter().enumerate() {
            let (mut absent, mut slow, mut stale) = (0_usize, Vec::new(), Vec::new());
            for (column, part) in found.columns.iter().enumerate() {
                let Some(range) = part.range().filter(|range| !range.is_empty()) else { continue };
                if self.of(row, column).iter().any(Known::has_bytes) {
                    continue;
                }
                let ask = self.best(row, column).map(|at| Ask { at, in_place: range.len() == part.length });
                match ask {
                    Some(ask) if found.parity() > 0 && self.has_missed(ask.at) => stale.push(ask),
                    Some(ask) if found.parity() > 0 && self.sits_out(ask.at) => slow.push(ask),
                    Some(ask) => asks.push(ask),
                    None => absent += 1,
                }
            }
            // Of parity that is slow as little as can be.
            let (mut parity, mut slow_parity) = (Vec::new(), Vec::new());
            let mut wanted = absent + stale.len() + slow.len();
            for column in 0..found.parity() {
                if self.of(row, column).iter().any(Known::has_bytes) {
                    wanted = wanted.saturating_sub(1);
                } else if let Some(at) = self.best(row, column).filter(|at| !self.has_missed(*at)) {
                    let of = if self.sits_out(at) { &mut slow_parity } else { &mut parity };
                    of.push(Ask { at, in_place: false });
                }
            }
            for group in [parity, slow, slow_parity, stale] {
                let taken = group.len().min(wanted);
                asks.extend(group.into_iter().take(taken));
                wanted -= taken;
            }
        }
        asks
    }

    /// The sides of a column are those of these indices: the map has them in order.
    fn indices(&self, row: usize, column: usize) -> Range<usize> {
        let before = |(other, of): (usize, usize)| self.sides.partition_point(|known| (known.at.row, known.at.column) < (other, of));
        before((row, column))..before((row, column + 1))
    }

    fn of(&self, row: usize, column: usize) -> &[Known] {
        &self.sides[self.indices(row, column)]
    }

    fn best(&self, row: usize, column: usize) -> Option<Position> {
        if let [only] = self.sides.as_slice() {
            return (only.answer.is_none() && only.view.readable).then_some(only.at);
        }
        let sides = self.of(row, column);
        let views: Vec<View> = sides.iter().map(|known| known.view).collect();
        mirror::best(self.offset, &views, |side| sides[side].answer.is_none()).map(|side| sides[side].at)
    }

    /// What a side gave when it was asked.
    pub fn answer(&mut self, at: Position, answer: Answer) {
        let index = self.indices(at.row, at.column).start + at.side;
        self.sides[index].answer = Some(answer);
    }

    /// Did any side give anything?
    pub fn has_any(&self) -> bool {
        self.sides.iter().any(Known::has_bytes)
    }

    /// Something else was right than what was given at first: the other sides are worth a look.
    pub fn is_suspicious(&self) -> bool {
        self.stage != Stage::Few
    }

    /// Makes the buffer what it has to be, if the answers are enough for that.
    ///
    /// # Errors
    /// Those of `verify`, which says whether the contents of the buffer are right.
    pub fn solve<E>(&mut self, map: &IoMap, buf: &mut [u8], verify: &mut dyn FnMut(&[u8]) -> Result<bool, E>) -> Result<bool, E> {
        let in_place = self.sides.iter().filter(|known| known.answer == Some(Answer::InPlace)).count();
        if in_place > 0 {
            let data = map.rows.iter().flat_map(|row| &row.columns).filter(|column| column.is_data() && !column.is_empty()).count();
            if in_place == data && verify(buf)? {
                return Ok(true);
            }
            self.take_out(map, buf);
            if in_place == data {
                // The same once more would be as wrong.
                return Ok(false);
            }
        }
        if !map.widths.is_empty() {
            return self.solve_by_children(map, buf, verify);
        }
        let Some(rows) = self.choices(map) else { return Ok(false) };
        let mut turn = vec![0; rows.len()];
        for _ in 0..COMBINATIONS_MAX {
            for ((row, choices), turn) in map.rows.iter().zip(&rows).zip(&turn) {
                self.assemble(row, &choices[*turn], buf);
            }
            if verify(buf)? {
                return Ok(true);
            }
            // The next combination, as a number whose digits are the choices.
            let Some(digit) = (0..turn.len()).find(|digit| turn[*digit] + 1 < rows[*digit].len()) else { return Ok(false) };
            turn[..digit].fill(0);
            turn[digit] += 1;
        }
        Ok(false)
    }

    /// As [`Reading::solve`], where each sector is a column: a child that is wrong is so in many rows, so children are left out together, as they are now and as they were when
    /// the vdev had fewer. Sets of few children first.
    fn solve_by_children<E>(&self, map: &IoMap, buf: &mut [u8], verify: &mut dyn FnMut(&[u8]) -> Result<bool, E>) -> Result<bool, E> {
        let mut leaves: Vec<LeafId> = map.sides().map(|(.., side)| side.leaf).collect();
        leaves.sort_unstable();
        leaves.dedup();
        let before = map.widths.iter().flat_map(|width| (0..*width).map(move |child| Suspect::Child { width: *width, child }));
        let suspects: Vec<Suspect> = leaves.into_iter().map(Suspect::Leaf).chain(before).collect();
        let parity = map.rows.iter().map(Row::parity).max().unwrap_or(0);
        let mut left = COMBINATIONS_MAX;
        for count in 0..=parity {
            let mut sets = Sets::new(suspects.len(), count);
            while let Some(set) = sets.next() {
                let is_suspect = |column: &Column| set.iter().any(|index| suspects[*index].has(column));
                let picks: Option<Vec<Vec<Pick>>> = map.rows.iter().enumerate().map(|(index, row)| self.without(index, row, &is_suspect)).collect();
                let Some(picks) = picks else { continue };
                for (row, picks) in map.rows.iter().zip(&picks) {
                    self.assemble(row, picks, buf);
                }
                if verify(buf)? {
                    return Ok(true);
                }
                left -= 1;
                if left == 0 {
                    return Ok(false);
                }
            }
        }
        Ok(false)
    }

    /// The columns of a row from what was given, but of those that are suspected. `None`: there is not enough.
    fn without(&self, index: usize, row: &Row, is_suspect: &dyn Fn(&Column) -> bool) -> Option<Vec<Pick>> {
        let given = |(column, part): (usize, &Column)| {
            let answer = self.different(index, column).first().copied();
            if part.is_empty() { Pick::Unused } else { answer.filter(|_| !is_suspect(part)).map_or(Pick::Rebuilt, Pick::Given) }
        };
        let mut picks: Vec<Pick> = row.columns.iter().enumerate().map(given).collect();
        let (parity, data) = picks.split_at_mut(row.parity());
        let mut wanted = data.iter().filter(|pick| **pick == Pick::Rebuilt).count();
        for pick in parity {
            if wanted > 0 && matches!(pick, Pick::Given(_)) {
                wanted -= 1;
            } else {
                *pick = Pick::Unused;
            }
        }
        (wanted == 0).then_some(picks)
    }

    /// The buffer is needed for combinations: what is in place in it is kept elsewhere.
    fn take_out(&mut self, map: &IoMap, buf: &[u8]) {
        for known in &mut self.sides {
            if known.answer == Some(Answer::InPlace) {
                let range = map.at(known.at).0.range().unwrap_or(0..0);
                known.answer = Some(Answer::Bytes(buf[range].to_vec()));
            }
        }
    }

    /// For each row the ways to have all its columns, those first that rebuild few. `None`: some row has no way.
    fn choices(&self, map: &IoMap) -> Option<Vec<Vec<Vec<Pick>>>> {
        let of_row = |(index, row): (usize, &Row)| {
            let given = |column| self.different(index, column);
            let columns: Vec<Vec<usize>> = (0..row.columns.len()).map(given).collect();
            let parity = (0..row.parity()).filter(|column| !columns[*column].is_empty()).count();
            let most = parity.min(row.columns.len() - row.parity());
            let mut ways = Vec::new();
            for rebuilt in 0..=most {
                pick(row, &columns, rebuilt, &mut Vec::new(), &mut ways);
            }
            Some(ways).filter(|ways| !ways.is_empty())
        };
        map.rows.iter().enumerate().map(of_row).collect()
    }

    /// The answers of a column that are not the same: indices of sides.
    fn different(&self, row: usize, column: usize) -> Vec<usize> {
        let mut found: Vec<usize> = Vec::new();
        for index in self.indices(row, column) {
            if let Some(bytes) = self.sides[index].bytes()
                && !found.iter().any(|other| self.sides[*other].bytes() == Some(bytes))
            {
                found.push(index);
            }
        }
        found
    }

    /// Puts the columns of data of a row where they belong.
    fn assemble(&self, row: &Row, picks: &[Pick], buf: &mut [u8]) {
        let given = |pick: &Pick| if let Pick::Given(index) = pick { self.sides[*index].bytes() } else { None };
        let (parity, data) = picks.split_at(row.parity());
        let columns = &row.columns[parity.len()..];
        // What lies behind the bytes of the buffer is zeros, whatever was read there.
        let own = |(pick, column): (&Pick, &Column)| {
            let length = column.range().map_or(0, |range| range.len());
            if *pick == Pick::Unused { Some(&[][..]) } else { given(pick).map(|bytes| &bytes[..length]) }
        };
        let known: Vec<Option<&[u8]>> = data.iter().zip(columns).map(own).collect();
        let mut rebuilt = if known.contains(&None) {
            let parity: Vec<(usize, &[u8])> = parity.iter().enumerate().filter_map(|(number, pick)| Some((number, given(pick)?))).collect();
            parity::rebuild(&parity, &known, columns.first().map_or(0, |column| column.length))
        } else {
            Vec::new()
        }
        .into_iter();
        for (column, known) in columns.iter().zip(known) {
            let Some(range) = column.range() else { continue };
            let bytes = known.map_or_else(|| Cow::Owned(rebuilt.next().unwrap_or_default()), Cow::Borrowed);
            let length = range.len();
            buf[range].copy_from_slice(&bytes[..length]);
        }
    }

    /// What each side is worth, where `right` is what the buffer has to be.
    pub fn verdicts<E>(&self, map: &IoMap, right: &[u8], verify: &mut dyn FnMut(&[u8]) -> Result<bool, E>) -> Vec<(Position, Verdict)> {
        let is_asked = |known: &Known| matches!(map.at(known.at).0.content, Content::Parity(_)) && known.bytes().is_some();
        let parity = if self.sides.iter().any(is_asked) { map.parity_of(right) } else { Vec::new() };
        let mut verdict = |known: &Known| match &known.answer {
            None => Verdict::NotAsked,
            Some(Answer::Failed) => Verdict::Missing,
            Some(Answer::InPlace) => Verdict::Right,
            Some(Answer::Bytes(bytes)) => {
                let is_right = match &map.at(known.at).0.content {
                    Content::Data(range) => {
                        let (own, rest) = bytes.split_at(range.len());
                        rest.iter().all(|byte| *byte == 0) && (own == &right[range.clone()] || is_right_too(own, range, right, verify))
                    }
                    Content::Parity(number) => *bytes == parity[known.at.row][*number],
                };
                if is_right { Verdict::Right } else { Verdict::Wrong }
            }
        };
        self.sides.iter().map(|known| (known.at, verdict(known))).collect()
    }

    /// What each side is worth where nothing right was found: it is known only of those that gave all of the buffer.
    pub fn verdicts_of_lost(&self, map: &IoMap) -> Vec<(Position, Verdict)> {
        let verdict = |known: &Known| match &known.answer {
            Some(Answer::Failed) => Verdict::Missing,
            Some(_) if map.is_plain() => Verdict::Wrong,
            _ => Verdict::NotAsked,
        };
        self.sides.iter().map(|known| (known.at, verdict(known))).collect()
    }

    /// Has the side missed what was read, and could it be written?
    pub fn is_behind(&self, at: Position) -> bool {
        let view = self.of(at.row, at.column)[at.side].view;
        view.missed && view.readable
    }

    /// Is the side so slow that readers had better do without it?
    fn sits_out(&self, at: Position) -> bool {
        self.of(at.row, at.column)[at.side].view.sits_out
    }

    /// Has the side missed what was read?
    pub fn has_missed(&self, at: Position) -> bool {
        self.of(at.row, at.column)[at.side].view.missed
    }
}

/// Would `bytes` be right in this place? If that cannot be said, nobody is blamed.
fn is_right_too<E>(bytes: &[u8], range: &Range<usize>, right: &[u8], verify: &mut dyn FnMut(&[u8]) -> Result<bool, E>) -> bool {
    let mut other = right.to_vec();
    other[range.clone()].copy_from_slice(&bytes[..range.len()]);
    verify(&other).unwrap_or(true)
}

impl Known {
    fn bytes(&self) -> Option<&[u8]> {
        if let Some(Answer::Bytes(bytes)) = &self.answer { Some(bytes) } else { None }
    }

    fn has_bytes(&self) -> bool {
        matches!(self.answer, Some(Answer::Bytes(_) | Answer::InPlace))
    }
}

/// All ways to have the columns of a row, from the one that comes after those `picked`, where just so many are rebuilt, from as many of
/// parity. `columns` are the answers of each.
fn pick(row: &Row, columns: &[Vec<usize>], rebuilt: usize, picked: &mut Vec<Pick>, ways: &mut Vec<Vec<Pick>>) {
    let at = picked.len();
    if ways.len() >= COMBINATIONS_MAX {
        return;
    }
    if at == row.columns.len() {
        ways.push(picked.clone());
        return;
    }
    let is_parity = at < row.parity();
    // Of parity those that are used, of data those that are rebuilt; and how many columns of the kind come after this one.
    let (so_far, after) = if is_parity {
        (picked.iter().filter(|pick| matches!(pick, Pick::Given(_))).count(), row.parity() - at - 1)
    } else {
        (picked.iter().filter(|pick| **pick == Pick::Rebuilt).count(), row.columns.len() - at - 1)
    };
    let (may_be_more, may_be_enough) = (so_far < rebuilt, so_far + after >= rebuilt);
    let given = || columns[at].iter().map(|index| Pick::Given(*index));
    let options: Vec<Pick> = if row.columns[at].is_empty() {
        if may_be_enough { vec![Pick::Unused] } else { Vec::new() }
    } else if is_parity {
        given().filter(|_| may_be_more).chain(may_be_enough.then_some(Pick::Unused)).collect()
    } else {
        given().filter(|_| may_be_enough).chain(may_be_more.then_some(Pick::Rebuilt)).collect()
    };
    for option in options {
        picked.push(option);
        pick(row, columns, rebuilt, picked, ways);
        picked.pop();
    }
}
