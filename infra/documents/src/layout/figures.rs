//! Figures that are drawn, such as charts and diagrams: curves and slanted lines close to each other.

use signalbox_pdf::{Area, Shape};

/// Side of the squares by which it is found out what is close to what, in points.
const SQUARE: f32 = 12.0;
/// Squares of a page at most; a larger page has larger ones.
const SQUARES: f32 = 400.0;
/// Curved or slanted shapes of a figure at least: round frames of texts have fewer.
const SHAPES: usize = 6;
/// Share of a page from which on a shape is its background.
const BACKGROUND: f32 = 0.5;

/// The figures of a page of `width` and `height`, from top to bottom. Each side is `least` long at least.
pub(crate) fn find(shapes: &[Shape], width: f32, height: f32, least: f32) -> Vec<Area> {
    let is_part = |shape: &&Shape| shape.area.width() * shape.area.height() < BACKGROUND * width * height;
    let shapes: Vec<&Shape> = shapes.iter().filter(is_part).collect();
    if shapes.iter().filter(|shape| shape.is_drawn).count() < SHAPES {
        return Vec::new();
    }
    let mut squares = Squares::new(width, height);
    shapes.iter().for_each(|shape| squares.mark(&shape.area));
    squares.number();
    let mut groups: Vec<(usize, Option<Area>)> = vec![(0, None); squares.groups + 1];
    for shape in shapes {
        let (drawn, area) = &mut groups[squares.group_of(&shape.area)];
        *drawn += usize::from(shape.is_drawn);
        *area = Some(area.map_or(shape.area, |area| area.union(&shape.area)));
    }
    let page = Area { left: 0.0, top: 0.0, right: width, bottom: height };
    let is_figure = |(drawn, area): (usize, Option<Area>)| {
        let area = within(&area?, &page);
        (drawn >= SHAPES && area.width() >= least && area.height() >= least).then_some(area)
    };
    let mut found: Vec<Area> = groups.into_iter().filter_map(is_figure).collect();
    found.sort_by(|one, other| one.top.total_cmp(&other.top));
    found
}

fn within(area: &Area, page: &Area) -> Area {
    Area {
        left: area.left.max(page.left),
        top: area.top.max(page.top),
        right: area.right.min(page.right),
        bottom: area.bottom.min(page.bottom),
    }
}

/// A page as squares, numbered by the group of touching ones that they are in.
struct Squares {
    side: f32,
    columns: usize,
    rows: usize,
    /// 0 for an empty one.
    numbers: Vec<usize>,
    groups: usize,
}

/// Marked, and not numbered yet.
const MARKED: usize = usize::MAX;

impl Squares {
    fn new(width: f32, height: f32) -> Self {
        let side = SQUARE.max(width.max(height) / SQUARES);
        let count = |length: f32| (length / side) as usize + 1;
        let (columns, rows) = (count(width), count(height));
        Self { side, columns, rows, numbers: vec![0; columns * rows], groups: 0 }
    }

    fn square(&self, x: f32, y: f32) -> (usize, usize) {
        let index = |at: f32, count: usize| ((at / self.side).max(0.0) as usize).min(count - 1);
        (index(x, self.columns), index(y, self.rows))
    }

    fn mark(&mut self, area: &Area) {
        let ((left, top), (right, bottom)) =
            (self.square(area.left, area.top), self.square(area.right, area.bottom));
        for row in top..=bottom {
            self.numbers[row * self.columns + left..=row * self.columns + right].fill(MARKED);
        }
    }

    fn number(&mut self) {
        for start in 0..self.numbers.len() {
            if self.numbers[start] != MARKED {
                continue;
            }
            self.groups += 1;
            self.numbers[start] = self.groups;
            let mut open = vec![start];
            while let Some(at) = open.pop() {
                let (column, row) = (at % self.columns, at / self.columns);
                for row in row.saturating_sub(1)..(row + 2).min(self.rows) {
                    for column in column.saturating_sub(1)..(column + 2).min(self.columns) {
                        let next = row * self.columns + column;
                        if self.numbers[next] == MARKED {
                            self.numbers[next] = self.groups;
                            open.push(next);
                        }
                    }
                }
            }
        }
    }

    fn group_of(&self, area: &Area) -> usize {
        let (column, row) = self.square(area.left, area.top);
        self.numbers[row * self.columns + column]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shape(left: f32, top: f32, width: f32, height: f32, is_drawn: bool) -> Shape {
        Shape { area: Area { left, top, right: left + width, bottom: top + height }, is_drawn }
    }

    #[test]
    fn curves_close_to_each_other_are_one_figure() {
        let mut shapes = vec![shape(0.0, 0.0, 595.0, 842.0, false)];
        for step in 0..8 {
            let at = 20.0 * step as f32;
            shapes.push(shape(100.0 + at, 300.0 - at, 20.0, 20.0, true));
            // The bars of another chart, and the frame of a text, are not drawn.
            shapes.push(shape(100.0 + at, 500.0, 10.0, 100.0, false));
        }
        shapes.push(shape(50.0, 700.0, 400.0, 60.0, true));
        let found = find(&shapes, 595.0, 842.0, 48.0);
        assert_eq!(found, [Area { left: 100.0, top: 160.0, right: 260.0, bottom: 320.0 }]);
    }

    #[test]
    fn shapes_outside_of_the_page_are_cut() {
        let shapes: Vec<Shape> =
            (0..9).map(|step| shape(-50.0 + 20.0 * step as f32, -20.0, 25.0, 120.0, true)).collect();
        let found = find(&shapes, 200.0, 200.0, 48.0);
        assert_eq!(found, [Area { left: 0.0, top: 0.0, right: 135.0, bottom: 100.0 }]);
    }
}
