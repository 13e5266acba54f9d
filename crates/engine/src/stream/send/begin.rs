//! What a stream says of itself: BEGIN, and the list behind it.

use std::sync::Arc;

use ondisk::dsl::{DATASET_FLAG_CASE_INSENSITIVE, crypto_field, dataset_field, dir_field};
use ondisk::feature::Feature;
use ondisk::nvlist::{NvList, Value};
use ondisk::objset::{Objset as DiskObjset, ObjsetType};
use ondisk::stream::{
    BEGIN_FLAG_CASE_INSENSITIVE, BEGIN_FLAG_CLONE, BEGIN_FLAG_FREE_RECORDS, BEGIN_FLAG_SPILL_BLOCK, Begin, HEADER_SUBSTREAM, STREAM_MAGIC, StreamFeatures,
};

use super::sender::{Origin, SendOptions};
use crate::dmu::Objset;
use crate::dsl::{Dataset, Dsl, PropertyValue};
use crate::error::Result;
use crate::{bail, error};

/// File systems of this version and later have system attributes, and with them spill blocks.
const ZPL_VERSION_SA: u64 = 5;
/// The only way to encrypt that can be sent.
const KEY_VERSION: u64 = 1;
/// `keyformat=passphrase`
const FORMAT_PASSPHRASE: u64 = 3;

/// What a receiver has to know.
pub(super) fn features(dsl: &Dsl, dataset: &Arc<Dataset>, objset: &Objset, options: &SendOptions) -> Result<StreamFeatures> {
    let own = dataset.features();
    let pool = |feature| dsl.meta.features.is_active(feature);
    let is_locked = objset.is_locked();
    let mut features = StreamFeatures::empty();
    if objset.objset_type() == ObjsetType::FileSystem
        && let Some((PropertyValue::Number(version), _)) = dataset.any_property("version")?
    {
        features.set(StreamFeatures::SA_SPILL, version >= ZPL_VERSION_SA);
    }
    features.set(StreamFeatures::LARGE_BLOCKS, (options.raw || options.large_blocks) && own.contains(&Feature::LargeBlocks));
    features.set(StreamFeatures::EMBED_DATA, (options.raw || options.embedded) && !is_locked && pool(Feature::EmbeddedData));
    features.set(StreamFeatures::COMPRESSED, options.raw || options.compressed);
    features.set(StreamFeatures::RAW, options.raw && is_locked);
    let as_on_disk = StreamFeatures::COMPRESSED | StreamFeatures::RAW;
    features.set(StreamFeatures::LZ4, features.intersects(as_on_disk | StreamFeatures::EMBED_DATA) && pool(Feature::Lz4Compress));
    features.set(StreamFeatures::ZSTD, features.intersects(as_on_disk) && own.contains(&Feature::ZstdCompress));
    features.set(StreamFeatures::RESUMING, options.resume.is_some());
    features.set(StreamFeatures::REDACTED, options.redact.is_some());
    features.set(StreamFeatures::LARGE_DNODE, own.contains(&Feature::LargeDnode));
    features.set(StreamFeatures::LONG_NAME, own.contains(&Feature::Longname));
    if own.contains(&Feature::LargeMicrozap) {
        if !features.contains(StreamFeatures::LARGE_BLOCKS) {
            bail!(NotSupported, "stream contains large microzap; the flag -L (--large-block) is needed to send it");
        }
        features.insert(StreamFeatures::LARGE_MICROZAP);
    }
    Ok(features)
}

/// The record itself. `name` is the snapshot's full name.
pub(super) fn begin(dataset: &Dataset, objset: &Objset, from: Option<&Origin>, features: StreamFeatures, name: &str) -> Result<Begin> {
    let phys = dataset.phys();
    let mut flags = BEGIN_FLAG_FREE_RECORDS | BEGIN_FLAG_SPILL_BLOCK;
    if from.is_some_and(|from| from.is_clone) {
        flags |= BEGIN_FLAG_CLONE;
    }
    if phys.flags.get() & DATASET_FLAG_CASE_INSENSITIVE != 0 {
        flags |= BEGIN_FLAG_CASE_INSENSITIVE;
    }
    let mut begin = Begin {
        magic: STREAM_MAGIC,
        version_info: HEADER_SUBSTREAM | features.bits() << 2,
        creation_time: phys.creation_time.get(),
        objset_type: objset.objset_type().number() as u32,
        flags,
        to_guid: phys.guid.get(),
        from_guid: from.map_or(0, |from| from.guid),
        ..Begin::zeroed()
    };
    // The last byte ends it.
    let place = begin.name.split_last_mut().map_or(&mut [][..], |(_, place)| place);
    let place = place.get_mut(..name.len()).ok_or_else(|| error!(NameTooLong, "{name}: the name does not fit into a stream"))?;
    place.copy_from_slice(name.as_bytes());
    Ok(begin)
}

