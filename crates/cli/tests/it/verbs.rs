//! Verbs that look after file systems: versions, projects, what is waited for, and words for a shell.

use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::process::Command;

use crate::rig::{LIMIT, Rig, has_program, run_for};

fn rig() -> Option<Rig> {
    Rig::with_tank("a.img", 96 << 20, "-O mountpoint=@mnt")
}

#[test]
fn file_systems_are_upgraded_while_they_are_used() {
    let Some(rig) = rig() else { return };
    for version in 1..=4 {
        rig.ok(&format!("zfs create -o version={version} tank/v{version}"));
        fs::create_dir(rig.path(&format!("mnt/v{version}/old"))).unwrap();
        fs::write(rig.path(&format!("mnt/v{version}/old/file")), format!("of {version}")).unwrap();
    }
    let listed = rig.ok("zfs upgrade");
    assert!(listed.starts_with("This system is currently running ZFS filesystem version 5.\n\nThe following filesystems are out of date"), "{listed}");
    assert!(listed.ends_with("VER  FILESYSTEM\n---  ------------\n 1   tank/v1\n 2   tank/v2\n 3   tank/v3\n 4   tank/v4\n"), "{listed}");
    let open = File::open(rig.path("mnt/v1/old/file")).unwrap();
    assert_eq!(rig.ok("zfs upgrade -V 3 tank/v1 tank/v3"), "1 filesystems upgraded\n1 filesystems already at this version\n");
    assert_eq!(open.metadata().unwrap().len(), 4, "it is the same file");
    let said = rig.run("zfs upgrade -V 2 tank/v1");
    assert_eq!((said.code, said.out.as_str()), (1, "tank/v1: can not be downgraded; it is already at version 3\n0 filesystems upgraded\n"));
    rig.refused("zfs set version=2 tank/v1", "cannot set property for 'tank/v1': Can not downgrade; already at version 3");
    assert_eq!(rig.ok("zfs upgrade -r tank"), "4 filesystems upgraded\n1 filesystems already at this version\n");
    assert!(rig.ok("zfs upgrade").ends_with("All filesystems are formatted with the current version.\n"));
    for version in 1..=4 {
        let place = |name: &str| rig.path(&format!("mnt/v{version}/{name}"));
        assert_eq!(fs::read_to_string(place("old/file")).unwrap(), format!("of {version}"));
        fs::write(place("old/file"), "changed").unwrap();
        fs::rename(place("old/file"), place("old/moved")).unwrap();
        fs::create_dir(place("new")).unwrap();
        fs::write(place("new/file"), "new").unwrap();
        assert_eq!(fs::read_dir(place("old")).unwrap().count(), 1);
        assert_eq!(rig.get(&format!("tank/v{version}"), "version"), "5");
    }
    let history = rig.ok("zpool history -i tank");
    assert!(history.contains(" upgrade tank/v1 (") && history.contains("from 1 to 3"), "{history}");
    for (words, said) in [("zfs upgrade -V 9 tank", "invalid version 9"), ("zfs upgrade -r", "usage:"), ("zfs upgrade -v tank", "usage:")] {
        let refused = rig.run(words);
        assert!(refused.code == 2 && refused.err.contains(said), "{words}: {refused:?}");
    }
    drop(open);
    rig.ok("zpool export tank");
    rig.zdb(&["a.img"]);
    rig.ok("zpool import -d @. tank");
    assert_eq!(fs::read_to_string(rig.path("mnt/v1/old/moved")).unwrap(), "changed");
    rig.finish("tank", &["a.img"]);
}

