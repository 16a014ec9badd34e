//! Documents that are made to do harm: each fails alone, with a reason, and the next one is read.

use std::fmt::Write as _;

use super::{EXTRACT, sample, send, world};
use crate::harness::{World, eventually, seconds};

/// An archive with one part that is stored, not compressed.
fn archive(parts: &[(&str, &[u8])]) -> Vec<u8> {
    let (mut bytes, mut directory) = (Vec::new(), Vec::new());
    for (name, content) in parts {
        let offset = u32::try_from(bytes.len()).unwrap();
        let mut crc = 0xFFFF_FFFF_u32;
        for byte in *content {
            crc ^= u32::from(*byte);
            (0..8).for_each(|_| crc = if crc & 1 == 1 { crc >> 1 ^ 0xEDB8_8320 } else { crc >> 1 });
        }
        let length = u32::try_from(content.len()).unwrap();
        let mut common = vec![20, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        for value in [!crc, length, length] {
            common.extend(value.to_le_bytes());
        }
        common.extend(u16::try_from(name.len()).unwrap().to_le_bytes());
        common.extend([0, 0]);
        bytes.extend(b"PK\x03\x04");
        bytes.extend(&common);
        bytes.extend(name.bytes());
        bytes.extend(*content);
        directory.extend(b"PK\x01\x02\x14\0");
        directory.extend(&common);
        directory.extend([0; 10]);
        directory.extend(offset.to_le_bytes());
        directory.extend(name.bytes());
    }
    let (at, length) = (bytes.len() as u32, directory.len() as u32);
    bytes.extend(directory);
    bytes.extend(b"PK\x05\x06\0\0\0\0");
    let count = (parts.len() as u16).to_le_bytes();
    bytes.extend([count, count].concat());
    bytes.extend(length.to_le_bytes());
    bytes.extend(at.to_le_bytes());
    bytes.extend([0, 0]);
    bytes
}

/// A picture that says that it has `side` × `side` pixels, and has none.
fn huge_png(side: u32) -> Vec<u8> {
    let mut header = b"IHDR".to_vec();
    header.extend(side.to_be_bytes());
    header.extend(side.to_be_bytes());
    header.extend([8, 0, 0, 0, 0]);
    let mut crc = 0xFFFF_FFFF_u32;
    for byte in &header {
        crc ^= u32::from(*byte);
        (0..8).for_each(|_| crc = if crc & 1 == 1 { crc >> 1 ^ 0xEDB8_8320 } else { crc >> 1 });
    }
    let mut png = b"\x89PNG\r\n\x1a\n\0\0\0\x0D".to_vec();
    png.extend(header);
    png.extend((!crc).to_be_bytes());
    png
}

/// A PDF whose page tree contains itself.
fn endless_pages() -> Vec<u8> {
    let mut pdf = String::from("%PDF-1.4\n");
    let mut offsets = Vec::new();
    for (number, object) in
        ["<</Type/Catalog/Pages 2 0 R>>", "<</Type/Pages/Count 2000000000/Kids[2 0 R 2 0 R]>>"]
            .iter()
            .enumerate()
    {
        offsets.push(pdf.len());
        let _ = writeln!(pdf, "{} 0 obj{object}endobj", number + 1);
    }
    let table = pdf.len();
    let _ = write!(pdf, "xref\n0 3\n0000000000 65535 f \n");
    for offset in offsets {
        let _ = writeln!(pdf, "{offset:010} 00000 n ");
    }
    let _ = write!(pdf, "trailer<</Size 3/Root 1 0 R>>\nstartxref\n{table}\n%%EOF");
    pdf.into_bytes()
}

async fn still_reads(world: &World) {
    let answer = send(&world.admin, EXTRACT, "a.pdf", &sample("report.pdf")).await.expect(200);
    assert!(answer["content"].as_str().unwrap().contains("Stellkraft"));
}

#[tokio::test]
async fn bombs_fail_alone_and_with_a_reason() {
    let world = world(|_| {}).await;
    let entities = "<!DOCTYPE d [<!ENTITY a 'x'><!ENTITY b '&a;&a;&a;&a;&a;&a;&a;&a;'>]><w:document><w:t>&b;</w:t></w:document>";
    let deep = format!("<w:document>{}", "<w:p>".repeat(100_000));
    let deep_html = format!("<!doctype html>{}", "<div>".repeat(100_000));
    let deep_rtf = format!("{{\\rtf1{}", "{".repeat(100_000));
    let cases: [(&str, Vec<u8>, u16); 7] = [
        ("bomb.docx", sample("bomb.docx"), 422),
        ("deep.docx", archive(&[("word/document.xml", deep.as_bytes())]), 422),
        ("entities.docx", archive(&[("word/document.xml", entities.as_bytes())]), 200),
        ("deep.html", deep_html.into_bytes(), 422),
        ("deep.rtf", deep_rtf.into_bytes(), 422),
        ("huge.png", huge_png(60_000), 422),
        ("endless.pdf", endless_pages(), 422),
    ];
    for (name, bytes, status) in cases {
        let answer = send(&world.admin, EXTRACT, name, &bytes).await;
        assert_eq!(answer.status, status, "{name}: {}", answer.text());
        still_reads(&world).await;
    }
    world.finish().await;
}

#[tokio::test]
async fn what_takes_too_long_is_stopped() {
    let world = world(|config| config.extraction.wall_seconds = 1).await;
    // Noise keeps recognition busy for longer than that.
    let (width, height) = (2400_u32, 3200_u32);
    let mut seed = 7_u32;
    let mut bmp = b"BM".to_vec();
    let row = width * 3;
    bmp.extend((54 + row * height).to_le_bytes());
    bmp.extend([0; 4]);
    for value in [54, 40, width, height, 24 << 16 | 1, 0, row * height, 0, 0, 0, 0] {
        bmp.extend(value.to_le_bytes());
    }
    bmp.extend((0..row * height).map(|_| {
        seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        if seed >> 28 < 6 { 0_u8 } else { 255 }
    }));
    let answer = send(&world.admin, EXTRACT, "noise.bmp", &bmp).await;
    assert_eq!(answer.status, 504, "{}", answer.text());
    // A second is little on a busy machine.
    let report = sample("report.pdf");
    eventually(seconds(20), async || send(&world.admin, EXTRACT, "a.pdf", &report).await.status == 200).await;
    world.finish().await;
}

#[tokio::test]
async fn what_needs_too_much_memory_is_refused() {
    let world = world(|config| config.extraction.memory_mb = 700).await;
    // 190 million pixels are within the limit of pixels, but not of memory.
    let answer = send(&world.admin, EXTRACT, "a.png", &huge_png(13_700)).await;
    assert_eq!(answer.status, 422, "{}", answer.text());
    still_reads(&world).await;
    world.finish().await;
}
