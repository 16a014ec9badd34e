//! Logins and passwords of service 1; both logins share them.

use chrono::{DateTime, TimeDelta, Utc};
use futures::future::join_all;
use serde_json::{Value, json};
use signalbox_clock::Clock;
use sqlx::{Connection, Executor, PgConnection};

use crate::harness::{ADMIN, Client, PASSWORD, World, eventually, seconds};

async fn log_in(client: &Client, path: &str, login: &str, password: &str) -> crate::harness::Answer {
    client.post(path, json!({"email": login, "password": password})).await
}

async fn is_valid(client: &Client) -> bool {
    client.get("/api/auth/user").await.status == 200
}

#[tokio::test]
async fn a_login_accepts_address_or_name_in_any_case() {
    let world = World::start().await;
    world.user("Miller.Ä", "viewer").await;
    for login in ["Miller.Ä@example.org", "MILLER.Ä@EXAMPLE.ORG", "miller.ä", " Miller.Ä "] {
        let out = log_in(&world.anonymous(), "/api/auth/login", login, PASSWORD).await.expect(200);
        assert_eq!(out["user"]["email"], "Miller.Ä@example.org", "{login}");
        assert_eq!((&out["user"]["name"], &out["user"]["role"]), (&json!("Miller.Ä"), &json!("viewer")));
        let client = world.anonymous().with_token(out["token"].as_str().unwrap());
        assert_eq!(client.get("/api/auth/user").await.expect(200), out["user"]);
        let expires: DateTime<Utc> = out["expires_at"].as_str().unwrap().parse().unwrap();
        assert!((expires - world.clock.now() - TimeDelta::hours(24)).abs() < TimeDelta::minutes(1));
    }
    let by_name = json!({"username": "miller.Ä", "password": PASSWORD});
    let out = world.anonymous().post("/api/v1/auth/login", by_name).await.expect(200);
    let client = world.anonymous().with_token(out["access_token"].as_str().unwrap());
    let me = client.get("/api/v1/auth/me").await.expect(200);
    assert_eq!((&me["public_id"], &me["admin"]), (&out["public_id"], &json!(false)));
    world.finish().await;
}

#[tokio::test]
async fn a_wrong_password_and_an_unknown_user_are_answered_alike() {
    let world = World::start().await;
    let before = world.count_all_events().await;
    for path in ["/api/auth/login", "/api/v1/auth/login"] {
        let mut answers = Vec::new();
        let wrong = [
            (ADMIN, "not it"),
            ("nobody@example.org", PASSWORD),
            ("admin", "not it"),
            ("a\0b", "x"),
            ("' OR 1=1 --", "' OR 1=1 --"),
            ("%", PASSWORD),
            ("_dmin", PASSWORD),
        ];
        for (login, password) in wrong {
            let answer = log_in(&world.anonymous(), path, login, password).await;
            answers.push(answer.error(401));
        }
        assert!(answers.iter().all(|answer| *answer == answers[0]), "{answers:?}");
    }
    assert_eq!(world.count_all_events().await, before);
    world.finish().await;
}

#[tokio::test]
async fn a_name_that_is_anothers_address_logs_in_by_its_own_password() {
    let world = World::start().await;
    world.user("anna", "viewer").await;
    let other = "another long password";
    let user = json!({"email": "ben@example.org", "username": "anna@example.org", "password": other});
    world.admin.post("/api/v1/users", user).await.expect(201);
    for (password, email) in [(PASSWORD, "anna@example.org"), (other, "ben@example.org")] {
        let out = log_in(&world.anonymous(), "/api/auth/login", "Anna@example.org", password).await;
        assert_eq!(out.expect(200)["user"]["email"], email);
    }
    log_in(&world.anonymous(), "/api/auth/login", "anna@example.org", "neither of them").await.error(401);
    world.finish().await;
}

