//! A DNS server that answers every query for a name with the next of its answers, and a resolver that uses it.

use std::{
    collections::VecDeque,
    io,
    net::{IpAddr, SocketAddr},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use tokio::{net::UdpSocket, task::JoinHandle};

const A: u16 = 1;
const AAAA: u16 = 28;
const HEADER: usize = 12;

pub struct DnsServer {
    address: SocketAddr,
    lookups: Arc<AtomicUsize>,
    server: JoinHandle<()>,
}

impl DnsServer {
    /// Gives each lookup the next of `answers`, and all further ones the last.
    pub async fn start(answers: &[&[&str]]) -> Self {
        let parse =
            |answer: &&[&str]| answer.iter().map(|text| text.parse().unwrap()).collect::<Vec<IpAddr>>();
        let mut answers: VecDeque<_> = answers.iter().map(parse).collect();
        let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        let (address, lookups) = (socket.local_addr().unwrap(), Arc::<AtomicUsize>::default());
        let counted = lookups.clone();
        let server = tokio::spawn(async move {
            let mut packet = [0; 512];
            while let Ok((length, from)) = socket.recv_from(&mut packet).await {
                let question = &packet[..length];
                let kind = u16::from_be_bytes([question[length - 4], question[length - 3]]);
                // A lookup queries A and then AAAA.
                if kind == A && counted.fetch_add(1, Ordering::SeqCst) > 0 && answers.len() > 1 {
                    answers.pop_front();
                }
                socket.send_to(&answer(question, kind, &answers[0]), from).await.unwrap();
            }
        });
        Self { address, lookups, server }
    }

    pub fn resolver(&self) -> Arc<dyn Resolve> {
        Arc::new(Resolver(self.address))
    }

    pub fn lookups(&self) -> usize {
        self.lookups.load(Ordering::SeqCst)
    }
}

impl Drop for DnsServer {
    fn drop(&mut self) {
        self.server.abort();
    }
}

fn answer(question: &[u8], kind: u16, addresses: &[IpAddr]) -> Vec<u8> {
    let bytes = |address: &IpAddr| match address {
        IpAddr::V4(address) if kind == A => Some(address.octets().to_vec()),
        IpAddr::V6(address) if kind == AAAA => Some(address.octets().to_vec()),
        _ => None,
    };
    let records: Vec<_> = addresses.iter().filter_map(bytes).collect();
    let mut packet = question.to_vec();
    packet[2..4].copy_from_slice(&[0x81, 0x80]);
    packet[6..8].copy_from_slice(&(records.len() as u16).to_be_bytes());
    for record in records {
        // The name is that of the question, the class IN, the time to live zero.
        packet.extend([0xc0, HEADER as u8]);
        packet.extend(kind.to_be_bytes());
        packet.extend([0, 1, 0, 0, 0, 0]);
        packet.extend((record.len() as u16).to_be_bytes());
        packet.extend(record);
    }
    packet
}

struct Resolver(SocketAddr);

impl Resolve for Resolver {
    fn resolve(&self, name: Name) -> Resolving {
        let server = self.0;
        Box::pin(async move {
            let mut found = Vec::new();
            for kind in [A, AAAA] {
                found.extend(ask(server, name.as_str(), kind).await?);
            }
            Ok(Box::new(found.into_iter().map(|address| SocketAddr::new(address, 0))) as Addrs)
        })
    }
}

async fn ask(server: SocketAddr, name: &str, kind: u16) -> io::Result<Vec<IpAddr>> {
    let mut question = vec![0, 7, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0];
    for label in name.split('.') {
        question.push(label.len() as u8);
        question.extend(label.bytes());
    }
    question.push(0);
    question.extend(kind.to_be_bytes());
    question.extend([0, 1]);
    let socket = UdpSocket::bind("127.0.0.1:0").await?;
    socket.send_to(&question, server).await?;
    let mut packet = [0; 512];
    let length = socket.recv(&mut packet).await?;
    let width = if kind == A { 4 } else { 16 };
    let records = packet[question.len()..length].chunks(12 + width);
    Ok(records.map(|record| address(&record[12..])).collect())
}

fn address(bytes: &[u8]) -> IpAddr {
    match <[u8; 4]>::try_from(bytes) {
        Ok(v4) => v4.into(),
        Err(_) => <[u8; 16]>::try_from(bytes).unwrap().into(),
    }
}
