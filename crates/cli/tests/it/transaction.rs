//! Transactions of programs over the mount: a script that installs a package, killed at every step; conflicts, limits, owners.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use rustix::process::{Signal, kill_process};
use sim::places::say;

use crate::rig::{LIMIT, Rig, has_program, run_for, wait_for};

/// Replaces some files of an installed package, removes some, adds some; says after each step that it was done. `$1`: where the package
/// is; `$2`: the step after which the daemon dies; `$3`: its process.
const INSTALL: &str = r#"
set -e
cd "$1"
step=0
did() { step=$((step+1)); [ "$step" != "$2" ] || kill -KILL "$3"; }
seq 1 3000 > bin/tool.new; did "" "$2" "$3"
chmod 755 bin/tool.new; did "" "$2" "$3"
mv bin/tool.new bin/tool; did "" "$2" "$3"
sed -i 's/version = 1/version = 2/' etc/conf; did "" "$2" "$3"
rm lib/old1 lib/old2; did "" "$2" "$3"
rmdir lib; did "" "$2" "$3"
mkdir -p share/doc; cp bin/tool share/doc/tool.txt; did "" "$2" "$3"
ln -s ../bin/tool share/link; did "" "$2" "$3"
echo "tool 2" > installed; did "" "$2" "$3"
test "$(grep -c . bin/tool)" = 3000 && grep -q "version = 2" etc/conf && test ! -e lib
"#;
const STEPS: u32 = 9;

/// Version 1 of the package.
fn prepare(root: &Path) {
    for directory in ["bin", "etc", "lib"] {
        fs::create_dir(root.join(directory)).unwrap();
    }
    fs::write(root.join("bin/tool"), "old tool\n".repeat(2000)).unwrap();
    fs::write(root.join("etc/conf"), "name = tool\nversion = 1\n").unwrap();
    fs::write(root.join("lib/old1"), "1").unwrap();
    fs::write(root.join("lib/old2"), "2").unwrap();
    fs::write(root.join("installed"), "tool 1\n").unwrap();
}

/// Everything below a directory, as text: paths, types, permissions, contents.
fn describe(root: &Path) -> String {
    let mut lines: Vec<String> = walkdir::WalkDir::new(root)
        .sort_by_file_name()
        .into_iter()
        .map(|entry| {
            use std::os::unix::fs::PermissionsExt;
            let entry = entry.unwrap();
            let (meta, path) = (entry.metadata().unwrap(), entry.path());
            let name = path.strip_prefix(root).unwrap().display().to_string();
            let what = if meta.is_symlink() {
                fs::read_link(path).unwrap().display().to_string()
            } else if meta.is_file() {
                let text = fs::read(path).unwrap();
                format!("{} bytes, {:x}", text.len(), text.iter().fold(7u64, |hash, byte| hash.wrapping_mul(31).wrapping_add(u64::from(*byte))))
            } else {
                "directory".to_owned()
            };
            let mode = if meta.is_symlink() { 0 } else { meta.permissions().mode() };
            format!("{name}: {mode:o} {what}")
        })
        .collect();
    lines.sort();
    lines.join("\n")
}

fn mounted() -> Option<Rig> {
    let rig = Rig::new()?;
    if !has_program("unshare") {
        return None;
    }
    rig.image("a.img", 128 << 20);
    rig.ok("zpool create -O mountpoint=@mnt tank @a.img");
    fs::write(rig.path("install"), INSTALL).unwrap();
    Some(rig)
}

fn again(rig: &Rig) {
    rig.unmount_all();
    rig.ok("zpool import -d @a.img tank");
}

/// What the package is before the installation and after it, as one that nobody disturbs does it, and how long it takes.
fn both(rig: &Rig) -> ([String; 2], Duration) {
    rig.ok("zfs create tank/model");
    let model = rig.path("mnt/model");
    prepare(&model);
    let old = describe(&model);
    let begun = Instant::now();
    rig.ok(&format!("transaction run tank/model sh @install {} 0 0", model.display()));
    let took = begun.elapsed();
    let new = describe(&model);
    assert!(old != new && new.contains("share/link: 0 ../bin/tool"), "{new}");
    rig.ok("zfs destroy tank/model");
    ([old, new], took)
}

