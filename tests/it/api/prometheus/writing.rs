//! Values from Prometheus by remote write.

use prost::Message;
use reqwest::Method;

use super::{Sample, VERSION_1, WRITE, WriteRequest, send, series, write};
use crate::{api::v1::datapoints::listed, harness::World};

const VERSION_2: &str = "application/x-protobuf;proto=io.prometheus.write.v2.Request";

#[derive(Clone, PartialEq, Message)]
struct RequestV2 {
    #[prost(string, repeated, tag = "4")]
    symbols: Vec<String>,
    #[prost(message, repeated, tag = "5")]
    timeseries: Vec<TimeSeriesV2>,
}

#[derive(Clone, PartialEq, Message)]
struct TimeSeriesV2 {
    #[prost(uint32, repeated, tag = "1")]
    labels_refs: Vec<u32>,
    #[prost(message, repeated, tag = "2")]
    samples: Vec<Sample>,
}

#[tokio::test]
async fn series_become_channels_with_their_labels() {
    let world = World::start().await;
    let up = |samples: &[(f64, i64)]| series(&[("__name__", "up"), ("job", "a"), ("none", "")], samples);
    let stale = f64::from_bits(0x7ff0_0000_0000_0002);
    let first = write(&world.admin, vec![up(&[(1.0, 1000), (stale, 1500), (0.0, 2000)])]).await;
    assert_eq!((first.status, first.text()), (204, String::new()));
    // Put together anew, and out of order.
    let again = write(&world.admin, vec![up(&[(0.0, 2000), (0.5, 500)]), up(&[(1.0, 1000)])]).await;
    assert_eq!(again.status, 204);
    let events = world.admin.get("/api/v1/events?label=__name__:up").await.expect(200);
    assert_eq!(events["total"], 1);
    assert_eq!(events["data"][0]["name"], "up{job=\"a\"}");
    assert_eq!(events["data"][0]["labels"].as_object().unwrap().len(), 2);
    assert_eq!(listed(&world.admin, "").await, (vec![0.0, 1.0, 0.5], 3));
    world.finish().await;
}

#[tokio::test]
async fn bad_series_are_named_and_the_others_written() {
    let world = World::start().await;
    let far = world.clock.now().timestamp_millis() + 1_000_000;
    let long = "x".repeat(256);
    let names: Vec<_> = (0..20).map(|number| format!("l{number}")).collect();
    let mut many: Vec<_> = names.iter().map(|name| (name.as_str(), "x")).collect();
    many.push(("__name__", "a"));
    for (bad, reason) in [
        (series(&many, &[(1.0, 1)]), "labels must hold at most 20 pairs"),
        (series(&[("__name__", "a"), (&long[..65], "x")], &[(1.0, 1)]), "labels must have keys"),
        (series(&[("job", "a")], &[(1.0, 1)]), "it has no label __name__"),
        (series(&[("__name__", "a"), ("x", long.as_str())], &[(1.0, 1)]), "labels must have values"),
        (series(&[("__name__", "a")], &[(1.0, far)]), "timestamp is more than 10 minutes"),
        (series(&[("__name__", "a")], &[(1.0, -1)]), "timestamp is before 1970"),
    ] {
        let good = series(&[("__name__", "good")], &[(1.0, 1000)]);
        let message = write(&world.admin, vec![good, bad]).await.error(400);
        assert!(message.starts_with("series 1 of the request"), "{message}");
        assert!(message.contains(&format!(": 1 of its 1 samples were not written: {reason}")), "{message}");
        assert!(message.len() < 500, "{message}");
    }
    assert_eq!(listed(&world.admin, "").await, (vec![1.0], 1));
    let partly =
        series(&[("__name__", "a"), ("job", "b")], &[(1.0, 1000), (2.0, 2000), (3.0, 3000), (4.0, far)]);
    let message = write(&world.admin, vec![partly]).await.error(400);
    let expected = "series 0 of the request a{job=\"b\"}: 1 of its 4 samples were not written: ";
    assert!(message.starts_with(expected), "{message}");
    assert!(message.ends_with("; in all 3 of 4 samples were written, 1 refused, of 1 series"), "{message}");
    let other = world.admin.request(Method::POST, WRITE).header("content-type", VERSION_1).body("x");
    world.admin.send(other).await.error(415);
    let viewer = world.user("viewer", "viewer").await;
    write(&viewer, Vec::new()).await.error(403);
    world.finish().await;
}

#[tokio::test]
async fn version_2_reads_how_much_was_written() {
    let world = World::start().await;
    let symbols = ["", "__name__", "up", "job", "a"].map(str::to_owned).to_vec();
    let samples = vec![Sample { value: 1.0, timestamp: 1000 }, Sample { value: 2.0, timestamp: 2000 }];
    let timeseries = vec![TimeSeriesV2 { labels_refs: vec![1, 2, 3, 4], samples }];
    let answer = send(&world.admin, WRITE, VERSION_2, &RequestV2 { symbols, timeseries }).await;
    assert_eq!(answer.status, 204, "{}", answer.text());
    let counts = ["samples", "histograms", "exemplars"]
        .map(|what| answer.header(&format!("x-prometheus-remote-write-{what}-written")).unwrap().to_owned());
    assert_eq!(counts, ["2", "0", "0"]);
    assert_eq!(listed(&world.admin, "").await, (vec![2.0, 1.0], 2));
    world.finish().await;
}

#[tokio::test]
async fn a_key_makes_a_repeated_write_the_first_one() {
    let world = World::start().await;
    let zipped = |value: f64| {
        let timeseries = vec![series(&[("__name__", "up")], &[(value, 1000)])];
        snap::raw::Encoder::new().compress_vec(&WriteRequest { timeseries }.encode_to_vec()).unwrap()
    };
    let write = async |body: Vec<u8>| {
        let request = world.admin.request(Method::POST, WRITE).header("idempotency-key", "w-1");
        let request = request.header("content-type", VERSION_1).header("content-encoding", "snappy");
        world.admin.send(request.body(body)).await
    };
    for _ in 0..2 {
        assert_eq!(write(zipped(1.0)).await.status, 204);
    }
    assert_eq!(write(zipped(2.0)).await.expect(422)["code"], "idempotency_key_reused");
    assert_eq!(listed(&world.admin, "").await, (vec![1.0], 1));
    world.finish().await;
}
