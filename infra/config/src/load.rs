use std::{collections::HashMap, path::Path};

use toml::Value;

use crate::{
    Config, ConfigError, Monitoring,
    error::invalid,
    layers::{PREFIX, merge, parse, set_from_environment},
};

const DEFAULTS: &str = include_str!("signalbox.default.toml");
/// Longest time that datapoints or their roll-ups are kept, but for ever.
const MAX_RETENTION_DAYS: u32 = 36_500;

impl Config {
    /// Defaults, then the file at `path`, then `environment`.
    ///
    /// # Errors
    /// [`ConfigError`] names the file or the key that is wrong.
    pub fn load(path: Option<&Path>, environment: &HashMap<String, String>) -> Result<Self, ConfigError> {
        let mut values = parse(DEFAULTS)?;
        if let Some(path) = path {
            let read = std::fs::read_to_string(path);
            let text = read.map_err(|source| ConfigError::Read { path: path.to_owned(), source })?;
            merge(&mut values, parse(&text)?);
        }
        // Our own names last: they override those shared with other programs.
        let (ours, shared): (Vec<_>, Vec<_>) =
            environment.iter().partition(|(name, _)| name.starts_with(PREFIX));
        for (name, value) in shared.into_iter().chain(ours) {
            set_from_environment(&mut values, name, value)?;
        }
        let config: Self =
            Value::Table(values).try_into().map_err(|error: toml::de::Error| invalid(error.message()))?;
        config.validate()
    }

    fn validate(self) -> Result<Self, ConfigError> {
        if self.database.max_connections < 4 {
            return Err(invalid("database.max_connections must be at least 4"));
        }
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
        let Monitoring { retention_days, rollup_retention_days } = &self.monitoring;
        if retention_days.max(rollup_retention_days) > &MAX_RETENTION_DAYS {
            return Err(invalid(
                "monitoring.retention_days and monitoring.rollup_retention_days must be at most 36500; 0 keeps all for ever",
            ));
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
        if self.webhooks.concurrent_requests > 1000 {
            return Err(invalid("webhooks.concurrent_requests must be at most 1000"));
        }
        if !self.mail.server.is_empty() && self.mail.sender.is_empty() {
            return Err(invalid(
                "mail.sender must be set when mail.server is: it is the sender of all mails",
            ));
        }
        let positive = [
            ("server.max_connections_per_address", self.server.max_connections_per_address),
            ("server.max_connections_per_agent_address", self.server.max_connections_per_agent_address),
            ("server.header_seconds", self.server.header_seconds),
            ("server.idle_seconds", self.server.idle_seconds),
            ("server.stall_seconds", self.server.stall_seconds),
            ("identity.token_hours", self.identity.token_hours),
            ("limits.requests_per_minute", self.limits.requests_per_minute),
            ("limits.request_burst", self.limits.request_burst),
            ("limits.agent_requests_per_minute", self.limits.agent_requests_per_minute),
            ("limits.agent_request_burst", self.limits.agent_request_burst),
            ("limits.ingest_requests_per_minute", self.limits.ingest_requests_per_minute),
            ("limits.ingest_request_burst", self.limits.ingest_request_burst),
            ("limits.sockets_per_user", self.limits.sockets_per_user),
            ("limits.socket_messages_per_second", self.limits.socket_messages_per_second),
            ("limits.logins_per_account", self.limits.logins_per_account),
            ("limits.logins_per_address", self.limits.logins_per_address),
            ("limits.anonymous_extractions_per_minute", self.limits.anonymous_extractions_per_minute),
            ("webhooks.concurrent_requests", self.webhooks.concurrent_requests),
            ("webhooks.concurrent_per_subscription", self.webhooks.concurrent_per_subscription),
            ("extraction.max_megapixels", self.extraction.max_megapixels),
            ("extraction.max_open_jobs", self.extraction.max_open_jobs),
            ("extraction.result_hours", self.extraction.result_hours),
        ];
        match positive.iter().find(|(_, value)| *value == 0) {
            Some((key, _)) => Err(invalid(&format!("{key} must be at least 1"))),
            None => Ok(self),
        }
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

    fn load(environment: &[(&str, &str)]) -> Result<Config, ConfigError> {
        Config::load(None, &environment.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect())
    }

    #[test]
    fn the_defaults_are_valid_and_every_key_has_a_comment() {
        assert_eq!(load(&[]).unwrap().server.address.port(), 8080);
        let lines: Vec<_> = DEFAULTS.lines().collect();
        for (index, line) in lines.iter().enumerate().filter(|(_, line)| line.contains(" = ")) {
            let explained = line.starts_with('#')
                || lines[..index].iter().rev().take(2).any(|above| above.starts_with('#'));
            assert!(explained, "{line}");
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
