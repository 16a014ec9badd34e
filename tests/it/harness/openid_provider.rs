//! A real OpenID provider as a process, and a browser's walk through its pages without a browser.

use std::{collections::BTreeMap, path::Path, process::Stdio};

use reqwest::{
    Client, RequestBuilder,
    header::{COOKIE, LOCATION, SET_COOKIE},
    redirect::Policy,
};
use serde_json::{Value, json};
use signalbox_config::{Secret, Sso};
use tokio::{
    io::{AsyncBufReadExt, BufReader},
    process::{Child, ChildStdin, Command},
    time::timeout,
};

use super::seconds;

const CLIENT: &str = "signalbox";
/// As it must be encoded before it is put into a header.
const SECRET: &str = "a client's secret: 100 %+";

/// `tests/oidc/provider.mjs`.
pub struct OpenIdProvider {
    pub issuer: String,
    public_url: String,
    child: Child,
    /// The provider ends with it.
    _stdin: ChildStdin,
}

impl OpenIdProvider {
    /// One that knows the service at `public_url`, and `people` by their login: `{"ada": {"email": …}}`.
    pub async fn start(public_url: &str, people: Value) -> Self {
        Self::with(public_url, people, json!({"client_secret": SECRET})).await
    }

    /// [`OpenIdProvider::start`] with other settings: `client_secret`, `email_in_id_token`.
    pub async fn with(public_url: &str, people: Value, settings: Value) -> Self {
        let mut settings = settings;
        settings["host"] = json!("localhost");
        settings["client_id"] = json!(CLIENT);
        settings["redirect_uri"] = json!(format!("{public_url}/api/v1/auth/sso/callback"));
        settings["people"] = people;
        let program = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/oidc/provider.mjs");
        let mut command = Command::new("node");
        command.arg(program).arg(settings.to_string()).kill_on_drop(true);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().expect("node is needed to run the OpenID provider of the tests");
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let line =
            timeout(seconds(60), lines.next_line()).await.expect("the provider does not begin").unwrap();
        let issuer = line.expect("the provider has ended: install what it needs with tools/bootstrap");
        let (public_url, stdin) = (public_url.to_owned(), child.stdin.take().unwrap());
        Self { issuer, public_url, child, _stdin: stdin }
    }

    /// Has a service use it.
    pub fn configure(&self, sso: &mut Sso) {
        sso.issuer = self.issuer.clone();
        sso.provider_name = "Plant".to_owned();
        sso.client_id = CLIENT.to_owned();
        sso.client_secret = Secret::new(SECRET.to_owned());
        sso.public_url = self.public_url.clone();
    }

    /// It signs with new keys from now on.
    pub async fn rotate(&self) {
        self.order("rotate", json!({})).await;
    }

    /// Its ID tokens say what is in `claims` from now on.
    pub async fn lie(&self, claims: Value) {
        self.order("lie", claims).await;
    }

    async fn order(&self, what: &str, body: Value) {
        let url = format!("{}/test/{what}", self.issuer);
        let answer = Client::new().post(url).body(body.to_string()).send().await.unwrap();
        assert_eq!(answer.status(), 204);
    }

    /// It is gone from now on.
    pub async fn stop(&mut self) {
        self.child.kill().await.unwrap();
    }
}

/// Follows redirects and keeps cookies.
#[derive(Debug, Default)]
pub struct Surfer {
    http: Client,
    cookies: BTreeMap<String, String>,
}

/// Where a walk ends.
enum Place {
    /// The provider shows a page.
    Page { url: String, html: String },
    /// The provider sends the browser away.
    Away(String),
}

impl Surfer {
    pub fn new() -> Self {
        let http = Client::builder().redirect(Policy::none()).build().unwrap();
        Self { http, cookies: BTreeMap::new() }
    }

    /// Opens `url`, logs in as `login`, and consents; returns the provider's redirect.
    pub async fn log_in(&mut self, url: &str, login: &str) -> String {
        let mut place = self.walk(self.http.get(url), url).await;
        loop {
            let (url, html) = match place {
                Place::Away(to) => return to,
                Place::Page { url, html } => (url, html),
            };
            let asks_for_login = html.contains("value=\"login\"");
            let form: &[(&str, &str)] = match asks_for_login {
                true => &[("prompt", "login"), ("login", login), ("password", "any")],
                false => &[("prompt", "consent")],
            };
            place = self.walk(self.http.post(&url).form(form), &url).await;
        }
    }

    async fn walk(&mut self, first: RequestBuilder, url: &str) -> Place {
        let (mut request, mut url) = (first, reqwest::Url::parse(url).unwrap());
        let origin = url.origin();
        loop {
            let cookies: Vec<_> =
                self.cookies.iter().map(|(name, value)| format!("{name}={value}")).collect();
            let answer = request.header(COOKIE, cookies.join("; ")).send().await.unwrap();
            for cookie in answer.headers().get_all(SET_COOKIE) {
                let (name, rest) = cookie.to_str().unwrap().split_once('=').unwrap();
                let value = rest.split(';').next().unwrap();
                self.cookies.insert(name.to_owned(), value.to_owned());
            }
            let Some(to) = answer.headers().get(LOCATION) else {
                assert!(answer.status().is_success(), "{url}: {}", answer.text().await.unwrap());
                return Place::Page { url: url.to_string(), html: answer.text().await.unwrap() };
            };
            url = url.join(to.to_str().unwrap()).unwrap();
            if url.origin() != origin {
                return Place::Away(url.to_string());
            }
            request = self.http.get(url.clone());
        }
    }
}
