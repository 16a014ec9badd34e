use super::odf::read;
use crate::{
    block::{Block, Content as Kind},
    engines::native::archive::packed,
};

#[test]
fn indentation_is_no_text() {
    let content = "<office:document-content>\n  <office:text>\n    <text:p>\n      The <text:span>\n        points\n\
        </text:span>\n      are<text:s text:c=\"2\"/>in order.\n    </text:p>\n  </office:text>\n</office:document-content>";
    let blocks = read(&packed(&[("content.xml", content)])).unwrap().blocks;
    let texts: Vec<String> = blocks.iter().map(Block::text).collect();
    assert_eq!(texts, ["The points are  in order."]);
}

#[test]
fn merged_and_header_cells_are_kept() {
    let cell = |attributes: &str, text: &str| {
        format!("<table:table-cell {attributes}><text:p>{text}</text:p></table:table-cell>")
    };
    let content = format!(
        "<office:document-content><table:table><table:table-header-rows><table:table-row>{}<table:covered-table-cell/>{}</table:table-row>\
         </table:table-header-rows><table:table-row>{}{}</table:table-row><table:table-row><table:covered-table-cell/>{}</table:table-row>\
         </table:table></office:document-content>",
        cell("table:number-columns-spanned='2'", "Size"),
        cell("", "Part"),
        cell("table:number-rows-spanned='2'", "25"),
        cell("table:number-columns-repeated='2'", "1"),
        cell("table:number-columns-repeated='2'", "2"),
    );
    let blocks = read(&packed(&[("content.xml", &content)])).unwrap().blocks;
    let Kind::Table(table) = &blocks[0].content else { panic!("{blocks:?}") };
    assert_eq!(table.rows, [["Size", "", "Part"], ["25", "1", "1"], ["", "2", "2"]]);
    let cells =
        table.cells.iter().map(|cell| (cell.row, cell.column, cell.row_span, cell.col_span, cell.header));
    assert_eq!(cells.collect::<Vec<_>>(), [(0, 0, 1, 2, true), (0, 2, 1, 1, true), (1, 0, 2, 1, false)]);
}

#[test]
fn comments_and_what_a_speaker_wants_to_say_are_kept() {
    let comment = |text: &str| {
        format!(
            "<office:annotation><dc:creator>Anna</dc:creator><dc:date>2026-05-01</dc:date><text:p>{text}</text:p></office:annotation>"
        )
    };
    let content = format!(
        "<office:document-content><draw:page>{}<draw:frame presentation:class='title'><draw:text-box><text:p>Results{} of <text:date>May\
         </text:date></text:p></draw:text-box></draw:frame><presentation:notes><draw:page-thumbnail presentation:class='page'/>\
         <draw:frame presentation:class='notes'><draw:text-box><text:p>Thank the crew.</text:p></draw:text-box></draw:frame>\
         <draw:frame presentation:class='page-number'><draw:text-box><text:p>1</text:p></draw:text-box></draw:frame></presentation:notes>\
         </draw:page><draw:page><text:h text:outline-level='2'>End{}</text:h></draw:page></office:document-content>",
        comment("Of all?"),
        comment("Which?"),
        comment("Really?"),
    );
    let blocks = read(&packed(&[("content.xml", &content)])).unwrap().blocks;
    let texts: Vec<String> = blocks.iter().map(Block::text).collect();
    assert_eq!(texts, ["Results of May", "Of all?", "Which?", "Thank the crew.", "End", "Really?"]);
    assert!(matches!(&blocks[4].content, Kind::Heading { level: 2, .. }), "{blocks:?}");
}

#[test]
fn a_text_box_does_not_part_the_paragraph_around_it_and_notes_follow_their_table() {
    let content = "<office:document-content><text:h text:outline-level='1'>First <draw:frame><draw:text-box><text:p>Box</text:p></draw:text-box>\
        </draw:frame>line</text:h><table:table><table:table-row><table:table-cell><text:p>5<office:annotation><text:p>Euros?</text:p>\
        </office:annotation></text:p></table:table-cell></table:table-row></table:table><text:p>End</text:p></office:document-content>";
    let blocks = read(&packed(&[("content.xml", content)])).unwrap().blocks;
    let texts: Vec<String> = blocks.iter().map(Block::text).collect();
    assert_eq!(texts, ["Box", "First line", "5", "Euros?", "End"]);
    assert!(matches!(&blocks[1].content, Kind::Heading { level: 1, .. }), "{blocks:?}");
}

#[test]
fn numbers_notes_and_descriptions_are_kept() {
    let content = "<office:document-content><text:list-style style:name='L'>\
        <text:list-level-style-number text:level='1' style:num-format='1' style:num-suffix='.'/>\
        <text:list-level-style-number text:level='2' style:num-format='a' style:num-suffix=')'/></text:list-style>\
        <text:p>Checked<text:note><text:note-citation>1</text:note-citation><text:note-body><text:p>In May.</text:p></text:note-body>\
        </text:note> twice.</text:p>\
        <text:list text:style-name='L'><text:list-item><text:p>Drive</text:p><text:p>and lock</text:p><text:list><text:list-item>\
        <text:p>Motor</text:p></text:list-item></text:list></text:list-item></text:list><text:p>Between</text:p>\
        <text:list text:style-name='L' text:continue-numbering='true'><text:list-item><text:p>Blades</text:p></text:list-item></text:list>\
        <text:p>Seen<draw:frame><draw:image/><svg:title>Photo</svg:title><svg:desc>Points from above</svg:desc></draw:frame></text:p>\
        <text:p>So <draw:frame><draw:object xlink:href='./Object 1'/></draw:frame>.</text:p></office:document-content>";
    let math = "<math><msup><mi>x</mi><mn>2</mn></msup></math>";
    let bytes = packed(&[("content.xml", content), ("Object 1/content.xml", math)]);
    let texts: Vec<String> = read(&bytes).unwrap().blocks.iter().map(Block::text).collect();
    let expected = [
        "Checked¹ twice.",
        "¹ In May.",
        "Drive\nand lock\na) Motor",
        "Between",
        "Blades",
        "Points from above",
        "Seen",
        "So x².",
    ];
    assert_eq!(texts, expected);
    let markdown = crate::write::markdown::blocks(&read(&bytes).unwrap().blocks);
    assert!(
        markdown.contains("1. Drive and lock\n   - a) Motor") && markdown.contains("2. Blades"),
        "{markdown}"
    );
}

#[test]
fn heads_and_feet_of_pages_are_read_once() {
    let styles = "<office:document-styles><office:master-styles><style:master-page><style:header>\n  <text:p>ACME\n  GmbH<text:tab/>Offer</text:p></style:header>\
        <style:header-left style:display='false'><text:p>Old</text:p></style:header-left><style:footer><text:p>Bank account 5</text:p><text:p>\
        <text:page-number>1</text:page-number></text:p></style:footer><style:footer-first><text:p>Bank account 5</text:p></style:footer-first>\
        </style:master-page></office:master-styles></office:document-styles>";
    let content = "<office:document-content><text:p>Dear all</text:p></office:document-content>";
    let blocks = read(&packed(&[("content.xml", content), ("styles.xml", styles)])).unwrap().blocks;
    let texts: Vec<String> = blocks.iter().map(Block::text).collect();
    assert_eq!(texts, ["ACME GmbH\tOffer", "Dear all", "Bank account 5"]);
}
