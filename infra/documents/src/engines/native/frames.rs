//! The frames of a TIFF, in every coding and kind of pixels that scanners, fax machines and drawing programs write.

use std::io::Cursor;

use image::{DynamicImage, RgbImage, RgbaImage, metadata::Orientation};
use tiff::{
    ColorType,
    decoder::{Decoder, DecodingResult},
    tags::{ByteOrder, PhotometricInterpretation as Kind, Tag},
};

use super::ccitt::{self, Coding};
use crate::failure::Failure;

/// Compressions by their numbers: TIFF 6.0, and those of one program that all others read.
const RUNS: u16 = 2;
const GROUP_3: u16 = 3;
const GROUP_4: u16 = 4;
const RUNS_IN_WORDS: u16 = 32_771;
/// Bit of the options of Group 3.
const MAY_REFER: u32 = 1;
/// Bits of a byte are in the other order.
const LOWEST_FIRST: u32 = 2;
/// Each sample has a plane of its own.
const PLANES: u32 = 2;
/// The sample that says how much shines through.
const ALPHA: [u16; 2] = [1, 2];

/// A frame as it is shown.
pub(super) struct Frame {
    pub(super) image: DynamicImage,
    pub(super) orientation: Orientation,
    /// Rows that could be decoded, if not all.
    pub(super) rows: Option<(u32, u32)>,
}

/// The frames of an open TIFF, one after the other.
pub(super) struct Frames<'a> {
    bytes: &'a [u8],
    decoder: Decoder<Cursor<&'a [u8]>>,
    kinds: Vec<Option<Kind>>,
    next: usize,
    max_pixels: u32,
}

fn damaged() -> Failure {
    Failure::corrupt("the TIFF is damaged or truncated")
}

fn unsupported() -> Failure {
    Failure::corrupt("the TIFF has a kind of pixels that is not supported: convert it to PNG")
}

fn decoder(bytes: &[u8], max_pixels: u32) -> Result<Decoder<Cursor<&[u8]>>, Failure> {
    let mut limits = tiff::decoder::Limits::default();
    limits.decoding_buffer_size = max_pixels as usize * 4;
    let decoder = Decoder::new(Cursor::new(bytes)).map_err(|_| damaged())?;
    Ok(decoder.with_limits(limits))
}

impl<'a> Frames<'a> {
    /// Opens a TIFF of at most `max_frames`.
    pub(super) fn open(bytes: &'a mut [u8], max_pixels: u32, max_frames: usize) -> Result<Self, Failure> {
        let kinds = prepare(bytes, max_pixels, max_frames)?;
        let bytes: &'a [u8] = bytes;
        let decoder = decoder(bytes, max_pixels)?;
        Ok(Self { bytes, decoder, kinds, next: 0, max_pixels })
    }

    pub(super) fn count(&self) -> usize {
        self.kinds.len()
    }

    /// The next frame; none behind the last one.
    pub(super) fn next(&mut self) -> Result<Option<Frame>, Failure> {
        let Some(kind) = self.kinds.get(self.next).copied() else { return Ok(None) };
        if self.next > 0 {
            self.decoder.next_image().map_err(|_| damaged())?;
        }
        self.next += 1;
        let (width, height) = self.decoder.dimensions().map_err(|_| damaged())?;
        check_size(width, height, self.max_pixels)?;
        let turned = self.decoder.find_tag_unsigned(Tag::Orientation).map_err(|_| damaged())?;
        let orientation = turned.and_then(Orientation::from_exif).unwrap_or(Orientation::NoTransforms);
        if let Some(coding) = self.fax_coding()? {
            let (image, rows) = self.fax(coding, kind, width, height)?;
            return Ok(Some(Frame { image, orientation, rows: (rows < height).then_some((rows, height)) }));
        }
        let image = self.samples(kind, width, height)?;
        Ok(Some(Frame { image, orientation, rows: None }))
    }

    fn number(&mut self, tag: Tag) -> Result<Option<u32>, Failure> {
        self.decoder.find_tag_unsigned(tag).map_err(|_| damaged())
    }

    fn is_reversed(&mut self) -> Result<bool, Failure> {
        Ok(self.number(Tag::FillOrder)? == Some(LOWEST_FIRST))
    }

    /// The coding of a fax that the library does not decode.
    fn fax_coding(&mut self) -> Result<Option<Coding>, Failure> {
        let compression = self.number(Tag::Compression)?.and_then(|number| u16::try_from(number).ok());
        Ok(match compression.unwrap_or(1) {
            RUNS => Some(Coding::Runs),
            RUNS_IN_WORDS => Some(Coding::RunsInWords),
            GROUP_3 => {
                let options = self.number(Tag::Unknown(292))?.unwrap_or(0);
                Some(Coding::Group3 { may_refer: options & MAY_REFER != 0 })
            }
            GROUP_4 if self.is_reversed()? => Some(Coding::Group4),
            _ => None,
        })
    }

