//! Series that a gateway has seen before: it finds their channels by the bytes that name them, and must not find one that has changed.

use chrono::TimeDelta;
use reqwest::Method;
use serde_json::json;
use signalbox_clock::Clock;

use super::{
    prometheus::{series, write},
    v1::datapoints::listed,
};
use crate::harness::{Answer, Client, World, eventually, seconds, signalbox};

/// A way in whose values name their series by labels.
#[derive(Debug, Clone, Copy)]
enum Way {
    Lines,
    RemoteWrite,
}

const WAYS: [Way; 2] = [Way::Lines, Way::RemoteWrite];

impl Way {
    /// Sends values of the series `name`, each measured as many seconds after 1970.
    async fn send(self, client: &Client, name: &str, values: &[u32]) -> Answer {
        match self {
            Self::Lines => {
                let lines: String =
                    values.iter().map(|value| format!("{name},a=1 v={value} {value}\n")).collect();
                let request = client.request(Method::POST, "/api/v2/write?precision=s");
                client.send(request.body(lines)).await
            }
            Self::RemoteWrite => {
                let samples: Vec<_> =
                    values.iter().map(|value| (f64::from(*value), i64::from(*value) * 1000)).collect();
                write(client, vec![series(&[("__name__", name), ("a", "1")], &samples)]).await
            }
        }
    }

    fn labels(self, name: &str) -> serde_json::Value {
        match self {
            Self::Lines => json!({"_measurement": name, "_field": "v", "a": "1"}),
            Self::RemoteWrite => json!({"__name__": name, "a": "1"}),
        }
    }

    /// The channel that has the labels of the series `name`.
    async fn channel(self, client: &Client, name: &str) -> String {
        let key = if let Self::Lines = self { "_measurement" } else { "__name__" };
        let page = client.get(&format!("/api/v1/events?label={key}:{name}")).await.expect(200);
        assert_eq!(page["total"], 1, "{page}");
        page["data"][0]["public_id"].as_str().unwrap().to_owned()
    }
}

/// The values of the event `id`, the least first.
async fn values(client: &Client, id: &str) -> Vec<f64> {
    let (mut values, _) = listed(client, &format!("page_size=100&event_public_id={id}")).await;
    values.sort_by(f64::total_cmp);
    values
}

/// The gateway's catalog keeps what it knew, also where no event follows the rebuild.
#[tokio::test]
async fn channels_are_known_after_a_rebuild_of_their_read_model() {
    let clock = Clock::manual(Clock::system().now());
    let world = World::at(clock.clone(), |_| {}).await;
    let here = world.at_one_gateway();
    for way in WAYS {
        assert_eq!(way.send(&here, "m", &[1]).await.status, 204, "{way:?}");
        let channel = way.channel(&here, "m").await;
        signalbox(&world.config, &["projections", "rebuild", "monitoring"]).await.well();
        // Now the gateway looks for another revision.
        clock.advance(TimeDelta::seconds(2));
        assert_eq!(values(&here, &channel).await, [1.0], "{way:?}");
        assert_eq!(way.send(&here, "m", &[2]).await.status, 204, "{way:?}");
        let one = json!({"event_public_id": channel, "value": 3.0});
        here.post("/api/v1/datapoints", one).await.expect(201);
        assert_eq!(values(&here, &channel).await, [1.0, 2.0, 3.0], "{way:?}");
    }
    world.finish().await;
}

#[tokio::test]
async fn a_known_series_follows_the_channel_that_has_its_labels() {
    let world = World::start().await;
    let here = world.at_one_gateway();
    let operator = here.at(&world.user("operator", "operator").await);
    for way in WAYS {
        let send = async |value| {
            let answer = way.send(&here, "m", &[value]).await;
            assert_eq!(answer.status, 204, "{way:?} {}", answer.text());
        };
        send(1).await;
        send(2).await;
        let first = way.channel(&here, "m").await;
        // Of several channels with the labels the oldest takes the values, whichever user made it.
        let other = json!({"name": format!("{way:?}"), "type": "sensor", "labels": way.labels("m")});
        let other = operator.post("/api/v1/events", other).await.expect(201)["public_id"].clone();
        let other = other.as_str().unwrap();
        send(3).await;
        here.put(&format!("/api/v1/events/{first}"), json!({"name": format!("renamed {way:?}")}))
            .await
            .expect(200);
        send(4).await;
        assert_eq!(values(&here, &first).await, [1.0, 2.0, 3.0, 4.0], "{way:?}");
        let relabelled = json!({"labels": {"other": "label"}});
        here.put(&format!("/api/v1/events/{first}"), relabelled).await.expect(200);
        send(5).await;
        assert_eq!(values(&here, other).await, [5.0], "{way:?}");
        // The first one has the labels again.
        let labelled = json!({"labels": way.labels("m")});
        here.put(&format!("/api/v1/events/{first}"), labelled).await.expect(200);
        send(6).await;
        here.delete(&format!("/api/v1/events/{first}")).await.expect(200);
        send(7).await;
        here.delete(&format!("/api/v1/events/{other}")).await.expect(200);
        send(8).await;
        assert_eq!(values(&here, &first).await, [1.0, 2.0, 3.0, 4.0, 6.0], "{way:?}");
        assert_eq!(values(&here, other).await, [5.0, 7.0], "{way:?}");
        assert_eq!(values(&here, &way.channel(&here, "m").await).await, [8.0], "{way:?}");
    }
    world.finish().await;
}

