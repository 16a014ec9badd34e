//! Successful logins.

use chrono::TimeDelta;
use reqwest::Url;
use serde_json::{Value, json};
use signalbox_clock::Clock;
use signalbox_config::{Secret, SsoRole};

use super::{Code, Outcome, PUBLIC, Site, begin, callback, clock, come_back, exchange, person};
use crate::{
    api::common::places_of,
    harness::{OpenIdProvider, PASSWORD, Surfer, World},
};

#[tokio::test]
async fn somebody_new_logs_in_at_the_provider_and_has_an_account() {
    let site = Site::start(json!({"ada": person("ada")})).await;
    let config = site.browser().get("/api/v1/auth/sso/config").await.expect(200);
    let expected =
        json!({"enabled": true, "provider_name": "Plant", "authorize_url": "/api/v1/auth/sso/authorize"});
    assert_eq!(config, expected);
    let me = site.log_in("ada").await;
    assert_eq!(me["email"], "ada@example.org");
    assert_eq!((&me["username"], &me["role"]), (&json!("ada"), &json!("viewer")));
    assert_eq!(me["sso_provider"], "Plant");
    assert_eq!(site.last_entry("info", "ada").await["content"], "ada logged in from 127.0.0.1.");
    assert_eq!(site.log_in("ada").await, me, "the second time it is the same account");
    let events = site.world.events_of("user").await;
    assert!(events.contains("user_identity_linked system:single-sign-on"), "{events}");
    assert_eq!(site.world.count_events("user_identity_linked").await, 1);
    site.finish().await;
}

#[tokio::test]
async fn a_service_without_a_provider_says_so() {
    let world = World::start().await;
    let client = world.anonymous();
    let config = client.get("/api/v1/auth/sso/config").await.expect(200);
    assert_eq!(config, json!({"enabled": false, "provider_name": "", "authorize_url": ""}));
    for path in ["authorize", "callback", "callback?code=x&state=y"] {
        client.get(&format!("/api/v1/auth/sso/{path}")).await.error(404);
    }
    exchange(&client, &"nobody's".into()).await.error(400);
    world.finish().await;
}

#[tokio::test]
async fn the_provider_is_asked_as_the_standards_want_it() {
    let site = Site::start(json!({})).await;
    let answer = site.browser().get("/api/v1/auth/sso/authorize").await;
    let cookie = answer.header("set-cookie").unwrap();
    let (name, attributes) = cookie.split_once('=').unwrap();
    assert_eq!(name, "__Host-signalbox_sso");
    assert!(attributes.ends_with("; Path=/; Max-Age=600; HttpOnly; SameSite=Lax; Secure"), "{cookie}");
    let to = Url::parse(answer.header("location").unwrap()).unwrap();
    assert!(to.as_str().starts_with(&format!("{}/auth?", site.provider.issuer)), "{to}");
    let find = |name: &str| to.query_pairs().find(|(key, _)| key == name).unwrap().1.into_owned();
    for (name, expected) in [
        ("response_type", "code"),
        ("client_id", "signalbox"),
        ("redirect_uri", "https://signalbox.test/api/v1/auth/sso/callback"),
        ("scope", "openid email profile"),
        ("code_challenge_method", "S256"),
    ] {
        assert_eq!(find(name), expected);
    }
    assert_eq!(find("code_challenge").len(), 43);
    let other = begin(&site.browser()).await;
    for name in ["state", "nonce", "code_challenge"] {
        assert!(!other.page.contains(&find(name)), "{name} is used twice");
    }
    site.finish().await;
}

#[tokio::test]
async fn a_code_is_good_once_on_any_gateway_for_sixty_seconds() {
    let provider = OpenIdProvider::start(PUBLIC, json!({"ada": person("ada")})).await;
    let clock = clock(TimeDelta::minutes(8));
    let mut site = Site::at(clock.clone(), provider).await;
    let (here, there) = (site.browser(), site.world.another_gateway().await);
    let begun = begin(&here).await;
    let back = Surfer::new().log_in(&begun.page, "ada").await;
    let code = come_back(&there, &back, Some(&begun.cookie)).await.code();
    assert_eq!(code.text.len(), 43);
    let (one, other) = tokio::join!(exchange(&here, &code), exchange(&there, &code));
    let mut statuses = [one.status, other.status];
    statuses.sort_unstable();
    assert_eq!(statuses, [200, 400]);
    let used = exchange(&here, &code).await.error(400);
    let unknown = exchange(&here, &"x".repeat(43).as_str().into()).await.error(400);
    let late = site.come_as("ada").await.code();
    clock.advance(TimeDelta::seconds(60));
    let late = exchange(&here, &late).await.error(400);
    assert_eq!((&used, &unknown), (&late, &late));
    let in_time = site.come_as("ada").await.code();
    clock.advance(TimeDelta::seconds(59));
    exchange(&there, &in_time).await.expect(200);
    site.finish().await;
}

#[tokio::test]
async fn a_code_is_good_at_a_gateway_whose_clock_is_ahead() {
    let mut site = Site::start(json!({"ada": person("ada")})).await;
    let ahead = site.world.another_gateway_by(&Clock::shifted(TimeDelta::minutes(5))).await;
    let code = site.come_as("ada").await.code();
    exchange(&ahead, &code).await.expect(200);
    // It judges the provider's token too, which is good for at most a few minutes.
    for minutes in [-40, 40] {
        let gateway = site.world.another_gateway_by(&Clock::shifted(TimeDelta::minutes(minutes))).await;
        let begun = begin(&gateway).await;
        let back = Surfer::new().log_in(&begun.page, "ada").await;
        let code = come_back(&gateway, &back, Some(&begun.cookie)).await.code();
        exchange(&gateway, &code).await.expect(200);
    }
    site.finish().await;
}

