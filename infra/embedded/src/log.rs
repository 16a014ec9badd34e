//! A server's log file: its output since the start, with a bounded size.

use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

const LIMIT_BYTES: u64 = 16 * 1024 * 1024;
const TAIL_BYTES: u64 = 8 * 1024;
const TAIL_LINES: usize = 12;

/// The file that takes a child's standard output and error.
#[derive(Debug)]
pub(crate) struct Log {
    path: PathBuf,
    begin: u64,
}

impl Log {
    /// Opens `path` for appending; its earlier content is not part of this log's tail.
    pub(crate) fn open(path: PathBuf) -> io::Result<(Self, File)> {
        // A log may quote data, and the folder may be one that others can pass through.
        let file = File::options().create(true).append(true).mode(0o600).open(&path)?;
        let begin = file.metadata()?.len();
        Ok((Self { path, begin }, file))
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// The file's length; it grows when the server writes.
    pub(crate) fn length(&self) -> u64 {
        fs::metadata(&self.path).map_or(0, |metadata| metadata.len())
    }

    /// The last lines since the log was opened.
    pub(crate) fn tail(&self) -> String {
        let text = self.read_end().unwrap_or_default();
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(TAIL_LINES)..].join("\n")
    }

    fn read_end(&self) -> io::Result<String> {
        let mut file = File::open(&self.path)?;
        let length = file.metadata()?.len();
        let begin = if self.begin > length { 0 } else { self.begin };
        file.seek(SeekFrom::Start(begin.max(length.saturating_sub(TAIL_BYTES))))?;
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes)?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    /// Keeps at most two files of about `LIMIT_BYTES`: a full one moves its content to `<name>.1` and starts again.
    ///
    /// The child holds the file open for appending, so the file is copied and emptied rather than renamed; lines
    /// written between the two are lost, which a log can bear.
    pub(crate) fn rotate_when_full(&self) -> io::Result<()> {
        self.rotate_above(LIMIT_BYTES)
    }

    fn rotate_above(&self, limit: u64) -> io::Result<()> {
        if fs::metadata(&self.path)?.len() <= limit {
            return Ok(());
        }
        let mut older = self.path.clone().into_os_string();
        older.push(".1");
        fs::copy(&self.path, older)?;
        File::options().write(true).open(&self.path)?.set_len(0)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn the_tail_holds_only_lines_of_this_start() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        fs::write(&path, "an earlier run\n").unwrap();
        let (log, mut file) = Log::open(path).unwrap();
        writeln!(file, "this run").unwrap();
        assert_eq!(log.tail(), "this run");
    }

    #[test]
    fn a_full_log_is_rotated() {
        let folder = tempfile::tempdir().unwrap();
        let (log, mut file) = Log::open(folder.path().join("log")).unwrap();
        writeln!(file, "first").unwrap();
        log.rotate_above(3).unwrap();
        writeln!(file, "second").unwrap();
        assert_eq!(fs::read_to_string(log.path()).unwrap(), "second\n");
        assert_eq!(fs::read_to_string(folder.path().join("log.1")).unwrap(), "first\n");
        assert_eq!(log.tail(), "second");
    }
}
