//! Running heads, footers and page numbers: short lines that repeat at the edge of page after page.
//!
//! A line is taken out of the text only if its look and its repetition say that it is one, and never the first time, so
//! that no word of a document is lost. A page that holds nothing else keeps its lines. Lines that stay are marked, so that
//! they become no headings.

use std::collections::{HashMap, HashSet};

use super::{flow::Usual, line::Line};

/// How much of a page's height its edges are.
const EDGE: f32 = 0.12;
/// Lines of a header or footer at most, and the pieces of which they consist.
const LINES: usize = 3;
const PIECES: usize = 16;
/// Fewest pages on which a running head stands, and its share of the pages between its first and its last.
const PAGES: usize = 3;
const SHARE: f32 = 0.3;
/// A running head is at most this much larger than the running text.
const LARGER: f32 = 1.1;
/// A running head is further from the text than this many usual distances of lines.
const APART: f32 = 1.4;
/// Fewest pages with lines at one place, and their share of the pages between the first and the last, for a place of running
/// heads that change from part to part.
const PLACED: usize = 4;
const PLACED_SHARE: f32 = 0.6;
/// Fewest pages whose numbers follow each other.
const NUMBERED: usize = 2;
/// Words beside the number of a page.
const WORDS: &[&str] = &[
    "seite", "page", "pagina", "página", "strona", "sida", "side", "pg", "s", "p", "von", "of", "de", "sur",
    "/", "-", "–", "—", "|", "·",
];

/// Text at the edges of a page that belongs to no block.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Margins {
    pub(crate) header: Vec<String>,
    pub(crate) footer: Vec<String>,
}

/// The lines of a page, with what else decides about them.
pub(crate) struct Page<'a> {
    pub(crate) lines: &'a mut Vec<Line>,
    pub(crate) height: f32,
    /// Whether it has text that is not in `lines`, such as a table.
    pub(crate) has_more: bool,
}

/// Takes running heads, footers and page numbers out of the lines of each page.
pub(crate) fn take(pages: &mut [Page<'_>], usual: Usual) -> Vec<Margins> {
    let edges: Vec<Vec<Edge>> = pages.iter().map(|page| at_edges(page, usual)).collect();
    let (heads, numbers) = (Heads::of(&edges), Numbers::of(&edges));
    let places = Places::of(&edges, &numbers);
    let mut kept = HashSet::new();
    let mut taken = Vec::with_capacity(pages.len());
    for (number, (page, edges)) in pages.iter_mut().zip(&edges).enumerate() {
        let is_one = |edge: &&Edge| numbers.holds(number, edge) || heads.holds(number, edge);
        let chosen: Vec<&Edge> = edges.iter().filter(is_one).collect();
        let others = page.lines.iter().filter(|line| says_something(line)).count();
        let is_kept = |edge: &&Edge| heads.holds(number, edge) || places.holds(number, edge);
        for edge in edges.iter().filter(is_kept) {
            page.lines[edge.index].is_margin = true;
        }
        if !page.has_more && chosen.len() >= others {
            kept.extend(chosen.into_iter().map(|edge| edge.text.clone()));
            taken.push(Margins::default());
            continue;
        }
        let chosen: Vec<usize> = chosen
            .into_iter()
            .filter(|edge| numbers.holds(number, edge) || !kept.insert(edge.text.clone()))
            .map(|edge| edge.index)
            .collect();
        taken.push(remove(page, &chosen));
    }
    taken
}

fn remove(page: &mut Page<'_>, chosen: &[usize]) -> Margins {
    let mut margins = Margins::default();
    let (mut index, middle) = (0, page.height / 2.0);
    page.lines.retain(|line| {
        index += 1;
        if !chosen.contains(&(index - 1)) {
            return true;
        }
        let side = if line.baseline < middle { &mut margins.header } else { &mut margins.footer };
        side.push(line.text());
        false
    });
    margins
}

/// A line at the edge of a page.
struct Edge {
    /// In the page's lines.
    index: usize,
    /// Its text; the number of the page is `#`.
    text: String,
    /// Where it stands, in steps of four points.
    at: i32,
    /// Small, and apart from the text.
    looks_like_one: bool,
    /// Its value if it is nothing but the number of a page, and whether that is roman.
    number: Option<(i64, bool)>,
    /// Whether there is white above and below.
    stands_alone: bool,
    /// Whether no other line is nearer to the edge.
    is_outermost: bool,
}

/// The outermost lines of a page.
fn at_edges(page: &Page<'_>, usual: Usual) -> Vec<Edge> {
    let (lines, height) = (&*page.lines, page.height);
    let mut order: Vec<usize> = (0..lines.len()).collect();
    order.sort_by(|one, other| lines[*one].baseline.total_cmp(&lines[*other].baseline));
    let is_above = |index: &&usize| lines[**index].area.bottom < EDGE * height;
    let is_below = |index: &&usize| lines[**index].area.top > (1.0 - EDGE) * height;
    let above = outermost(lines, order.iter().take_while(is_above));
    let below = outermost(lines, order.iter().rev().take_while(is_below));
    let mut edges = Vec::with_capacity(above.len() + below.len());
    for side in [&above, &below] {
        for (place, index) in side.iter().copied().enumerate() {
            let line = &lines[index];
            if !says_something(line) {
                continue;
            }
            // Of several lines, the whole block is apart from the text.
            let inward = side[place..].iter().map(|index| &lines[*index]);
            let gap = inward
                .clone()
                .zip(inward.skip(1))
                .map(|(one, next)| (one.baseline - next.baseline).abs())
                .fold(text_distance(lines, side), f32::max);
            let text = line.text();
            edges.push(Edge {
                index,
                at: (line.baseline / 4.0).round() as i32,
                looks_like_one: line.size <= LARGER * usual.size && gap > APART * usual.leading * line.size,
                number: page_number(&text),
                stands_alone: nearest(lines.iter(), line) > 2.0 * line.size,
                is_outermost: side.first().is_some_and(|first| lines[*first].is_level_with(line)),
                text: without_number(&text),
            });
        }
    }
    edges
}

/// The pieces of the first lines in `order`.
fn outermost<'a>(lines: &[Line], order: impl Iterator<Item = &'a usize>) -> Vec<usize> {
    let (mut found, mut count): (Vec<usize>, usize) = (Vec::new(), 0);
    for index in order.take(PIECES) {
        count += usize::from(!found.last().is_some_and(|last| lines[*last].is_level_with(&lines[*index])));
        if count > LINES {
            break;
        }
        found.push(*index);
    }
    found
}

