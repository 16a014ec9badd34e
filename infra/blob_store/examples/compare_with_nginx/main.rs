//! Upload and download of one large file through the store behind hyper, beside nginx (WebDAV PUT, GET with sendfile)
//! on the same disk, in turns. Prints medians and ratios. Needs `nginx` with its DAV module in the path.
//!
//! `cargo run --release -p signalbox-blob-store --example compare_with_nginx -- [MiB] [rounds]`

mod client;
mod nginx;
mod server;

use std::{
    env,
    error::Error,
    net::{SocketAddr, TcpListener, TcpStream},
    process::{Child, Command},
    time::{Duration, Instant},
};

use rustix::process::{Pid, Signal, kill_process};

type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

fn main() -> Result<()> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    if let [command, address, root] = arguments.as_slice()
        && command == "serve"
    {
        return server::serve(address.parse()?, root.into());
    }
    let mib = arguments.first().map_or(Ok(1024), |text| text.parse())?;
    let rounds = arguments.get(1).map_or(Ok(5), |text| text.parse())?;
    compare(mib << 20, rounds)
}

/// A process that is stopped when dropped. It is stopped by a signal, because a killed nginx leaves its workers
/// behind.
struct Server {
    process: Child,
    address: SocketAddr,
}

impl Server {
    fn start(command: &mut Command, address: SocketAddr) -> Result<Self> {
        let process = command.spawn()?;
        let deadline = Instant::now() + Duration::from_secs(5);
        while TcpStream::connect(address).is_err() {
            if Instant::now() > deadline {
                return Err("the server does not listen".into());
            }
        }
        Ok(Self { process, address })
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = kill_process(Pid::from_child(&self.process), Signal::TERM);
        let _ = self.process.wait();
    }
}

fn free_address() -> Result<SocketAddr> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?)
}

fn compare(bytes: u64, rounds: usize) -> Result<()> {
    let folder = tempfile::tempdir()?;
    let ours = {
        let address = free_address()?;
        let mut command = Command::new(env::current_exe()?);
        command.arg("serve").arg(address.to_string()).arg(folder.path().join("ours"));
        Server::start(&mut command, address)?
    };
    let theirs = nginx::start(&folder.path().join("nginx"))?;
    let mut times = Times::default();
    for round in 0..=rounds {
        let taken = Round {
            their_put: client::put(theirs.address, bytes)?,
            their_sync: nginx::sync(&folder.path().join("nginx"))?,
            their_get: client::get(theirs.address, bytes)?,
            our_put: client::put(ours.address, bytes)?,
            our_get: client::get(ours.address, bytes)?,
        };
        // Every upload makes a new file: replacing a large one costs time of its own.
        client::delete(theirs.address)?;
        client::delete(ours.address)?;
        // The first round warms both servers up.
        if round > 0 {
            times.0.push(taken);
        }
    }
    times.print(bytes);
    Ok(())
}

struct Round {
    their_put: f64,
    their_sync: f64,
    their_get: f64,
    our_put: f64,
    our_get: f64,
}

#[derive(Default)]
struct Times(Vec<Round>);

impl Times {
    fn print(&self, bytes: u64) {
        let durable = self.median(|round| round.their_put + round.their_sync);
        let [put, our_put] = [self.median(|round| round.their_put), self.median(|round| round.our_put)];
        let [get, our_get] = [self.median(|round| round.their_get), self.median(|round| round.our_get)];
        let rate = |seconds: f64| bytes as f64 / f64::from(1 << 20) / seconds;
        println!("MiB/s, medians of {} rounds of {} MiB", self.0.len(), bytes >> 20);
        println!(
            "upload    ours {:>6.0}  nginx {:>6.0}  ratio {:.2}",
            rate(our_put),
            rate(put),
            put / our_put
        );
        println!("  … nginx and then fsync {:>15.0}  ratio {:.2}", rate(durable), durable / our_put);
        println!(
            "download  ours {:>6.0}  nginx {:>6.0}  ratio {:.2}",
            rate(our_get),
            rate(get),
            get / our_get
        );
    }

    fn median(&self, of: impl Fn(&Round) -> f64) -> f64 {
        let mut values: Vec<f64> = self.0.iter().map(of).collect();
        values.sort_by(f64::total_cmp);
        values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
    }
}
