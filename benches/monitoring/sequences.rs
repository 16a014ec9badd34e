//! Reads after writes over two gateways: create then list, update then read, and two updates at once.

use anyhow::Context as _;
use reqwest::Method;
use serde_json::json;

use super::points;
use crate::{
    report,
    system::{Role, Servers, Signalbox},
};

pub async fn run() -> anyhow::Result<()> {
    let servers = Servers::start().await?;
    let (_all, api) = Signalbox::new(&servers, Role::All)?.start_and_log_in().await?;
    let (_gateway, other) = Signalbox::new(&servers, Role::Gateway)?.start_and_log_in().await?;
    let mut stale = 0.0;
    for _ in 0..100 {
        let made = points::add_events(&api, 1).await?;
        let listed = other.get("/api/v1/events?page_size=1").await?;
        stale += f64::from(u8::from(listed["data"][0]["public_id"] != json!(made[0])));
    }
    let event = points::add_events(&api, 1).await?.pop().context("an event")?;
    let path = format!("/api/v1/events/{event}");
    let mut lost = 0.0;
    for round in 0..1000 {
        let (unit, bound) = (json!({"unit": format!("u{round}")}), json!({"max_value": round}));
        let (one, two) = tokio::join!(
            api.call(Method::PUT, &path, Some(&unit)),
            other.call(Method::PUT, &path, Some(&bound))
        );
        one.and(two)?;
        for gateway in [&api, &other] {
            let shown = gateway.get(&path).await?;
            let is_whole = shown["unit"] == unit["unit"] && shown["max_value"] == json!(f64::from(round));
            lost += f64::from(u8::from(!is_whole));
        }
    }
    report::title("monitoring: reads after writes over two gateways");
    report::bounded("stale of 100 lists after a create", stale, "", 0.0);
    report::bounded("stale or lost of 2,000 reads after updates", lost, "", 0.0);
    Ok(())
}
