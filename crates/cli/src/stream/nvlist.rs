//! Name-value lists as OpenZFS's `nvlist_print` has them, which tools parse.

use std::io::{Result, Write};

use ondisk::nvlist::{NvList, Value};

/// Prints a list, indented by so many tabs.
pub(crate) fn print(out: &mut dyn Write, list: &NvList, depth: usize) -> Result<()> {
    let tabs = "\t".repeat(depth);
    writeln!(out, "{tabs}nvlist version: 0")?;
    for (name, value) in list.iter() {
        write!(out, "{tabs}\t{name} = ")?;
        match value {
            Value::List(inner) => {
                writeln!(out, "(embedded nvlist)")?;
                print(out, inner, depth + 1)?;
                writeln!(out, "{tabs}\t(end {name})")?;
            }
            Value::ListArray(items) => {
                writeln!(out, "(array of embedded nvlists)")?;
                for (index, item) in items.iter().enumerate() {
                    writeln!(out, "{tabs}\t(start {name}[{index}])")?;
                    print(out, item, depth + 1)?;
                    writeln!(out, "{tabs}\t(end {name}[{index}])")?;
                }
            }
            value => write!(out, "{}", plain(value))?,
        }
        writeln!(out)?;
    }
    Ok(())
}

fn all<T>(items: &[T], one: impl Fn(&T) -> String) -> String {
    items.iter().map(one).collect::<Vec<_>>().join(" ")
}

/// A value that is no list: signed numbers are decimal, others hexadecimal.
fn plain(value: &Value) -> String {
    match value {
        Value::Boolean => "1".to_owned(),
        Value::BooleanValue(truth) => u8::from(*truth).to_string(),
        Value::Byte(byte) => format!("{byte:#04x}"),
        Value::Int8(number) => number.to_string(),
        Value::Int16(number) => number.to_string(),
        Value::Int32(number) => number.to_string(),
        Value::Int64(number) => number.to_string(),
        Value::UInt8(number) => format!("{number:#x}"),
        Value::UInt16(number) => format!("{number:#x}"),
        Value::UInt32(number) => format!("{number:#x}"),
        Value::UInt64(number) => format!("{number:#x}"),
        Value::HighResolutionTime(time) => format!("{time:#x}"),
        Value::Double(number) => format!("0x{number:.6}"),
        Value::String(text) => text.to_string(),
        Value::BooleanArray(items) => all(items, |truth| u8::from(*truth).to_string()),
        Value::ByteArray(items) => all(items, |byte| format!("{byte:#04x}")),
        Value::Int8Array(items) => all(items, i8::to_string),
        Value::Int16Array(items) => all(items, i16::to_string),
        Value::Int32Array(items) => all(items, i32::to_string),
        Value::Int64Array(items) => all(items, i64::to_string),
        Value::UInt8Array(items) => all(items, |number| format!("{number:#x}")),
        Value::UInt16Array(items) => all(items, |number| format!("{number:#x}")),
        Value::UInt32Array(items) => all(items, |number| format!("{number:#x}")),
        Value::UInt64Array(items) => all(items, |number| format!("{number:#x}")),
        Value::StringArray(items) => all(items, ToString::to_string),
        Value::List(_) | Value::ListArray(_) => String::new(),
    }
}