    /// A fax, and how many of its rows could be decoded.
    fn fax(
        &mut self,
        coding: Coding,
        kind: Option<Kind>,
        width: u32,
        height: u32,
    ) -> Result<(DynamicImage, u32), Failure> {
        let is_reversed = self.is_reversed()?;
        let rows_each = self.number(Tag::RowsPerStrip)?.unwrap_or(height).clamp(1, height);
        let offsets = self.decoder.get_tag_u64_vec(Tag::StripOffsets).map_err(|_| unsupported())?;
        let lengths = self.decoder.get_tag_u64_vec(Tag::StripByteCounts).map_err(|_| damaged())?;
        let (black, white) = if kind == Some(Kind::BlackIsZero) { (255, 0) } else { (0, 255) };
        let mut light = vec![white; width as usize * height as usize];
        let mut done = 0;
        for (index, (offset, length)) in offsets.into_iter().zip(lengths).enumerate() {
            let first = u32::try_from(index).unwrap_or(u32::MAX).saturating_mul(rows_each);
            if first >= height {
                break;
            }
            let rows = rows_each.min(height - first);
            let start = usize::try_from(offset).unwrap_or(usize::MAX).min(self.bytes.len());
            let end =
                start.saturating_add(usize::try_from(length).unwrap_or(usize::MAX)).min(self.bytes.len());
            let strip = &self.bytes[start..end];
            let reversed: Vec<u8>;
            let strip = if is_reversed {
                reversed = strip.iter().map(|byte| byte.reverse_bits()).collect();
                reversed.as_slice()
            } else {
                strip
            };
            done += ccitt::decode(strip, coding, width, rows, |row, changes| {
                let from = (first + row) as usize * width as usize;
                let line = &mut light[from..from + width as usize];
                for run in changes.chunks(2) {
                    let end = run.get(1).copied().unwrap_or(width);
                    line[run[0] as usize..end as usize].fill(black);
                }
            });
        }
        if done == 0 {
            return Err(damaged());
        }
        let image = image::GrayImage::from_raw(width, height, light).ok_or_else(damaged)?;
        Ok((DynamicImage::ImageLuma8(image), done))
    }

    /// A frame of samples, of whatever kind.
    fn samples(&mut self, kind: Option<Kind>, width: u32, height: u32) -> Result<DynamicImage, Failure> {
        let color = self.decoder.colortype().map_err(|_| unsupported())?;
        // The library does not put tiles of planes together.
        if self.number(Tag::PlanarConfiguration)? == Some(PLANES) && self.number(Tag::TileWidth)?.is_some() {
            return Err(unsupported());
        }
        let mut decoded = DecodingResult::U8(Vec::new());
        let layout = self.decoder.read_image_to_buffer(&mut decoded).map_err(|_| damaged())?;
        let mut samples = interleaved(bytes(decoded).ok_or_else(unsupported)?, layout.planes);
        if self.is_reversed()? && self.number(Tag::Compression)?.is_none_or(|compression| compression == 1) {
            samples.iter_mut().for_each(|sample| *sample = sample.reverse_bits());
        }
        let luma =
            |light: Vec<u8>| image::GrayImage::from_raw(width, height, light).map(DynamicImage::ImageLuma8);
        let whole = |depth: u8| depth >= 8;
        let is_inverted = kind == Some(Kind::WhiteIsZero);
        let image = match color {
            ColorType::Gray(depth) if kind == Some(Kind::RGBPalette) => {
                let colors = self.decoder.get_tag_u16_vec(Tag::ColorMap).map_err(|_| damaged())?;
                let colors = palette(&colors);
                let numbers = if whole(depth) { samples } else { unpacked(&samples, depth, width, height) };
                luma(
                    numbers
                        .into_iter()
                        .map(|number| colors.get(usize::from(number)).copied().unwrap_or(255))
                        .collect(),
                )
            }
            ColorType::Gray(depth) if whole(depth) => luma(samples),
            ColorType::Gray(depth) => {
                let most = (1_u16 << depth) - 1;
                let numbers = unpacked(&samples, depth, width, height);
                luma(numbers.into_iter().map(|number| (u16::from(number) * 255 / most) as u8).collect())
            }
            ColorType::Multiband { bit_depth, num_samples: count @ 2.. } if whole(bit_depth) => {
                let extra =
                    self.decoder.find_tag_unsigned_vec::<u16>(Tag::ExtraSamples).map_err(|_| damaged())?;
                let has_alpha =
                    extra.is_some_and(|extra| extra.first().is_some_and(|first| ALPHA.contains(first)));
                let pixels = samples.chunks_exact(usize::from(count));
                let light = pixels.map(|pixel| {
                    let light = if is_inverted { 255 - pixel[0] } else { pixel[0] };
                    if has_alpha { on_white(light, pixel[1]) } else { light }
                });
                luma(light.collect())
            }
            ColorType::RGB(depth) if whole(depth) => {
                RgbImage::from_raw(width, height, samples).map(DynamicImage::ImageRgb8)
            }
            ColorType::RGBA(depth) if whole(depth) => {
                RgbaImage::from_raw(width, height, samples).map(DynamicImage::ImageRgba8)
            }
            ColorType::CMYK(depth) if whole(depth) => luma(samples.chunks_exact(4).map(ink).collect()),
            ColorType::CMYKA(depth) if whole(depth) => luma(samples.chunks_exact(5).map(ink).collect()),
            // The first sample is how light it is.
            ColorType::YCbCr(depth) | ColorType::Lab(depth) if whole(depth) => {
                luma(samples.chunks_exact(3).map(|pixel| pixel[0]).collect())
            }
            _ => None,
        };
        image.ok_or_else(unsupported)
    }
}

