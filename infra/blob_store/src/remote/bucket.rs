use std::time::Duration;

use object_store::{
    BackoffConfig, ClientOptions, Error, ObjectStore, ObjectStoreScheme, RetryConfig, aws::AmazonS3Builder,
    azure::MicrosoftAzureBuilder, gcp::GoogleCloudStorageBuilder, path::Path,
};
use signalbox_config::Storage;
use url::Url;

/// Of one request, the bytes of a segment included.
const REQUEST: Duration = Duration::from_secs(60);
const CONNECT: Duration = Duration::from_secs(5);
/// Retries cover a restart of the server; after this time it is reported as unreachable.
const RETRY_TIMEOUT: Duration = Duration::from_secs(10);
const INITIAL_BACKOFF: Duration = Duration::from_millis(100);
const MAX_BACKOFF: Duration = Duration::from_secs(1);
/// More than fit into that time. Backoff is randomised, so a number of retries is not a time limit.
const RETRIES: usize = 100;

/// The bucket that `config` names, and the prefix in it. Settings missing in `config` are taken from the environment
/// or the machine.
pub(super) fn open(config: &Storage) -> Result<(Box<dyn ObjectStore>, Path), Error> {
    let url = Url::parse(&config.url).map_err(wrong)?;
    let (scheme, prefix) = ObjectStoreScheme::parse(&url).map_err(wrong)?;
    let bucket: Box<dyn ObjectStore> = match scheme {
        ObjectStoreScheme::AmazonS3 => Box::new(amazon(config).build()?),
        ObjectStoreScheme::GoogleCloudStorage => Box::new(google(config).build()?),
        ObjectStoreScheme::MicrosoftAzure => Box::new(azure(config).build()?),
        _ => return Err(wrong("storage.url must begin with s3://, gs:// or az://")),
    };
    Ok((bucket, prefix))
}

fn wrong(error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Error {
    Error::Generic { store: "storage.url", source: error.into() }
}

fn amazon(config: &Storage) -> AmazonS3Builder {
    let mut builder = AmazonS3Builder::from_env()
        .with_url(&config.url)
        .with_virtual_hosted_style_request(!config.path_style)
        .with_client_options(client(config))
        .with_retry(retry());
    if !config.endpoint.is_empty() {
        builder = builder.with_endpoint(config.endpoint.trim_end_matches('/'));
    }
    if !config.region.is_empty() {
        builder = builder.with_region(&config.region);
    }
    if !config.access_key_id.is_empty() {
        let (id, key) = (&config.access_key_id, config.secret_access_key.expose());
        builder = builder.with_access_key_id(id).with_secret_access_key(key);
    }
    builder
}

fn google(config: &Storage) -> GoogleCloudStorageBuilder {
    let builder = GoogleCloudStorageBuilder::from_env()
        .with_url(&config.url)
        .with_client_options(client(config))
        .with_retry(retry());
    match config.endpoint.is_empty() {
        true => builder,
        false => builder.with_base_url(&config.endpoint),
    }
}

fn azure(config: &Storage) -> MicrosoftAzureBuilder {
    let mut builder = MicrosoftAzureBuilder::from_env()
        .with_url(&config.url)
        .with_client_options(client(config))
        .with_retry(retry());
    if !config.endpoint.is_empty() {
        builder = builder.with_endpoint(config.endpoint.clone());
    }
    if !config.access_key_id.is_empty() {
        let (account, key) = (&config.access_key_id, config.secret_access_key.expose());
        builder = builder.with_account(account).with_access_key(key);
    }
    builder
}

/// Without TLS only for an explicit `http` endpoint.
fn client(config: &Storage) -> ClientOptions {
    ClientOptions::new()
        .with_allow_http(config.endpoint.starts_with("http://"))
        .with_timeout(REQUEST)
        .with_connect_timeout(CONNECT)
}

fn retry() -> RetryConfig {
    RetryConfig {
        backoff: BackoffConfig { init_backoff: INITIAL_BACKOFF, max_backoff: MAX_BACKOFF, base: 3.0 },
        max_retries: RETRIES,
        retry_timeout: RETRY_TIMEOUT,
    }
}
