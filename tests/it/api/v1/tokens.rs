//! API tokens of users.

use chrono::{DateTime, SubsecRound, TimeDelta, Utc};
use futures::StreamExt;
use reqwest::Method;
use serde_json::{Value, json};
use signalbox_clock::Clock;
use signalbox_config::ApiTokenPrefix;
use tokio::{net::TcpStream, time::timeout};
use tokio_tungstenite::{
    MaybeTlsStream, WebSocketStream, connect_async,
    tungstenite::{Error, client::IntoClientRequest},
};

use crate::harness::{Client, World, eventually, seconds};

const PATH: &str = "/api/v1/tokens";

async fn make(owner: &Client, name: &str) -> Value {
    owner.post(PATH, json!({ "name": name })).await.expect(201)
}

fn text(token: &Value, field: &str) -> String {
    token[field].as_str().unwrap().to_owned()
}

fn path(token: &Value) -> String {
    format!("{PATH}/{}", text(token, "public_id"))
}

fn by(owner: &Client, token: &Value) -> Client {
    owner.with_token(&text(token, "token"))
}

async fn names(client: &Client, query: &str) -> Vec<String> {
    let page = client.get(&format!("{PATH}{query}")).await.expect(200);
    page["data"].as_array().unwrap().iter().map(|token| text(token, "name")).collect()
}

#[tokio::test]
async fn a_token_speaks_for_its_owner_wherever_a_login_does() {
    let world = World::start().await;
    let owner = world.user("owner", "operator").await;
    let token = make(&owner, " press ").await;
    let secret = text(&token, "token");
    assert_eq!((token["name"].as_str(), secret.len(), &secret[..3]), (Some("press"), 46, "sb_"));
    let plain = secret[3..].bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte));
    assert!(plain, "{secret}");
    let client = by(&owner, &token);
    assert_eq!(client.get("/api/v1/auth/me").await.expect(200)["username"], "owner");
    assert_eq!(client.get("/api/auth/user").await.expect(200)["name"], "owner");
    client.get("/api/v1/users").await.error(403);
    let keyed = world.anonymous().request(Method::GET, "/api/v1/auth/me").header("x-api-key", &secret);
    assert_eq!(world.admin.send(keyed).await.expect(200)["username"], "owner");
    // Agent tokens are not user tokens, and the reverse.
    client.post("/api/agent/ack", json!({"message_ids": []})).await.error(401);
    // Its writes are its owner's.
    let made = make(&client, "by token").await;
    let actor: String = sqlx::query_scalar(
        "SELECT metadata->>'actor' FROM events WHERE aggregate_id = $1 AND event_type = 'api_token_created'",
    )
    .bind(text(&made, "public_id"))
    .fetch_one(&world.servers.pool)
    .await
    .unwrap();
    let me = owner.get("/api/v1/auth/me").await.expect(200);
    assert_eq!(actor, format!("user:{}", text(&me, "public_id")));
    world.finish().await;
}

#[tokio::test]
async fn a_token_has_the_rights_that_its_owner_has_at_that_moment() {
    let world = World::start().await;
    let owner = world.user("owner", "admin").await;
    let client = by(&owner, &make(&owner, "t").await);
    client.get("/api/v1/users").await.expect(200);
    let me = owner.get("/api/v1/auth/me").await.expect(200);
    let user = format!("/api/v1/users/{}", text(&me, "public_id"));
    world.admin.put(&user, json!({"role": "viewer"})).await.expect(200);
    eventually(seconds(5), async || client.get("/api/v1/users").await.status == 403).await;
    world.finish().await;
}

