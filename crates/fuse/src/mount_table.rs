//! The kernel's table of mounts, as a process sees it.

use std::collections::HashMap;
use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

/// A line of `/proc/PID/mountinfo`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Line {
    /// The kernel's number of the mount.
    pub(crate) id: u64,
    /// Device number of the file system.
    pub(crate) device: (u32, u32),
    /// The directory of the file system that is mounted; `/` for all of it.
    pub(crate) root: PathBuf,
    /// Where.
    pub(crate) place: PathBuf,
    /// Type of the file system.
    pub(crate) kind: String,
}

/// All mounts that this process sees, in the order in which they were made.
pub(crate) fn own() -> io::Result<Vec<Line>> {
    read(Path::new("/proc/self/mountinfo"))
}

/// Where file systems of FUSE were mounted when somebody looked: read once, asked about many.
#[derive(Debug)]
pub struct Sight(Option<HashMap<(u32, u32), Vec<PathBuf>>>);

impl Sight {
    /// As this process sees it.
    pub fn now() -> Sight {
        let mut places: HashMap<(u32, u32), Vec<PathBuf>> = HashMap::new();
        let whole = |line: &Line| line.kind.starts_with("fuse") && line.root == Path::new("/");
        let Ok(table) = own() else { return Sight(None) };
        for line in table.into_iter().filter(whole) {
            places.entry(line.device).or_default().push(line.place);
        }
        Sight(Some(places))
    }

    /// `None`: nobody knows, as there is no table.
    pub(crate) fn places(&self, device: (u32, u32)) -> Option<&[PathBuf]> {
        self.0.as_ref().map(|places| places.get(&device).map_or(&[][..], Vec::as_slice))
    }
}

/// Those of such a file.
pub(crate) fn read(file: &Path) -> io::Result<Vec<Line>> {
    Ok(std::fs::read(file)?.split(|byte| *byte == b'\n').filter_map(line).collect())
}

fn line(bytes: &[u8]) -> Option<Line> {
    let words: Vec<&[u8]> = bytes.split(|byte| *byte == b' ').collect();
    let text = |at: usize| words.get(at).and_then(|word| std::str::from_utf8(word).ok());
    let path = |at: usize| words.get(at).map(|word| PathBuf::from(OsString::from_vec(unescape(word))));
    let (major, minor) = text(2)?.split_once(':')?;
    // Fields that may or may not be there end with a dash.
    let dash = words.iter().skip(6).position(|word| *word == b"-")? + 6;
    Some(Line {
        id: text(0)?.parse().ok()?,
        device: (major.parse().ok()?, minor.parse().ok()?),
        root: path(3)?,
        place: path(4)?,
        kind: text(dash + 1)?.to_owned(),
    })
}

/// White space and backslashes are written as three octal digits.
fn unescape(bytes: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let digits =
            (bytes[at] == b'\\').then(|| bytes.get(at + 1..at + 4).and_then(|digits| std::str::from_utf8(digits).ok())).flatten();
        let octal = digits.and_then(|digits| u8::from_str_radix(digits, 8).ok());
        out.push(octal.unwrap_or(bytes[at]));
        at += if octal.is_some() { 4 } else { 1 };
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_read() {
        assert_eq!(unescape(br"/a\040b\134c\"), br"/a b\c\");
        let text = br"36 35 0:53 / /mnt\040x rw,nosuid shared:1 master:2 - fuse.tarn tank/a rw,user_id=0";
        let wanted = Line { id: 36, device: (0, 53), root: "/".into(), place: "/mnt x".into(), kind: "fuse.tarn".to_owned() };
        assert_eq!(line(text), Some(wanted));
        for broken in [&b""[..], b"x", b"36 35 053 / /mnt rw - fuse", b"36 35 0:53 / /mnt rw fuse.tarn"] {
            assert_eq!(line(broken), None);
        }
        assert!(own().unwrap().iter().any(|line| line.place == Path::new("/proc")));
    }
}
