//! What properties there are: the one table that inheritance, validation and the command line all read.
//!
//! # Theory
//!
//! A property is a name with a kind (number, text, or one of a few words that stand for a number), a default, and a
//! rule saying how it may be set and whether children inherit it. Everything that differs between two properties is a
//! column of this table; code asks the table and never the name. The pool's own properties use the same [`Property`]
//! type (`pool::prop_table`).
//!
//! [`PROPERTIES`] is in the order in which `zfs get all` prints.
//!
//! # On disk
//!
//! A dataset's local values are a ZAP: numbers and words as one `u64`, text as a NUL-terminated string. A word's
//! number is part of the format; compression carries a zstd level above bit 7.

/// A set of dataset types (or, for `pool::prop_table`, the pool).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DatasetTypes(pub u8);

impl DatasetTypes {
    pub const FILESYSTEM: DatasetTypes = DatasetTypes(1);
    pub const SNAPSHOT: DatasetTypes = DatasetTypes(2);
    pub const VOLUME: DatasetTypes = DatasetTypes(4);
    pub const POOL: DatasetTypes = DatasetTypes(8);
    pub const BOOKMARK: DatasetTypes = DatasetTypes(16);
    pub const VDEV: DatasetTypes = DatasetTypes(32);
    /// Everything that has an object set.
    pub const DATASET: DatasetTypes = DatasetTypes(1 | 2 | 4);

    /// Both sets together.
    #[must_use]
    pub const fn or(self, other: DatasetTypes) -> DatasetTypes {
        DatasetTypes(self.0 | other.0)
    }

    /// Is there a type in both?
    #[must_use]
    pub const fn intersects(self, other: DatasetTypes) -> bool {
        self.0 & other.0 != 0
    }

    /// Does the set hold every type of `other`?
    #[must_use]
    pub const fn contains(self, other: DatasetTypes) -> bool {
        self.0 & other.0 == other.0
    }
}

/// How a value is represented, and the value when nobody has set one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PropertyKind {
    Number { default: u64 },
    /// No default means "no value".
    Text { default: Option<&'static str> },
    /// One of `words`; the first word of a number is the one printed.
    Index { default: u64, words: &'static [(&'static str, u64)] },
}

/// How it is set, and whether it passes to children.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rule {
    /// Computed; nobody sets it.
    ReadOnly,
    /// Settable; children start from the default.
    Default,
    /// Settable; children inherit.
    Inherit,
    /// Set at creation only; children inherit at their creation.
    Once,
    /// Set at creation only; children start from the default.
    OnceDefault,
}

/// One row of the table.
#[derive(Debug)]
pub struct Property {
    pub name: &'static str,
    pub kind: PropertyKind,
    pub rule: Rule,
    /// The types of dataset that have it.
    pub types: DatasetTypes,
    /// The values that usage text offers; `None` for a hidden property.
    pub values: Option<&'static str>,
    /// Column heading of `zfs list`.
    pub heading: &'static str,
    /// Does the column grow with its content even though the property is a number?
    pub flexible: bool,
}

impl Property {
    const fn new(name: &'static str, kind: PropertyKind, rule: Rule, types: DatasetTypes, values: &'static str, heading: &'static str) -> Property {
        Property { name, kind, rule, types, values: Some(values), heading, flexible: !matches!(kind, PropertyKind::Number { .. }) }
    }

    /// A number.
    pub(crate) const fn number(name: &'static str, default: u64, rule: Rule, types: DatasetTypes, values: &'static str, heading: &'static str) -> Property {
        Property::new(name, PropertyKind::Number { default }, rule, types, values, heading)
    }

    /// A text.
    pub(crate) const fn text(name: &'static str, default: Option<&'static str>, rule: Rule, types: DatasetTypes, values: &'static str, heading: &'static str) -> Property {
        Property::new(name, PropertyKind::Text { default }, rule, types, values, heading)
    }

