//! Tables of contents: titles with the numbers of their pages, which stand behind leaders or at the right edge.

use std::ops::Range;

use signalbox_pdf::Word;

use super::{hyphens::Words, line::Line};

/// Fewest entries with leaders.
const ENTRIES: usize = 2;
/// Fewest dots of a leader.
const DOTS: usize = 3;
/// Fewest entries with leaders in each of two columns.
const BESIDE: usize = 3;
/// How far the numbers of pages may miss their common right edge, in points.
const EDGE: f32 = 4.0;
/// Lines of a title at most, and how far apart they are, in sizes of the font.
const TITLE_LINES: usize = 3;
const CLOSE: f32 = 1.5;
/// Rows that are further apart do not belong together, in sizes of the font.
const FAR: f32 = 4.5;
const PAGE_DIGITS: usize = 5;
/// Fewest entries without leaders, and how many rows above the first of them the title of the table stands.
const TITLED_ENTRIES: usize = 3;
const TITLE_ROWS: usize = 2;
/// Titles of tables of contents, in lower case.
const TITLES: &[&str] = &[
    "contents",
    "table of contents",
    "inhalt",
    "inhaltsverzeichnis",
    "sommaire",
    "table des matières",
    "contenido",
    "índice",
    "indice",
    "índice general",
    "inhoud",
    "inhoudsopgave",
    "innehåll",
    "spis treści",
];

/// A table of contents and the rows that it is made of.
pub(crate) struct Found {
    pub(crate) rows: Range<usize>,
    pub(crate) titles: Vec<Title>,
    /// Size of its first line.
    pub(crate) size: f32,
}

/// A title with its page number, and the position where it starts.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Title {
    pub(crate) left: f32,
    pub(crate) text: String,
}

/// An entry that is complete in one row.
struct Entry {
    title: String,
    page: String,
    right: f32,
    has_leader: bool,
}

/// The tables of contents in `rows`, from top to bottom.
pub(crate) fn find(rows: &[Vec<Line>], known: &Words) -> Vec<Found> {
    let entries: Vec<Option<Entry>> = rows.iter().map(|row| entry(row)).collect();
    let has_leader = |at: &usize| entries[*at].as_ref().is_some_and(|entry| entry.has_leader);
    let mut found: Vec<Found> = Vec::new();
    let is_titled = |at: usize| rows[at.saturating_sub(TITLE_ROWS)..at].iter().any(|row| is_title(row));
    let may_start = |at: &usize| has_leader(at) || (entries[*at].is_some() && is_titled(*at));
    let mut at = 0;
    while let Some(anchor) = (at..rows.len()).find(may_start) {
        let around = around(rows, &entries, at, anchor);
        at = around.end.max(anchor + 1);
        let by_leaders = around.clone().filter(has_leader).count() >= ENTRIES;
        if by_leaders || (is_titled(anchor) && ascends(&entries[around.clone()])) {
            let size = rows[around.start].first().map_or(0.0, |line| line.size);
            let titles = titles(&rows[around.clone()], &entries[around.clone()], known);
            found.push(Found { titles, rows: around, size });
        }
    }
    found
}

/// Whether `row` says that a table of contents follows.
fn is_title(row: &[Line]) -> bool {
    let [line] = row else { return false };
    line.words.len() < 4 && TITLES.contains(&line.text().to_lowercase().trim_end_matches(':'))
}

/// Whether the numbers of the entries' pages become no smaller, as in no other list of numbers.
fn ascends(entries: &[Option<Entry>]) -> bool {
    let pages: Vec<u32> = entries.iter().flatten().filter_map(|entry| entry.page.parse().ok()).collect();
    pages.len() >= TITLED_ENTRIES && pages.is_sorted()
}

/// The rows of the table around `anchor`, from `least` on: it starts and ends with an entry.
fn around(rows: &[Vec<Line>], entries: &[Option<Entry>], least: usize, anchor: usize) -> Range<usize> {
    let right = entries[anchor].as_ref().map_or(0.0, |entry| entry.right);
    let is_one = |at: usize| {
        entries[at].as_ref().is_some_and(|entry| entry.has_leader || (entry.right - right).abs() < EDGE)
    };
    let (mut start, mut end) = (anchor, anchor + 1);
    while start > least && is_one(start - 1) && distance(rows, start) < FAR {
        start -= 1;
    }
    loop {
        // The next entry, perhaps behind the first lines of its title.
        let next = (end..rows.len().min(end + TITLE_LINES)).find(|at| is_one(*at));
        let Some(next) = next else { break };
        let is_title = (end + 1..=next).all(|at| distance(rows, at) < CLOSE);
        if distance(rows, end) >= FAR || !is_title {
            break;
        }
        end = next + 1;
    }
    start..end
}

