//! Requirements of a wheel.

use std::{
    collections::HashSet,
    fs::{self, File},
    io::{self, Read, Seek, Write},
    path::{Component, Path},
};

use zip::ZipArchive;

/// Largest wheel, in bytes.
pub const MAX_WHEEL_BYTES: u64 = 50 << 20;
/// Files in a wheel at most.
const MAX_ENTRIES: usize = 5_000;
/// All files of a wheel together once they are unpacked, in bytes.
const MAX_UNPACKED: u64 = 256 << 20;
/// How many times larger than packed they may be. Source text packs to a fifth; a ratio far beyond is a bomb.
const MAX_RATIO: u64 = 200;
/// Up to this size, in bytes, the ratio says nothing.
const SMALL: u64 = 1 << 20;
/// Longest path in a wheel, in bytes.
const MAX_PATH: usize = 512;
/// Longest file of metadata, in bytes.
const MAX_METADATA: u64 = 1 << 20;
/// Longest name and version of a distribution, in bytes.
const MAX_NAME: usize = 100;
/// Sections of `entry_points.txt` that name plugins.
const GROUPS: [&str; 2] = ["signalbox.plugins", "webmacs.plugins"];
/// Bits of a mode that say what kind of file it is, and two of the kinds.
const KIND: u32 = 0o170_000;
const REGULAR: u32 = 0o100_000;
const FOLDER: u32 = 0o040_000;

