//! Where libraries and language data are on this machine.

use std::{
    env, fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
};

const LIBRARY: &str = "libpdfium.so";
const IN_CHECKOUT: &str = ".tools/lib/libpdfium.so";
const TESSDATA: [&str; 5] = [
    "/usr/share/tesseract-ocr/5/tessdata",
    "/usr/share/tessdata",
    "/usr/share/tesseract/tessdata",
    "/usr/local/share/tessdata",
    "/usr/share/tesseract-ocr/4.00/tessdata",
];

/// The PDF library: at the place that is configured, beside the program, in the checkout, or among the system's.
pub fn pdfium(configured: Option<&Path>) -> Option<PathBuf> {
    if let Some(path) = configured {
        return path.is_file().then(|| path.to_owned());
    }
    let program = env::current_exe().ok();
    let beside = program.as_ref().and_then(|program| program.parent()).map(|folder| folder.join(LIBRARY));
    let places = [env::current_dir().ok(), program];
    let in_checkout = places.iter().flatten().find_map(|place| above(place));
    let system = ["/usr/local/lib", "/usr/lib", "/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu"];
    let of_system = system.iter().map(|folder| Path::new(folder).join(LIBRARY)).find(|path| path.is_file());
    beside.filter(|path| path.is_file()).or(in_checkout).or(of_system)
}

/// The checkout's library, seen from a folder in it; not through a folder that anybody may write to.
fn above(place: &Path) -> Option<PathBuf> {
    let is_open =
        |folder: &&Path| fs::metadata(folder).is_ok_and(|found| found.permissions().mode() & 0o002 != 0);
    let trusted = place.ancestors().filter(|folder| !is_open(folder));
    trusted.map(|folder| folder.join(IN_CHECKOUT)).find(|path| path.is_file())
}

/// The folder of Tesseract's language data: the one that is configured, or where distributions put it.
pub fn tessdata(configured: Option<&Path>) -> Option<PathBuf> {
    let places = match configured {
        Some(path) => vec![path.to_owned()],
        None => TESSDATA.iter().map(PathBuf::from).collect(),
    };
    places.into_iter().find(|folder| !crate::ocr::installed_languages(folder).is_empty())
}
