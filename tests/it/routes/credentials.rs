//! Missing, wrong, void and too weak credentials.

use chrono::{SubsecRound, TimeDelta, Utc};
use jsonwebtoken::{Algorithm, EncodingKey, Header, encode};
use serde_json::{Value, json};
use signalbox_clock::Clock;

use super::{
    cases::{Access, Route, Subject, routes},
    subjects::{Clients, Subjects},
};
use crate::harness::{ADMIN, Client, PASSWORD, World, eventually, seconds};

/// The claims of a JWT, unchecked.
fn claims(token: &str) -> Value {
    use base64_free::decode;
    serde_json::from_slice(&decode(token.split('.').nth(1).unwrap())).unwrap()
}

/// Base64 without padding, as JWTs have it.
mod base64_free {
    pub fn decode(text: &str) -> Vec<u8> {
        const LETTERS: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
        let (mut bits, mut count, mut bytes) = (0_u32, 0, Vec::new());
        for letter in text.bytes() {
            bits = bits << 6 | LETTERS.iter().position(|known| *known == letter).unwrap() as u32;
            count += 6;
            if count >= 8 {
                count -= 8;
                bytes.push((bits >> count) as u8);
            }
        }
        bytes
    }
}

async fn signing_key(world: &World) -> (String, Vec<u8>) {
    let key = sqlx::query_as("SELECT kid, secret FROM ops.signing_keys WHERE retired_at IS NULL");
    key.fetch_one(&world.servers.pool).await.unwrap()
}

fn sign(kid: &str, secret: &[u8], algorithm: Algorithm, claims: &Value) -> String {
    let header = Header { kid: Some(kid.to_owned()), ..Header::new(algorithm) };
    encode(&header, claims, &EncodingKey::from_secret(secret)).unwrap()
}

/// Tokens that look like an admin's and are none.
async fn forged(world: &World) -> Vec<(&'static str, String)> {
    let (kid, secret) = signing_key(world).await;
    let real = claims(world.admin.token.as_ref().unwrap());
    let with = |field: &str, value: Value| {
        let mut claims = real.clone();
        claims[field] = value;
        claims
    };
    let now = world.clock.now().timestamp();
    let sign = |claims: Value| sign(&kid, &secret, Algorithm::HS256, &claims);
    let unsigned = {
        let token = world.admin.token.clone().unwrap();
        let payload = token.split('.').nth(1).unwrap().to_owned();
        // {"alg":"none","typ":"JWT"}
        format!("eyJhbGciOiJub25lIiwidHlwIjoiSldUIn0.{payload}.")
    };
    let mut tampered = world.admin.token.clone().unwrap();
    let place = tampered.len() - 5..tampered.len() - 4;
    let other = if &tampered[place.clone()] == "A" { "B" } else { "A" };
    tampered.replace_range(place, other);
    vec![
        ("garbage", "garbage".to_owned()),
        ("three empty parts", "..".to_owned()),
        ("expired", sign(with("exp", json!(now - 1)))),
        ("another issuer", sign(with("iss", json!("elsewhere")))),
        ("another audience", sign(with("aud", json!("elsewhere")))),
        ("another user", sign(with("sub", json!("018f0000-0000-7000-8000-000000000000")))),
        ("an unknown session", sign(with("sid", json!("018f0000-0000-7000-8000-000000000000")))),
        ("another secret", self::sign(&kid, b"guessed", Algorithm::HS256, &real)),
        ("another key", self::sign("unknown", &secret, Algorithm::HS256, &real)),
        ("another algorithm", self::sign(&kid, &secret, Algorithm::HS512, &real)),
        ("no signature", unsigned),
        ("a changed signature", tampered),
        ("a token that is too long", "x".repeat(5000)),
    ]
}

async fn refuse(route: &Route, client: &Client, path: &str, status: u16, why: &str) {
    let answer = client.send(route.request(client, path)).await;
    assert_eq!(answer.status, status, "{} with {why}: {}", route.name(), answer.text());
    let challenge = answer.header("www-authenticate");
    assert_eq!(challenge.is_some(), status == 401, "{} with {why}: {challenge:?}", route.name());
}

