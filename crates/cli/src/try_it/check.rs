//! The checker's verdict on the exported pool, in two lines.

use anyhow::{Context, Result};
use lab::comparator::tarn::Pool;
use lab::process;
use serde_json::Value;

use crate::text::units;

/// How many findings are shown.
const SHOWN: usize = 5;

/// The checker's verdict.
pub(super) struct Verdict {
    pub(super) clean: bool,
    pub(super) words: Vec<String>,
}

/// The words after `tarn` that check this pool.
pub(super) fn words(pool: &Pool) -> Result<Vec<String>> {
    let folder = pool.folder()?.display().to_string();
    let words = ["zdb", "-e", "-p", &folder, "-bcc", &pool.layout().name];
    Ok(words.map(str::to_owned).to_vec())
}

/// The value of `key`, however deep.
fn search<'a>(json: &'a Value, key: &str) -> Option<&'a Value> {
    match json {
        Value::Object(fields) => fields.get(key).or_else(|| fields.values().find_map(|value| search(value, key))),
        Value::Array(values) => values.iter().find_map(|value| search(value, key)),
        _ => None,
    }
}

fn size(json: &Value, key: &str) -> String {
    json[key].as_u64().map_or_else(|| "?".to_owned(), units::nice_bytes)
}

fn verdict(json: &Value) -> Option<Verdict> {
    let check = search(json, "check")?;
    let clean = check["clean"].as_bool()?;
    let (blocks, verified) = (check["blocks"].as_u64()?, check["verified"].as_u64()?);
    let mut words = vec![format!("{blocks} blocks walked, {verified} read and their checksums verified.")];
    words.push(match clean {
        true => format!("{} allocated = {} referenced: nothing lost, nothing used twice.", size(check, "allocated"), size(check, "claimed")),
        false => format!("NOT clean: {} allocated, {} referenced.", size(check, "allocated"), size(check, "claimed")),
    });
    let findings = check["findings"].as_array().map_or(&[][..], Vec::as_slice);
    words.extend(findings.iter().take(SHOWN).filter_map(|finding| Some(format!("- {}", finding["text"].as_str()?))));
    if findings.len() > SHOWN {
        words.push(format!("- and {} more", findings.len() - SHOWN));
    }
    Some(Verdict { clean, words })
}

/// Runs the checker on the pool, which must be exported.
pub(super) fn run(pool: &Pool) -> Result<Verdict> {
    let words = words(pool)?;
    let mut words: Vec<&str> = words.iter().map(String::as_str).collect();
    words.insert(words.len() - 1, "--json");
    let output = process::output(&mut pool.command(&words))?;
    if let Some(verdict) = serde_json::from_str(&output.stdout).ok().and_then(|json| verdict(&json)) {
        return Ok(Verdict { clean: verdict.clean && output.code == 0, ..verdict });
    }
    let said = [output.stdout, output.stderr].concat();
    let last = said.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or("it said nothing").trim().to_owned();
    Err(anyhow::anyhow!("exit code {}: {last}", output.code)).context("the checker could not check the pool")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn clean_and_not() {
        let json = |clean: bool| {
            json!({ "pools": [{ "check": {
                "clean": clean, "blocks": 12, "verified": 10, "allocated": 4096, "claimed": 4096,
                "findings": if clean { json!([]) } else { json!([{ "kind": "leak", "text": "leaked" }]) },
            } }] })
        };
        let good = verdict(&json(true)).unwrap();
        assert!(good.clean && good.words.len() == 2, "{:?}", good.words);
        let bad = verdict(&json(false)).unwrap();
        assert!(!bad.clean);
        assert_eq!(bad.words.last().map(String::as_str), Some("- leaked"));
        assert!(verdict(&json!({ "pool": 3 })).is_none());
    }
}
