//! Upload and download of one large file through the store in a bucket, beside a plain PUT and GET of the same bytes on the
//! same S3 server, in turns. Prints medians and ratios. Needs the server of the tests (`tools/bootstrap tests`).
//!
//! `cargo run --release -p signalbox-blob-store --example compare_with_plain_put -- [MiB] [rounds]`

use std::{env, error::Error, io, time::Instant};

use bytes::Bytes;
use futures::{StreamExt, TryStreamExt, stream};
use object_store::{ObjectStoreExt, path::Path};
use signalbox_blob_store::{BlobKey, BlobStore, Receive, Start};
use signalbox_config::Config;
use signalbox_test_support::S3Server;
use uuid::Uuid;

const MIB: usize = 1024 * 1024;
/// As an HTTP server gives them.
const CHUNK: usize = 256 * 1024;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error + Send + Sync>> {
    let number = |at: usize, default| env::args().nth(at).map_or(Ok(default), |text| text.parse());
    let (mib, rounds) = (number(1, 256)?, number(2, 5)?);
    let folder = tempfile::tempdir()?;
    let server = S3Server::start().await;
    let mut storage = Config::load(None, &Default::default())?.storage;
    server.configure(&mut storage, "compare");
    storage.folder = folder.path().to_owned();
    let (store, client) = (BlobStore::configured(&storage, "blobs")?, server.client());
    let content = content(mib * MIB);
    let mut rates = [const { Vec::new() }; 4];
    for round in 0..rounds {
        let (key, path) =
            (BlobKey::new(Uuid::from_u128(round as u128), "file"), Path::from(format!("plain/{round}")));
        let begun = Instant::now();
        client.put(&path, content.clone().into()).await?;
        rates[0].push(rate(mib, begun));
        let begun = Instant::now();
        let chunks = content.chunks(CHUNK).map(|chunk| Ok::<_, io::Error>(content.slice_ref(chunk)));
        let total = Some(content.len() as u64);
        let request = Receive { start: Start::Anew, limit: u64::MAX, expected_sha256: None, total };
        store.receive(&key, request, stream::iter(chunks), |_| {}).await?;
        rates[1].push(rate(mib, begun));
        let begun = Instant::now();
        let plain = client.get(&path).await?.into_stream().map_err(io::Error::other);
        assert_eq!(length(plain).await?, content.len());
        rates[2].push(rate(mib, begun));
        let begun = Instant::now();
        let (_, bytes) = store.read(&key, None).await?;
        assert_eq!(length(bytes.boxed()).await?, content.len());
        rates[3].push(rate(mib, begun));
        client.delete(&path).await?;
        store.delete_transfer(key.transfer()).await?;
    }
    let [put, upload, get, download] = rates.map(median);
    println!("in   plain PUT {put:6.0} MiB/s   store {upload:6.0} MiB/s   {:.2} x", upload / put);
    println!("out  plain GET {get:6.0} MiB/s   store {download:6.0} MiB/s   {:.2} x", download / get);
    Ok(())
}

/// Incompressible bytes.
fn content(length: usize) -> Bytes {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let words = std::iter::repeat_with(|| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 32) as u32
    });
    words.take(length / 4).flat_map(u32::to_le_bytes).collect()
}

async fn length(body: impl futures::Stream<Item = io::Result<Bytes>>) -> io::Result<usize> {
    body.try_fold(0, |sum, chunk| async move { Ok(sum + chunk.len()) }).await
}

fn rate(mib: usize, begun: Instant) -> f64 {
    mib as f64 / begun.elapsed().as_secs_f64()
}

fn median(mut rates: Vec<f64>) -> f64 {
    rates.sort_by(f64::total_cmp);
    rates[rates.len() / 2]
}
