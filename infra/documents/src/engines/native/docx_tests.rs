use super::docx::read;
use crate::{
    block::{Block, Content as Kind},
    detect,
    engines::native::archive::packed,
};

fn texts(bytes: &[u8]) -> Vec<String> {
    read(bytes).unwrap().blocks.iter().map(Block::text).collect()
}

#[test]
fn main_part_may_have_another_name() {
    let types = r#"<Types><Override PartName="/word/document2.xml" ContentType="application/vnd.openxmlformats-officedocument.wordprocessingml.document.main+xml"/></Types>"#;
    let relations = r#"<Relationships><Relationship Type="http://schemas.openxmlformats.org/officeDocument/2006/relationships/officeDocument" Target="/word/document2.xml"/></Relationships>"#;
    let main = r#"<w:document><w:body><w:p><w:r><w:t>10</w:t></w:r><w:r><w:rPr><w:vertAlign w:val="superscript"/></w:rPr><w:t>6</w:t></w:r><w:r><w:t> points</w:t></w:r></w:p></w:body></w:document>"#;
    let parts = [("[Content_Types].xml", types), ("_rels/.rels", relations), ("word/document2.xml", main)];
    let bytes = packed(&parts);
    assert_eq!(detect::detect(&bytes, ""), detect::DOCX);
    assert_eq!(texts(&bytes), ["10⁶ points"]);
}

#[test]
fn merged_and_header_cells_are_kept() {
    let cell = |properties: &str, text: &str| {
        format!("<w:tc><w:tcPr>{properties}</w:tcPr><w:p><w:r><w:t>{text}</w:t></w:r></w:p></w:tc>")
    };
    let main = format!(
        "<w:document><w:body><w:tbl><w:tr><w:trPr><w:tblHeader/></w:trPr>{}{}</w:tr><w:tr><w:trPr><w:tblHeader/></w:trPr>{}{}{}</w:tr>\
         <w:tr>{}{}{}</w:tr></w:tbl></w:body></w:document>",
        cell("<w:vMerge w:val='restart'/>", "Part"),
        cell("<w:gridSpan w:val='2'/>", "Size"),
        cell("<w:vMerge/>", ""),
        cell("", "mm"),
        cell("", "inch"),
        cell("", "Rod"),
        cell("", "25"),
        cell("", "1"),
    );
    let blocks = read(&packed(&[("word/document.xml", &main)])).unwrap().blocks;
    let Kind::Table(table) = &blocks[0].content else { panic!("{blocks:?}") };
    assert_eq!(table.rows, [["Part", "Size", ""], ["", "mm", "inch"], ["Rod", "25", "1"]]);
    let cells =
        table.cells.iter().map(|cell| (cell.row, cell.column, cell.row_span, cell.col_span, cell.header));
    let expected = [(0, 0, 2, 1, true), (0, 1, 1, 2, true), (1, 1, 1, 1, true), (1, 2, 1, 1, true)];
    assert_eq!(cells.collect::<Vec<_>>(), expected);
}

#[test]
fn headers_and_footers_of_pages_are_read_once() {
    let part = |text: &str| format!("<w:hdr><w:p><w:r><w:t>{text}</w:t></w:r></w:p></w:hdr>");
    let relation = |id: u8, kind: &str, part: &str| {
        format!("<Relationship Id='r{id}' Type='http://x/relationships/{kind}' Target='{part}'/>")
    };
    let relations =
        [(1, "footer", "footer1.xml"), (2, "header", "header2.xml"), (3, "header", "header1.xml")];
    let relations = relations.map(|(id, kind, part)| relation(id, kind, part)).concat();
    let bytes = packed(&[
        (
            "word/document.xml",
            "<w:document><w:body><w:p><w:r><w:t>Offer</w:t></w:r></w:p></w:body></w:document>",
        ),
        ("word/_rels/document.xml.rels", &format!("<Relationships>{relations}</Relationships>")),
        ("word/header1.xml", &part("ACME GmbH")),
        ("word/header2.xml", &part("ACME GmbH")),
        ("word/footer1.xml", &format!("{}{}", part("Bank account 5"), part("1"))),
    ]);
    assert_eq!(texts(&bytes), ["ACME GmbH", "Offer", "Bank account 5"]);
}

#[test]
fn comments_and_diagrams_follow_their_paragraphs() {
    let refer = |id: u8| format!("<w:r><w:commentReference w:id='{id}'/></w:r>");
    let main = format!(
        "<w:document><w:body><w:p><w:r><w:t>Offer</w:t></w:r>{}</w:p><w:p><w:r><w:drawing><wp:inline><a:graphic><a:graphicData>\
         <dgm:relIds r:dm='r3'/></a:graphicData></a:graphic></wp:inline></w:drawing></w:r></w:p><w:tbl><w:tr><w:tc><w:p><w:r><w:t>5</w:t></w:r>\
         {}</w:p></w:tc></w:tr></w:tbl></w:body></w:document>",
        refer(0),
        refer(1)
    );
    let comment = |id: u8, text: &str| {
        format!("<w:comment w:id='{id}' w:author='Anna'><w:p><w:r><w:t>{text}</w:t></w:r></w:p></w:comment>")
    };
    let comments = [comment(0, "To us?"), comment(1, "Euros?"), comment(2, "Of deleted text")].concat();
    let diagram = "<dgm:dataModel><dgm:ptLst><dgm:pt modelId='1'><dgm:t><a:p><a:r><a:t>Yard</a:t></a:r></a:p></dgm:t></dgm:pt></dgm:ptLst>\
        </dgm:dataModel>";
    let relations = "<Relationships><Relationship Id='r3' Type='http://x/relationships/diagramData' Target='diagrams/data1.xml'/></Relationships>";
    let bytes = packed(&[
        ("word/document.xml", &main),
        ("word/_rels/document.xml.rels", relations),
        ("word/comments.xml", &format!("<w:comments>{comments}</w:comments>")),
        ("word/diagrams/data1.xml", diagram),
    ]);
    assert_eq!(texts(&bytes), ["Offer", "To us?", "Yard", "5", "Euros?"]);
    let bytes = packed(&[
        ("word/document.xml", &main),
        ("word/comments.xml", "<w:comments><w:comment></w:p></w:comments>"),
    ]);
    let content = read(&bytes).unwrap();
    let texts: Vec<String> = content.blocks.iter().map(Block::text).collect();
    assert_eq!((texts.join(" "), content.warnings.len()), ("Offer 5".to_owned(), 1));
}

