//! Where a file system is mounted, from the property as it is stored.
//!
//! # Theory
//!
//! `mountpoint` is stored once, on the dataset where it was set, and children add their own relative name to it:
//! `tank` with `/data` puts `tank/a/b` at `/data/a/b`. With nothing set anywhere the value is `/`, inherited from no
//! dataset, so that `tank/a` is at `/tank/a`. An alternate root goes before all of it.

use super::protocol::property::Source;

/// The path for `dataset`, whose stored `mountpoint` is `value` from `source`. `none` and `legacy` stay as they are.
#[must_use]
pub fn resolve(dataset: &str, value: &str, source: &Source, altroot: Option<&str>) -> String {
    if !value.starts_with('/') {
        return value.to_owned();
    }
    let relative = match source {
        Source::Local | Source::Received | Source::Temporary | Source::None => "",
        Source::Default => dataset,
        Source::Inherited(ancestor) => dataset.strip_prefix(ancestor.as_str()).map_or("", |rest| rest.trim_start_matches('/')),
    };
    let root = altroot.filter(|root| *root != "/" && *root != "-").unwrap_or("");
    let value = if value == "/" && (!root.is_empty() || !relative.is_empty()) { "" } else { value };
    let slash = if relative.is_empty() || relative.starts_with('@') { "" } else { "/" };
    format!("{root}{value}{slash}{relative}")
}
