//! Pictures: every frame is a page that is recognised.

use std::io::Cursor;

use image::{DynamicImage, ImageDecoder, ImageReader, Limits, imageops::FilterType, metadata::Orientation};
use signalbox_pdf::{GrayImage, RgbImage};

use super::{
    super::{Body, Input, Reading},
    frames::{Frame, Frames, check_size},
};
use crate::{
    detect,
    failure::Failure,
    layout::PageContent,
    ocr::{Recognition, Task},
};

/// Width of a sheet of paper in inches, from which the resolution is guessed.
const SHEET: f32 = 8.27;

/// Has each frame recognised as it is decoded: all of them at once would not find room.
pub(super) fn read(mut input: Input, recognition: &mut Recognition<'_>) -> Result<Reading, Failure> {
    let mut pages = Vec::new();
    let mut warnings = Vec::new();
    let mut take = |image: GrayImage, all: usize| -> Result<(), Failure> {
        let number = pages.len() + 1;
        pages.push(page_of(&image, number));
        if recognition.is_enabled() {
            recognition.begin(Task { page: number, image })?;
        }
        recognition.progress(number, all);
        Ok(())
    };
    if input.mime_type == detect::TIFF {
        let mut frames = Frames::open(&mut input.bytes, input.max_pixels, input.max_pages)?;
        let all = frames.count();
        let mut number = 0;
        while let Some(Frame { image, orientation, rows }) = frames.next()? {
            number += 1;
            if let Some((read, height)) = rows {
                warnings.push(format!("frame {number} is damaged: {read} of its {height} rows were read"));
            }
            take(gray(upright(image, orientation)), all)?;
        }
    } else {
        take(gray(picture(&input)?), 1)?;
    }
    let mut reading = Reading { warnings, ..Reading::default() };
    reading.recognised_by = recognition.finish_into(&mut pages, &mut reading.warnings)?;
    reading.metadata.insert("content_type".to_owned(), input.mime_type.into());
    reading.metadata.insert("page_count".to_owned(), pages.len().into());
    reading.metadata.insert("pages".to_owned(), pages.len().into());
    reading.body = Body::Pages(pages);
    Ok(reading)
}

/// Frame `number`, from 1, at most `width` pixels wide and three times as high; none if there is none.
pub(crate) fn draw(mut input: Input, number: usize, width: u32) -> Result<Option<RgbImage>, Failure> {
    let image = if input.mime_type == detect::TIFF {
        let mut frames = Frames::open(&mut input.bytes, input.max_pixels, input.max_pages)?;
        for _ in 1..number {
            if frames.next()?.is_none() {
                return Ok(None);
            }
        }
        let Some(Frame { image, orientation, .. }) = frames.next()? else { return Ok(None) };
        upright(image, orientation)
    } else if number == 1 {
        picture(&input)?
    } else {
        return Ok(None);
    };
    let is_larger = image.width() > width || image.height() > 3 * width;
    let image = if is_larger { image.resize(width, 3 * width, FilterType::Triangle) } else { image };
    let image = image.into_rgb8();
    let (width, height) = image.dimensions();
    Ok(Some(RgbImage { width, height, pixels: image.into_raw() }))
}

fn page_of(image: &GrayImage, number: usize) -> PageContent {
    let points = |pixels: u32| pixels as f32 * 72.0 / image.dpi as f32;
    let (width, height) = (points(image.width), points(image.height));
    let area = signalbox_pdf::Area { left: 0.0, top: 0.0, right: width, bottom: height };
    PageContent { number, width, height, images: vec![area], ..PageContent::default() }
}

pub(super) fn picture(input: &Input) -> Result<DynamicImage, Failure> {
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
    Ok(upright(image, orientation))
}

/// The picture as it is looked at.
pub(super) fn upright(image: DynamicImage, orientation: Orientation) -> DynamicImage {
    // Transparent areas become white, like paper.
    let mut image = if image.color().has_alpha() { on_white(&image) } else { image };
    image.apply_orientation(orientation);
    image
}

fn gray(image: DynamicImage) -> GrayImage {
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
pub(super) fn dpi(width: u32, height: u32) -> u32 {
    (width.min(height) as f32 / SHEET).round().clamp(70.0, 600.0) as u32
}