/// The guids of the redaction snapshots of a dataset that was received without what they lack.
pub(super) fn redaction_snapshots(dataset: &Dataset, dsl: &Dsl) -> Result<Option<Vec<u64>>> {
    if !dataset.features().contains(&Feature::RedactedDatasets) {
        return Ok(None);
    }
    let value = dsl.meta.mos.zap_get(dataset.object, Feature::RedactedDatasets.guid())?;
    Ok(value.map(|value| value.to_u64s()))
}

/// What a receiver needs to keep what is encrypted: the key that is wrapped, and the shape of the meta-dnode.
pub(super) fn key_data(dsl: &Dsl, dataset: &Dataset, objset: &Objset, from_ivset_guid: u64) -> Result<NvList> {
    let at = crate::zio::Bookmark { objset: dataset.object, object: 0, level: -1, block: 0 };
    let phys = DiskObjset::decode(&objset.context().cache.read(&objset.pointer(), &at)?)?;
    // A receive wraps the key anew, and the parts of two are no key.
    let _names = dsl.lock_names();
    let mos = &dsl.meta.mos;
    let missing = |what: &str| error!(Corrupt, "{}: its encryption key has no {what}", dataset.dir.full_name());
    let key = mos.zap_u64(dataset.dir.object, dir_field::CRYPTO_KEY)?.ok_or_else(|| missing("object"))?;
    let number = |object: u64, name: &'static str| mos.zap_u64(object, name)?.ok_or_else(|| missing(name));
    let bytes = |name: &'static str| -> Result<Vec<u8>> {
        let value = mos.zap_get(key, name)?.ok_or_else(|| missing(name))?;
        Ok(value.integers().map(|byte| byte as u8).collect())
    };
    let version = number(key, "DSL_CRYPTO_VERSION")?;
    if version != KEY_VERSION {
        bail!(NotSupported, "{}: encrypted in a way that cannot be sent raw", dataset.dir.full_name());
    }
    let root = dsl.dir(number(key, crypto_field::ROOT_DIR)?, None)?;
    let root_key = mos.zap_u64(root.object, dir_field::CRYPTO_KEY)?.ok_or_else(|| missing("root"))?;
    let format = number(root_key, "keyformat")?;
    let of_passphrase = |name: &'static str| if format == FORMAT_PASSPHRASE { number(root_key, name) } else { Ok(0) };
    let mut list = NvList::new();
    list.set("DSL_CRYPTO_SUITE", number(key, crypto_field::SUITE)?);
    list.set("DSL_CRYPTO_GUID", number(key, crypto_field::GUID)?);
    list.set("DSL_CRYPTO_VERSION", version);
    for name in ["DSL_CRYPTO_MASTER_KEY_1", "DSL_CRYPTO_HMAC_KEY_1", "DSL_CRYPTO_IV", "DSL_CRYPTO_MAC"] {
        list.set(name, Value::UInt8Array(bytes(name)?));
    }
    list.set("portable_mac", Value::UInt8Array(phys.portable_mac().to_vec()));
    list.set("keyformat", format);
    list.set("pbkdf2iters", of_passphrase("pbkdf2iters")?);
    list.set("pbkdf2salt", of_passphrase("pbkdf2salt")?);
    list.set("mdn_checksum", u64::from(phys.meta.checksum));
    list.set("mdn_compress", u64::from(phys.meta.compression));
    list.set("mdn_nlevels", u64::from(phys.meta.levels));
    list.set("mdn_blksz", phys.meta.block_bytes);
    list.set("mdn_indblkshift", u64::from(phys.meta.indirect_shift));
    list.set("mdn_nblkptr", phys.meta.pointers.len() as u64);
    list.set("mdn_maxblkid", phys.meta.max_block);
    list.set("to_ivset_guid", mos.zap_u64(dataset.object, dataset_field::IVSET_GUID)?.unwrap_or(0));
    list.set("from_ivset_guid", from_ivset_guid);
    Ok(list)
}
