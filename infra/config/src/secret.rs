use std::fmt;

use serde::{Deserialize, Serialize, Serializer};

/// Replaces a secret wherever it would be printed.
const HIDDEN: &str = "***";

/// A text that is never printed.
#[derive(Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(transparent)]
pub struct Secret(String);

impl Secret {
    /// A secret of `text`.
    pub fn new(text: String) -> Self {
        Self(text)
    }

    /// The text itself, for the one place that needs it.
    pub fn expose(&self) -> &str {
        &self.0
    }

    /// Whether there is nothing in it.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_empty() { "none" } else { HIDDEN })
    }
}

impl Serialize for Secret {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(if self.0.is_empty() { "" } else { HIDDEN })
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use crate::Config;

    #[test]
    fn a_configuration_that_is_written_down_shows_no_secret() {
        let hidden = [
            ("DATABASE_URL", "database"),
            ("SIGNALBOX_DATABASE__REPLICA_URL", "replica"),
            ("NATS_URL", "nats"),
            ("SIGNALBOX_STORAGE__ACCESS_KEY_ID", "who"),
            ("SIGNALBOX_STORAGE__SECRET_ACCESS_KEY", "storage"),
            ("SIGNALBOX_SSO__CLIENT_SECRET", "sso"),
            ("SIGNALBOX_EXTRACTION__GOOGLE_VISION_KEY", "vision"),
            ("SIGNALBOX_EXTRACTION__LLM_KEY", "llm"),
        ];
        let environment = hidden.map(|(name, of)| (name.to_owned(), format!("hidden-{of}")));
        let config = Config::load(None, &HashMap::from(environment)).unwrap();
        let written = toml::to_string(&config).unwrap();
        assert_eq!(written.matches("hidden-").count(), 1, "only the access key id is printed: {written}");
        assert_eq!(written.matches("= \"***\"").count(), hidden.len() - 1, "{written}");
    }
}
