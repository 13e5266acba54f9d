//! Objects as they are named to `zdb -d`: `5`, `0x5`, `5:9`, and `0:-1:df`, which are those of some types.

use ondisk::object_type::ObjectType;

/// Letters of the types that can be chosen; `A` is these and all others.
const LETTERS: [char; 4] = ['d', 'f', 'm', 'z'];

/// Objects from one number to another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ObjectRange {
    pub(super) first: u64,
    pub(super) last: u64,
    /// By [`LETTERS`].
    chosen: [bool; LETTERS.len()],
    others: bool,
}

impl ObjectRange {
    /// Reads one word; the error says what is wrong with it.
    pub(super) fn parse(word: &str) -> Result<ObjectRange, &'static str> {
        let all = |first, last| ObjectRange { first, last, chosen: [true; LETTERS.len()], others: true };
        let Some((first, rest)) = word.split_once(':') else {
            return number(word).map(|one| all(one, one)).ok_or("Invalid characters in object ID");
        };
        if first.is_empty() {
            return Err("Invalid leading colon");
        }
        if rest.is_empty() || rest.ends_with(':') {
            return Err("Invalid trailing colon");
        }
        let (last, letters) = rest.split_once(':').map_or((rest, None), |(last, letters)| (last, Some(letters)));
        let first = number(first).ok_or("Invalid characters in start object ID")?;
        let last = number(last).ok_or("Invalid characters in end object ID")?;
        if first > last {
            return Err("Start object ID may not exceed end object ID");
        }
        let mut range = all(first, last);
        match letters {
            None => Ok(range),
            Some(letters) if letters.contains(':') => Err("Invalid colon-delimited field after flags"),
            Some(letters) => range.choose(letters).map(|()| range),
        }
    }

    fn choose(&mut self, letters: &str) -> Result<(), &'static str> {
        (self.chosen, self.others) = ([false; LETTERS.len()], false);
        let mut letters = letters.chars();
        while let Some(letter) = letters.next() {
            let (letter, wanted) = match letter {
                '-' => (letters.next().ok_or("Invalid trailing negation operator")?, false),
                letter => (letter, true),
            };
            match LETTERS.iter().position(|known| *known == letter) {
                Some(at) => self.chosen[at] = wanted,
                None if letter == 'A' => (self.chosen, self.others) = ([wanted; LETTERS.len()], wanted),
                None => return Err("Invalid flag"),
            }
        }
        // Nothing at all was no choice.
        if !self.others && self.chosen == [false; LETTERS.len()] {
            (self.chosen, self.others) = ([true; LETTERS.len()], true);
        }
        Ok(())
    }

    /// Whether objects of this type are wanted.
    pub(super) fn has(&self, object_type: ObjectType) -> bool {
        match object_type {
            ObjectType::DIRECTORY_CONTENTS => self.chosen[0],
            ObjectType::PLAIN_FILE_CONTENTS => self.chosen[1],
            ObjectType::SPACE_MAP => self.chosen[2],
            other if other.to_string() == "zap" => self.chosen[3],
            _ => self.others,
        }
    }

    /// One object, named by its number.
    pub(super) fn is_single(&self) -> bool {
        self.first == self.last
    }
}

/// In decimal, hexadecimal or octal notation; negative ones count from the end of 64 bits.
fn number(word: &str) -> Option<u64> {
    let (negative, digits) = word.strip_prefix('-').map_or((false, word), |digits| (true, digits));
    let (radix, digits) = match digits.strip_prefix("0x").or(digits.strip_prefix("0X")) {
        Some(digits) => (16, digits),
        None if digits.len() > 1 && digits.starts_with('0') => (8, digits),
        None => (10, digits),
    };
    let number = u64::from_str_radix(digits, radix).ok().filter(|_| !digits.starts_with('+'))?;
    Some(if negative { number.wrapping_neg() } else { number })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_mean_what_they_mean_to_openzfs() {
        let parse = |word| ObjectRange::parse(word).map(|range| (range.first, range.last));
        assert_eq!((parse("5"), parse("0x10"), parse("010"), parse("2:9")), (Ok((5, 5)), Ok((16, 16)), Ok((8, 8)), Ok((2, 9))));
        assert_eq!(parse("0:-1:A"), Ok((0, u64::MAX)));
        for (word, why) in [
            ("x", "Invalid characters in object ID"),
            ("+5", "Invalid characters in object ID"),
            (":5", "Invalid leading colon"),
            ("5:", "Invalid trailing colon"),
            ("5:9:", "Invalid trailing colon"),
            ("9:5", "Start object ID may not exceed end object ID"),
            ("1:x", "Invalid characters in end object ID"),
            ("1:2:q", "Invalid flag"),
            ("1:2:d-", "Invalid trailing negation operator"),
            ("1:2:d:f", "Invalid colon-delimited field after flags"),
        ] {
            assert_eq!(parse(word), Err(why), "{word}");
        }
    }

    #[test]
    fn types_are_chosen() {
        let types = [ObjectType::DIRECTORY_CONTENTS, ObjectType::PLAIN_FILE_CONTENTS, ObjectType::SPACE_MAP, ObjectType::MASTER_NODE];
        for (word, wanted) in [
            ("0:-1", [true; 4]),
            ("0:-1:d", [true, false, false, false]),
            ("0:-1:df", [true, true, false, false]),
            ("0:-1:A-f", [true, false, true, true]),
            ("0:-1:-A", [true; 4]),
        ] {
            let range = ObjectRange::parse(word).unwrap();
            assert_eq!(types.map(|object_type| range.has(object_type)), wanted, "{word}");
        }
    }
}
