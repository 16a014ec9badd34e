use signalbox_pdf::Style;

use super::*;
use crate::block::Content;

/// Adds the words of `text` from `left` on; a letter is half as wide as the font is large.
fn write(page: &mut PageContent, text: &str, left: f32, baseline: f32, size: f32, bold: bool) {
    let mut left = left;
    for word in text.split(' ') {
        let right = left + 0.5 * size * word.chars().count() as f32;
        let area = Area { left, top: baseline - 0.8 * size, right, bottom: baseline + 0.2 * size };
        let style = Style { size, bold, ..Style::default() };
        page.words.push(Word { text: word.to_owned(), area, baseline, style, confidence: None });
        left = right + 0.3 * size;
    }
}

fn page() -> PageContent {
    PageContent { number: 1, width: 595.0, height: 842.0, ..PageContent::default() }
}

/// Three lines of running text, the first of them at `baseline`.
fn write_text(page: &mut PageContent, baseline: f32) {
    for line in 0..3 {
        let text = "the water flows from one tank to another until the valve stops it";
        write(page, text, 50.0, baseline + 12.0 * line as f32, 10.0, false);
    }
}

#[test]
fn numbers_of_headings_nest_those_of_one_look() {
    let mut page = page();
    write(&mut page, "Handbook", 50.0, 120.0, 24.0, false);
    write_text(&mut page, 150.0);
    let titles = ["1 Pumps", "1.1 Parts", "1.2 Care", "2 Valves"];
    for (index, title) in titles.into_iter().enumerate() {
        let baseline = 210.0 + 80.0 * index as f32;
        write(&mut page, title, 50.0, baseline, 10.0, true);
        write_text(&mut page, baseline + 20.0);
    }
    let blocks = analyse(vec![page]).blocks;
    let headings = blocks.iter().filter_map(|block| match &block.content {
        Content::Heading { level, text } => Some((*level, text.as_str())),
        _ => None,
    });
    let expected = [(1, "Handbook"), (2, "1 Pumps"), (3, "1.1 Parts"), (3, "1.2 Care"), (2, "2 Valves")];
    assert_eq!(headings.collect::<Vec<_>>(), expected);
    assert_eq!(blocks[0].places.len(), 1);
    assert_eq!(blocks[0].places[0].bbox, [50.0, 100.8, 146.0, 124.8]);
}

#[test]
fn labels_of_boxes_are_no_headings() {
    let mut page = page();
    for part in 0..3 {
        let baseline = 60.0 + 240.0 * part as f32;
        write(&mut page, &format!("{} Pumps", part + 1), 50.0, baseline, 10.0, true);
        write_text(&mut page, baseline + 20.0);
        write(&mut page, "Parts", 50.0, baseline + 80.0, 10.0, true);
        write_text(&mut page, baseline + 100.0);
        write(&mut page, "Note", 60.0, baseline + 160.0, 10.0, true);
        write(&mut page, "the valve stops it", 60.0, baseline + 180.0, 10.0, false);
    }
    let blocks = analyse(vec![page]).blocks;
    let headings = blocks.iter().filter(|block| matches!(block.content, Content::Heading { .. }));
    let headings: Vec<_> = headings.map(Block::text).collect();
    assert_eq!(headings, ["1 Pumps", "Parts", "2 Pumps", "Parts", "3 Pumps", "Parts"]);
}

fn headings(page: PageContent) -> Vec<String> {
    let blocks = analyse(vec![page]).blocks;
    blocks.iter().filter(|block| matches!(block.content, Content::Heading { .. })).map(Block::text).collect()
}

#[test]
fn terms_above_their_definitions_are_no_headings() {
    let mut page = page();
    for part in 0..4 {
        let baseline = 60.0 + 180.0 * part as f32;
        write(&mut page, "Parts", 50.0, baseline, 10.0, true);
        write_text(&mut page, baseline + 20.0);
        write(&mut page, "valve", 50.0, baseline + 80.0, 10.0, true);
        let definition = "stops the water before it reaches the tank below and its";
        write(&mut page, definition, 70.0, baseline + 92.0, 10.0, false);
        write(&mut page, "pumps", 70.0, baseline + 104.0, 10.0, false);
    }
    assert_eq!(headings(page), ["Parts"; 4]);
}

