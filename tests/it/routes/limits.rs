//! The limits that the description names are those that the service keeps: one more is refused.

use serde_json::{Value, json};

use super::{
    bodies::{component, refuse, routes_with_body},
    subjects::{Clients, Subjects},
};
use crate::harness::World;

/// Values just beyond what `schema` takes, for a field that holds `value`.
fn beyond(schema: &Value, value: &Value) -> Vec<Value> {
    let number = |key: &str| schema[key].as_i64();
    let mut found = Vec::new();
    if let Some(most) = number("maxLength") {
        found.push(json!("x".repeat(most as usize + 1)));
    }
    if number("minLength").is_some() {
        found.push(json!(""));
    }
    if schema["pattern"].is_string() {
        found.push(json!("not of this form"));
    }
    found.extend(number("maximum").map(|most| json!(most + 1)));
    found.extend(number("minimum").map(|least| json!(least - 1)));
    if let (Some(most), Some(entry)) = (number("maxItems"), value.get(0)) {
        found.push(json!(vec![entry; most as usize + 1]));
    }
    if number("minItems").is_some() {
        found.push(json!([]));
    }
    found
}

#[tokio::test]
async fn values_beyond_described_limits_are_refused() {
    let world = World::start().await;
    let subjects = Subjects::new(&world).await;
    let clients = Clients::new(&world, &subjects).await;
    let before = world.count_all_events().await;
    let mut tried = 0;
    for route in routes_with_body() {
        let (client, path) = (route.least(&clients), route.path(&subjects));
        let schema = &route.operation["requestBody"]["content"]["application/json"]["schema"];
        let Some(name) = schema["$ref"].as_str() else { continue };
        let body = route.body.as_ref().unwrap();
        for (field, schema) in component(name)["properties"].as_object().unwrap() {
            for value in beyond(schema, &body[field]) {
                refuse(&route, client, &path, field, value).await;
                tried += 1;
            }
        }
    }
    assert!(tried > 100, "{tried}");
    assert_eq!(world.count_all_events().await, before);
    world.finish_with_mail().await;
}
