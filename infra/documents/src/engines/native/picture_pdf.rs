//! A picture as a PDF: a page for each frame, as large as recognition takes it to be.

use std::io::{Cursor, Write as _};

use image::{
    DynamicImage, ExtendedColorType, ImageDecoder, ImageEncoder, ImageReader,
    codecs::png::{CompressionType, FilterType, PngEncoder},
    metadata::Orientation,
};

use super::{
    super::Input,
    frames::{Frame, Frames},
    images,
};
use crate::{detect, failure::Failure};

/// Bytes of a PNG before its first chunk, and of a chunk besides its content.
const SIGNATURE: usize = 8;
const AROUND_CHUNK: usize = 12;

/// The picture of a page, and its compression.
struct Shown {
    width: u32,
    height: u32,
    is_gray: bool,
    filter: String,
    bytes: Vec<u8>,
}

/// The PDF of a picture that could be read; at most `most` bytes.
pub(crate) fn picture_pdf(mut input: Input, most: usize) -> Result<Vec<u8>, Failure> {
    let mut file = File::new(most);
    if input.mime_type == detect::TIFF {
        let mut frames = Frames::open(&mut input.bytes, input.max_pixels, input.max_pages)?;
        while let Some(Frame { image, orientation, .. }) = frames.next()? {
            file.add(&compressed(&images::upright(image, orientation))?)?;
        }
    } else {
        match unchanged(&input) {
            Some(jpeg) => file.add(&jpeg)?,
            None => file.add(&compressed(&images::picture(&input)?)?)?,
        }
    }
    file.finish()
}

/// A JPEG as it is, if PDFs can show it so.
fn unchanged(input: &Input) -> Option<Shown> {
    if input.mime_type != detect::JPEG {
        return None;
    }
    let mut decoder =
        ImageReader::new(Cursor::new(&input.bytes)).with_guessed_format().ok()?.into_decoder().ok()?;
    let (width, height) = decoder.dimensions();
    let is_upright = decoder.orientation().is_ok_and(|found| found == Orientation::NoTransforms);
    let is_gray = match components(&input.bytes)? {
        1 => true,
        3 => false,
        // Programs differ about which of their four colours are inverted.
        _ => return None,
    };
    let filter = "/DCTDecode".to_owned();
    is_upright.then(|| Shown { width, height, is_gray, filter, bytes: input.bytes.clone() })
}

/// How many colours the frame of a JPEG has, ITU-T T.81 annex B.
fn components(jpeg: &[u8]) -> Option<u8> {
    let mut at = 2;
    loop {
        let [0xFF, marker, high, low] = *jpeg.get(at..at + 4)?.first_chunk::<4>()? else { return None };
        match marker {
            // Fill bytes.
            0xFF => at += 1,
            0xC0..=0xC3 | 0xC5..=0xC7 | 0xC9..=0xCB | 0xCD..=0xCF => return jpeg.get(at + 9).copied(),
            0xDA => return None,
            _ => at += 2 + usize::from(u16::from_be_bytes([high, low])),
        }
    }
}

/// Without loss: the data of a PNG are what PDFs call a flate stream with predictors.
fn compressed(image: &DynamicImage) -> Result<Shown, Failure> {
    let too_large = |_| Failure::too_much("the picture is too large for a PDF: make it smaller");
    let is_gray = !image.color().has_color();
    let (width, height) = (image.width(), image.height());
    let mut png = Vec::new();
    let encoder = PngEncoder::new_with_quality(&mut png, CompressionType::Default, FilterType::Adaptive);
    let written = if is_gray {
        encoder.write_image(&image.to_luma8(), width, height, ExtendedColorType::L8)
    } else {
        encoder.write_image(&image.to_rgb8(), width, height, ExtendedColorType::Rgb8)
    };
    written.map_err(too_large)?;
    let colors = if is_gray { 1 } else { 3 };
    let filter = format!("/FlateDecode/DecodeParms<</Predictor 15/Colors {colors}/Columns {width}>>");
    Ok(Shown { width, height, is_gray, filter, bytes: data_of(&png) })
}

/// The joined contents of the chunks of data of a PNG.
fn data_of(png: &[u8]) -> Vec<u8> {
    let (mut data, mut rest) = (Vec::with_capacity(png.len()), png.get(SIGNATURE..).unwrap_or_default());
    while let Some((length, kind)) = rest
        .split_first_chunk::<4>()
        .and_then(|(length, rest)| Some((u32::from_be_bytes(*length) as usize, rest.get(..4)?)))
    {
        if kind == b"IDAT" {
            data.extend_from_slice(rest.get(8..8 + length).unwrap_or_default());
        }
        rest = rest.get(AROUND_CHUNK + length..).unwrap_or_default();
    }
    data
}

/// A PDF that is being written: catalog and list of pages are the objects 1 and 2, each page has three.
struct File {
    bytes: Vec<u8>,
    /// Where the objects from number 3 on begin.
    places: Vec<usize>,
    most: usize,
}

