use serde_json::Value;

/// Replaces redacted values.
const HIDDEN: &str = "[hidden]";
/// Fields of events that hold hashes or sealed texts.
const HASHES: [&str; 4] = ["password_hash", "secret_sha256", "sealed", "sealed_secret"];
/// Fields that hold JSON of a user as text: widgets' settings, and those of plugins as they were kept at first.
const DOCUMENTS: [&str; 2] = ["config", "plain"];
/// Words in the names of a user's own fields that promise a secret.
const SECRETS: [&str; 7] = ["password", "passwd", "secret", "token", "credential", "apikey", "privatekey"];

/// Redacts hashes and sealed secrets in `data`, and fields of users' documents that are named like secrets. The log
/// holds no secret in clear, but hashes and sealed values are not for readers either.
pub fn redact(data: &mut Value) {
    match data {
        Value::Object(fields) => {
            for (name, value) in fields {
                match value {
                    Value::Null => {}
                    _ if HASHES.contains(&name.as_str()) => *value = HIDDEN.into(),
                    Value::String(text) if DOCUMENTS.contains(&name.as_str()) => redact_document(text),
                    value => redact(value),
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(redact),
        _ => {}
    }
}

fn redact_document(text: &mut String) {
    if let Ok(mut document) = serde_json::from_str(text) {
        hide_secrets(&mut document);
        *text = document.to_string();
    }
}

fn hide_secrets(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                if is_secret(name) { *value = HIDDEN.into() } else { hide_secrets(value) }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(hide_secrets),
        _ => {}
    }
}

fn is_secret(name: &str) -> bool {
    let plain: String = name.chars().filter(char::is_ascii_alphanumeric).collect();
    let plain = plain.to_ascii_lowercase();
    SECRETS.iter().any(|word| plain.contains(word))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_secrets_became_is_hidden_wherever_it_stands() {
        let mut data = json!({"to": {"sealed_secret": "v1.k.x", "url": "http://a"}, "sealed_secret": null,
            "items": [{"secret_sha256": "ab"}], "password_hash": "$argon2id$", "config": {"sealed": "v1.k.y"}});
        redact(&mut data);
        let shown = json!({"to": {"sealed_secret": HIDDEN, "url": "http://a"}, "sealed_secret": null,
            "items": [{"secret_sha256": HIDDEN}], "password_hash": HIDDEN, "config": {"sealed": HIDDEN}});
        assert_eq!(data, shown);
    }

    #[test]
    fn a_users_document_keeps_all_but_what_it_calls_a_secret() {
        let config = json!({"port": 502, "API-Key": "k", "mqtt": {"user_password": "p"}, "hosts": ["a"]});
        let mut data = json!({ "config": config.to_string() });
        redact(&mut data);
        let shown: Value = serde_json::from_str(data["config"].as_str().unwrap()).unwrap();
        let expected =
            json!({"port": 502, "API-Key": HIDDEN, "mqtt": {"user_password": HIDDEN}, "hosts": ["a"]});
        assert_eq!(shown, expected);
    }
}