/// Why a wheel is refused. Nothing of it was unpacked.
#[derive(Debug, thiserror::Error)]
pub enum WheelError {
    /// Not an archive, or a damaged one.
    #[error("the file is not a valid ZIP/wheel archive")]
    NotAnArchive,
    /// It would do harm when it is unpacked.
    #[error("the wheel is refused: {0}")]
    Hostile(&'static str),
    /// It says nothing of itself.
    #[error("no METADATA found: the file is not a wheel, or a damaged one")]
    NoMetadata,
    /// It says nonsense of itself.
    #[error("the wheel's METADATA has no valid {0}")]
    BadMetadata(&'static str),
    /// It holds no plugin.
    #[error("the wheel {0} names no plugin: its entry_points.txt needs a section [signalbox.plugins]")]
    NoEntryPoint(String),
    /// The disk failed.
    #[error("the wheel cannot be unpacked: {0}")]
    Io(#[from] io::Error),
}

/// A wheel that may be unpacked.
#[derive(Debug)]
pub struct Wheel {
    archive: ZipArchive<File>,
    /// Name of the distribution, in its normal form.
    pub name: String,
    /// Its version.
    pub version: String,
}

impl Wheel {
    /// Checks the wheel in `file`, of which the user says that it is called `file_name`.
    ///
    /// # Errors
    /// [`WheelError`] for the first thing that is wrong.
    pub fn open(mut file: File, file_name: &str) -> Result<Self, WheelError> {
        check_count(&mut file)?;
        let mut archive = ZipArchive::new(file).map_err(|_| WheelError::NotAnArchive)?;
        check_entries(&mut archive)?;
        let metadata_name = archive
            .file_names()
            .flatten()
            .find(|name| name.split_once('/').is_some_and(|(folder, file)| is_metadata(folder, file)))
            .map(|name| name.into_owned())
            .ok_or(WheelError::NoMetadata)?;
        let metadata = text(&mut archive, &metadata_name)?.ok_or(WheelError::NoMetadata)?;
        let name = header(&metadata, "Name").filter(|name| is_name(name));
        let version = header(&metadata, "Version").filter(|version| is_version(version));
        let name = normal(name.ok_or(WheelError::BadMetadata("Name"))?);
        let version = version.ok_or(WheelError::BadMetadata("Version"))?.to_owned();
        let entry_points = metadata_name.replace("/METADATA", "/entry_points.txt");
        let entry_points = text(&mut archive, &entry_points)?.unwrap_or_default();
        if !entry_points.lines().any(names_plugins) {
            return Err(WheelError::NoEntryPoint(file_name.to_owned()));
        }
        Ok(Self { archive, name, version })
    }

    /// Unpacks it into the folder `into`, which is made. Every byte is counted, because the sizes that an archive states
    /// may be false.
    ///
    /// # Errors
    /// [`WheelError`]; the folder is to be removed then.
    pub fn unpack(mut self, into: &Path) -> Result<(), WheelError> {
        fs::create_dir(into)?;
        let mut left = MAX_UNPACKED;
        for index in 0..self.archive.len() {
            let entry = self.archive.by_index(index).map_err(|_| WheelError::NotAnArchive)?;
            let path = entry.enclosed_name().ok_or(WheelError::Hostile("a path leads out of it"))?;
            let path = into.join(path);
            if entry.is_dir() {
                fs::create_dir_all(&path)?;
                continue;
            }
            if let Some(folder) = path.parent() {
                fs::create_dir_all(folder)?;
            }
            let mut file = File::create_new(&path)?;
            let written = io::copy(&mut entry.take(left + 1), &mut file).map_err(damaged)?;
            left = left.checked_sub(written).ok_or(WheelError::Hostile("it unpacks to too much"))?;
            file.flush()?;
        }
        Ok(())
    }
}

/// The fault of an entry that cannot be copied: the archive, if it is unreadable.
fn damaged(error: io::Error) -> WheelError {
    use io::ErrorKind::{InvalidData, InvalidInput, UnexpectedEof};
    match error.kind() {
        InvalidData | InvalidInput | UnexpectedEof => WheelError::NotAnArchive,
        _ => WheelError::Io(error),
    }
}

/// Refuses an archive of too many entries before memory is spent on them. The end record holds their number in 16 bits;
/// archives with more have all bits set.
fn check_count(file: &mut File) -> Result<(), WheelError> {
    const RECORD: usize = 22;
    const LONGEST_COMMENT: u64 = 0xffff;
    let size = file.seek(io::SeekFrom::End(0))?;
    let tail = size.min(LONGEST_COMMENT + RECORD as u64);
    file.seek(io::SeekFrom::Start(size - tail))?;
    let mut end = Vec::new();
    file.take(tail).read_to_end(&mut end)?;
    let counts = end.windows(RECORD).filter(|record| record.starts_with(b"PK\x05\x06"));
    let most = counts.map(|record| usize::from(u16::from_le_bytes([record[10], record[11]]))).max();
    match most {
        None => Err(WheelError::NotAnArchive),
        Some(count) if count > MAX_ENTRIES => Err(too_many()),
        Some(_) => Ok(()),
    }
}

fn too_many() -> WheelError {
    WheelError::Hostile("it holds more than 5000 files")
}

fn check_entries(archive: &mut ZipArchive<File>) -> Result<(), WheelError> {
    if archive.len() > MAX_ENTRIES {
        return Err(too_many());
    }
    let (mut packed, mut unpacked, mut seen) = (0_u64, 0_u64, HashSet::new());
    for index in 0..archive.len() {
        let entry = archive.by_index_raw(index).map_err(|_| WheelError::NotAnArchive)?;
        let name = entry.name().map_err(|_| WheelError::Hostile("a path is not text"))?;
        if !is_safe(&name) {
            return Err(WheelError::Hostile("a path leads out of it"));
        }
        // Case is folded, because some disks do.
        if !seen.insert(name.trim_end_matches('/').to_lowercase()) {
            return Err(WheelError::Hostile("two of its files have the same path"));
        }
        if !matches!(entry.unix_mode().unwrap_or(0) & KIND, 0 | REGULAR | FOLDER) {
            return Err(WheelError::Hostile("it holds a link or a special file"));
        }
        if entry.encrypted() {
            return Err(WheelError::Hostile("it is encrypted"));
        }
        packed = packed.saturating_add(entry.compressed_size());
        unpacked = unpacked.saturating_add(entry.size());
    }
    let is_bomb = unpacked > SMALL && unpacked / packed.max(1) > MAX_RATIO;
    if unpacked > MAX_UNPACKED || is_bomb {
        return Err(WheelError::Hostile("it unpacks to too much"));
    }
    Ok(())
}

fn is_safe(name: &str) -> bool {
    let plain =
        name.len() <= MAX_PATH && !name.contains(['\\', '\0', ':']) && !name.chars().any(char::is_control);
    let mut parts = Path::new(name).components();
    plain && !name.is_empty() && parts.all(|part| matches!(part, Component::Normal(_)))
}

fn is_metadata(folder: &str, file: &str) -> bool {
    folder.ends_with(".dist-info") && file == "METADATA"
}

fn text(archive: &mut ZipArchive<File>, name: &str) -> Result<Option<String>, WheelError> {
    let Some(index) = archive.index_for_name(name) else { return Ok(None) };
    let entry = archive.by_index(index).map_err(|_| WheelError::NotAnArchive)?;
    let mut bytes = Vec::new();
    entry.take(MAX_METADATA).read_to_end(&mut bytes).map_err(|_| WheelError::NotAnArchive)?;
    Ok(Some(String::from_utf8_lossy(&bytes).into_owned()))
}

/// The value of a header, which stand before the first empty line.
fn header<'t>(metadata: &'t str, name: &str) -> Option<&'t str> {
    let mut headers =
        metadata.lines().take_while(|line| !line.is_empty()).filter_map(|line| line.split_once(':'));
    headers.find(|(found, _)| found.eq_ignore_ascii_case(name)).map(|(_, value)| value.trim())
}

fn is_name(name: &str) -> bool {
    let edge = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_alphanumeric);
    let bytes = name.as_bytes();
    bytes.len() <= MAX_NAME
        && edge(bytes.first())
        && edge(bytes.last())
        && bytes.iter().all(|byte| byte.is_ascii_alphanumeric() || b"._-".contains(byte))
}

