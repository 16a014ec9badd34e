//! Lines that begin with the marker of a list item.

use super::{
    line::Line,
    marker::{Marker, marker},
};

/// The marker at the start of `line`, if text follows it.
pub(crate) fn marker_of(line: &Line) -> Option<Marker> {
    let first = line.words.first()?;
    if line.words.len() < 2 {
        return None;
    }
    marker(&first.text)
}

/// Parts the marker with this number from a word that it is stuck to: "10.Text".
pub(crate) fn part_marker(line: &mut Line, number: u64) {
    let Some(first) = line.words.first() else { return };
    let marker = format!("{number}.");
    let Some(rest) = first.text.strip_prefix(&marker).filter(|rest| rest.starts_with(char::is_alphabetic))
    else {
        return;
    };
    let (mut alone, mut word) = (first.clone(), first.clone());
    let share = marker.len() as f32 / first.text.len() as f32;
    let edge = first.area.left + share * first.area.width();
    (alone.area.right, word.area.left) = (edge, edge);
    word.text = rest.to_owned();
    alone.text = marker;
    line.words.splice(..1, [alone, word]);
}
