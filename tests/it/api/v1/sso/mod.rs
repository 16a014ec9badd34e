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
    /// What the browser sends back.
    cookie: String,
}

/// How a browser comes to the front end.
#[derive(Debug, PartialEq, Eq)]
enum Outcome {
    Code(String),
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

    /// Goes to the provider with nobody logged in there, and comes back as `login`.
    async fn come_as(&self, login: &str) -> Outcome {
        let begun = begin(&self.browser()).await;
        let back = Surfer::new().log_in(&begun.page, login).await;
        come_back(&self.browser(), &back, Some(&begun.cookie)).await
    }

    /// The whole way; gives back the user record.
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
        let wanted = format!("/api/v1/logging?source=auth&type={kind}&content={content}&page_size=1");
        self.world.admin.get(&wanted).await.expect(200)["data"][0].clone()
    }

    /// Fails unless `outcome` is this error, told in words, and written down.
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
    /// From the address of the front end.
    fn read(location: &str) -> Self {
        // Without an address of its own the front end is where the service is.
        assert!(location.starts_with("/sso-callback?"), "{location}");
        let url = Url::parse(PUBLIC).unwrap().join(location).unwrap();
        let find =
            |name: &str| url.query_pairs().find(|(key, _)| key == name).map(|(_, value)| value.into_owned());
        match (find("code"), find("error")) {
            (Some(code), None) => Self::Code(code),
            (None, Some(error)) => {
                assert!(find("error_description").unwrap().ends_with('.'), "{location}");
                Self::Error(error)
            }
            _ => panic!("{location}"),
        }
    }

    #[track_caller]
    fn code(self) -> String {
        match self {
            Self::Code(code) => code,
            Self::Error(error) => panic!("{error}"),
        }
    }
}

/// Begins a login at the gateway of `client`.
async fn begin(client: &Client) -> Begun {
    let answer = client.get("/api/v1/auth/sso/authorize").await;
    assert_eq!(answer.status, 307, "{}", answer.text());
    let set = answer.header(SET_COOKIE.as_str()).unwrap_or_else(|| panic!("{:?}", answer.header("location")));
    let cookie = set.split(';').next().unwrap().to_owned();
    Begun { page: answer.header("location").unwrap().to_owned(), cookie }
}

/// The browser comes to the gateway of `client` by the address `back` that the provider gave it.
async fn come_back(client: &Client, back: &str, cookie: Option<&str>) -> Outcome {
    let answer = callback(client, back, cookie).await;
    Outcome::read(answer.header("location").unwrap())
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

async fn exchange(client: &Client, code: &str) -> Answer {
    client.post("/api/v1/auth/sso/exchange", json!({ "code": code })).await
}

/// A clock that stands still, `ahead` of the provider's: that one goes on, and no token may come from the future.
fn clock(ahead: TimeDelta) -> Clock {
    Clock::manual(Clock::system().now() + ahead)
}

/// Somebody whose address the provider has verified.
fn person(login: &str) -> Value {
    json!({"email": format!("{login}@example.org"), "email_verified": true, "preferred_username": login})
}