/// However far the read models of the gateway are behind.
#[tokio::test]
async fn a_channel_deleted_at_one_gateway_takes_no_value_of_its_series_at_another() {
    let mut world = World::start().await;
    let other = world.another_gateway().await;
    let there = world.admin.at(&other);
    let here = world.at_one_gateway();
    for way in WAYS {
        for client in [&here, &there, &here, &there] {
            assert_eq!(way.send(client, "m", &[1]).await.status, 204);
            assert_eq!(way.send(client, "n", &[1]).await.status, 204);
        }
        let (gone, kept) = (way.channel(&here, "m").await, way.channel(&here, "n").await);
        let mut locked = signalbox_database::begin(&world.servers.pool, "BEGIN").await.unwrap();
        sqlx::query("LOCK TABLE read.channels IN EXCLUSIVE MODE").execute(&mut *locked).await.unwrap();
        there.delete(&format!("/api/v1/events/{gone}")).await.expect(200);
        for client in [&here, &there] {
            // No gateway sees the channel gone yet, and none makes another one.
            assert_eq!(way.send(client, "m", &[2]).await.status, 503, "{way:?}");
            assert_eq!(way.send(client, "n", &[2]).await.status, 204, "{way:?}");
        }
        locked.rollback().await.unwrap();
        // Senders repeat until the read model shows it, as after every 503.
        for client in [&here, &there] {
            eventually(seconds(20), async || way.send(client, "m", &[2, 3]).await.status == 204).await;
        }
        assert_eq!(values(&here, &gone).await, [1.0], "{way:?}");
        assert_eq!(values(&here, &way.channel(&here, "m").await).await, [2.0, 3.0], "{way:?}");
        assert_eq!(values(&here, &kept).await, [1.0, 2.0], "{way:?}");
    }
    world.finish().await;
}

#[tokio::test]
async fn values_of_known_series_are_recognised_in_any_order() {
    let mut world = World::start().await;
    let other = world.another_gateway().await;
    let there = world.admin.at(&other);
    let here = world.at_one_gateway();
    for way in WAYS {
        for (client, sent) in [
            (&here, &[3, 1, 2][..]),
            (&there, &[2, 1]),
            (&here, &[1, 2, 3, 3, 0]),
            (&there, &[0, 5, 4, 0]),
            (&here, &[5, 5, 3]),
        ] {
            assert_eq!(way.send(client, "m", sent).await.status, 204, "{way:?} {sent:?}");
        }
        let id = way.channel(&here, "m").await;
        assert_eq!(values(&here, &id).await, [0.0, 1.0, 2.0, 3.0, 4.0, 5.0], "{way:?}");
    }
    world.finish().await;
}

#[tokio::test]
async fn broken_lines_among_known_series_are_the_only_ones_refused() {
    let world = World::start().await;
    let here = world.at_one_gateway();
    let lines = async |text: &'static str| {
        here.send(here.request(Method::POST, "/api/v2/write?precision=s").body(text)).await
    };
    for (time, status) in [(1, 204), (2, 204)] {
        assert_eq!(Way::Lines.send(&here, "m", &[time]).await.status, status);
    }
    let text = "m,a=1 v=3 3\nm,a=1 v= 4\nm,a=1, v=4 4\nm,a=1,a=1 v=4 4\nm,a=1 v=5 5 5\nm,a=1 v=\"6\nm,a=1 v=7 7\nm,a=1 w=t,v=8 8";
    for _ in 0..2 {
        let message = lines(text).await.error(400);
        assert!(
            message.starts_with("partial write: unable to write line 2: missing field value"),
            "{message}"
        );
        assert!(message.ends_with("3 of 8 lines were written dropped=5"), "{message}");
    }
    let page = here.get("/api/v1/events?label=_measurement:m&label=_field:v").await.expect(200);
    assert_eq!(page["total"], 1);
    assert_eq!(
        values(&here, page["data"][0]["public_id"].as_str().unwrap()).await,
        [1.0, 2.0, 3.0, 7.0, 8.0]
    );
    world.finish().await;
}
