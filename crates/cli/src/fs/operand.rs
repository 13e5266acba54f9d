//! Which tree an operand means.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::Arc;

use tarnfs::control::{DatasetMount, DatasetUnmount, PoolSelect, Request, Wanted};
use tarnfs::{ImportOptions, Pool};

use super::Flags;
use super::host::HostTree;
use super::pool::PoolTree;
use super::tree::{Result, Tree, components, join};
use crate::session::Session;
use crate::text::names;

/// An operand, taken apart.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::fs) enum Operand<'a> {
    Host(&'a OsStr),
    Dataset { name: &'a str, path: &'a [u8] },
}

/// A colon means a dataset, unless a path of this system stands before it.
pub(in crate::fs) fn operand(word: &OsStr) -> Operand<'_> {
    let bytes = word.as_bytes();
    let colon = bytes.iter().position(|byte| *byte == b':').unwrap_or(0);
    let (name, path) = (std::str::from_utf8(&bytes[..colon]).unwrap_or(""), bytes.get(colon + 1..).unwrap_or(b""));
    if !name.is_empty() && !name.starts_with(['/', '.']) && (path.is_empty() || path.starts_with(b"/")) {
        return Operand::Dataset { name, path };
    }
    Operand::Host(word)
}

/// A path that does not leave the tree in which it starts: above the root is the root.
pub(in crate::fs) fn within(path: &[u8]) -> Vec<u8> {
    let mut inside: Vec<&[u8]> = Vec::new();
    for name in components(path) {
        if name == b".." {
            inside.pop();
        } else {
            inside.push(name);
        }
    }
    inside.join(&b'/')
}

/// A tree, and where in it.
pub(super) struct TreePath {
    pub(super) tree: Box<dyn Tree>,
    pub(super) path: Vec<u8>,
    /// Is it a path of this system?
    pub(super) is_host: bool,
}

/// The trees that are open for this command.
pub(super) struct OpenTrees<'a> {
    flags: &'a Flags,
    pools: BTreeMap<String, Arc<Pool>>,
    /// Datasets of the daemon's pools that were not mounted, and where they are for as long as this command runs.
    mounts: BTreeMap<String, MountDirectory>,
}

/// A directory of ours for one mount. It goes with this, unless something is in it or on it: what is mounted there is never looked into.
struct MountDirectory(PathBuf);

impl MountDirectory {
    fn new() -> io::Result<MountDirectory> {
        // A `TempDir` would remove all that is in it.
        let mut made = MountDirectory(tempfile::Builder::new().prefix("tarn-fs-").tempdir()?.keep());
        made.0 = made.0.canonicalize()?;
        Ok(made)
    }

    fn text(&self) -> String {
        self.0.display().to_string()
    }

    fn remove(&self) -> io::Result<()> {
        fs::remove_dir(&self.0)
    }
}

impl Drop for MountDirectory {
    fn drop(&mut self) {
        let _ = self.remove();
    }
}

