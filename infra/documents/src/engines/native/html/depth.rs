//! How deeply a page may be nested.

use crate::failure::Failure;

/// Elements within elements at most.
pub(super) const DEPTH: usize = 400;
/// Elements that need no end, so that many of them are not deep.
const UNENDED: [&str; 30] = [
    "p", "li", "dd", "dt", "tr", "td", "th", "tbody", "thead", "tfoot", "option", "optgroup", "br", "img",
    "hr", "input", "meta", "link", "area", "base", "col", "embed", "source", "track", "wbr", "html", "head",
    "body", "rp", "rt",
];

/// Refuses what is nested absurdly before the parser sees it: its work grows with the square of the depth.
pub(super) fn check_depth(html: &str) -> Result<(), Failure> {
    let mut depth = 0_usize;
    for tag in html.split('<').skip(1) {
        let name = |text: &str| -> String {
            text.chars()
                .take_while(char::is_ascii_alphanumeric)
                .take(12)
                .collect::<String>()
                .to_ascii_lowercase()
        };
        if let Some(end) = tag.strip_prefix('/') {
            if !UNENDED.contains(&name(end).as_str()) {
                depth = depth.saturating_sub(1);
            }
        } else if tag.starts_with(|first: char| first.is_ascii_alphabetic()) {
            let is_closed = tag.split('>').next().is_some_and(|tag| tag.ends_with('/'));
            if !is_closed && !UNENDED.contains(&name(tag).as_str()) {
                depth += 1;
            }
        }
        if depth > 4 * DEPTH {
            return Err(Failure::too_much("the page is nested more deeply than is read"));
        }
    }
    Ok(())
}
