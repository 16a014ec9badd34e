use std::{
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    path::Path,
    time::Duration,
};

use anyhow::bail;
use signalbox_config::Config;
use signalbox_gateway::NewAdmin;
use signalbox_messaging::Bus;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

use crate::{
    embedded::Servers,
    serve::{ALL, Service, Signals, first_admin, listen, password_file, raise_file_limit},
    setup,
};

/// Time limit of the read models at the start.
const START: Duration = Duration::from_secs(30);

/// Starts everything on this machine and runs until a signal asks to stop.
pub(crate) async fn run(mut config: Config) -> anyhow::Result<()> {
    share_machine(&mut config);
    let mut signals = Signals::register()?;
    // Before the servers are started, so that a taken port is reported at once.
    let listener = listen(&config, &ALL).await?;
    let mut servers = Servers::start(&mut config).await?;
    let stop = CancellationToken::new();
    let served = serve(&config, listener, &mut servers, &stop, &mut signals).await;
    servers.stop().await;
    served
}

/// Receivers of webhooks usually run on this machine too, so loopback is allowed unless configured otherwise.
/// Requests from other machines must not reach services that listen on loopback only.
fn share_machine(config: &mut Config) {
    if config.server.address.ip().is_loopback() && config.egress.allowed_networks.is_empty() {
        config.egress.allowed_networks = ["127.0.0.0/8", "::1/128"].map(str::to_owned).into();
    }
}

async fn serve(
    config: &Config,
    listener: Option<tokio::net::TcpListener>,
    servers: &mut Servers,
    stop: &CancellationToken,
    signals: &mut Signals,
) -> anyhow::Result<()> {
    let (mut service, bus) = tokio::select! {
        started = start(config, listener, stop) => started?,
        // A service that is still starting has no work to finish.
        () = signals.received() => return Ok(()),
    };
    let stopped = tokio::select! {
        stopped = service.until_stopped(signals) => stopped,
        () = servers.watch(&bus, stop) => service.until_stopped(signals).await,
    };
    bus.expect_disconnect();
    stopped
}

async fn start(
    config: &Config,
    listener: Option<tokio::net::TcpListener>,
    stop: &CancellationToken,
) -> anyhow::Result<(Service, Bus)> {
    raise_file_limit();
    let pool = setup::database(config).await?;
    signalbox_database::migrate(&pool).await?;
    let bus = setup::bus(config).await?;
    let service = Service::start(config, &ALL, pool.clone(), bus.clone(), listener, stop).await?;
    let greeted = async {
        let deadline = Instant::now() + START;
        loop {
            match first_admin(config, &pool, &bus).await {
                Ok(admin) => return Ok(admin),
                Err(error) if Instant::now() > deadline => return Err(error),
                Err(_) => sleep(Duration::from_millis(100)).await,
            }
        }
    };
    match greeted.await {
        Ok(admin) => greet(config, admin),
        Err(error) => {
            stop.cancel();
            bail!(error);
        }
    }
    Ok((service, bus))
}

fn greet(config: &Config, admin: Option<NewAdmin>) {
    let address = reachable(config.server.address);
    println!();
    println!("  Signalbox {} serves on http://{address}", env!("CARGO_PKG_VERSION"));
    match admin {
        Some(NewAdmin { login, made_password }) => {
            println!("  Log in as          {login}");
            match made_password {
                Some(password) => println!("  with the password  {}", password.expose()),
                None => println!("  with the password  that was given"),
            }
        }
        None => match password_file(config) {
            file if file.exists() => {
                println!("  Log in as the admin; its first password is in {}", file.display())
            }
            // It was given, or has been deleted since.
            _ => println!("  Log in as the admin"),
        },
    }
    println!("  Interface          http://{address}/api/docs");
    // Packages have no demonstration.
    if Path::new("tools/demo").exists() {
        println!("  Next               `make demo` in another terminal moves real files");
    }
    println!("  To stop            Ctrl-C, which stops everything");
    println!();
}

/// Where this machine reaches a service that listens on `address`.
fn reachable(address: SocketAddr) -> SocketAddr {
    let ip = match address.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        ip => ip,
    };
    SocketAddr::new(ip, address.port())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_address_that_is_shown_can_be_opened() {
        for (listens, shown) in [
            ("0.0.0.0:8080", "127.0.0.1:8080"),
            ("[::]:80", "[::1]:80"),
            ("127.0.0.1:1", "127.0.0.1:1"),
            ("192.168.0.7:80", "192.168.0.7:80"),
        ] {
            assert_eq!(reachable(listens.parse().unwrap()).to_string(), shown);
        }
    }

    #[test]
    fn targets_on_this_machine_are_allowed_only_to_those_on_it() {
        let mut config = Config::load(None, &Default::default()).unwrap();
        for (address, allowed) in
            [("127.0.0.1:0", 2), ("[::1]:0", 2), ("0.0.0.0:0", 0), ("192.168.0.7:80", 0)]
        {
            config.server.address = address.parse().unwrap();
            config.egress.allowed_networks.clear();
            share_machine(&mut config);
            assert_eq!(config.egress.allowed_networks.len(), allowed, "{address}");
        }
    }
}
