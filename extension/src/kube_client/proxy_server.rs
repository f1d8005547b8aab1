//! HTTP proxies of tests.

use std::net::SocketAddr;

use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, copy_bidirectional},
    net::{TcpListener, TcpStream},
    task::JoinHandle,
};

/// Answer of a proxy that opens the tunnel.
pub(crate) const OPENED: &[u8] = b"HTTP/1.1 200 Connection established\r\nVia: proxy\r\n\r\n";

/// Ends of an answer.
const ENDS: [&[u8]; 2] = [b"\n\r\n", b"\n\n"];

/// Starts a proxy for one connection, which answers this and leads to `server` if the answer opens the tunnel. Returns its address and the
/// task that returns the request.
pub(crate) async fn start(answer: Vec<u8>, server: SocketAddr) -> (SocketAddr, JoinHandle<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let serving = tokio::spawn(async move {
        let (client, _) = listener.accept().await.unwrap();
        serve(client, &answer, server).await
    });
    (address, serving)
}

/// Answers the request of a client. Returns the request.
pub(crate) async fn serve<S>(mut client: S, answer: &[u8], server: SocketAddr) -> String
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let mut request = Vec::new();
    while !request.ends_with(b"\r\n\r\n") {
        request.push(client.read_u8().await.unwrap());
    }
    let _closed = client.write_all(answer).await;
    let _closed = client.flush().await;
    if answer.starts_with(b"HTTP/1.1 200") && ENDS.iter().any(|end| answer.ends_with(end)) {
        forward(&mut client, server).await;
    }
    String::from_utf8(request).unwrap()
}

/// Copies between a client and `server` until one of them ends.
pub(crate) async fn forward<S: AsyncRead + AsyncWrite + Unpin>(client: &mut S, server: SocketAddr) {
    let mut server = TcpStream::connect(server).await.unwrap();
    let _closed = copy_bidirectional(client, &mut server).await;
}
