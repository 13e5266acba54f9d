//! Names that are one and the same, and are spelled differently.

use super::*;

/// What had been typed was stored: a name longer than any that may be there, or one that only the feature longname lets be there, which was not active.
#[test]
fn an_exchange_leaves_names_as_they_are_spelled() {
    let new = NewFileSystem { normalization: 0x10, utf8_only: true, ..NewFileSystem::default() };
    let (composed, decomposed) = ("\u{e9}".repeat(120), "e\u{301}".repeat(120));
    for long_names in [false, true] {
        let (_rig, fs) = Rig::new(&new, ObjsetSettings::dataset_default(true));
        fs.set_options(MountOptions { long_names, ..fs.options() });
        let files = [file(&fs, &composed).inode, file(&fs, "b").inode];
        let exchange = |one: &[u8], other: &[u8]| fs.rename(fs.root(), one, fs.root(), other, RenameMode::Exchange);
        exchange(decomposed.as_bytes(), b"b").unwrap();
        let found = [composed.as_bytes(), b"b"].map(|name| fs.lookup(fs.root(), name).unwrap().inode);
        assert_eq!(found, [files[1], files[0]]);
        // Of the new name it is asked how long it is.
        let again = exchange(b"b", decomposed.as_bytes()).map_err(|error| error.kind());
        assert_eq!(again, if long_names { Ok(()) } else { Err(ErrorKind::NameTooLong) });
        let mut listed = names(&fs, fs.root());
        listed.sort();
        assert_eq!(listed, [".", "..", "b", composed.as_str()]);
    }
}
