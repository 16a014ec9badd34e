use std::net::{Ipv4Addr, SocketAddr};

use tokio::net::{TcpSocket, TcpStream};
use tokio_tungstenite::{WebSocketStream, client_async, tungstenite::client::IntoClientRequest};

/// A connection to `target` from `address`.
pub async fn connect(address: Ipv4Addr, target: SocketAddr) -> std::io::Result<TcpStream> {
    let socket = TcpSocket::new_v4()?;
    socket.bind(SocketAddr::from((address, 0)))?;
    let stream = socket.connect(target).await?;
    stream.set_nodelay(true)?;
    Ok(stream)
}

/// A WebSocket at `path` of `target` from `address`, with `token`.
pub async fn open(
    address: Ipv4Addr,
    target: SocketAddr,
    path: &str,
    token: &str,
) -> anyhow::Result<WebSocketStream<TcpStream>> {
    let mut request = format!("ws://{target}{path}").into_client_request()?;
    request.headers_mut().insert("authorization", format!("Bearer {token}").parse()?);
    Ok(client_async(request, connect(address, target).await?).await?.0)
}