#[tokio::test]
async fn no_route_takes_a_missing_or_forged_credential() {
    let world = World::start().await;
    let subjects = Subjects::new(&world).await;
    let forged = forged(&world).await;
    let before = world.count_all_events().await;
    for route in routes().iter().filter(|route| route.access != Access::Everybody) {
        let path = route.path(&subjects);
        refuse(route, &world.anonymous(), &path, 401, "no credential").await;
        for (why, token) in &forged {
            refuse(route, &world.anonymous().with_token(token), &path, 401, why).await;
        }
        // The kind of credential that the other half of the interface takes.
        let other = match route.access {
            Access::Agent => world.admin.clone(),
            _ => world.as_agent(&subjects.agent),
        };
        refuse(route, &other, &path, 401, "the other kind of token").await;
        let basic = route.request(&world.anonymous(), &path).header("authorization", "Basic YTpi");
        assert_eq!(world.admin.send(basic).await.status, 401, "{}", route.name());
    }
    assert_eq!(world.count_all_events().await, before);
    world.finish_with_mail().await;
}

/// A client with a new API token of `owner`, and the token's id.
async fn api_token(owner: &Client, token: Value) -> (Client, String) {
    let made = owner.post("/api/v1/tokens", token).await.expect(201);
    let text = |field: &str| made[field].as_str().unwrap().to_owned();
    (owner.with_token(&text("token")), text("public_id"))
}

#[tokio::test]
async fn every_route_takes_an_api_token_where_it_takes_a_login() {
    let world = World::start().await;
    let subjects = Subjects::new(&world).await;
    let clients = Clients::new(&world, &subjects).await;
    let mut taken = 0;
    for route in routes() {
        let login = route.least(&clients);
        if matches!(route.access, Access::Everybody | Access::Agent) || login.token.is_none() {
            continue;
        }
        let (token, _) = api_token(login, json!({"name": "walker"})).await;
        // An unknown id changes nothing, and is checked after the credential.
        let path = route.path_with("018f0000-0000-7000-8000-000000000000");
        let answer = token.send(token.request(route.method.parse().unwrap(), &path).body("{")).await;
        let is_renewal = route.template == "/api/auth/refresh" && answer.status == 403;
        let taken_in = !matches!(answer.status, 401 | 403);
        assert!(taken_in || is_renewal, "{}: {}", route.name(), answer.text());
        taken += 1;
    }
    assert!(taken >= 30, "{taken}");
    world.finish_with_mail().await;
}

#[tokio::test]
async fn no_route_takes_a_credential_that_has_been_revoked() {
    let world = World::start().await;
    let subjects = Subjects::new(&world).await;
    let clients = Clients::new(&world, &subjects).await;
    let second = |name: &'static str| async { world.user(name, "admin").await };
    let (leaver, changer, reset, deleted) =
        (second("leaver").await, second("changer").await, second("reset").await, second("deleted").await);
    let orphan = api_token(&deleted, json!({"name": "orphan"})).await;
    orphan.0.get("/api/auth/user").await.expect(200);
    leaver.post("/api/v1/auth/logout", json!({})).await.expect(200);
    let change = json!({"old_password": PASSWORD, "new_password": "another long password"});
    changer.post("/api/auth/password", change).await.expect(200);
    let users = world.admin.get("/api/v1/users?page_size=100").await.expect(200);
    let user_path = |name: &str| {
        let user = users["data"].as_array().unwrap().iter().find(|user| user["username"] == name).unwrap();
        format!("/api/v1/users/{}", user["public_id"].as_str().unwrap())
    };
    world.admin.put(&user_path("reset"), json!({"password": "another long password"})).await.expect(200);
    world.admin.delete(&user_path("deleted")).await.expect(200);
    let other = world
        .admin
        .post("/api/tokens", json!({"name": "x", "agent_id": subjects.agent.id}))
        .await
        .expect(201);
    let agent = world.anonymous().with_token(other["value"].as_str().unwrap());
    agent.post("/api/agent/ack", json!({"message_ids": []})).await.expect(200);
    world.admin.delete(&format!("/api/tokens/{}", other["token"]["id"])).await.expect(204);
    let revoked = api_token(&world.admin, json!({"name": "revoked"})).await;
    let path = format!("/api/v1/tokens/{}", revoked.1);
    world.admin.delete(&path).await.expect(200);
    let orphan = orphan.0;
    let void = [
        ("logout", &leaver),
        ("password change", &changer),
        ("reset", &reset),
        ("deletion", &deleted),
        ("revocation", &revoked.0),
        ("deletion of the owner", &orphan),
    ];
    for (why, client) in void {
        // At each gateway: requests go to one after the other.
        let is_void = async || {
            let path = "/api/auth/user";
            client.get(path).await.status == 401 && client.get(path).await.status == 401
        };
        println!("{why}");
        eventually(seconds(5), is_void).await;
    }
    let refuses = async || agent.post("/api/agent/ack", json!({"message_ids": []})).await.status == 401;
    eventually(seconds(5), async || refuses().await && refuses().await).await;
    let before = world.count_all_events().await;
    for route in routes().iter().filter(|route| route.access != Access::Everybody) {
        let path = route.path(&subjects);
        match route.access {
            Access::Agent => refuse(route, &agent, &path, 401, "a revoked agent token").await,
            _ => {
                for (why, client) in void {
                    refuse(route, client, &path, 401, why).await;
                }
            }
        }
    }
    assert_eq!(world.count_all_events().await, before);
    drop(clients);
    world.finish_with_mail().await;
}

