//! Every command of the documents is run, in their order, against a service. The shown answer (`# → …`, or the lines below the
//! command) is compared with the real one; a value that is cut short in it, such as `01a1…`, stands for the real value from then on.

use std::{
    collections::BTreeMap,
    fs,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    process::Stdio,
    sync::LazyLock,
    time::Duration,
};

use regex::{Captures, Regex};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncBufReadExt, AsyncWriteExt, BufReader},
    process::{Child, ChildStdin, ChildStdout},
    time::{Instant, sleep, timeout},
};

use super::v1::plugins::WEATHER;
use crate::harness::{ADMIN, Folder, PASSWORD, RealAgent, Transport, Wheel, World, program, seconds};

/// The service's address in the documents.
const ADDRESSES: [&str; 5] = [
    "http://localhost:8080",
    "localhost:8080",
    "http://gateway:8080",
    "http://gateway-1:8080",
    "https://files.example.org",
];

/// Beginnings of commands that are not run here, and why.
const ELSEWHERE: [(&str, &str); 15] = [
    ("make ", "the doors of the repository are run by themselves"),
    ("WORKING_SET=1 make ", "the same"),
    ("tools/", "the same"),
    ("SIGNALBOX_WRITE_GOLDEN=1 cargo ", "the same"),
    ("useradd ", "needs root"),
    ("cp deploy/", "needs root"),
    ("systemctl ", "needs systemd"),
    ("docker ", "needs Docker"),
    ("SIGNALBOX_TELEMETRY__OTLP_ENDPOINT=", "does not end; tests of traces have a collector"),
    ("pg_basebackup ", "tests of replicas make one"),
    ("pip install ", "loads packages"),
    ("export SIGNALBOX_TOKEN=", "only for the next command"),
    ("signalbox-controller ", "does not end; tests of plugins run it"),
    ("signalbox log tail -f", "does not end; tests of the log follow it"),
    ("signalbox log import ", "needs an empty database; tests of the log have one"),
];

