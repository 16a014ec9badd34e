//! Transfers while another process swaps a folder of the root for a link that leads out.

use crate::harness::{Site, bytes};
use serde_json::json;
use std::{
    fs,
    os::unix::fs::symlink,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
};

const FILES: usize = 40;
const TRANSFERS: u64 = 25;

/// Makes `folder` a link to `target` and a folder again, all the time.
struct Swapper {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<()>,
}

impl Swapper {
    fn start(folder: &Path, target: &Path) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let (stopped, folder, target) = (stop.clone(), folder.to_owned(), target.to_owned());
        let (aside, link) = (folder.with_extension("aside"), folder.with_extension("link"));
        symlink(target, &link).unwrap();
        let thread = thread::spawn(move || {
            while !stopped.load(Ordering::Relaxed) {
                // The agent may have made the folder again in between.
                if fs::rename(&folder, &aside).is_ok() {
                    if fs::rename(&link, &folder).is_ok() {
                        thread::yield_now();
                        let _ = fs::rename(&folder, &link);
                    }
                    let _ = fs::rename(&aside, &folder);
                }
            }
        });
        Self { stop, thread }
    }

    fn stop(self) {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_written_outside_while_a_folder_is_swapped_for_a_link() {
    let site = Site::start("auto").await;
    fs::create_dir_all(site.folder.path("in/copy/sub")).unwrap();
    fs::create_dir(site.folder.path("out")).unwrap();
    let swapper = Swapper::start(&site.folder.path("in/copy/sub"), &site.folder.path("out"));
    for id in 1..=TRANSFERS {
        for number in 0..FILES {
            site.gateway.stage(id, &format!("sub/{id}-{number}"), b"inside");
        }
        site.gateway.request("download", id, json!({ "destination_path": "copy", "tree": true }));
        // Some fail, because their folder is a link at that moment.
        site.gateway.report(id).await;
    }
    swapper.stop();
    assert_eq!(site.folder.list("out"), Vec::<String>::new());
    site.agent.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_read_outside_while_a_folder_is_swapped_for_a_link() {
    let site = Site::start("auto").await;
    let secret = bytes(100);
    for number in 0..FILES {
        site.folder.write(&format!("in/tree/sub/{number}"), "inside");
        site.folder.write(&format!("out/{number}"), &secret);
    }
    let swapper = Swapper::start(&site.folder.path("in/tree/sub"), &site.folder.path("out"));
    for id in 1..=TRANSFERS {
        site.gateway.request("upload", id, json!({ "source_path": "tree/", "tree": true }));
        site.gateway.report(id).await;
        let leaked = site.gateway.staged(id).into_values().filter(|file| file.bytes == secret).count();
        assert_eq!(leaked, 0, "transfer {id}");
    }
    swapper.stop();
    site.agent.stop().await;
}
