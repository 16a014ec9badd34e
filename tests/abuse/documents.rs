//! Documents that take long to arrive or to read, from callers without a login.

use std::{net::Ipv4Addr, time::Duration};

use futures::future::join_all;
use reqwest::Client;
use tokio::{
    io::AsyncWriteExt,
    time::{sleep, timeout},
};

use crate::{connections::status, scene::Target, socket::connect, tally::Tally};

pub const EXTRACT: &str = "/api/v1/extract";
pub const FORM: &str = "multipart/form-data; boundary=b";
const UPLOADS: usize = 64;
const UPLOAD_ADDRESSES: usize = 4;
const PICTURES: usize = 16;
const PICTURE_ADDRESSES: usize = 2;
/// Pixels of a picture's side; its recognition takes minutes.
const SIDE: u32 = 2500;
const INTERVAL: Duration = Duration::from_secs(1);

/// A form with one document.
pub fn form(name: &str, document: &[u8]) -> Vec<u8> {
    let mut body =
        format!("--b\r\nContent-Disposition: form-data; name=\"file\"; filename=\"{name}\"\r\n\r\n")
            .into_bytes();
    body.extend(document);
    body.extend(b"\r\n--b--\r\n");
    body
}

pub async fn slow_uploads(target: &Target, tally: &Tally) -> anyhow::Result<()> {
    let one = |number: usize| async move {
        let address = Ipv4Addr::new(127, 0, 11, 1 + (number % UPLOAD_ADDRESSES) as u8);
        loop {
            tally.count("begun");
            let ended = upload(address, target).await;
            tally.count(ended.unwrap_or_else(|_| "closed".to_owned()));
            sleep(INTERVAL).await;
        }
    };
    join_all((0..UPLOADS).map(one)).await;
    Ok(())
}

/// Sends 1 kB a second; returns the status of the answer.
async fn upload(address: Ipv4Addr, target: &Target) -> std::io::Result<String> {
    let mut stream = connect(address, target.address).await?;
    let head = format!(
        "POST {EXTRACT} HTTP/1.1\r\nHost: x\r\nContent-Type: {FORM}\r\nContent-Length: 1000000\r\n\r\n\
         --b\r\nContent-Disposition: form-data; name=\"file\"; filename=\"a.txt\"\r\n\r\n"
    );
    stream.write_all(head.as_bytes()).await?;
    let (mut reader, mut writer) = stream.split();
    loop {
        if let Ok(status) = timeout(INTERVAL, status(&mut reader)).await {
            return status;
        }
        writer.write_all(&[b'a'; 1000]).await?;
    }
}

pub async fn pictures(target: &Target, tally: &Tally) -> anyhow::Result<()> {
    let picture = noise(SIDE);
    let one = async |number: usize| {
        let client = target.client(Ipv4Addr::new(127, 0, 12, 1 + (number % PICTURE_ADDRESSES) as u8))?;
        for round in 0_usize.. {
            // Another picture each time, so that nothing that was remembered answers.
            let mut other = picture.clone();
            let place = other.len() - 1 - (number + round * PICTURES) % 100_000;
            other[place] ^= 255;
            tally.count("begun");
            tally.count(extract(&client, target, other).await);
            sleep(INTERVAL).await;
        }
        anyhow::Ok(())
    };
    join_all((0..PICTURES).map(one)).await.into_iter().collect()
}

async fn extract(client: &Client, target: &Target, picture: Vec<u8>) -> String {
    let request = client.post(target.url(EXTRACT)).header("content-type", FORM);
    let request = request.timeout(Duration::from_secs(300)).body(form("noise.bmp", &picture));
    match request.send().await {
        Ok(answer) => answer.status().as_str().to_owned(),
        Err(_) => "closed".to_owned(),
    }
}

/// A picture in which recognition finds something everywhere: 8 bits a pixel, without compression.
fn noise(side: u32) -> Vec<u8> {
    let (colours, count) = (256 * 4, side * side);
    let start = 14 + 40 + colours;
    let mut bytes = b"BM".to_vec();
    for value in [start + count, 0, start, 40, side, side, 1 | 8 << 16, 0, count, 0, 0, 0, 0] {
        bytes.extend(value.to_le_bytes());
    }
    (0..=255_u8).for_each(|gray| bytes.extend([gray, gray, gray, 0]));
    let mut state = 1_u32;
    bytes.extend((0..count).map(|_| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        if state >> 31 == 0 { 0 } else { 255 }
    }));
    bytes
}