#[test]
fn projects_are_shown_checked_set_and_cleared() {
    let Some(rig) = rig() else { return };
    fs::create_dir_all(rig.path("mnt/dir/sub")).unwrap();
    fs::write(rig.path("mnt/dir/file"), "x").unwrap();
    let (dir, file) = (rig.text("mnt/dir"), rig.text("mnt/dir/file"));
    assert_eq!(rig.ok("zfs project -d @mnt/dir"), format!("    0 - {dir}\n"));
    rig.ok("zfs project -p 42 -s -r @mnt/dir");
    let mut lines: Vec<String> = rig.ok("zfs project -r @mnt/dir").lines().map(str::to_owned).collect();
    lines.sort();
    assert_eq!(lines, [format!("   42 P {dir}"), format!("   42 P {file}"), format!("   42 P {dir}/sub")]);
    fs::write(rig.path("mnt/dir/made"), "later").unwrap();
    assert_eq!(rig.ok("zfs project @mnt/dir/made"), format!("   42 P {dir}/made\n"), "it is inherited");
    assert_eq!(rig.ok("zfs project -c -r @mnt/dir"), "");
    rig.ok("zfs project -p 7 @mnt/dir/file");
    assert_eq!(rig.ok("zfs project -c -p 42 @mnt/dir"), format!("{file} - project ID is not set properly (7/42)\n"));
    assert_eq!(rig.ok("zfs project -c -0 -p 42 @mnt/dir"), format!("{file}\0"));
    rig.ok("zfs project -C -k @mnt/dir/file");
    assert_eq!(rig.ok("zfs project -c -p 42 @mnt/dir"), format!("{file} - project ID is not set properly (7/42)\n{file} - project inherit flag is not set\n"));
    rig.ok("zfs project -C -r @mnt/dir");
    assert_eq!(rig.ok("zfs project @mnt/dir/file"), format!("    0 - {file}\n"));
    for (words, said) in [
        ("zfs project", "usage:"),
        ("zfs project -c -s @mnt", "cannot specify '-C' '-c' '-s' together"),
        ("zfs project -C -d @mnt", "'-d' is useless together with '-C'"),
        ("zfs project -k @mnt", "'-k' is only valid together with '-C'"),
        ("zfs project -p x @mnt", "project ID must be less than 4294967295"),
        ("zfs project -p 4294967295 @mnt", "invalid project ID"),
    ] {
        let refused = rig.run(words);
        assert!(refused.code == 2 && refused.err.contains(said), "{words}: {refused:?}");
    }
    let gone = rig.run("zfs project @mnt/gone");
    assert!(gone.code == 255 && gone.err.starts_with("failed to stat "), "{gone:?}");
    rig.finish("tank", &["a.img"]);
}

#[test]
fn files_without_a_name_are_waited_for() {
    let Some(rig) = rig() else { return };
    fs::write(rig.path("mnt/file"), vec![1; 1 << 20]).unwrap();
    rig.ok("zfs wait tank");
    let open = File::open(rig.path("mnt/file")).unwrap();
    fs::remove_file(rig.path("mnt/file")).unwrap();
    let waiting = std::cell::RefCell::new(rig.start("zfs wait -t deleteq tank"));
    std::thread::sleep(std::time::Duration::from_secs(1));
    assert!(waiting.borrow_mut().try_wait().unwrap().is_none(), "the file is open: {}", open.metadata().unwrap().nlink());
    drop(open);
    rig.wait("the file is gone", || waiting.borrow_mut().try_wait().unwrap().is_some());
    assert!(waiting.borrow_mut().wait().unwrap().success());
    let unknown = rig.run("zfs wait -t deleteq,scrub tank");
    assert!(unknown.code == 2 && unknown.err.contains("invalid activity 'scrub'"), "{unknown:?}");
    assert_eq!(rig.ok("zpool wait -p -t free,scrub tank 1"), "    FREE   SCRUB\n       0       0\n");
    assert_eq!(rig.ok("zpool wait -H -t discard,free tank 1"), "0\t0\n");
    assert_eq!(rig.run("zpool wait tank 1 1").code, 2);
    rig.refused("zpool wait -n tank", "invalid option 'n'");
    rig.finish("tank", &["a.img"]);
}

