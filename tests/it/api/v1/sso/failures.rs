//! Logins that fail.

use chrono::TimeDelta;
use reqwest::Url;
use serde_json::{Value, json};

use super::{Outcome, PUBLIC, Site, begin, clock, come_back, person};
use crate::harness::{OpenIdProvider, Reply, StandIn, Surfer, World};

fn error(code: &str) -> Outcome {
    Outcome::Error(code.to_owned())
}

/// `back` with another state in it.
fn with_state(back: &str, state: &str) -> String {
    let mut url = Url::parse(back).unwrap();
    let pairs: Vec<(String, String)> = url.query_pairs().into_owned().collect();
    let others = pairs.into_iter().filter(|(name, _)| name != "state");
    url.query_pairs_mut().clear().extend_pairs(others.collect::<Vec<_>>()).append_pair("state", state);
    url.to_string()
}

#[tokio::test]
async fn a_state_is_good_in_one_browser_for_ten_minutes() {
    let provider = OpenIdProvider::start(PUBLIC, json!({"ada": person("ada")})).await;
    let clock = clock(TimeDelta::minutes(1));
    let site = Site::at(clock.clone(), provider).await;
    let (begun, others) = (begin(&site.browser()).await, begin(&site.browser()).await);
    let back = Surfer::new().log_in(&begun.page, "ada").await;
    let come = async |back: &str, cookie: Option<&str>| come_back(&site.browser(), back, cookie).await;
    site.expect_failure(come(&back, None).await, "invalid_state").await;
    site.expect_failure(come(&back, Some(&others.cookie)).await, "invalid_state").await;
    let state =
        Url::parse(&back).unwrap().query_pairs().find(|(name, _)| name == "state").unwrap().1.into_owned();
    let (expires, signature) = state.split_once('.').unwrap();
    let later = expires.parse::<i64>().unwrap() + 600;
    for wrong in [
        String::new(),
        "x".to_owned(),
        format!("{later}.{signature}"),
        format!("{expires}."),
        format!("{expires}.{}", "A".repeat(43)),
        format!("{}.{signature}", i64::MAX),
        "ä".repeat(5000),
    ] {
        let outcome = come(&with_state(&back, &wrong), Some(&begun.cookie)).await;
        assert_eq!(outcome, error("invalid_state"), "{wrong}");
    }
    for query in ["", "?code=x", "?state=a&state=b", "?code=%00&state=x", "?error=access_denied"] {
        let outcome = come(&format!("/api/v1/auth/sso/callback{query}"), Some(&begun.cookie)).await;
        assert_eq!(outcome, error("invalid_state"), "{query}");
    }
    assert_eq!(site.world.count_events("user_identity_linked").await, 0);
    // Nothing of this has spent the login.
    clock.advance(TimeDelta::seconds(599));
    come(&back, Some(&begun.cookie)).await.code();
    clock.advance(TimeDelta::seconds(1));
    site.expect_failure(come(&back, Some(&begun.cookie)).await, "invalid_state").await;
    site.finish().await;
}

#[tokio::test]
async fn a_code_of_the_provider_is_taken_once() {
    let site = Site::start(json!({"ada": person("ada")})).await;
    let begun = begin(&site.browser()).await;
    let back = Surfer::new().log_in(&begun.page, "ada").await;
    come_back(&site.browser(), &back, Some(&begun.cookie)).await.code();
    let replayed = come_back(&site.browser(), &back, Some(&begun.cookie)).await;
    site.expect_failure(replayed, "login_refused").await;
    site.finish().await;
}

#[tokio::test]
async fn a_code_that_another_browser_was_given_is_not_taken() {
    let site = Site::start(json!({"ada": person("ada"), "eve": person("eve")})).await;
    let (of_eve, of_ada) = (begin(&site.browser()).await, begin(&site.browser()).await);
    let back_eve = Surfer::new().log_in(&of_eve.page, "eve").await;
    let back_ada = Surfer::new().log_in(&of_ada.page, "ada").await;
    let state = |back: &str| {
        Url::parse(back).unwrap().query_pairs().find(|(name, _)| name == "state").unwrap().1.into_owned()
    };
    // Eve's code with the state and cookie of Ada's browser: the verifier is another.
    let injected = with_state(&back_eve, &state(&back_ada));
    let outcome = come_back(&site.browser(), &injected, Some(&of_ada.cookie)).await;
    site.expect_failure(outcome, "login_refused").await;
    site.finish().await;
}

#[tokio::test]
async fn a_refusal_by_the_provider_is_reported() {
    let site = Site::start(json!({})).await;
    for (said, expected) in [
        ("access_denied", "access_denied"),
        ("temporarily_unavailable", "provider_unavailable"),
        ("login_required", "login_refused"),
        ("<script>alert(1)</script>", "login_refused"),
    ] {
        let begun = begin(&site.browser()).await;
        let page = Url::parse(&begun.page).unwrap();
        let state = page.query_pairs().find(|(name, _)| name == "state").unwrap().1.into_owned();
        let back = format!("/api/v1/auth/sso/callback?error={}", crate::harness::encode(said));
        let outcome = come_back(&site.browser(), &format!("{back}&state={state}"), Some(&begun.cookie)).await;
        site.expect_failure(outcome, expected).await;
    }
    site.finish().await;
}

