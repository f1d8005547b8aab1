//! Objects of lists and watches as they are kept.

use super::{Kept, Packed, Packer};
use crate::decode::{Item, Undecodable};

impl<K: Kept> Item<K> {
    /// The object as it is kept, packed; none where it cannot be decoded. One that takes too much becomes such an object.
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