#[test]
fn a_shell_completes_what_there_is() {
    let Some(rig) = rig() else { return };
    for dataset in ["tank/home", "tank/home/joe", "tank/host"] {
        rig.ok(&format!("zfs create {dataset}"));
    }
    rig.ok("zfs snapshot tank/home@monday tank/host@monday");
    rig.ok("zfs snapshot tank/home@tuesday");
    rig.ok("zfs bookmark tank/home@monday tank/home#mark");
    let words = |line: &[&str]| {
        let mut command = rig.command("completion words");
        command.args(line);
        run_for(&mut command, LIMIT).unwrap().out.lines().collect::<Vec<_>>().join(" ")
    };
    assert_eq!(words(&["zfs", "dest"]), "destroy");
    assert_eq!(words(&["tarn", "zpool", "hist"]), "history");
    assert_eq!(words(&["zpool", "status", ""]), "tank");
    assert_eq!(words(&["zfs", "list", "ta"]), "tank");
    assert_eq!(words(&["zfs", "destroy", "tank/ho"]), "tank/home tank/host");
    assert_eq!(words(&["zfs", "destroy", "tank/home"]), "tank/home tank/home@ tank/home# tank/home/");
    assert_eq!(words(&["zfs", "destroy", "tank/home@"]), "tank/home@monday tank/home@tuesday");
    assert_eq!(words(&["zfs", "destroy", "tank/home@monday,t"]), "tank/home@monday,tuesday");
    assert_eq!(words(&["zfs", "rollback", "tank/home@t"]), "tank/home@tuesday");
    assert_eq!(words(&["zfs", "send", "-i", "tank/home#"]), "tank/home#mark");
    assert_eq!(words(&["zfs", "create", "tank/home@"]), "", "it takes no snapshots");
    assert_eq!(words(&["zfs", "nothing", "x/"]), "");
    if has_program("bash") {
        let script = format!(
            "source <({} completion bash); COMP_LINE='zfs destroy tank/home@m'; COMP_POINT=${{#COMP_LINE}}; _tarn_words; echo \"${{COMPREPLY[*]}}\"",
            env!("CARGO_BIN_EXE_tarn")
        );
        let mut bash = Command::new("bash");
        bash.args(["-c", &script]).env("TARN_SOCKET", rig.path("sock"));
        let said = run_for(&mut bash, LIMIT).unwrap();
        assert_eq!(said.out, "monday\n", "readline has what is before the '@': {said:?}");
    }
    if has_program("fish") {
        std::fs::write(rig.path("afile"), "").unwrap();
        for (line, expected) in [("zfs destroy tank/home@", "tank/home@monday\ntank/home@tuesday\n"), ("zpool create tank af", "afile\n")] {
            let script = format!("{} completion fish | source; complete -C '{line}'", env!("CARGO_BIN_EXE_tarn"));
            let mut fish = Command::new("fish");
            fish.args(["--no-config", "-c", &script]).env("TARN_SOCKET", rig.path("sock")).env("HOME", rig.path("")).current_dir(rig.path(""));
            assert_eq!(run_for(&mut fish, LIMIT).unwrap().out, expected, "{line}");
        }
    }
    if has_program("zsh") {
        // A terminal in which somebody presses TAB, and then runs the line with `echo` before it.
        let script = format!(
            "zmodload zsh/zpty; zpty t zsh -f -i; zpty -w t \"autoload -U compinit; compinit -u -D; source <({} completion zsh); print RE''ADY\"; \
             while zpty -r t line; do [[ $line == *READY* ]] && break; done; zpty -w -n t $'zfs destroy tank/home@tu\\t'; sleep 2; \
             zpty -w -n t $'\\x01print GOT:\\n'; zpty -w t \"print DO''NE\"; while zpty -r t line; do print -r -- $line; [[ $line == *DONE* ]] && break; done",
            env!("CARGO_BIN_EXE_tarn")
        );
        let mut zsh = Command::new("zsh");
        zsh.args(["-f", "-c", &script]).env("TARN_SOCKET", rig.path("sock")).env("HOME", rig.path(""));
        let said = run_for(&mut zsh, LIMIT).unwrap();
        assert!(said.out.contains("GOT: zfs destroy tank/home@tuesday"), "{said:?}");
    }
    rig.finish("tank", &["a.img"]);
}
