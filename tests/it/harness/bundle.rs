//! Bundles of firmware, built file by file, and signatures of them.

use aws_lc_rs::signature::{Ed25519KeyPair, KeyPair};
use base64::{Engine, prelude::BASE64_STANDARD};
use blake2::{Blake2b512, Digest};
use flate2::{Compression, write::GzEncoder};
use reqwest::Method;
use tar::{Builder, EntryType, Header};

use super::{Answer, Client};

/// A bundle that is being built.
pub struct Bundle(Builder<GzEncoder<Vec<u8>>>);

impl Bundle {
    /// An archive without anything.
    pub fn bare() -> Self {
        Self(Builder::new(GzEncoder::new(Vec::new(), Compression::best())))
    }

    /// A bundle whose file `version.txt` says `text`.
    pub fn of(text: &str) -> Vec<u8> {
        Self::bare().with("version.txt", text.as_bytes()).bytes()
    }

    /// Adds a file, whatever its name is.
    pub fn with(self, path: &str, bytes: &[u8]) -> Self {
        self.with_entry(path, EntryType::Regular, "", bytes)
    }

    /// Adds a link.
    pub fn with_link(self, path: &str, to: &str) -> Self {
        self.with_entry(path, EntryType::Symlink, to, b"")
    }

    /// Adds a file whose path may be longer than a header holds.
    pub fn with_long_path(mut self, path: &str) -> Self {
        let mut header = Header::new_gnu();
        header.set_entry_type(EntryType::Regular);
        header.set_mode(0o644);
        header.set_size(1);
        self.0.append_data(&mut header, path, &b"x"[..]).unwrap();
        self
    }

    fn with_entry(mut self, path: &str, kind: EntryType, to: &str, bytes: &[u8]) -> Self {
        let mut header = Header::new_ustar();
        header.as_mut_bytes()[..path.len()].copy_from_slice(path.as_bytes());
        header.set_entry_type(kind);
        header.set_mode(0o644);
        header.set_size(bytes.len() as u64);
        if !to.is_empty() {
            header.set_link_name(to).unwrap();
        }
        header.set_cksum();
        self.0.append(&header, bytes).unwrap();
        self
    }

    /// Its bytes.
    pub fn bytes(self) -> Vec<u8> {
        self.0.into_inner().unwrap().finish().unwrap()
    }

    /// Uploads `bytes` as a file called `name`, with other fields.
    pub async fn upload(client: &Client, name: &str, bytes: &[u8], fields: &[(&str, &str)]) -> Answer {
        client.send(Self::uploading(client, name, bytes, fields)).await
    }

    /// The request that uploads it.
    pub fn uploading(
        client: &Client,
        name: &str,
        bytes: &[u8],
        fields: &[(&str, &str)],
    ) -> reqwest::RequestBuilder {
        let disposition = "Content-Disposition: form-data";
        let mut body = format!(
            "--b\r\n{disposition}; name=\"file\"; filename=\"{name}\"\r\n\
             Content-Type: application/gzip\r\n\r\n"
        )
        .into_bytes();
        body.extend_from_slice(bytes);
        for (field, value) in fields {
            body.extend(format!("\r\n--b\r\n{disposition}; name=\"{field}\"\r\n\r\n{value}").bytes());
        }
        body.extend(b"\r\n--b--\r\n");
        let request = client.request(Method::POST, "/api/v1/ota/upload");
        request.header("content-type", "multipart/form-data; boundary=b").body(body)
    }
}

/// A key as minisign makes it.
pub struct SigningKey(Ed25519KeyPair);

impl SigningKey {
    const ID: [u8; 8] = *b"test-key";

    pub fn new(seed: u8) -> Self {
        Self(Ed25519KeyPair::from_seed_unchecked(&[seed; 32]).unwrap())
    }

    /// The second line of `minisign.pub`.
    pub fn public_key(&self) -> String {
        BASE64_STANDARD.encode([b"Ed", &Self::ID[..], self.0.public_key().as_ref()].concat())
    }

    /// The text of a `.minisig` file for `bytes`.
    pub fn sign(&self, bytes: &[u8]) -> String {
        let signature = self.0.sign(&Blake2b512::digest(bytes));
        let comment = "timestamp:1\tfile:firmware.tar.gz\thashed";
        let of_both = self.0.sign(&[signature.as_ref(), comment.as_bytes()].concat());
        format!(
            "untrusted comment: signature\n{}\ntrusted comment: {comment}\n{}\n",
            BASE64_STANDARD.encode([b"ED", &Self::ID[..], signature.as_ref()].concat()),
            BASE64_STANDARD.encode(of_both)
        )
    }
}
