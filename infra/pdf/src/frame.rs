use crate::Area;

/// How places of the file become places of the page as it is seen.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Frame {
    pub(crate) left: f32,
    pub(crate) bottom: f32,
    /// Of the page as it is seen.
    pub(crate) width: f32,
    pub(crate) height: f32,
    /// Quarter turns clockwise.
    pub(crate) turns: i32,
}

impl Frame {
    /// The place `(x, y)`, with y up from the file's origin, as a reader sees it, with y down from the upper edge.
    pub(crate) fn seen(&self, x: f32, y: f32) -> (f32, f32) {
        let (x, y) = (x - self.left, y - self.bottom);
        match self.turns {
            1 => (y, x),
            2 => (self.width - x, y),
            3 => (self.width - y, self.height - x),
            _ => (x, self.height - y),
        }
    }

    /// The place in the file that a reader sees at `(x, y)`.
    pub(crate) fn unseen(&self, (x, y): (f32, f32)) -> (f32, f32) {
        let (x, y) = match self.turns {
            1 => (y, x),
            2 => (self.width - x, y),
            3 => (self.height - y, self.width - x),
            _ => (x, self.height - y),
        };
        (x + self.left, y + self.bottom)
    }

    /// The rectangle between two corners of the file, as a reader sees it.
    pub(crate) fn seen_area(&self, (x, y): (f32, f32), (to_x, to_y): (f32, f32)) -> Area {
        let (one, other) = (self.seen(x, y), self.seen(to_x, to_y));
        Area {
            left: one.0.min(other.0),
            top: one.1.min(other.1),
            right: one.0.max(other.0),
            bottom: one.1.max(other.1),
        }
    }
}
