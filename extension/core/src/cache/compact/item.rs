//! Objects of lists and watches in their cached form.

use super::{Kept, Packed, Packer};
use crate::decode::{Item, Undecodable};

impl<K: Kept> Item<K> {
    /// Packs the cached form of the object; `None` if it cannot be decoded. An oversized object becomes undecodable.
    pub fn pack(&mut self, by: &Packer<K>) -> Option<Packed> {
        let Self::Decoded(object) = self else { return None };
        object.prune();
        match by.pack_kept(object) {
            Ok(packed) => Some(packed),
            Err(too_large) => {
                let stub = Undecodable::too_large(object, &too_large.to_string())?;
                *self = Self::Undecodable(Box::new(stub));
                None
            }
        }
    }
}