#[test]
fn titles_that_are_set_in_are_no_headings_where_those_have_numbers() {
    for (indent, expected) in [(15.0, 12), (0.0, 15)] {
        let mut page = page();
        for part in 0..12 {
            let baseline = 40.0 + 66.0 * part as f32;
            write(&mut page, &format!("{} Pumps", part + 1), 50.0, baseline, 12.0, true);
            write(&mut page, "the water flows from one tank to another", 50.0, baseline + 16.0, 10.0, false);
            if part % 4 == 0 {
                write(&mut page, &format!("pump {part}"), 50.0 + indent, baseline + 34.0, 10.0, true);
                write(&mut page, "pump -x", 50.0, baseline + 46.0, 10.0, false);
            }
        }
        assert_eq!(headings(page).len(), expected, "set in by {indent}");
    }
}

#[test]
fn headings_of_two_lines_may_have_two_fonts() {
    let mut page = page();
    write(&mut page, "7 Relations between source and binary packages", 50.0, 120.0, 14.0, true);
    write(&mut page, "Depends, Recommends", 60.0, 137.0, 14.0, true);
    let mono = page.words.len() - 2;
    page.words[mono..].iter_mut().for_each(|word| word.style.mono = true);
    write_text(&mut page, 160.0);
    assert_eq!(headings(page), ["7 Relations between source and binary packages Depends, Recommends"]);
}

#[test]
fn bold_items_are_no_headings() {
    for (markers, is_ordered) in [(["1.", "2."], true), (["•", "•"], false)] {
        let mut page = page();
        write_text(&mut page, 150.0);
        write(&mut page, &format!("{} Hammer", markers[0]), 50.0, 210.0, 10.0, true);
        write(&mut page, &format!("{} Saw", markers[1]), 50.0, 222.0, 10.0, true);
        write_text(&mut page, 250.0);
        let blocks = analyse(vec![page]).blocks;
        let lists = blocks.iter().filter_map(|block| match &block.content {
            Content::List { ordered, items } => {
                Some((*ordered, items.iter().map(|item| item.text.as_str()).collect::<Vec<_>>()))
            }
            _ => None,
        });
        assert_eq!(lists.collect::<Vec<_>>(), [(is_ordered, vec!["Hammer", "Saw"])]);
        assert!(!blocks.iter().any(|block| matches!(block.content, Content::Heading { .. })));
    }
}

#[test]
fn columns_around_a_picture_are_read_whole() {
    let mut page = page();
    page.images.push(Area { left: 212.0, top: 195.0, right: 332.0, bottom: 255.0 });
    for (side, left) in [("left", 50.0), ("right", 300.0)] {
        for line in 0..12 {
            let baseline = 150.0 + 12.0 * line as f32;
            let is_beside = (4..9).contains(&line);
            let indent = if is_beside && side == "right" { 36.0 } else { 0.0 };
            let words = if is_beside { 5 } else { 6 };
            let text = format!("{side}{line}{}", " pump".repeat(words));
            write(&mut page, &text, left + indent, baseline, 10.0, false);
        }
    }
    let blocks = analyse(vec![page]).blocks;
    let text = blocks.iter().map(Block::text).collect::<Vec<_>>().join(" ");
    let sides: Vec<&str> = text.split_whitespace().filter(|word| *word != "pump").collect();
    let expected = ["left", "right"].map(|side| (0..12).map(move |line| format!("{side}{line}")));
    let words: Vec<&str> = sides.into_iter().filter(|word| word.starts_with(['l', 'r'])).collect();
    assert_eq!(words, expected.into_iter().flatten().collect::<Vec<_>>());
}

#[test]
fn lines_that_start_before_the_marker_continue_its_item() {
    let mut page = page();
    write_text(&mut page, 100.0);
    let item = "• days on which you commute to the work in the other country from";
    write(&mut page, item, 62.0, 136.0, 10.0, false);
    write(&mut page, "home", 50.0, 148.0, 10.0, false);
    write(&mut page, "• holidays that you spend there", 62.0, 160.0, 10.0, false);
    write(&mut page, "All of them are counted.", 50.0, 172.0, 10.0, false);
    let blocks = analyse(vec![page]).blocks;
    let Content::List { items, .. } = &blocks[1].content else { panic!("{blocks:?}") };
    let texts: Vec<&str> = items.iter().map(|item| item.text.as_str()).collect();
    assert_eq!(
        texts,
        [
            "days on which you commute to the work in the other country from home",
            "holidays that you spend there"
        ]
    );
    assert_eq!(blocks[2].text(), "All of them are counted.");
}