#[tokio::test]
async fn a_refresh_keeps_the_old_token_until_logout_ends_the_family() {
    let clock = Clock::manual(Clock::system().now());
    let world = World::at(clock.clone(), |_| {}).await;
    let first = world.anonymous().log_in(ADMIN, PASSWORD).await;
    clock.advance(TimeDelta::hours(10));
    let out = first.post("/api/auth/refresh", json!({})).await.expect(200);
    assert_eq!(out["user"]["email"], ADMIN);
    let second = world.anonymous().with_token(out["token"].as_str().unwrap());
    assert_ne!(first.token, second.token);
    assert!(is_valid(&first).await && is_valid(&second).await);
    clock.advance(TimeDelta::hours(14) + TimeDelta::seconds(1));
    assert!(!is_valid(&first).await && is_valid(&second).await);
    let third = second.post("/api/auth/refresh", json!({})).await.expect(200);
    let third = world.anonymous().with_token(third["token"].as_str().unwrap());
    second.post("/api/v1/auth/logout", json!({})).await.expect(200);
    clock.advance(TimeDelta::seconds(1));
    assert!(!is_valid(&second).await && !is_valid(&third).await);
    third.post("/api/auth/refresh", json!({})).await.error(401);
    world.finish().await;
}

#[tokio::test]
async fn a_changed_password_ends_every_other_login_and_gives_a_new_one() {
    let world = World::start().await;
    let one = world.user("somebody", "operator").await;
    let other = world.anonymous().log_in("somebody", PASSWORD).await;
    let new = "another long password";
    let wrong = json!({"old_password": "not it", "new_password": new});
    one.post("/api/auth/password", wrong).await.error(400);
    assert!(is_valid(&one).await);
    let change = json!({"current_password": PASSWORD, "new_password": new});
    let out = one.post("/api/auth/password", change).await.expect(200);
    assert!(out["message"].is_string());
    eventually(seconds(5), async || !is_valid(&one).await && !is_valid(&other).await).await;
    assert!(is_valid(&world.anonymous().with_token(out["token"].as_str().unwrap())).await);
    log_in(&world.anonymous(), "/api/auth/login", "somebody", PASSWORD).await.error(401);
    assert!(is_valid(&world.anonymous().log_in("somebody", new).await).await);
    world.finish().await;
}

#[tokio::test]
async fn what_one_gateway_revokes_is_void_on_another_within_a_second() {
    let clock = Clock::manual(Clock::system().now());
    let mut world = World::at(clock.clone(), |_| {}).await;
    let other = world.another_gateway().await;
    let leaver = world.user("leaver", "operator").await;
    let changer = world.user("changer", "operator").await;
    let demoted = world.user("demoted", "operator").await;
    let there = |client: &Client| client.at(&other);
    for client in [&leaver, &changer, &demoted] {
        assert!(is_valid(&there(client)).await);
    }
    leaver.post("/api/v1/auth/logout", json!({})).await.expect(200);
    clock.advance(TimeDelta::seconds(1));
    assert!(!is_valid(&there(&leaver)).await);
    let change = json!({"old_password": PASSWORD, "new_password": "another long password"});
    changer.post("/api/auth/password", change).await.expect(200);
    clock.advance(TimeDelta::seconds(1));
    assert!(!is_valid(&there(&changer)).await);
    let users = world.admin.get("/api/v1/users").await.expect(200);
    let user = users["data"].as_array().unwrap().iter().find(|user| user["username"] == "demoted").unwrap();
    let path = format!("/api/v1/users/{}", user["public_id"].as_str().unwrap());
    world.admin.put(&path, json!({"role": "viewer"})).await.expect(200);
    let role = async || there(&demoted).get("/api/auth/user").await.expect(200)["role"].clone();
    clock.advance(TimeDelta::seconds(1));
    assert_eq!(role().await, "viewer");
    there(&demoted).post("/api/jobs", json!({})).await.error(403);
    world.admin.delete(&path).await.expect(200);
    clock.advance(TimeDelta::seconds(1));
    assert!(!is_valid(&there(&demoted)).await);
    world.finish().await;
}