    /// One of several words.
    pub(crate) const fn index(
        name: &'static str,
        default: u64,
        words: &'static [(&'static str, u64)],
        rule: Rule,
        types: DatasetTypes,
        values: &'static str,
        heading: &'static str,
    ) -> Property {
        Property::new(name, PropertyKind::Index { default, words }, rule, types, values, heading)
    }

    /// The same, as a column that widens to fit.
    pub(crate) const fn flexible(mut self) -> Property {
        self.flexible = true;
        self
    }

    /// The same, left out of usage text and of `all`.
    pub(crate) const fn hidden(mut self) -> Property {
        self.values = None;
        self
    }

    /// Is it listed by `all` and in usage text?
    #[must_use]
    pub fn is_visible(&self) -> bool {
        self.values.is_some()
    }

    /// True of everything that `set` refuses: computed values and those fixed at creation.
    #[must_use]
    pub fn is_read_only(&self) -> bool {
        matches!(self.rule, Rule::ReadOnly | Rule::Once | Rule::OnceDefault)
    }

    /// Can be set at creation and never after.
    #[must_use]
    pub fn is_set_once(&self) -> bool {
        matches!(self.rule, Rule::Once | Rule::OnceDefault)
    }

    /// Do children take the parent's value?
    #[must_use]
    pub fn is_inheritable(&self) -> bool {
        matches!(self.rule, Rule::Inherit | Rule::Once)
    }

    /// Does a dataset of one of these types have it?
    #[must_use]
    pub fn applies_to(&self, types: DatasetTypes) -> bool {
        self.types.intersects(types)
    }

    /// Is it stored and passed around as text?
    #[must_use]
    pub fn is_text(&self) -> bool {
        matches!(self.kind, PropertyKind::Text { .. })
    }

    /// The default of a number or a word; 0 for text.
    #[must_use]
    pub fn default_number(&self) -> u64 {
        match self.kind {
            PropertyKind::Number { default } | PropertyKind::Index { default, .. } => default,
            PropertyKind::Text { .. } => 0,
        }
    }

    /// The default of a text.
    #[must_use]
    pub fn default_text(&self) -> Option<&'static str> {
        match self.kind {
            PropertyKind::Text { default } => default,
            _ => None,
        }
    }

    /// The words, when it is an index; else nothing.
    #[must_use]
    pub fn words(&self) -> &'static [(&'static str, u64)] {
        match self.kind {
            PropertyKind::Index { words, .. } => words,
            _ => &[],
        }
    }

    /// The number that a word stands for.
    #[must_use]
    pub fn word_to_number(&self, word: &str) -> Option<u64> {
        self.words().iter().find(|(name, _)| *name == word).map(|(_, number)| *number)
    }

    /// The word that is printed for a number.
    #[must_use]
    pub fn number_to_word(&self, number: u64) -> Option<&'static str> {
        self.words().iter().find(|(_, value)| *value == number).map(|(word, _)| *word)
    }

    /// Are values of this column aligned to the right?
    #[must_use]
    pub fn is_right_aligned(&self) -> bool {
        matches!(self.kind, PropertyKind::Number { .. }) && self.name != "creation" && self.name != "snapshots_changed"
    }

    /// Does `word` name this property: by its name, or by its column heading in lower case?
    #[must_use]
    pub fn is_named(&self, word: &str) -> bool {
        self.name == word || (word.len() == self.heading.len() && word.bytes().zip(self.heading.bytes()).all(|(w, h)| w == h.to_ascii_lowercase()))
    }
}

/// The property called `name`, or whose column heading is `name` in lower case (`avail`, `refer`, `rdonly`).
#[must_use]
pub fn find(name: &str) -> Option<&'static Property> {
    PROPERTIES.iter().find(|property| property.is_named(name))
}

/// Longest name of a property, the user's own included.
pub const NAME_LENGTH_MAX: usize = 256;
/// Longest value of a user property.
pub const USER_VALUE_LENGTH_MAX: usize = 8192;

/// Is it a name that users may choose for a property of their own: lower case with a colon in it?
#[must_use]
pub fn is_user_property(name: &str) -> bool {
    name.contains(':') && name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || matches!(b, b'-' | b'_' | b'.' | b':'))
}

/// The families of per-user, per-group and per-project properties; what follows the `@` is a name or a number.
pub static SPACE_PREFIXES: [&str; 12] = [
    "userused@", "userquota@", "groupused@", "groupquota@", "userobjused@", "userobjquota@", "groupobjused@", "groupobjquota@",
    "projectused@", "projectquota@", "projectobjused@", "projectobjquota@",
];

/// Is it one of the families of [`SPACE_PREFIXES`]?
#[must_use]
pub fn is_space_property(name: &str) -> bool {
    SPACE_PREFIXES.iter().any(|prefix| name.starts_with(prefix))
}

