//! White strips between columns, which hardly any line crosses from top to bottom.

use signalbox_pdf::Area;

/// A gutter is at least this wide, in points.
pub(super) const GUTTER: f32 = 7.0;
/// A column is at least this wide, in points.
pub(super) const COLUMN: f32 = 80.0;

/// The left edge of all `areas`, and for each point from there to the right, how many lie over it.
pub(super) fn cover(areas: &[Area]) -> (f32, Vec<u32>) {
    let left = areas.iter().map(|area| area.left).fold(f32::MAX, f32::min);
    let right = areas.iter().map(|area| area.right).fold(f32::MIN, f32::max);
    let width = (right - left).ceil().clamp(0.0, 20_000.0) as usize;
    let mut cover = vec![0_u32; width + 1];
    for area in areas {
        let (from, to) = ((area.left - left) as usize, (area.right - left).ceil() as usize);
        cover[from.min(width)..to.min(width)].iter_mut().for_each(|count| *count += 1);
    }
    (left, cover)
}

/// The middles of the strips that hardly any of `areas` cross.
pub(super) fn middles(areas: &[Area]) -> Vec<f32> {
    let (left, cover) = cover(areas);
    let strips = find(&cover, areas.len() as u32 / 10, GUTTER);
    strips.into_iter().map(|(from, to)| left + (from + to) / 2.0).collect()
}

/// Strips of at least `least` points that at most `allowed` lines cross.
pub(super) fn find(cover: &[u32], allowed: u32, least: f32) -> Vec<(f32, f32)> {
    let mut found = Vec::new();
    let mut from = None;
    for (at, count) in cover.iter().enumerate() {
        match (from, *count <= allowed) {
            (None, true) => from = Some(at),
            (Some(begun), false) => {
                found.push((begun as f32, at as f32));
                from = None;
            }
            _ => {}
        }
    }
    let whitest: Vec<(f32, f32)> = found.iter().filter_map(|strip| whitest(cover, *strip, least)).collect();
    found.extend(whitest);
    found.retain(|(from, to)| to - from >= least && *from > COLUMN && cover.len() as f32 - to > COLUMN);
    found
}

/// The part of a strip that fewest lines cross: one beside a short column may reach into that.
fn whitest(cover: &[u32], (from, to): (f32, f32), least: f32) -> Option<(f32, f32)> {
    let strip = &cover[from as usize..to as usize];
    let most = strip.iter().copied().max().unwrap_or(0);
    let widest = |allowed: u32| {
        let runs = strip.chunk_by(|one, other| (*one <= allowed) == (*other <= allowed));
        let starts = runs.scan(0, |at, run| {
            *at += run.len();
            Some((*at - run.len(), run))
        });
        let white = starts.filter(|(_, run)| run[0] <= allowed && run.len() as f32 >= least);
        white
            .max_by_key(|(_, run)| run.len())
            .map(|(at, run)| (from + at as f32, from + (at + run.len()) as f32))
    };
    (0..most).find_map(widest)
}
