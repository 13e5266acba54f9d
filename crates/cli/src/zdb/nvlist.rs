//! Name-value lists as text and as JSON.

use std::fmt::Write;

use ondisk::nvlist::{NvList, NvString, Value};
use serde_json::{Map, Value as Json};

fn scalar(value: &Value) -> Option<String> {
    Some(match value {
        Value::Byte(number) => number.to_string(),
        Value::Int8(number) => number.to_string(),
        Value::UInt8(number) => number.to_string(),
        Value::Int16(number) => number.to_string(),
        Value::UInt16(number) => number.to_string(),
        Value::Int32(number) => number.to_string(),
        Value::UInt32(number) => number.to_string(),
        Value::Int64(number) | Value::HighResolutionTime(number) => number.to_string(),
        Value::UInt64(number) => number.to_string(),
        Value::Double(number) => number.to_string(),
        Value::BooleanValue(truth) => truth.to_string(),
        Value::String(text) => format!("'{text}'"),
        _ => return None,
    })
}

fn elements(value: &Value) -> Vec<String> {
    fn all<T: ToString>(items: &[T]) -> Vec<String> {
        items.iter().map(ToString::to_string).collect()
    }
    match value {
        Value::ByteArray(items) | Value::UInt8Array(items) => all(items),
        Value::Int8Array(items) => all(items),
        Value::Int16Array(items) => all(items),
        Value::UInt16Array(items) => all(items),
        Value::Int32Array(items) => all(items),
        Value::UInt32Array(items) => all(items),
        Value::Int64Array(items) => all(items),
        Value::UInt64Array(items) => all(items),
        Value::BooleanArray(items) => all(items),
        Value::StringArray(items) => items.iter().map(|text: &NvString| format!("'{text}'")).collect(),
        _ => Vec::new(),
    }
}

/// A line for each pair, lists below their names. Depth was bounded when the list was read.
pub(crate) fn text(list: &NvList, indent: usize) -> String {
    let mut out = String::new();
    write_list(&mut out, list, indent);
    out
}

fn write_list(out: &mut String, list: &NvList, indent: usize) {
    let pad = " ".repeat(indent);
    for (name, value) in list.iter() {
        match value {
            Value::Boolean => {
                let _ = writeln!(out, "{pad}{name}");
            }
            Value::List(inner) => {
                let _ = writeln!(out, "{pad}{name}:");
                write_list(out, inner, indent + 4);
            }
            Value::ListArray(items) => {
                for (index, item) in items.iter().enumerate() {
                    let _ = writeln!(out, "{pad}{name}[{index}]:");
                    write_list(out, item, indent + 4);
                }
            }
            value => match scalar(value) {
                Some(text) => {
                    let _ = writeln!(out, "{pad}{name}: {text}");
                }
                None => {
                    for (index, item) in elements(value).iter().enumerate() {
                        let _ = writeln!(out, "{pad}{name}[{index}]: {item}");
                    }
                }
            },
        }
    }
}

/// The same as JSON.
pub(super) fn json(list: &NvList) -> Json {
    let pairs = list.iter().map(|(name, value)| (name.to_string(), value_json(value)));
    Json::Object(pairs.collect::<Map<String, Json>>())
}

fn value_json(value: &Value) -> Json {
    match value {
        Value::Boolean => Json::Bool(true),
        Value::BooleanValue(truth) => Json::Bool(*truth),
        Value::UInt64(number) => (*number).into(),
        Value::String(text) => text.to_string_lossy().into(),
        Value::List(inner) => json(inner),
        Value::ListArray(items) => items.iter().map(json).collect(),
        Value::StringArray(items) => items.iter().map(|text| Json::from(text.to_string_lossy())).collect(),
        value => match scalar(value) {
            Some(text) => text.parse::<i64>().map_or_else(|_| Json::from(text), Json::from),
            None => elements(value).into_iter().map(|text| text.parse::<u64>().map_or_else(|_| Json::from(text), Json::from)).collect(),
        },
    }
}