/// The distance from the innermost line of `side` to the text.
fn text_distance(lines: &[Line], side: &[usize]) -> f32 {
    let inner = lines.iter().enumerate().filter(|(index, _)| !side.contains(index)).map(|(_, line)| line);
    side.last().map_or(f32::MAX, |last| nearest(inner, &lines[*last]))
}

/// The distance to the nearest of `others` above or below `line`.
fn nearest<'a>(others: impl Iterator<Item = &'a Line>, line: &Line) -> f32 {
    let distances =
        others.filter(|other| !other.is_level_with(line)).map(|other| (other.baseline - line.baseline).abs());
    distances.fold(f32::MAX, f32::min)
}

/// The bullet of an item stands at the same place on many pages, too.
fn says_something(line: &Line) -> bool {
    line.words.iter().any(|word| word.text.chars().any(char::is_alphanumeric))
}

/// On which pages a text stands at a place, in order, and on how many of them it looks like a running head.
#[derive(Default)]
struct Seen {
    pages: Vec<usize>,
    alike: usize,
}

/// Texts that repeat.
struct Heads<'a>(HashMap<(&'a str, i32), Seen>);

impl<'a> Heads<'a> {
    fn of(pages: &'a [Vec<Edge>]) -> Self {
        let mut seen: HashMap<(&str, i32), Seen> = HashMap::new();
        for (number, edges) in pages.iter().enumerate() {
            for edge in edges {
                let places = seen.entry((edge.text.as_str(), edge.at)).or_default();
                if places.pages.last() != Some(&number) {
                    places.pages.push(number);
                    places.alike += usize::from(edge.looks_like_one);
                }
            }
        }
        Self(seen)
    }