/// Is it `written@snapshot` or `written#bookmark`?
#[must_use]
pub fn is_written_property(name: &str) -> bool {
    name.starts_with("written@") || name.starts_with("written#")
}

/// Compression words above bit 7: `zstd` (16) with its level, `zstd-fast` with its level after 102.
const fn zstd(level: u64) -> u64 {
    16 | (level << 7)
}

/// A checksum word of `dedup` that also compares the bytes.
const fn verified(checksum: u64) -> u64 {
    checksum | 1 << 8
}

pub(crate) const SWITCH: &[(&str, u64)] = &[("off", 0), ("on", 1)];
const CHECKSUMS: &[(&str, u64)] = &[
    ("on", 1), ("off", 2), ("fletcher2", 6), ("fletcher4", 7), ("sha256", 8), ("noparity", 10), ("sha512", 11), ("skein", 12),
    ("edonr", 13), ("blake3", 14),
];
const DEDUPS: &[(&str, u64)] = &[
    ("on", 1), ("off", 2), ("verify", verified(1)), ("sha256", 8), ("sha256,verify", verified(8)), ("sha512", 11),
    ("sha512,verify", verified(11)), ("skein", 12), ("skein,verify", verified(12)), ("edonr,verify", verified(13)),
    ("blake3", 14), ("blake3,verify", verified(14)),
];
const COMPRESSIONS: &[(&str, u64)] = &[
    ("on", 1), ("off", 2), ("lzjb", 3), ("gzip", 10), ("gzip-1", 5), ("gzip-2", 6), ("gzip-3", 7), ("gzip-4", 8), ("gzip-5", 9),
    ("gzip-6", 10), ("gzip-7", 11), ("gzip-8", 12), ("gzip-9", 13), ("zle", 14), ("lz4", 15), ("zstd", 16), ("zstd-fast", zstd(103)),
    ("zstd-1", zstd(1)), ("zstd-2", zstd(2)), ("zstd-3", zstd(3)), ("zstd-4", zstd(4)), ("zstd-5", zstd(5)), ("zstd-6", zstd(6)),
    ("zstd-7", zstd(7)), ("zstd-8", zstd(8)), ("zstd-9", zstd(9)), ("zstd-10", zstd(10)), ("zstd-11", zstd(11)), ("zstd-12", zstd(12)),
    ("zstd-13", zstd(13)), ("zstd-14", zstd(14)), ("zstd-15", zstd(15)), ("zstd-16", zstd(16)), ("zstd-17", zstd(17)),
    ("zstd-18", zstd(18)), ("zstd-19", zstd(19)), ("zstd-fast-1", zstd(103)), ("zstd-fast-2", zstd(104)), ("zstd-fast-3", zstd(105)),
    ("zstd-fast-4", zstd(106)), ("zstd-fast-5", zstd(107)), ("zstd-fast-6", zstd(108)), ("zstd-fast-7", zstd(109)),
    ("zstd-fast-8", zstd(110)), ("zstd-fast-9", zstd(111)), ("zstd-fast-10", zstd(112)), ("zstd-fast-20", zstd(113)),
    ("zstd-fast-30", zstd(114)), ("zstd-fast-40", zstd(115)), ("zstd-fast-50", zstd(116)), ("zstd-fast-60", zstd(117)),
    ("zstd-fast-70", zstd(118)), ("zstd-fast-80", zstd(119)), ("zstd-fast-90", zstd(120)), ("zstd-fast-100", zstd(121)),
    ("zstd-fast-500", zstd(122)), ("zstd-fast-1000", zstd(123)),
];
const CIPHERS: &[(&str, u64)] = &[
    ("on", 1), ("off", 2), ("aes-128-ccm", 3), ("aes-192-ccm", 4), ("aes-256-ccm", 5), ("aes-128-gcm", 6), ("aes-192-gcm", 7),
    ("aes-256-gcm", 8),
];
const KEY_FORMATS: &[(&str, u64)] = &[("none", 0), ("raw", 1), ("hex", 2), ("passphrase", 3)];
const KEY_STATES: &[(&str, u64)] = &[("none", 0), ("unavailable", 1), ("available", 2)];
const SNAPSHOT_DIRECTORY: &[(&str, u64)] = &[("hidden", 0), ("visible", 1), ("disabled", 2)];
const SNAPSHOT_DEVICES: &[(&str, u64)] = &[("hidden", 0), ("visible", 1)];
const ACL_MODES: &[(&str, u64)] = &[("discard", 0), ("groupmask", 2), ("passthrough", 3), ("restricted", 4)];
const ACL_TYPES: &[(&str, u64)] = &[("off", 0), ("posix", 1), ("nfsv4", 2), ("disabled", 0), ("noacl", 0), ("posixacl", 1)];
const ACL_INHERITANCE: &[(&str, u64)] =
    &[("discard", 0), ("noallow", 1), ("restricted", 4), ("passthrough", 3), ("secure", 4), ("passthrough-x", 5)];
