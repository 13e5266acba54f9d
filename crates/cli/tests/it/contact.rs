//! First contact: what somebody meets who has never seen the program, who mistypes, or whose machine lacks something.
//!
//! Every verb is walked that the program itself lists, so a new one is in these tests as soon as it is in its table.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{PermissionsExt, chown, symlink};
use std::path::PathBuf;
use std::process::{Command, Stdio};

use sim::places::skipped;

use crate::rig::{LIMIT, Rig, Said, has_program, run_for};

const LINKS: [&str; 3] = ["zpool", "zfs", "zdb"];
/// Ends the list of verbs that there are.
const REFUSED: &str = "These are not yet supported by this version of tarn";

/// A directory with links to the program; nothing is mounted, and no daemon is to be started.
struct Desk {
    directory: tempfile::TempDir,
}

impl Desk {
    fn new() -> Desk {
        let directory = tempfile::Builder::new().prefix("tarn-desk-").tempdir().unwrap();
        for link in LINKS {
            symlink(env!("CARGO_BIN_EXE_tarn"), directory.path().join(link)).unwrap();
        }
        fs::create_dir(directory.path().join("empty")).unwrap();
        Desk { directory }
    }

    fn command(&self, program: &str, words: &[&str]) -> Command {
        let path =
            if program == "tarn" { PathBuf::from(env!("CARGO_BIN_EXE_tarn")) } else { self.directory.path().join(program) };
        let mut command = Command::new(path);
        command.args(words).current_dir(self.directory.path()).env("TARN_SOCKET", self.directory.path().join("sock"));
        command.env("ZPOOL_IMPORT_PATH", self.directory.path().join("empty")).env_remove("TARN_LOG_FILE");
        command
    }

    #[track_caller]
    fn run(&self, program: &str, words: &[&str]) -> Said {
        run_for(&mut self.command(program, words), LIMIT).unwrap_or_else(|| panic!("{program} {words:?} hangs"))
    }

    /// Runs what must succeed and complain of nothing.
    #[track_caller]
    fn ok(&self, program: &str, words: &[&str]) -> String {
        let said = self.run(program, words);
        assert!(said.code == 0 && said.err.is_empty() && !said.out.is_empty(), "{program} {words:?}: {said:?}");
        said.out
    }

    /// Every verb, with the words before it, and whether it is refused.
    fn verbs(&self) -> Vec<(Vec<String>, bool)> {
        let mut all = Vec::new();
        for (name, _) in listed(&self.ok("tarn", &["help"])) {
            let help = self.ok("tarn", &["help", &name]);
            if help.contains("where 'command' is one of the following") {
                all.extend(listed(&help).into_iter().map(|(verb, is_refused)| (vec![name.clone(), verb], is_refused)));
            } else {
                all.push((vec![name], false));
            }
        }
        all
    }

    /// No daemon was started, and nothing else was made.
    #[track_caller]
    fn is_untouched(&self) {
        let names: BTreeSet<String> =
            fs::read_dir(self.directory.path()).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        assert_eq!(names, LINKS.into_iter().chain(["empty"]).map(str::to_owned).collect());
    }
}

/// The verbs in a list of them, and whether each is refused. One with several lines is there once.
fn listed(help: &str) -> Vec<(String, bool)> {
    let mut verbs: Vec<(String, bool)> = Vec::new();
    let mut refused = false;
    for line in help.lines().skip(2) {
        refused |= line.starts_with(REFUSED);
        let Some(line) = line.strip_prefix('\t').filter(|line| !line.starts_with(' ')) else { continue };
        let words: Vec<&str> = if refused {
            line.split(", ").map(|word| word.trim_end_matches(',')).collect()
        } else {
            line.split(' ').take(1).collect()
        };
        for word in words {
            if verbs.iter().all(|(known, _)| known != word) {
                verbs.push((word.to_owned(), refused));
            }
        }
    }
    verbs
}

fn texts(words: &[String]) -> Vec<&str> {
    words.iter().map(String::as_str).collect()
}

