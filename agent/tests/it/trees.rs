//! Transfers of whole folders.

use crate::{
    gateway_files::tree_digest,
    harness::{Site, bytes},
};
use serde_json::{Value, json};

fn fill(site: &Site) {
    for (name, content) in [
        ("a.txt", bytes(10)),
        ("b/c d/\u{e9}.bin", bytes(2 << 20)),
        ("b/empty file", vec![]),
        ("z", bytes(700_000)),
    ] {
        site.folder.write(&format!("in/tree/{name}"), content);
    }
    std::fs::create_dir_all(site.folder.path("in/tree/hollow/inner")).unwrap();
}

async fn upload(site: &Site, id: u64, attempt: u32) -> Value {
    let extra = json!({ "source_path": "tree/", "tree": true, "attempt": attempt });
    site.gateway.request("upload", id, extra);
    site.gateway.report(id).await
}

#[tokio::test]
async fn a_tree_arrives_as_it_left() {
    let site = Site::start("auto").await;
    fill(&site);
    let report = upload(&site, 5, 1).await;
    let staged = site.gateway.staged(5);
    let names: Vec<_> = staged.keys().map(String::as_str).collect();
    assert_eq!(names, ["a.txt", "b/c d/\u{e9}.bin", "b/empty file", "hollow/inner/", "z"]);
    assert_eq!(report["data"]["sha256"], tree_digest(&staged), "{report}");
    assert_eq!(
        (&report["data"]["files"], &report["data"]["bytes"]),
        (&json!(5), &json!(10 + (2 << 20) + 700_000))
    );
    site.gateway.shared.change(|inner| inner.received.clear());
    site.gateway.request(
        "download",
        5,
        json!({
            "destination_path": "copy", "tree": true, "sha256": tree_digest(&staged), "files": 5,
        }),
    );
    let report = site.gateway.report(5).await;
    assert_eq!(report["data"]["sha256"], tree_digest(&staged), "{report}");
    assert_eq!(site.folder.list("in/copy"), site.folder.list("in/tree"));
    for name in ["a.txt", "b/c d/\u{e9}.bin", "b/empty file", "z"] {
        assert!(site.folder.read(&format!("in/copy/{name}")) == site.folder.read(&format!("in/tree/{name}")));
    }
}

#[tokio::test]
async fn a_later_attempt_sends_only_what_is_missing_or_differs() {
    let site = Site::start("auto").await;
    fill(&site);
    site.gateway.stage(5, "a.txt", &bytes(10));
    site.gateway.stage(5, "z", &vec![7; 700_000]);
    site.gateway.stage(5, "hollow/inner/", b"");
    let report = upload(&site, 5, 2).await;
    assert_eq!(report["data"]["sha256"], tree_digest(&site.gateway.staged(5)), "{report}");
    assert_eq!((site.gateway.calls("a.txt"), site.gateway.calls("inner")), (0, 0));
    assert_eq!((site.gateway.calls("PUT 5 z"), site.gateway.calls("PUT")), (1, 3));
}

#[tokio::test]
async fn a_later_attempt_fetches_only_what_is_missing_or_differs() {
    let site = Site::start("auto").await;
    for (name, content) in [("same", "1"), ("other", "2"), ("new/deep", "3")] {
        site.gateway.stage(5, name, content.as_bytes());
    }
    site.folder.write("in/copy/same", "1");
    site.folder.write("in/copy/other", "x");
    site.gateway.request("download", 5, json!({ "destination_path": "copy/", "tree": true, "attempt": 2 }));
    assert_eq!(site.gateway.report(5).await["data"]["files"], 3);
    assert_eq!((site.gateway.calls("GET"), site.gateway.calls("same")), (2, 0));
    assert_eq!(site.folder.read("in/copy/other"), b"2");
}

#[tokio::test]
async fn a_file_that_is_removed_while_its_tree_is_read_leaves_it_to_the_next_attempt() {
    let site = Site::start("auto").await;
    for number in 10..50 {
        site.folder.write(&format!("in/tree/{number}"), bytes(100_000));
    }
    site.gateway.faults(|faults| faults.uploads_stall_after = Some(1000));
    site.gateway.request("upload", 5, json!({ "source_path": "tree/", "tree": true, "attempt": 1 }));
    site.gateway
        .until("bytes", |inner| inner.transfers.get(&5).is_some_and(|files| !files.is_empty()).then_some(()))
        .await;
    std::fs::remove_file(site.folder.path("in/tree/49")).unwrap();
    site.gateway.faults(|faults| faults.uploads_stall_after = None);
    let report = site.gateway.report(5).await;
    assert_eq!((&report["type"], &report["data"]["retryable"]), (&json!("transfer_error"), &json!(true)));
    let report = report.to_string();
    assert!(report.contains("'49' was removed while its tree was read"), "{report}");
}

#[tokio::test]
async fn an_empty_tree_makes_an_empty_directory() {
    let site = Site::start("auto").await;
    std::fs::create_dir(site.folder.path("in/tree")).unwrap();
    assert_eq!(upload(&site, 5, 1).await["data"]["files"], 0);
    site.gateway.request("download", 6, json!({ "destination_path": "copy", "tree": true, "files": 0 }));
    assert_eq!(site.gateway.report(6).await["data"]["files"], 0);
    assert!(site.folder.path("in/copy").is_dir());
}

#[tokio::test]
async fn bad_names_in_a_manifest_write_nothing_at_all() {
    let site = Site::start("auto").await;
    for (id, name) in (1..).zip(["../x", "/etc/x", "a//b", "a/../../x", "nul\0"]) {
        site.gateway.stage(id, "good", b"1");
        site.gateway.stage(id, name, b"2");
        site.gateway.request("download", id, json!({ "destination_path": "copy", "tree": true }));
        let report = site.gateway.report(id).await;
        assert_eq!(
            (&report["type"], &report["data"]["retryable"]),
            (&json!("transfer_error"), &json!(false)),
            "{name}"
        );
    }
    assert!(site.folder.list("in").is_empty());
}

#[tokio::test]
async fn a_manifest_that_is_not_the_announced_one_is_refused() {
    let site = Site::start("auto").await;
    site.gateway.stage(1, "a", b"1");
    site.gateway.request("download", 1, json!({ "destination_path": "copy", "tree": true, "files": 2 }));
    let report = site.gateway.report(1).await;
    assert!(report["data"]["error"].as_str().unwrap().contains("number of entries"), "{report}");
}

#[tokio::test]
async fn one_bad_file_fails_the_tree_and_leaves_no_half_files() {
    let site = Site::start("auto").await;
    for number in 0..20 {
        site.folder.write(&format!("in/tree/{number}"), bytes(100_000));
    }
    site.gateway.faults(|faults| faults.lies_about_digests = true);
    let report = upload(&site, 1, 1).await;
    assert_eq!((&report["type"], &report["data"]["retryable"]), (&json!("transfer_error"), &json!(true)));
    assert_eq!(site.gateway.reports(1).len(), 1);
}
