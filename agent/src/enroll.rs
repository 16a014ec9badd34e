//! `enroll`: checks address and token against the gateway, then writes the configuration file.

use crate::{
    config::{Config, ConfigError, read_table},
    confine::{ConfineError, Roots},
    gateway::{Gateway, GatewayError, Refusal},
    system_info::agent_info,
};
use std::{
    fs::{self, OpenOptions},
    io::{self, Write},
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
};

/// Why the agent was not enrolled.
#[derive(Debug, thiserror::Error)]
pub enum EnrollError {
    #[error(transparent)]
    Config(#[from] ConfigError),
    #[error(transparent)]
    Roots(#[from] ConfineError),
    #[error("The HTTP client cannot start: {0}.")]
    Http(#[from] reqwest::Error),
    #[error("The gateway at {0} refused the token ({1}): it is wrong, expired or revoked.")]
    Token(String, Refusal),
    #[error("There is no Signalbox gateway at {0}: {1}.")]
    NotSignalbox(String, GatewayError),
    #[error("{0} cannot be used: {1}.")]
    Unreachable(String, GatewayError),
    #[error("The configuration file {0} cannot be written: {1}.")]
    Unwritable(PathBuf, io::Error),
}

/// Checks `settings` against the gateway and writes them to `path`; other settings of the file stay.
pub async fn enroll(path: &Path, settings: toml::Table) -> Result<Config, EnrollError> {
    let mut table = if path.exists() { read_table(Some(path))? } else { toml::Table::new() };
    table.extend(settings);
    let config = Config::from_table(table.clone())?;
    Roots::open(&config.roots)?;
    let gateway = Gateway::new(&config)?;
    let info = agent_info(&config.address, "polling", &[]);
    gateway.connect(info).await.map_err(|error| explain(&config, error))?;
    write_private(path, &table.to_string())
        .map_err(|error| EnrollError::Unwritable(path.to_owned(), error))?;
    Ok(config)
}

fn explain(config: &Config, error: GatewayError) -> EnrollError {
    let address = config.address.as_text().to_owned();
    match error {
        GatewayError::Unauthorized(refusal) => EnrollError::Token(address, refusal),
        error if error.is_passing() => EnrollError::Unreachable(address, error),
        error => EnrollError::NotSignalbox(address, error),
    }
}

/// Writes a file that its owner alone may read, and never half of it.
fn write_private(path: &Path, text: &str) -> io::Result<()> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    fs::create_dir_all(folder)?;
    let name = path.file_name().ok_or(io::ErrorKind::IsADirectory)?.to_string_lossy();
    let temporary = folder.join(format!(".{name}.new"));
    match fs::remove_file(&temporary) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&temporary)?;
    let written = file.write_all(text.as_bytes()).and_then(|()| file.sync_all());
    written.and_then(|()| fs::rename(&temporary, path)).inspect_err(|_| {
        let _ = fs::remove_file(&temporary);
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scratch::Scratch;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn the_file_is_private_even_where_an_open_one_was() {
        let scratch = Scratch::new();
        let path = scratch.path("new/agent.toml");
        write_private(&path, "a").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
        write_private(&path, "b").unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(fs::read_to_string(&path).unwrap(), "b");
        assert_eq!(fs::read_dir(scratch.path("new")).unwrap().count(), 1);
    }
}
