//! A real browser. The provider and the service are different sites to it.

use serde_json::json;

use super::person;
use crate::harness::{Browser, OpenIdProvider, World};

const SITE: &str = "http://signalbox.test";

async fn open_login(people: serde_json::Value) -> (World, OpenIdProvider, Browser) {
    let provider = OpenIdProvider::start(SITE, people).await;
    let world = World::with(|config| provider.configure(&mut config.sso)).await;
    let mut browser = Browser::start("signalbox.test", world.address).await;
    browser.open(&format!("{SITE}/api/v1/auth/sso/authorize")).await;
    browser.until("!!document.querySelector('input[name=login]')").await;
    (world, provider, browser)
}

#[tokio::test]
async fn a_person_logs_in_in_a_browser() {
    let (world, _provider, mut browser) = open_login(json!({"ada": person("ada")})).await;
    let fill = "document.querySelector('input[name=login]').value = 'ada';
        document.querySelector('input[name=password]').value = 'any';
        document.querySelector('form').submit(); true";
    browser.until(fill).await;
    browser.until("!!document.querySelector('input[value=consent]')").await;
    browser.until("document.querySelector('form').submit(); true").await;
    browser.until("location.href.startsWith('http://signalbox.test/sso-callback?code=')").await;
    let exchange = "fetch('/api/v1/auth/sso/exchange', {method: 'POST', body: JSON.stringify({code:
        new URLSearchParams(location.search).get('code')})}).then(answer => answer.json())";
    let out = browser.until(exchange).await;
    assert_eq!(out["username"], "ada", "{out}");
    let client = world.anonymous().with_token(out["access_token"].as_str().unwrap());
    assert_eq!(client.get("/api/v1/auth/me").await.expect(200)["email"], "ada@example.org");
    assert_eq!(browser.until("'cookies: ' + document.cookie").await, "cookies: ");
    browser.close().await;
    world.finish().await;
}

#[tokio::test]
async fn a_declined_login_is_reported_in_a_browser() {
    let (world, _provider, mut browser) = open_login(json!({})).await;
    browser.until("document.querySelector('a[href$=abort]').click(); true").await;
    browser.until("location.href.startsWith('http://signalbox.test/sso-callback?')").await;
    let error = browser.until("new URLSearchParams(location.search).get('error')").await;
    assert_eq!(error, "access_denied");
    let words = browser.until("new URLSearchParams(location.search).get('error_description')").await;
    assert!(words.as_str().unwrap().starts_with("The login was declined"), "{words}");
    assert_eq!(world.count_events("user_created").await, 1, "the admin alone");
    browser.close().await;
    world.finish().await;
}