const CASES: &[(&str, u64)] = &[("sensitive", 0), ("insensitive", 1), ("mixed", 2)];
const COPIES: &[(&str, u64)] = &[("1", 1), ("2", 2), ("3", 3)];
const NORMAL_FORMS: &[(&str, u64)] = &[("none", 0), ("formD", 0x10), ("formKC", 0x60), ("formC", 0x50), ("formKD", 0x20)];
const VERSIONS: &[(&str, u64)] = &[("1", 1), ("2", 2), ("3", 3), ("4", 4), ("5", 5), ("current", 5)];
const LOG_BIAS: &[(&str, u64)] = &[("latency", 0), ("throughput", 1)];
const CAN_MOUNT: &[(&str, u64)] = &[("off", 0), ("on", 1), ("noauto", 2)];
const CACHED: &[(&str, u64)] = &[("none", 0), ("metadata", 1), ("all", 2)];
const SYNCS: &[(&str, u64)] = &[("standard", 0), ("always", 1), ("disabled", 2)];
const XATTRS: &[(&str, u64)] = &[("off", 0), ("sa", 2), ("on", 2), ("dir", 1)];
const DNODE_SIZES: &[(&str, u64)] =
    &[("legacy", 0), ("auto", 1), ("1k", 1024), ("2k", 2048), ("4k", 4096), ("8k", 8192), ("16k", 16384)];
const REDUNDANCY: &[(&str, u64)] = &[("all", 0), ("most", 1), ("some", 2), ("none", 3)];
const VOLUME_MODES: &[(&str, u64)] = &[("default", 0), ("full", 1), ("geom", 1), ("dev", 2), ("none", 3)];
const DIRECT: &[(&str, u64)] = &[("disabled", 0), ("standard", 1), ("always", 2)];

const F: DatasetTypes = DatasetTypes::FILESYSTEM;
const S: DatasetTypes = DatasetTypes::SNAPSHOT;
const V: DatasetTypes = DatasetTypes::VOLUME;
const FS: DatasetTypes = F.or(S);
const FV: DatasetTypes = F.or(V);
const SV: DatasetTypes = S.or(V);
const FSV: DatasetTypes = DatasetTypes::DATASET;
const FSVB: DatasetTypes = FSV.or(DatasetTypes::BOOKMARK);

use Rule::{Default, Inherit, Once, OnceDefault, ReadOnly};

