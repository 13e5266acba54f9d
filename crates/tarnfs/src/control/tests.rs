use super::*;

#[test]
fn messages_survive_the_wire() {
    let request = Request::DatasetSet(DatasetSet {
        name: "tank/a".into(),
        settings: vec![Setting::new("quota", u64::MAX), Setting::new("user:x", "12")],
        no_remount: false,
        received: false,
    });
    let mut stream = Vec::new();
    wire::write_message(&mut stream, &request).expect("write");
    wire::write_message(&mut stream, &Request::Ping).expect("write");
    let mut reader = stream.as_slice();
    assert_eq!(wire::read_message::<Request>(&mut reader).expect("read"), Some(request));
    assert_eq!(wire::read_message::<Request>(&mut reader).expect("read"), Some(Request::Ping));
    assert_eq!(wire::read_message::<Request>(&mut reader).expect("read"), None);
}

#[test]
fn numbers_and_texts_of_digits_stay_apart() {
    for value in [Value::Number(12), Value::Text("12".into()), Value::Number(u64::MAX)] {
        let json = serde_json::to_string(&value).expect("json");
        assert_eq!(serde_json::from_str::<Value>(&json).expect("value"), value);
    }
}

#[test]
fn hostile_messages_are_refused() {
    let mut long = u32::MAX.to_le_bytes().to_vec();
    long.extend_from_slice(b"{}");
    assert!(wire::read_message::<Request>(&mut long.as_slice()).is_err());
    let mut short = 1000u32.to_le_bytes().to_vec();
    short.extend_from_slice(b"\"Ping\"");
    assert!(wire::read_message::<Request>(&mut short.as_slice()).is_err());
    let mut broken = 4u32.to_le_bytes().to_vec();
    broken.extend_from_slice(b"Ping");
    assert!(wire::read_message::<Request>(&mut broken.as_slice()).is_err());
    assert!(wire::read_message::<Request>(&mut [1u8, 0].as_slice()).is_err());
}

#[test]
fn mountpoints_add_what_is_below_the_dataset_that_sets_them() {
    use mountpoint::resolve;
    let from = |name: &str| Source::Inherited(name.into());
    assert_eq!(resolve("tank/a", "/", &Source::Default, None), "/tank/a");
    assert_eq!(resolve("tank", "/", &Source::Default, Some("/mnt/m0")), "/mnt/m0/tank");
    assert_eq!(resolve("tank", "/", &Source::Default, Some("/")), "/tank");
    assert_eq!(resolve("tank/a/b", "/data", &from("tank"), None), "/data/a/b");
    assert_eq!(resolve("tank/a", "/", &from("tank"), None), "/a");
    assert_eq!(resolve("tank/a", "/data", &Source::Local, Some("/mnt")), "/mnt/data");
    assert_eq!(resolve("tank/a", "/", &Source::Local, None), "/");
    assert_eq!(resolve("tank/a", "/", &Source::Local, Some("/mnt")), "/mnt");
    assert_eq!(resolve("tank/a", "legacy", &from("tank"), Some("/mnt")), "legacy");
}
