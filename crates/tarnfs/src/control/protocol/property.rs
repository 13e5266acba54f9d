//! Property values on their way: raw, with their source.

use serde::{Deserialize, Serialize};

/// A raw value. Words (`on`, `lz4`) travel as their numbers, ratios as hundredths, times as seconds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Value {
    /// A number, or the number of a word.
    Number(u64),
    /// A text.
    Text(String),
}

impl Value {
    /// The number, if it is one.
    #[must_use]
    pub fn number(&self) -> Option<u64> {
        match self {
            Value::Number(number) => Some(*number),
            Value::Text(_) => None,
        }
    }

    /// The text, if it is one.
    #[must_use]
    pub fn text(&self) -> Option<&str> {
        match self {
            Value::Number(_) => None,
            Value::Text(text) => Some(text),
        }
    }
}

impl From<u64> for Value {
    fn from(number: u64) -> Value {
        Value::Number(number)
    }
}

impl From<&str> for Value {
    fn from(text: &str) -> Value {
        Value::Text(text.to_owned())
    }
}

impl From<String> for Value {
    fn from(text: String) -> Value {
        Value::Text(text)
    }
}

/// Where a value comes from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Source {
    /// Computed: it has no source.
    None,
    /// Nobody has set it.
    Default,
    /// Set for this mount only.
    Temporary,
    /// Set on this dataset.
    Local,
    /// Set on the ancestor named here.
    Inherited(String),
    /// Came with a stream.
    Received,
}

/// One property of one dataset or pool.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PropertyValue {
    /// Its name (`compression`, `com.example:owner`, `userused@1000`, `feature@draid`).
    pub name: String,
    /// Its value in effect.
    pub value: Value,
    /// Where that comes from.
    pub source: Source,
    /// The value that came with a stream, when asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub received: Option<Value>,
}

impl PropertyValue {
    /// A value with a source.
    pub fn new(name: impl Into<String>, value: impl Into<Value>, source: Source) -> PropertyValue {
        PropertyValue { name: name.into(), value: value.into(), source, received: None }
    }
}

/// Which properties an answer should have.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Wanted {
    /// Every visible property that applies, and the user's own.
    All,
    /// These. One that does not apply, or has no value, is left out of the answer.
    Only(Vec<String>),
}

/// A property to set, already checked against the property table.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Setting {
    /// Its full name.
    pub name: String,
    /// Its raw value.
    pub value: Value,
}

impl Setting {
    /// A property to set.
    pub fn new(name: impl Into<String>, value: impl Into<Value>) -> Setting {
        Setting { name: name.into(), value: value.into() }
    }
}