/// Disguises frames as grayscale if the library does not hand out the samples of their kind; returns the original kinds of
/// all frames.
fn prepare(bytes: &mut [u8], max_pixels: u32, max_frames: usize) -> Result<Vec<Option<Kind>>, Failure> {
    let (mut kinds, mut disguised) = (Vec::new(), Vec::new());
    let mut frames = decoder(bytes, max_pixels)?;
    let order = frames.byte_order();
    loop {
        if kinds.len() >= max_frames {
            return Err(Failure::too_much(format!("the TIFF has more than {max_frames} frames: split it")));
        }
        let kind = frames.find_tag_unsigned(Tag::PhotometricInterpretation).map_err(|_| damaged())?;
        let kind = kind.and_then(Kind::from_u16);
        let samples: Option<u16> = frames.find_tag_unsigned(Tag::SamplesPerPixel).map_err(|_| damaged())?;
        let is_odd = match kind {
            Some(Kind::RGBPalette | Kind::TransparencyMask) => true,
            Some(Kind::WhiteIsZero) => samples.is_some_and(|samples| samples > 1),
            _ => false,
        };
        if is_odd && let Some(place) = frames.ifd_pointer() {
            disguised.push(place.0);
        }
        kinds.push(kind);
        if !frames.more_images() {
            break;
        }
        frames.next_image().map_err(|_| damaged())?;
    }
    for place in disguised {
        disguise(bytes, place, order).ok_or_else(damaged)?;
    }
    Ok(kinds)
}

/// Changes the kind of pixels in the directory at `place` to gray.
fn disguise(bytes: &mut [u8], place: u64, order: ByteOrder) -> Option<()> {
    let is_big = bytes.get(2..4)?.contains(&43);
    let (counted, entry, value) = if is_big { (8, 20, 12) } else { (2, 12, 8) };
    let number = |two: &[u8]| match order {
        ByteOrder::LittleEndian => u16::from_le_bytes([two[0], two[1]]),
        ByteOrder::BigEndian => u16::from_be_bytes([two[0], two[1]]),
    };
    let gray = match order {
        ByteOrder::LittleEndian => Kind::BlackIsZero.to_u16().to_le_bytes(),
        ByteOrder::BigEndian => Kind::BlackIsZero.to_u16().to_be_bytes(),
    };
    let start = usize::try_from(place).ok()?.checked_add(counted)?;
    for entry in bytes.get_mut(start..)?.chunks_exact_mut(entry).take(usize::from(u16::MAX)) {
        if number(&entry[..2]) == Tag::PhotometricInterpretation.to_u16() {
            // A value of four bytes has its number at the other end in big-endian files.
            let is_long = number(&entry[2..4]) == 4 && order == ByteOrder::BigEndian;
            let at = value + if is_long { 2 } else { 0 };
            entry.get_mut(at..at + 2)?.copy_from_slice(&gray);
            return Some(());
        }
    }
    None
}

