//! Single sign-on, against a real OpenID provider.

mod accounts;
mod browser;
mod failures;
mod login;

use chrono::TimeDelta;
use reqwest::{
    Method, Url,
    header::{COOKIE, SET_COOKIE},
};
use serde_json::{Value, json};
use signalbox_clock::Clock;

use crate::harness::{Answer, Client, OpenIdProvider, Surfer, World};

/// Where browsers reach the service.
const PUBLIC: &str = "https://signalbox.test";

/// A service that uses a provider.
struct Site {
    world: World,
    provider: OpenIdProvider,
}

/// A login that was begun.
struct Begun {
    /// The provider's page.
    page: String,
    /// The cookie that the browser sends back.
    cookie: String,
}

/// A code for the front end, and the cookie of the browser that was given it.
#[derive(Debug, Default, PartialEq, Eq)]
struct Code {
    text: String,
    cookie: String,
}

impl From<&str> for Code {
    fn from(text: &str) -> Self {
        Self { text: text.to_owned(), ..Self::default() }
    }
}

/// The browser's return to the front end.
#[derive(Debug, PartialEq, Eq)]
enum Outcome {
    Code(Code),
    Error(String),
}

impl Site {
    async fn start(people: Value) -> Self {
        let provider = OpenIdProvider::start(PUBLIC, people).await;
        Self::at(Clock::system(), provider).await
    }

    async fn at(clock: Clock, provider: OpenIdProvider) -> Self {
        let world = World::at(clock, |config| provider.configure(&mut config.sso)).await;
        Self { world, provider }
    }

    fn browser(&self) -> Client {
        self.world.anonymous()
    }

    /// Opens the provider without a login there, and returns as `login`.
    async fn come_as(&self, login: &str) -> Outcome {
        let begun = begin(&self.browser()).await;
        let back = Surfer::new().log_in(&begun.page, login).await;
        come_back(&self.browser(), &back, Some(&begun.cookie)).await
    }

    /// The whole way; returns the user record.
    async fn log_in(&self, login: &str) -> Value {
        let code = self.come_as(login).await.code();
        let out = exchange(&self.browser(), &code).await.expect(200);
        let client = self.browser().with_token(out["access_token"].as_str().unwrap());
        let me = client.get("/api/v1/auth/me").await.expect(200);
        assert_eq!((&me["public_id"], &me["username"]), (&out["public_id"], &out["username"]));
        me
    }

    /// The newest entry about a login of `kind` that mentions `content`. Some are of the same time as that of the world's admin.
    async fn last_entry(&self, kind: &str, content: &str) -> Value {
        let entries = format!("/api/v1/logging?source=auth&type={kind}&content={content}&page_size=1");
        self.world.admin.get(&entries).await.expect(200)["data"][0].clone()
    }

    /// Fails unless `outcome` is this error, explained in words and logged.
    async fn expect_failure(&self, outcome: Outcome, code: &str) {
        assert_eq!(outcome, Outcome::Error(code.to_owned()));
        let content = self.last_entry("warning", "sign-on").await["content"].clone();
        let content = content.as_str().unwrap();
        assert!(content.starts_with("A single sign-on from 127.0.0.1 failed. "), "{content}");
    }

    async fn finish(self) {
        self.world.finish().await;
    }
}

impl Outcome {
    /// From the address of the front end, and what the browser is to keep.
    fn read(location: &str, cookie: &str) -> Self {
        // Without an address of its own the front end is where the service is.
        assert!(location.starts_with("/sso-callback?"), "{location}");
        let url = Url::parse(PUBLIC).unwrap().join(location).unwrap();
        let find =
            |name: &str| url.query_pairs().find(|(key, _)| key == name).map(|(_, value)| value.into_owned());
        match (find("code"), find("error")) {
            (Some(text), None) => Self::Code(Code { text, cookie: kept(cookie) }),
            (None, Some(error)) => {
                assert!(find("error_description").unwrap().ends_with('.'), "{location}");
                Self::Error(error)
            }
            _ => panic!("{location}"),
        }
    }

    #[track_caller]
    fn code(self) -> Code {
        match self {
            Self::Code(code) => code,
            Self::Error(error) => panic!("{error}"),
        }
    }
}

/// Starts a login at the gateway of `client`.
async fn begin(client: &Client) -> Begun {
    let answer = client.get("/api/v1/auth/sso/authorize").await;
    assert_eq!(answer.status, 307, "{}", answer.text());
    let set = answer.header(SET_COOKIE.as_str()).unwrap_or_else(|| panic!("{:?}", answer.header("location")));
    let cookie = kept(set);
    Begun { page: answer.header("location").unwrap().to_owned(), cookie }
}

/// The pair that a browser sends back of what it is to keep.
fn kept(set_cookie: &str) -> String {
    set_cookie.split(';').next().unwrap().to_owned()
}

/// The browser follows the redirect `back` of the provider to the gateway of `client`.
async fn come_back(client: &Client, back: &str, cookie: Option<&str>) -> Outcome {
    let answer = callback(client, back, cookie).await;
    Outcome::read(answer.header("location").unwrap(), answer.header(SET_COOKIE.as_str()).unwrap())
}

async fn callback(client: &Client, back: &str, cookie: Option<&str>) -> Answer {
    let path = back.strip_prefix(PUBLIC).unwrap_or(back);
    let mut request = client.request(Method::GET, path);
    if let Some(cookie) = cookie {
        request = request.header(COOKIE, cookie);
    }
    let answer = client.send(request).await;
    assert_eq!(answer.status, 307, "{}", answer.text());
    assert_eq!(answer.header("cache-control"), Some("no-store"));
    answer
}

async fn exchange(client: &Client, code: &Code) -> Answer {
    let request =
        client.request(Method::POST, "/api/v1/auth/sso/exchange").json(&json!({ "code": code.text }));
    client.send(request.header(COOKIE, &code.cookie)).await
}

/// A clock that stands still, `ahead` of the provider's, which runs; no token may be from the future.
fn clock(ahead: TimeDelta) -> Clock {
    Clock::manual(Clock::system().now() + ahead)
}

/// Somebody whose address the provider has verified.
fn person(login: &str) -> Value {
    json!({"email": format!("{login}@example.org"), "email_verified": true, "preferred_username": login})
}
