//! The lines of `zfs diff`.

use tarnfs::past::{Change, Difference};

/// How they are printed.
#[derive(Debug, Default)]
pub(crate) struct Style {
    /// `-F`
    pub(crate) classify: bool,
    /// `-H`
    pub(crate) scripted: bool,
    /// `-t`
    pub(crate) timestamp: bool,
    /// `-h`
    pub(crate) plain: bool,
    /// The mount point, before each path.
    pub(crate) prefix: Vec<u8>,
}

/// The letter of a type, as `ls -F` and OpenZFS have it.
fn type_letter(mode: u32) -> char {
    match mode & 0o170_000 {
        0o060_000 => 'B',
        0o020_000 => 'C',
        0o040_000 => '/',
        0o010_000 => '|',
        0o120_000 => '@',
        0o140_000 => '=',
        0o100_000 => 'F',
        _ => '?',
    }
}

/// A path: whatever is no printable ASCII becomes a backslash and four octal digits.
fn push_path(line: &mut Vec<u8>, path: &[u8], plain: bool) {
    for byte in path {
        match byte {
            _ if plain => line.push(*byte),
            b'!'..=b'~' if *byte != b'\\' => line.push(*byte),
            other => line.extend(format!("\\{other:04o}").into_bytes()),
        }
    }
}

impl Style {
    fn path(&self, line: &mut Vec<u8>, path: &[u8]) {
        push_path(line, &self.prefix, self.plain);
        push_path(line, path, self.plain);
    }

    /// One line, with its end.
    pub(crate) fn line(&self, difference: &Difference) -> Vec<u8> {
        let mut line = Vec::new();
        if self.timestamp {
            let (seconds, nanoseconds) = difference.changed;
            line.extend(format!("{seconds:>10}.{nanoseconds:09}\t").into_bytes());
        }
        let letter = match &difference.change {
            Change::Added { .. } => '+',
            Change::Removed { .. } => '-',
            Change::Modified { .. } | Change::Links { .. } => 'M',
            Change::Renamed { .. } => 'R',
        };
        line.extend(format!("{letter}\t").into_bytes());
        if self.classify {
            line.extend(format!("{}\t", type_letter(difference.mode)).into_bytes());
        }
        match &difference.change {
            Change::Added { path } | Change::Removed { path } | Change::Modified { path } => self.path(&mut line, path),
            Change::Links { path, delta } => {
                self.path(&mut line, path);
                line.extend(format!("\t({delta:+})").into_bytes());
            }
            Change::Renamed { from, to } => {
                self.path(&mut line, from);
                line.extend_from_slice(if self.scripted { b"\t" } else { b" -> " });
                self.path(&mut line, to);
            }
        }
        line.push(b'\n');
        line
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_those_of_openzfs() {
        let renamed = Difference { change: Change::Renamed { from: b"/a b".to_vec(), to: "/\u{e4}\\".as_bytes().to_vec() }, mode: 0o100_644, changed: (5, 7) };
        let linked = Difference { change: Change::Links { path: b"/l".to_vec(), delta: 1 }, mode: 0o100_644, changed: (5, 7) };
        let of = |style: Style, difference: &Difference| String::from_utf8(Style { prefix: b"/t".to_vec(), ..style }.line(difference)).unwrap();
        let plain = Style::default();
        assert_eq!(of(plain, &renamed), "R\t/t/a\\0040b -> /t/\\0303\\0244\\0134\n");
        let all = Style { classify: true, scripted: true, timestamp: true, plain: true, prefix: Vec::new() };
        assert_eq!(of(all, &renamed), "         5.000000007\tR\tF\t/t/a b\t/t/\u{e4}\\\n");
        assert_eq!(of(Style::default(), &linked), "M\t/t/l\t(+1)\n");
    }
}
