//! The SDK that plugins are written with, compiled in, so that the program needs no other file.

use std::{
    fs,
    hash::{DefaultHasher, Hash, Hasher},
    io,
    path::{Path, PathBuf},
};

macro_rules! files {
    ($($name:literal),* $(,)?) => {
        &[$(($name, include_str!(concat!("../../../controller/src/", $name)))),*]
    };
}

/// What plugins import when they are described.
const FILES: &[(&str, &str)] = files![
    "signalbox_plugins/__init__.py",
    "signalbox_plugins/builtin/__init__.py",
    "signalbox_plugins/builtin/simulated.py",
    "signalbox_plugins/builtin/system.py",
    "signalbox_plugins/channels.py",
    "signalbox_plugins/compat.py",
    "signalbox_plugins/config.py",
    "signalbox_plugins/describe.py",
    "signalbox_plugins/discovery.py",
    "signalbox_plugins/errors.py",
    "signalbox_plugins/plugin.py",
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

/// Writes the SDK below `folder`, in one step and once for each version of it; gives back where it is.
pub(crate) fn write(folder: &Path) -> io::Result<PathBuf> {
    let mut hasher = DefaultHasher::new();
    FILES.hash(&mut hasher);
    let sdk = folder.join(format!("sdk-{:016x}", hasher.finish()));
    if sdk.is_dir() {
        return Ok(sdk);
    }
    let whole = tempfile::tempdir_in(folder)?;
    let written = whole.path().join("sdk");
    for (name, text) in FILES {
        let path = written.join(name);
        fs::create_dir_all(path.parent().unwrap_or(folder))?;
        fs::write(path, text)?;
    }
    match fs::rename(written, &sdk) {
        // Another process was quicker.
        Err(_) if sdk.is_dir() => Ok(sdk),
        renamed => renamed.map(|()| sdk),
    }
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
