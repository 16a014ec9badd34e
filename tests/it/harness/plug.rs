//! A wire to the service that can be pulled out.

use std::net::SocketAddr;

use tokio::{
    io::copy_bidirectional,
    net::{TcpListener, TcpStream},
    sync::watch,
    task::JoinHandle,
};

/// Passes connections on while it is plugged in; pulling it out ends them.
pub struct Plug {
    address: SocketAddr,
    is_in: watch::Sender<bool>,
    server: JoinHandle<()>,
}

impl Plug {
    pub async fn to(target: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let is_in = watch::Sender::new(true);
        let watched = is_in.subscribe();
        let server = tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                if *watched.borrow() {
                    tokio::spawn(carry(client, target, watched.clone()));
                }
            }
        });
        Self { address, is_in, server }
    }

    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    pub fn pull_out(&self) {
        self.is_in.send_replace(false);
    }

    pub fn put_in(&self) {
        self.is_in.send_replace(true);
    }
}

impl Drop for Plug {
    fn drop(&mut self) {
        self.server.abort();
    }
}

async fn carry(mut client: TcpStream, target: SocketAddr, mut is_in: watch::Receiver<bool>) {
    let Ok(mut service) = TcpStream::connect(target).await else { return };
    tokio::select! {
        _ = copy_bidirectional(&mut client, &mut service) => {}
        _ = is_in.wait_for(|is_in| !is_in) => {}
    }
}
