//! The end of a listener.

use std::time::Duration;

use rstest::rstest;
use sluice::server::serve::{Drained, Limits};
use tokio::net::TcpStream;

use crate::authority::{Authority, Mount};
use crate::peer::{Listener, Peer, quick, soon, tls};

#[rstest]
#[case::h2(&["h2"])]
#[case::http_1_1(&["http/1.1"])]
#[tokio::test]
async fn what_is_in_flight_is_finished(#[case] protocols: &[&str]) {
    let authority = Authority::new();
    let mount = Mount::new(&authority.sign());
    let listener = Listener::start(tls(&mount), quick()).await;
    let peer = Peer::trusting(&authority).offering(protocols);
    let mut busy = peer.connect(listener.address).await.unwrap();
    let mut idle = peer.connect(listener.address).await.unwrap();
    idle.text("/").await.unwrap();

    let answer = soon("the slow answer", async {
        let stop = async {
            listener.entered.notified().await;
            listener.shutdown.cancel();
            soon("the idle connection to end", &mut idle.task)
                .await
                .unwrap()
                .unwrap();
            soon("the socket to close", async {
                while TcpStream::connect(listener.address).await.is_ok() {
                    tokio::time::sleep(Duration::from_millis(5)).await;
                }
            })
            .await;
            listener.release.notify_one();
        };
        tokio::join!(busy.text("/slow"), stop).0
    })
    .await;

    assert_eq!(answer.unwrap(), "slow");
    assert_eq!(
        soon("the listener to end", listener.run).await.unwrap(),
        Drained { cut: 0 }
    );
    soon("the busy connection to end", &mut busy.task)
        .await
        .unwrap()
        .unwrap();
}

#[tokio::test]
async fn what_does_not_finish_in_time_is_cut() {
    let authority = Authority::new();
    let mount = Mount::new(&authority.sign());
    let limits = Limits {
        drain: Duration::from_millis(200),
        ..quick()
    };
    let listener = Listener::start(tls(&mount), limits).await;
    let peer = Peer::trusting(&authority).offering(&["h2"]);
    let mut stuck = peer.connect(listener.address).await.unwrap();

    let stop = async {
        listener.entered.notified().await;
        listener.shutdown.cancel();
    };
    let (answer, ()) = soon("the cut", async { tokio::join!(stuck.text("/slow"), stop) }).await;

    assert!(answer.is_err(), "{answer:?}");
    assert_eq!(
        soon("the listener to end", listener.run).await.unwrap(),
        Drained { cut: 1 }
    );
}

#[tokio::test]
async fn a_silent_peer_does_not_delay_the_end() {
    let authority = Authority::new();
    let mount = Mount::new(&authority.sign());
    let limits = Limits {
        handshake: Duration::from_mins(10),
        head: Duration::from_mins(10),
        ..quick()
    };
    let listener = Listener::start(tls(&mount), limits).await;
    let _no_handshake = TcpStream::connect(listener.address).await.unwrap();
    let peer = Peer::trusting(&authority);
    let _no_request = peer.handshake(listener.address).await.unwrap();
    let mut answered = peer.connect(listener.address).await.unwrap();
    assert_eq!(answered.text("/").await.unwrap(), "quick");

    listener.shutdown.cancel();

    assert_eq!(
        soon("the listener to end", listener.run).await.unwrap(),
        Drained { cut: 0 }
    );
}
