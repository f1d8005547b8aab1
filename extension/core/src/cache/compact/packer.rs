//! Compression of single objects.
//!
//! Objects of one kind are similar, so the first ones provide the dictionary for the others.

use std::{
    collections::HashMap,
    fmt,
    hash::{BuildHasher as _, RandomState},
    io,
    marker::PhantomData,
    sync::{Mutex, MutexGuard, PoisonError},
};

use serde::{Serialize, de::DeserializeOwned};
use serde_json::value::RawValue;
use sluice_crds::decode::{self, Limit};
use zstd::bulk::{Compressor, Decompressor};

/// Number of objects in the dictionary.
const SAMPLES: usize = 8;

/// Size of each sample, in bytes. An object of a tenant may have a megabyte.
const SAMPLE: usize = 8 * 1024;

/// Compression level. Higher levels cost time and save nothing.
const LEVEL: i32 = 1;

/// Marks the length of JSON that was compressed without the dictionary.
const PLAIN: u32 = 1 << 31;

/// Packed object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Packed {
    /// JSON, or compressed JSON.
    pub(super) bytes: Vec<u8>,
    /// Length of compressed JSON, else 0; with [`PLAIN`] if compressed without the dictionary.
    pub(super) length: u32,
    /// Hash of the JSON.
    pub(super) content: u64,
}

/// Error of an object above the size limit of its kind.
#[derive(Debug, thiserror::Error)]
#[error("field {field}: the cached object has {} KiB compressed; the limit is {} KiB", bytes.div_ceil(1024), limit / 1024)]
pub struct TooLarge {
    /// Largest field.
    field: String,
    bytes: usize,
    limit: usize,
}

/// Packs and unpacks objects of one kind.
pub struct Packer<K> {
    state: Mutex<State>,
    hasher: RandomState,
    kind: PhantomData<fn(K) -> K>,
}

#[derive(Default)]
struct State {
    samples: Vec<u8>,
    sampled: usize,
    /// Codec with the dictionary, once there are enough samples.
    codec: Option<Codec>,
    /// Codec for objects longer than a sample.
    plain: Option<Codec>,
}

struct Codec {
    compressor: Compressor<'static>,
    decompressor: Decompressor<'static>,
}

impl Codec {
    fn of(samples: &[u8]) -> io::Result<Self> {
        let mut compressor = Compressor::with_dictionary(LEVEL, samples)?;
        compressor.include_contentsize(false)?;
        compressor.include_dictid(false)?;
        Ok(Self {
            compressor,
            decompressor: Decompressor::with_dictionary(samples)?,
        })
    }
}

impl State {
    fn sample(&mut self, json: &[u8]) {
        if self.sampled == SAMPLES {
            return;
        }
        self.samples.extend(json.iter().take(SAMPLE));
        self.sampled += 1;
        if self.sampled == SAMPLES {
            // Without a dictionary, objects stay uncompressed.
            self.codec = Codec::of(&std::mem::take(&mut self.samples)).ok();
        }
    }

    fn compressed(&mut self, json: &[u8]) -> Option<(Vec<u8>, u32)> {
        let length = u32::try_from(json.len())
            .ok()
            .filter(|length| length & PLAIN == 0)?;
        let (codec, mark) = if json.len() <= SAMPLE {
            (self.codec.as_mut()?, 0)
        } else {
            (self.plain()?, PLAIN)
        };
        let bytes = codec.compressor.compress(json).ok()?;
        (bytes.len() < json.len()).then_some((bytes, length | mark))
    }

    fn decompressed(&mut self, bytes: &[u8], length: u32) -> io::Result<Vec<u8>> {
        let codec = if length & PLAIN == 0 {
            self.codec.as_mut()
        } else {
            self.plain()
        };
        let codec = codec.ok_or_else(|| io::Error::other("there is no dictionary"))?;
        let capacity = usize::try_from(length & !PLAIN).map_err(io::Error::other)?;
        codec.decompressor.decompress(bytes, capacity)
    }

    fn plain(&mut self) -> Option<&mut Codec> {
        if self.plain.is_none() {
            self.plain = Codec::of(&[]).ok();
        }
        self.plain.as_mut()
    }
}

impl<K> Default for Packer<K> {
    fn default() -> Self {
        Self {
            state: Mutex::default(),
            hasher: RandomState::new(),
            kind: PhantomData,
        }
    }
}

