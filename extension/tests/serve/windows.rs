//! Limit of the bytes that a peer may send before Sluice reads them.

use std::time::Duration;

use sluice::server::serve::Limits;

use crate::authority::{Authority, Mount};
use crate::frames::Frames;
use crate::peer::{Listener, Peer, connect_from, tls};

const SETTINGS: u8 = 4;
const WINDOW_UPDATE: u8 = 8;
const INITIAL_WINDOW_SIZE: u16 = 4;
const MAX_CONCURRENT_STREAMS: u16 = 3;

/// What HTTP/2 gives to each connection and stream, unless something else is said.
const DEFAULT: u32 = 65_535;

/// What a listener lets a connection send.
#[derive(Debug, Clone, Copy)]
struct Windows {
    connection: u32,
    stream: u32,
    streams: u32,
}

impl Windows {
    async fn of(frames: &mut Frames) -> Self {
        let mut windows = Self {
            connection: DEFAULT,
            stream: DEFAULT,
            streams: u32::MAX,
        };
        // What belongs to the beginning may be sent just after the first answer.
        for _ in 0..2 {
            for frame in frames.until_pong().await {
                let number = |bytes: &[u8]| u32::from_be_bytes(bytes.try_into().unwrap());
                match frame.kind {
                    SETTINGS => {
                        for setting in frame.payload.chunks(6) {
                            match u16::from_be_bytes([setting[0], setting[1]]) {
                                INITIAL_WINDOW_SIZE => windows.stream = number(&setting[2..]),
                                MAX_CONCURRENT_STREAMS => windows.streams = number(&setting[2..]),
                                _ => {}
                            }
                        }
                    }
                    WINDOW_UPDATE => windows.connection += number(&frame.payload),
                    _ => {}
                }
            }
        }
        windows
    }
}

#[tokio::test]
async fn what_is_received_unread_is_little_on_each_connection_of_an_address() {
    const CONNECTIONS: usize = 40;
    let authority = Authority::new();
    let mount = Mount::new(&authority.sign());
    // No request is ever made here.
    let limits = Limits {
        head: Duration::from_mins(1),
        ..Limits::default()
    };
    let listener = Listener::start(tls(&mount), limits).await;
    let peer = Peer::trusting(&authority).offering(&["h2"]);
    let mut open = Vec::new();
    for number in 0..CONNECTIONS {
        let tcp = connect_from(2, listener.address).await;
        let mut frames = Frames::begin(peer.handshake_over(tcp).await.unwrap()).await;
        let Windows {
            connection,
            stream,
            streams,
        } = Windows::of(&mut frames).await;
        assert!(
            streams >= 100,
            "connection {number} takes {streams} requests at once"
        );
        // Of all connections together it is no more than half of the memory of a Pod.
        assert!(
            connection.max(stream) <= 128 << 10,
            "connection {number}: {connection} bytes, {stream} in a request"
        );
        open.push(frames);
    }
}
