//! `POST /api/jobs` with reads after writes, beside a plain `INSERT … RETURNING` server on the same PostgreSQL, in
//! turns. `BENCH_SECONDS` for each turn, `BENCH_ROUNDS`, `BENCH_CONNECTIONS`.

use std::{env, net::TcpStream, time::Duration};

use serde_json::json;

use crate::{
    load::{self, Load},
    plain_server, report, size,
    system::{Program, Role, Servers, Signalbox, free_address, wait_until},
};

/// Runs it.
pub async fn run() -> anyhow::Result<()> {
    let duration = Duration::from_secs(size::of("BENCH_SECONDS", 3)?);
    let rounds = size::of("BENCH_ROUNDS", 3)?;
    let connections = size::of("BENCH_CONNECTIONS", 16)? as usize;

    let servers = Servers::start().await?;
    let (_ours, api) = Signalbox::new(&servers, Role::All)?.start_and_log_in().await?;
    let (_theirs, peer) = start_peer(&servers).await?;
    let [source, destination] = [api.add_agent("source").await?, api.add_agent("destination").await?];
    let job = json!({
        "name": "nightly results", "source_agent_id": source.number, "destination_agent_id": destination.number,
        "source_path": "results/latest.csv", "destination_path": "incoming/results.csv",
        "description": "made by the bench",
    });
    let request = load::post("/api/jobs", api.token(), &job.to_string());

    let turn = |address| load::run(address, connections, duration, &request, 201);
    let (mut our_loads, mut their_loads) = (Vec::new(), Vec::new());
    for round in 0..=rounds {
        let (ours, theirs) = (turn(api.address)?, turn(peer)?);
        eprintln!("{round}: {:.0} and {:.0} requests/s", ours.rate, theirs.rate);
        // The first round warms up.
        if round > 0 {
            our_loads.push(ours);
            their_loads.push(theirs);
        }
    }
    print(connections, &our_loads, &their_loads);
    Ok(())
}

/// Starts the plain server on a database of its own.
pub async fn start_peer(servers: &Servers) -> anyhow::Result<(Program, std::net::SocketAddr)> {
    let (url, address) = (servers.create_database("plain").await?, free_address()?);
    let arguments = [plain_server::ARGUMENT.to_owned(), address.to_string(), url];
    let log = servers.folder().join("plain.log");
    let peer = Program::start(&env::current_exe()?, &arguments, &[], &log)?;
    let listens = || async move { Ok(TcpStream::connect(address).is_ok()) };
    wait_until("the start of the plain server", Duration::from_secs(10), listens).await?;
    Ok((peer, address))
}

fn print(connections: usize, ours: &[Load], theirs: &[Load]) {
    report::title(&format!("commands: POST /api/jobs at {connections} connections; signalbox, plain INSERT"));
    let rates = |loads: &[Load]| report::median(loads.iter().map(|load| load.rate));
    report::pair("throughput", rates(ours), rates(theirs), "requests/s");
    for (name, at) in [("p50", 0.5), ("p99", 0.99)] {
        let latency = |loads: &[Load]| {
            report::quantile(loads.iter().flat_map(|load| load.milliseconds.iter().copied()), at)
        };
        report::pair(name, latency(ours), latency(theirs), "ms");
    }
    let ratios = ours.iter().zip(theirs).map(|(ours, theirs)| ours.rate / theirs.rate);
    report::ratio("throughput, ratio", report::median(ratios), 0.35);
}
