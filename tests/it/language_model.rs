//! The processor `llm`, whose language model a stand-in plays that speaks the interface of OpenAI.

use std::{
    io::Cursor,
    path::{Path, PathBuf},
};

use serde_json::{Value, json};
use signalbox_config::{Config, Secret};
use signalbox_documents::{Documents, Extraction, Failure, Options, OutputFormat, Processor, Share, Source};

use crate::harness::{Reply, Seen, StandIn};

async fn documents(address: &str, piece_letters: usize) -> Documents {
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let mut extraction = Config::load(None, &Default::default()).unwrap().extraction;
    extraction.parsers = 1;
    extraction.llm_url = address.to_owned();
    extraction.llm_key = Secret::new("a-key".to_owned());
    extraction.llm_model = "a-model".to_owned();
    extraction.llm_seconds = 5;
    extraction.llm_piece_letters = piece_letters;
    Documents::start(&extraction, PathBuf::from(env!("CARGO_BIN_EXE_signalbox"))).await.unwrap()
}

async fn extract(
    documents: &Documents,
    format: OutputFormat,
    processors: &[Processor],
) -> Result<Extraction, Failure> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/documents/report.pdf");
    let bytes = std::fs::read(path).unwrap();
    let options = Options { output_format: format, processors: processors.to_vec(), ..Options::default() };
    let source = Source {
        length: bytes.len() as u64,
        bytes: Cursor::new(bytes),
        name: "report.pdf",
        share: Share::operator(),
    };
    documents.extract(source, &options, &mut |_, _| {}).await
}

const ALL: [Processor; 3] = [Processor::Cleanup, Processor::Structure, Processor::Llm];

fn completion(text: &str) -> Reply {
    let message = json!({"role": "assistant", "content": text});
    Reply::Json(json!({"id": "x", "choices": [{"index": 0, "message": message, "finish_reason": "stop"}]}))
}

/// The model's input.
fn given(seen: &Seen) -> String {
    seen.json()["messages"][1]["content"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn the_text_is_rewritten_piece_by_piece() {
    let server = StandIn::start(|seen| {
        completion(&given(seen).replace("Prüfbericht der Weiche", "Prüfbericht *der* Weiche 12"))
    })
    .await;
    let documents = documents(&format!("{}/v1", server.url), 300).await;
    assert!(documents.offer().await.processors.contains(&"llm"));
    let plain = extract(&documents, OutputFormat::Markdown, &ALL[..2]).await.unwrap();
    assert_eq!(server.seen("").len(), 0);
    let extraction = extract(&documents, OutputFormat::Markdown, &ALL).await.unwrap();
    assert_eq!(extraction.content, plain.content.replace("der Weiche\n", "der Weiche 12\n"));
    assert_eq!((extraction.processors_applied.len(), extraction.warnings.len()), (3, 0));
    let seen = server.seen("POST /v1/chat/completions");
    assert!(seen.len() > 1, "{}", seen.len());
    assert_eq!(seen.iter().map(given).collect::<Vec<_>>().join("\n\n"), plain.content);
    assert_eq!(seen[0].header("authorization"), "Bearer a-key");
    assert_eq!((&seen[0].json()["model"], &seen[0].json()["stream"]), (&json!("a-model"), &json!(false)));
    let extraction = extract(&documents, OutputFormat::Json, &ALL).await.unwrap();
    let json: Value = serde_json::from_str(&extraction.content).unwrap();
    assert_eq!(json["blocks"][1]["content"], "Prüfbericht der Weiche 12");
    assert_eq!((&json["blocks"][1]["level"], &json["blocks"][1]["metadata"]["page"]), (&json!(1), &json!(1)));
}

#[tokio::test]
async fn the_text_stays_as_it_was_when_the_model_fails() {
    let server = StandIn::start(|_| Reply::Status(500)).await;
    let documents = documents(&server.url, 300).await;
    let plain = extract(&documents, OutputFormat::Markdown, &ALL[..2]).await.unwrap();
    let cut = json!({"choices": [{"message": {"content": plain.content}, "finish_reason": "length"}]});
    let replies = [
        (Reply::Status(401), "401"),
        (Reply::Json(json!({"error": "x"})), "not understood"),
        (completion("Summary."), "left out much"),
        (Reply::Json(cut), "cut off"),
        (Reply::Text("x".repeat(5 << 20)), "longer"),
        (Reply::Hang, "within 5 s"),
    ];
    for (reply, reason) in replies {
        // The first piece works: half a document is not rewritten.
        let first = given_of(&plain.content);
        server
            .behave(move |seen| if given(seen) == first { completion(&given(seen)) } else { reply.clone() });
        let extraction = extract(&documents, OutputFormat::Markdown, &ALL).await.unwrap();
        assert_eq!(
            (&extraction.content, extraction.processors_applied.len()),
            (&plain.content, 2),
            "{reason}"
        );
        let [warning] = extraction.warnings.as_slice() else { panic!("{:?}", extraction.warnings) };
        assert!(
            warning.starts_with("the processor llm left the text as it was") && warning.contains(reason),
            "{warning}"
        );
    }
}

/// The first piece of `content` with pieces of 300 letters: two headings and a paragraph.
fn given_of(content: &str) -> String {
    content.split("\n\n## ").next().unwrap().to_owned()
}

#[tokio::test]
async fn without_a_model_its_processors_are_refused() {
    let documents = documents("", 300).await;
    assert!(!documents.offer().await.processors.contains(&"llm"));
    let refused = extract(&documents, OutputFormat::Markdown, &ALL).await.unwrap_err();
    assert!(matches!(refused, Failure::Unavailable { .. }), "{refused}");
}
