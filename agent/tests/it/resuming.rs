//! Connections that break.

use crate::{
    folder::Folder,
    gateway::{Gateway, TOKEN},
    gateway_files::digest,
    harness::{Agent, Site, bytes, config, eventually},
    proxy::Proxy,
};
use serde_json::{Value, json};

const SIZE: usize = 6 << 20;

/// An agent whose bytes go through a proxy. It polls, so that the next bytes are those of the transfer.
async fn site() -> (Gateway, Proxy, Folder, Agent) {
    let (gateway, folder) = (Gateway::start().await, Folder::new());
    let proxy = Proxy::start(gateway.address).await;
    std::fs::create_dir(folder.path("in")).unwrap();
    let agent = Agent::start(config(&proxy.url(), TOKEN, &folder.path("in"), "polling"));
    gateway.nth("agent_info", 1).await;
    (gateway, proxy, folder, agent)
}

fn download(content: &[u8], attempt: u32) -> Value {
    json!({ "destination_path": "f", "size": content.len(), "sha256": digest(content), "attempt": attempt })
}

#[tokio::test]
async fn an_upload_resumes_where_the_connection_broke() {
    let (gateway, proxy, folder, _agent) = site().await;
    let content = bytes(SIZE);
    folder.write("in/f", &content);
    proxy.cut_uploads_after(3 << 20);
    gateway.request("upload", 1, json!({ "source_path": "f" }));
    let report = gateway.report(1).await;
    assert_eq!(report["data"]["sha256"], digest(&content), "{report}");
    assert!(gateway.staged(1)["f"].bytes == content);
    assert_eq!(gateway.calls("PUT 1 f whole"), 1, "it began again");
    assert!(gateway.calls(&format!("bytes */{SIZE}")) >= 1);
}

#[tokio::test]
async fn a_download_resumes_where_the_connection_broke() {
    let (gateway, proxy, folder, _agent) = site().await;
    let content = bytes(SIZE);
    gateway.stage(1, "f", &content);
    proxy.cut_downloads_after(3 << 20);
    gateway.request("download", 1, download(&content, 1));
    let report = gateway.report(1).await;
    assert_eq!(report["data"]["sha256"], digest(&content), "{report}");
    assert!(folder.read("in/f") == content);
    assert_eq!((gateway.calls("GET 1  whole"), gateway.calls("GET 1  bytes=")), (1, 1));
}

#[tokio::test]
async fn a_later_attempt_continues_an_upload() {
    let site = Site::start("auto").await;
    let content = bytes(SIZE);
    site.folder.write("in/f", &content);
    site.gateway.stage(1, "f", &content[..SIZE / 2]);
    site.gateway.request("upload", 1, json!({ "source_path": "f", "attempt": 2 }));
    assert_eq!(site.gateway.report(1).await["data"]["sha256"], digest(&content));
    assert_eq!(site.gateway.calls("whole"), 0);
    assert_eq!(site.gateway.calls(&format!("bytes {}-", SIZE / 2)), 1);
}

#[tokio::test]
async fn a_later_attempt_starts_anew_when_the_source_changed() {
    let site = Site::start("auto").await;
    let content = bytes(SIZE);
    site.folder.write("in/f", &content);
    for (id, staged) in [(1, vec![1; 1000]), (2, vec![1; SIZE]), (3, vec![1; SIZE + 5])] {
        site.gateway.stage(id, "f", &staged);
        site.gateway.request("upload", id, json!({ "source_path": "f", "attempt": 2 }));
        assert_eq!(site.gateway.report(id).await["data"]["sha256"], digest(&content));
        assert!(site.gateway.staged(id)["f"].bytes == content);
    }
}

#[tokio::test]
async fn a_download_continues_what_an_earlier_run_of_the_agent_left() {
    let site = Site::start("auto").await;
    let content = bytes(SIZE);
    site.gateway.stage(1, "f", &content);
    site.folder.write("in/.f.1.signalbox-part", &content[..SIZE / 2]);
    site.gateway.request("download", 1, download(&content, 2));
    assert_eq!(site.gateway.report(1).await["type"], "transfer_complete");
    assert_eq!((site.gateway.calls("whole"), site.gateway.calls("bytes=")), (0, 1));
    assert_eq!(site.folder.list("in"), ["f"]);
}

#[tokio::test]
async fn a_download_starts_anew_when_what_was_left_is_of_no_use() {
    let site = Site::start("auto").await;
    let content = bytes(SIZE);
    for (id, left) in [(1, vec![1; 1000]), (2, vec![1; SIZE]), (3, vec![1; SIZE + 5])] {
        site.gateway.stage(id, "f", &content);
        site.folder.write(&format!("in/.f.{id}.signalbox-part"), left);
        site.gateway.request("download", id, download(&content, 2));
        assert_eq!(site.gateway.report(id).await["type"], "transfer_complete");
        assert!(site.folder.read("in/f") == content);
    }
    assert_eq!(site.folder.list("in"), ["f"]);
}

#[tokio::test]
async fn a_stopped_agent_leaves_its_part_and_the_next_run_uses_it() {
    let site = Site::start("auto").await;
    let content = bytes(SIZE);
    site.gateway.stage(1, "f", &content);
    site.gateway.faults(|faults| faults.downloads_stall_after = Some(SIZE / 2));
    site.gateway.request("download", 1, download(&content, 1));
    let part = site.folder.path("in/.f.1.signalbox-part");
    eventually("half the file", || std::fs::metadata(&part).is_ok_and(|part| part.len() == SIZE as u64 / 2))
        .await;
    site.agent.stop().await;
    assert_eq!(site.folder.read("in/.f.1.signalbox-part").len(), SIZE / 2);
    site.gateway.faults(|faults| faults.downloads_stall_after = None);
    let _agent = Agent::start(config(&site.gateway.url(), TOKEN, &site.folder.path("in"), "auto"));
    site.gateway.request("download", 1, download(&content, 2));
    assert_eq!(site.gateway.report(1).await["type"], "transfer_complete");
    assert_eq!(site.gateway.calls("bytes="), 1);
    assert!(site.folder.read("in/f") == content);
}

#[tokio::test]
async fn a_body_that_stands_still_is_given_up_and_continued() {
    let site =
        Site::start_with("auto", |config| config.timing.stall = std::time::Duration::from_secs(2)).await;
    let content = bytes(SIZE);
    site.gateway.stage(1, "f", &content);
    site.gateway.faults(|faults| faults.downloads_stall_after = Some(SIZE / 2 + 1));
    site.gateway.request("download", 1, download(&content, 1));
    assert_eq!(site.gateway.report(1).await["type"], "transfer_complete");
    assert_eq!(site.gateway.calls("whole"), 1);
    assert!(site.gateway.calls("bytes=") >= 1);
}