fn is_version(version: &str) -> bool {
    let known = |byte: u8| byte.is_ascii_alphanumeric() || b".!+-_".contains(&byte);
    (1..=MAX_NAME).contains(&version.len()) && version.bytes().all(known)
}

/// The form of a name in which equal names are equal: lower case, one hyphen for every run of separators.
fn normal(name: &str) -> String {
    let parts = name.split(['.', '_', '-']).filter(|part| !part.is_empty());
    parts.map(str::to_ascii_lowercase).collect::<Vec<_>>().join("-")
}

fn names_plugins(line: &str) -> bool {
    let section = line.trim().strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
    section.is_some_and(|section| GROUPS.contains(&section.trim()))
}

#[cfg(test)]
mod tests {
    use zip::{ZipWriter, write::SimpleFileOptions};

    use super::*;

    const METADATA: &str =
        "Metadata-Version: 2.1\nName: My_Plugin.weather\nVersion: 1.2.0\n\nName: no header\n";
    const ENTRY_POINTS: &str = "[console_scripts]\nx = y:z\n\n[ webmacs.plugins ]\nweather = w:Weather\n";

    fn archive(add: impl FnOnce(&mut ZipWriter<File>)) -> File {
        let mut zip = ZipWriter::new(tempfile::tempfile().unwrap());
        for (name, text) in [
            ("w/__init__.py", "pass"),
            ("w-1.2.0.dist-info/METADATA", METADATA),
            ("w-1.2.0.dist-info/entry_points.txt", ENTRY_POINTS),
        ] {
            zip.start_file(name, SimpleFileOptions::default()).unwrap();
            zip.write_all(text.as_bytes()).unwrap();
        }
        add(&mut zip);
        zip.finish().unwrap()
    }

    fn with_file(name: &str, bytes: &[u8]) -> Result<Wheel, WheelError> {
        let file = archive(|zip| {
            zip.start_file(name, SimpleFileOptions::default()).unwrap();
            zip.write_all(bytes).unwrap();
        });
        Wheel::open(file, "w.whl")
    }

    #[test]
    fn a_wheel_is_read_and_unpacked() {
        let wheel = with_file("w/data/é.txt", b"hello").unwrap();
        assert_eq!((wheel.name.as_str(), wheel.version.as_str()), ("my-plugin-weather", "1.2.0"));
        let folder = tempfile::tempdir().unwrap();
        wheel.unpack(&folder.path().join("w")).unwrap();
        assert_eq!(fs::read(folder.path().join("w/w/data/é.txt")).unwrap(), b"hello");
    }

    #[test]
    fn paths_that_lead_out_are_refused() {
        for name in ["../x", "w/../../x", "/etc/x", "c:x", "w\\..\\x", "./../x", "w/\u{1}"] {
            assert!(matches!(with_file(name, b"x"), Err(WheelError::Hostile(_))), "{name}");
        }
        // The same file twice, as some disks see it.
        assert!(matches!(with_file("W/__INIT__.py", b"x"), Err(WheelError::Hostile(_))));
    }

    #[test]
    fn links_bombs_and_crowds_are_refused() {
        let link =
            archive(|zip| zip.add_symlink("w/link", "/etc/passwd", SimpleFileOptions::default()).unwrap());
        assert!(matches!(Wheel::open(link, "w.whl"), Err(WheelError::Hostile(_))));
        let bomb = with_file("w/zeros", &vec![0; 4 << 20]);
        assert!(matches!(bomb, Err(WheelError::Hostile("it unpacks to too much"))));
        let crowd = archive(|zip| {
            for number in 0..10_000 {
                zip.start_file(format!("w/{number}"), SimpleFileOptions::default()).unwrap();
            }
        });
        assert!(matches!(Wheel::open(crowd, "w.whl"), Err(WheelError::Hostile(_))));
    }

    #[test]
    fn what_is_no_wheel_with_plugins_is_said_to_be_none() {
        let open = |bytes: &[u8]| {
            let mut file = tempfile::tempfile().unwrap();
            file.write_all(bytes).unwrap();
            Wheel::open(file, "w.whl").unwrap_err()
        };
        assert!(matches!(open(b""), WheelError::NotAnArchive));
        assert!(matches!(open(&[b'x'; 100_000]), WheelError::NotAnArchive));
        let mut lie = b"PK\x05\x06".to_vec();
        lie.extend([0; 18]);
        assert!(matches!(open(&lie), WheelError::NoMetadata | WheelError::NotAnArchive));
        assert_eq!((normal("A__b.-C"), is_name("-a"), is_name("a b")), ("a-b-c".to_owned(), false, false));
        assert!(names_plugins("[signalbox.plugins]") && !names_plugins("# [signalbox.plugins]"));
    }
}