/// Samples of a byte each.
fn bytes(decoded: DecodingResult) -> Option<Vec<u8>> {
    Some(match decoded {
        DecodingResult::U8(samples) => samples,
        DecodingResult::U16(samples) => samples.into_iter().map(|sample| (sample >> 8) as u8).collect(),
        DecodingResult::U32(samples) => samples.into_iter().map(|sample| (sample >> 24) as u8).collect(),
        DecodingResult::F32(samples) => {
            samples.into_iter().map(|sample| (sample.clamp(0.0, 1.0) * 255.0) as u8).collect()
        }
        _ => return None,
    })
}

/// Samples pixel by pixel, of which there are `planes` one after the other.
fn interleaved(samples: Vec<u8>, planes: usize) -> Vec<u8> {
    if planes < 2 {
        return samples;
    }
    let pixels = samples.len() / planes;
    (0..pixels).flat_map(|pixel| samples[pixel..].iter().step_by(pixels).take(planes)).copied().collect()
}

/// Samples of less than a byte as a byte each; rows begin at whole bytes.
fn unpacked(packed: &[u8], depth: u8, width: u32, height: u32) -> Vec<u8> {
    let (width, depth) = (width as usize, usize::from(depth));
    let row = (width * depth).div_ceil(8).max(1);
    let most = ((1_u16 << depth) - 1) as u8;
    let mut samples = Vec::with_capacity(width * height as usize);
    for row in packed.chunks_exact(row).take(height as usize) {
        samples.extend((0..width).map(|x| {
            let bit = x * depth;
            row[bit / 8] >> (8 - depth - bit % 8) & most
        }));
    }
    samples
}

/// How light each colour of a table is, which has all reds, all greens, all blues.
fn palette(colors: &[u16]) -> Vec<u8> {
    let count = colors.len() / 3;
    let color = |number: usize| [0, 1, 2].map(|part| (colors[part * count + number] >> 8) as u8);
    (0..count).map(|number| light(color(number))).collect()
}

/// How light a colour is, by the weights of ITU-R BT.709.
fn light([red, green, blue]: [u8; 3]) -> u8 {
    ((2126 * u32::from(red) + 7152 * u32::from(green) + 722 * u32::from(blue)) / 10_000) as u8
}

/// How light paper is with these amounts of cyan, magenta, yellow and black.
fn ink(pixel: &[u8]) -> u8 {
    let left = |part: usize| ((255 - u16::from(pixel[part])) * (255 - u16::from(pixel[3])) / 255) as u8;
    light([left(0), left(1), left(2)])
}

fn on_white(light: u8, alpha: u8) -> u8 {
    let alpha = u16::from(alpha);
    ((u16::from(light) * alpha + 255 * (255 - alpha)) / 255) as u8
}

pub(super) fn check_size(width: u32, height: u32, most: u32) -> Result<(), Failure> {
    if u64::from(width) * u64::from(height) <= u64::from(most) {
        return Ok(());
    }
    let millions = most / 1_000_000;
    Err(Failure::too_much(format!(
        "the picture has {width} × {height} pixels, but at most {millions} million are read"
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_of_all_kinds_show_dark_letters_on_light_paper() {
        let mut bytes = include_bytes!("../../../../../tests/documents/kinds.tiff").to_vec();
        let mut frames = Frames::open(&mut bytes, 10_000_000, 20).unwrap();
        assert_eq!(frames.count(), 12);
        let mut first: Option<Vec<bool>> = None;
        for number in 0..12 {
            let Frame { image, rows, .. } = frames.next().unwrap().unwrap();
            assert_eq!((image.width(), image.height(), rows), (1240, 600, None), "{number}");
            let dark: Vec<bool> = image.to_luma8().pixels().map(|pixel| pixel[0] < 128).collect();
            let all = dark.iter().filter(|dark| **dark).count();
            assert!((10_000..60_000).contains(&all), "{number}: {all} dark pixels");
            let first = first.get_or_insert_with(|| dark.clone());
            let other = first.iter().zip(&dark).filter(|(one, other)| one != other).count();
            assert!(other * 10 < all, "{number}: {other} pixels differ");
        }
        assert!(frames.next().unwrap().is_none());
    }

    #[test]
    fn damaged_frames_are_refused() {
        let file = include_bytes!("../../../../../tests/documents/kinds.tiff");
        let mut seed = 7_u32;
        for _ in 0..300 {
            let mut bytes = file.to_vec();
            for _ in 0..20 {
                seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                let at = (seed >> 8) as usize % bytes.len();
                bytes[at] ^= seed as u8;
            }
            let end = bytes.len() - 2000;
            bytes[end..].rotate_left(seed as usize % 7);
            let Ok(mut frames) = Frames::open(&mut bytes, 1_000_000, 20) else { continue };
            while let Ok(Some(_)) = frames.next() {}
        }
    }
}
