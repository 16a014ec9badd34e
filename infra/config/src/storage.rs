use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::{ConfigError, Secret, error::invalid};

/// Allowed schemes of a bucket's address.
const BUCKETS: [&str; 3] = ["s3://", "gs://", "az://"];

/// Files on disk, and those that all machines share.
#[derive(Debug, Clone, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Storage {
    /// Folder for all of them.
    pub folder: PathBuf,
    /// Bucket and prefix for the shared ones; empty to keep them in the folder.
    pub url: String,
    /// Address of a server that speaks S3; empty for Amazon's.
    pub endpoint: String,
    /// Region of the bucket; empty for the environment's.
    pub region: String,
    /// Whether the bucket's name is a part of the path.
    pub path_style: bool,
    /// Access key id; empty for the credentials that the environment provides.
    pub access_key_id: String,
    /// Its key.
    pub secret_access_key: Secret,
    /// MiB of a segment.
    pub segment_mb: u32,
}

impl Storage {
    pub(crate) fn validate(&self) -> Result<(), ConfigError> {
        if self.folder.as_os_str().is_empty() {
            return Err(invalid(
                "storage.folder is empty: name the folder that holds the data, such as ./data",
            ));
        }
        if !self.url.is_empty() && !BUCKETS.iter().any(|scheme| self.url.starts_with(scheme)) {
            return Err(invalid("storage.url must begin with s3://, gs:// or az://, or be empty"));
        }
        if self.access_key_id.is_empty() != self.secret_access_key.is_empty() {
            return Err(invalid(
                "storage.access_key_id and storage.secret_access_key must be set both, or neither",
            ));
        }
        if self.url.starts_with("gs://") && !self.access_key_id.is_empty() {
            return Err(invalid(
                "storage.access_key_id is not used with gs://: set GOOGLE_APPLICATION_CREDENTIALS in the environment instead",
            ));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use crate::Config;

    #[test]
    fn a_bucket_that_cannot_be_one_is_refused_with_the_name_of_the_setting() {
        for (key, value) in [
            ("SIGNALBOX_STORAGE__FOLDER", ""),
            ("SIGNALBOX_STORAGE__URL", "http://bucket"),
            ("SIGNALBOX_STORAGE__ACCESS_KEY_ID", "who"),
            ("SIGNALBOX_STORAGE__SEGMENT_MB", "0"),
        ] {
            let environment = HashMap::from([(key.to_owned(), value.to_owned())]);
            let error = Config::load(None, &environment).unwrap_err().to_string();
            assert!(
                error.contains(&key.to_lowercase().replace("signalbox_storage__", "storage.")),
                "{error}"
            );
        }
    }
}
