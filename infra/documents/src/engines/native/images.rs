//! Pictures: every frame is a page that is recognised.

use std::io::Cursor;

use image::{DynamicImage, ImageReader, Limits};
use signalbox_pdf::GrayImage;
use tiff::decoder::{Decoder, DecodingResult};

use super::super::{Body, Input, Reading};
use crate::{
    detect,
    failure::Failure,
    layout::PageContent,
    ocr::{Recognition, Task},
};

/// Width of a sheet of paper in inches, from which the resolution is guessed.
const SHEET: f32 = 8.27;

/// Has each frame recognised.
pub(super) fn read(input: Input, recognition: &mut Recognition<'_>) -> Result<Reading, Failure> {
    let mut pages = Vec::new();
    let frames = frames(&input)?;
    let all = frames.len();
    for (index, image) in frames.into_iter().enumerate() {
        let points = |pixels: u32| pixels as f32 * 72.0 / image.dpi as f32;
        let (width, height) = (points(image.width), points(image.height));
        let area = signalbox_pdf::Area { left: 0.0, top: 0.0, right: width, bottom: height };
        pages.push(PageContent {
            number: index + 1,
            width,
            height,
            images: vec![area],
            ..PageContent::default()
        });
        if recognition.is_wanted() {
            recognition.begin(Task { page: index + 1, image })?;
        }
        recognition.progress(index + 1, all);
    }
    let mut reading = Reading::default();
    reading.recognised_by = recognition.finish_into(&mut pages, &mut reading.warnings)?;
    reading.metadata.insert("content_type".to_owned(), input.mime_type.into());
    reading.metadata.insert("page_count".to_owned(), pages.len().into());
    reading.metadata.insert("pages".to_owned(), pages.len().into());
    reading.body = Body::Pages(pages);
    Ok(reading)
}

fn frames(input: &Input) -> Result<Vec<GrayImage>, Failure> {
    if input.mime_type == detect::TIFF {
        return tiff_frames(input);
    }
    let damaged = || Failure::corrupt("the picture is damaged or truncated");
    let mut reader =
        ImageReader::new(Cursor::new(&input.bytes)).with_guessed_format().map_err(|_| damaged())?;
    let dimensions =
        ImageReader::new(Cursor::new(&input.bytes)).with_guessed_format().map_err(|_| damaged())?;
    let (width, height) = dimensions.into_dimensions().map_err(|_| damaged())?;
    check_size(width, height, input.max_pixels)?;
    let mut limits = Limits::default();
    limits.max_alloc = Some(u64::from(input.max_pixels) * 8);
    reader.limits(limits);
    let image = reader.decode().map_err(|_| damaged())?;
    Ok(vec![gray(image, input)])
}

fn check_size(width: u32, height: u32, most: u32) -> Result<(), Failure> {
    if u64::from(width) * u64::from(height) <= u64::from(most) {
        return Ok(());
    }
    let millions = most / 1_000_000;
    Err(Failure::too_much(format!(
        "the picture has {width} × {height} pixels, but at most {millions} million are read"
    )))
}

fn tiff_frames(input: &Input) -> Result<Vec<GrayImage>, Failure> {
    let damaged = |_| Failure::corrupt("the TIFF is damaged or truncated");
    let mut decoder = Decoder::new(Cursor::new(&input.bytes)).map_err(damaged)?;
    let mut limits = tiff::decoder::Limits::default();
    limits.decoding_buffer_size = input.max_pixels as usize * 4;
    decoder = decoder.with_limits(limits);
    let mut frames = Vec::new();
    loop {
        if frames.len() >= input.max_pages {
            return Err(Failure::too_much(format!(
                "the TIFF has more than {} frames: split it",
                input.max_pages
            )));
        }
        let (width, height) = decoder.dimensions().map_err(damaged)?;
        check_size(width, height, input.max_pixels)?;
        let color = decoder.colortype().map_err(damaged)?;
        let decoded = decoder.read_image().map_err(damaged)?;
        frames.push(tiff_gray(decoded, color, width, height)?);
        if !decoder.more_images() {
            return Ok(frames);
        }
        decoder.next_image().map_err(damaged)?;
    }
}

fn tiff_gray(
    decoded: DecodingResult,
    color: tiff::ColorType,
    width: u32,
    height: u32,
) -> Result<GrayImage, Failure> {
    use tiff::ColorType::{Gray, GrayA, RGB, RGBA};
    let unsupported =
        || Failure::corrupt("the TIFF has a kind of pixels that is not supported: convert it to PNG");
    let samples: Vec<u8> = match decoded {
        DecodingResult::U8(samples) => samples,
        DecodingResult::U16(samples) => samples.into_iter().map(|sample| (sample >> 8) as u8).collect(),
        _ => return Err(unsupported()),
    };
    let image = match color {
        Gray(1) => return Ok(page(width, height, bits(&samples, width, height))),
        Gray(_) => image::GrayImage::from_raw(width, height, samples).map(DynamicImage::ImageLuma8),
        GrayA(_) => image::GrayAlphaImage::from_raw(width, height, samples).map(DynamicImage::ImageLumaA8),
        RGB(_) => image::RgbImage::from_raw(width, height, samples).map(DynamicImage::ImageRgb8),
        RGBA(_) => image::RgbaImage::from_raw(width, height, samples).map(DynamicImage::ImageRgba8),
        _ => None,
    };
    let image = image.ok_or_else(unsupported)?;
    Ok(page(width, height, image.into_luma8().into_raw()))
}

/// A bit per pixel as a byte per pixel; rows begin at whole bytes.
fn bits(packed: &[u8], width: u32, height: u32) -> Vec<u8> {
    let (width, height) = (width as usize, height as usize);
    if packed.len() >= width * height {
        return packed.iter().map(|sample| if *sample == 1 { 255 } else { *sample }).collect();
    }
    let row = width.div_ceil(8);
    let bit =
        |x: usize, y: usize| packed.get(y * row + x / 8).is_some_and(|byte| byte >> (7 - x % 8) & 1 == 1);
    (0..height).flat_map(|y| (0..width).map(move |x| if bit(x, y) { 255 } else { 0 })).collect()
}

fn gray(image: DynamicImage, _: &Input) -> GrayImage {
    // What shines through is paper.
    let image = if image.color().has_alpha() { on_white(&image) } else { image };
    let gray = image.into_luma8();
    let (width, height) = gray.dimensions();
    page(width, height, gray.into_raw())
}

fn on_white(image: &DynamicImage) -> DynamicImage {
    let mut flat = image.to_rgba8();
    for pixel in flat.pixels_mut() {
        let alpha = u16::from(pixel[3]);
        for channel in 0..3 {
            pixel[channel] = ((u16::from(pixel[channel]) * alpha + 255 * (255 - alpha)) / 255) as u8;
        }
        pixel[3] = 255;
    }
    DynamicImage::ImageRgba8(flat)
}

/// A page with the resolution that it has if it is a sheet of paper.
fn page(width: u32, height: u32, pixels: Vec<u8>) -> GrayImage {
    let dpi = (width.min(height) as f32 / SHEET).round().clamp(70.0, 600.0) as u32;
    GrayImage { width, height, pixels, dpi }
}
