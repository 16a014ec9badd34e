//! Where the servers' programs are, and whether they are new enough.

use std::env;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::error::EmbeddedError;

const POSTGRES_ROOT: &str = "/usr/lib/postgresql";
const POSTGRES_OLDEST: u32 = 14;
const POSTGRES_REMEDY: &str = "install the system's package postgresql (tools/bootstrap does)";

const NATS_VARIABLE: &str = "SIGNALBOX_NATS_SERVER";
const NATS_IN_CHECKOUT: &str = ".tools/bin/nats-server";
const NATS_OLDEST: (u32, u32) = (2, 11);
const NATS_REMEDY: &str = "run tools/bootstrap, or name the program in SIGNALBOX_NATS_SERVER";

/// An installed PostgreSQL: the folder of its programs and its major version.
#[derive(Clone, Debug)]
pub(crate) struct PostgresPrograms {
    pub(crate) bin: PathBuf,
    pub(crate) major: u32,
}

/// Finds the newest PostgreSQL, or the one of version `data_major` when there are data of that version.
pub(crate) fn postgres(data_dir: &Path, data_major: Option<u32>) -> Result<PostgresPrograms, EmbeddedError> {
    let installed = postgres_among(postgres_folders(Path::new(POSTGRES_ROOT)))?;
    let Some(major) = data_major else { return Ok(installed[0].clone()) };
    let same = installed.into_iter().find(|programs| programs.major == major);
    same.ok_or_else(|| EmbeddedError::OtherMajor { data_dir: data_dir.to_owned(), major })
}

fn postgres_folders(root: &Path) -> Vec<PathBuf> {
    let versions = fs::read_dir(root).into_iter().flatten().flatten().map(|entry| entry.path().join("bin"));
    versions.chain(path_folders()).filter(|folder| is_program(&folder.join("initdb"))).collect()
}

/// All usable installations among `folders`, the newest first; an error if there are none.
fn postgres_among(folders: Vec<PathBuf>) -> Result<Vec<PostgresPrograms>, EmbeddedError> {
    let mut too_old = None;
    let mut found = Vec::new();
    for bin in folders.into_iter().filter(|folder| is_program(&folder.join("postgres"))) {
        let path = bin.join("postgres");
        let (major, _) = version(&path)?;
        if major >= POSTGRES_OLDEST {
            found.push(PostgresPrograms { bin, major });
        } else {
            too_old = Some(EmbeddedError::TooOld {
                program: "PostgreSQL",
                path,
                found: major.to_string(),
                required: "14",
                remedy: POSTGRES_REMEDY,
            });
        }
    }
    found.sort_by_key(|programs| std::cmp::Reverse(programs.major));
    if found.is_empty() { Err(too_old.unwrap_or_else(postgres_missing)) } else { Ok(found) }
}

fn postgres_missing() -> EmbeddedError {
    EmbeddedError::Missing {
        program: "PostgreSQL",
        searched: format!("{POSTGRES_ROOT}/*/bin and the PATH"),
        remedy: POSTGRES_REMEDY,
    }
}

/// Finds the NATS server: named by the environment, in the checkout, or on the PATH.
pub(crate) fn nats_server() -> Result<PathBuf, EmbeddedError> {
    if let Some(named) = env::var_os(NATS_VARIABLE) {
        return checked_nats(PathBuf::from(named));
    }
    let places = [env::current_dir().ok(), env::current_exe().ok()];
    let in_checkout = places.iter().flatten().find_map(|place| nats_above(place));
    in_checkout
        .or_else(|| on_path("nats-server"))
        .map_or_else(|| Err(nats_missing("the checkout or the PATH")), checked_nats)
}

/// The checkout's NATS server, seen from a folder in it. A folder that anybody may write to, such as /tmp, is not
/// looked into: another user could have put a program there.
fn nats_above(place: &Path) -> Option<PathBuf> {
    let trusted = place.ancestors().filter(|folder| !is_open_to_all(folder));
    trusted.map(|folder| folder.join(NATS_IN_CHECKOUT)).find(|path| is_program(path))
}

fn is_open_to_all(folder: &Path) -> bool {
    fs::metadata(folder).is_ok_and(|metadata| metadata.permissions().mode() & 0o002 != 0)
}

fn checked_nats(path: PathBuf) -> Result<PathBuf, EmbeddedError> {
    if !is_program(&path) {
        return Err(nats_missing(&path.display().to_string()));
    }
    let found = version(&path)?;
    if found >= NATS_OLDEST {
        return Ok(path);
    }
    let found = format!("{}.{}", found.0, found.1);
    Err(EmbeddedError::TooOld { program: "nats-server", path, found, required: "2.11", remedy: NATS_REMEDY })
}