    /// Whether `edge` is a running head of the pages around `number`.
    fn holds(&self, number: usize, edge: &Edge) -> bool {
        let near = (-1..=1).filter_map(|shift| self.0.get(&(edge.text.as_str(), edge.at + shift)));
        let (mut pages, mut alike) = (Vec::new(), 0);
        for seen in near {
            pages.extend(&seen.pages);
            alike += seen.alike;
        }
        let first = pages.iter().min().copied().unwrap_or(number);
        let last = pages.iter().max().copied().unwrap_or(number);
        let share = pages.len() as f32 / (last - first + 1) as f32;
        pages.len() >= PAGES && share >= SHARE && 2 * alike > pages.len()
    }
}

/// How far the numbers of pages are from their places in the file, and on how many pages.
struct Numbers(HashMap<(i64, bool), usize>);

impl Numbers {
    fn of(pages: &[Vec<Edge>]) -> Self {
        let mut seen = HashMap::new();
        for (number, edges) in pages.iter().enumerate() {
            let offsets: HashSet<_> = edges.iter().filter_map(|edge| offset(number, edge)).collect();
            offsets.into_iter().for_each(|offset| *seen.entry(offset).or_default() += 1);
        }
        Self(seen)
    }

    fn holds(&self, number: usize, edge: &Edge) -> bool {
        let Some(offset) = offset(number, edge) else { return false };
        edge.stands_alone && (offset.0 == 1 || self.0.get(&offset).is_some_and(|pages| *pages >= NUMBERED))
    }
}

/// Places of running heads, whose text changes from part to part of a book: from the first page to the last.
struct Places(HashMap<i32, (usize, usize)>);

impl Places {
    fn of(pages: &[Vec<Edge>], numbers: &Numbers) -> Self {
        // By place: the page, the text, and whether the number of the page stands beside it.
        let mut seen: HashMap<i32, Vec<(usize, &str, bool)>> = HashMap::new();
        for (number, edges) in pages.iter().enumerate() {
            for edge in edges.iter().filter(|edge| edge.may_change()) {
                let is_beside = |other: &Edge| other.at == edge.at && numbers.holds(number, other);
                let lines = seen.entry(edge.at).or_default();
                if lines.last().is_none_or(|last| last.0 != number) {
                    lines.push((number, edge.text.as_str(), edges.iter().any(is_beside)));
                }
            }
        }
        let mut places = HashMap::new();
        for (at, lines) in seen {
            let mut texts: HashMap<&str, usize> = HashMap::new();
            lines.iter().for_each(|line| *texts.entry(line.1).or_default() += 1);
            let is_head =
                |line: &&(usize, &str, bool)| line.2 || texts.get(line.1).is_some_and(|all| *all > 1);
            let heads = lines.iter().filter(is_head).count();
            let (Some(first), Some(last)) = (lines.first(), lines.last()) else { continue };
            let share = lines.len() as f32 / (last.0 - first.0 + 1) as f32;
            if lines.len() >= PLACED && share >= PLACED_SHARE && 2 * heads >= lines.len() {
                places.insert(at, (first.0, last.0));
            }
        }
        Self(places)
    }

    fn holds(&self, number: usize, edge: &Edge) -> bool {
        let range = self.0.get(&edge.at).filter(|_| edge.may_change());
        range.is_some_and(|(first, last)| (*first..=*last).contains(&number))
    }
}

impl Edge {
    /// Whether it may be a running head whose text changes.
    fn may_change(&self) -> bool {
        self.is_outermost && self.looks_like_one && self.number.is_none()
    }
}

fn offset(number: usize, edge: &Edge) -> Option<(i64, bool)> {
    let (value, is_roman) = edge.number?;
    Some((value - number as i64, is_roman))
}

/// A word without the punctuation around it.
fn bare(word: &str) -> String {
    word.trim_matches(|letter: char| !letter.is_alphanumeric()).to_lowercase()
}

fn is_page_word(word: &str) -> bool {
    let bare = bare(word);
    WORDS.contains(&if bare.is_empty() { word } else { &bare })
}

/// The value of a line that is nothing but the number of a page: "7", "- 7 -", "Seite 3 von 12", "xii".
fn page_number(text: &str) -> Option<(i64, bool)> {
    let words: Vec<&str> = text.split_whitespace().collect();
    if words.len() > 5 || words.iter().any(|word| numeral(word).is_none() && !is_page_word(word)) {
        return None;
    }
    words.into_iter().find_map(numeral)
}