/// How far the row at `at` is below the one before, in sizes of the font.
fn distance(rows: &[Vec<Line>], at: usize) -> f32 {
    match (rows[at - 1].first(), rows[at].first()) {
        (Some(above), Some(below)) => (below.baseline - above.baseline) / below.size.max(above.size).max(1.0),
        _ => f32::MAX,
    }
}

fn titles(rows: &[Vec<Line>], entries: &[Option<Entry>], known: &Words) -> Vec<Title> {
    let mut titles = Vec::new();
    let (mut text, mut left) = (String::new(), None);
    for (row, entry) in rows.iter().zip(entries) {
        left = left.or_else(|| row.first().map(|line| line.area.left));
        match entry {
            None => known.append(&mut text, &row.iter().map(Line::text).collect::<Vec<_>>().join(" ")),
            Some(entry) => {
                known.append(&mut text, &format!("{} … {}", entry.title, entry.page));
                titles.push(Title { left: left.take().unwrap_or(0.0), text: std::mem::take(&mut text) });
            }
        }
    }
    titles
}

/// The row as an entry, if it starts with a title and ends with a page number.
fn entry(row: &[Line]) -> Option<Entry> {
    let words: Vec<&Word> = row.iter().flat_map(|line| &line.words).collect();
    let (last, before) = words.split_last()?;
    // A leader may stick to the title, to the number, or to both.
    let page = last.text.trim_start_matches(is_leader_dot);
    if !is_page(page) {
        return None;
    }
    let mut dots = last.text.chars().count() - page.chars().count();
    let mut title: Vec<&str> = before.iter().map(|word| word.text.as_str()).collect();
    while let Some(word) = title.pop() {
        let kept = word.trim_end_matches(is_leader_dot);
        let ends = word.chars().count() - kept.chars().count();
        if kept.is_empty() {
            dots += ends;
            continue;
        }
        let is_stuck = ends >= DOTS;
        dots += if is_stuck { ends } else { 0 };
        title.push(if is_stuck { kept } else { word });
        break;
    }
    let has_ellipsis = words.iter().any(|word| word.text.contains("……"));
    let says_something = title.iter().any(|word| word.chars().any(char::is_alphabetic));
    let has_leader = dots >= DOTS || has_ellipsis;
    let is_entry = says_something && (has_leader || row.len() >= 2);
    is_entry.then(|| Entry {
        title: title.join(" "),
        page: page.to_owned(),
        right: last.area.right,
        has_leader,
    })
}

/// Whether entries with leaders stand on both sides of `gutter`, such as the columns of an index.
pub(super) fn are_beside(lines: &[&Line], gutter: f32) -> bool {
    let has_leader =
        |line: &&&Line| entry(std::slice::from_ref(**line)).is_some_and(|entry| entry.has_leader);
    let leaders = || lines.iter().filter(has_leader);
    leaders().filter(|line| line.area.right <= gutter).count() >= BESIDE
        && leaders().filter(|line| line.area.left >= gutter).count() >= BESIDE
}

fn is_leader_dot(letter: char) -> bool {
    matches!(letter, '.' | '…' | '·' | '․' | '‥' | '_')
}

fn is_page(word: &str) -> bool {
    let is_digits = word.bytes().all(|byte| byte.is_ascii_digit());
    let is_roman = word.bytes().all(|byte| b"ivxlc".contains(&byte.to_ascii_lowercase()));
    (1..=PAGE_DIGITS).contains(&word.len()) && (is_digits || is_roman)
}

#[cfg(test)]
mod tests {
    use signalbox_pdf::{Area, Style};

    use super::*;

    /// A row of pieces, which are words with the places where they begin and end.
    fn row(at: f32, pieces: &[&[(&str, f32, f32)]]) -> Vec<Line> {
        let word = |(text, left, right): &(&str, f32, f32)| Word {
            text: (*text).to_owned(),
            area: Area { left: *left, top: at - 10.0, right: *right, bottom: at },
            baseline: at,
            style: Style { size: 10.0, ..Style::default() },
            confidence: None,
        };
        pieces.iter().map(|piece| Line::new(piece.iter().map(word).collect())).collect()
    }