/// Lockouts recorded while the clock was ahead stayed in force until the clock had reached that time again.
#[tokio::test]
async fn a_revocation_holds_where_the_clock_was_set_back() {
    let mut world = World::start().await;
    let clock = Clock::shifted(TimeDelta::hours(6));
    let other = world.another_gateway_by(&clock).await;
    let leaver = world.user("leaver", "operator").await;
    let there = leaver.at(&other);
    assert!(is_valid(&there).await);
    clock.advance(TimeDelta::hours(-6));
    leaver.post("/api/v1/auth/logout", json!({})).await.expect(200);
    eventually(seconds(5), async || !is_valid(&there).await).await;
    world.finish().await;
}

/// A gateway whose clock was ahead refused every login, and recorded values of the future, which hid all later ones.
#[tokio::test]
async fn wrong_clock_of_a_gateway_affects_no_login_or_value() {
    let mut world = World::start().await;
    let channel =
        world.admin.post("/api/v1/events", json!({"name": "boiler", "type": "sensor"})).await.expect(201);
    for hours in [-25, 25] {
        let other = world.another_gateway_by(&Clock::shifted(TimeDelta::hours(hours))).await;
        let there = world.admin.at(&other);
        let value = json!({"value": hours, "event_public_id": channel["public_id"]});
        let recorded = there.post("/api/v1/datapoints", value).await.expect(201);
        let renewed = there.post("/api/auth/refresh", json!({})).await.expect(200);
        let offset = |time: &Value| {
            let time: DateTime<Utc> = time.as_str().unwrap().parse().unwrap();
            (time - Clock::system().now()).num_minutes()
        };
        assert!(offset(&recorded["timestamp"]).abs() <= 5, "{recorded}");
        assert!((23 * 60..=24 * 60).contains(&offset(&renewed["expires_at"])), "{renewed}");
    }
    world.finish().await;
}

#[tokio::test]
async fn too_many_logins_are_put_off_and_say_until_when() {
    let clock = Clock::manual(Clock::system().now());
    let world = World::at(clock.clone(), |config| config.limits.logins_per_account = 3).await;
    let victim = json!({"email": "victim@example.org", "username": "victim", "password": PASSWORD});
    world.admin.post("/api/v1/users", victim).await.expect(201);
    let path = "/api/auth/login";
    // Attempts at another gateway are counted a moment later.
    let anonymous = world.at_one_gateway().anonymous();
    clock.advance(TimeDelta::minutes(2));
    for _ in 0..3 {
        log_in(&anonymous, path, "victim@example.org", "not it").await.error(401);
    }
    let late = log_in(&anonymous, path, "Victim@Example.org", PASSWORD).await;
    late.error(429);
    let wait: i64 = late.header("retry-after").unwrap().parse().unwrap();
    assert!((1..=20).contains(&wait), "{wait}");
    log_in(&anonymous, "/api/v1/auth/login", "victim@example.org", PASSWORD).await.error(429);
    // The same account under its other name.
    log_in(&anonymous, path, "victim", PASSWORD).await.error(429);
    log_in(&anonymous, path, ADMIN, PASSWORD).await.expect(200);
    clock.advance(TimeDelta::seconds(wait));
    log_in(&anonymous, path, "victim@example.org", PASSWORD).await.expect(200);
    world.finish().await;
}

#[tokio::test]
async fn logins_from_one_address_are_limited_over_all_accounts() {
    let clock = Clock::manual(Clock::system().now());
    let world = World::at(clock.clone(), |config| config.limits.logins_per_address = 5).await;
    let anonymous = world.at_one_gateway().anonymous();
    clock.advance(TimeDelta::minutes(2));
    for index in 0..5 {
        log_in(&anonymous, "/api/auth/login", &format!("nobody{index}"), "x").await.error(401);
    }
    let answer = log_in(&anonymous, "/api/auth/login", ADMIN, PASSWORD).await;
    answer.error(429);
    assert!(answer.header("retry-after").is_some());
    // Forwarding headers count only from a trusted proxy.
    let forged = anonymous.request(reqwest::Method::POST, "/api/auth/login");
    let forged =
        forged.header("x-forwarded-for", "6.6.6.6").json(&json!({"email": ADMIN, "password": PASSWORD}));
    assert_eq!(anonymous.send(forged).await.status, 429);
    world.finish().await;
}

