//! A configuration in the form that another process is given.

use serde_json::Value;
use signalbox_config::Config;
use tokio::process::Command;

/// Replaces a secret in a printed configuration.
const HIDDEN: &str = "***";

/// The program with all settings of `config`, killed when it is dropped.
pub fn program(config: &Config) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_signalbox"));
    command.env_remove("SIGNALBOX_CONFIG").envs(variables(config)).kill_on_drop(true);
    command
}

/// Variables that give a process of the service all settings of `config`.
fn variables(config: &Config) -> Vec<(String, String)> {
    let Value::Object(sections) = serde_json::to_value(config).unwrap() else { panic!("not sections") };
    let mut variables = Vec::new();
    for (section, values) in sections {
        let Value::Object(values) = values else { panic!("{section} is not a section") };
        for (key, value) in values {
            let name = format!("{section}.{key}");
            let text = match text_of(&value) {
                hidden if hidden == HIDDEN => secret(config, &name).to_owned(),
                text => text,
            };
            variables.push((format!("SIGNALBOX_{section}__{key}").to_ascii_uppercase(), text));
        }
    }
    variables
}

fn text_of(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        Value::Array(items) => items.iter().map(text_of).collect::<Vec<_>>().join(","),
        other => other.to_string(),
    }
}

/// A secret, which is never printed, so that it does not reach another process by accident.
fn secret<'a>(config: &'a Config, name: &str) -> &'a str {
    let secret = match name {
        "database.url" => &config.database.url,
        "database.replica_url" => &config.database.replica_url,
        "nats.url" => &config.nats.url,
        "storage.secret_access_key" => &config.storage.secret_access_key,
        "sso.client_secret" => &config.sso.client_secret,
        "extraction.google_vision_key" => &config.extraction.google_vision_key,
        "extraction.llm_key" => &config.extraction.llm_key,
        other => panic!("another process cannot be given {other}"),
    };
    secret.expose()
}