/// Paths outside of a user's reach; those below the test's folder take their place.
static PATHS: LazyLock<Regex> =
    LazyLock::new(|| Regex::new(r#"(^|[\s="'])(/(?:etc|srv|usr/local|var/lib)/[^\s"']*)"#).unwrap());
/// A value that is cut short, in an answer that is cut short, too.
static FIELDS: LazyLock<Regex> =
    LazyLock::new(|| Regex::new(r#""(\w+)":\s*(?:"([^"]*)"|(\d+|true|false|null))"#).unwrap());

/// A command in a document, and the answer below or beside it.
#[derive(Debug, Default)]
struct Shown {
    line: usize,
    text: String,
    answer: String,
}

/// A document's commands, and the files that it shows before them.
#[derive(Debug, Default)]
struct Document {
    commands: Vec<Shown>,
    files: BTreeMap<String, String>,
}

impl Document {
    /// Commands are in blocks of `console`, behind `$ `, and of `sh`. A block of JSON is a file if a file's name
    /// is at the start of the sentence before it.
    fn read(text: &str) -> Self {
        let mut document = Self::default();
        let mut block: Option<(&str, String)> = None;
        let (mut named, mut is_open, mut starts) = (None, false, true);
        for (number, line) in (1..).zip(text.lines()) {
            let trimmed = line.trim_start();
            match (&mut block, trimmed.strip_prefix("```")) {
                (None, Some(language)) => block = Some((language, String::new())),
                (None, None) => {
                    if starts && !trimmed.is_empty() {
                        named = file_name(trimmed);
                    }
                    starts = trimmed.is_empty();
                }
                (Some((language, content)), Some(_)) => {
                    if let (Some(name), true) = (named.take(), *language == "json") {
                        document.files.insert(name, content.clone());
                    }
                    block = None;
                    assert!(!is_open, "line {number}: a command has no end");
                }
                (Some((language @ ("console" | "sh"), _)), None) => {
                    let start = if *language == "sh" { Some(trimmed) } else { trimmed.strip_prefix("$ ") };
                    match (is_open, start, document.commands.last_mut()) {
                        (true, _, Some(last)) => last.text.extend(["\n", trimmed]),
                        (false, Some(text), _) => {
                            document.commands.push(Shown {
                                line: number,
                                text: text.to_owned(),
                                ..Shown::default()
                            });
                        }
                        (_, _, Some(last)) => last.answer.extend([line, "\n"]),
                        _ => panic!("line {number}: an answer without a command"),
                    }
                    let last = document.commands.last_mut().unwrap();
                    is_open = last.answer.is_empty() && is_incomplete(&last.text);
                    if let Some((_, answer)) = last.text.split_once("# → ") {
                        last.answer = answer.to_owned();
                    }
                }
                (Some((_, content)), None) => content.extend([line, "\n"]),
            }
        }
        document
    }
}

/// The name at the beginning of "`mqtt.json`. …".
fn file_name(sentence: &str) -> Option<String> {
    let name = sentence.strip_prefix('`')?.split_once('`')?.0;
    name.ends_with(".json").then(|| name.to_owned())
}

/// Whether a shell would read on: an open quote, or a line that continues.
fn is_incomplete(text: &str) -> bool {
    let mut quote = None;
    let mut characters = text.chars();
    while let Some(character) = characters.next() {
        match (quote, character) {
            (None | Some('"'), '\\') => drop(characters.next()),
            (None, '"' | '\'') => quote = Some(character),
            (Some(open), character) if open == character => quote = None,
            (None, '#') => break,
            _ => {}
        }
    }
    quote.is_some() || text.ends_with(['\\', '|'])
}

/// A shell that runs one command after the other.
struct Shell {
    _child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Shell {
    async fn start(world: &World, folder: &Folder, variables: &[(&str, String)]) -> Self {
        let built = Path::new(env!("CARGO_BIN_EXE_signalbox")).parent().unwrap();
        let path = format!("{}:{}", built.display(), std::env::var("PATH").unwrap());
        let settings = program(&world.config);
        let mut bash = tokio::process::Command::new("bash");
        bash.args(["--norc", "--noprofile"]).current_dir(folder.path("")).env("PATH", path);
        for (name, value) in settings.as_std().get_envs() {
            if let Some(value) = value {
                bash.env(name, value);
            }
        }
        bash.env("HOME", folder.path("")).env("SIGNALBOX_AGENT_CONFIG", folder.path("agent.toml"));
        bash.envs(variables.iter().map(|(name, value)| (name, value)));
        bash.stdin(Stdio::piped()).stdout(Stdio::piped()).kill_on_drop(true);
        let mut child = bash.spawn().unwrap();
        let (input, output) = (child.stdin.take().unwrap(), BufReader::new(child.stdout.take().unwrap()));
        let mut shell = Self { _child: child, input, output };
        shell.run("exec 2>&1; set +o history; set -o pipefail; curl() { command curl --fail-with-body --max-time 150 \"$@\"; }").await;
        shell
    }

    /// Runs a command. One that reads only is repeated until it succeeds, as a user does who waits for a job.
    async fn run_until_well(&mut self, command: &str) -> (i32, String) {
        let only_reads =
            command.starts_with("curl") && ![" -d", " -F", " -X"].iter().any(|flag| command.contains(flag));
        let mut last = self.run(command).await;
        let begun = Instant::now();
        while only_reads && last.0 != 0 && begun.elapsed() < seconds(120) {
            sleep(Duration::from_millis(100)).await;
            last = self.run(command).await;
        }
        last
    }

    /// The exit code and the output of a command.
    async fn run(&mut self, command: &str) -> (i32, String) {
        // Commands that ask get no answer.
        let line = format!("{{ {command}\n}} </dev/null\nprintf '\\036%s\\n' $?\n");
        self.input.write_all(line.as_bytes()).await.unwrap();
        let mut output = String::new();
        let read = async {
            loop {
                let mut line = String::new();
                assert!(
                    self.output.read_line(&mut line).await.unwrap() > 0,
                    "the shell has ended:\n{output}"
                );
                if let Some((before, code)) = line.split_once('\x1e') {
                    output.push_str(before);
                    return code.trim().parse().unwrap();
                }
                output.push_str(&line);
            }
        };
        let code = timeout(seconds(180), read).await.unwrap_or_else(|_| panic!("does not end: {command}"));
        (code, output)
    }
}

/// Puts the test's address, folder and values in place of the shown ones.
fn adapted(text: &str, url: &str, folder: &Folder, values: &BTreeMap<String, String>) -> String {
    let mut text = text.to_owned();
    for (shown, real) in values {
        text = text.replace(shown, real);
    }
    for address in ADDRESSES {
        text = text.replace(address, url);
    }
    PATHS
        .replace_all(&text, |found: &Captures<'_>| {
            let path = folder.text(found[2].trim_start_matches('/'));
            // Roots of agents are there, files of others are made.
            let is_root = found[2].starts_with("/srv");
            let there = if is_root { Path::new(&path) } else { Path::new(&path).parent().unwrap() };
            fs::create_dir_all(there).unwrap();
            format!("{}{path}", &found[1])
        })
        .into_owned()
}

/// The difference between the shown answer and the real one. Takes the values that are cut short in the first.
fn difference(said: &str, output: &str, values: &mut BTreeMap<String, String>) -> Option<String> {
    if said.is_empty() {
        return None;
    }
    let real: Value = match serde_json::from_str(output) {
        Ok(real) => real,
        Err(error) => return Some(format!("not JSON: {error}")),
    };
    if let Ok(said) = serde_json::from_str::<Value>(said)
        && !said.to_string().contains('…')
    {
        return (real != said).then(|| format!("{said:#} is said"));
    }
    for field in FIELDS.captures_iter(said) {
        let Some(value) = find(&real, &field[1]) else { return Some(format!("no {}", &field[1])) };
        let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        let shown = field.get(2).or(field.get(3)).unwrap().as_str();
        match shown.strip_suffix('…') {
            Some("") => {}
            Some(_) => drop(values.insert(shown.to_owned(), text)),
            None if text != shown => return Some(format!("{} is not {shown}", &field[1])),
            None => {}
        }
    }
    None
}

/// The first value of this name, at any depth.
fn find<'a>(value: &'a Value, name: &str) -> Option<&'a Value> {
    match value {
        Value::Object(fields) => {
            fields.get(name).or_else(|| fields.values().find_map(|inner| find(inner, name)))
        }
        Value::Array(items) => items.iter().find_map(|inner| find(inner, name)),
        _ => None,
    }
}

/// The documents with commands: the README, whose ids are those of a new system, is the first.
fn documents() -> Vec<PathBuf> {
    let top = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut found: Vec<_> = fs::read_dir(top.join("docs"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "md"))
        .collect();
    found.sort();
    found.insert(0, top.join("README.md"));
    found
}

/// Makes the files and gives the variables that the documents use.
async fn surroundings(world: &World, folder: &Folder) -> Vec<(&'static str, String)> {
    let documents = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/documents");
    for (name, file) in [
        ("report.pdf", "report.pdf"),
        ("book.pdf", "report.pdf"),
        ("scan.pdf", "scan.pdf"),
        ("letter.docx", "letter.docx"),
    ] {
        folder.write(name, fs::read(documents.join(file)).unwrap());
    }
    folder.write("data/admin-password", PASSWORD);
    symlink(Path::new(env!("CARGO_MANIFEST_DIR")).join(".tools"), folder.path(".tools")).unwrap();
    let wheel = Wheel::new("weather", "signalbox.plugins", WEATHER);
    folder.write("plugin_weather-1.0.0-py3-none-any.whl", wheel.bytes());
    folder.write("build/run", "#!/bin/sh\n");
    let login = json!({"email": ADMIN, "password": PASSWORD});
    let token = world.anonymous().post("/api/v1/auth/login", login).await.expect(200);
    let token = token["access_token"].as_str().unwrap().to_owned();
    vec![("URL", world.admin.url("")), ("TOKEN", token), ("PASSWORD", PASSWORD.to_owned())]
}

/// Values for the names in a document that it does not make itself.
async fn known_values(world: &World, document: &Path) -> BTreeMap<String, String> {
    let mut values = BTreeMap::from([("admin@signalbox.local".to_owned(), ADMIN.to_owned())]);
    if document.ends_with("agent.md") {
        values.insert("TOKEN=…".to_owned(), format!("TOKEN={}", world.agent("lathe").await.token));
    }
    if document.ends_with("register.md") {
        let found = world.admin.get("/api/v1/log?stream_type=transfer&page_size=1").await.expect(200);
        let event = found["data"].as_array().and_then(|events| events.first()).expect("no transfer was made");
        values.insert("4711".to_owned(), event["position"].to_string());
        values.insert("0190…".to_owned(), event["stream_id"].as_str().unwrap().to_owned());
    }
    values
}

#[tokio::test]
async fn the_commands_of_the_documents_do_what_is_said() {
    let world = World::with(|config| config.extraction.parsers = 1).await;
    let folder = Folder::new();
    let variables = surroundings(&world, &folder).await;
    let mut unused: Vec<_> = ELSEWHERE.iter().map(|(beginning, _)| *beginning).collect();
    let mut faults = Vec::new();
    for path in documents() {
        let document = Document::read(&fs::read_to_string(&path).unwrap());
        for (name, content) in &document.files {
            folder.write(name, content);
        }
        let mut shell = Shell::start(&world, &folder, &variables).await;
        let mut values = known_values(&world, &path).await;
        for command in document.commands {
            if let Some((beginning, _)) =
                ELSEWHERE.iter().find(|(beginning, _)| command.text.starts_with(beginning))
            {
                unused.retain(|unused| unused != beginning);
                continue;
            }
            let text = adapted(&command.text, &world.admin.url(""), &folder, &values);
            let (code, output) = shell.run_until_well(&text).await;
            let fault = match code {
                0 => difference(&command.answer, &output, &mut values),
                code => Some(format!("exit code {code}")),
            };
            if let Some(fault) = fault {
                println!("{}:{}: {fault}\n{text}\n{output}\n", path.display(), command.line);
                faults.push(format!("{}:{}", path.display(), command.line));
            }
        }
    }
    // The README's job waits for its agents.
    let mut agents = Vec::new();
    for id in [1, 2] {
        let token = world.admin.post("/api/tokens", json!({"name": "run", "agent_id": id})).await.expect(201);
        let token = token["value"].as_str().unwrap();
        agents.push(RealAgent::start(&world.admin.url(""), token, &folder, Transport::Auto));
    }
    world.until_transfer(1, |transfer| transfer["finished_at"].is_string()).await;
    world.until_mail_is_gone().await;
    for agent in agents {
        agent.stop().await;
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
    assert!(unused.is_empty(), "no command has this beginning any more: {unused:?}");
    world.finish().await;
}