#[tokio::test]
async fn a_throttled_user_is_told_when_to_retry() {
    let clock = Clock::manual(Clock::system().now());
    let adjust = |config: &mut signalbox_config::Config| {
        (config.limits.requests_per_minute, config.limits.request_burst) = (60, 5);
    };
    let world = World::at(clock.clone(), adjust).await;
    clock.advance(TimeDelta::minutes(1));
    // Attempts at another gateway are counted a moment later.
    let admin = world.at_one_gateway();
    let mut statuses = Vec::new();
    for _ in 0..7 {
        statuses.push(admin.get("/api/agents").await);
    }
    let refused: Vec<_> = statuses.iter().filter(|answer| answer.status == 429).collect();
    assert_eq!(refused.len(), 2, "{:?}", statuses.iter().map(|answer| answer.status).collect::<Vec<_>>());
    assert!(refused.iter().all(|answer| answer.header("retry-after") == Some("1")));
    world.anonymous().get("/api/health").await.expect(200);
    clock.advance(TimeDelta::seconds(1));
    admin.get("/api/agents").await.expect(200);
    world.finish().await;
}

#[tokio::test]
async fn two_gateways_share_one_limit() {
    let clock = Clock::manual(Clock::system().now());
    let mut world = World::at(clock.clone(), |config| config.limits.logins_per_account = 20).await;
    let other = world.another_gateway().await;
    clock.advance(TimeDelta::minutes(2));
    let here = world.anonymous();
    let spent = (0..20).map(|_| log_in(&here, "/api/auth/login", "nobody", "x"));
    for answer in join_all(spent).await {
        answer.error(401);
    }
    // The other gateway alone would let twenty more through; it hears of them four times a second.
    let mut let_through = 0;
    while log_in(&other, "/api/auth/login", "nobody", "x").await.status != 429 {
        let_through += 1;
        assert!(let_through < 20, "the limit counts for each gateway alone");
    }
    world.finish().await;
}

#[tokio::test]
async fn rotating_the_keys_keeps_the_logins_of_the_last_key() {
    let mut world = World::start().await;
    let other = world.another_gateway().await;
    let pool = world.servers.pool.clone();
    let old = world.anonymous().log_in(ADMIN, PASSWORD).await;
    signalbox_gateway::rotate_signing_key(&pool, &world.clock).await.unwrap();
    let kids: Vec<String> =
        sqlx::query_scalar("SELECT kid FROM ops.signing_keys WHERE retired_at IS NULL ORDER BY created_at")
            .fetch_all(&pool)
            .await
            .unwrap();
    assert_eq!(kids.len(), 2);
    // A gateway that does not know the new key yet must soon take what another one signs with it.
    let signed_by =
        |client: &Client| jsonwebtoken::decode_header(client.token.as_ref().unwrap()).unwrap().kid.unwrap();
    let mut new = other.log_in(ADMIN, PASSWORD).await;
    eventually(seconds(10), async || {
        new = other.log_in(ADMIN, PASSWORD).await;
        signed_by(&new) == kids[1]
    })
    .await;
    eventually(seconds(10), async || is_valid(&new.at(&world.anonymous())).await).await;
    assert!(is_valid(&old).await && is_valid(&old.at(&other)).await);
    signalbox_gateway::rotate_signing_key(&pool, &world.clock).await.unwrap();
    eventually(seconds(10), async || !is_valid(&old).await && !is_valid(&old.at(&other)).await).await;
    assert!(is_valid(&new).await);
    world.finish().await;
}

