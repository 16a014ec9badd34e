//! The pieces of a page, and the gutters between its columns.

use signalbox_pdf::Area;

use super::{line::Line, strips::GUTTER};

/// Most gutters that are known of a document.
const GUTTERS: usize = 64;

/// The content of a page, in pieces that are read as a whole.
#[derive(Debug, Clone)]
pub(crate) enum Piece {
    Line(Line),
    /// A table or image that was found already, with its place in a list.
    Found(Area, usize),
}

impl Piece {
    pub(crate) fn area(&self) -> Area {
        match self {
            Self::Line(line) => line.area,
            Self::Found(area, _) => *area,
        }
    }

    pub(super) fn is_line(&self) -> bool {
        matches!(self, Self::Line(_))
    }
}

/// The gutters of the pages so far, so that a column of two lines on the last page is seen as one.
#[derive(Debug, Default)]
pub(crate) struct Gutters(pub(super) Vec<f32>);

impl Gutters {
    /// Keeps one that is not known yet.
    pub(super) fn add(&mut self, gutter: f32) {
        if self.0.len() < GUTTERS && !self.0.iter().any(|known| (known - gutter).abs() < GUTTER) {
            self.0.push(gutter);
        }
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = f32> {
        self.0.iter().copied()
    }
}

/// Whether `area` lies on both sides of `gutter`.
pub(super) fn crosses(area: &Area, gutter: f32) -> bool {
    area.left < gutter && area.right > gutter
}