#[tokio::test]
async fn only_a_hash_of_a_token_is_kept() {
    let world = World::start().await;
    let token = make(&world.admin, "t").await;
    let secret = text(&token, "token");
    by(&world.admin, &token).get("/api/v1/auth/me").await.expect(200);
    let keyed = world.admin.request(Method::POST, PATH).header("idempotency-key", "k");
    let other = world.admin.send(keyed.json(&json!({"name": "kept"}))).await.expect(201);
    let dump = "SELECT string_agg(t::text, ' ') FROM events t
        UNION ALL SELECT string_agg(t::text, ' ') FROM read.api_tokens t
        UNION ALL SELECT string_agg(t::text, ' ') FROM ops.idempotent_requests t
        UNION ALL SELECT string_agg(t::text, ' ') FROM ops.token_uses t";
    let kept: Vec<Option<String>> = sqlx::query_scalar(dump).fetch_all(&world.servers.pool).await.unwrap();
    let kept = kept.into_iter().flatten().collect::<String>();
    assert!(kept.contains(&text(&token, "public_id")));
    for secret in [secret, text(&other, "token")] {
        assert!(!kept.contains(&secret[3..]), "{kept}");
    }
    // A repetition shows the same secret.
    let keyed = world.admin.request(Method::POST, PATH).header("idempotency-key", "k");
    assert_eq!(world.admin.send(keyed.json(&json!({"name": "kept"}))).await.expect(201), other);
    let listed = world.admin.get(PATH).await;
    assert!(!listed.text().contains("sb_"), "{}", listed.text());
    world.finish().await;
}

/// Two gateways a day apart reset each other's keys: the POST was carried out twice.
#[tokio::test]
async fn a_key_is_kept_whatever_the_clock_of_a_gateway_says() {
    let mut world = World::start().await;
    let behind = world.another_gateway_by(&Clock::shifted(TimeDelta::hours(-25))).await;
    let there = world.admin.at(&behind);
    let keyed = |client: &Client| client.request(Method::POST, PATH).header("idempotency-key", "k");
    let body = json!({"name": "kept"});
    let first = there.send(keyed(&there).json(&body)).await.expect(201);
    let again = world.admin.send(keyed(&world.admin).json(&body)).await.expect(201);
    assert_eq!(again, first);
    world.finish().await;
}

#[tokio::test]
async fn a_revoked_token_is_void_on_every_gateway_within_a_second() {
    let clock = Clock::manual(Clock::system().now());
    let mut world = World::at(clock.clone(), |_| {}).await;
    let elsewhere = world.another_gateway().await;
    for way in ["deletion", "logout"] {
        let token = make(&world.admin, way).await;
        let (here, there) = (by(&world.admin, &token), by(&elsewhere, &token));
        here.get("/api/v1/auth/me").await.expect(200);
        there.get("/api/v1/auth/me").await.expect(200);
        match way {
            "deletion" => world.admin.delete(&path(&token)).await,
            _ => here.post("/api/v1/auth/logout", json!({})).await,
        }
        .expect(200);
        assert_eq!(here.get("/api/v1/auth/me").await.status, 401, "{way}: where it was revoked, at once");
        clock.advance(TimeDelta::seconds(1));
        for gateway in [&here, &there] {
            assert_eq!(gateway.get("/api/v1/auth/me").await.status, 401, "{way}");
        }
    }
    // The login that made them lives on.
    world.admin.get("/api/v1/auth/me").await.expect(200);
    world.finish().await;
}

#[tokio::test]
async fn users_see_and_delete_their_own_tokens_and_admins_all() {
    let world = World::start().await;
    let (ada, bob) = (world.user("ada", "viewer").await, world.user("bob", "operator").await);
    let of_ada = make(&ada, "of ada").await;
    let of_bob = make(&bob, "of bob").await;
    make(&world.admin, "of the admin").await;
    assert_eq!(names(&ada, "").await, ["of ada"]);
    assert_eq!(names(&bob, "").await, ["of bob"]);
    assert_eq!(names(&world.admin, "").await, ["of the admin", "of bob", "of ada"]);
    assert_eq!(names(&world.admin, "?name=OF%20b").await, ["of bob"]);
    let me = bob.get("/api/v1/auth/me").await.expect(200);
    let only_bob = format!("?user_public_id={}", text(&me, "public_id"));
    assert_eq!(names(&world.admin, &only_bob).await, ["of bob"]);
    assert_eq!(names(&ada, &only_bob).await, ["of ada"], "others' tokens stay hidden");
    assert!(names(&world.admin, "?user_public_id=nobody").await.is_empty());
    assert_eq!(names(&world.admin, "?page=2&page_size=2").await, ["of ada"]);
    let page = world.admin.get(&format!("{PATH}?page_size=1")).await.expect(200);
    assert_eq!((&page["page"], &page["page_size"], &page["total"]), (&json!(1), &json!(1), &json!(3)));
    for wrong in ["page=0", "page_size=0", "page_size=101", "page=x"] {
        ada.get(&format!("{PATH}?{wrong}")).await.error(422);
    }
    ada.delete(&path(&of_bob)).await.error(403);
    ada.delete(&path(&of_ada)).await.expect(200);
    ada.delete(&path(&of_ada)).await.error(404);
    world.admin.delete(&path(&of_bob)).await.expect(200);
    assert!(names(&bob, "").await.is_empty());
    world.finish().await;
}