/// Every dataset property, in the order of `zfs get all`.
#[rustfmt::skip]
pub static PROPERTIES: &[Property] = &[
    Property::text("type", None, ReadOnly, FSVB, "filesystem | volume | snapshot | bookmark", "TYPE"),
    Property::number("creation", 0, ReadOnly, FSVB, "<date>", "CREATION").flexible(),
    Property::number("used", 0, ReadOnly, FSV, "<size>", "USED"),
    Property::number("available", 0, ReadOnly, FV, "<size>", "AVAIL"),
    Property::number("referenced", 0, ReadOnly, FSVB, "<size>", "REFER"),
    Property::number("compressratio", 0, ReadOnly, FSVB, "<1.00x or higher if compressed>", "RATIO"),
    Property::index("mounted", 0, SWITCH, ReadOnly, F, "yes | no", "MOUNTED"),
    Property::text("origin", None, ReadOnly, FV, "<snapshot>", "ORIGIN"),
    Property::number("quota", 0, Default, F, "<size> | none", "QUOTA"),
    Property::number("reservation", 0, Default, FV, "<size> | none", "RESERV"),
    Property::number("volsize", 0, Default, SV, "<size>", "VOLSIZE"),
    Property::number("volblocksize", 16384, Once, V, "512 to 16M, power of 2", "VOLBLOCK"),
    Property::number("recordsize", 131_072, Inherit, F, "512 to 16M, power of 2", "RECSIZE"),
    Property::text("mountpoint", Some("/"), Inherit, F, "<path> | legacy | none", "MOUNTPOINT"),
    Property::text("sharenfs", Some("off"), Inherit, F, "on | off | NFS share options", "SHARENFS"),
    Property::index("checksum", 1, CHECKSUMS, Inherit, FV, "on | off | fletcher2 | fletcher4 | sha256 | sha512 | skein | edonr | blake3", "CHECKSUM"),
    Property::index("compression", 1, COMPRESSIONS, Inherit, FV, "on | off | lzjb | gzip | gzip-[1-9] | zle | lz4 | zstd | zstd-[1-19] | zstd-fast | zstd-fast-[1-10,20,30,40,50,60,70,80,90,100,500,1000]", "COMPRESS"),
    Property::index("atime", 1, SWITCH, Inherit, F, "on | off", "ATIME"),
    Property::index("devices", 1, SWITCH, Inherit, FS, "on | off", "DEVICES"),
    Property::index("exec", 1, SWITCH, Inherit, FS, "on | off", "EXEC"),
    Property::index("setuid", 1, SWITCH, Inherit, FS, "on | off", "SETUID"),
    Property::index("readonly", 0, SWITCH, Inherit, FV, "on | off", "RDONLY"),
    Property::index("zoned", 0, SWITCH, Inherit, F, "on | off", "ZONED"),
    Property::index("snapdir", 0, SNAPSHOT_DIRECTORY, Inherit, F, "disabled | hidden | visible", "SNAPDIR"),
    Property::index("aclmode", 0, ACL_MODES, Inherit, F, "discard | groupmask | passthrough | restricted", "ACLMODE"),
    Property::index("aclinherit", 4, ACL_INHERITANCE, Inherit, F, "discard | noallow | restricted | passthrough | passthrough-x", "ACLINHERIT"),
    Property::number("createtxg", 0, ReadOnly, FSVB, "<uint64>", "CREATETXG").flexible(),
    Property::text("name", None, ReadOnly, FSVB, "", "NAME").hidden(),
    Property::index("canmount", 1, CAN_MOUNT, Default, F, "on | off | noauto", "CANMOUNT"),
    Property::text("iscsioptions", None, Inherit, V, "", "ISCSIOPTIONS").hidden(),
    Property::index("xattr", 2, XATTRS, Inherit, FS, "on | off | dir | sa", "XATTR"),
    Property::number("numclones", 0, ReadOnly, S, "", "NUMCLONES").hidden(),
    Property::index("copies", 1, COPIES, Inherit, FV, "1 | 2 | 3", "COPIES"),
    Property::index("version", 0, VERSIONS, Default, FS, "1 | 2 | 3 | 4 | 5 | current", "VERSION"),
    Property::index("utf8only", 0, SWITCH, Once, FS, "on | off", "UTF8ONLY"),
    Property::index("normalization", 0, NORMAL_FORMS, Once, FS, "none | formC | formD | formKC | formKD", "NORMALIZATION"),
    Property::index("casesensitivity", 0, CASES, Once, FS, "sensitive | insensitive | mixed", "CASE"),
    Property::index("vscan", 0, SWITCH, Inherit, F, "on | off", "VSCAN"),
    Property::index("nbmand", 0, SWITCH, Inherit, FS, "on | off", "NBMAND"),
    Property::text("sharesmb", Some("off"), Inherit, F, "on | off | SMB share options", "SHARESMB"),
    Property::number("refquota", 0, Default, F, "<size> | none", "REFQUOTA"),
    Property::number("refreservation", 0, Default, FV, "<size> | none", "REFRESERV"),
    Property::number("guid", 0, ReadOnly, FSVB, "<uint64>", "GUID").flexible(),
    Property::index("primarycache", 2, CACHED, Inherit, FSV, "all | none | metadata", "PRIMARYCACHE"),
    Property::index("secondarycache", 2, CACHED, Inherit, FSV, "all | none | metadata", "SECONDARYCACHE"),
    Property::number("usedbysnapshots", 0, ReadOnly, FV, "<size>", "USEDSNAP"),
    Property::number("usedbydataset", 0, ReadOnly, FV, "<size>", "USEDDS"),
    Property::number("usedbychildren", 0, ReadOnly, FV, "<size>", "USEDCHILD"),
    Property::number("usedbyrefreservation", 0, ReadOnly, FV, "<size>", "USEDREFRESERV"),
    Property::number("useraccounting", 0, ReadOnly, FSV, "", "USERACCOUNTING").hidden(),
    Property::text("stmf_sbd_lu", None, Inherit, V, "", "STMF_SBD_LU").hidden(),
    Property::index("defer_destroy", 0, SWITCH, ReadOnly, S, "yes | no", "DEFER_DESTROY"),
    Property::number("userrefs", 0, ReadOnly, S, "<count>", "USERREFS"),
    Property::index("logbias", 0, LOG_BIAS, Inherit, FV, "latency | throughput", "LOGBIAS"),
    Property::number("unique", 0, ReadOnly, FSV, "", "UNIQUE").hidden(),
    Property::number("objsetid", 0, ReadOnly, FSV, "<uint64>", "OBJSETID").flexible(),
    Property::index("dedup", 2, DEDUPS, Inherit, FV, "on | off | verify | sha256[,verify] | sha512[,verify] | skein[,verify] | edonr,verify | blake3[,verify]", "DEDUP"),
    Property::text("mlslabel", Some("none"), Inherit, FSV, "<sensitivity label>", "MLSLABEL"),
    Property::index("sync", 0, SYNCS, Inherit, FV, "standard | always | disabled", "SYNC"),
    Property::index("dnodesize", 0, DNODE_SIZES, Inherit, F, "legacy | auto | 1k | 2k | 4k | 8k | 16k", "DNSIZE"),
    Property::number("refcompressratio", 0, ReadOnly, FSV, "<1.00x or higher if compressed>", "REFRATIO"),
    Property::number("written", 0, ReadOnly, FSV, "<size>", "WRITTEN"),
    Property::text("clones", None, ReadOnly, S, "<dataset>[,...]", "CLONES"),
    Property::number("logicalused", 0, ReadOnly, FV, "<size>", "LUSED"),
    Property::number("logicalreferenced", 0, ReadOnly, FSVB, "<size>", "LREFER"),
    Property::number("inconsistent", 0, ReadOnly, FSV, "", "INCONSISTENT").hidden(),
    Property::index("volmode", 0, VOLUME_MODES, Inherit, FV, "default | full | geom | dev | none", "VOLMODE"),
    Property::number("filesystem_limit", u64::MAX, Default, F, "<count> | none", "FSLIMIT"),
    Property::number("snapshot_limit", u64::MAX, Default, FV, "<count> | none", "SSLIMIT"),
    Property::number("filesystem_count", u64::MAX, ReadOnly, F, "<count>", "FSCOUNT"),
    Property::number("snapshot_count", u64::MAX, ReadOnly, FV, "<count>", "SSCOUNT"),
    Property::index("snapdev", 0, SNAPSHOT_DEVICES, Inherit, FV, "hidden | visible", "SNAPDEV"),
    Property::index("acltype", 0, ACL_TYPES, Inherit, FS, "off | nfsv4 | posix", "ACLTYPE"),
    Property::text("context", Some("none"), Default, FSV, "<selinux context>", "CONTEXT"),
    Property::text("fscontext", Some("none"), Default, FSV, "<selinux fscontext>", "FSCONTEXT"),
    Property::text("defcontext", Some("none"), Default, FSV, "<selinux defcontext>", "DEFCONTEXT"),
    Property::text("rootcontext", Some("none"), Default, FSV, "<selinux rootcontext>", "ROOTCONTEXT"),
    Property::index("relatime", 1, SWITCH, Inherit, F, "on | off", "RELATIME"),
    Property::index("redundant_metadata", 0, REDUNDANCY, Inherit, FV, "all | most | some | none", "REDUND_MD"),
    Property::index("overlay", 1, SWITCH, Inherit, F, "on | off", "OVERLAY"),
    Property::text("prevsnap", None, ReadOnly, FV, "", "PREVSNAP").hidden(),
    Property::text("receive_resume_token", None, ReadOnly, FV, "<string token>", "RESUMETOK"),
    Property::index("encryption", 2, CIPHERS, Once, FSV, "on | off | aes-128-ccm | aes-192-ccm | aes-256-ccm | aes-128-gcm | aes-192-gcm | aes-256-gcm", "ENCRYPTION"),
    Property::text("keylocation", Some("none"), Default, FV, "prompt | <file URI> | <https URL> | <http URL>", "KEYLOCATION"),
    Property::index("keyformat", 0, KEY_FORMATS, OnceDefault, FV, "none | raw | hex | passphrase", "KEYFORMAT"),
    Property::number("pbkdf2salt", 0, OnceDefault, FV, "", "PBKDF2SALT").hidden(),
    Property::number("pbkdf2iters", 0, OnceDefault, FV, "<iters>", "PBKDF2ITERS").flexible(),
    Property::text("encryptionroot", None, ReadOnly, FSV, "<filesystem | volume>", "ENCROOT"),
    Property::number("keyguid", 0, ReadOnly, FSV, "", "KEYGUID").flexible().hidden(),
    Property::index("keystatus", 0, KEY_STATES, ReadOnly, FSV, "none | unavailable | available", "KEYSTATUS"),
    Property::number("remaptxg", 0, ReadOnly, FSV, "", "REMAPTXG").hidden(),
    Property::number("special_small_blocks", 0, Inherit, FV, "0 to 16M", "SPECIAL_SMALL_BLOCKS"),
    Property::number("ivsetguid", 0, ReadOnly, FSVB, "", "IVSETGUID").flexible().hidden(),
    Property::number("redacted", 0, ReadOnly, FSV, "", "REDACTED").hidden(),
    Property::text("redact_snaps", None, ReadOnly, FSVB, "<snapshot>[,...]", "RSNAPS"),
    Property::number("snapshots_changed", 0, ReadOnly, FV, "<date>", "SNAPSHOTS_CHANGED").flexible(),
    Property::index("prefetch", 2, CACHED, Inherit, FSV, "none | metadata | all", "PREFETCH"),
    Property::index("volthreading", 1, SWITCH, Default, V, "on | off", "zvol threading"),
    Property::index("direct", 1, DIRECT, Inherit, F, "disabled | standard | always", "DIRECT"),
    Property::index("longname", 0, SWITCH, Inherit, F, "on | off", "LONGNAME"),
    Property::number("defaultuserquota", 0, Default, FS, "<size> | none", "DEFAULTUSERQUOTA"),
    Property::number("defaultgroupquota", 0, Default, FS, "<size> | none", "DEFAULTGROUPQUOTA"),
    Property::number("defaultprojectquota", 0, Default, FS, "<size> | none", "DEFAULTPROJECTQUOTA"),
    Property::number("defaultuserobjquota", 0, Default, FS, "<size> | none", "DEFAULTUSEROBJQUOTA"),
    Property::number("defaultgroupobjquota", 0, Default, FS, "<size> | none", "DEFAULTGROUPOBJQUOTA"),
    Property::number("defaultprojectobjquota", 0, Default, FS, "<size> | none", "DEFAULTPROJECTOBJQUOTA"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_headings_are_found() {
        assert_eq!(find("refer").map(|p| p.name), Some("referenced"));
        assert_eq!(find("compress").map(|p| p.name), Some("compression"));
        assert_eq!(find("avail").map(|p| p.name), Some("available"));
        assert!(find("REFER").is_none());
        assert!(find("user:mine").is_none());
        assert!(is_user_property("user:mine") && !is_user_property("User:mine") && !is_user_property("mine"));
    }

    #[test]
    fn words_are_the_numbers_of_the_format() {
        let compression = find("compression").expect("compression");
        assert_eq!(compression.word_to_number("lz4"), Some(15));
        assert_eq!(compression.word_to_number("gzip"), Some(10));
        assert_eq!(compression.number_to_word(10), Some("gzip"));
        assert_eq!(compression.word_to_number("zstd-19"), Some(16 | 19 << 7));
        assert_eq!(compression.word_to_number("zstd-fast-1000"), Some(16 | 123 << 7));
        assert_eq!(compression.number_to_word(16 | 103 << 7), Some("zstd-fast"));
        assert_eq!(find("dedup").and_then(|p| p.word_to_number("edonr,verify")), Some(13 | 256));
        assert_eq!(find("normalization").and_then(|p| p.number_to_word(0x60)), Some("formKC"));
        assert_eq!(find("xattr").and_then(|p| p.number_to_word(2)), Some("sa"));
    }

    #[test]
    fn every_default_has_a_word_and_names_are_unique() {
        let mut seen = std::collections::BTreeSet::new();
        for property in PROPERTIES {
            assert!(seen.insert(property.name), "{} twice", property.name);
            if let PropertyKind::Index { default, .. } = property.kind
                && property.name != "version"
            {
                assert!(property.number_to_word(default).is_some(), "{}", property.name);
            }
        }
        assert_eq!(PROPERTIES.len(), 106);
    }
}