/// `zpool create --help` said "invalid option '-'", `tarn help zpool create` showed the list of tarn's verbs, and `tarn daemon --help`
/// started a daemon. Every verb explains itself, however it is asked, and nothing happens.
#[test]
fn every_verb_explains_itself() {
    let desk = Desk::new();
    let verbs = desk.verbs();
    let count = |program: &str| verbs.iter().filter(|(words, _)| words[0] == program).count();
    assert!(
        count("zpool") > 33 && count("zfs") > 38 && count("fs") > 5 && count("transaction") > 3 && count("daemon") == 1,
        "{verbs:?}"
    );
    for (verb, is_refused) in &verbs {
        let verb = texts(verb);
        let name = verb[verb.len() - 1];
        let help = desk.ok("tarn", &[&verb[..], &["--help"]].concat());
        assert!(help.to_lowercase().contains("usage:") && help.contains(name), "{verb:?}: {help}");
        assert_eq!(
            *is_refused,
            help.starts_with(&format!("{}: not yet supported by this version of tarn\n", verb.join(" "))),
            "{verb:?}: {help}"
        );
        let is_asked_by_letter = |program: &str, words: &[&str]| {
            let asked = [words, &["-h"]].concat();
            if verb[0] == "zfs" && ["diff", "send", "receive"].contains(&name) {
                // They have an option of that name.
                assert!(desk.run(program, &asked).err.contains("usage:"), "{program} {asked:?}");
            } else {
                assert_eq!(desk.ok(program, &asked), help, "{program} {asked:?}");
            }
        };
        is_asked_by_letter("tarn", &verb);
        assert_eq!(desk.ok("tarn", &[&["help"], &verb[..]].concat()), help, "help {verb:?}");
        let asked = desk.run("tarn", &[&verb[..], &["-?"]].concat());
        let shown = [asked.out, asked.err].concat();
        assert!(
            help.ends_with(&shown) || shown.trim_end() == help.trim_end() || help.contains(shown.trim_end()),
            "{verb:?} -?: {shown}"
        );
        assert!(!shown.contains("invalid option"), "{verb:?} -?: {shown}");
        if let [program, verb] = verb[..] {
            assert_eq!(desk.ok("tarn", &[program, "help", verb]), help, "{program} help {verb}");
            if LINKS.contains(&program) {
                assert_eq!(desk.ok(program, &[verb, "--help"]), help, "{program} {verb}");
                assert_eq!(desk.ok(program, &["help", verb]), help, "{program} help {verb}");
                is_asked_by_letter(program, &[verb]);
            }
        }
    }
    for program in ["tarn", "zpool", "zfs", "zdb"] {
        let help = desk.ok(program, &["--help"]);
        for word in ["-h", "-?"] {
            assert_eq!(desk.ok(program, &[word]), help, "{program} {word}");
        }
    }
    assert_eq!(desk.ok("tarn", &[]), desk.ok("tarn", &["help"]));
    desk.is_untouched();
}

/// `--help` after operands is help too, except where the words are another program's.
#[test]
fn help_is_asked_for_after_operands() {
    let desk = Desk::new();
    for words in
        [&["zpool", "create", "tank", "--help"][..], &["zfs", "set", "a=b", "tank", "--help"], &["zfs", "list", "-r", "--help"]]
    {
        assert!(desk.ok("tarn", words).starts_with("usage:\n"), "{words:?}");
    }
    let said = desk.run("tarn", &["transaction", "run", "tank", "--", "ls", "--help"]);
    assert!(said.code == 1 && said.err.starts_with("cannot begin a transaction in 'tank'"), "{said:?}");
    let said = desk.run("tarn", &["zfs", "list", "--", "--help"]);
    assert!(said.code == 1 && said.err.starts_with("cannot open '--help'"), "{said:?}");
    desk.is_untouched();
}

