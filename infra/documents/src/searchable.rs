//! The words that were recognised, as a layer of unseen text for the pages that they were recognised on.

use signalbox_pdf::{Layer, UnseenWord, Word};

use crate::{crooked::Crooked, layout::PageContent};

/// The layers of those of `pages` on which words were recognised; words that the file has stay as they are in it.
pub(crate) fn layers(pages: &[PageContent]) -> Vec<Layer> {
    let layers = pages.iter().filter(|page| page.confidence.is_some()).filter_map(layer);
    layers.filter(|layer| !layer.words.is_empty()).collect()
}

fn layer(page: &PageContent) -> Option<Layer> {
    let as_seen = AsSeen::of(page);
    let recognised = page.words.iter().filter(|word| word.confidence.is_some());
    Some(Layer {
        page: page.number.checked_sub(1)?,
        width: as_seen.width,
        height: as_seen.height,
        words: recognised.map(|word| as_seen.unseen(word)).collect(),
    })
}

/// How places of a page that was turned and straightened to be read are turned back.
struct AsSeen {
    /// Of the page as it is seen.
    width: f32,
    height: f32,
    /// Width of the page as it was read.
    read_width: f32,
    turns: u32,
    crooked: Crooked,
}

impl AsSeen {
    fn of(page: &PageContent) -> Self {
        let is_level = page.turns.is_multiple_of(2);
        let (width, height) = if is_level { (page.width, page.height) } else { (page.height, page.width) };
        let crooked = Crooked { page: page.number, slope: page.slope };
        Self { width, height, read_width: page.width, turns: page.turns % 4, crooked }
    }

    fn unseen(&self, word: &Word) -> UnseenWord {
        UnseenWord {
            text: word.text.clone(),
            from: self.place(word.area.left, word.baseline),
            to: self.place(word.area.right, word.baseline),
            size: word.style.size,
        }
    }

    fn place(&self, x: f32, y: f32) -> (f32, f32) {
        let (mut x, mut y) = self.crooked.point(x, y);
        let mut width = self.read_width;
        for turn in 0..self.turns {
            (x, y) = (y, width - x);
            width =
                if turn.is_multiple_of(2) == self.turns.is_multiple_of(2) { self.height } else { self.width };
        }
        (x, y)
    }
}

#[cfg(test)]
mod tests {
    use signalbox_pdf::{Area, Style};

    use super::*;

    fn word(confidence: Option<f32>) -> Word {
        Word {
            text: "word".to_owned(),
            area: Area { left: 10.0, top: 12.0, right: 50.0, bottom: 22.0 },
            baseline: 20.0,
            style: Style { size: 10.0, ..Style::default() },
            confidence,
        }
    }

    fn page(turns: u32, slope: f32) -> PageContent {
        let (width, height) = if turns.is_multiple_of(2) { (200.0, 300.0) } else { (300.0, 200.0) };
        let words = vec![word(None), word(Some(0.9))];
        let confidence = Some(0.9);
        PageContent { number: 3, width, height, words, turns, slope, confidence, ..PageContent::default() }
    }

    #[test]
    fn words_are_turned_back_to_where_the_page_shows_them() {
        // The page as it is seen is 200 wide and 300 high, whichever way it was turned to be read.
        let expected = [
            ((10.0, 20.0), (50.0, 20.0)),
            ((20.0, 290.0), (20.0, 250.0)),
            ((190.0, 280.0), (150.0, 280.0)),
            ((180.0, 10.0), (180.0, 50.0)),
        ];
        for (turns, (from, to)) in (0..).zip(expected) {
            let layers = layers(&[page(turns, 0.0)]);
            let [layer] = layers.as_slice() else { panic!("{layers:?}") };
            assert_eq!((layer.page, layer.width, layer.height), (2, 200.0, 300.0), "{turns}");
            let [word] = layer.words.as_slice() else { panic!("{layer:?}") };
            assert_eq!((word.from, word.to), (from, to), "{turns}");
        }
    }

    #[test]
    fn words_of_a_crooked_page_slope_again() {
        let layers = layers(&[page(0, 0.1)]);
        let (from, to) = (layers[0].words[0].from, layers[0].words[0].to);
        let slope = (to.1 - from.1) / (to.0 - from.0);
        assert!((slope - 0.1).abs() < 0.001, "{from:?} {to:?}");
    }

    #[test]
    fn pages_without_recognised_words_get_no_layer() {
        let read = PageContent { words: vec![word(None)], ..page(0, 0.0) };
        assert_eq!(layers(&[read, PageContent { confidence: None, ..page(0, 0.0) }]), []);
    }
}