/// It stayed the newest one for a day: later keys signed nothing, and were retired before it.
#[tokio::test]
async fn a_key_of_a_machine_whose_clock_was_ahead_is_rotated_out() {
    let world = World::start().await;
    let pool = &world.servers.pool;
    let ahead = Clock::shifted(TimeDelta::days(1));
    signalbox_gateway::rotate_signing_key(pool, &ahead).await.unwrap();
    sqlx::query(
        "UPDATE ops.signing_keys SET created_at = created_at + interval '1 day' WHERE retired_at IS NULL",
    )
    .execute(pool)
    .await
    .unwrap();
    for _ in 0..2 {
        let kid = signalbox_gateway::rotate_signing_key(pool, &world.clock).await.unwrap();
        let newest = signalbox_database::ops::signing_keys::signing_keys(pool).await.unwrap().remove(0);
        assert!(newest.kid == kid && newest.retired_at.is_none(), "{newest:?}");
    }
    let login = world.anonymous().log_in(ADMIN, PASSWORD).await;
    eventually(seconds(10), async || is_valid(&login).await).await;
    world.finish().await;
}

#[tokio::test]
async fn no_secret_of_a_login_is_stored_or_returned() {
    let world = World::start().await;
    let key = |client: &Client, path: &str, body: Value| {
        client.request(reqwest::Method::POST, path).header("idempotency-key", "once").json(&body)
    };
    let anonymous = world.anonymous();
    let credentials = json!({"email": ADMIN, "password": PASSWORD});
    let first = anonymous.send(key(&anonymous, "/api/auth/login", credentials.clone())).await.expect(200);
    let again = anonymous.send(key(&anonymous, "/api/auth/login", credentials)).await.expect(200);
    assert_eq!(first["user"], again["user"]);
    let client = anonymous.with_token(again["token"].as_str().unwrap());
    let renewed = client.send(key(&client, "/api/auth/refresh", json!({}))).await.expect(200);
    let mut secrets = vec![PASSWORD.to_owned()];
    for out in [&first, &again, &renewed] {
        secrets.push(out["token"].as_str().unwrap().to_owned());
    }
    for secret in secrets {
        assert_eq!(super::common::places_of(&world, &secret).await, Vec::<String>::new());
    }
    let listed = world.admin.get("/api/v1/users").await.text();
    assert!(!listed.contains("argon2") && !listed.contains("password"), "{listed}");
    world.finish().await;
}

/// The read model, by which passwords are checked, may show an earlier one; so may a check that waited in line.
#[tokio::test]
async fn a_password_that_has_been_changed_starts_no_session() {
    let world = World::start().await;
    world.user("miller", "viewer").await;
    // It does not wait for the read models after a write.
    let anonymous = Client::new(world.address);
    let out = log_in(&anonymous, "/api/auth/login", "miller", PASSWORD).await.expect(200);
    let client = anonymous.with_token(out["token"].as_str().unwrap());
    // A session without the limits of the service's own.
    let mut held = PgConnection::connect(&world.servers.database_url).await.unwrap();
    held.execute("BEGIN; SELECT FROM read.checkpoints WHERE projection = 'identity' FOR UPDATE")
        .await
        .unwrap();
    let change = |new: &str| json!({"old_password": PASSWORD, "new_password": new});
    client.post("/api/auth/password", change("another long password")).await.expect(200);
    log_in(&anonymous, "/api/auth/login", "miller", PASSWORD).await.error(401);
    assert!(client.post("/api/auth/password", change("a third long password")).await.status >= 400);
    held.execute("ROLLBACK").await.unwrap();
    let shown = "SELECT EXISTS (SELECT FROM read.users u JOIN events e ON e.position = u.valid_after
                  WHERE u.username = 'miller' AND e.event_type = 'user_password_changed')";
    eventually(seconds(20), async || sqlx::query_scalar(shown).fetch_one(&world.servers.pool).await.unwrap())
        .await;
    log_in(&anonymous, "/api/auth/login", "miller", "another long password").await.expect(200);
    world.finish().await;
}
