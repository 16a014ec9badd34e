//! Downloads of single files.

use crate::{
    gateway_files::digest,
    harness::{Site, bytes},
};
use serde_json::{Value, json};
use std::{fs, os::unix::fs::symlink};

fn request(content: &[u8], destination: &str) -> Value {
    json!({ "destination_path": destination, "filename": "f.bin", "size": content.len(), "sha256": digest(content), "files": 1 })
}

async fn downloads_a_file(transport: &str) {
    let site = Site::start(transport).await;
    let content = bytes(3 << 20);
    site.gateway.stage(9, "f.bin", &content);
    site.gateway.request("download", 9, request(&content, "new/folder/final.bin"));
    let report = site.gateway.report(9).await;
    assert_eq!(report["type"], "transfer_complete", "{report}");
    assert_eq!(report["data"]["sha256"], digest(&content));
    assert!(site.folder.read("in/new/folder/final.bin") == content);
    assert_eq!(site.folder.list("in"), ["new/", "new/folder/", "new/folder/final.bin"]);
    site.agent.stop().await;
}

#[tokio::test]
async fn a_file_is_downloaded_over_websocket() {
    downloads_a_file("websocket").await;
}

#[tokio::test]
async fn a_file_is_downloaded_over_polling() {
    downloads_a_file("polling").await;
}

#[tokio::test]
async fn a_directory_takes_the_file_under_its_own_name() {
    let site = Site::start("auto").await;
    fs::create_dir(site.folder.path("in/there")).unwrap();
    for (id, destination, path) in
        [(1, "there", "in/there/f.bin"), (2, "made/", "in/made/f.bin"), (3, ".", "in/f.bin")]
    {
        site.gateway.stage(id, "f.bin", b"content");
        site.gateway.request("download", id, request(b"content", destination));
        assert_eq!(site.gateway.report(id).await["type"], "transfer_complete");
        assert_eq!(site.folder.read(path), b"content");
    }
}

#[tokio::test]
async fn an_old_file_is_replaced_and_an_empty_one_is_fine() {
    let site = Site::start("auto").await;
    site.folder.write("in/old", "something longer");
    site.gateway.stage(1, "f.bin", b"");
    site.gateway.request("download", 1, request(b"", "old"));
    assert_eq!(site.gateway.report(1).await["type"], "transfer_complete");
    assert_eq!(site.folder.read("in/old"), b"");
}

#[tokio::test]
async fn without_extensions_the_etag_is_the_measure() {
    let site = Site::start("auto").await;
    site.gateway.stage(1, "f.bin", b"content");
    site.gateway.request(
        "download",
        1,
        json!({ "source_path": "/else/where.txt", "destination_path": "d/" }),
    );
    assert_eq!(site.gateway.report(1).await["data"]["bytes"], 7);
    assert_eq!(site.folder.read("in/d/where.txt"), b"content");
}

#[tokio::test]
async fn wrong_bytes_never_get_the_final_name() {
    let site = Site::start("auto").await;
    site.gateway.stage(1, "f.bin", b"changed");
    site.gateway.request("download", 1, request(b"content", "final"));
    let report = site.gateway.report(1).await;
    assert!(report["data"]["error"].as_str().unwrap().contains("SHA-256"), "{report}");
    assert_eq!(report["data"]["retryable"], true);
    assert!(site.folder.list("in").is_empty());
}

#[tokio::test]
async fn nothing_is_written_outside_the_roots_or_through_links() {
    let site = Site::start("auto").await;
    site.folder.write("out/victim", "safe");
    fs::create_dir(site.folder.path("in/folder")).unwrap();
    symlink(site.folder.path("out/victim"), site.folder.path("in/link")).unwrap();
    symlink(site.folder.path("out"), site.folder.path("in/linked")).unwrap();
    let absolute = site.folder.text("out/new");
    let cases = [
        ("../out/victim", "f"),
        (absolute.as_str(), "f"),
        ("link", "f"),
        ("linked/new", "f"),
        ("folder/", "../../out/new"),
        ("folder/", ".."),
    ];
    for (id, (destination, filename)) in (1..).zip(cases) {
        site.gateway.stage(id, "f", b"evil");
        site.gateway.request(
            "download",
            id,
            json!({ "destination_path": destination, "filename": filename }),
        );
        let report = site.gateway.report(id).await;
        assert_eq!(report["type"], "transfer_error", "{destination} {filename}");
        assert_eq!(report["data"]["retryable"], false, "{report}");
    }
    assert_eq!(site.folder.read("out/victim"), b"safe");
    assert_eq!(site.folder.list("out"), ["victim"]);
}

#[tokio::test]
async fn a_file_in_the_way_of_a_directory_fails_that_transfer_alone() {
    let site = Site::start("auto").await;
    site.folder.write("in/file", "x");
    site.gateway.stage(1, "f.bin", b"content");
    site.gateway.request("download", 1, request(b"content", "file/below"));
    assert_eq!(site.gateway.report(1).await["data"]["retryable"], false);
    site.gateway.stage(2, "f.bin", b"content");
    site.gateway.request("download", 2, request(b"content", "other"));
    assert_eq!(site.gateway.report(2).await["type"], "transfer_complete");
}
