//! HTTP/2 frame by frame, for behavior that no client exposes.

use std::io;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;

use crate::peer::soon;

const HEADERS: u8 = 1;
pub(crate) const RST_STREAM: u8 = 3;
pub(crate) const SETTINGS: u8 = 4;
pub(crate) const PING: u8 = 6;
pub(crate) const ACK: u8 = 1;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;

/// What a listener sent.
#[derive(Debug)]
pub(crate) struct Frame {
    pub(crate) kind: u8,
    pub(crate) flags: u8,
    pub(crate) stream: u32,
    pub(crate) payload: Vec<u8>,
}

/// A connection on which frames are sent and read one by one.
pub(crate) struct Frames(TlsStream<TcpStream>);

impl Frames {
    /// Begins to speak HTTP/2.
    pub(crate) async fn begin(mut stream: TlsStream<TcpStream>) -> Self {
        stream
            .write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
            .await
            .unwrap();
        let mut frames = Self(stream);
        frames.send(SETTINGS, 0, &[]).await;
        frames
    }

    /// Sends a frame of the whole connection.
    pub(crate) async fn send(&mut self, kind: u8, flags: u8, payload: &[u8]) {
        self.send_on(0, kind, flags, payload).await;
    }

    /// Sends a GET request as the stream of this number.
    pub(crate) async fn request(&mut self, stream: u32, path: &str) {
        // Of the static table of HPACK: method GET, scheme https, and the names of path and authority.
        let mut headers = vec![0x82, 0x87];
        for (name, value) in [(4, path), (1, "localhost")] {
            headers.extend([name, u8::try_from(value.len()).unwrap()]);
            headers.extend_from_slice(value.as_bytes());
        }
        self.send_on(stream, HEADERS, END_STREAM | END_HEADERS, &headers)
            .await;
    }

    async fn send_on(&mut self, stream: u32, kind: u8, flags: u8, payload: &[u8]) {
        let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
        let head = [length[1], length[2], length[3], kind, flags];
        let frame = [&head, &stream.to_be_bytes()[..], payload].concat();
        self.0.write_all(&frame).await.unwrap();
        self.0.flush().await.unwrap();
    }

    /// All frames up to the answer to a ping, which is sent after whatever was sent before.
    pub(crate) async fn until_pong(&mut self) -> Vec<Frame> {
        const OWN: [u8; 8] = *b"answered";
        self.send(PING, 0, &OWN).await;
        let mut frames = Vec::new();
        loop {
            let frame = soon("a frame", self.next()).await.unwrap();
            if (frame.kind, frame.flags) == (PING, ACK) && frame.payload == OWN {
                return frames;
            }
            frames.push(frame);
        }
    }

    /// The next frame; an error at the end of the connection.
    pub(crate) async fn next(&mut self) -> io::Result<Frame> {
        let mut head = [0; 9];
        self.0.read_exact(&mut head).await?;
        let length = u32::from_be_bytes([0, head[0], head[1], head[2]]);
        let mut payload = vec![0; length as usize];
        self.0.read_exact(&mut payload).await?;
        Ok(Frame {
            kind: head[3],
            flags: head[4],
            stream: u32::from_be_bytes([head[5], head[6], head[7], head[8]]),
            payload,
        })
    }
}
