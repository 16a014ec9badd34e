//! PDFium and small PDFs for tests.

use std::{
    path::Path,
    sync::{
        Mutex, OnceLock, PoisonError,
        mpsc::{Sender, channel},
    },
    thread,
};

use crate::{Library, Word};

type Work = Box<dyn FnOnce(&Library) + Send>;

/// Does `work` on the one thread of this process that may call PDFium.
pub(crate) fn with_library<T: Send + 'static>(work: impl FnOnce(&Library) -> T + Send + 'static) -> T {
    static THREAD: OnceLock<Mutex<Sender<Work>>> = OnceLock::new();
    let thread = THREAD.get_or_init(|| Mutex::new(start()));
    let (sender, answer) = channel();
    let work: Work = Box::new(move |library| sender.send(work(library)).unwrap());
    thread.lock().unwrap_or_else(PoisonError::into_inner).send(work).unwrap();
    answer.recv().unwrap()
}

fn start() -> Sender<Work> {
    let folders = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors();
    let path = folders.map(|folder| folder.join(".tools/lib/libpdfium.so")).find(|path| path.is_file());
    let path = path.expect("libpdfium.so is in .tools/lib after tools/bootstrap");
    let (sender, orders) = channel::<Work>();
    thread::spawn(move || {
        let library = Library::load(&path).unwrap();
        orders.into_iter().for_each(|work| work(&library));
    });
    sender
}

/// A PDF of one page: Helvetica is its font `F`, `content` what is drawn, `annotations` the list of them. Objects from
/// number 6 on are `more`, of which the first is its form `X` if that is drawn; the form's fields are `fields`.
pub(crate) fn pdf(content: &str, annotations: &str, fields: &str, more: &[&str]) -> Vec<u8> {
    let mut objects = vec![
        format!("<</Type/Catalog/Pages 2 0 R/AcroForm<</Fields[{fields}]/DR<</Font<</F 4 0 R>>>>>>>>"),
        "<</Type/Pages/Kids[3 0 R]/Count 1>>".to_owned(),
        format!(
            "<</Type/Page/Parent 2 0 R/MediaBox[0 0 600 800]/Resources<</Font<</F 4 0 R>>/XObject<</X 6 0 R>>>>\
             /Contents 5 0 R/Annots[{annotations}]>>"
        ),
        "<</Type/Font/Subtype/Type1/BaseFont/Helvetica/Encoding/WinAnsiEncoding>>".to_owned(),
        format!("<</Length {}>>stream\n{content}\nendstream", content.len() + 1),
    ];
    objects.extend(more.iter().map(|object| (*object).to_owned()));
    let mut file = "%PDF-1.5\n".to_owned();
    let mut table = String::new();
    for (index, object) in objects.iter().enumerate() {
        table.push_str(&format!("{:010} 00000 n \n", file.len()));
        file.push_str(&format!("{} 0 obj\n{object}\nendobj\n", index + 1));
    }
    let (all, place) = (objects.len() + 1, file.len());
    file.push_str(&format!("xref\n0 {all}\n0000000000 65535 f \n{table}"));
    file.push_str(&format!("trailer<</Size {all}/Root 1 0 R>>\nstartxref\n{place}\n%%EOF\n"));
    file.into_bytes()
}

/// The words on the page of [`pdf`].
pub(crate) fn words(bytes: Vec<u8>) -> Vec<Word> {
    with_library(|library| library.open(bytes).unwrap().page(0).unwrap().words().unwrap())
}

/// Their texts.
pub(crate) fn texts(bytes: Vec<u8>) -> Vec<String> {
    words(bytes).into_iter().map(|word| word.text).collect()
}