#[test]
fn a_text_box_does_not_part_the_paragraph_around_it() {
    let main = "<w:document><w:body><w:p><w:pPr><w:outlineLvl w:val='0'/></w:pPr><w:r><w:t>First </w:t></w:r><w:r><w:drawing><wps:txbx><w:txbxContent>\
        <w:p><w:r><w:t>Box</w:t></w:r></w:p></w:txbxContent></wps:txbx></w:drawing></w:r><w:r><w:t>line</w:t></w:r></w:p></w:body></w:document>";
    let blocks = read(&packed(&[("word/document.xml", main)])).unwrap().blocks;
    assert_eq!(blocks.iter().map(Block::text).collect::<Vec<_>>(), ["Box", "First line"]);
    assert!(matches!(blocks[1].content, Kind::Heading { .. }), "{blocks:?}");
}

#[test]
fn numbers_notes_and_formulas_are_kept() {
    let level = |depth: usize, format: &str, text: &str| {
        format!("<w:lvl w:ilvl='{depth}'><w:numFmt w:val='{format}'/><w:lvlText w:val='{text}'/></w:lvl>")
    };
    let numbering = format!(
        "<w:numbering><w:abstractNum w:abstractNumId='4'>{}{}</w:abstractNum><w:abstractNum w:abstractNumId='5'>{}</w:abstractNum>\
         <w:num w:numId='1'><w:abstractNumId w:val='4'/></w:num><w:num w:numId='2'><w:abstractNumId w:val='5'/></w:num></w:numbering>",
        level(0, "decimal", "%1."),
        level(1, "lowerLetter", "%2)"),
        level(0, "decimal", "%1"),
    );
    let styles = "<w:styles><w:style w:styleId='H'><w:name w:val='heading 1'/><w:pPr><w:numPr><w:numId w:val='2'/></w:numPr></w:pPr>\
        </w:style><w:style w:styleId='H2'><w:basedOn w:val='H'/></w:style></w:styles>";
    let item = |depth: usize, text: &str| {
        format!(
            "<w:p><w:pPr><w:numPr><w:ilvl w:val='{depth}'/><w:numId w:val='1'/></w:numPr></w:pPr><w:r><w:t>{text}</w:t></w:r></w:p>"
        )
    };
    let heading =
        |text: &str| format!("<w:p><w:pPr><w:pStyle w:val='H2'/></w:pPr><w:r><w:t>{text}</w:t></w:r></w:p>");
    let main = format!(
        "<w:document><w:body>{}{}{}{}<w:p><w:r><w:t>Checked</w:t></w:r><w:r><w:footnoteReference w:id='7'/></w:r><w:r>\
         <w:endnoteReference w:id='2'/></w:r><m:oMath><m:r><m:t>=</m:t></m:r><m:f><m:num><m:r><m:t>1</m:t></m:r></m:num><m:den><m:r>\
         <m:t>2</m:t></m:r></m:den></m:f></m:oMath></w:p>{}</w:body></w:document>",
        heading("Scope"),
        item(0, "Drive"),
        item(1, "Motor"),
        item(0, "Blades"),
        heading("Result"),
    );
    let notes = |kind: &str, id: u8, text: &str| {
        format!(
            "<w:{kind}s><w:{kind} w:id='-1'><w:p/></w:{kind}><w:{kind} w:id='{id}'><w:p><w:r><w:{kind}Ref/></w:r><w:r><w:t> {text}</w:t></w:r>\
             </w:p></w:{kind}></w:{kind}s>"
        )
    };
    let bytes = packed(&[
        ("word/document.xml", &main),
        ("word/numbering.xml", &numbering),
        ("word/styles.xml", styles),
        ("word/footnotes.xml", &notes("footnote", 7, "In May.")),
        ("word/endnotes.xml", &notes("endnote", 2, "By Anna.")),
    ]);
    let expected =
        ["1 Scope", "Drive\na) Motor\nBlades", "Checked¹[i]=1/2", "2 Result", "¹ In May.", "[i] By Anna."];
    assert_eq!(texts(&bytes), expected);
    let markdown = crate::write::markdown::blocks(&read(&bytes).unwrap().blocks);
    assert!(markdown.contains("1. Drive\n   - a) Motor\n2. Blades"), "{markdown}");
}