/// `tarn daemon bogus` started a daemon.
#[test]
fn a_mistyped_word_is_answered_with_what_was_meant() {
    let desk = Desk::new();
    for (words, complaint, hint) in [
        (&["daemon", "bogus"][..], "tarn daemon takes no arguments, but was given 'bogus'\nusage:\n\tdaemon\n", ""),
        (&["deamon"], "unrecognized command 'deamon'\nusage: tarn command", "did you mean 'daemon'?"),
        (&["zpol", "list"], "unrecognized command 'zpol'\n", "did you mean 'zpool'?"),
        (&["status"], "unrecognized command 'status'\n", "did you mean 'tarn zpool status'?"),
        (&["ls"], "unrecognized command 'ls'\n", "did you mean 'tarn fs ls'?"),
        (&["zpool", "improt"], "unrecognized command 'improt'\nusage: zpool command", "did you mean 'import'?"),
        (&["zpool", "mount"], "unrecognized command 'mount'\n", "did you mean 'tarn zfs mount'?"),
        (
            &["zfs", "snapshto"],
            "unrecognized command 'snapshto'\n",
            "did you mean 'snapshot'?",
        ),
        (&["zfs", "umont"], "unrecognized command 'umont'\n", "did you mean 'umount'?"),
        (&["fs", "sta"], "unrecognized command 'sta'\nusage: tarn fs command", "did you mean 'stat'?"),
        (&["transaction", "comit"], "unrecognized command 'comit'\n", "did you mean 'commit'?"),
        (&["help", "zpool", "creat"], "unrecognized command 'creat'\n", "did you mean 'create'?"),
        (&["zfs", "list", "-o", "nmae,usd"], "bad property list: invalid property 'nmae'\n", "did you mean 'name'?"),
        (&["zfs", "list", "-t", "snpashot"], "invalid type 'snpashot'\n", "did you mean 'snapshot'?"),
        (&["zfs", "list", "-s", "usd"], "invalid property 'usd'\n", "did you mean 'used'?"),
        (&["zfs", "inherit", "compresion", "tank"], "invalid property 'compresion'\n", "did you mean 'compression'?"),
        (&["zpool", "list", "-o", "healt"], "bad property list: invalid property 'healt'\n", "did you mean 'health'?"),
        (
            &["zpool", "get", "compression"],
            "bad property list: invalid property 'compression'\n",
            "'compression' is a property of file systems: 'zfs get', 'zfs set', '-O' of 'zpool create'",
        ),
        (
            &["zpool", "create", "-o", "ashfit=12", "tank", "x"],
            "property 'ashfit' is not a valid pool or vdev property\n",
            "did you mean 'ashift'?",
        ),
        (
            &["zpool", "create", "-O", "ashift=12", "tank", "x"],
            "property 'ashift' is not a valid filesystem property\n",
            "'ashift' is a property of pools: 'zpool get', 'zpool set', '-o' of 'zpool create'",
        ),
        (&["zpool", "list", "--jsno"], "invalid option '--jsno'\nusage:\n", ""),
    ] {
        let said = desk.run("tarn", words);
        assert!(said.code != 0 && said.out.is_empty() && said.err.starts_with(complaint), "{words:?}: {said:?}");
        assert!(hint.is_empty() || said.err.lines().last() == Some(hint), "{words:?}: {:?}", said.err.lines().last());
    }
    desk.is_untouched();
}

/// The options in the usage lines of a verb: `-x` of `[-xyz]`, and `--words`.
fn options(help: &str) -> BTreeSet<String> {
    let lines = help.lines().skip(1).take_while(|line| !line.is_empty());
    let words = lines.flat_map(|line| line.split(['[', ']', '|', '<', '>', ' ', '\t', ',', ';']));
    let of_word = |word: &str| -> Vec<String> {
        match (word.strip_prefix("--"), word.strip_prefix('-')) {
            (Some(name), _) if !name.is_empty() => vec![word.to_owned()],
            (None, Some(letters)) if letters.chars().all(|letter| letter.is_ascii_alphabetic()) => {
                letters.chars().map(|letter| format!("-{letter}")).collect()
            }
            _ => Vec::new(),
        }
    };
    words.flat_map(of_word).collect()
}

/// `zpool status -c`, `zpool add -a`, `zpool iostat -h` and others were in the usage and refused, or did nothing.
#[test]
fn every_option_that_is_listed_is_taken() {
    let desk = Desk::new();
    let mut seen = 0;
    for (verb, _) in desk.verbs().iter().filter(|(_, is_refused)| !is_refused) {
        let verb = texts(verb);
        for option in options(&desk.ok("tarn", &[&verb[..], &["--help"]].concat())) {
            // This one goes on for ever.
            if (verb.as_slice(), option.as_str()) == (&["zpool", "events"][..], "-f") {
                continue;
            }
            let said = desk.run("tarn", &[&verb[..], &[&option, "x"]].concat());
            for wrong in ["invalid option '", "not yet supported", "not supported"] {
                assert!(!said.err.lines().next().unwrap_or_default().contains(wrong), "{verb:?} {option}: {said:?}");
            }
            seen += 1;
        }
    }
    assert!(seen > 150, "{seen} options");
    // By tarn fs mkdir.
    fs::remove_dir(desk.directory.path().join("x")).unwrap();
    desk.is_untouched();
}

