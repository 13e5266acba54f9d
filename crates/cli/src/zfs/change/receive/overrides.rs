//! `-o` and `-x`: what counts instead of the properties that come with a stream.
//!
//! # Theory
//! They are given once, and mean each dataset of a package: the first one gets what `-o` says, those below inherit it. What a dataset cannot have is passed over in a
//! package. What was set on a dataset before counts more than what comes, so it need not be inherited. What cannot be inherited is taken out of what comes.

use engine::dsl::prop_table::{DatasetTypes, Property, find, is_user_property};
use tarnfs::control::{Failure, FailureKind, Setting, Source};

use super::package::Described;
use super::Run;
use super::one::One;
use crate::properties::settings::{self, When};
use crate::session::{Stop, complain};

/// What is said of properties for one dataset.
#[derive(Debug, Default)]
pub(super) struct Overrides {
    pub(super) received: Option<Vec<Setting>>,
    pub(super) settings: Vec<Setting>,
    pub(super) inherited: Vec<String>,
    /// Whether what is sent raw is encrypted with the key of what is above it, or with its own, if that is known.
    pub(super) inherits_key: Option<bool>,
    /// Where the sender has its key.
    pub(super) key_location: Option<String>,
}

impl Overrides {
    /// The keys of a package that was sent raw are in the same relation here as they are there: of what is new, and of what is there, where the sender may have
    /// changed it. The first dataset inherits from nothing that was sent. `is_free`: it is of such a package, and does not become a clone, which has the key of its origin.
    #[doc(alias = "recv_fix_encryption_hierarchy")]
    pub(super) fn place_key(&mut self, described: Option<&Described<'_>>, is_free: bool, is_first: bool) {
        let Some(described) = described else { return };
        let is_root = described.has_own_key();
        self.inherits_key = (is_free && (is_root || !is_first)).then_some(!is_root);
        let Some(received) = &mut self.received else { return };
        let location = received.iter().position(|setting| setting.name == "keylocation").map(|at| received.remove(at));
        self.key_location = location.filter(|_| is_root).and_then(|setting| setting.value.text().map(str::to_owned));
    }
}

/// Of those that are decided when a dataset is made, keys have their own rules.
fn is_of_keys(name: &str) -> bool {
    matches!(name, "encryption" | "keyformat" | "keylocation" | "pbkdf2iters" | "pbkdf2salt")
}

/// The name in the table, where the word is another one for it.
fn full_name(word: &str) -> &str {
    find(word).map_or(word, |property| property.name)
}

fn applies(word: &str, types: DatasetTypes) -> bool {
    find(word).map_or_else(|| is_user_property(word), |property| property.applies_to(types))
}

impl Run<'_, '_> {
    /// Refuses what no dataset can be received with.
    pub(super) fn check_overrides(&mut self) -> Result<(), Stop> {
        let words = self.flags.pairs.iter().map(|(name, _)| name).chain(&self.flags.inherited);
        let is_wrong = |word: &&String| match find(word) {
            None => !is_user_property(word),
            Some(property) if is_of_keys(property.name) => false,
            Some(property) => property.is_read_only() || matches!(property.name, "version" | "volsize"),
        };
        let Some(wrong) = words.into_iter().find(is_wrong).cloned() else { return Ok(()) };
        Err(self.refuse("cannot receive", &format!("cannot receive: invalid property '{wrong}'")))
    }

    /// What is said of properties for a dataset that is received.
    pub(super) fn overrides(&mut self, one: &One, received: Option<Vec<Setting>>, is_first: bool) -> Result<Overrides, Stop> {
        let mut overrides = Overrides { received, ..Overrides::default() };
        self.inherited(one, &mut overrides);
        let is_package = one.is_of_package;
        let mut pairs = Vec::new();
        for (name, value) in self.flags.pairs.clone() {
            if is_of_keys(full_name(&name)) && !one.makes_new {
                if is_package {
                    continue;
                }
                return Err(self.refuse(one.action, &format!("encryption property '{name}' cannot be set for incremental streams.")));
            }
            if !applies(&name, one.types) {
                if is_package {
                    continue;
                }
                let why = format!("property '{name}' does not apply to datasets of this type");
                return Err(self.session.failed(one.action, &Failure::with(FailureKind::PropertyType, why)));
            }
            pairs.push((full_name(&name).to_owned(), value));
        }
        if is_first {
            let settings = settings::dataset_settings(&pairs, one.types, When::Creating);
            overrides.settings = settings.map_err(|failure| self.session.failed(one.action, &failure))?;
        } else {
            overrides.inherited.extend(pairs.into_iter().map(|(name, _)| name).filter(|name| find(name).is_none_or(Property::is_inheritable)));
        }
        Ok(overrides)
    }

    /// `-x`
    fn inherited(&mut self, one: &One, overrides: &mut Overrides) {
        let words = self.flags.inherited.clone();
        let names: Vec<&str> = words.iter().map(|word| full_name(word)).collect();
        let before = if words.is_empty() || one.before.is_none() { None } else { self.entry(&one.dataset, &names) };
        for (word, name) in words.iter().zip(&names) {
            if !applies(word, one.types) {
                complain!(self.session, "Warning: {}: property '{word}' does not apply to datasets of this type", one.dataset);
                continue;
            }
            let is_set = before.as_ref().and_then(|entry| entry.property(name)).is_some_and(|property| property.source == Source::Local);
            if is_set {
                continue;
            }
            // A key is inherited when a dataset is made, or not at all.
            let is_inheritable = find(name).is_none_or(Property::is_inheritable) && !is_of_keys(name);
            match &mut overrides.received {
                Some(received) if !is_inheritable => received.retain(|setting| setting.name != *name),
                _ if is_inheritable => overrides.inherited.push((*name).to_owned()),
                _ => {}
            }
        }
    }
}