impl File {
    fn new(most: usize) -> Self {
        Self { bytes: b"%PDF-1.5\n%\xE2\xE3\xCF\xD3\n".to_vec(), places: Vec::new(), most }
    }

    fn add(&mut self, shown: &Shown) -> Result<(), Failure> {
        let points = |pixels: u32| pixels as f32 * 72.0 / images::dpi(shown.width, shown.height) as f32;
        let (width, height) = (points(shown.width), points(shown.height));
        let number = 3 + self.places.len();
        let (content, image) = (number + 1, number + 2);
        let drawn = format!("q {width:.3} 0 0 {height:.3} 0 0 cm /I Do Q");
        self.object(
            &format!(
                "<</Type/Page/Parent 2 0 R/MediaBox[0 0 {width:.3} {height:.3}]/Resources<</XObject<</I {image} 0 R>>>>\
                 /Contents {content} 0 R>>"
            ),
            None,
        )?;
        self.object(&format!("<</Length {}>>", drawn.len()), Some(drawn.as_bytes()))?;
        let Shown { width, height, is_gray, filter, bytes } = shown;
        let colours = if *is_gray { "DeviceGray" } else { "DeviceRGB" };
        self.object(
            &format!(
                "<</Type/XObject/Subtype/Image/Width {width}/Height {height}/ColorSpace/{colours}/BitsPerComponent 8\
                 /Length {}/Filter{filter}>>",
                bytes.len()
            ),
            Some(bytes),
        )
    }

    fn object(&mut self, dictionary: &str, stream: Option<&[u8]>) -> Result<(), Failure> {
        let length = stream.map_or(0, <[u8]>::len);
        if self.bytes.len() + length > self.most || self.bytes.try_reserve(length).is_err() {
            return Err(Failure::too_much("the picture is too large for a PDF: make it smaller"));
        }
        self.places.push(self.bytes.len());
        let number = 2 + self.places.len();
        self.write(&format!("{number} 0 obj\n{dictionary}\n"));
        if let Some(stream) = stream {
            self.write("stream\n");
            self.bytes.extend_from_slice(stream);
            self.write("\nendstream\n");
        }
        self.write("endobj\n");
        Ok(())
    }

    fn write(&mut self, text: &str) {
        // Writing to a vector does not fail.
        let _ = self.bytes.write_all(text.as_bytes());
    }

    fn finish(mut self) -> Result<Vec<u8>, Failure> {
        let count = self.places.len() / 3;
        let kids: String = (0..count).map(|index| format!("{} 0 R ", 3 + 3 * index)).collect();
        let catalog = self.bytes.len();
        self.write("1 0 obj\n<</Type/Catalog/Pages 2 0 R>>\nendobj\n");
        let pages = self.bytes.len();
        self.write(&format!("2 0 obj\n<</Type/Pages/Count {count}/Kids[{kids}]>>\nendobj\n"));
        let (table, all) = (self.bytes.len(), 3 + self.places.len());
        let places: String = [catalog, pages]
            .iter()
            .chain(&self.places)
            .map(|place| format!("{place:010} 00000 n \n"))
            .collect();
        self.write(&format!("xref\n0 {all}\n0000000000 65535 f \n{places}"));
        self.write(&format!("trailer\n<</Size {all}/Root 1 0 R>>\nstartxref\n{table}\n%%EOF\n"));
        Ok(self.bytes)
    }
}

#[cfg(test)]
mod tests {
    use image::{GrayImage, Luma};

    use super::*;

    fn input(bytes: Vec<u8>, mime_type: &'static str) -> Input {
        Input { bytes, mime_type, max_pages: 9, max_pixels: 1_000_000 }
    }

    fn encoded(format: image::ImageFormat) -> Vec<u8> {
        let image = GrayImage::from_fn(100, 50, |x, y| Luma([(x + y) as u8]));
        let mut bytes = Cursor::new(Vec::new());
        DynamicImage::ImageLuma8(image).write_to(&mut bytes, format).unwrap();
        bytes.into_inner()
    }

    #[test]
    fn a_jpeg_is_kept_as_it_is() {
        let jpeg = encoded(image::ImageFormat::Jpeg);
        assert_eq!(components(&jpeg), Some(1));
        let pdf = picture_pdf(input(jpeg.clone(), detect::JPEG), 1 << 20).unwrap();
        assert!(pdf.windows(jpeg.len()).any(|part| part == jpeg));
        assert!(matches!(
            picture_pdf(input(jpeg.clone(), detect::JPEG), jpeg.len()),
            Err(Failure::TooMuch { .. })
        ));
    }

    #[test]
    fn other_pictures_are_kept_without_loss() {
        let pdf = picture_pdf(input(encoded(image::ImageFormat::Png), detect::PNG), 1 << 20).unwrap();
        let text = String::from_utf8_lossy(&pdf);
        assert!(text.contains("/Width 100/Height 50/ColorSpace/DeviceGray"), "{text}");
        assert!(text.contains("/Predictor 15/Colors 1/Columns 100"), "{text}");
        assert_eq!(components(b"\xFF\xD8\xFF"), None);
    }
}
