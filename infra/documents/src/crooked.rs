//! Pages that were scanned at an angle. They are made level to be read, and places are given as they are on the page.

use signalbox_pdf::Area;

use crate::{
    block::{Block, BlockPlace, Content},
    layout::LinedPage,
};

/// How a page was made level: (x, y) became (x + slope * y, y - slope * x).
#[derive(Debug, Clone, Copy)]
pub(crate) struct Crooked {
    /// From 1.
    pub(crate) page: usize,
    pub(crate) slope: f32,
}

impl Crooked {
    /// The place of a point before the page was made level.
    pub(crate) fn point(&self, x: f32, y: f32) -> (f32, f32) {
        let square = 1.0 + self.slope * self.slope;
        ((x - self.slope * y) / square, (y + self.slope * x) / square)
    }

    /// The smallest upright rectangle around all of `area`.
    fn area(&self, area: &Area) -> Area {
        let corners = [
            (area.left, area.top),
            (area.right, area.top),
            (area.left, area.bottom),
            (area.right, area.bottom),
        ];
        let around = corners.map(|(x, y)| {
            let (x, y) = self.point(x, y);
            Area { left: x, top: y, right: x, bottom: y }
        });
        around.into_iter().reduce(|one, other| one.union(&other)).unwrap_or(*area)
    }

    fn place(&self, place: &mut BlockPlace) {
        if place.page == self.page {
            let [left, top, right, bottom] = place.bbox.map(|points| points as f32);
            *place = BlockPlace::new(self.page, &self.area(&Area { left, top, right, bottom }));
        }
    }

    /// Gives lines and words their places on the page.
    pub(crate) fn restore_lines(&self, page: &mut LinedPage) {
        for line in page.blocks.iter_mut().flatten() {
            line.area = self.area(&line.area);
            line.words.iter_mut().for_each(|word| word.area = self.area(&word.area));
        }
    }
}

/// Gives blocks and their words their places on the pages. Pictures were not made level.
pub(crate) fn restore(blocks: &mut [Block], pages: &[Crooked]) {
    for page in pages {
        for block in blocks.iter_mut().filter(|block| !matches!(block.content, Content::ImageRef(_))) {
            let places = block.places.iter_mut();
            places
                .chain(block.words.iter_mut().flat_map(|word| &mut word.places))
                .for_each(|place| page.place(place));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::block::BlockWord;

    #[test]
    fn places_are_those_on_the_page() {
        // A line that fell by one in ten from (100, 200) to (300, 220).
        let page = Crooked { page: 2, slope: 0.1 };
        let (x, y) = (100.0 + 0.1 * 200.0, 200.0 - 0.1 * 100.0);
        let level = Area { left: x, top: y - 10.0, right: x + 202.0, bottom: y };
        let place = BlockPlace::new(2, &level);
        let other = BlockPlace::new(1, &level);
        let block = |content: Content| Block {
            page: Some(2),
            places: vec![place, other],
            words: vec![BlockWord { text: "x".to_owned(), places: vec![place], confidence: Some(1.0) }],
            content,
        };
        let mut blocks =
            [block(Content::Paragraph("x".to_owned())), block(Content::ImageRef("x".to_owned()))];
        restore(&mut blocks, &[page]);
        let [text, picture] = blocks;
        let expected = [100.0, 190.1, 300.99, 220.0];
        for place in [&text.places[0], &text.words[0].places[0]] {
            let is_near = place.bbox.iter().zip(expected).all(|(one, other)| (one - other).abs() < 0.05);
            assert!(is_near, "{place:?}");
        }
        assert_eq!(text.places[1], other);
        assert_eq!(picture.places, [place, other]);
    }
}
