//! Limits of an HTTP/2 connection: unread bytes, streams, headers, and unanswered pings.

use std::time::Duration;

use http::{Request, StatusCode};
use http_body_util::Full;
use rstest::rstest;
use sluice::server::serve::Limits;

use crate::authority::{Authority, Mount};
use crate::frames::{ACK, Frames, PING, RST_STREAM, SETTINGS};
use crate::peer::{Listener, Peer, connect_from, quick, soon, tls};

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
        assert_eq!(
            streams, 100,
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

#[tokio::test]
async fn a_request_beyond_the_streams_of_a_connection_is_refused() {
    const REFUSED_STREAM: u32 = 7;
    let authority = Authority::new();
    let mount = Mount::new(&authority.sign());
    let listener = Listener::start(tls(&mount), quick()).await;
    let peer = Peer::trusting(&authority).offering(&["h2"]);
    let mut frames = Frames::begin(peer.handshake(listener.address).await.unwrap()).await;

    // Streams of a client have odd numbers. None of these is answered.
    for number in 0..=100 {
        frames.request(2 * number + 1, "/slow").await;
    }

    let mut received = frames.until_pong().await;
    received.extend(frames.until_pong().await);
    let ended: Vec<_> = received
        .into_iter()
        .filter(|frame| frame.kind == RST_STREAM)
        .map(|frame| (frame.stream, frame.payload))
        .collect();
    assert_eq!(ended, [(201, REFUSED_STREAM.to_be_bytes().to_vec())]);
}

#[rstest]
#[case::h2(&["h2"])]
#[case::http_1_1(&["http/1.1"])]
#[tokio::test]
async fn a_header_of_more_than_16_kib_is_refused(#[case] protocols: &[&str]) {
    let authority = Authority::new();
    let mount = Mount::new(&authority.sign());
    let listener = Listener::start(tls(&mount), quick()).await;
    let peer = Peer::trusting(&authority).offering(protocols);
    let mut connection = peer.connect(listener.address).await.unwrap();
    for (kib, taken) in [(15, true), (17, false)] {
        let request = Request::get("https://localhost/")
            .header("host", "localhost")
            .header("x-large", "x".repeat(kib * 1024))
            .body(Full::default())
            .unwrap();
        // HTTP/1.1 closes the connection, perhaps before the response is read.
        let answer = soon("an answer", connection.send(request)).await;
        let status = answer.map(|answer| answer.status());
        assert_eq!(
            matches!(status, Ok(StatusCode::OK)),
            taken,
            "{kib} KiB: {status:?}"
        );
    }
}

#[tokio::test]
async fn a_peer_that_answers_no_pings_is_disconnected() {
    const ANSWERED: usize = 2;
    let authority = Authority::new();
    let mount = Mount::new(&authority.sign());
    let limits = Limits {
        ping: Duration::from_secs(1),
        ..quick()
    };
    let listener = Listener::start(tls(&mount), limits).await;
    let peer = Peer::trusting(&authority).offering(&["h2"]);
    let mut frames = Frames::begin(peer.handshake(listener.address).await.unwrap()).await;
    // No other limit ends a connection with a request in flight.
    frames.request(1, "/slow").await;

    let mut pings = 0;
    soon("the end of the connection", async {
        while let Ok(frame) = frames.next().await {
            if (frame.kind, frame.flags) == (PING, 0) {
                pings += 1;
                if pings <= ANSWERED {
                    frames.send(PING, ACK, &frame.payload).await;
                }
            }
        }
    })
    .await;

    assert_eq!(pings, ANSWERED + 1, "it ends after the first unanswered ping");
}
