//! Lines that run up or down a page.

use signalbox_pdf::Word;

/// How far the middles of the words of one line may lie apart, in sizes of the font.
const LEVEL: f32 = 0.5;

/// `words` with those that run up or down in the order of their lines: of lines that run down, as of a page that was turned clockwise, the
/// first stands at the right. The library gives lines that start at one height from left to right.
pub(super) fn arrange(words: Vec<Word>) -> Vec<Word> {
    let mut lines: Vec<Vec<Word>> = Vec::new();
    for word in words {
        match lines.last_mut() {
            Some(line) if line.last().is_some_and(|last| is_level(last, &word)) => line.push(word),
            _ => lines.push(vec![word]),
        }
    }
    let going = |is: &dyn Fn(f32) -> bool| lines.iter().filter(|line| is(fall(line))).count();
    if going(&|fall| fall > 0.0) > going(&|fall| fall < 0.0) {
        lines.chunk_by_mut(|line, next| is_beside(line, next)).for_each(<[_]>::reverse);
    }
    lines.into_iter().flatten().collect()
}

fn middle(word: &Word) -> f32 {
    (word.area.left + word.area.right) / 2.0
}

fn is_level(last: &Word, word: &Word) -> bool {
    (middle(last) - middle(word)).abs() < LEVEL * last.style.size.max(word.style.size)
}

/// How far the last word of a line stands below its first.
fn fall(line: &[Word]) -> f32 {
    line.first().zip(line.last()).map_or(0.0, |(first, last)| last.area.top - first.area.top)
}

/// Whether `next` stands to the right of `line`, at its height.
fn is_beside(line: &[Word], next: &[Word]) -> bool {
    let span = |line: &[Word]| {
        let (tops, bottoms) =
            (line.iter().map(|word| word.area.top), line.iter().map(|word| word.area.bottom));
        (tops.fold(f32::MAX, f32::min), bottoms.fold(f32::MIN, f32::max))
    };
    let ((top, bottom), (next_top, next_bottom)) = (span(line), span(next));
    line.first().zip(next.first()).is_some_and(|(one, other)| middle(one) < middle(other))
        && top < next_bottom
        && next_top < bottom
}

#[cfg(test)]
mod tests {
    use signalbox_pdf::{Area, Style};

    use super::*;

    fn line(text: &str, left: f32, top: f32, step: f32) -> impl Iterator<Item = Word> {
        text.split(' ').enumerate().map(move |(index, text)| {
            let top = top + step * index as f32;
            let area = Area { left, top, right: left + 10.0, bottom: top + 25.0 };
            let style = Style { size: 10.0, turned: true, ..Style::default() };
            Word { text: text.to_owned(), area, baseline: area.bottom, style, confidence: None }
        })
    }

    fn arranged(words: impl Iterator<Item = Word>) -> String {
        arrange(words.collect()).into_iter().map(|word| word.text).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn lines_that_run_down_are_read_from_right_to_left() {
        let block = |top: f32| {
            line("e f", 100.0, top, 30.0)
                .chain(line("c d", 116.0, top, 30.0))
                .chain(line("a b", 132.0, top, 30.0))
        };
        assert_eq!(arranged(block(50.0).chain(block(300.0))), "a b c d e f a b c d e f");
    }

    #[test]
    fn lines_that_run_up_and_words_alone_stay_as_they_are() {
        let up = line("a b", 100.0, 80.0, -30.0).chain(line("c d", 116.0, 80.0, -30.0));
        assert_eq!(arranged(up), "a b c d");
        assert_eq!(arranged(line("a", 100.0, 50.0, 0.0).chain(line("b", 116.0, 50.0, 0.0))), "a b");
    }
}
