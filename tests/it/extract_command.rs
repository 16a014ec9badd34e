//! `signalbox extract`: documents become text without any server.

use std::{
    path::{Path, PathBuf},
    process::{Command, Output},
};

use tempfile::TempDir;

fn sample(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/documents").join(name)
}

/// Runs the command in a folder of its own, from which the checkout's library is not seen.
fn extract(folder: &Path, arguments: &[&str], files: &[PathBuf]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_signalbox"));
    command.arg("extract").args(arguments).args(files).current_dir(folder).env_remove("SIGNALBOX_CONFIG");
    let library = Path::new(env!("CARGO_MANIFEST_DIR")).join(".tools/lib/libpdfium.so");
    command.env("SIGNALBOX_EXTRACTION__PDFIUM", library).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

#[test]
fn texts_come_in_the_order_of_the_files_and_nothing_else_does() {
    let folder = TempDir::new().unwrap();
    let output = extract(folder.path(), &["-f", "plaintext"], &[sample("report.pdf"), sample("mail.eml")]);
    let (out, errors) = (text(&output.stdout), text(&output.stderr));
    assert_eq!((output.status.code(), errors.as_str()), (Some(0), ""));
    let at = |words: &str| out.find(words).unwrap_or_else(|| panic!("{words} is not in {out}"));
    assert!(at("Stellkraft") < at("Störung an Gleis 3"));
}

#[test]
fn one_bad_file_spoils_nothing_but_the_exit_code() {
    let folder = TempDir::new().unwrap();
    let names = ["encrypted.pdf", "letter.docx", "missing.pdf", "bomb.docx"];
    let files = names.map(sample);
    let output = extract(folder.path(), &["-o", "out", "-l", "en"], &files);
    let errors = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{errors}");
    assert!(errors.contains("encrypted.pdf: the file is encrypted"), "{errors}");
    assert!(errors.contains("missing.pdf: it cannot be opened"), "{errors}");
    assert!(errors.contains("bomb.docx: the document unpacks to more than is read"), "{errors}");
    // Each is reported once, and nothing is logged beside it.
    assert_eq!(errors.lines().count(), 3, "{errors}");
    let written = std::fs::read_to_string(folder.path().join("out/letter.docx.md")).unwrap();
    assert!(written.starts_with("# Brief\n"), "{written}");
    assert_eq!(std::fs::read_dir(folder.path().join("out")).unwrap().count(), 1);
}

#[test]
fn documents_of_one_name_do_not_overwrite_each_other() {
    let folder = TempDir::new().unwrap();
    let copies = ["a", "b"].map(|name| folder.path().join(name).join("letter.docx"));
    for copy in &copies {
        std::fs::create_dir(copy.parent().unwrap()).unwrap();
        std::fs::copy(sample("letter.docx"), copy).unwrap();
    }
    let output = extract(folder.path(), &["-o", "out"], &copies);
    let errors = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{errors}");
    assert!(errors.contains("would both be written to out/letter.docx.md"), "{errors}");
    assert!(!folder.path().join("out").exists());
    // One that is named twice is one.
    let twice = [copies[0].clone(), folder.path().join("a/../a/letter.docx")];
    assert_eq!(extract(folder.path(), &["-o", "out"], &twice).status.code(), Some(0));
    assert_eq!(std::fs::read_dir(folder.path().join("out")).unwrap().count(), 1);
    // Standard output has room for both.
    assert_eq!(extract(folder.path(), &[], &copies).status.code(), Some(0));
}

#[test]
fn bad_arguments_are_reported_before_any_file_is_read() {
    let folder = TempDir::new().unwrap();
    let unknown = extract(folder.path(), &["-l", "xyz"], &[sample("report.pdf")]);
    assert_eq!(unknown.status.code(), Some(1));
    assert!(text(&unknown.stderr).contains("supported are"), "{}", text(&unknown.stderr));
    assert_eq!(extract(folder.path(), &[], &[]).status.code(), Some(2));
    assert_eq!(extract(folder.path(), &["-f", "html"], &[sample("report.pdf")]).status.code(), Some(2));
}
