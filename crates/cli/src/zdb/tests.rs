use jiff::tz::TimeZone;
use tarnfs::control::{Reply, Request};

use crate::session::{Control, Session};

struct Nobody;

impl Control for Nobody {
    fn call(&mut self, _: Request) -> Reply {
        Reply::Status(Vec::new())
    }
}

fn run(words: &[&str]) -> (u8, String, String) {
    let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
    let (mut out, mut err) = (Vec::new(), Vec::new());
    let mut session = Session { control: &mut Nobody, out: &mut out, err: &mut err, now: 0, zone: TimeZone::UTC, history: crate::session::History::default() };
    let code = super::run(&mut session, &words);
    (code, String::from_utf8(out).expect("UTF-8"), String::from_utf8(err).expect("UTF-8"))
}

#[test]
fn devices_without_labels_are_told_apart_from_none() {
    let directory = tempfile::tempdir().expect("directory");
    let file = directory.path().join("empty").display().to_string();
    std::fs::write(&file, vec![0; 1 << 20]).expect("file");
    let (code, out, _) = run(&["-l", &file]);
    assert_eq!(code, 2);
    assert_eq!(out.lines().next(), Some("failed to unpack label 0"));
    let (code, out, _) = run(&["-l", "/nosuch/device"]);
    assert_eq!((code, out.as_str()), (1, "cannot open '/nosuch/device': No such file or directory\n"));
}

#[test]
fn usage_is_shown_when_nothing_is_named() {
    for words in [&[][..], &["-l"], &["-x", "tank"], &["-p", "/tmp", "tank"]] {
        let (code, out, err) = run(words);
        assert_eq!((code, out.as_str()), (1, ""), "{words:?}");
        assert!(err.contains("Usage:\tzdb"), "{err}");
    }
    let directory = tempfile::tempdir().expect("directory");
    let (code, _, err) = run(&["-e", "-p", directory.path().to_str().expect("UTF-8"), "-C", "tank"]);
    assert_eq!(code, 1);
    assert!(err.starts_with("zdb: can't open 'tank': "), "{err}");
}
