//! Evens out the light of a page. Under a shadow paper is as dark as ink is elsewhere, so that no single threshold, which
//! is what Tesseract looks for, parts them everywhere.

use signalbox_pdf::GrayImage;

/// Side of the squares whose light is measured, in pixels: larger than letters, smaller than shadows.
const CELL: usize = 32;
/// Squares around one that are looked at with it: paper shows through wherever there is text or a small picture.
const AROUND: usize = 2;
/// The paper of a square is lighter than this share of it, in percent.
const PAPER: usize = 80;
/// Light of the darkest paper that is evened out; a darker square is a picture, or the scanner's lid.
const DARKEST: u8 = 40;
/// Letters that are lighter than their ground by more than this show a dark ground rather than a shadow.
const LIGHT_LETTERS: u16 = 60;
/// Paper that differs less than this is even.
const EVEN: f32 = 0.85;
/// The share of squares at both ends that says nothing, in percent.
const ODD: usize = 2;

/// Makes all paper as light as the lightest; leaves a page alone that is even.
pub(super) fn even_out(image: &mut GrayImage) -> bool {
    let (width, height) = (image.width as usize, image.height as usize);
    if width < CELL || height < CELL || image.pixels.len() != width * height {
        return false;
    }
    let columns = width.div_ceil(CELL);
    let measured: Vec<Option<f32>> = (0..height.div_ceil(CELL))
        .flat_map(|row| (0..columns).map(move |column| (row, column)))
        .map(|(row, column)| paper(image, row, column))
        .collect();
    let Some(lightest) = share(measured.iter().flatten().copied(), 100 - ODD) else { return false };
    let mut light = Grid { columns, cells: measured.iter().map(|cell| cell.unwrap_or(lightest)).collect() };
    light.around(f32::max);
    light.around(f32::min);
    if share(light.cells.iter().copied(), ODD).is_none_or(|darkest| darkest > EVEN * lightest) {
        return false;
    }
    light.smooth();
    for (y, row) in image.pixels.chunks_exact_mut(width).enumerate() {
        let light = light.row(y);
        for (x, pixel) in row.iter_mut().enumerate() {
            let (left, right, part) = between(x, columns);
            let paper = light[left] + part * (light[right] - light[left]);
            *pixel = (f32::from(*pixel) * lightest / paper.max(1.0)).min(255.0) as u8;
        }
    }
    true
}

/// Lightness of the paper in a square; `None` where it shows something else.
fn paper(image: &GrayImage, row: usize, column: usize) -> Option<f32> {
    let (width, height) = (image.width as usize, image.height as usize);
    let (left, right) = (column * CELL, ((column + 1) * CELL).min(width));
    let mut counts = [0_usize; 256];
    for y in row * CELL..((row + 1) * CELL).min(height) {
        image.pixels[y * width + left..y * width + right]
            .iter()
            .for_each(|pixel| counts[usize::from(*pixel)] += 1);
    }
    let all: usize = counts.iter().sum();
    let percent = |percent: usize| {
        let mut left = all * percent / 100;
        let found = counts.iter().position(|count| {
            let is_here = left < *count;
            left = left.saturating_sub(*count);
            is_here
        });
        found.unwrap_or(255) as u8
    };
    let [least, middle, most] = [1, 50, 99].map(|part| u16::from(percent(part)));
    let has_light_letters = most - middle > LIGHT_LETTERS && most - middle > 2 * (middle - least);
    let paper = percent(PAPER);
    (paper >= DARKEST && !has_light_letters).then_some(f32::from(paper))
}

/// The value below which so many percent of `values` are.
fn share(values: impl Iterator<Item = f32>, percent: usize) -> Option<f32> {
    let mut values: Vec<f32> = values.collect();
    values.sort_by(f32::total_cmp);
    values.get(values.len().saturating_sub(1) * percent / 100).copied()
}

/// A value for each square.
struct Grid {
    columns: usize,
    cells: Vec<f32>,
}

impl Grid {
    /// Replaces each value by the one that `choose` selects among it and its neighbours.
    fn around(&mut self, choose: impl Fn(f32, f32) -> f32) {
        self.each_with_neighbours(|values| values.iter().copied().reduce(&choose).unwrap_or_default());
    }