/// `tarn try | head` panicked. A reader may go away: that is no failure of the verb's, and least of all a panic.
#[test]
fn nobody_reads_to_the_end() {
    let desk = Desk::new();
    let unread = |command: &mut Command| {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let error = tempfile::NamedTempFile::new().unwrap();
        command.stdin(Stdio::null()).stdout(writer).stderr(error.reopen().unwrap());
        let mut child = command.spawn().unwrap();
        let code = crate::rig::wait_for(&mut child, LIMIT).unwrap_or_else(|| panic!("{command:?} hangs"));
        (code, fs::read_to_string(error.path()).unwrap())
    };
    for (verb, _) in desk.verbs() {
        for words in [[&texts(&verb)[..], &["--help"]].concat(), texts(&verb)] {
            // These two do what they are for.
            if words == ["daemon"] || words == ["try"] {
                continue;
            }
            let (code, said) = unread(&mut desk.command("tarn", &words));
            assert!(code < 100 && !said.contains("panicked"), "{words:?}: {code} {said}");
        }
    }
    let (code, said) = unread(&mut desk.command("tarn", &["try", "--no-tests", "--in", "empty", "--tree", "empty"]));
    assert!((code == 130 || code == 1) && !said.contains("panicked"), "{code} {said}");
    desk.is_untouched();
}

/// Anybody but root, and nobody who has anything here.
const SOMEBODY: u32 = 65_534;

/// `zpool create` by a user whose mount point could not be made said "failed to create mountpoint: Permission denied (os error 13)", and
/// then, again, that the device "is part of active pool". It says that the pool is there, and how to mount it; and that is true.
#[test]
fn a_user_learns_how_to_mount_the_pool_that_was_made() {
    let Some(rig) = Rig::new() else { return };
    if !has_program("fusermount3") || !has_program("setpriv") {
        return;
    }
    let program = rig.path("tarn");
    fs::copy(env!("CARGO_BIN_EXE_tarn"), &program).unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    rig.image("a.img", 128 << 20);
    fs::create_dir(rig.path("own")).unwrap();
    fs::create_dir(rig.path("roots")).unwrap();
    for name in ["", "a.img", "own"] {
        chown(rig.path(name), Some(SOMEBODY), Some(SOMEBODY)).unwrap();
    }
    let run = |words: &str| {
        let mut command = Command::new("setpriv");
        command.args([format!("--reuid={SOMEBODY}"), format!("--regid={SOMEBODY}"), "--clear-groups".to_owned()]).arg(&program);
        command
            .args(words.split(' ').map(|word| word.replace('@', &rig.text(""))))
            .env("TARN_SOCKET", rig.path("sock"))
            .current_dir(rig.path("own"));
        run_for(&mut command, LIMIT).unwrap_or_else(|| panic!("{words} hangs"))
    };
    if run("version").code != 0 {
        skipped("a user's first pool: another user cannot enter the temporary directory");
        return;
    }
    if fs::metadata("/dev/fuse").is_ok_and(|found| found.permissions().mode() & 0o006 != 0o006) {
        skipped("a user's first pool: /dev/fuse is root's alone here");
        return;
    }
    let place = rig.text("roots/tank");
    let said = run("zpool create -m @roots/tank tank @a.img");
    let expected = format!(
        "cannot mount 'tank': failed to create mountpoint {place}: Permission denied
the pool 'tank' was created and is imported, but its file system is not mounted
to mount it on {place}, when that can be: tarn zfs mount tank
to mount it on another directory: tarn zfs set -u mountpoint=DIRECTORY tank && tarn zfs mount tank
"
    );
    assert_eq!((said.code, said.err.as_str()), (1, expected.as_str()));
    let said = run("zfs create tank/below");
    assert!(
        said.code == 0 && said.err.contains("\nfilesystem successfully created, but not mounted\nto mount it on "),
        "{said:?}"
    );
    // As it says.
    for words in ["zfs set -u mountpoint=@own/tank tank", "zfs mount tank"] {
        let said = run(words);
        assert_eq!((said.code, said.err.as_str()), (0, ""), "{words}");
    }
    assert!(rig.is_mounted("own/tank"));
    let said = run("zpool export tank");
    assert_eq!((said.code, said.err.as_str()), (0, ""));
}

