//! The description of the interface and its page.

use std::io::Read as _;

use flate2::read::GzDecoder;
use reqwest::Method;
use serde_json::Value;

use crate::harness::{World, description};

/// Every `$ref` below `value`.
fn references<'a>(value: &'a Value, found: &mut Vec<&'a str>) {
    match value {
        Value::Object(fields) => {
            found.extend(fields.get("$ref").and_then(Value::as_str));
            fields.values().for_each(|value| references(value, found));
        }
        Value::Array(items) => items.iter().for_each(|value| references(value, found)),
        _ => {}
    }
}

#[test]
fn the_description_is_whole() {
    let document = description();
    assert!(document["openapi"].as_str().unwrap().starts_with("3.1"));
    let mut found = Vec::new();
    references(document, &mut found);
    assert!(found.len() > 100);
    for reference in found {
        let pointer = reference.strip_prefix('#').unwrap();
        assert!(document.pointer(pointer).is_some(), "{reference} leads nowhere");
    }
    let mut ids = Vec::new();
    for (path, methods) in document["paths"].as_object().unwrap() {
        for (method, operation) in methods.as_object().unwrap() {
            let name = format!("{method} {path}");
            ids.push(operation["operationId"].as_str().expect(&name));
            assert!(
                operation["summary"].as_str().is_some_and(|text| text.len() > 3),
                "{name} has no summary"
            );
            let responses = operation["responses"].as_object().unwrap();
            let succeeds = responses.keys().any(|status| status.starts_with('2') || status == "307");
            assert!(succeeds, "{name} never succeeds");
            let parameters = operation["parameters"].as_array().cloned().unwrap_or_default();
            let in_path = parameters.iter().filter(|parameter| parameter["in"] == "path").count();
            assert_eq!(in_path, path.matches('{').count(), "{name}");
            let takes_login = operation["security"].is_array();
            assert_eq!(responses.contains_key("401"), takes_login || path.ends_with("/login"), "{name}");
            for scheme in operation["security"].as_array().into_iter().flatten() {
                // A route that takes a credential and needs none has an alternative without a scheme.
                for name in scheme.as_object().unwrap().keys() {
                    assert!(document["components"]["securitySchemes"][name].is_object(), "{name}");
                }
            }
        }
    }
    let count = ids.len();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), count, "an operationId is used twice");
}

#[tokio::test]
async fn the_page_needs_no_network() {
    let world = World::start().await;
    let client = world.anonymous();
    let page = client.get("/api/docs/").await;
    assert_eq!(page.status, 200);
    assert!(page.header("content-type").unwrap().starts_with("text/html"));
    let html = page.text();
    let mut assets: Vec<&str> = Vec::new();
    for attribute in ["src=\"", "href=\""] {
        assets.extend(html.split(attribute).skip(1).map(|rest| rest.split('"').next().unwrap()));
    }
    assert!(assets.len() >= 4, "{html}");
    for asset in assets {
        assert!(!asset.contains("//"), "{asset} is elsewhere");
        let path = format!("/api/docs/{}", asset.trim_start_matches("./"));
        let answer = client.get(&path).await;
        assert_eq!(answer.status, 200, "{path}");
        assert!(!answer.body.is_empty(), "{path}");
    }
    assert!(html.contains("swagger-initializer.js"));
    let start = client.get("/api/docs/swagger-initializer.js").await.text();
    assert!(start.contains("/api/openapi.json"), "{start}");
    let short = client.get("/api/docs").await;
    assert!(short.status == 200 || short.header("location").is_some_and(|to| to.ends_with("/api/docs/")));
    for path in ["/api/openapi.json", "/api/v1/openapi.json"] {
        assert_eq!(&client.get(path).await.expect(200), description(), "{path}");
    }
    let policy = page.header("content-security-policy").unwrap();
    let inline =
        html.split("<script").skip(1).any(|script| !script.split('>').next().unwrap().contains("src="));
    assert!(!inline || policy.contains("script-src"), "the policy forbids the page's own scripts");
    world.finish().await;
}

#[tokio::test]
async fn the_page_is_compressed_for_clients_that_take_it() {
    let world = World::start().await;
    let client = world.anonymous();
    let path = "/api/docs/swagger-ui.css";
    let asked = async |accepted: &str| {
        client.send(client.request(Method::GET, path).header("accept-encoding", accepted)).await
    };
    let plain = client.get(path).await;
    assert_eq!((plain.header("content-encoding"), plain.header("vary")), (None, Some("accept-encoding")));
    assert!(plain.text().contains(".swagger-ui"));
    for accepted in ["gzip", "br, GZIP;q=0.5", "*"] {
        let packed = asked(accepted).await;
        assert_eq!(packed.header("content-encoding"), Some("gzip"), "{accepted}");
        let mut unpacked = Vec::new();
        GzDecoder::new(packed.body.as_slice()).read_to_end(&mut unpacked).unwrap();
        assert!(unpacked == plain.body && packed.body.len() < plain.body.len() / 2, "{accepted}");
    }
    for accepted in ["identity", "gzip;q=0", "gzip;q=0, *", "br"] {
        assert!(asked(accepted).await.body == plain.body, "{accepted}");
    }
    let head = client.send(client.request(Method::HEAD, path)).await;
    let length = plain.body.len().to_string();
    assert_eq!((head.status, head.header("content-length")), (200, Some(length.as_str())));
    world.finish().await;
}