    fn contents(rows: &[Vec<Line>]) -> Vec<Found> {
        find(rows, &Words::default())
    }

    fn texts(found: &Found) -> Vec<(f32, &str)> {
        found.titles.iter().map(|title| (title.left, title.text.as_str())).collect()
    }

    #[test]
    fn titles_with_leaders_become_items() {
        let rows = [
            row(100.0, &[&[("Contents", 50.0, 100.0)]]),
            row(130.0, &[&[("1", 50.0, 55.0), ("Introduction", 60.0, 120.0)], &[("3", 495.0, 500.0)]]),
            row(
                142.0,
                &[&[
                    ("1.1", 60.0, 75.0),
                    ("Scope", 80.0, 120.0),
                    (".....................", 120.0, 490.0),
                    ("3", 495.0, 500.0),
                ]],
            ),
            row(154.0, &[&[("1.2", 60.0, 75.0), ("A", 80.0, 90.0), ("title", 90.0, 490.0)]]),
            row(
                166.0,
                &[&[
                    ("of", 80.0, 90.0),
                    ("two", 95.0, 120.0),
                    ("lines", 125.0, 150.0),
                    (".", 160.0, 162.0),
                    (".", 170.0, 172.0),
                    (".", 180.0, 182.0),
                    ("14", 490.0, 500.0),
                ]],
            ),
            row(300.0, &[&[("Text", 50.0, 90.0), ("of", 95.0, 100.0), ("1999", 105.0, 120.0)]]),
        ];
        let found = contents(&rows);
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].rows, 1..5);
        assert_eq!(
            texts(&found[0]),
            [(50.0, "1 Introduction … 3"), (60.0, "1.1 Scope … 3"), (60.0, "1.2 A title of two lines … 14")]
        );
    }

    #[test]
    fn divided_words_of_titles_are_joined() {
        let dots = (".....................", 150.0, 490.0);
        let rows = [
            row(100.0, &[&[("Pumps", 50.0, 100.0), dots, ("3", 495.0, 500.0)]]),
            row(112.0, &[&[("Valves", 50.0, 100.0), ("and", 110.0, 120.0), ("instru-", 130.0, 170.0)]]),
            row(124.0, &[&[("ments", 50.0, 100.0), dots, ("14", 490.0, 500.0)]]),
        ];
        let found = contents(&rows);
        assert_eq!(texts(&found[0]), [(50.0, "Pumps … 3"), (50.0, "Valves and instruments … 14")]);
    }

    #[test]
    fn ascending_numbers_below_a_title_are_contents() {
        let entries = |pages: [&str; 3]| {
            let entry = |at: f32, title: &str, page: &str| {
                row(at, &[&[(title, 50.0, 100.0)], &[(page, 490.0, 500.0)]])
            };
            [
                row(100.0, &[&[("Table", 50.0, 80.0), ("of", 85.0, 95.0), ("Contents", 100.0, 150.0)]]),
                entry(130.0, "Preface", pages[0]),
                entry(142.0, "Pumps", pages[1]),
                entry(154.0, "Valves", pages[2]),
            ]
        };
        let found = contents(&entries(["vii", "1", "1"]));
        assert!(found.is_empty(), "two numbers are too few");
        let found = contents(&entries(["1", "3", "17"]));
        assert_eq!(found.len(), 1);
        assert_eq!(texts(&found[0]), [(50.0, "Preface … 1"), (50.0, "Pumps … 3"), (50.0, "Valves … 17")]);
        assert!(contents(&entries(["1", "17", "3"])).is_empty());
        assert!(contents(&entries(["1", "3", "17"])[1..]).is_empty());
    }

    #[test]
    fn tables_and_sentences_are_no_contents() {
        let rows = [
            row(100.0, &[&[("Apples", 50.0, 100.0)], &[("12", 490.0, 500.0)]]),
            row(112.0, &[&[("Pears", 50.0, 100.0)], &[("17", 490.0, 500.0)]]),
            row(124.0, &[&[("And", 50.0, 100.0), ("then...", 101.0, 120.0), ("2", 130.0, 135.0)]]),
        ];
        assert!(contents(&rows).is_empty());
    }
}