/// Makes /dev one in which there is no fuse, and lets go of the mounts of tests that run beside this one, which would find them busy.
const NO_FUSE: &str = r#"
awk -v ours="$1" '$3 ~ /^fuse/ && index($2, ours) != 1 { print $2 }' /proc/self/mounts | xargs -r umount
for name in null zero urandom; do : > "$1/$name" && mount --bind /dev/$name "$1/$name"; done
mount --rbind "$1" /dev && shift && exec "$@""#;

/// Without /dev/fuse `zpool create` said "cannot mount 'tank': No such file or directory (os error 2)". Each verb that mounts names the
/// device, and what to do; so does the tour. What needs no mount works.
#[test]
fn without_the_device_each_verb_that_mounts_names_it() {
    let Some(rig) = Rig::new() else { return };
    if !has_program("unshare") {
        return;
    }
    fs::create_dir(rig.path("dev")).unwrap();
    rig.image("a.img", 128 << 20);
    let without = |words: &str| {
        let inner = rig.command(words);
        let mut command = Command::new("unshare");
        command
            .args(["--mount", "--propagation", "private", "--", "sh", "-c", NO_FUSE, "sh"])
            .arg(rig.path("dev"))
            .arg(inner.get_program())
            .args(inner.get_args());
        for (name, value) in inner.get_envs() {
            let _ = match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
        run_for(&mut command, LIMIT).unwrap_or_else(|| panic!("{words} hangs"))
    };
    let said = without("version");
    if said.code != 0 {
        skipped(&format!("verbs without /dev/fuse: a mount namespace cannot be made: {}", said.err));
        return;
    }
    let told = |said: &Said, what: &str| {
        let words = "/dev/fuse: No such file or directory; nothing can be mounted without it: ";
        assert!(
            said.err.starts_with(what) && said.err.contains(words) && said.err.contains("--device /dev/fuse") && said.err.contains("modprobe fuse"),
            "{said:?}"
        );
        assert!(!said.err.contains("os error"), "{said:?}");
    };
    // The first one starts the daemon, which so has no device either, for any caller.
    let said = without("zpool create -m @mnt tank @a.img");
    told(&said, "cannot mount 'tank': ");
    assert!(said.code == 1 && said.err.contains("\nthe pool 'tank' was created and is imported"), "{said:?}");
    let said = rig.run("zfs create tank/a");
    told(&said, "cannot mount 'tank/a': ");
    assert_eq!(said.code, 0);
    rig.ok("zfs create -o mountpoint=legacy tank/b");
    fs::create_dir(rig.path("b")).unwrap();
    told(&rig.run("zfs mount tank"), "cannot mount 'tank': ");
    told(&rig.run("zfs mount -a"), "cannot mount 'tank': ");
    told(&rig.run("mount tank/b @b"), &format!("cannot mount 'tank/b' on '{}': ", rig.text("b")));
    told(&rig.run("fs ls tank/b:/"), "tarn fs ls: tank/b: ");
    assert_eq!(rig.ok("zfs list -Ho name tank/a"), "tank/a\n");
    rig.ok("zpool export tank");
    let said = without("zpool import -d @ tank");
    told(&said, "cannot mount 'tank': ");
    assert!(said.code == 0 && said.err.ends_with("Import was successful, but unable to mount some datasets\n"), "{said:?}");
    rig.ok("zpool export tank");
    let said = without("try");
    assert!(
        said.code == 1 && said.out.is_empty() && said.err.contains("/dev/fuse") && said.err.contains("modprobe fuse"),
        "{said:?}"
    );
    rig.zdb(&["a.img"]);
}

/// A byte that is no UTF-8 was taken for another one: `zfs set` stored a value that nobody had given.
#[test]
fn what_is_not_text_is_refused() {
    let Some(rig) = Rig::with_tank("a.img", 128 << 20, "-O mountpoint=none") else { return };
    let mut command = rig.command("zfs set");
    command.arg(OsStr::from_bytes(b"local:note=caf\xe9")).arg("tank");
    let said = run_for(&mut command, LIMIT).expect("it ends");
    assert_eq!(said.code, 1, "{said:?}");
    assert!(said.err.starts_with("'local:note=caf") && said.err.contains("' is not valid UTF-8"), "{said:?}");
    assert_eq!(rig.get("tank", "local:note"), "-");
    rig.finish("tank", &["a.img"]);
}