/// The daemon dies in the middle of the script: nothing has happened. It dies during the commit: all or nothing, and all if it was said so.
fn killed(steps: impl Iterator<Item = u32>, commits: u32, seed: u64) {
    let Some(rig) = mounted() else { return };
    println!("seed {seed}: TARN_SEED={seed} cargo test -p cli --test it transaction -- --include-ignored");
    let mut dice = ChaCha8Rng::seed_from_u64(seed);
    let ([old, new], took) = both(&rig);
    rig.ok("zfs create tank/package");
    let root = rig.path("mnt/package");
    prepare(&root);
    rig.ok("zpool sync tank");
    let run = |step: u32| format!("transaction run tank/package sh @install {} {step} {}", root.display(), rig.daemon().as_raw_nonzero());
    for step in steps {
        let said = rig.run(&run(step));
        assert_ne!(said.code, 0, "step {step}: {said:?}");
        again(&rig);
        assert_eq!(describe(&root), old, "the daemon died after step {step}");
    }
    let mut outcomes = [0, 0];
    for round in 0..commits {
        let mut child = rig.start(&run(0));
        // The commit is the end of it.
        std::thread::sleep(took.mul_f64(dice.random_range(0.6..1.3)));
        let _ = kill_process(rig.daemon(), Signal::KILL);
        let acknowledged = wait_for(&mut child, LIMIT).expect("the command ends when the daemon has died") == 0;
        rig.kill();
        again(&rig);
        let found = describe(&root);
        let which = [&old, &new].iter().position(|state| **state == found);
        let which = which.unwrap_or_else(|| panic!("seed {seed}, round {round}: neither the old nor the new package:\n{found}"));
        assert!(!acknowledged || which == 1, "seed {seed}, round {round}: it was said to be durable");
        outcomes[which] += 1;
        if which == 1 {
            fs::remove_dir_all(&root).unwrap_or_default();
            for entry in fs::read_dir(&root).unwrap() {
                let _ = fs::remove_dir_all(entry.unwrap().path());
            }
            let _ = fs::remove_file(root.join("installed"));
            prepare(&root);
            rig.ok("zpool sync tank");
        }
    }
    say(&format!("transactions over the mount: killed around the commit, {} times the old package, {} times the new", outcomes[0], outcomes[1]));
    let said = rig.run(&run(0));
    assert_eq!((said.code, describe(&root)), (0, new), "{said:?}");
    rig.ok("zpool export tank");
    rig.check_in("", "tank");
    rig.zdb(&["a.img"]);
}

