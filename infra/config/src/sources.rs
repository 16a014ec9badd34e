use std::{
    collections::HashMap,
    path::{Path, PathBuf},
};

use toml::{Table, Value};

use crate::{
    ConfigError,
    error::invalid,
    layers::{PREFIX, merge, parse, path_of, set_from_environment},
};

pub(crate) const DEFAULTS: &str = include_str!("signalbox.default.toml");
const DEFAULTS_NAME: &str = "signalbox.default.toml";

/// Where settings other than the defaults are from.
pub(crate) struct Sources<'a> {
    pub(crate) file: Option<(PathBuf, Table)>,
    pub(crate) environment: &'a HashMap<String, String>,
}

impl<'a> Sources<'a> {
    /// The file at `path`, and `environment`.
    pub(crate) fn read(
        path: Option<&Path>,
        environment: &'a HashMap<String, String>,
    ) -> Result<Self, ConfigError> {
        Ok(Self { file: path.map(read).transpose()?, environment })
    }

    /// The defaults with these settings over them.
    pub(crate) fn merged(&self) -> Result<Table, ConfigError> {
        let mut values = parse(Path::new(DEFAULTS_NAME), DEFAULTS)?;
        if let Some((_, file)) = &self.file {
            merge(&mut values, file.clone());
        }
        // Our own names last: they override those shared with other programs.
        let (ours, shared): (Vec<_>, Vec<_>) =
            self.environment.iter().partition(|(name, _)| name.starts_with(PREFIX));
        for (name, value) in shared.into_iter().chain(ours) {
            set_from_environment(&mut values, name, value)?;
        }
        Ok(values)
    }

    /// An error that names `key` and the source of its value.
    pub(crate) fn fault(&self, key: &str, fault: &str) -> ConfigError {
        let named = [key.to_owned(), self.source_of(key).unwrap_or_default()];
        let named: Vec<_> = named.into_iter().filter(|name| !name.is_empty()).collect();
        invalid(&format!("{}: {fault}", named.join(" in ")))
    }

    fn source_of(&self, key: &str) -> Option<String> {
        let sets_key = |name: &&String| path_of(name).is_some_and(|path| path == key);
        let variable = self.environment.keys().filter(sets_key).max_by_key(|name| name.starts_with(PREFIX));
        variable.cloned().or_else(|| {
            let (path, values) = self.file.as_ref()?;
            sets(values, key).then(|| path.display().to_string())
        })
    }
}

fn read(path: &Path) -> Result<(PathBuf, Table), ConfigError> {
    let text = std::fs::read_to_string(path)
        .map_err(|source| ConfigError::Read { path: path.to_owned(), source })?;
    Ok((path.to_owned(), parse(path, &text)?))
}

/// Whether `values` have something at `key`; the empty key is the whole document.
fn sets(values: &Table, key: &str) -> bool {
    match key.split_once('.') {
        Some((section, rest)) => {
            values.get(section).and_then(Value::as_table).is_some_and(|inner| sets(inner, rest))
        }
        None => key.is_empty() || values.contains_key(key),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Config;

    const FILE: &str = "/etc/signalbox.toml";

    /// The error of a configuration file with this text, and of `environment`.
    fn error_of(text: &str, environment: &[(&str, &str)]) -> String {
        let owned = environment.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned()));
        let environment: HashMap<String, String> = owned.collect();
        let file = parse(Path::new(FILE), text).map(|values| Some((PathBuf::from(FILE), values)));
        let config = file.and_then(|file| Config::of(&Sources { file, environment: &environment }));
        config.unwrap_err().to_string()
    }

    fn assert_names(error: &str, parts: &[&str]) {
        for part in parts {
            assert!(error.contains(part), "{part} is missing: {error}");
        }
        assert!(!error.contains("hunter2") && !error.contains('\n'), "{error}");
    }

    #[test]
    fn a_syntax_error_names_the_file_and_the_line() {
        for (text, line) in [
            ("[nats]\nurl = hunter2\n", "line 2"),
            ("[server]\nidle_seconds = 5\n\nidle_seconds = 6\n", "line 4"),
            ("[nats\nurl = 'hunter2'\n", "line 1"),
        ] {
            assert_names(&error_of(text, &[]), &[FILE, line]);
        }
    }

    #[test]
    fn a_wrong_type_names_the_file_and_the_key() {
        for (text, key) in [
            ("[server]\nheader_seconds = 'hunter2, expected hunter2'", "server.header_seconds"),
            ("[database]\nurl = ['hunter2']", "database.url"),
            ("[server]\ntrusted_proxies = ['hunter2']", "server.trusted_proxies"),
            ("database = 'hunter2'", "database"),
            ("[server]\nidle_seconds = -5", "server.idle_seconds"),
            ("[server]\nadress = 'hunter2'", "adress"),
            ("sever = 'hunter2'", "sever"),
        ] {
            assert_names(&error_of(text, &[]), &[FILE, key]);
        }
        assert!(!error_of("[mail]\npassword = 12345", &[]).contains("12345"));
    }

    #[test]
    fn a_value_from_the_environment_names_its_variable() {
        let file = "[server]\naddress = '127.0.0.1:1'\nidle_seconds = 1\n";
        for (name, value) in [
            ("SIGNALBOX_SERVER__ADDRESS", "hunter2"),
            ("SIGNALBOX_SERVER__IDLE_SECONDS", "hunter2"),
            ("SIGNALBOX_SERVER__IDLE_SECONDS", "0"),
            ("OTEL_EXPORTER_OTLP_ENDPOINT", "hunter2"),
        ] {
            let error = error_of(file, &[(name, value)]);
            let named = if name.starts_with("OTEL") { "telemetry.otlp_endpoint" } else { name };
            assert_names(&error, &[named]);
            assert!(!error.contains(FILE), "{error}");
        }
    }
}