    /// Each value becomes the mean of it and those around it.
    fn smooth(&mut self) {
        self.each_with_neighbours(|values| values.iter().sum::<f32>() / values.len().max(1) as f32);
    }

    /// First along rows, then along columns.
    fn each_with_neighbours(&mut self, make: impl Fn(&[f32]) -> f32) {
        let rows = self.cells.len() / self.columns;
        let along = |line: &[f32]| -> Vec<f32> {
            let value = |at: usize| &line[at.saturating_sub(AROUND)..(at + AROUND + 1).min(line.len())];
            (0..line.len()).map(|at| make(value(at))).collect()
        };
        self.cells = self.cells.chunks(self.columns).flat_map(&along).collect();
        for column in 0..self.columns {
            let line: Vec<f32> = (0..rows).map(|row| self.cells[row * self.columns + column]).collect();
            for (row, value) in along(&line).into_iter().enumerate() {
                self.cells[row * self.columns + column] = value;
            }
        }
    }

    /// The values at the height `y`, in pixels.
    fn row(&self, y: usize) -> Vec<f32> {
        let (above, below, part) = between(y, self.cells.len() / self.columns);
        let row = |row: usize| &self.cells[row * self.columns..(row + 1) * self.columns];
        row(above).iter().zip(row(below)).map(|(one, other)| one + part * (other - one)).collect()
    }
}

/// The two of `count` squares between whose middles a pixel is, and how far it is from the first.
fn between(at: usize, count: usize) -> (usize, usize, f32) {
    let place = ((at as f32 + 0.5) / CELL as f32 - 0.5).clamp(0.0, (count - 1) as f32);
    let first = place as usize;
    (first, (first + 1).min(count - 1), place - first as f32)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIDE: u32 = 640;

    /// Paper with strokes of ink, both of which `light` changes.
    fn page(light: impl Fn(u32, u32) -> f32) -> GrayImage {
        let pixel = |x: u32, y: u32| {
            let is_ink = y % 40 < 20 && x % 12 < 3 && x > 60;
            ((if is_ink { 30.0 } else { 240.0 }) * light(x, y)) as u8
        };
        let pixels =
            (0..SIDE).flat_map(|y| (0..SIDE).map(move |x| (x, y))).map(|(x, y)| pixel(x, y)).collect();
        GrayImage { width: SIDE, height: SIDE, pixels, dpi: 300 }
    }

    /// Pixels that are on the other side of the middle than those of an even page.
    fn wrong(image: &GrayImage) -> usize {
        let even = page(|_, _| 1.0);
        image.pixels.iter().zip(&even.pixels).filter(|(one, other)| (**one < 128) != (**other < 128)).count()
    }

    #[test]
    fn shadows_are_evened_out() {
        let edge = |x: u32| 0.35 + 0.65 * ((x as f32 - 280.0) / 80.0).clamp(0.0, 1.0);
        for mut image in [page(|x, _| edge(x)), page(|x, y| 0.3 + 0.7 * (x + y) as f32 / (2 * SIDE) as f32)] {
            let before = wrong(&image);
            assert!(before > 50_000, "{before}");
            assert!(even_out(&mut image));
            assert!(wrong(&image) < 500, "{} of {before}", wrong(&image));
        }
    }

    #[test]
    fn even_pages_stay_as_they_are() {
        for light in [1.0, 0.6] {
            let mut image = page(|_, _| light);
            let before = image.clone();
            assert!(!even_out(&mut image));
            assert_eq!(image, before);
        }
    }

    #[test]
    fn light_letters_on_a_dark_ground_stay() {
        // The lower half is a dark box with letters of the paper's colour.
        let mut image = page(|_, _| 1.0);
        let half = image.pixels.len() / 2;
        image.pixels[half..].iter_mut().for_each(|pixel| *pixel = if *pixel < 128 { 240 } else { 70 });
        let before = image.clone();
        even_out(&mut image);
        let changed =
            image.pixels.iter().zip(&before.pixels).filter(|(one, other)| (**one < 128) != (**other < 128));
        assert!(changed.count() < 500);
    }
}
