//! A wire to the service that can be pulled out.

use std::{net::SocketAddr, sync::Mutex};

use tokio::{
    io::copy_bidirectional,
    net::{TcpListener, TcpStream},
    sync::watch,
    task::JoinHandle,
};

/// Passes connections on while it is plugged in; pulling it out ends them.
pub struct Plug {
    address: SocketAddr,
    socket: Mutex<SocketAddr>,
    leads_to: watch::Sender<Option<SocketAddr>>,
    server: JoinHandle<()>,
}

impl Plug {
    pub async fn to(target: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let leads_to = watch::Sender::new(Some(target));
        let watched = leads_to.subscribe();
        let server = tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let target = *watched.borrow();
                if let Some(target) = target {
                    tokio::spawn(carry(client, target, watched.clone()));
                }
            }
        });
        Self { address, socket: Mutex::new(target), leads_to, server }
    }

    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    pub fn pull_out(&self) {
        self.leads_to.send_replace(None);
    }

    pub fn put_in(&self) {
        self.leads_to.send_replace(Some(*self.socket.lock().unwrap()));
    }

    /// Pulls it out, and puts it in where it leads to `target`.
    pub fn put_into(&self, target: SocketAddr) {
        *self.socket.lock().unwrap() = target;
        self.put_in();
    }
}

impl Drop for Plug {
    fn drop(&mut self) {
        self.server.abort();
    }
}

async fn carry(mut client: TcpStream, target: SocketAddr, mut leads_to: watch::Receiver<Option<SocketAddr>>) {
    let Ok(mut service) = TcpStream::connect(target).await else { return };
    tokio::select! {
        _ = copy_bidirectional(&mut client, &mut service) => {}
        _ = leads_to.wait_for(|now| *now != Some(target)) => {}
    }
}
