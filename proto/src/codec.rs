//! Encoding of messages.

use std::marker::PhantomData;

use prost::Message;
use tonic::codec::{BufferSettings, Codec};
use tonic_prost::{ProstDecoder, ProstEncoder};

/// Initial buffer of a stream, in bytes.
const BUFFER: usize = 256;

/// Protobuf as tonic's own codec has it, with small buffers, and one message at a time: a stream that is not read keeps one encoded
/// message, where tonic's settings keep 8 KiB and encode up to 32 KiB ahead.
#[derive(Debug)]
pub struct LeanCodec<E, D>(PhantomData<(E, D)>);

impl<E, D> Default for LeanCodec<E, D> {
    fn default() -> Self {
        Self(PhantomData)
    }
}

impl<E, D> Codec for LeanCodec<E, D>
where
    E: Message + Send + 'static,
    D: Message + Default + Send + 'static,
{
    type Encode = E;
    type Decode = D;
    type Encoder = ProstEncoder<E>;
    type Decoder = ProstDecoder<D>;

    fn encoder(&mut self) -> Self::Encoder {
        ProstEncoder::new(BufferSettings::new(BUFFER, 1))
    }

    fn decoder(&mut self) -> Self::Decoder {
        ProstDecoder::new(BufferSettings::new(BUFFER, 1))
    }
}