impl<K> fmt::Debug for Packer<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Packer").finish_non_exhaustive()
    }
}

impl<K: Serialize + DeserializeOwned> Packer<K> {
    /// Packs an object.
    ///
    /// # Errors
    /// The object cannot be encoded as JSON.
    pub fn pack(&self, object: &K) -> serde_json::Result<Packed> {
        Ok(self.packed(serde_json::to_vec(object)?))
    }

    /// Packs JSON to at most `limit` bytes.
    pub(super) fn pack_within(&self, json: Vec<u8>, limit: usize) -> Result<Packed, TooLarge> {
        if json.len() <= limit {
            return Ok(self.packed(json));
        }
        let field = largest_field(&json);
        let packed = self.packed(json);
        let bytes = packed.bytes.len();
        if bytes > limit {
            return Err(TooLarge { field, bytes, limit });
        }
        Ok(packed)
    }

    fn packed(&self, json: Vec<u8>) -> Packed {
        let content = self.hasher.hash_one(&json);
        let mut state = self.state();
        state.sample(&json);
        let (bytes, length) = state.compressed(&json).unwrap_or((json, 0));
        Packed {
            bytes,
            length,
            content,
        }
    }

    /// Unpacks an object from `bytes` with this `length`. Returns the object and its size in memory, in bytes.
    ///
    /// # Errors
    /// Another packer packed the object.
    pub(super) fn unpack(&self, bytes: &[u8], length: u32) -> io::Result<(K, usize)> {
        let decompressed;
        let json = if length == 0 {
            bytes
        } else {
            decompressed = self.state().decompressed(bytes, length)?;
            &decompressed
        };
        let json = std::str::from_utf8(json).map_err(io::Error::other)?;
        Ok(decode::from_str(json, Limit::whole(usize::MAX))?)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // The state is consistent after each call, so a poisoned lock is usable.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns the path of the largest field of an object.
fn largest_field(json: &[u8]) -> String {
    /// Depth of the search.
    const LEVELS: usize = 4;
    let mut path = Vec::new();
    let mut rest = json;
    while path.len() < LEVELS
        && let Ok(fields) = serde_json::from_slice::<HashMap<String, &RawValue>>(rest)
        && let Some((name, value)) = fields.into_iter().max_by_key(|(_, value)| value.get().len())
    {
        path.push(name);
        rest = value.get().as_bytes();
    }
    path.join(".").escape_debug().take(160).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn object(number: usize) -> Value {
        let conditions: Vec<Value> = ["Ready", "Available", "UpToDate", "Deleting"]
            .iter()
            .map(|kind| json!({"type": kind, "status": "True", "reason": "AllIsWell", "message": ""}))
            .collect();
        json!({"name": format!("cluster-{number}"), "conditions": conditions})
    }

    #[test]
    fn packed_objects_can_be_unpacked() {
        let packer = Packer::default();
        let all: Vec<Packed> = (0..20)
            .map(|number| packer.pack(&object(number)).unwrap())
            .collect();
        for (number, one) in all.iter().enumerate() {
            assert_eq!(one.length == 0, number < SAMPLES - 1, "object {number}");
            assert_eq!(packer.unpack(&one.bytes, one.length).unwrap().0, object(number));
        }
        let (before, after) = (all[0].bytes.len(), all[19].bytes.len());
        assert!(after * 4 < before, "{before} bytes before, {after} after");
    }

    #[test]
    fn a_dissimilar_object_can_be_unpacked() {
        let packer = Packer::default();
        for _ in 0..SAMPLES {
            packer.pack(&json!({"text": "x".repeat(10 * SAMPLE)})).unwrap();
        }
        for other in [
            json!(null),
            json!(1),
            json!({"text": "z".repeat(1 << 20)}),
            json!("é\u{0}"),
        ] {
            let one = packer.pack(&other).unwrap();
            assert_eq!(packer.unpack(&one.bytes, one.length).unwrap().0, other);
        }
    }

    #[test]
    fn objects_of_another_packer_are_rejected() {
        let (packer, other) = (Packer::default(), Packer::<Value>::default());
        let all: Vec<Packed> = (0..20)
            .map(|number| packer.pack(&object(number)).unwrap())
            .collect();
        assert!(other.unpack(&all[19].bytes, all[19].length).is_err());
        assert!(packer.unpack(&all[19].bytes, all[19].length - 1).is_err());
    }
}
