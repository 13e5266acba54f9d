//! `tarn fs ls`, `cat`, `stat`, `find`

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;

use super::Flags;
use super::operand::{TreePath, OpenTrees};
use super::tree::{Entry, Kind, Result, Tree, join, shown};
use crate::session::{Session, Stop, complain, say};
use crate::text::owners::{name_of_group, name_of_user};
use crate::text::units::{history_time, listing_time};

const BUFFER_BYTES: usize = 1 << 20;
/// Directories nested deeper are not listed: each is one call more of `list_directory` within the others.
const DEPTH_MAX: usize = 1000;

/// Runs `action` on each operand; complains about those on which it fails.
fn for_each(
    session: &mut Session<'_>,
    trees: &mut OpenTrees<'_>,
    operands: &[OsString],
    verb: &str,
    mut action: impl FnMut(&mut Session<'_>, &mut TreePath, &OsStr) -> Result<()>,
) -> std::result::Result<u8, Stop> {
    let mut code = 0;
    for operand in operands {
        let done = trees.open(session, operand).and_then(|mut place| action(session, &mut place, operand));
        if let Err(words) = done {
            complain!(session, "tarn fs {verb}: {words}");
            code = 1;
        }
    }
    Ok(code)
}

/// A name as it is to be printed, at the end of a line.
fn printed(flags: &Flags, name: &[u8]) -> Vec<u8> {
    if flags.escape { shown(name).into_bytes() } else { name.to_vec() }
}

fn say_bytes(session: &mut Session<'_>, line: &[u8]) {
    // As with text: a reader that has gone away is not our failure.
    let _ = session.out.write_all(&[line, b"\n"].concat());
}

fn type_letter(entry: &Entry) -> char {
    match entry.mode & 0o170_000 {
        0o040_000 => 'd',
        0o120_000 => 'l',
        0o060_000 => 'b',
        0o020_000 => 'c',
        0o010_000 => 'p',
        0o140_000 => 's',
        _ => '-',
    }
}

/// `drwxr-xr-x`
fn mode_text(entry: &Entry) -> String {
    let mut text = vec![type_letter(entry)];
    for shift in [6, 3, 0] {
        let bits = entry.mode >> shift;
        text.push(if bits & 4 != 0 { 'r' } else { '-' });
        text.push(if bits & 2 != 0 { 'w' } else { '-' });
        let special = entry.mode >> (9 + shift / 3) & 1 != 0;
        text.push(match (special, bits & 1 != 0, shift) {
            (false, false, _) => '-',
            (false, true, _) => 'x',
            (true, true, 0) => 't',
            (true, false, 0) => 'T',
            (true, true, _) => 's',
            (true, false, _) => 'S',
        });
    }
    text.into_iter().collect()
}

fn user(entry: &Entry) -> String {
    name_of_user(entry.uid.into()).unwrap_or_else(|| entry.uid.to_string())
}

fn group(entry: &Entry) -> String {
    name_of_group(entry.gid.into()).unwrap_or_else(|| entry.gid.to_string())
}

struct Line {
    cells: [String; 6],
    name: Vec<u8>,
}

fn line(session: &Session<'_>, flags: &Flags, tree: &mut dyn Tree, path: &[u8], name: &[u8]) -> Result<Line> {
    let entry = tree.entry(path)?;
    let mut name = printed(flags, name);
    if entry.kind == Kind::SymbolicLink {
        name.extend_from_slice(b" -> ");
        name.extend(printed(flags, &tree.link_target(path)?));
    }
    let cells = [
        mode_text(&entry),
        entry.links.to_string(),
        user(&entry),
        group(&entry),
        entry.size.to_string(),
        listing_time(entry.times[1].0, session.now, &session.zone),
    ];
    Ok(Line { cells, name })
}

fn print_lines(session: &mut Session<'_>, lines: &[Line]) {
    let width = |column: usize| lines.iter().map(|line| line.cells[column].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..6).map(width).collect();
    for Line { cells: [mode, links, user, group, size, when], name } in lines {
        let (a, b, c, d) = (widths[1], widths[2], widths[3], widths[4]);
        let head = format!("{mode} {links:>a$} {user:<b$} {group:<c$} {size:>d$} {when} ");
        say_bytes(session, &[head.as_bytes(), name].concat());
    }
}

fn list_directory(session: &mut Session<'_>, flags: &Flags, tree: &mut dyn Tree, path: &[u8], title: Option<&[u8]>, depth: usize) -> Result<()> {
    if depth > DEPTH_MAX {
        return Err(format!("'{}' is nested too deep", tree.shown(path)));
    }
    let mut names = tree.names(path)?;
    if !flags.all {
        names.retain(|name| !name.starts_with(b"."));
    }
    if let Some(title) = title {
        say_bytes(session, &[&printed(flags, title), &b":"[..]].concat());
    }
    if flags.long {
        let lines: Result<Vec<Line>> = names.iter().map(|name| line(session, flags, tree, &join(path, name), name)).collect();
        print_lines(session, &lines?);
    } else {
        names.iter().for_each(|name| say_bytes(session, &printed(flags, name)));
    }
    if flags.recursive && session.hand_over() {
        for name in &names {
            let below = join(path, name);
            if tree.entry(&below)?.kind == Kind::Directory {
                say!(session, "");
                list_directory(session, flags, tree, &below, Some(&[b"/", below.as_slice()].concat()), depth + 1)?;
            }
        }
    }
    Ok(())
}

pub(super) fn ls(session: &mut Session<'_>, flags: &Flags, trees: &mut OpenTrees<'_>, operands: &[OsString]) -> std::result::Result<u8, Stop> {
    let many = operands.len() > 1;
    for_each(session, trees, operands, "ls", |session, place, operand| {
        let tree = &mut *place.tree;
        if tree.entry(&place.path)?.kind == Kind::Directory {
            return list_directory(session, flags, tree, &place.path, many.then_some(operand.as_bytes()), 0);
        }
        if flags.long {
            let lines = [line(session, flags, tree, &place.path, operand.as_bytes())?];
            print_lines(session, &lines);
        } else {
            say_bytes(session, &printed(flags, operand.as_bytes()));
        }
        Ok(())
    })
}

pub(super) fn cat(session: &mut Session<'_>, _: &Flags, trees: &mut OpenTrees<'_>, operands: &[OsString]) -> std::result::Result<u8, Stop> {
    let mut buffer = vec![0; BUFFER_BYTES];
    for_each(session, trees, operands, "cat", |session, place, operand| {
        let operand = shown(operand.as_bytes());
        match place.tree.entry(&place.path)?.kind {
            Kind::Regular => {}
            Kind::Directory => return Err(format!("{operand}: Is a directory")),
            Kind::SymbolicLink => return Err(format!("{operand}: is a symbolic link to {}", shown(&place.tree.link_target(&place.path)?))),
            Kind::Special => return Err(format!("{operand}: is no regular file")),
        }
        let mut offset = 0;
        loop {
            let read = place.tree.read(&place.path, offset, &mut buffer)?;
            if read == 0 {
                return Ok(());
            }
            match session.out.write_all(&buffer[..read]) {
                // As with text.
                Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => return Ok(()),
                done => done.map_err(|error| format!("standard output: {error}"))?,
            }
            offset += read as u64;
        }
    })
}

pub(super) fn stat(session: &mut Session<'_>, _: &Flags, trees: &mut OpenTrees<'_>, operands: &[OsString]) -> std::result::Result<u8, Stop> {
    for_each(session, trees, operands, "stat", |session, place, operand| {
        let entry = place.tree.entry(&place.path)?;
        let kind = match entry.kind {
            Kind::Regular => "regular file",
            Kind::Directory => "directory",
            Kind::SymbolicLink => "symbolic link",
            Kind::Special => "special file",
        };
        say!(session, "  File: {}", shown(operand.as_bytes()));
        if entry.kind == Kind::SymbolicLink {
            say!(session, "  Link: {}", shown(&place.tree.link_target(&place.path)?));
        }
        say!(session, "  Size: {:<15} Allocated: {:<15} {kind}", entry.size, entry.allocated);
        say!(session, " Inode: {:<15} Links: {}", entry.inode, entry.links);
        say!(session, "Access: ({:04o}/{})  Uid: {} ({})  Gid: {} ({})", entry.mode & 0o7777, mode_text(&entry), entry.uid, user(&entry), entry.gid, group(&entry));
        for (name, (seconds, nanoseconds)) in ["Access", "Modify", "Change"].into_iter().zip(entry.times) {
            let zone = session.zone.clone();
            say!(session, "{name}: {}.{nanoseconds:09}", history_time(seconds, &zone));
        }
        for (name, value) in place.tree.attributes(&place.path)? {
            say!(session, " Xattr: {} = {}", shown(&name), shown(&value));
        }
        Ok(())
    })
}

pub(super) fn find(session: &mut Session<'_>, flags: &Flags, trees: &mut OpenTrees<'_>, operands: &[OsString]) -> std::result::Result<u8, Stop> {
    for_each(session, trees, operands, "find", |session, place, _| {
        let mut waiting = vec![place.path.clone()];
        while let Some(path) = waiting.pop() {
            say_bytes(session, &[&b"/"[..], &printed(flags, &path)].concat());
            if place.tree.entry(&path)?.kind == Kind::Directory {
                if !session.hand_over() {
                    return Ok(());
                }
                let names = place.tree.names(&path)?;
                waiting.extend(names.iter().rev().map(|name| join(&path, name)));
            }
        }
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modes_are_shown_as_ls_shows_them() {
        let text = |mode| {
            mode_text(&Entry { kind: Kind::Regular, mode, inode: 1, links: 1, device: 0, uid: 0, gid: 0, size: 0, allocated: 0, times: [(0, 0); 3] })
        };
        assert_eq!(text(0o100_644), "-rw-r--r--");
        assert_eq!(text(0o041_777), "drwxrwxrwt");
        assert_eq!(text(0o104_755), "-rwsr-xr-x");
        assert_eq!(text(0o102_640), "-rw-r-S---");
    }
}