/// The value of a word that is a number of at most four digits, or a small roman one.
fn numeral(word: &str) -> Option<(i64, bool)> {
    let bare = bare(word.split_once('/').map_or(word, |(number, _)| number));
    if (1..=4).contains(&bare.len()) && bare.bytes().all(|byte| byte.is_ascii_digit()) {
        return bare.parse().ok().map(|value| (value, false));
    }
    roman(&bare).map(|value| (value, true))
}

fn roman(word: &str) -> Option<i64> {
    let digit = |letter: char| match letter {
        'i' => Some(1),
        'v' => Some(5),
        'x' => Some(10),
        'l' => Some(50),
        'c' => Some(100),
        _ => None,
    };
    let digits: Option<Vec<i64>> = word.chars().map(digit).collect();
    let digits = digits.filter(|digits| (1..=7).contains(&digits.len()))?;
    let signed = digits.iter().enumerate().map(|(index, digit)| {
        let is_less = digits.get(index + 1).is_some_and(|next| next > digit);
        if is_less { -digit } else { *digit }
    });
    Some(signed.sum())
}

/// `text` with `#` for the number of a page. A number is taken for one only beside a word that says so: "Task 1" and
/// "Task 2" are different lines.
fn without_number(text: &str) -> String {
    let words: Vec<&str> = text.split_whitespace().collect();
    let is_marked = |index: usize| {
        let before = index.checked_sub(1).and_then(|index| words.get(index));
        before.into_iter().chain(words.get(index + 1)).any(|word| is_page_word(word))
    };
    let mut shown = Vec::with_capacity(words.len());
    for (index, word) in words.iter().enumerate() {
        let is_number = numeral(word).is_some_and(|(_, is_roman)| !is_roman);
        shown.push(if is_number && is_marked(index) { "#" } else { word });
    }
    shown.join(" ")
}

#[cfg(test)]
mod tests {
    use signalbox_pdf::{Area, Style, Word};

    use super::*;

    #[test]
    fn page_numbers_are_recognised() {
        for (text, value) in [
            ("7", 7),
            ("- 7 -", 7),
            ("Seite 3 von 12", 3),
            ("Page 3 of 12", 3),
            ("3/12", 3),
            ("S. 4", 4),
            ("xii", 12),
            ("iv", 4),
        ] {
            assert_eq!(page_number(text).map(|(value, _)| value), Some(value), "{text}");
        }
        for text in ["Kapitel 7", "7 Bäume", "2026-01-01", "", "Seite", "Task 1", "12345"] {
            assert_eq!(page_number(text), None, "{text}");
        }
    }

    /// A line at `at` points from the top.
    fn line(text: &str, at: f32, size: f32) -> Line {
        let word = |text: &str| Word {
            text: text.to_owned(),
            area: Area { left: 50.0, top: at - size, right: 90.0, bottom: at },
            baseline: at,
            style: Style { size, ..Style::default() },
            confidence: None,
        };
        Line::new(text.split(' ').map(word).collect())
    }

    const USUAL: Usual = Usual { size: 10.0, leading: 1.2, bold: false, mono: false };

    /// The lines left of pages with the given lines at the top and the bottom, and text between them.
    fn left(pages: &[(&str, f32, &str)]) -> Vec<Vec<String>> {
        let mut lines: Vec<Vec<Line>> = Vec::new();
        for (head, size, foot) in pages {
            let text = [line("some text", 200.0, 10.0), line("more text", 212.0, 10.0)];
            let edges = [line(head, 40.0, *size), line(foot, 800.0, 10.0)];
            lines.push(edges.into_iter().filter(says_something).chain(text).collect());
        }
        let mut pages: Vec<Page<'_>> =
            lines.iter_mut().map(|lines| Page { lines, height: 842.0, has_more: false }).collect();
        take(&mut pages, USUAL);
        let is_edge = |line: &&Line| line.baseline < 100.0 || line.baseline > 700.0;
        lines.iter().map(|lines| lines.iter().filter(is_edge).map(Line::text).collect()).collect()
    }

    #[test]
    fn repeated_head_stays_on_its_first_page() {
        let pages = [("Annual Report", 9.0, "1"), ("Annual Report", 9.0, "2"), ("Annual Report", 9.0, "3")];
        assert_eq!(left(&pages), [vec!["Annual Report"], vec![], vec![]]);
        let numbered = ["Report | 4", "Report | 5", "Report | 6"].map(|head| (head, 9.0, ""));
        assert_eq!(left(&numbered), [vec!["Report | 4"], vec![], vec![]]);
    }

