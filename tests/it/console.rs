//! The console, used in a browser as people use it. The script is in TypeScript, in `console/tests`, and does what a person
//! can do; this test does for it what a browser cannot: run agents, record values, stop the gateway.

use std::{
    collections::BTreeSet,
    fs,
    net::SocketAddr,
    path::{Path, PathBuf},
    process::Stdio,
};

use chrono::TimeDelta;
use serde_json::{Value, json};
use tokio::{
    io::{AsyncBufReadExt, BufReader},
    process::Command,
    time::timeout,
};

use crate::harness::{
    ADMIN, Folder, PASSWORD, RealAgent, RealGateway, Transport, World, description, eventually_some, seconds,
};

fn in_repository(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

fn node() -> Command {
    let node = in_repository(".tools/node/bin/node");
    assert!(node.exists(), "Node is missing: run tools/bootstrap");
    let mut command = Command::new(node);
    command.stdin(Stdio::null()).kill_on_drop(true);
    command
}

/// The environment of a script in a browser, and the actions that its lines request.
struct Backstage {
    world: World,
    /// None between its kill and its restart.
    gateway: Option<RealGateway>,
    address: SocketAddr,
    source: Folder,
    destination: Folder,
    agents: Vec<RealAgent>,
}

impl Backstage {
    async fn build() -> Self {
        let world = World::with(|config| config.extraction.parsers = 1).await;
        let gateway = RealGateway::start(&world.config).await;
        let (address, gateway) = (gateway.address, Some(gateway));
        Self {
            world,
            gateway,
            address,
            source: Folder::new(),
            destination: Folder::new(),
            agents: Vec::new(),
        }
    }

    fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    async fn obey(&mut self, line: &str) {
        match *line.splitn(3, ' ').collect::<Vec<_>>() {
            ["agent", token, name] => {
                let folder = if name == "source" { &self.source } else { &self.destination };
                let agent = RealAgent::start(&self.url(), token, folder, Transport::Auto);
                self.agents.push(agent);
            }
            ["values", channel] => self.record(channel).await,
            ["gateway", "kill"] => {
                let gateway = self.gateway.take().expect("the gateway is stopped");
                gateway.kill().await;
            }
            ["gateway", "start"] => {
                self.gateway = Some(RealGateway::start_at(&self.world.config, self.address).await);
            }
            _ => panic!("the script asks for something unknown: {line}"),
        }
    }

    /// Values around 25 within the last minute, up to now.
    async fn record(&self, channel: &str) {
        let admin = &self.world.admin;
        let id = eventually_some(seconds(20), async || {
            let found = admin.get("/api/v1/events?page_size=100").await.expect(200);
            let events: &Vec<Value> = found["data"].as_array().unwrap();
            let event = events.iter().find(|event| event["name"] == channel);
            event.map(|event| event["public_id"].clone())
        })
        .await;
        let now = self.world.clock.now();
        let item = |index: i32| {
            let time = now - TimeDelta::milliseconds(i64::from(200 - index) * 250);
            json!({"event_public_id": id, "value": 15 + index % 20, "timestamp": time.to_rfc3339()})
        };
        let mut items: Vec<_> = (0..200).map(item).collect();
        items.push(json!({"event_public_id": id, "value": 24}));
        admin.post("/api/v1/datapoints/batch", json!({ "datapoints": items })).await.expect(201);
    }

    async fn close(self) {
        for agent in self.agents {
            agent.stop().await;
        }
        if let Some(gateway) = self.gateway {
            gateway.kill().await;
        }
        self.world.finish().await;
    }
}

/// Every page in light and dark, wide and narrow; the main job of each service; two users; an outage; an ended login.
#[tokio::test(flavor = "multi_thread")]
async fn people_do_their_work_in_a_browser() {
    let built = in_repository("console/assets/built/index.html");
    assert!(built.exists(), "the console is not built: run tools/console, then build the tests again");
    let mut backstage = Backstage::build().await;
    let mut command = node();
    command
        .arg(in_repository("console/tests/run.ts"))
        .env("SIGNALBOX_URL", backstage.url())
        .env("SIGNALBOX_ADMIN", ADMIN)
        .env("SIGNALBOX_PASSWORD", PASSWORD)
        .env("SOURCE_FOLDER", backstage.source.path(""))
        .env("DOCUMENT", in_repository("tests/documents/report.pdf"))
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut script = command.spawn().unwrap();
    let mut lines = BufReader::new(script.stdout.take().unwrap()).lines();
    let mut said = BufReader::new(script.stderr.take().unwrap()).lines();
    let saying = tokio::spawn(async move {
        let mut all = String::new();
        while let Ok(Some(line)) = said.next_line().await {
            println!("{line}");
            all.extend([line.as_str(), "\n"]);
        }
        all
    });
    let ended = timeout(seconds(400), async {
        while let Some(line) = lines.next_line().await.unwrap() {
            backstage.obey(&line).await;
        }
        script.wait().await.unwrap()
    });
    let status = ended.await.expect("the script does not end");
    let said = saying.await.unwrap();
    assert!(status.success(), "{said}");
    backstage.close().await;
}

#[tokio::test]
async fn types_of_the_console_are_those_of_the_interface() {
    let written = fs::read(in_repository("console/openapi.json")).unwrap();
    let written: Value = serde_json::from_slice(&written).unwrap();
    assert!(written == *description(), "console/openapi.json is stale: run make openapi");
    let generator = in_repository("console/node_modules/openapi-typescript/bin/cli.js");
    assert!(generator.exists(), "the console's packages are missing: run tools/console");
    let mut check = node();
    check.arg(generator).args(["openapi.json", "-o", "../clients/typescript/schema.d.ts", "--check"]);
    let check = check.current_dir(in_repository("console")).output().await.unwrap();
    assert!(check.status.success(), "clients/typescript/schema.d.ts is stale: run make openapi");
}

/// Codes of problems in the texts of the description, each as `code`: explanation.
fn documented_codes(description: &Value) -> BTreeSet<String> {
    let operations = description["paths"]
        .as_object()
        .unwrap()
        .values()
        .flat_map(|path| path.as_object().unwrap().values());
    let responses = operations.filter_map(|operation| operation["responses"].as_object()).flatten();
    let errors = responses.filter(|(status, _)| status.starts_with(['4', '5']));
    let texts = errors.filter_map(|(_, response)| response["description"].as_str());
    texts
        .flat_map(|text| text.split('`').collect::<Vec<_>>().windows(2).map(code_in).collect::<Vec<_>>())
        .flatten()
        .collect()
}

/// The first of two neighbouring pieces, if the second explains it.
fn code_in(pieces: &[&str]) -> Option<String> {
    let [code, text] = pieces else { return None };
    let is_word = !code.is_empty() && code.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_');
    (is_word && text.starts_with(": ")).then(|| (*code).to_owned())
}

#[tokio::test]
async fn documented_problems_have_german_texts() {
    let texts = fs::read_to_string(in_repository("console/src/lib/texts/problems.ts")).unwrap();
    let codes = documented_codes(description());
    assert!(codes.contains("last_admin"), "no codes were found in the description");
    let missing: Vec<_> = codes.iter().filter(|code| !texts.contains(&format!("\n  {code}: '"))).collect();
    assert!(missing.is_empty(), "console/src/lib/texts/problems.ts has no text for {missing:?}");
}
