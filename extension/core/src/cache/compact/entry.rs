//! Memory layout of one packed object.

use super::{Kept, Packed, Packer};

/// Packed object. There are hundreds of thousands, so the fields of [`Head`] precede the packed bytes in one allocation.
#[derive(Debug)]
pub(super) struct Entry {
    /// Head, key, resourceVersion, and the object packed without it.
    bytes: Box<[u8]>,
    /// Hash of its UID.
    pub(super) uid: u64,
    /// Hash of all that is packed.
    pub(super) content: u64,
}

/// Header in front of the key.
#[derive(Debug, Clone, Copy)]
struct Head {
    /// Number of the latest list before the last update of the object.
    list: u32,
    /// Length of the key.
    key: u32,
    /// Length of the resourceVersion.
    revision: u32,
    /// Length of the object's JSON if it is compressed, else 0.
    json: u32,
}

impl Head {
    const LENGTH: usize = 16;

    fn bytes(self) -> impl Iterator<Item = u8> {
        let numbers = [self.list, self.key, self.revision, self.json];
        numbers.into_iter().flat_map(u32::to_le_bytes)
    }

    fn of(bytes: &[u8]) -> Self {
        let number = |at: usize| {
            let bytes = bytes.get(at..at + 4).and_then(|bytes| bytes.try_into().ok());
            u32::from_le_bytes(bytes.unwrap_or_default())
        };
        Self {
            list: number(0),
            key: number(4),
            revision: number(8),
            json: number(12),
        }
    }
}

impl Entry {
    pub(super) fn new(key: &str, revision: &str, packed: &Packed, list: u32, uid: u64) -> Self {
        let length = |text: &str| u32::try_from(text.len()).unwrap_or(u32::MAX);
        let head = Head {
            list,
            key: length(key),
            revision: length(revision),
            json: packed.length,
        };
        let length = Head::LENGTH + key.len() + revision.len() + packed.bytes.len();
        let mut bytes = Vec::with_capacity(length);
        bytes.extend(head.bytes().chain(key.bytes()).chain(revision.bytes()));
        bytes.extend_from_slice(&packed.bytes);
        Self {
            bytes: bytes.into_boxed_slice(),
            uid,
            content: packed.content,
        }
    }

    fn head(&self) -> Head {
        Head::of(&self.bytes)
    }

    /// Returns the number of the latest list before the last update of the object.
    pub(super) fn list(&self) -> u32 {
        self.head().list
    }

    pub(super) fn key(&self) -> &[u8] {
        let rest = self.bytes.get(Head::LENGTH..).unwrap_or_default();
        split(rest, self.head().key).0
    }

    /// Returns the resourceVersion and the packed object.
    fn content(&self) -> (&[u8], &[u8]) {
        let rest = self.bytes.get(Head::LENGTH..).unwrap_or_default();
        split(split(rest, self.head().key).1, self.head().revision)
    }

    /// Returns namespace and name.
    pub(super) fn name(&self) -> Option<(&str, &str)> {
        std::str::from_utf8(self.key()).ok()?.split_once('/')
    }
}

fn split(bytes: &[u8], at: u32) -> (&[u8], &[u8]) {
    let at = usize::try_from(at).unwrap_or(usize::MAX);
    bytes.split_at_checked(at).unwrap_or((bytes, &[]))
}

/// Unpacks an object that the same packer packed. Panics otherwise: it is a bug, and treating the object as absent could open a gate.
pub(super) fn unpacked<K: Kept>(packer: &Packer<K>, entry: &Entry) -> K {
    measured(packer, entry).0
}

/// Unpacks an object and returns its size in memory, in bytes.
pub(super) fn measured<K: Kept>(packer: &Packer<K>, entry: &Entry) -> (K, usize) {
    let (revision, content) = entry.content();
    match packer.unpack(content, entry.head().json) {
        Ok((mut object, memory)) => {
            let revision = String::from_utf8_lossy(revision);
            object.meta_mut().resource_version = Some(revision.into_owned()).filter(|text| !text.is_empty());
            (object, memory + size_of::<K>())
        }
        Err(error) => {
            let key = String::from_utf8_lossy(entry.key());
            unreachable!("object {key:?} in memory: {error}")
        }
    }
}
