//! Pointers in problem documents lead to properties of the request's schema, or are empty.

use serde_json::{Value, json};

use super::{
    bodies::{component, routes_with_body, send},
    cases::Route,
    subjects::{Clients, Subjects},
};
use crate::harness::{Answer, World};

/// Whether `schema` describes what the segments of a pointer lead to.
fn is_described(schema: &Value, segments: &[&str]) -> bool {
    let Some((first, rest)) = segments.split_first() else { return true };
    if let Some(reference) = schema["$ref"].as_str() {
        return is_described(component(reference), segments);
    }
    let parts = ["oneOf", "anyOf", "allOf"].iter().filter_map(|kind| schema[*kind].as_array()).flatten();
    if parts.into_iter().any(|part| is_described(part, segments)) {
        return true;
    }
    if schema["items"].is_object() {
        return first.parse::<usize>().is_ok() && is_described(&schema["items"], rest);
    }
    schema["properties"].get(*first).is_some_and(|property| is_described(property, rest))
}

/// The pointer of a refused request, or none if no single field is wrong. Fails if it leads to nothing that `route`
/// describes.
pub(super) fn pointer(route: &Route, answer: &Answer) -> Option<String> {
    let errors = answer.expect(422)["errors"].clone();
    let [error] = errors.as_array().unwrap().as_slice() else { panic!("{}: {errors}", route.name()) };
    let pointer = error["pointer"].as_str().unwrap();
    let schema = &route.operation["requestBody"]["content"]["application/json"]["schema"];
    let segments: Vec<_> = pointer.split('/').skip(1).collect();
    let is_property = pointer.starts_with('/') && is_described(schema, &segments);
    assert!(pointer.is_empty() || is_property, "{}: {}", route.name(), answer.text());
    Some(pointer.to_owned()).filter(|pointer| !pointer.is_empty())
}

#[tokio::test]
async fn bodies_that_are_wrong_as_a_whole_point_to_no_field() {
    let world = World::start().await;
    let subjects = Subjects::new(&world).await;
    let clients = Clients::new(&world, &subjects).await;
    let mut tried = 0;
    for route in routes_with_body().filter(Route::is_v1) {
        let (client, path) = (route.least(&clients), route.path(&subjects));
        for whole in ["[]", "[1]", "5", "\"name\"", "null", "true", "{\"x\": NaN}", "{\"name\": 1e999}"] {
            let answer = send(&route, client, &path, whole).await;
            assert_eq!(pointer(&route, &answer), None, "{} with {whole}: {}", route.name(), answer.text());
            tried += 1;
        }
    }
    assert!(tried > 150, "{tried}");
    world.finish_with_mail().await;
}

#[tokio::test]
async fn a_missing_field_is_pointed_to() {
    let world = World::start().await;
    let subjects = Subjects::new(&world).await;
    let clients = Clients::new(&world, &subjects).await;
    let mut tried = 0;
    for route in routes_with_body().filter(Route::is_v1) {
        let (client, path) = (route.least(&clients), route.path(&subjects));
        let schema = &route.operation["requestBody"]["content"]["application/json"]["schema"];
        let required = component(schema["$ref"].as_str().unwrap())["required"].clone();
        for field in required.as_array().into_iter().flatten().map(|field| field.as_str().unwrap()) {
            let mut body = route.body.clone().unwrap();
            body.as_object_mut().unwrap().remove(field);
            let answer = send(&route, client, &path, body.to_string()).await;
            assert_eq!(pointer(&route, &answer), Some(format!("/{field}")), "{}", answer.text());
            tried += 1;
        }
    }
    assert!(tried > 20, "{tried}");
    world.finish_with_mail().await;
}

#[tokio::test]
async fn a_key_of_another_request_points_to_no_field() {
    let world = World::start().await;
    let send = async |name: &str| {
        let request = world.admin.request(reqwest::Method::POST, "/api/v1/dashboards");
        world.admin.send(request.header("idempotency-key", "same").json(&json!({"name": name}))).await
    };
    send("first").await.expect(201);
    let refused = send("second").await.expect(422);
    assert_eq!(
        (&refused["code"], &refused["errors"][0]["pointer"]),
        (&json!("idempotency_key_reused"), &json!(""))
    );
    world.finish().await;
}
