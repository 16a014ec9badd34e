//! Columns in a part of a page: between what lies across, such as figures over the whole width, no gutter is seen in all of its
//! lines together.

use signalbox_pdf::Area;

use super::{
    piece::{Gutters, Piece, crosses},
    strips,
};

/// Lines of such columns, at least.
const LINES: usize = 8;
/// A line that takes more of the width of the text lies across all of its columns.
const ACROSS: f32 = 0.6;
/// How much of the lower one of two columns stands beside the other.
const BESIDE: f32 = 0.5;

/// The pieces above columns, the columns, and the pieces below them.
pub(super) type Band = [Vec<Piece>; 3];

/// The part of a page with most lines that has columns; `pieces`, sorted by their upper edges, if there is none.
pub(super) fn find(
    pieces: Vec<Piece>,
    gutters: &Gutters,
    is_gutter: impl Fn(&[&Piece], f32) -> bool,
) -> Result<Band, Vec<Piece>> {
    let areas: Vec<Area> = pieces.iter().map(Piece::area).collect();
    let mut best: Option<(usize, f32, f32)> = None;
    for gutter in candidates(&pieces, gutters) {
        for run in areas.split(|area| crosses(area, gutter)) {
            let (top, bottom) = extent(run);
            if run.len() < LINES || best.is_some_and(|(most, ..)| run.len() <= most) {
                continue;
            }
            let within: Vec<&Piece> =
                pieces.iter().filter(|piece| is_within(&piece.area(), top, bottom)).collect();
            if are_beside(run, gutter) && is_gutter(&within, gutter) {
                best = Some((run.len(), top, bottom));
            }
        }
    }
    let Some((_, top, bottom)) = best else { return Err(pieces) };
    let mut band: Band = Default::default();
    for piece in pieces {
        let area = piece.area();
        let part = if is_within(&area, top, bottom) { 1 } else { 2 * usize::from(area.top > top) };
        band[part].push(piece);
    }
    // Otherwise all of it would be looked at again and again.
    let is_part = !(band[0].is_empty() && band[2].is_empty());
    if is_part { Ok(band) } else { Err(band.into_iter().flatten().collect()) }
}

fn is_within(area: &Area, top: f32, bottom: f32) -> bool {
    area.top >= top && area.bottom <= bottom
}

fn extent(areas: &[Area]) -> (f32, f32) {
    areas
        .iter()
        .fold((f32::MAX, f32::MIN), |(top, bottom), area| (top.min(area.top), bottom.max(area.bottom)))
}

/// Whether the areas on both sides of `gutter` are beside each other.
fn are_beside(areas: &[Area], gutter: f32) -> bool {
    let (left, right): (Vec<Area>, Vec<Area>) = areas.iter().partition(|area| area.right <= gutter);
    let ((top, bottom), (other_top, other_bottom)) = (extent(&left), extent(&right));
    let both = bottom.min(other_bottom) - top.max(other_top);
    both > BESIDE * (bottom - top).min(other_bottom - other_top)
}

/// Gutters of other pages, and the white strips that lines leave which do not lie across everything.
fn candidates(pieces: &[Piece], gutters: &Gutters) -> Vec<f32> {
    let lines: Vec<Area> = pieces.iter().filter(|piece| piece.is_line()).map(Piece::area).collect();
    let Some(all) = lines.iter().copied().reduce(|one, other| one.union(&other)) else { return Vec::new() };
    let narrow: Vec<Area> = lines.into_iter().filter(|line| line.width() < ACROSS * all.width()).collect();
    let mut found: Vec<f32> =
        gutters.iter().filter(|gutter| (all.left..all.right).contains(gutter)).collect();
    found.extend(strips::middles(&narrow));
    found
}
