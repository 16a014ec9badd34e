use serde_json::{Value, json};

use super::{
    EXTRACT, document,
    jobs::until_status,
    pdf::{Line, pdf},
    sample, send, world,
};

/// A page with a head, a foot and two lines of text.
fn page<'a>(head: &'a str, foot: &'a str) -> Vec<Line<'a>> {
    vec![
        (60.0, 40.0, 9.0, head),
        (60.0, 200.0, 11.0, "The points were inspected in spring and are in order."),
        (60.0, 214.0, 11.0, "The next inspection is due in autumn."),
        (300.0, 810.0, 9.0, foot),
    ]
}

#[tokio::test]
async fn repeated_head_stays_once() {
    let world = world(|_| {}).await;
    let pages = [page("Points of Yard 7", "1"), page("Points of Yard 7", "2"), page("Points of Yard 7", "3")];
    let read = document(&world.anonymous(), "a.pdf", &pdf(&pages)).await;
    let text = read["content"].as_str().unwrap();
    assert_eq!(text.matches("Points of Yard 7").count(), 1, "{text}");
    assert_eq!(text.matches("are in order").count(), 3, "{text}");
    assert_eq!((&read["pages"][0]["header"], &read["pages"][0]["footer"]), (&json!([]), &json!(["1"])));
    assert_eq!(read["pages"][2]["header"], json!(["Points of Yard 7"]));
    world.finish().await;
}

#[tokio::test]
async fn lines_that_differ_or_stand_alone_stay() {
    let world = world(|_| {}).await;
    let client = world.anonymous();
    let heads = ["Task 1", "Task 2", "Task 3", "Task 4"];
    let read = document(&client, "a.pdf", &pdf(&heads.map(|head| page(head, "")))).await;
    for head in heads {
        assert!(read["content"].as_str().unwrap().contains(head), "{read}");
    }
    let alone = heads.map(|_| vec![(60.0, 40.0, 11.0, "Left blank")]);
    let read = document(&client, "a.pdf", &pdf(&alone)).await;
    assert_eq!(read["content"].as_str().unwrap().matches("Left blank").count(), 4, "{read}");
    world.finish().await;
}

#[tokio::test]
async fn words_beside_the_page_are_in_its_footer() {
    let world = world(|_| {}).await;
    let pages = [[page("", ""), vec![(700.0, 300.0, 9.0, "Proof copy")]].concat()];
    for processors in ["structure", "cleanup"] {
        let path = format!("{EXTRACT}?output_format=json&processors={processors}");
        let answer = send(&world.anonymous(), &path, "a.pdf", &pdf(&pages)).await.expect(200);
        let read: Value = serde_json::from_str(answer["content"].as_str().unwrap()).unwrap();
        assert_eq!(read["pages"][0]["footer"], json!(["Proof copy"]), "{processors}: {read}");
    }
    world.finish().await;
}

#[tokio::test]
async fn table_of_contents_is_a_list() {
    let world = world(|_| {}).await;
    let leader = ". ".repeat(60);
    let first = format!("1.1 Scope {leader}");
    let second = format!("1.2 Definitions {leader}");
    let pages = [vec![
        (60.0, 80.0, 18.0, "Contents"),
        (60.0, 130.0, 11.0, "1 Introduction"),
        (520.0, 130.0, 11.0, "3"),
        (80.0, 144.0, 11.0, first.as_str()),
        (520.0, 144.0, 11.0, "3"),
        (80.0, 158.0, 11.0, second.as_str()),
        (520.0, 158.0, 11.0, "7"),
        (60.0, 172.0, 11.0, "2 Results"),
        (520.0, 172.0, 11.0, "9"),
    ]];
    let read = document(&world.anonymous(), "a.pdf", &pdf(&pages)).await;
    assert_eq!(
        read["content"],
        "# Contents\n\n- 1 Introduction … 3\n  - 1.1 Scope … 3\n  - 1.2 Definitions … 7\n- 2 Results … 9"
    );
    world.finish().await;
}

#[tokio::test]
async fn recognition_keeps_the_text_of_a_page() {
    let world = world(|_| {}).await;
    let answer = send(&world.admin, super::EXTRACT, "a.pdf", &sample("stamped.pdf")).await.expect(200);
    assert_eq!(answer["pages_ocred"], json!([1]));
    let text = answer["content"].as_str().unwrap();
    for words in ["Eingang", "AZ 4711", "Überwachung der Endlage", "Stellkraft"] {
        assert_eq!(text.matches(words).count(), 1, "{words} in {text}");
    }
    world.finish().await;
}

