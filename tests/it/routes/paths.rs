//! Ids, methods, queries and paths that name nothing.

use futures::{StreamExt, stream};
use serde_json::Value;

use super::{
    cases::{Access, Route, Subject, routes},
    subjects::{Clients, Subjects},
};
use crate::harness::{Client, World, description};

/// Routes that are tried at the same time.
const AT_ONCE: usize = 8;

#[tokio::test]
async fn no_route_takes_an_id_that_names_nothing() {
    let world = World::start().await;
    let subjects = Subjects::new(&world).await;
    let clients = Clients::new(&world, &subjects).await;
    let before = world.count_all_events().await;
    for route in routes().iter().filter(|route| route.template.contains('{')) {
        // Every part of a path that names something is tried: a new one needs a subject, and its name in `path_with`.
        assert!(route.subject != Subject::Nothing, "{} names what is not known here", route.name());
        assert!(!route.path_with("1").contains('{'), "{} has a part that is not known here", route.name());
        let client = route.least(&clients);
        for id in [
            "999999",
            "0",
            "-1",
            "1.5",
            "abc",
            "99999999999999999999999",
            "%00",
            "%FF",
            "1%20",
            "%2e%2e",
            "+1",
            "018f0000-0000-7000-8000-000000000000",
            "1'%20OR%20'1'='1",
        ] {
            let answer = client.send(route.request(client, &route.path_with(id))).await;
            // Clients make another path of the dots, which may be there.
            let is_elsewhere = id == "%2e%2e" && [200, 405].contains(&answer.status);
            assert!(answer.status == 404 || is_elsewhere, "{} with {id}: {}", route.name(), answer.text());
        }
    }
    assert_eq!(world.count_all_events().await, before);
    world.finish_with_mail().await;
}

#[tokio::test]
async fn no_path_takes_a_method_that_is_not_described() {
    let world = World::start().await;
    let subjects = Subjects::new(&world).await;
    let before = world.count_all_events().await;
    for (template, methods) in description()["paths"].as_object().unwrap() {
        let path = template.replace("{id}", &subjects.job.to_string());
        let described = |method: &str| methods.get(method.to_lowercase()).is_some();
        for method in ["GET", "POST", "PUT", "DELETE", "PATCH"] {
            if described(method) {
                continue;
            }
            let answer =
                world.admin.send(world.admin.request(method.parse().unwrap(), &path).body("{}")).await;
            assert_eq!(answer.status, 405, "{method} {template}: {}", answer.text());
            let allowed = answer.header("allow").unwrap();
            assert!(
                allowed.split(',').all(|method| method == "HEAD" || described(method)),
                "{template}: {allowed}"
            );
        }
    }
    assert_eq!(world.count_all_events().await, before);
    world.finish_with_mail().await;
}

#[tokio::test]
async fn no_query_parameter_breaks_a_route() {
    let world = World::start().await;
    let subjects = Subjects::new(&world).await;
    let clients = Clients::new(&world, &subjects).await;
    let before = world.count_all_events().await;
    let mut tried = 0;
    for route in routes() {
        let parameters = route.operation["parameters"].as_array().cloned().unwrap_or_default();
        for parameter in parameters.iter().filter(|parameter| parameter["in"] == "query") {
            let name = parameter["name"].as_str().unwrap();
            let is = |expected: &str| match &parameter["schema"]["type"] {
                Value::Array(types) => types.iter().any(|known| known == expected),
                only => only == expected,
            };
            let (client, path) = (route.least(&clients), route.path(&subjects));
            let get = async |value: &str| {
                client.send(route.request(client, &format!("{path}?{name}={value}"))).await
            };
            // A poll without a sane time waits for 30 s: that is the agents' own test. Options of documents are tried with
            // documents.
            if route.template == "/api/agent/poll" || route.operation["tags"][0] == "documents" {
                continue;
            }
            tried += 1;
            if is("integer") {
                for wrong in ["abc", "1.5", "", "99999999999999999999", "-1", "%00"] {
                    let answer = get(wrong).await;
                    let takes_any = parameter["schema"]["minimum"].is_null() && wrong == "-1";
                    let fits = answer.status == route.invalid() || (takes_any && answer.status == 200);
                    assert!(fits, "{} ?{name}={wrong}: {} {}", route.name(), answer.status, answer.text());
                }
                // The described range is the real one.
                let bound = |of: &str| parameter["schema"][of].as_i64();
                let (least, most) = (bound("minimum"), bound("maximum"));
                for inside in [least, most].into_iter().flatten() {
                    let answer = get(&inside.to_string()).await;
                    // The subject's document is not kept, so that it has no page.
                    let is_there =
                        route.subject != Subject::Correlation && !route.template.ends_with("/pages/{n}");
                    let expected = if is_there { 200 } else { 404 };
                    assert_eq!(
                        answer.status,
                        expected,
                        "{} ?{name}={inside}: {}",
                        route.name(),
                        answer.text()
                    );
                }
                for outside in [least.map(|least| least - 1), most.map(|most| most + 1)].into_iter().flatten()
                {
                    let refusal = get(&outside.to_string()).await.error(route.invalid());
                    let range = least.zip(most).map(|(least, most)| format!("{least} and {most}"));
                    let range = range.map(|range| format!("{name} must be between {range}"));
                    assert!(range.is_none_or(|range| refusal == range), "{}: {refusal}", route.name());
                }
                // Numbers of pages are parsed in one place, which describes their range.
                let is_page = ["limit", "offset", "page", "page_size", "per_page", "skip"].contains(&name);
                assert!(!is_page || (least.is_some() && most.is_some()), "{} ?{name}", route.name());
            } else if route.access != Access::Agent {
                for odd in ["%00", "%FF", "%25", "_", "'", "x%5C", &"x".repeat(5000)] {
                    let answer = get(odd).await;
                    // Single sign-on is not set up here.
                    let is_off = route.template.ends_with("/sso/callback") && answer.status == 404;
                    // The transfer at hand is uploaded by an agent.
                    let is_agents = route.template.ends_with("/content") && answer.status == 409;
                    let fits =
                        is_off || is_agents || answer.status == 200 || answer.status == route.invalid();
                    assert!(fits, "{} ?{name}={odd}: {} {}", route.name(), answer.status, answer.text());
                }
            } else {
                for odd in ["%00", "..", &"x".repeat(5000)] {
                    let answer = get(odd).await;
                    let fits = matches!(answer.status, 400 | 404 | 409);
                    assert!(fits, "{} ?{name}={odd}: {} {}", route.name(), answer.status, answer.text());
                }
            }
        }
    }
    assert!(tried >= 20, "{tried}");
    assert_eq!(world.count_all_events().await, before);
    world.finish_with_mail().await;
}