fn nats_missing(searched: &str) -> EmbeddedError {
    EmbeddedError::Missing { program: "nats-server", searched: searched.to_owned(), remedy: NATS_REMEDY }
}

/// The first program of that name on the PATH, or in the system's folders, which a user's PATH may lack.
pub(crate) fn on_path(name: &str) -> Option<PathBuf> {
    path_folders().into_iter().map(|folder| folder.join(name)).find(|path| is_program(path))
}

fn path_folders() -> Vec<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    let system = ["/usr/sbin", "/usr/bin", "/sbin", "/bin"].map(PathBuf::from);
    env::split_paths(&path).filter(|folder| folder.is_absolute()).chain(system).collect()
}

fn is_program(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|metadata| metadata.is_file() && metadata.permissions().mode() & 0o111 != 0)
}

fn version(program: &Path) -> Result<(u32, u32), EmbeddedError> {
    let output = Command::new(program)
        .arg("--version")
        .output()
        .map_err(EmbeddedError::run(program.display().to_string()))?;
    let said = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    parse_version(&said).ok_or_else(|| EmbeddedError::VersionUnknown { path: program.to_owned(), said })
}

/// The first `major.minor` in a program's output; a pre-release such as `17beta1` has minor 0.
fn parse_version(said: &str) -> Option<(u32, u32)> {
    said.split_whitespace().find_map(|word| {
        let mut numbers = word.trim_start_matches('v').split('.').map(leading_number);
        let major = numbers.next()??;
        Some((major, numbers.next().flatten().unwrap_or(0)))
    })
}

fn leading_number(text: &str) -> Option<u32> {
    let end = text.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(text.len());
    text[..end].parse().ok()
}

#[cfg(test)]
mod tests {
    use signalbox_test_support::write_program;

    use super::*;

    #[test]
    fn versions_are_read_from_what_programs_say() {
        assert_eq!(parse_version("postgres (PostgreSQL) 15.18 (Debian 15.18-0+deb12u1)"), Some((15, 18)));
        assert_eq!(parse_version("postgres (PostgreSQL) 19beta2"), Some((19, 0)));
        assert_eq!(parse_version("nats-server: v2.14.6"), Some((2, 14)));
        assert_eq!(parse_version("no numbers here"), None);
    }

    fn fake_program(path: &Path, answer: &str) {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        write_program(path, &format!("#!/bin/sh\necho '{answer}'\n"));
    }

    #[test]
    fn the_newest_postgres_is_first_and_old_ones_are_skipped() {
        let root = tempfile::tempdir().unwrap();
        let folders = ["13.9", "16.2", "9.6", "15.1"].map(|number| {
            let bin = root.path().join(number).join("bin");
            fake_program(&bin.join("postgres"), &format!("postgres (PostgreSQL) {number}"));
            bin
        });
        let majors: Vec<u32> =
            postgres_among(folders.to_vec()).unwrap().iter().map(|programs| programs.major).collect();
        assert_eq!(majors, [16, 15]);
        let error = postgres_among(folders[..1].to_vec()).unwrap_err().to_string();
        assert!(error.contains("is version 13, but 14 or newer is needed"), "{error}");
    }

    #[test]
    fn a_missing_postgres_says_how_to_get_it() {
        let error = postgres_among(Vec::new()).unwrap_err().to_string();
        assert!(
            error.starts_with("PostgreSQL was not found in /usr/lib/postgresql/*/bin and the PATH; install")
        );
    }

    #[test]
    fn an_old_nats_server_is_refused() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("nats-server");
        fake_program(&path, "nats-server: v2.9.10");
        let error = checked_nats(path).unwrap_err().to_string();
        assert!(
            error.contains("is version 2.9, but 2.11 or newer is needed; run tools/bootstrap"),
            "{error}"
        );
    }

    #[test]
    fn a_missing_nats_server_says_how_to_get_it() {
        let error = checked_nats(PathBuf::from("/nowhere/nats-server")).unwrap_err().to_string();
        assert!(
            error.starts_with("nats-server was not found in /nowhere/nats-server; run tools/bootstrap"),
            "{error}"
        );
    }

    #[test]
    fn the_checkout_is_found_from_below_but_never_through_a_folder_open_to_all() {
        let root = tempfile::tempdir().unwrap();
        fake_program(&root.path().join(NATS_IN_CHECKOUT), "nats-server: v2.14.6");
        let below = root.path().join("a/b");
        assert_eq!(nats_above(&below), Some(root.path().join(NATS_IN_CHECKOUT)));
        fs::set_permissions(root.path(), fs::Permissions::from_mode(0o777)).unwrap();
        assert_eq!(nats_above(&below), None);
    }
}