#[tokio::test]
async fn a_token_works_as_long_as_it_was_asked_to() {
    let clock = Clock::manual(Clock::system().now().trunc_subsecs(6));
    let world = World::at(clock.clone(), |_| {}).await;
    let expires =
        |token: &Value| token["expires_at"].as_str().map(|time| time.parse::<DateTime<Utc>>().unwrap());
    let default = make(&world.admin, "default").await;
    assert_eq!(expires(&default), Some(clock.now() + TimeDelta::days(365)));
    let asked =
        async |value: Value| world.admin.post(PATH, json!({"name": "asked", "expires_at": value})).await;
    let for_ever = asked(Value::Null).await.expect(201);
    assert_eq!(expires(&for_ever), None);
    let soon = clock.now() + TimeDelta::hours(1);
    let soon_token = asked(json!(soon)).await.expect(201);
    assert_eq!(expires(&soon_token), Some(soon));
    for wrong in [
        json!("1999-12-31"),
        json!(clock.now()),
        json!("tomorrow"),
        json!("2030-02-30"),
        json!(true),
        json!(1),
        json!(""),
    ] {
        asked(wrong).await.error(422);
    }
    let (soon_token, for_ever, default) =
        (by(&world.admin, &soon_token), by(&world.admin, &for_ever), by(&world.admin, &default));
    soon_token.get("/api/v1/auth/me").await.expect(200);
    clock.advance(TimeDelta::minutes(61));
    soon_token.get("/api/v1/auth/me").await.error(401);
    default.get("/api/v1/auth/me").await.expect(200);
    clock.advance(TimeDelta::days(365));
    default.get("/api/v1/auth/me").await.error(401);
    for_ever.get("/api/v1/auth/me").await.expect(200);
    world.finish().await;
}

#[tokio::test]
async fn the_last_use_is_noted_without_a_write_per_request() {
    let world = World::start().await;
    let token = make(&world.admin, "t").await;
    let last_use = async || world.admin.get(PATH).await.expect(200)["data"][0]["last_used_at"].clone();
    assert_eq!(last_use().await, Value::Null);
    let client = by(&world.admin, &token);
    let (before, begun) = (world.count_all_events().await, world.clock.now());
    for _ in 0..50 {
        client.get("/api/v1/auth/me").await.expect(200);
    }
    eventually(seconds(20), async || !last_use().await.is_null()).await;
    let noted: DateTime<Utc> = last_use().await.as_str().unwrap().parse().unwrap();
    assert!(noted >= begun.trunc_subsecs(6) - TimeDelta::microseconds(1) && noted <= world.clock.now());
    assert_eq!(world.count_all_events().await, before, "a use emits no event");
    let statement = "SELECT n_tup_ins + n_tup_upd FROM pg_stat_user_tables WHERE relname = 'token_uses'";
    let writes =
        async || -> i64 { sqlx::query_scalar(statement).fetch_one(&world.servers.pool).await.unwrap() };
    // The server's statistics come a moment late.
    eventually(seconds(20), async || writes().await >= 1).await;
    assert!(writes().await < 10, "{} writes for 50 requests", writes().await);
    world.finish().await;
}

