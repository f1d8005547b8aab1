//! Peers that take their time.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use rstest::rstest;
use sluice::server::serve::Limits;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;

use crate::authority::{Authority, Mount};
use crate::peer::{Listener, Peer, connect_from, quick, soon, tls, until};

/// Reads until the listener closes; what kind of close does not matter.
async fn closed(mut stream: impl AsyncReadExt + Unpin) {
    let mut rest = Vec::new();
    let _ = soon(
        "the listener to close the connection",
        stream.read_to_end(&mut rest),
    )
    .await;
}

#[tokio::test]
async fn silence_before_the_handshake_is_ended() {
    let authority = Authority::new();
    let mount = Mount::new(&authority.sign());
    let listener = Listener::start(tls(&mount), quick()).await;

    closed(TcpStream::connect(listener.address).await.unwrap()).await;
}

#[rstest]
#[case::h2_without_a_preface(&["h2"], "")]
#[case::h2_half_a_preface(&["h2"], "PRI * HTTP/2.0\r\n")]
#[case::h2_without_a_request(&["h2"], "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\u{4}\0\0\0\0\0")]
#[case::http_1_1_without_a_byte(&["http/1.1"], "")]
#[case::http_1_1_half_a_head(&["http/1.1"], "GET / HTTP/1.1\r\nhost: loc")]
#[tokio::test]
async fn silence_after_the_handshake_is_ended(#[case] protocols: &[&str], #[case] sent: &str) {
    let authority = Authority::new();
    let mount = Mount::new(&authority.sign());
    let listener = Listener::start(tls(&mount), quick()).await;
    let mut stream = Peer::trusting(&authority)
        .offering(protocols)
        .handshake(listener.address)
        .await
        .unwrap();

    stream.write_all(sent.as_bytes()).await.unwrap();

    closed(stream).await;
}

/// Limits with a short time for later heads.
fn impatient() -> Limits {
    Limits {
        idle: Duration::from_secs(1),
        ..quick()
    }
}

/// A connection on which one request was answered.
async fn answered(authority: &Authority, listener: &Listener) -> TlsStream<TcpStream> {
    let mut stream = Peer::trusting(authority)
        .handshake(listener.address)
        .await
        .unwrap();
    stream
        .write_all(b"GET / HTTP/1.1\r\nhost: localhost\r\n\r\n")
        .await
        .unwrap();
    let mut answer = vec![0; 1024];
    let read = soon("the first answer", stream.read(&mut answer)).await.unwrap();
    assert!(answer[..read].starts_with(b"HTTP/1.1 200"));
    stream
}

#[tokio::test]
async fn silence_in_a_second_head_is_ended() {
    let authority = Authority::new();
    let mount = Mount::new(&authority.sign());
    let listener = Listener::start(tls(&mount), impatient()).await;
    let mut stream = answered(&authority, &listener).await;

    stream.write_all(b"GET / HT").await.unwrap();

    closed(stream).await;
}

#[rstest]
#[case::first(false)]
#[case::second(true)]
#[tokio::test]
async fn a_head_that_trickles_is_ended(#[case] second: bool) {
    let authority = Authority::new();
    let mount = Mount::new(&authority.sign());
    let listener = Listener::start(tls(&mount), impatient()).await;
    let mut connection = if second {
        answered(&authority, &listener).await
    } else {
        Peer::trusting(&authority)
            .handshake(listener.address)
            .await
            .unwrap()
    };
    connection
        .write_all(b"GET / HTTP/1.1\r\nhost: localhost\r\n")
        .await
        .unwrap();

    soon("the listener to close the connection", async {
        while connection.write_all(b"x: 1\r\n").await.is_ok() && connection.flush().await.is_ok() {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    })
    .await;
}

#[rstest]
#[case::h2(&["h2"])]
#[case::http_1_1(&["http/1.1"])]
#[tokio::test]
async fn idle_connections_are_kept_for_a_while_then_ended(#[case] protocols: &[&str]) {
    let authority = Authority::new();
    let mount = Mount::new(&authority.sign());
    let limits = Limits {
        idle: Duration::from_millis(1500),
        ..quick()
    };
    let listener = Listener::start(tls(&mount), limits).await;
    let mut connection = Peer::trusting(&authority)
        .offering(protocols)
        .connect(listener.address)
        .await
        .unwrap();

    assert_eq!(connection.text("/").await.unwrap(), "quick");
    let since = Instant::now();
    let _ = soon("the idle connection to end", &mut connection.task)
        .await
        .unwrap();

    // Longer than the first head may take: only the idle limit ends it.
    assert!(since.elapsed() >= quick().head * 3, "{:?}", since.elapsed());
}

#[tokio::test]
async fn silent_peers_use_up_the_slots_only_until_their_limit() {
    let authority = Authority::new();
    let mount = Mount::new(&authority.sign());
    let limits = Limits {
        connections: 3,
        ..quick()
    };
    let listener = Listener::start(tls(&mount), limits).await;
    let mut silent = Vec::new();
    for number in 0..12 {
        silent.push(connect_from(2 + number % 6, listener.address).await);
    }

    let connected = soon("a slot", Peer::trusting(&authority).connect(listener.address)).await;

    assert_eq!(connected.unwrap().text("/").await.unwrap(), "quick");
}

/// Takes what is logged on this thread.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl std::io::Write for Log {
    fn write(&mut self, line: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(line);
        Ok(line.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[tokio::test]
async fn an_address_has_half_of_the_connections_that_others_leave() {
    let authority = Authority::new();
    let mount = Mount::new(&authority.sign());
    let limits = Limits {
        connections: 8,
        handshake: Duration::from_mins(1),
        ..quick()
    };
    let log = Log::default();
    let lines = tracing_subscriber::fmt().with_writer({
        let log = log.clone();
        move || log.clone()
    });
    let logging = tracing::subscriber::set_default(lines.finish());
    let listener = Listener::start(tls(&mount), limits).await;
    let mut silent = Vec::new();
    for (address, share) in [(2, 4), (3, 2), (4, 1)] {
        for _ in 0..share {
            silent.push(connect_from(address, listener.address).await);
        }
        for _ in 0..3 {
            closed(connect_from(address, listener.address).await).await;
        }
    }
    let ask = || async {
        let mut connection = Peer::trusting(&authority).connect(listener.address).await?;
        Ok::<_, Box<dyn std::error::Error>>(connection.text("/").await?)
    };
    assert_eq!(soon("the last slot", ask()).await.unwrap(), "quick");
    drop(logging);
    let log = String::from_utf8(log.0.lock().unwrap().clone()).unwrap();
    assert_eq!(
        log.matches("TooManyOfAddress").count(),
        3,
        "once for each address: {log}"
    );

    drop(silent);
    let again = || async {
        let tcp = connect_from(2, listener.address).await;
        Peer::trusting(&authority).handshake_over(tcp).await.map(drop)
    };
    until("a connection of the first address", again, Result::is_ok)
        .await
        .unwrap();
}

#[tokio::test]
async fn three_hundred_silent_peers_do_not_disturb_a_good_one() {
    let authority = Authority::new();
    let mount = Mount::new(&authority.sign());
    let listener = Listener::start(tls(&mount), quick()).await;
    let mut silent = Vec::new();
    for _ in 0..300 {
        silent.push(TcpStream::connect(listener.address).await.unwrap());
    }

    let mut connection = Peer::trusting(&authority)
        .connect(listener.address)
        .await
        .unwrap();
    assert_eq!(connection.text("/").await.unwrap(), "quick");

    for stream in silent {
        closed(stream).await;
    }
}
