//! The JSON that `-j` prints: OpenZFS's envelope, numbers as strings unless `--json-int`.

use serde_json::{Map, Value as Json, json};
use tarnfs::control::Source;

use crate::session::Session;

/// An object that keeps the order in which it was filled.
pub(crate) type Object = Map<String, Json>;

/// The envelope of a command's output, with nothing in it.
pub(crate) fn envelope(command: &str) -> Object {
    let mut object = Object::new();
    object.insert("output_version".into(), json!({ "command": command, "vers_major": 0, "vers_minor": 1 }));
    object
}

/// Prints an object on a line.
pub(crate) fn print(session: &mut Session<'_>, object: Object) {
    session.print(format_args!("{}\n", Json::Object(object)));
}

/// A number, as a string unless `as_int`.
pub(crate) fn number(value: u64, as_int: bool) -> Json {
    if as_int { Json::from(value) } else { Json::from(value.to_string()) }
}

/// One property: `{"value": …, "source": {"type": …, "data": …}}`.
pub(crate) fn property(value: &str, source: &Source, received: Option<&str>, as_int: bool) -> Json {
    let all_digits = value.bytes().all(|b| b.is_ascii_digit());
    let number = if as_int && all_digits { Some(value.parse::<u64>().unwrap_or(0)) } else { None };
    let value = number.map_or_else(|| Json::from(value), Json::from);
    let (kind, data) = match source {
        Source::None => ("NONE", "-"),
        Source::Default => ("DEFAULT", "-"),
        Source::Local => ("LOCAL", "-"),
        Source::Temporary => ("TEMPORARY", "-"),
        Source::Inherited(from) => ("INHERITED", from.as_str()),
        Source::Received => ("RECEIVED", received.unwrap_or("-")),
    };
    json!({ "value": value, "source": { "type": kind, "data": data } })
}
