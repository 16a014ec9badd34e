//! Pictures: every frame is a page that is recognised.

use std::io::Cursor;

use image::{DynamicImage, ImageDecoder, ImageReader, Limits, metadata::Orientation};
use signalbox_pdf::GrayImage;
use tiff::{
    decoder::{Decoder, DecodingResult},
    tags::Tag,
};

use super::super::{Body, Input, Reading};
use crate::{
    detect,
    failure::Failure,
    layout::PageContent,
    ocr::{Recognition, Task},
};

/// Width of a sheet of paper in inches, from which the resolution is guessed.
const SHEET: f32 = 8.27;

/// Has each frame recognised as it is decoded: all of them at once would not find room.
pub(super) fn read(input: Input, recognition: &mut Recognition<'_>) -> Result<Reading, Failure> {
    let mut pages = Vec::new();
    let mut take = |image: GrayImage, all: usize| {
        let number = pages.len() + 1;
        pages.push(page_of(&image, number));
        if recognition.is_wanted() {
            recognition.begin(Task { page: number, image })?;
        }
        recognition.progress(number, all);
        Ok(())
    };
    if input.mime_type == detect::TIFF {
        tiff_frames(&input, &mut take)?;
    } else {
        take(picture(&input)?, 1)?;
    }
    let mut reading = Reading::default();
    reading.recognised_by = recognition.finish_into(&mut pages, &mut reading.warnings)?;
    reading.metadata.insert("content_type".to_owned(), input.mime_type.into());
    reading.metadata.insert("page_count".to_owned(), pages.len().into());
    reading.metadata.insert("pages".to_owned(), pages.len().into());
    reading.body = Body::Pages(pages);
    Ok(reading)
}

fn page_of(image: &GrayImage, number: usize) -> PageContent {
    let points = |pixels: u32| pixels as f32 * 72.0 / image.dpi as f32;
    let (width, height) = (points(image.width), points(image.height));
    let area = signalbox_pdf::Area { left: 0.0, top: 0.0, right: width, bottom: height };
    PageContent { number, width, height, images: vec![area], ..PageContent::default() }
}

fn picture(input: &Input) -> Result<GrayImage, Failure> {
    let damaged = |_| Failure::corrupt("the picture is damaged or truncated");
    let mut reader = ImageReader::new(Cursor::new(&input.bytes))
        .with_guessed_format()
        .map_err(|_| Failure::corrupt("the picture is damaged or truncated"))?;
    let mut limits = Limits::default();
    limits.max_alloc = Some(u64::from(input.max_pixels) * 8);
    reader.limits(limits);
    let mut decoder = reader.into_decoder().map_err(damaged)?;
    let (width, height) = decoder.dimensions();
    check_size(width, height, input.max_pixels)?;
    // A camera that was held upright says so, and stores its picture lying.
    let orientation = decoder.orientation().unwrap_or(Orientation::NoTransforms);
    let image = DynamicImage::from_decoder(decoder).map_err(damaged)?;
    Ok(gray(image, orientation))
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

type Take<'a> = &'a mut dyn FnMut(GrayImage, usize) -> Result<(), Failure>;

fn tiff_frames(input: &Input, take: Take<'_>) -> Result<(), Failure> {
    let damaged = |_| Failure::corrupt("the TIFF is damaged or truncated");
    let all = count_frames(input)?;
    let mut decoder = tiff_decoder(input)?;
    for number in 1..=all {
        let (width, height) = decoder.dimensions().map_err(damaged)?;
        check_size(width, height, input.max_pixels)?;
        let color = decoder.colortype().map_err(damaged)?;
        let turned = decoder.find_tag_unsigned(Tag::Orientation).map_err(damaged)?;
        let orientation = turned.and_then(Orientation::from_exif).unwrap_or(Orientation::NoTransforms);
        let decoded = decoder.read_image().map_err(damaged)?;
        take(gray(tiff_image(decoded, color, width, height)?, orientation), all)?;
        if number < all {
            decoder.next_image().map_err(damaged)?;
        }
    }
    Ok(())
}

fn tiff_decoder(input: &Input) -> Result<Decoder<Cursor<&[u8]>>, Failure> {
    let mut limits = tiff::decoder::Limits::default();
    limits.decoding_buffer_size = input.max_pixels as usize * 4;
    let decoder = Decoder::new(Cursor::new(input.bytes.as_slice()));
    let decoder = decoder.map_err(|_| Failure::corrupt("the TIFF is damaged or truncated"))?;
    Ok(decoder.with_limits(limits))
}

fn count_frames(input: &Input) -> Result<usize, Failure> {
    let mut decoder = tiff_decoder(input)?;
    let mut count = 1;
    while decoder.more_images() {
        count += 1;
        if count > input.max_pages {
            let most = input.max_pages;
            return Err(Failure::too_much(format!("the TIFF has more than {most} frames: split it")));
        }
        decoder.next_image().map_err(|_| Failure::corrupt("the TIFF is damaged or truncated"))?;
    }
    Ok(count)
}

fn tiff_image(
    decoded: DecodingResult,
    color: tiff::ColorType,
    width: u32,
    height: u32,
) -> Result<DynamicImage, Failure> {
    use tiff::ColorType::{Gray, GrayA, RGB, RGBA};
    let unsupported =
        || Failure::corrupt("the TIFF has a kind of pixels that is not supported: convert it to PNG");
    let samples: Vec<u8> = match decoded {
        DecodingResult::U8(samples) => samples,
        DecodingResult::U16(samples) => samples.into_iter().map(|sample| (sample >> 8) as u8).collect(),
        _ => return Err(unsupported()),
    };
    let image = match color {
        Gray(depth) => {
            let samples = if depth == 1 { bits(&samples, width, height) } else { samples };
            image::GrayImage::from_raw(width, height, samples).map(DynamicImage::ImageLuma8)
        }
        GrayA(_) => image::GrayAlphaImage::from_raw(width, height, samples).map(DynamicImage::ImageLumaA8),
        RGB(_) => image::RgbImage::from_raw(width, height, samples).map(DynamicImage::ImageRgb8),
        RGBA(_) => image::RgbaImage::from_raw(width, height, samples).map(DynamicImage::ImageRgba8),
        _ => None,
    };
    image.ok_or_else(unsupported)
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

fn gray(image: DynamicImage, orientation: Orientation) -> GrayImage {
    // What shines through is paper.
    let mut image = if image.color().has_alpha() { on_white(&image) } else { image };
    image.apply_orientation(orientation);
    let gray = image.into_luma8();
    let (width, height) = gray.dimensions();
    GrayImage { width, height, pixels: gray.into_raw(), dpi: dpi(width, height) }
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

/// The resolution that a picture has if it is of a sheet of paper.
fn dpi(width: u32, height: u32) -> u32 {
    (width.min(height) as f32 / SHEET).round().clamp(70.0, 600.0) as u32
}
