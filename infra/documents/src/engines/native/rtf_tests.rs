use super::rtf::read;
use crate::{block::Content as Kind, table::Table};

#[test]
fn letters_paragraphs_and_tables_are_read() {
    let rtf = br"{\rtf1\ansi\ansicpg1252{\fonttbl{\f0 Arial;}}{\*\generator x;}\pard\outlinelevel0 Titel\par
        \pard Gr\'fc\'dfe \u8364?5 \{ok\}\par\pard\intbl a\cell b\cell\row\intbl 1\cell 2\cell\row\pard Ende\par}";
    let blocks = read(rtf).unwrap().blocks;
    let contents: Vec<_> = blocks.into_iter().map(|block| block.content).collect();
    let row = |one: &str, other: &str| vec![one.to_owned(), other.to_owned()];
    assert_eq!(
        contents,
        [
            Kind::Heading { level: 1, text: "Titel".to_owned() },
            Kind::Paragraph("Grüße €5 {ok}".to_owned()),
            Kind::Table(Table::new(vec![row("a", "b"), row("1", "2")])),
            Kind::Paragraph("Ende".to_owned()),
        ]
    );
}

#[test]
fn text_boxes_are_read_once() {
    let rtf = br"{\rtf1 First {\shp{\*\shpinst\shpleft1{\sp{\sn shapeType}{\sv 202}}{\shptxt \pard Closing force\par 4.5 kN\par}}{\shprslt{\*\do\dpx1
        {\dptxbxtext\pard Closing force\par}}}}line\par Last\par}";
    let blocks = read(rtf).unwrap().blocks;
    let texts: Vec<_> = blocks.iter().map(crate::block::Block::text).collect();
    assert_eq!(texts, ["Closing force", "4.5 kN", "First line", "Last"]);
}

#[test]
fn a_text_box_in_a_cell_does_not_end_the_table() {
    let rtf = br"{\rtf1\pard\intbl a\cell b\cell\row\intbl 1{\shp{\*\shpinst{\shptxt \pard Note\par}}}\cell 2\cell\row\pard End\par}";
    let blocks = read(rtf).unwrap().blocks;
    let row = |one: &str, other: &str| vec![one.to_owned(), other.to_owned()];
    let contents: Vec<_> = blocks.into_iter().map(|block| block.content).collect();
    assert_eq!(
        contents,
        [
            Kind::Paragraph("Note".to_owned()),
            Kind::Table(Table::new(vec![row("a", "b"), row("1", "2")])),
            Kind::Paragraph("End".to_owned()),
        ]
    );
}

#[test]
fn heads_and_feet_of_pages_are_read_once() {
    let rtf = br"{\rtf1{\header\pard\intbl ACME\cell Report\cell\row\pard\par}{\headerl\pard Left page\par}{\headerf\pard Left page\par}
        {\footer\pard\qc 1\par Bank account 5\par}\pard First {\footerf\pard Bank account 5\par}line\par}";
    let blocks = read(rtf).unwrap().blocks;
    let texts: Vec<_> = blocks.iter().map(crate::block::Block::text).collect();
    assert_eq!(texts, ["ACME\tReport", "Left page", "First line", "Bank account 5"]);
    let blocks = read(br"{\rtf1 Important\par{\header\headerl X}}").unwrap().blocks;
    let texts: Vec<_> = blocks.iter().map(crate::block::Block::text).collect();
    assert_eq!(texts, ["X", "Important"]);
}

#[test]
fn odd_groups_lose_and_double_nothing() {
    let texts = |rtf: &[u8]| -> Vec<String> {
        read(rtf).unwrap().blocks.iter().map(crate::block::Block::text).collect()
    };
    assert_eq!(texts(br"{\rtf1 Valve{\xe \v {Valve}} and pump{\tc {Pumps}}\par}"), ["Valve and pump"]);
    assert_eq!(
        texts(br"{\rtf1\trowd\cellx1000\cellx2000\pard\intbl a\cell b\cell\pard no row\par}"),
        ["a\tb", "no row"]
    );
    assert_eq!(texts(br"{\rtf1 in \cell two\cell rest\par}"), ["in\ttwo", "rest"]);
    assert_eq!(texts(br"{\rtf1\pard\intbl a\cell extra\row\pard End\par}"), ["a\textra", "End"]);
    assert_eq!(texts(br"{\rtf1{\object{\*\objdata 00}{\result shown}} {\upr{caf?}{\*\ud{caf\u233?}}}{\deleted gone}\par}"), ["shown café"]);
    assert_eq!(
        texts(br"{\rtf1 one{\*\do\dpx1{\dptxbxtext\pard Box\par}}\u228\b word\par}"),
        ["Box", "oneäword"]
    );
}

#[test]
fn notes_and_comments_follow_their_paragraphs() {
    let rtf = br"{\rtf1 Checked{\super\chftn{\footnote\pard\plain\super\chftn In May.}} twice{\*\atnid AB}{\*\atnauthor Anna}{\*\annotation{\*\atndate 1}
        \pard Really?\par Yes.}.{\super\chftn}{\footnote\chftn By Anna.}\par End\par}";
    let blocks = read(rtf).unwrap().blocks;
    let texts: Vec<_> = blocks.iter().map(crate::block::Block::text).collect();
    assert_eq!(texts, ["Checked¹ twice.²", "¹ In May.", "Really?", "Yes.", "² By Anna.", "End"]);
    let rtf = br"{\rtf1\pard\intbl a{\super\chftn}{\*\footnote\chftn One.}\cell\row\pard Next{\chftn}{\*\footnote\chftn Two.}\par}";
    let blocks = read(rtf).unwrap().blocks;
    let texts: Vec<_> = blocks.iter().map(crate::block::Block::text).collect();
    assert_eq!(texts, ["a¹", "¹ One.", "Next²", "² Two."]);
}
