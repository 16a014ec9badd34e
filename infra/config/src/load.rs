use std::{collections::HashMap, path::Path};

use toml::Value;

use crate::{
    Config, ConfigError,
    error::{fault_of, invalid, key_of},
    ranges::out_of_range,
    sources::Sources,
};

impl Config {
    /// Defaults, then the file at `path`, then `environment`.
    ///
    /// # Errors
    /// [`ConfigError`] names the key that is wrong, and the file or variable that has it.
    pub fn load(path: Option<&Path>, environment: &HashMap<String, String>) -> Result<Self, ConfigError> {
        Self::of(&Sources::read(path, environment)?)
    }

    pub(crate) fn of(sources: &Sources<'_>) -> Result<Self, ConfigError> {
        let values = sources.merged()?;
        if let Some((key, fault)) = out_of_range(&values) {
            return Err(sources.fault(key, &fault));
        }
        let typed: Result<Self, toml::de::Error> = Value::Table(values).try_into();
        typed.map_err(|error| sources.fault(&key_of(&error), &fault_of(&error)))?.validate()
    }

    fn validate(self) -> Result<Self, ConfigError> {
        if let Some(origin) = self.server.cors_origins.iter().find(|origin| !is_origin(origin)) {
            let message = format!(
                "server.cors_origins has {origin:?}, which is not an origin: name each as a scheme and a host, such as \
                 https://example.org; a wildcard is not possible"
            );
            return Err(invalid(&message));
        }
        if !matches!(self.nats.replicas, 1 | 3 | 5) {
            return Err(invalid("nats.replicas must be 1, 3 or 5: JetStream needs a majority to agree"));
        }
        if !self.extraction.llm_url.is_empty() && self.extraction.llm_model.is_empty() {
            return Err(invalid("extraction.llm_model must name a model when extraction.llm_url is set"));
        }
        self.storage.validate()?;
        let endpoint = &self.telemetry.otlp_endpoint;
        let is_http = endpoint.starts_with("http://") || endpoint.starts_with("https://");
        if !endpoint.is_empty() && !is_http {
            return Err(invalid(
                "telemetry.otlp_endpoint must begin with http:// or https://; OTLP over gRPC is not spoken",
            ));
        }
        if !(0.0..=1.0).contains(&self.telemetry.sample_ratio) {
            return Err(invalid("telemetry.sample_ratio must be a number from 0 to 1"));
        }
        if !self.mail.server.is_empty() && self.mail.sender.is_empty() {
            return Err(invalid(
                "mail.sender must be set when mail.server is: it is the sender of all mails",
            ));
        }
        Ok(self)
    }
}

/// Whether `text` is a scheme, a host, and perhaps a port, as browsers write it.
fn is_origin(text: &str) -> bool {
    let host = text.strip_prefix("https://").or_else(|| text.strip_prefix("http://")).unwrap_or_default();
    !host.is_empty() && host.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.:[]".contains(&byte))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sources::DEFAULTS;

    fn load(environment: &[(&str, &str)]) -> Result<Config, ConfigError> {
        Config::load(None, &environment.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect())
    }

    #[test]
    fn the_defaults_are_valid_and_every_key_has_a_comment() {
        assert_eq!(load(&[]).unwrap().server.address.port(), 8080);
        let is_comment = |line: &str| line.starts_with('#');
        for (above, line) in DEFAULTS.lines().zip(DEFAULTS.lines().skip(1)) {
            let is_key = !is_comment(line) && line.contains(" = ");
            assert!(!is_key || is_comment(above), "no comment directly above: {line}");
        }
    }

    #[test]
    fn the_environment_wins() {
        let config = load(&[
            ("SIGNALBOX_SERVER__ADDRESS", "0.0.0.0:9000"),
            ("SIGNALBOX_SERVER__CORS_ORIGINS", "https://a, https://b"),
            ("DATABASE_URL", "postgres://x"),
        ])
        .unwrap();
        assert_eq!(config.server.address.port(), 9000);
        assert_eq!(config.server.cors_origins.len(), 2);
        assert_eq!(config.database.url.expose(), "postgres://x");
    }

    #[test]
    fn origins_are_named_one_by_one() {
        for wrong in
            ["*", "https://a, *", "https://*.example.org", "example.org", "https://a/path", "https://"]
        {
            let error = load(&[("SIGNALBOX_SERVER__CORS_ORIGINS", wrong)]).unwrap_err().to_string();
            assert!(
                error.contains("server.cors_origins") && error.contains("https://example.org"),
                "{error}"
            );
        }
        load(&[("SIGNALBOX_SERVER__CORS_ORIGINS", "http://localhost:5173, https://[::1]:8443")]).unwrap();
    }

    #[test]
    fn a_collector_is_found_by_the_name_that_all_programs_know_and_sooner_by_ours() {
        let shared = ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://shared:4318");
        assert_eq!(load(&[shared]).unwrap().telemetry.otlp_endpoint, "http://shared:4318");
        let ours = ("SIGNALBOX_TELEMETRY__OTLP_ENDPOINT", "https://ours");
        assert_eq!(load(&[shared, ours]).unwrap().telemetry.otlp_endpoint, "https://ours");
        assert_eq!(
            load(&[("SIGNALBOX_TELEMETRY__SAMPLE_RATIO", "0.25")]).unwrap().telemetry.sample_ratio,
            0.25
        );
        for (key, wrong) in
            [("OTLP_ENDPOINT", "collector:4317"), ("SAMPLE_RATIO", "1.5"), ("SAMPLE_RATIO", "NaN")]
        {
            let error = load(&[(&format!("SIGNALBOX_TELEMETRY__{key}"), wrong)]).unwrap_err().to_string();
            assert!(error.contains(&format!("telemetry.{}", key.to_lowercase())), "{error}");
        }
    }

    #[test]
    fn a_wrong_setting_is_named_and_secrets_are_not_shown() {
        let error = load(&[("SIGNALBOX_SERVER__ADRESS", "x")]).unwrap_err().to_string();
        assert!(error.contains("SIGNALBOX_SERVER__ADRESS"), "{error}");
        assert!(load(&[("SIGNALBOX_LIMITS__REQUEST_BURST", "many")]).is_err());
        let shown = format!("{:?}", load(&[("NATS_URL", "nats://u:hidden@h")]).unwrap());
        assert!(!shown.contains("hidden"));
    }
}