impl<'a> OpenTrees<'a> {
    pub(super) fn new(flags: &'a Flags) -> OpenTrees<'a> {
        OpenTrees { flags, pools: BTreeMap::new(), mounts: BTreeMap::new() }
    }

    /// Says, before anything is opened, which pool will be written.
    pub(super) fn will_write(&mut self, session: &mut Session<'_>, text: &OsStr) -> Result<()> {
        match operand(text) {
            Operand::Dataset { name, .. } if name.contains('@') => Err(format!("{name}: a snapshot cannot be changed")),
            Operand::Dataset { name, .. } if self.mounted(session, name)?.is_none() => self.pool(names::pool_of(name), true).map(|_| ()),
            _ => Ok(()),
        }
    }

    /// The meaning of an operand.
    pub(super) fn open(&mut self, session: &mut Session<'_>, text: &OsStr) -> Result<TreePath> {
        match operand(text) {
            Operand::Host(path) => Ok(TreePath { tree: Box::new(HostTree::new(PathBuf::from(path))), path: Vec::new(), is_host: true }),
            Operand::Dataset { name, path } => {
                if let Some(mounted) = self.mounted(session, name)? {
                    return Ok(TreePath { tree: Box::new(HostTree::new(mounted)), path: within(path), is_host: false });
                }
                let path = components(path).fold(Vec::new(), |path, name| join(&path, name));
                let pool = self.pool(names::pool_of(name), false)?;
                Ok(TreePath { tree: Box::new(PoolTree::new(pool, name)?), path, is_host: false })
            }
        }
    }

    fn pool(&mut self, name: &str, write: bool) -> Result<Arc<Pool>> {
        if let Some(pool) = self.pools.get(name) {
            return Ok(pool.clone());
        }
        let paths = if self.flags.pool_paths.is_empty() { vec![PathBuf::from("/dev")] } else { self.flags.pool_paths.clone() };
        let options = ImportOptions { read_only: !write, force: self.flags.force, ..ImportOptions::default() };
        let pool = Pool::import(&paths, name, options).map_err(|error| {
            let advice = match error.kind() {
                tarnfs::ErrorKind::NotFound if self.flags.pool_paths.is_empty() => "; -d DIR says where its devices are",
                tarnfs::ErrorKind::Busy => "; if no other system uses it, -f opens it",
                _ => "",
            };
            format!("cannot open pool '{name}': {error}{advice}")
        })?;
        self.pools.insert(name.to_owned(), pool.clone());
        Ok(pool)
    }

    /// Where a dataset of a pool that the daemon has is mounted; what is not is mounted in a directory of ours. `None`: nobody has it.
    fn mounted(&mut self, session: &mut Session<'_>, name: &str) -> Result<Option<PathBuf>> {
        let pool = names::pool_of(name).to_owned();
        let select = PoolSelect { name: Some(pool), properties: Wanted::Only(Vec::new()) };
        if session.pools(Request::PoolGet(select)).is_err() {
            return Ok(None);
        }
        let (head, snapshot) = name.split_once('@').map_or((name, None), |(head, snapshot)| (head, Some(snapshot)));
        let mounts = session.mounts().map_err(|failure| format!("{name}: what is mounted cannot be listed: {failure}"))?;
        let path = match mounts.into_iter().find(|mount| mount.dataset == head) {
            Some(mount) => PathBuf::from(mount.mountpoint),
            None => self.mount(session, head)?,
        };
        Ok(Some(snapshot.map_or(path.clone(), |snapshot| path.join(".zfs/snapshot").join(snapshot))))
    }

    fn mount(&mut self, session: &mut Session<'_>, name: &str) -> Result<PathBuf> {
        let failed = |words: &dyn std::fmt::Display| format!("{name}: {words}");
        let directory = MountDirectory::new().map_err(|error| failed(&error))?;
        let at = Some(directory.text());
        let mount = DatasetMount { name: name.to_owned(), options: Vec::new(), overlay: false, force: false, load_key: false, at };
        session.perform(Request::DatasetMount(mount)).map_err(|failure| failed(&failure))?;
        let path = directory.0.clone();
        self.mounts.insert(name.to_owned(), directory);
        Ok(path)
    }

    /// Lets go of all pools.
    pub(super) fn close(self, session: &mut Session<'_>) -> Result<()> {
        let mut result = Ok(());
        for (name, directory) in self.mounts {
            // From our place alone: others may have mounted it, too.
            let unmount = DatasetUnmount { name: name.clone(), at: Some(directory.text()), tree: false, force: false, unload_key: false };
            let unmounted = session.perform(Request::DatasetUnmount(unmount));
            let left = match (unmounted, directory.remove()) {
                // The kernel removes no directory on which something is mounted.
                (_, Ok(())) => continue,
                (Ok(()), Err(error)) => format!("{name} was unmounted, but {} stays: {error}", directory.text()),
                (Err(failure), Err(_)) => format!("{name} stays mounted at {}: {failure}", directory.text()),
            };
            result = result.and(Err(left));
        }
        for (name, pool) in self.pools {
            let exported = pool.export().map_err(|error| format!("{name}: {error}"));
            result = result.and(exported);
        }
        result
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::session::{Control, History};
    use tarnfs::control::{Failure, FailureKind, Reply};

    /// Says that all is done, and does nothing.
    #[derive(Default)]
    struct Idle {
        requests: Vec<Request>,
        lists_no_mounts: bool,
    }

    impl Control for Idle {
        fn call(&mut self, request: Request) -> Reply {
            let reply = match &request {
                Request::PoolGet(_) => Reply::Pools(Vec::new()),
                Request::MountList if self.lists_no_mounts => Reply::Failed(Failure::new(FailureKind::NoDaemon)),
                Request::MountList => Reply::Mounts(Vec::new()),
                _ => Reply::Done,
            };
            self.requests.push(request);
            reply
        }
    }

    fn with_session<T>(idle: &mut Idle, run: impl FnOnce(&mut Session<'_>) -> T) -> T {
        let (mut out, mut err) = (Vec::<u8>::new(), Vec::<u8>::new());
        let zone = jiff::tz::TimeZone::UTC;
        run(&mut Session { control: idle, out: &mut out, err: &mut err, now: 0, zone, history: History::default(), hints: Vec::new() })
    }

    /// Another command had unmounted its own place in ours' stead, and all files of the file system were removed.
    #[test]
    fn what_is_still_mounted_is_not_removed() {
        let flags = Flags::default();
        let mut idle = Idle::default();
        let (place, closed) = with_session(&mut idle, |session| {
            let mut trees = OpenTrees::new(&flags);
            let place = trees.mount(session, "tank/x").unwrap();
            fs::create_dir(place.join("directory")).unwrap();
            fs::write(place.join("directory/file"), "precious").unwrap();
            (place, trees.close(session))
        });
        assert_eq!(fs::read(place.join("directory/file")).unwrap(), b"precious");
        assert!(closed.unwrap_err().contains("stays"));
        let own = Some(place.display().to_string());
        assert!(idle.requests.iter().any(|request| matches!(request, Request::DatasetUnmount(unmount) if unmount.at == own)), "{:?}", idle.requests);
        // Nor when a command ends before it has unmounted anything.
        let left = with_session(&mut idle, |session| {
            let mut trees = OpenTrees::new(&flags);
            let left = trees.mount(session, "tank/x").unwrap();
            fs::write(left.join("file"), "precious").unwrap();
            left
        });
        assert_eq!(fs::read(left.join("file")).unwrap(), b"precious");
        fs::remove_dir_all(place).unwrap();
        fs::remove_dir_all(left).unwrap();
    }

    #[test]
    fn the_directory_of_a_mount_goes_with_it() {
        let flags = Flags::default();
        let (place, closed) = with_session(&mut Idle::default(), |session| {
            let mut trees = OpenTrees::new(&flags);
            let place = trees.mount(session, "tank/x").unwrap();
            (place, trees.close(session))
        });
        assert_eq!(closed, Ok(()));
        assert!(!place.exists());
    }

    /// That the mounts could not be listed meant that there are none.
    #[test]
    fn nothing_is_mounted_if_mounts_cannot_be_listed() {
        let flags = Flags::default();
        let mut idle = Idle { lists_no_mounts: true, ..Idle::default() };
        let found = with_session(&mut idle, |session| OpenTrees::new(&flags).mounted(session, "tank/x"));
        assert!(found.unwrap_err().contains("cannot be listed"));
        assert!(!idle.requests.iter().any(|request| matches!(request, Request::DatasetMount(_))), "{:?}", idle.requests);
    }

    /// Of a mounted file system `tank:/../etc` was the system's own `/etc`, for `cp` too; of one that was not mounted it was `tank:/etc`.
    #[test]
    fn a_path_stays_in_its_file_system() {
        for (path, inside) in [("/../../etc", "etc"), ("/a/./b/../c/", "a/c"), ("/a/..", ""), ("", ""), ("/..a/b..", "..a/b..")] {
            assert_eq!(within(path.as_bytes()), inside.as_bytes(), "{path}");
        }
    }

    #[test]
    fn a_colon_means_a_dataset() {
        let operand = |word: &'static str| operand(OsStr::new(word));
        assert_eq!(operand("tank/home:/a"), Operand::Dataset { name: "tank/home", path: b"/a" });
        assert_eq!(operand("tank@now:"), Operand::Dataset { name: "tank@now", path: b"" });
        for host in ["/tmp/a:/b", "./tank:/a", "a:b", "plain", ":/a"] {
            assert_eq!(operand(host), Operand::Host(OsStr::new(host)), "{host}");
        }
        let odd = OsStr::from_bytes(b"tank:/\xff");
        assert_eq!(super::operand(odd), Operand::Dataset { name: "tank", path: b"/\xff" });
    }
}
