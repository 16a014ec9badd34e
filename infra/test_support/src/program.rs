use std::{
    io::Write,
    path::Path,
    process::{Command, Stdio},
};

/// Writes the script `text` to `path` and makes it executable, so that it can be run at once.
///
/// Another process writes it: a child that some other thread starts at that moment would inherit this process's open
/// file, and until it has replaced itself the script cannot be run (`ETXTBSY`, "Text file busy").
///
/// # Panics
///
/// When the script cannot be written.
pub fn write_program(path: &Path, text: &str) {
    let mut shell = Command::new("/bin/sh");
    shell.args(["-c", "cat > \"$0\" && chmod 755 \"$0\""]).arg(path).stdin(Stdio::piped());
    let mut child = shell.spawn().expect("sh starts");
    child.stdin.take().expect("it reads").write_all(text.as_bytes()).expect("it takes the script");
    assert!(child.wait().expect("it ends").success(), "{} could not be written", path.display());
}
