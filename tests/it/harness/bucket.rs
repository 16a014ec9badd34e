//! Worlds whose files are in a bucket of an S3 server.

use futures::TryStreamExt;
use object_store::{ObjectStore, path::Path};
use signalbox_config::Config;
use signalbox_test_support::S3Server;

/// A prefix, and what lets a world keep its files under it.
pub fn in_bucket(server: &S3Server) -> (String, impl FnOnce(&mut Config) + use<'_>) {
    let prefix = S3Server::unique_prefix();
    let own = prefix.clone();
    let adjust = move |config: &mut Config| {
        server.configure(&mut config.storage, &own);
        config.storage.segment_mb = 1;
    };
    (prefix, adjust)
}

/// Names of the segments under `prefix`.
pub async fn segments(server: &S3Server, prefix: &str) -> Vec<String> {
    let listed = server.client().list(Some(&Path::from(prefix))).map_ok(|object| object.location);
    let paths: Vec<Path> = listed.try_collect().await.unwrap();
    let names = paths.into_iter().filter_map(|path| path.filename().map(str::to_owned));
    names.filter(|name| name.split_once('.').is_some_and(|(writer, _)| writer.len() == 32)).collect()
}