/// Values that some parser, codec or database refuses: times, numbers, ids and texts.
fn odd_values() -> Vec<String> {
    let mut odd: Vec<String> = [
        "-4713-11-23T00:00:00Z",
        "-4714-01-01T00:00:00Z",
        "-9999-01-01T00:00:00",
        "0000-01-01T00:00:00Z",
        "0001-01-01T00:00:00Z",
        "0001-01-01T00:00:00+23:59",
        "9999-12-31T23:59:59Z",
        "9999-12-31T23:59:59-23:59",
        "+10000-01-01T00:00:00",
        "+262142-12-31T23:59:59Z",
        "2026-06-30T23:59:60Z",
        "1969-12-31T23:59:59.999999999Z",
        "0",
        "-0",
        "+1",
        "1",
        "100",
        "1000000",
        "2147483648",
        "9223372036854775807",
        "-9223372036854775808",
        "9223372036854775808",
        "1e400",
        "NaN",
        "-inf",
        "0x10",
        "\u{661}",
        "00000000-0000-0000-0000-000000000000",
        "urn:uuid:00000000-0000-0000-0000-000000000000",
        "{00000000-0000-0000-0000-000000000000}",
        "user:",
        "user:1",
        "%",
        "\\",
        "\u{feff}",
        "\u{10ffff}",
        "\r\n",
    ]
    .map(|text| {
        reqwest::Url::parse_with_params("http://x", [("v", text)]).unwrap().query().unwrap()[2..].to_owned()
    })
    .into();
    odd.extend(["", "%00", "%FF", "%ED%A0%80", "a&a"].map(str::to_owned));
    odd
}

#[tokio::test]
async fn no_odd_value_makes_a_route_fail() {
    let world = World::start().await;
    let subjects = Subjects::new(&world).await;
    let clients = Clients::new(&world, &subjects).await;
    // A poll without a sane time waits for 30 s.
    let routes = routes();
    let tried = routes.iter().filter(|route| route.template != "/api/agent/poll");
    let failures = tried.map(|route| failures(route, route.least(&clients), route.path(&subjects)));
    // Some wait for what an odd id names, so others are tried meanwhile.
    let found: Vec<_> = stream::iter(failures).buffer_unordered(AT_ONCE).collect().await;
    let found = found.concat();
    assert!(found.is_empty(), "{}: {found:#?}", found.len());
    world.finish_with_mail().await;
}

/// The odd values in the query and in `path` that `route` answers by an internal error.
async fn failures(route: &Route, client: &Client, path: String) -> Vec<String> {
    let parameters = route.operation["parameters"].as_array().into_iter().flatten();
    let queries = parameters.filter(|known| known["in"] == "query").flat_map(|known| {
        let name = known["name"].as_str().unwrap();
        odd_values().into_iter().map(|odd| format!("{path}?{name}={odd}")).collect::<Vec<_>>()
    });
    let ids = odd_values()
        .into_iter()
        .filter(|odd| route.subject != Subject::Nothing && !odd.is_empty() && !odd.contains('&'));
    let mut found = Vec::new();
    for path in queries.chain(ids.map(|odd| route.path_with(&odd))) {
        let answer = client.send(route.request(client, &path)).await;
        // No documents are read in this test.
        let is_off = route.operation["tags"][0] == "documents" && answer.status == 503;
        if answer.status >= 500 && !is_off {
            found.push(format!("{} with {path}: {} {}", route.name(), answer.status, answer.text()));
        }
    }
    found
}

#[tokio::test]
async fn unknown_paths_are_answered_in_the_shape_of_their_service() {
    let world = World::start().await;
    for path in
        ["/api/nothing", "/api", "/api/v1/nothing", "/api/v1", "/", "/nothing", "/api//jobs", "/api/jobs/1/2"]
    {
        for client in [&world.admin, &world.anonymous()] {
            client.get(path).await.error(404);
            client.post(path, serde_json::json!({})).await.error(404);
        }
    }
    world.finish().await;
}
