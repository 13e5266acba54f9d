//! What the blocks of a top-level vdev are used for, where that is not everything.
//!
//! # On disk
//! The word in the ZAP of the vdev; of a log the configuration says so, too.

/// What a top-level vdev is kept for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash)]
#[doc(alias = "vdev_alloc_bias_t")]
pub enum Bias {
    /// All kinds of blocks.
    #[default]
    None,
    /// The intent log alone.
    Log,
    /// Metadata, and small blocks of files.
    Special,
    /// Tables of deduplication.
    Dedup,
}

impl Bias {
    /// The word on disk; a vdev for everything has none.
    pub fn word(self) -> Option<&'static str> {
        match self {
            Bias::None => None,
            Bias::Log => Some("log"),
            Bias::Special => Some("special"),
            Bias::Dedup => Some("dedup"),
        }
    }

    /// What a word on disk means; a word that nobody knows means nothing.
    pub fn from_word(word: &str) -> Bias {
        [Bias::Log, Bias::Special, Bias::Dedup].into_iter().find(|bias| bias.word() == Some(word)).unwrap_or_default()
    }

    /// Does the pool need the feature of allocation classes for it?
    pub fn is_class(self) -> bool {
        matches!(self, Bias::Special | Bias::Dedup)
    }
}