/// A page in a font that draws capital letters of bars, and does not say which of its codes, control codes among them, is which.
fn page_of_shapes(lines: &[&str]) -> Vec<u8> {
    const CODES: [(char, char, &str); 6] = [
        ('E', '\u{1}', "0 0 120 700 re 0 580 500 120 re 0 290 420 120 re 0 0 500 120 re"),
        ('F', '\u{2}', "0 0 120 700 re 0 580 500 120 re 0 290 420 120 re"),
        ('H', '\u{3}', "0 0 120 700 re 400 0 120 700 re 0 290 500 120 re"),
        ('I', 'a', "190 0 120 700 re"),
        ('L', 'b', "0 0 120 700 re 0 0 500 120 re"),
        ('T', 'c', "190 0 120 700 re 0 580 500 120 re"),
    ];
    let stream = |text: &str| format!("<</Length {}>>stream\n{text}\nendstream", text.len() + 1);
    let mut objects = vec![
        "<</Type/Catalog/Pages 2 0 R>>".to_owned(),
        "<</Type/Pages/Kids[3 0 R]/Count 1>>".to_owned(),
        "<</Type/Page/Parent 2 0 R/MediaBox[0 0 600 300]/Resources<</Font<</F 5 0 R>>>>/Contents 4 0 R>>"
            .to_owned(),
    ];
    let shown = lines.iter().map(|line| {
        let codes = line.chars().map(|letter| {
            let code = CODES.iter().find(|code| code.0 == letter).map_or(' ', |code| code.1);
            format!("{:02x}", u32::from(code))
        });
        format!("<{}> Tj 0 -60 Td ", codes.collect::<String>())
    });
    objects.push(stream(&format!("BT /F 36 Tf 40 230 Td {} ET", shown.collect::<String>())));
    let differences =
        CODES.map(|(letter, code, _)| format!("{} /shape{}", u32::from(code), u32::from(letter)));
    let procs: String = CODES
        .iter()
        .enumerate()
        .map(|(at, code)| format!("/shape{} {} 0 R", u32::from(code.0), 6 + at))
        .collect();
    objects.push(format!(
        "<</Type/Font/Subtype/Type3/FontBBox[0 0 600 700]/FontMatrix[.001 0 0 .001 0 0]/FirstChar 0/LastChar 127/Widths[{}]\
         /Encoding<</Type/Encoding/Differences[{}]>>/CharProcs<<{procs}>>/Resources<<>>>>",
        "640 ".repeat(128),
        differences.join(" ")
    ));
    objects.extend(CODES.iter().map(|code| stream(&format!("640 0 0 0 600 700 d1 {} f", code.2))));
    let mut file = "%PDF-1.5\n".to_owned();
    for (index, object) in objects.iter().enumerate() {
        file.push_str(&format!("{} 0 obj\n{object}\nendobj\n", index + 1));
    }
    file.push_str("trailer<</Root 1 0 R>>\n%%EOF\n");
    file.into_bytes()
}

#[tokio::test]
async fn text_whose_font_does_not_say_its_letters_is_recognised() {
    let world = world(|_| {}).await;
    let file = page_of_shapes(&["FELL THE TITLE", "LIFT THE LITTLE LEFT FILE", "FILL IT TILL THE FELT FELL"]);
    let answer = send(&world.admin, EXTRACT, "a.pdf", &file).await.expect(200);
    assert_eq!(answer["pages_ocred"], json!([1]), "{answer}");
    let text = answer["content"].as_str().unwrap();
    for words in ["THE", "FELT", "LEFT"] {
        assert!(text.contains(words), "{words} in {text}");
    }
    // Codes are no text, even where nothing is recognised.
    let answer = send(&world.admin, &format!("{EXTRACT}?ocr_engine=none"), "a.pdf", &file).await.expect(200);
    let (text, warnings) = (answer["content"].as_str().unwrap(), answer["warnings"].to_string());
    assert!(text.contains('\u{FFFD}') && !text.contains(['a', 'b', 'c']), "{text}");
    assert!(warnings.contains("page 1 has 54 letters") && warnings.contains("recognition"), "{warnings}");
    world.finish().await;
}

#[tokio::test]
async fn cleanup_joins_words_at_unicode_hyphens() {
    let world = world(|_| {}).await;
    let text = "The docu\u{2010}\nment is up\u{2010}to\u{2010}date.";
    let answer = send(&world.anonymous(), super::EXTRACT, "a.txt", text.as_bytes()).await.expect(200);
    assert_eq!(answer["content"], "The document is up\u{2010}to\u{2010}date.");
    world.finish().await;
}

#[tokio::test]
async fn page_of_too_many_words_has_a_warning() {
    let world = world(|_| {}).await;
    let line = "a ".repeat(1005);
    let lines = (0..200).map(|number| (10.0, 10.0 + 4.0 * number as f32, 1.0, line.as_str())).collect();
    let page = pdf(&[lines]);
    let answer = send(&world.admin, super::EXTRACT, "a.pdf", &page).await.expect(200);
    let warnings = answer["warnings"].as_array().unwrap();
    assert!(warnings.len() == 1 && warnings[0].as_str().unwrap().contains("page 1"), "{warnings:?}");
    // Of a job, whether the page was read for it or before.
    for sender in [world.admin.clone(), world.anonymous()] {
        let job = send(&sender, "/api/v1/jobs", "a.pdf", &page).await.expect(202);
        let job = until_status(&sender, job["job_id"].as_str().unwrap(), "completed").await;
        assert_eq!(job["warnings"].as_array(), Some(warnings), "{job}");
    }
    let whole = pdf(&[vec![(10.0, 10.0, 9.0, "The points were inspected in spring.")]]);
    assert_eq!(send(&world.admin, super::EXTRACT, "a.pdf", &whole).await.expect(200)["warnings"], json!([]));
    world.finish().await;
}