    #[test]
    fn pieces_of_a_line_are_taken_together() {
        let foot = ["Version 11", "16:21", "Job 250001", "File 2", "4702", "E:/A.SGM"];
        let mut lines: Vec<Vec<Line>> = (0..4)
            .map(|_| {
                let text = (0..20).map(|row| line("text", 130.0 + 12.0 * row as f32, 10.0));
                text.chain(foot.map(|piece| line(piece, 800.0, 8.0))).collect()
            })
            .collect();
        let mut pages: Vec<Page<'_>> =
            lines.iter_mut().map(|lines| Page { lines, height: 842.0, has_more: false }).collect();
        let taken = take(&mut pages, USUAL);
        assert!(taken[0].footer.is_empty() && taken[1..].iter().all(|margins| margins.footer == foot));
        assert_eq!(lines.iter().map(Vec::len).collect::<Vec<_>>(), [26, 20, 20, 20]);
    }

    #[test]
    fn lines_that_do_not_look_like_running_heads_stay() {
        let twice = [("Annual Report", 9.0, ""), ("Annual Report", 9.0, "")];
        let large = [("Annual Report", 20.0, ""); 3];
        let different = [("Task 1", 10.0, ""), ("Task 2", 10.0, ""), ("Task 3", 10.0, "")];
        let years = [("Title", 10.0, "1998"), ("Other", 10.0, "2003"), ("Third", 10.0, "2011")];
        for pages in [&twice[..], &large, &different, &years] {
            for (page, left) in pages.iter().zip(left(pages)) {
                let expected: Vec<&str> =
                    [page.0, page.2].into_iter().filter(|text| !text.is_empty()).collect();
                assert_eq!(left, expected);
            }
        }
    }

    #[test]
    fn text_at_the_usual_distance_is_no_running_head() {
        let page =
            || vec![line("same first line", 80.0, 10.0), line("and", 92.0, 10.0), line("so on", 104.0, 10.0)];
        let mut lines: Vec<Vec<Line>> = (0..4)
            .map(|_| {
                page()
                    .into_iter()
                    .chain((0..20).map(|row| line("text", 116.0 + 12.0 * row as f32, 10.0)))
                    .collect()
            })
            .collect();
        let mut pages: Vec<Page<'_>> =
            lines.iter_mut().map(|lines| Page { lines, height: 842.0, has_more: false }).collect();
        take(&mut pages, USUAL);
        assert!(lines.iter().all(|lines| lines.len() == 23));
    }

    #[test]
    fn running_heads_that_change_are_marked() {
        let heads = ["Pumps", "Pumps", "Valves", "Valves", "Hoses", "Tanks"];
        let mut lines: Vec<Vec<Line>> = heads
            .iter()
            .map(|head| {
                let text = (0..20).map(|row| line("text", 130.0 + 12.0 * row as f32, 10.0));
                [line(head, 40.0, 9.0)].into_iter().chain(text).collect()
            })
            .collect();
        let mut pages: Vec<Page<'_>> =
            lines.iter_mut().map(|lines| Page { lines, height: 842.0, has_more: false }).collect();
        take(&mut pages, USUAL);
        for (lines, head) in lines.iter().zip(heads) {
            assert_eq!((lines[0].text().as_str(), lines[0].is_margin), (head, true), "no word is lost");
            assert!(lines[1..].iter().all(|line| !line.is_margin));
        }
    }

    #[test]
    fn pages_with_nothing_else_keep_their_lines() {
        let mut lines: Vec<Vec<Line>> = (1..=4)
            .map(|number| vec![line("Exercise", 40.0, 10.0), line(&number.to_string(), 800.0, 10.0)])
            .collect();
        let mut pages: Vec<Page<'_>> =
            lines.iter_mut().map(|lines| Page { lines, height: 842.0, has_more: false }).collect();
        take(&mut pages, USUAL);
        assert!(lines.iter().all(|lines| lines.len() == 2));
        assert!(lines.iter().all(|lines| lines[0].is_margin), "they are no headings");
    }
}
