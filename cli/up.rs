use std::time::Duration;

use anyhow::bail;
use signalbox_config::Config;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

use crate::{
    embedded::Servers,
    serve::{ALL, Service, Signals, first_admin, listen, password_file},
    setup,
};

/// How long the read models may take to be there at the start.
const START: Duration = Duration::from_secs(30);

/// Starts everything on this machine and runs until a signal asks to stop.
pub(crate) async fn run(mut config: Config) -> anyhow::Result<()> {
    share_machine(&mut config);
    let mut signals = Signals::heed()?;
    // Before anything is started: a taken port is told at once.
    let listener = listen(&config, &ALL).await?;
    let mut servers = Servers::start(&mut config).await?;
    let stop = CancellationToken::new();
    let served = serve(&config, listener, &mut servers, &stop, &mut signals).await;
    servers.stop().await;
    served
}

/// Receivers of webhooks are mostly on this machine too, unless something else is configured.
fn share_machine(config: &mut Config) {
    if config.egress.allowed_networks.is_empty() {
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
    let mut service = tokio::select! {
        started = start(config, listener, stop) => started?,
        // What has only begun to start has nothing to finish.
        () = signals.come() => return Ok(()),
    };
    tokio::select! {
        stopped = service.until_stopped(signals) => stopped,
        () = servers.watch(stop) => service.until_stopped(signals).await,
    }
}

async fn start(
    config: &Config,
    listener: Option<tokio::net::TcpListener>,
    stop: &CancellationToken,
) -> anyhow::Result<Service> {
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
        Ok(admin) => greet(config, admin.map(|(login, password)| (login, password.expose().to_owned()))),
        Err(error) => {
            stop.cancel();
            bail!(error);
        }
    }
    Ok(service)
}

fn greet(config: &Config, admin: Option<(String, String)>) {
    let address = config.server.address;
    println!();
    println!("  Signalbox {} serves on http://{address}", env!("CARGO_PKG_VERSION"));
    match admin {
        Some((login, password)) => {
            println!("  Log in as          {login}");
            println!("  with the password  {password}");
        }
        None => {
            println!("  Log in as the admin; its first password is in {}", password_file(config).display())
        }
    }
    println!("  Interface          http://{address}/api/docs");
    println!(
        "  Next               `make demo` in another terminal moves real files; Ctrl-C stops everything"
    );
    println!();
}