#[tokio::test]
async fn a_use_that_could_not_be_noted_is_noted_later() {
    let world = World::start().await;
    let token = make(&world.admin, "t").await;
    // A sequence keeps its count when the write is undone.
    let refusing = "
        CREATE SEQUENCE ops.refusals;
        CREATE FUNCTION ops.refuse() RETURNS trigger LANGUAGE plpgsql AS
            $$ BEGIN PERFORM nextval('ops.refusals'); RAISE EXCEPTION 'not now'; END $$;
        CREATE TRIGGER refuse BEFORE INSERT ON ops.token_uses FOR EACH ROW EXECUTE FUNCTION ops.refuse()";
    sqlx::raw_sql(refusing).execute(&world.servers.pool).await.unwrap();
    by(&world.admin, &token).get("/api/v1/auth/me").await.expect(200);
    let refused = "SELECT is_called FROM ops.refusals";
    let is_refused =
        async || sqlx::query_scalar::<_, bool>(refused).fetch_one(&world.servers.pool).await.unwrap();
    eventually(seconds(20), is_refused).await;
    sqlx::raw_sql("DROP TRIGGER refuse ON ops.token_uses").execute(&world.servers.pool).await.unwrap();
    let last_use = async || world.admin.get(PATH).await.expect(200)["data"][0]["last_used_at"].clone();
    eventually(seconds(20), async || !last_use().await.is_null()).await;
    world.finish().await;
}

#[tokio::test]
async fn programs_that_expect_another_prefix_get_it() {
    let world = World::with(|config| config.identity.api_token_prefix = ApiTokenPrefix::Webmacs).await;
    let token = make(&world.admin, "t").await;
    assert!(text(&token, "token").starts_with("wm_"));
    by(&world.admin, &token).get("/api/v1/auth/me").await.expect(200);
    for wrong in ["wm_", "sb_", "wm_x", &format!("sb_{}", &text(&token, "token")[3..])] {
        world.anonymous().with_token(wrong).get("/api/v1/auth/me").await.error(401);
    }
    world.finish().await;
}

#[tokio::test]
async fn a_token_is_not_renewed() {
    let world = World::start().await;
    let client = by(&world.admin, &make(&world.admin, "t").await);
    let refused = client.post("/api/auth/refresh", json!({})).await.error(403);
    assert!(refused.contains("new one"), "{refused}");
    world.finish().await;
}

/// Opens the stream of values at the gateway of `client`, with one more header or query.
async fn open_stream(
    client: &Client,
    header: Option<(&'static str, String)>,
    query: &str,
) -> Result<WebSocketStream<MaybeTlsStream<TcpStream>>, Error> {
    let url = client.socket_url(&format!("/ws/datapoints/stream{query}"));
    let mut request = url.into_client_request().unwrap();
    if let Some((name, value)) = header {
        request.headers_mut().insert(name, value.parse().unwrap());
    }
    timeout(seconds(10), connect_async(request)).await.unwrap().map(|(socket, _)| socket)
}

#[tokio::test]
async fn a_token_opens_sockets_until_it_is_revoked() {
    let mut world = World::start().await;
    let elsewhere = world.another_gateway().await;
    let token = make(&world.admin, "t").await;
    let secret = text(&token, "token");
    let mut sockets = Vec::new();
    for gateway in [&world.anonymous(), &elsewhere] {
        let headers = [
            ("authorization", format!("Bearer {secret}")),
            ("x-api-key", secret.clone()),
            ("sec-websocket-protocol", format!("bearer.{secret}")),
        ];
        for header in headers {
            sockets.push(open_stream(gateway, Some(header), "").await.unwrap());
        }
        sockets.push(open_stream(gateway, None, &format!("?token={secret}")).await.unwrap());
        open_stream(gateway, None, "").await.unwrap_err();
        open_stream(gateway, None, &format!("?token={secret}x")).await.unwrap_err();
    }
    world.admin.delete(&path(&token)).await.expect(200);
    for mut socket in sockets {
        let ended = async { while let Some(Ok(_)) = socket.next().await {} };
        timeout(seconds(20), ended).await.expect("the socket is closed");
    }
    eventually(seconds(5), async || {
        open_stream(&elsewhere, None, &format!("?token={secret}")).await.is_err()
    })
    .await;
    world.finish().await;
}
