//! Firmware updates.

mod applying;
mod fetching;
mod hostile;
mod killed;
mod managing;
mod uploading;

use std::{fs, path::Path};

use serde_json::{Value, json};
use signalbox_test_support::write_program;

use crate::harness::{Answer, Bundle, Client, Folder, World};

const OTA: &str = "/api/v1/ota";

fn path(id: &str) -> String {
    format!("{OTA}/{id}")
}

/// Uploads a bundle whose file says its version; returns the key of the update.
async fn uploaded(world: &World, version: &str) -> String {
    let name = format!("firmware-{version}.tar.gz");
    let made = Bundle::upload(&world.admin, &name, &Bundle::of(version), &[]).await.expect(201);
    made["public_id"].as_str().unwrap().to_owned()
}

/// Makes an update known whose bundle is fetched from `url`.
pub async fn announced(world: &World, version: &str, url: &str) -> String {
    let made = world.admin.post(OTA, json!({"version": version, "download_url": url})).await.expect(201);
    made["public_id"].as_str().unwrap().to_owned()
}

pub async fn apply(client: &Client, id: &str) -> Answer {
    client.send(client.request(reqwest::Method::POST, &format!("{}/apply", path(id)))).await
}

async fn roll_back(client: &Client, id: &str) -> Answer {
    client.send(client.request(reqwest::Method::POST, &format!("{}/rollback", path(id)))).await
}

/// Uploads and applies a version, and waits until it is in force.
pub async fn in_force(world: &World, version: &str) -> String {
    let id = uploaded(world, version).await;
    apply(&world.admin, &id).await.expect(202);
    until_status(&world.admin, &id, "completed").await;
    id
}

/// Waits until the update meets the condition; returns it.
#[track_caller]
fn until(client: &Client, id: &str, is_so: impl FnMut(&Value) -> bool) -> impl Future<Output = Value> {
    client.until(path(id), is_so)
}

#[track_caller]
pub fn until_status(client: &Client, id: &str, status: &'static str) -> impl Future<Output = Value> {
    until(client, id, move |update| update["status"] == status)
}

/// The text of the version that the link leads to; none without a link.
fn current(world: &World) -> Option<String> {
    fs::read_to_string(world.config.storage.folder.join("updates/current/version.txt")).ok()
}

/// Entries of the folder of versions, except for the lock, which is always there.
fn versions(world: &World) -> Vec<String> {
    let entries = fs::read_dir(world.config.storage.folder.join("updates"));
    let names = entries.into_iter().flatten().map(|it| it.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<_> = names.filter(|name| name != ".lock").collect();
    names.sort();
    names
}

/// Writes a hook into `folder`; returns its path. Each line of its words is `action version previous`.
fn hook(folder: &Folder, script: &str) -> String {
    let text =
        "echo \"$FIRMWARE_ACTION $FIRMWARE_VERSION $FIRMWARE_PREVIOUS_VERSION\" >> \"$(dirname $0)/calls\"";
    write_program(&folder.path("hook"), &format!("#!/bin/sh\n{text}\ncd \"$(dirname $0)\"\n{script}\n"));
    folder.text("hook")
}

/// The calls of the hook so far.
fn calls(folder: &Folder) -> Vec<String> {
    let text = fs::read_to_string(folder.path("calls")).unwrap_or_default();
    text.lines().map(|line| line.trim().to_owned()).collect()
}

fn exists(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok()
}
