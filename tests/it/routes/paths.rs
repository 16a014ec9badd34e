//! Ids, methods, queries and paths that name nothing.

use serde_json::Value;

use super::{
    cases::{Access, Subject, routes},
    subjects::{Clients, Subjects},
};
use crate::harness::{World, description};

#[tokio::test]
async fn no_route_takes_an_id_that_names_nothing() {
    let world = World::start().await;
    let subjects = Subjects::new(&world).await;
    let clients = Clients::new(&world, &subjects).await;
    let before = world.head().await;
    for route in routes().iter().filter(|route| route.subject != Subject::Nothing) {
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
    assert_eq!(world.head().await, before);
    world.finish_with_mail().await;
}

#[tokio::test]
async fn no_path_takes_a_method_that_is_not_described() {
    let world = World::start().await;
    let subjects = Subjects::new(&world).await;
    let before = world.head().await;
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
    assert_eq!(world.head().await, before);
    world.finish_with_mail().await;
}

#[tokio::test]
async fn no_query_parameter_breaks_a_route() {
    let world = World::start().await;
    let subjects = Subjects::new(&world).await;
    let clients = Clients::new(&world, &subjects).await;
    let before = world.head().await;
    let mut tried = 0;
    for route in routes() {
        let parameters = route.operation["parameters"].as_array().cloned().unwrap_or_default();
        for parameter in parameters.iter().filter(|parameter| parameter["in"] == "query") {
            let name = parameter["name"].as_str().unwrap();
            let is = |wanted: &str| match &parameter["schema"]["type"] {
                Value::Array(types) => types.iter().any(|known| known == wanted),
                only => only == wanted,
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
                    let takes_any =
                        !["limit", "offset", "page", "page_size"].contains(&name) && wrong == "-1";
                    let fits = answer.status == route.invalid() || (takes_any && answer.status == 200);
                    assert!(fits, "{} ?{name}={wrong}: {} {}", route.name(), answer.status, answer.text());
                }
            } else if route.access != Access::Agent {
                for odd in ["%00", "%FF", "%25", "_", "'", "x%5C", &"x".repeat(5000)] {
                    let answer = get(odd).await;
                    // Single sign-on is not set up here.
                    let is_off = route.template.ends_with("/sso/callback") && answer.status == 404;
                    let fits = is_off || answer.status == 200 || answer.status == route.invalid();
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
    assert_eq!(world.head().await, before);
    world.finish_with_mail().await;
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
