//! One object as few bytes.
//!
//! Objects of one kind are alike, so the first ones make the dictionary that the others are compressed with.

use std::{
    fmt,
    hash::{BuildHasher as _, RandomState},
    io,
    marker::PhantomData,
    sync::{Mutex, MutexGuard, PoisonError},
};

use serde::{Serialize, de::DeserializeOwned};
use zstd::bulk::{Compressor, Decompressor};

/// So many objects make a dictionary.
const SAMPLES: usize = 8;

/// So much of each of them, in bytes. An object of a tenant may have a megabyte.
const SAMPLE: usize = 8 * 1024;

/// Levels above it cost time and save nothing.
const LEVEL: i32 = 1;

/// An object, packed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Packed {
    /// JSON, or what it was compressed to.
    pub(super) bytes: Vec<u8>,
    /// The length of the JSON where it was compressed, else 0.
    pub(super) length: u32,
    /// Hash of the JSON.
    pub(super) content: u64,
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
    /// Once there are samples enough.
    codec: Option<Codec>,
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
            // Without a dictionary objects stay as they are.
            self.codec = Codec::of(&std::mem::take(&mut self.samples)).ok();
        }
    }

    fn compressed(&mut self, json: &[u8]) -> Option<(Vec<u8>, u32)> {
        let bytes = self.codec.as_mut()?.compressor.compress(json).ok()?;
        let length = u32::try_from(json.len()).ok()?;
        (bytes.len() < json.len()).then_some((bytes, length))
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
    /// It cannot be written as JSON.
    pub fn pack(&self, object: &K) -> serde_json::Result<Packed> {
        let json = serde_json::to_vec(object)?;
        let content = self.hasher.hash_one(&json);
        let mut state = self.state();
        state.sample(&json);
        let (bytes, length) = state.compressed(&json).unwrap_or((json, 0));
        Ok(Packed {
            bytes,
            length,
            content,
        })
    }

    /// The object that was packed to `bytes`, of this `length`.
    ///
    /// # Errors
    /// This packer has not packed it.
    pub(super) fn unpack(&self, bytes: &[u8], length: u32) -> io::Result<K> {
        if length == 0 {
            return Ok(serde_json::from_slice(bytes)?);
        }
        let capacity = usize::try_from(length).map_err(io::Error::other)?;
        let json = match &mut self.state().codec {
            Some(codec) => codec.decompressor.decompress(bytes, capacity)?,
            None => return Err(io::Error::other("there is no dictionary")),
        };
        Ok(serde_json::from_slice(&json)?)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // What it holds is whole after each call.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
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
    fn what_is_packed_is_unpacked() {
        let packer = Packer::default();
        let all: Vec<Packed> = (0..20)
            .map(|number| packer.pack(&object(number)).unwrap())
            .collect();
        for (number, one) in all.iter().enumerate() {
            assert_eq!(one.length == 0, number < SAMPLES - 1, "object {number}");
            assert_eq!(packer.unpack(&one.bytes, one.length).unwrap(), object(number));
        }
        let (before, after) = (all[0].bytes.len(), all[19].bytes.len());
        assert!(after * 4 < before, "{before} bytes before, {after} after");
    }

    #[test]
    fn an_object_like_no_other_is_unpacked_too() {
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
            assert_eq!(packer.unpack(&one.bytes, one.length).unwrap(), other);
        }
    }

    #[test]
    fn what_another_one_has_packed_is_no_object() {
        let (packer, other) = (Packer::default(), Packer::<Value>::default());
        let all: Vec<Packed> = (0..20)
            .map(|number| packer.pack(&object(number)).unwrap())
            .collect();
        assert!(other.unpack(&all[19].bytes, all[19].length).is_err());
        assert!(packer.unpack(&all[19].bytes, all[19].length - 1).is_err());
    }
}
