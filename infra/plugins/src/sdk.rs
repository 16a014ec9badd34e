//! The SDK that plugins are written with, compiled in, so that the program needs no other file.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use sha2::{Digest, Sha256};

macro_rules! files {
    ($($name:literal),* $(,)?) => {
        &[$(($name, include_str!(concat!("../../../controller/src/", $name)))),*]
    };
}

/// The modules that plugins import when they are described.
const FILES: &[(&str, &str)] = files![
    "signalbox_plugins/__init__.py",
    "signalbox_plugins/builtin/__init__.py",
    "signalbox_plugins/builtin/files.py",
    "signalbox_plugins/builtin/modbus.py",
    "signalbox_plugins/builtin/mqtt.py",
    "signalbox_plugins/builtin/mqtt_settings.py",
    "signalbox_plugins/builtin/opcua.py",
    "signalbox_plugins/builtin/signals.py",
    "signalbox_plugins/builtin/simulated.py",
    "signalbox_plugins/builtin/sparkplug.py",
    "signalbox_plugins/builtin/system.py",
    "signalbox_plugins/channels.py",
    "signalbox_plugins/compat.py",
    "signalbox_plugins/config.py",
    "signalbox_plugins/describe.py",
    "signalbox_plugins/discovery.py",
    "signalbox_plugins/errors.py",
    "signalbox_plugins/plugin.py",
    "signalbox_plugins/push.py",
    "signalbox_plugins/requirements.py",
    "signalbox_plugins/testing.py",
    "webmacs_plugins_core/__init__.py",
    "webmacs_plugins_core/base.py",
    "webmacs_plugins_core/channels.py",
    "webmacs_plugins_core/config.py",
    "webmacs_plugins_core/discovery.py",
    "webmacs_plugins_core/errors.py",
    "webmacs_plugins_core/health.py",
    "webmacs_plugins_core/registry.py",
    "webmacs_plugins_core/testing.py",
    "webmacs_plugins_core/types.py",
];

/// Writes the SDK below `folder` in one step, if it is not there as it was compiled in, and returns its place.
pub(crate) fn write(folder: &Path) -> io::Result<PathBuf> {
    let expected =
        digest(FILES.iter().map(|(name, text)| (name.to_string(), text.as_bytes().to_vec())).collect());
    let sdk = folder.join(format!("sdk-{}", &expected[..16]));
    if written_digest(&sdk).is_ok_and(|found| found == expected) {
        return Ok(sdk);
    }
    let whole = tempfile::tempdir_in(folder)?;
    let written = whole.path().join("sdk");
    for (name, text) in FILES {
        let path = written.join(name);
        fs::create_dir_all(path.parent().unwrap_or(folder))?;
        fs::write(path, text)?;
    }
    // A different existing copy is moved to the temporary folder and deleted with it.
    match fs::rename(&sdk, whole.path().join("different")) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    match fs::rename(written, &sdk) {
        // Another process was quicker.
        Err(_) if written_digest(&sdk).is_ok_and(|found| found == expected) => Ok(sdk),
        renamed => renamed.map(|()| sdk),
    }
}

/// SHA-256 of the names and texts of `files`.
fn digest(mut files: Vec<(String, Vec<u8>)>) -> String {
    files.sort();
    let mut hasher = Sha256::new();
    for (name, text) in files {
        for part in [name.as_bytes(), &text] {
            hasher.update((part.len() as u64).to_le_bytes());
            hasher.update(part);
        }
    }
    hex::encode(hasher.finalize())
}

/// The digest of all files below `sdk`. Anything but plain files and folders changes it: a link leads elsewhere.
fn written_digest(sdk: &Path) -> io::Result<String> {
    let mut files = Vec::new();
    collect(sdk, "", &mut files)?;
    Ok(digest(files))
}

fn collect(folder: &Path, prefix: &str, files: &mut Vec<(String, Vec<u8>)>) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let name = format!("{prefix}{}", entry.file_name().to_string_lossy());
        let kind = entry.file_type()?;
        if files.len() > FILES.len() {
            return Err(io::Error::other("the SDK has more files than were written"));
        } else if kind.is_dir() {
            collect(&entry.path(), &format!("{name}/"), files)?;
        } else if kind.is_file() {
            files.push((name, fs::read(entry.path())?));
        } else {
            return Err(io::Error::other("the SDK holds something that is not a file"));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn sources(folder: &Path, into: &mut BTreeSet<PathBuf>) {
        for entry in fs::read_dir(folder).unwrap() {
            match entry.unwrap().path() {
                path if path.is_dir() => sources(&path, into),
                path if path.extension().is_some_and(|extension| extension == "py") => {
                    into.insert(path);
                }
                _ => {}
            }
        }
    }

    #[test]
    fn an_sdk_that_differs_is_written_anew() {
        let folder = tempfile::tempdir().unwrap();
        let sdk = write(folder.path()).unwrap();
        let (name, text) = FILES[0];
        let file = sdk.join(name);
        assert_eq!(fs::read_to_string(&file).unwrap(), text);
        let modified = fs::metadata(&file).unwrap().modified().unwrap();
        assert_eq!(write(folder.path()).unwrap(), sdk);
        assert_eq!(fs::metadata(&file).unwrap().modified().unwrap(), modified, "it is left alone");
        for spoil in [
            &(|| fs::write(&file, "").unwrap()) as &dyn Fn(),
            &|| fs::remove_file(&file).unwrap(),
            &|| fs::write(sdk.join("json.py"), "import os").unwrap(),
            &|| std::os::unix::fs::symlink("/etc/passwd", sdk.join("link")).unwrap(),
            &|| fs::remove_dir_all(&sdk).unwrap(),
        ] {
            spoil();
            assert_eq!(write(folder.path()).unwrap(), sdk);
            assert_eq!(fs::read_to_string(&file).unwrap(), text);
            assert_eq!(
                written_digest(&sdk).unwrap()[..16],
                sdk.to_str().unwrap()[sdk.to_str().unwrap().len() - 16..]
            );
        }
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "nothing else is left");
    }

    #[test]
    fn every_file_of_the_sdk_is_compiled_in() {
        let top = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../controller/src");
        let mut there = BTreeSet::new();
        for package in ["signalbox_plugins", "webmacs_plugins_core"] {
            sources(&top.join(package), &mut there);
        }
        let compiled_in: BTreeSet<_> = FILES.iter().map(|(name, _)| top.join(name)).collect();
        assert_eq!(compiled_in, there);
    }
}