#[tokio::test]
async fn a_token_with_a_claim_that_is_not_as_it_has_to_be_is_not_believed() {
    let site = Site::start(json!({"ada": person("ada")})).await;
    let now = site.world.clock.now().timestamp();
    for lie in [
        json!({"nonce": "of another login"}),
        json!({"nonce": null}),
        json!({"aud": "another client"}),
        json!({"aud": ["signalbox", "another client"]}),
        json!({"azp": "another client"}),
        json!({"iss": "https://elsewhere.example.org"}),
        json!({"exp": now - 3600}),
        json!({"iat": now - 3600}),
        json!({"iat": now + 3600}),
        // The token's subject differs from the user info's.
        json!({"sub": "somebody else"}),
    ] {
        site.provider.lie(lie.clone()).await;
        let outcome = site.come_as("ada").await;
        assert_eq!(outcome, error("invalid_id_token"), "{lie}");
        site.expect_failure(outcome, "invalid_id_token").await;
    }
    assert_eq!(site.world.count_events("user_identity_linked").await, 0);
    site.provider.lie(json!({})).await;
    site.log_in("ada").await;
    site.finish().await;
}

#[tokio::test]
async fn an_address_that_is_not_verified_makes_and_links_nothing() {
    let with = |verified: Value| json!({"email": "ada@example.org", "email_verified": verified});
    let people = json!({"no": with(json!(false)), "text": with(json!("true")), "silent": with(json!(null)),
        "nameless": {"email_verified": true}, "odd": {"email": "a\r\nb@example.org", "email_verified": true}});
    let site = Site::start(people).await;
    for there_is_an_account in [false, true] {
        if there_is_an_account {
            site.world.user("ada", "operator").await;
        }
        for login in ["no", "text", "silent"] {
            let outcome = site.come_as(login).await;
            site.expect_failure(outcome, "email_unverified").await;
        }
        for login in ["nameless", "odd"] {
            let outcome = site.come_as(login).await;
            site.expect_failure(outcome, "email_missing").await;
        }
    }
    assert_eq!(site.world.count_events("user_identity_linked").await, 0);
    site.finish().await;
}

#[tokio::test]
async fn a_provider_outage_is_reported_before_and_during_a_login() {
    let clock = clock(TimeDelta::minutes(8));
    let provider = OpenIdProvider::start(PUBLIC, json!({"ada": person("ada")})).await;
    let mut site = Site::at(clock.clone(), provider).await;
    let begun = begin(&site.browser()).await;
    let back = Surfer::new().log_in(&begun.page, "ada").await;
    site.provider.stop().await;
    let outcome = come_back(&site.browser(), &back, Some(&begun.cookie)).await;
    site.expect_failure(outcome, "provider_unavailable").await;
    clock.advance(TimeDelta::hours(1));
    let entries = site.world.count_events("log_entry_written").await;
    let answer = site.browser().get("/api/v1/auth/sso/authorize").await;
    assert_eq!(Outcome::read(answer.header("location").unwrap(), ""), error("provider_unavailable"));
    assert!(site.world.count_events("log_entry_written").await > entries, "it is in the log");
    assert_eq!(answer.header("set-cookie"), None);
    site.finish().await;
}

#[tokio::test]
async fn a_provider_that_answers_anything_else_costs_a_bounded_time_and_is_not_believed() {
    let provider = StandIn::start(|_| Reply::Hang).await;
    let clock = clock(TimeDelta::zero());
    let world = World::at(clock.clone(), |config| {
        config.sso.issuer = provider.url.clone();
        config.sso.client_id = "signalbox".to_owned();
        config.sso.public_url = PUBLIC.to_owned();
    })
    .await;
    let metadata = |issuer: &str, token_endpoint: &str| {
        Reply::Json(json!({"issuer": issuer, "authorization_endpoint": "https://id.test/auth",
            "token_endpoint": token_endpoint, "jwks_uri": "https://id.test/keys"}))
    };
    let url = provider.url.as_str();
    // Each gateway asks for itself, and remembers what it heard.
    let browser = world.at_one_gateway().anonymous();
    for reply in [
        Reply::Hang,
        Reply::Status(302),
        Reply::Status(500),
        Reply::Text("<html>".to_owned()),
        Reply::Text(" ".repeat((1 << 20) + 1)),
        Reply::Json(json!({"issuer": url})),
        metadata("https://elsewhere.test", "https://id.test/token"),
        metadata(url, "file:///etc/passwd"),
    ] {
        let shown = format!("{reply:?}").chars().take(100).collect::<String>();
        provider.forget();
        provider.behave(move |_| reply.clone());
        for _ in 0..3 {
            let answer = browser.get("/api/v1/auth/sso/authorize").await;
            let outcome = Outcome::read(answer.header("location").unwrap(), "");
            assert_eq!(outcome, error("provider_unavailable"), "{shown}");
        }
        assert_eq!(provider.seen("GET /.well-known/openid-configuration").len(), 1, "{shown}");
        clock.advance(TimeDelta::seconds(5));
    }
    world.finish().await;
}

#[tokio::test]
async fn logins_by_the_provider_count_like_those_by_password() {
    let clock = clock(TimeDelta::minutes(8));
    let provider = OpenIdProvider::start(PUBLIC, json!({})).await;
    let world = World::at(clock.clone(), |config| {
        provider.configure(&mut config.sso);
        config.limits.logins_per_address = 5;
    })
    .await;
    clock.advance(TimeDelta::minutes(2));
    let client = world.at_one_gateway().anonymous();
    for _ in 0..3 {
        let outcome = come_back(&client, "/api/v1/auth/sso/callback", None).await;
        assert_eq!(outcome, error("invalid_state"));
    }
    for _ in 0..2 {
        super::exchange(&client, &"nobody's".into()).await.error(400);
    }
    super::exchange(&client, &"nobody's".into()).await.error(429);
    let entries = world.count_events("log_entry_written").await;
    assert_eq!(come_back(&client, "/api/v1/auth/sso/callback", None).await, error("rate_limited"));
    assert_eq!(
        world.count_events("log_entry_written").await,
        entries,
        "what is turned away is not written down"
    );
    world.finish().await;
}
