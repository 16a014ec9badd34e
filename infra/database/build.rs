//! Lists the migrations, so that the program holds them.

use std::{env, error::Error, fmt::Write, fs, path::Path};

fn main() -> Result<(), Box<dyn Error>> {
    let folder = Path::new(&env::var("CARGO_MANIFEST_DIR")?).join("migrations");
    println!("cargo:rerun-if-changed=migrations");
    let mut migrations = Vec::new();
    for entry in fs::read_dir(&folder)? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "sql") {
            println!("cargo:rerun-if-changed={}", path.display());
            let (version, description) = named(&path)
                .ok_or_else(|| format!("{}: name it <number>_<description>.sql", path.display()))?;
            migrations.push((version, description, path));
        }
    }
    migrations.sort();
    let mut list = String::from("[");
    for (version, description, path) in migrations {
        write!(list, "({version}, {description:?}, include_str!({path:?})),")?;
    }
    list.push(']');
    fs::write(Path::new(&env::var("OUT_DIR")?).join("migrations.rs"), list)?;
    Ok(())
}

/// The version and the description in the name of a file, read as sqlx does: `0001_event_log.sql` is 1, "event log".
fn named(path: &Path) -> Option<(i64, String)> {
    let (version, description) = path.file_stem()?.to_str()?.split_once('_')?;
    Some((version.parse().ok()?, description.replace('_', " ")))
}
