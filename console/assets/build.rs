//! Lists the files that `tools/console` has built. A build without them works: the crate then serves a page that says how to
//! build them.

use std::{
    env,
    error::Error,
    fs,
    hash::{DefaultHasher, Hash, Hasher},
    io,
    path::{Path, PathBuf},
};

fn main() -> Result<(), Box<dyn Error>> {
    let folder = PathBuf::from(env::var("CARGO_MANIFEST_DIR")?).join("built");
    println!("cargo:rerun-if-changed={}", folder.display());
    let mut files = Vec::new();
    collect(&folder, &mut files)?;
    files.sort();
    let is_original = |path: &&PathBuf| !path.extension().is_some_and(|end| end == "br" || end == "gz");
    let entries: Result<Vec<_>, _> =
        files.iter().filter(is_original).map(|path| entry(&folder, path)).collect();
    let list = format!("&[{}]", entries?.concat());
    fs::write(PathBuf::from(env::var("OUT_DIR")?).join("files.rs"), list)?;
    Ok(())
}

/// The files below `folder`, without hidden ones.
fn collect(folder: &Path, files: &mut Vec<PathBuf>) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.file_name().is_some_and(|name| name.to_string_lossy().starts_with('.')) {
            continue;
        }
        if path.is_dir() {
            collect(&path, files)?;
        } else {
            files.push(path);
        }
    }
    Ok(())
}

/// The source of one `File`.
fn entry(folder: &Path, path: &Path) -> Result<String, Box<dyn Error>> {
    let mut hasher = DefaultHasher::new();
    fs::read(path)?.hash(&mut hasher);
    let tag = format!("\"{:016x}\"", hasher.finish());
    let include = |path: &Path| format!("include_bytes!({path:?})");
    let encoded = |end: &str| {
        let path = PathBuf::from(format!("{}.{end}", path.display()));
        if path.exists() { format!("Some({})", include(&path)) } else { "None".to_owned() }
    };
    let name = format!("/{}", path.strip_prefix(folder)?.display());
    let (plain, brotli, gzip) = (include(path), encoded("br"), encoded("gz"));
    Ok(format!("File {{ path: {name:?}, tag: {tag:?}, plain: {plain}, brotli: {brotli}, gzip: {gzip} }},"))
}