fn seed() -> u64 {
    std::env::var("TARN_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or_else(|| rand::random_range(0..1 << 40))
}

#[test]
fn an_installation_is_there_or_is_not_wherever_the_daemon_dies() {
    let seed = seed();
    killed([1 + (seed % u64::from(STEPS)) as u32, STEPS].into_iter(), 3, seed);
}

#[test]
#[ignore = "minutes: every step, and many commits"]
fn an_installation_is_killed_at_every_step() {
    killed(1..=STEPS, 60, seed());
}

/// Other programs see nothing until the commit, and then everything; a conflict is reported; what is too large is refused.
#[test]
fn a_transaction_is_alone_until_it_is_committed() {
    let Some(rig) = mounted() else { return };
    let root = rig.path("mnt");
    fs::write(root.join("a"), "1").unwrap();
    fs::write(root.join("b"), "1").unwrap();
    let own = std::process::id();
    let begin = || rig.ok(&format!("transaction begin -o {own} tank")).trim_end().to_owned();
    let end = |verb: &str, view: &str| rig.run(&format!("transaction {verb} {view}"));

    let view = begin();
    let inside = |name: &str| Path::new(&view).join(name);
    assert_eq!(fs::read_to_string(inside("a")).unwrap(), "1");
    fs::write(inside("a"), "two").unwrap();
    fs::rename(inside("b"), inside("c")).unwrap();
    fs::create_dir(inside("d")).unwrap();
    fs::write(inside("d/e"), vec![7; 100_000]).unwrap();
    assert_eq!((fs::read_to_string(inside("a")).unwrap().as_str(), fs::read(inside("d/e")).unwrap().len()), ("two", 100_000));
    assert_eq!(fs::read_to_string(root.join("a")).unwrap(), "1");
    assert!(root.join("b").exists() && !root.join("c").exists() && !root.join("d").exists());
    let held = fs::File::open(inside("a")).unwrap();
    let said = end("commit", &view);
    assert!(said.code == 1 && said.err.contains("is in use"), "{said:?}");
    drop(held);
    rig.refused("zpool export tank", "busy");
    assert_eq!(end("commit", &view).code, 0);
    assert_eq!((fs::read_to_string(root.join("a")).unwrap().as_str(), fs::read(root.join("d/e")).unwrap()), ("two", vec![7; 100_000]));
    assert!(!root.join("b").exists() && root.join("c").exists());

    // Somebody else writes what it has read.
    let view = begin();
    let _ = fs::read(Path::new(&view).join("a")).unwrap();
    fs::write(Path::new(&view).join("new"), "x").unwrap();
    fs::write(root.join("a"), "other").unwrap();
    let said = end("commit", &view);
    assert!(said.code == 75 && said.err.contains("changed by somebody else"), "{said:?}");
    assert!(!root.join("new").exists() && fs::read_to_string(root.join("a")).unwrap() == "other");
    assert_eq!(end("commit", &view).code, 1, "it is over");

    // Too much: the write says so, and there is no commit of the rest.
    let view = begin();
    fs::write(Path::new(&view).join("new"), "x").unwrap();
    let error = fs::write(Path::new(&view).join("large"), vec![1; 70 << 20]).unwrap_err();
    assert_eq!(error.raw_os_error(), Some(libc::EFBIG), "{error}");
    let said = end("commit", &view);
    assert!(said.code == 1 && said.err.contains("a transaction in tank holds at most"), "{said:?}");
    assert!(!root.join("new").exists() && !root.join("large").exists());

    // An abort, and a forced export.
    let view = begin();
    fs::write(Path::new(&view).join("new"), "x").unwrap();
    assert_eq!(end("abort", &view).code, 0);
    let view = begin();
    fs::write(Path::new(&view).join("new"), "x").unwrap();
    rig.ok("zpool export -f tank");
    rig.ok("zpool import -d @a.img tank");
    assert!(!root.join("new").exists() && root.join("d/e").exists());
    rig.ok("zpool export tank");
    rig.zdb(&["a.img"]);
}

/// Nobody is there any more to commit or abort it.
#[test]
fn a_transaction_ends_with_its_owner() {
    let Some(rig) = mounted() else { return };
    let mut sleeper = std::process::Command::new("sleep").arg("1000").spawn().unwrap();
    let view = rig.ok(&format!("transaction begin -o {} tank", sleeper.id())).trim_end().to_owned();
    fs::write(Path::new(&view).join("new"), "x").unwrap();
    sleeper.kill().unwrap();
    sleeper.wait().unwrap();
    rig.wait("the end of the transaction", || !Path::new(&view).exists());
    assert!(!rig.path("mnt/new").exists());
    rig.refused(&format!("transaction begin -o {} tank", sleeper.id()), "there is no process");
    // The command that `run` waits for fails; its own exit code is passed on.
    let code = run_for(&mut rig.command("transaction run tank sh -c exit"), LIMIT).unwrap().code;
    assert_eq!(code, 0);
    assert_eq!(rig.run("transaction run -d tank sh -ec false").code, 1);
    rig.ok("zpool export tank");
}

/// `run` within `run`, as for two datasets: the inner view was mounted where the inner command could not see it, which wrote to the bare directory
/// below it. The commit found nothing to do and succeeded.
#[test]
fn a_view_that_its_user_cannot_see_is_refused() {
    let Some(rig) = mounted() else { return };
    rig.ok("zfs create tank/b");
    let tarn = env!("CARGO_BIN_EXE_tarn");
    let apart = "unshare --mount --propagation private --";
    rig.refused(&format!("transaction run tank {apart} {tarn} transaction run tank/b touch @mnt/b/new"), "cannot be seen from this mount namespace");
    rig.refused(&format!("transaction run tank {apart} {tarn} transaction begin tank/b"), "cannot be seen from this mount namespace");
    assert!(!rig.path("mnt/b/new").exists());
    let left: Vec<_> = fs::read_dir(rig.path("sock.transactions")).unwrap().collect();
    assert!(left.is_empty(), "{left:?}");
    // Both at once is possible: their beginner sees them.
    let own = std::process::id();
    let views = ["tank", "tank/b"].map(|dataset| rig.ok(&format!("transaction begin -o {own} {dataset}")).trim_end().to_owned());
    for view in &views {
        fs::write(Path::new(view).join("new"), "x").unwrap();
    }
    for view in &views {
        rig.ok(&format!("transaction commit {view}"));
    }
    assert!(rig.path("mnt/new").exists() && rig.path("mnt/b/new").exists());
    rig.ok("zpool export tank");
}
