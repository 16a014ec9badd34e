//! Wheels, built file by file.

use std::io::{Cursor, Write};

use reqwest::{Method, RequestBuilder};
use zip::{ZipWriter, write::SimpleFileOptions};

use super::{Answer, Client};

/// A wheel that is being built.
pub struct Wheel {
    zip: ZipWriter<Cursor<Vec<u8>>>,
    name: String,
}

impl Wheel {
    /// A wheel of the distribution `name` with metadata and an entry point of `group` that leads to `Plugin` in the module
    /// `<name>`, whose source is `source`.
    pub fn new(name: &str, group: &str, source: &str) -> Self {
        Self::that_needs(name, group, source, &[])
    }

    /// Such a wheel that needs other packages, as `Requires-Dist` names them.
    pub fn that_needs(name: &str, group: &str, source: &str, needs: &[&str]) -> Self {
        let info = format!("{name}-1.0.0.dist-info");
        let needs: String = needs.iter().map(|needed| format!("Requires-Dist: {needed}\n")).collect();
        let metadata = format!("Metadata-Version: 2.1\nName: {name}\nVersion: 1.0.0\n{needs}");
        let entry_points = format!("[{group}]\n{name} = {name}:Plugin\n");
        Self::bare(name)
            .with(&format!("{name}/__init__.py"), source.as_bytes())
            .with(&format!("{info}/METADATA"), metadata.as_bytes())
            .with(&format!("{info}/WHEEL"), b"Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
            .with(&format!("{info}/entry_points.txt"), entry_points.as_bytes())
            .with(&format!("{info}/RECORD"), b"")
    }

    /// An archive without anything.
    pub fn bare(name: &str) -> Self {
        Self { zip: ZipWriter::new(Cursor::default()), name: name.to_owned() }
    }

    /// Adds a file.
    pub fn with(mut self, path: &str, bytes: &[u8]) -> Self {
        self.zip.start_file(path, SimpleFileOptions::default()).unwrap();
        self.zip.write_all(bytes).unwrap();
        self
    }

    /// Adds a symbolic link.
    pub fn with_link(mut self, path: &str, to: &str) -> Self {
        self.zip.add_symlink(path, to, SimpleFileOptions::default()).unwrap();
        self
    }

    /// Its bytes.
    pub fn bytes(self) -> Vec<u8> {
        self.zip.finish().unwrap().into_inner()
    }

    /// Uploads it under the name that it should have.
    pub async fn upload(self, client: &Client) -> Answer {
        let name = format!("{}-1.0.0-py3-none-any.whl", self.name);
        Self::upload_bytes(client, &name, &self.bytes()).await
    }

    /// Uploads `bytes` as a file called `name`.
    pub async fn upload_bytes(client: &Client, name: &str, bytes: &[u8]) -> Answer {
        let request = client.request(Method::POST, "/api/v1/plugins/packages/upload");
        Self::upload_by(client, request, name, bytes).await
    }

    /// Uploads `bytes` by `request`, which has headers already.
    pub async fn upload_by(client: &Client, request: RequestBuilder, name: &str, bytes: &[u8]) -> Answer {
        let mut body = format!(
            "--b\r\nContent-Disposition: form-data; name=\"file\"; filename=\"{name}\"\r\n\
             Content-Type: application/octet-stream\r\n\r\n"
        )
        .into_bytes();
        body.extend_from_slice(bytes);
        body.extend(b"\r\n--b--\r\n");
        client.send(request.header("content-type", "multipart/form-data; boundary=b").body(body)).await
    }
}
