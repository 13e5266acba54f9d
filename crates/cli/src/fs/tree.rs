//! Files below a root, wherever they are.

/// The kind of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Regular,
    Directory,
    SymbolicLink,
    /// A device, a socket, a FIFO.
    Special,
}

/// The attributes of a file.
#[derive(Debug, Clone)]
pub(super) struct Entry {
    pub(super) kind: Kind,
    /// Type and permissions, as `stat` has them.
    pub(super) mode: u32,
    pub(super) inode: u64,
    pub(super) links: u64,
    /// Of devices: the major number shifted left by 20 bits, and the minor number.
    pub(super) device: u64,
    pub(super) uid: u32,
    pub(super) gid: u32,
    pub(super) size: u64,
    pub(super) allocated: u64,
    /// Seconds and nanoseconds since 1970: read, changed, and its attributes changed.
    pub(super) times: [(i64, u32); 3],
}

/// The identity of a file: its dataset, or its device of this system, and its number there.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Identity {
    pub(super) place: String,
    pub(super) inode: u64,
}

/// A failure in words.
pub(super) type Result<T> = std::result::Result<T, String>;

/// A path below the root, without a slash in front; the root is empty. Links are not followed, but in the middle.
pub(super) type Path<'a> = &'a [u8];

/// The operations that a copy needs of a tree of files.
pub(super) trait Tree {
    fn entry(&mut self, path: Path<'_>) -> Result<Entry>;
    /// The path as a user would name it.
    fn shown(&self, path: Path<'_>) -> String;
    /// Which file it is; `None`: none.
    fn identity(&mut self, path: Path<'_>) -> Option<Identity>;
    /// The names in a directory, in order, without `.` and `..`.
    fn names(&mut self, path: Path<'_>) -> Result<Vec<Vec<u8>>>;
    /// Reads at most a buffer; 0 is the end.
    fn read(&mut self, path: Path<'_>, offset: u64, buffer: &mut [u8]) -> Result<usize>;
    /// Where from here on a file has contents, and not a hole; `None`: nowhere.
    fn next_data(&mut self, path: Path<'_>, offset: u64) -> Result<Option<u64>>;
    fn link_target(&mut self, path: Path<'_>) -> Result<Vec<u8>>;
    fn attributes(&mut self, path: Path<'_>) -> Result<Vec<(Vec<u8>, Vec<u8>)>>;

    fn make_directory(&mut self, path: Path<'_>, mode: u32) -> Result<()>;
    /// Makes a file, or empties the one that is there. A link in its place is not followed.
    fn make_file(&mut self, path: Path<'_>, mode: u32) -> Result<()>;
    /// Makes a device, a socket or a FIFO.
    fn make_special(&mut self, path: Path<'_>, mode: u32, device: u64) -> Result<()>;
    fn make_link(&mut self, path: Path<'_>, target: &[u8]) -> Result<()>;
    /// One more name for what has a name already; what had it goes.
    fn make_hard_link(&mut self, path: Path<'_>, there: Path<'_>) -> Result<()>;
    fn write(&mut self, path: Path<'_>, offset: u64, data: &[u8]) -> Result<()>;
    fn set_size(&mut self, path: Path<'_>, size: u64) -> Result<()>;
    /// Owner, permissions, times, extended attributes.
    fn set_entry(&mut self, path: Path<'_>, entry: &Entry, attributes: &[(Vec<u8>, Vec<u8>)]) -> Result<()>;
    /// Everything is safe on disk.
    fn finish(&mut self) -> Result<()>;
}

/// A path with one name more.
pub(super) fn join(path: Path<'_>, name: &[u8]) -> Vec<u8> {
    if path.is_empty() { name.to_vec() } else { [path, b"/", name].concat() }
}

/// The directories above a path, below the root, the highest first.
pub(super) fn ancestors(path: Path<'_>) -> impl Iterator<Item = &[u8]> {
    path.iter().enumerate().filter(|(_, byte)| **byte == b'/').map(move |(slash, _)| &path[..slash])
}

/// The components of a path, without those that mean nothing.
pub(super) fn components(path: Path<'_>) -> impl Iterator<Item = &[u8]> {
    path.split(|byte| *byte == b'/').filter(|name| !name.is_empty() && *name != b".")
}

/// The last component.
pub(super) fn last_name(path: Path<'_>) -> Option<&[u8]> {
    components(path).last()
}

/// A name as it can be shown: what is no text is escaped.
pub(super) fn shown(name: &[u8]) -> String {
    match std::str::from_utf8(name) {
        Ok(text) if !text.chars().any(char::is_control) => text.to_owned(),
        _ => name.escape_ascii().to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_taken_apart() {
        assert_eq!(components(b"//a/./b/").collect::<Vec<_>>(), [b"a", b"b"]);
        assert_eq!((last_name(b"a/b/"), last_name(b"/")), (Some(&b"b"[..]), None));
        assert_eq!(ancestors(b"a/b/c").collect::<Vec<_>>(), [&b"a"[..], b"a/b"]);
        assert_eq!((join(b"", b"x"), join(b"a", b"x")), (b"x".to_vec(), b"a/x".to_vec()));
        assert_eq!((shown(b"\xc3\xa4"), shown(b"\xff\n")), ("ä".to_owned(), "\\xff\\n".to_owned()));
    }
}