#[tokio::test]
async fn a_code_is_good_in_its_browser_alone() {
    let site = Site::start(json!({"ada": person("ada"), "eve": person("eve")})).await;
    let (ada, eve) = (site.come_as("ada").await.code(), site.come_as("eve").await.code());
    // Eve's code by a link that Ada opens, whose own login has gone as far; and in a browser that has not begun one.
    let lured = Code { text: eve.text.clone(), cookie: ada.cookie.clone() };
    exchange(&site.browser(), &lured).await.error(400);
    exchange(&site.browser(), &eve).await.error(400);
    let third = site.come_as("eve").await.code();
    exchange(&site.browser(), &third.text.as_str().into()).await.error(400);
    assert_eq!(exchange(&site.browser(), &ada).await.expect(200)["username"], "ada");
    site.finish().await;
}

#[tokio::test]
async fn no_secret_of_a_single_sign_on_is_stored() {
    let site = Site::start(json!({"ada": person("ada")})).await;
    let begun = begin(&site.browser()).await;
    let back = Surfer::new().log_in(&begun.page, "ada").await;
    let code = come_back(&site.browser(), &back, Some(&begun.cookie)).await.code();
    let providers_code = back.split("code=").nth(1).unwrap().split('&').next().unwrap().to_owned();
    let cookie = begun.cookie.split_once('=').unwrap().1.to_owned();
    let out = exchange(&site.browser(), &code).await.expect(200);
    let token = out["access_token"].as_str().unwrap().to_owned();
    let browsers = code.cookie.split_once('=').unwrap().1.to_owned();
    for secret in [code.text, browsers, providers_code, cookie, token] {
        assert_eq!(places_of(&site.world, &secret).await, Vec::<String>::new());
    }
    site.finish().await;
}

#[tokio::test]
async fn claims_are_taken_from_the_id_token_where_they_stand_and_a_client_needs_no_secret() {
    let settings = json!({"email_in_id_token": true});
    let provider = OpenIdProvider::with(PUBLIC, json!({"ada": person("ada")}), settings).await;
    let world = World::with(|config| {
        provider.configure(&mut config.sso);
        config.sso.client_secret = Secret::default();
        config.sso.default_role = SsoRole::Operator;
        config.sso.frontend_url = "https://console.test/app/".to_owned();
    })
    .await;
    let begun = begin(&world.anonymous()).await;
    let back = Surfer::new().log_in(&begun.page, "ada").await;
    let answer = callback(&world.anonymous(), &back, Some(&begun.cookie)).await;
    let to = answer.header("location").unwrap();
    let code = to.strip_prefix("https://console.test/app/sso-callback?code=").expect(to);
    // The front end is another site.
    let set = answer.header("set-cookie").unwrap();
    assert!(set.ends_with("; Path=/; Max-Age=60; HttpOnly; SameSite=None; Secure"), "{set}");
    let code = Code { text: code.replace("%2D", "-").replace("%5F", "_"), cookie: super::kept(set) };
    let out = exchange(&world.anonymous(), &code).await.expect(200);
    let client = world.anonymous().with_token(out["access_token"].as_str().unwrap());
    let me = client.get("/api/v1/auth/me").await.expect(200);
    assert_eq!((&me["email"], &me["role"]), (&json!("ada@example.org"), &json!("operator")));
    world.finish().await;
}

#[tokio::test]
async fn new_keys_of_the_provider_are_fetched_when_a_token_names_one() {
    let provider = OpenIdProvider::start(PUBLIC, json!({"ada": person("ada")})).await;
    let clock = clock(TimeDelta::minutes(8));
    let site = Site::at(clock.clone(), provider).await;
    let me = site.log_in("ada").await;
    site.provider.rotate().await;
    // Keys were fetched a moment ago; an unknown one is not asked for at once.
    assert_eq!(site.come_as("ada").await, Outcome::Error("invalid_id_token".to_owned()));
    clock.advance(TimeDelta::seconds(10));
    assert_eq!(site.log_in("ada").await, me);
    site.finish().await;
}

#[tokio::test]
async fn an_sso_user_has_no_password_until_an_admin_sets_one() {
    let site = Site::start(json!({"ada": person("ada")})).await;
    let me = site.log_in("ada").await;
    let log_in = async |password: &str| {
        let credentials = json!({"email": "ada", "password": password});
        site.browser().post("/api/v1/auth/login", credentials).await
    };
    let unknown = json!({"email": "nobody", "password": "x"});
    let unknown = site.browser().post("/api/v1/auth/login", unknown).await.error(401);
    assert_eq!(log_in("x").await.error(401), unknown);
    let path = format!("/api/v1/users/{}", me["public_id"].as_str().unwrap());
    site.world.admin.put(&path, json!({"password": PASSWORD})).await.expect(200);
    let out: Value = log_in(PASSWORD).await.expect(200);
    assert_eq!(out["public_id"], me["public_id"]);
    assert_eq!(site.log_in("ada").await["public_id"], me["public_id"], "both ways lead in");
    site.finish().await;
}