#[tokio::test]
async fn no_route_takes_a_credential_that_has_expired() {
    // The database keeps microseconds.
    let clock = Clock::manual(Clock::system().now().trunc_subsecs(6));
    let world = World::at(clock.clone(), |_| {}).await;
    let subjects = Subjects::new(&world).await;
    let token = json!({"name": "short", "agent_id": subjects.agent.id, "expires_in": 1});
    let token = world.admin.post("/api/tokens", token).await.expect(201);
    let expires: chrono::DateTime<Utc> = token["token"]["expires_at"].as_str().unwrap().parse().unwrap();
    assert_eq!((expires - clock.now()).num_hours(), 24);
    let agent = world.anonymous().with_token(token["value"].as_str().unwrap());
    let short = api_token(&world.admin, json!({"name": "short", "expires_at": expires})).await.0;
    clock.advance(TimeDelta::hours(23));
    short.get("/api/auth/user").await.expect(200);
    agent.post("/api/agent/ack", json!({"message_ids": []})).await.expect(200);
    world.admin.get("/api/auth/user").await.expect(200);
    clock.advance(TimeDelta::minutes(61));
    let before = world.count_all_events().await;
    for route in routes().iter().filter(|route| route.access != Access::Everybody) {
        let expired: &[&Client] =
            if route.access == Access::Agent { &[&agent] } else { &[&world.admin, &short] };
        for client in expired {
            refuse(route, client, &route.path(&subjects), 401, "an expired token").await;
        }
    }
    assert_eq!(world.count_all_events().await, before);
    world.anonymous().log_in(ADMIN, PASSWORD).await.get("/api/auth/user").await.expect(200);
    world.finish_with_mail().await;
}

#[tokio::test]
async fn no_route_does_for_a_role_what_it_may_not() {
    let world = World::start().await;
    let subjects = Subjects::new(&world).await;
    let clients = Clients::new(&world, &subjects).await;
    let before = world.count_all_events().await;
    for route in routes() {
        let weaker: &[&Client] = match route.access {
            Access::Operator => &[&clients.viewer],
            Access::Admin => &[&clients.viewer, &clients.operator],
            _ => &[],
        };
        for client in weaker {
            refuse(&route, client, &route.path(&subjects), 403, "a weaker role").await;
            // The role is judged before the body and the resource.
            let broken = client.request(route.method.parse().unwrap(), &route.path_with("999999")).body("{");
            assert_eq!(client.send(broken).await.status, 403, "{}", route.name());
        }
    }
    assert_eq!(world.count_all_events().await, before);
    world.finish_with_mail().await;
}

#[tokio::test]
async fn no_route_shows_what_belongs_to_another() {
    let world = World::start().await;
    let subjects = Subjects::new(&world).await;
    let operator = world.user("operator", "operator").await;
    let second_admin = world.user("second", "admin").await;
    let stranger = world.as_agent(&world.agent("stranger").await);
    let before = world.count_all_events().await;
    let mut seen = 0;
    for route in routes() {
        let strangers: &[&Client] = match route.subject {
            Subject::Job | Subject::Transfer | Subject::Extraction => &[&operator, &second_admin],
            Subject::Document => &[&operator],
            Subject::File => &[&stranger],
            _ => continue,
        };
        seen += 1;
        for client in strangers {
            let answer = client.send(route.request(client, &route.path(&subjects))).await;
            let foreign = answer.error(404);
            let unknown = client.send(route.request(client, &route.path_with("999999"))).await.error(404);
            assert_eq!(foreign, unknown, "{}", route.name());
        }
    }
    assert!(seen >= 9);
    for list in ["/api/jobs", "/api/transfers"] {
        let listed = operator.get(list).await;
        assert_eq!((listed.expect(200), listed.header("x-total-count")), (json!([]), Some("0")), "{list}");
    }
    let of_job = json!({"job_id": subjects.job});
    operator.post("/api/transfers", of_job).await.error(404);
    assert_eq!(world.count_all_events().await, before);
    world.finish_with_mail().await;
}
