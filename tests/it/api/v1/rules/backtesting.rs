use chrono::{DateTime, TimeDelta, Utc};
use serde_json::{Value, json};
use signalbox_clock::Clock;

use super::{above_10, create, firings, path, send};
use crate::{
    api::v1::datapoints::{event, record_ago},
    harness::World,
};

/// The last hour and the next.
fn around(clock: &Clock) -> Value {
    let hour = TimeDelta::hours(1);
    json!({"from": (clock.now() - hour).to_rfc3339(), "to": (clock.now() + hour).to_rfc3339()})
}

fn datapoints(firings: &[Value], field: &str) -> Vec<Value> {
    firings.iter().map(|firing| firing[field].clone()).collect()
}

#[tokio::test]
async fn a_back_test_fires_on_what_the_rule_has_fired_on() {
    let world = World::at(Clock::manual(Clock::system().now()), |_| {}).await;
    let (boiler, vat) = (event(&world, "boiler").await, event(&world, "vat").await);
    let mut rule = above_10("too hot", &boiler);
    rule["cooldown_seconds"] = json!(60);
    let rule = create(&world, rule).await;
    for round in 0..40 {
        send(&world.admin, &boiler, [9.0, 11.0 + f64::from(round), 8.0, 12.0 + f64::from(round)]).await;
        send(&world.admin, &vat, [99.0]).await;
        world.clock.advance(TimeDelta::seconds(7));
    }
    let live = firings(&world).await;
    assert_eq!(live.len(), 5, "40 values in 280 s, one in 60 s");
    let backtest = format!("{}/backtest", path(&rule));
    let tested = world.admin.post(&backtest, around(&world.clock)).await.expect(200);
    assert_eq!((&tested["datapoints"], &tested["total"]), (&json!(160), &json!(5)));
    let shown = tested["firings"].as_array().unwrap();
    assert_eq!(datapoints(shown, "datapoint_public_id"), datapoints(&live, "datapoint_id"));
    assert_eq!(datapoints(shown, "received"), datapoints(&live, "occurred_at"));
    // The result with another threshold, which is not recorded.
    let other = json!({"operator": "between", "threshold": 8, "threshold_high": 8.5, "cooldown_seconds": 0,
        "enabled": false});
    world.admin.put(&path(&rule), other).await.expect(200);
    let tested = world.admin.post(&backtest, around(&world.clock)).await.expect(200);
    assert_eq!(tested["total"], 40);
    let past = json!({"from": "2020-01-01T00:00:00Z", "to": "2021-01-01T00:00:00Z"});
    let tested = world.admin.post(&backtest, past).await.expect(200);
    assert_eq!(tested, json!({"datapoints": 0, "total": 0, "firings": []}));
    for wrong in [
        json!({"from": "2021-01-01T00:00:00Z", "to": "2021-01-01T00:00:00Z"}),
        json!({"from": "2021-01-01T00:00:00Z"}),
        json!({"from": "yesterday", "to": "2021-01-01T00:00:00Z"}),
    ] {
        world.admin.post(&backtest, wrong).await.error(422);
    }
    assert_eq!(firings(&world).await.len(), 5, "a test fires nothing");
    world.finish().await;
}

#[tokio::test]
async fn time_of_a_firing_is_when_its_value_was_measured() {
    let world = World::at(Clock::manual(Clock::system().now()), |_| {}).await;
    let boiler = event(&world, "boiler").await;
    let mut rule = above_10("too hot", &boiler);
    rule["cooldown_seconds"] = json!(60);
    let rule = create(&world, rule).await;
    let measured = record_ago(&world, &boiler, 11.0, 3000).await;
    // The cooldown counts from arrival, as live: this one was measured long after, and arrived at once.
    record_ago(&world, &boiler, 12.0, 0).await;
    assert_eq!(firings(&world).await.len(), 1);
    let backtest = format!("{}/backtest", path(&rule));
    let tested = world.admin.post(&backtest, around(&world.clock)).await.expect(200);
    assert_eq!((&tested["datapoints"], &tested["total"]), (&json!(2), &json!(1)));
    let firing = &tested["firings"][0];
    assert_eq!(firing["time"], measured["timestamp"]);
    let received: DateTime<Utc> = firing["received"].as_str().unwrap().parse().unwrap();
    assert!((received - world.clock.now()).abs() < TimeDelta::milliseconds(1), "{firing}");
    // `from` and `to` are times of measurement too.
    let (from, to) =
        (world.clock.now() - TimeDelta::seconds(3001), world.clock.now() - TimeDelta::seconds(10));
    let window = json!({"from": from.to_rfc3339(), "to": to.to_rfc3339()});
    assert_eq!(world.admin.post(&backtest, window).await.expect(200)["datapoints"], 1);
    world.finish().await;
}

#[tokio::test]
async fn an_unsaved_rule_is_back_tested_like_the_saved_one() {
    let world = World::at(Clock::manual(Clock::system().now()), |_| {}).await;
    let boiler = event(&world, "boiler").await;
    let rule = above_10("too hot", &boiler);
    let saved = create(&world, rule.clone()).await;
    send(&world.admin, &boiler, [9.0, 11.0, 12.0]).await;
    let mut draft = around(&world.clock);
    draft["rule"] = rule;
    let tested = world.admin.post("/api/v1/rules/backtest", draft.clone()).await.expect(200);
    let of_saved =
        world.admin.post(&format!("{}/backtest", path(&saved)), around(&world.clock)).await.expect(200);
    assert_eq!(tested, of_saved);
    draft["rule"]["threshold"] = json!(11.5);
    draft["rule"]["cooldown_seconds"] = json!(0);
    let tested = world.admin.post("/api/v1/rules/backtest", draft.clone()).await.expect(200);
    assert_eq!((&tested["datapoints"], &tested["total"]), (&json!(3), &json!(1)));
    draft["rule"]["event_public_id"] = json!("none");
    world.admin.post("/api/v1/rules/backtest", draft.clone()).await.error(404);
    draft["rule"]["operator"] = json!("nearly");
    world.admin.post("/api/v1/rules/backtest", draft).await.error(422);
    world.finish().await;
}
