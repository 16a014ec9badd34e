use signalbox_boxed::boxed;
use std::{
    fs::{self, File, TryLockError},
    io,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use minisign_verify::PublicKey;
use signalbox_config::Firmware;
use signalbox_domain::kernel::{ReleaseVersion, Sha256Hex};

use crate::{
    HookError, UnpackError, VerifyError,
    hook::{self, Hook},
    unpack::unpack,
    verify::verify,
};

/// Suffix of folders that are not complete.
const PARTIAL: &str = "partial";
const CURRENT: &str = "current";
const LOCK: &str = ".lock";

/// The versions on this machine. Clones share it.
#[derive(Debug, Clone)]
pub struct Updates(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    folder: PathBuf,
    key: Option<PublicKey>,
    hook: Option<Hook>,
}

/// `firmware.public_key` is not a key.
#[derive(Debug, thiserror::Error)]
#[error("firmware.public_key is not a minisign public key: it is the second line of minisign.pub")]
pub struct InvalidKey;

/// The reason why a hook is run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Occasion {
    /// An update has been applied.
    Apply,
    /// One has been undone.
    Rollback,
}

/// The right to change the versions on this machine. One process has it at a time, until it is dropped or killed.
#[derive(Debug)]
pub struct Locked {
    updates: Updates,
    lock: File,
}

impl Updates {
    /// Versions in `folder`, after the settings in `config`.
    ///
    /// # Errors
    /// [`InvalidKey`].
    pub fn new(folder: PathBuf, config: &Firmware) -> Result<Self, InvalidKey> {
        let key = config.public_key.trim();
        let key =
            (!key.is_empty()).then(|| PublicKey::from_base64(key)).transpose().map_err(|_| InvalidKey)?;
        let limit = Duration::from_secs(config.hook_seconds);
        let hook = (!config.hook.is_empty()).then(|| Hook { program: config.hook.clone().into(), limit });
        // The hook has another working folder.
        let folder = std::path::absolute(&folder).unwrap_or(folder);
        Ok(Self(Arc::new(Inner { folder, key, hook })))
    }

    /// Takes the right to change the versions; none while another process has it.
    ///
    /// # Errors
    /// When the disk refuses.
    pub fn lock(&self) -> io::Result<Option<Locked>> {
        fs::create_dir_all(&self.0.folder)?;
        let file = File::options().write(true).create(true).truncate(false).open(self.0.folder.join(LOCK))?;
        match file.try_lock() {
            Ok(()) => Ok(Some(Locked { updates: self.clone(), lock: file })),
            Err(TryLockError::WouldBlock) => Ok(None),
            Err(TryLockError::Error(error)) => Err(error),
        }
    }

    /// Checks that `bundle` has this digest, and the signature that is asked for by the settings.
    ///
    /// # Errors
    /// [`VerifyError`]: it must not be unpacked.
    pub fn verify(
        &self,
        bundle: &mut File,
        expected: &Sha256Hex,
        signature: Option<&str>,
    ) -> Result<(), VerifyError> {
        verify(bundle, expected, self.0.key.as_ref(), signature)
    }
}

impl Drop for Locked {
    /// To close the file would not be enough: a child that another thread has just forked holds a copy of it until it
    /// runs its own program, and the lock with it.
    fn drop(&mut self) {
        // The kernel releases it when the last copy is closed.
        let _ = self.lock.unlock();
    }
}

impl Locked {
    /// The version that `current` leads to; none if there is no link.
    ///
    /// # Errors
    /// When the disk refuses.
    pub fn current(&self) -> io::Result<Option<ReleaseVersion>> {
        match fs::read_link(self.path(CURRENT)) {
            Ok(target) => Ok(target.to_str().and_then(|target| target.parse().ok())),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Whether `version` is unpacked here.
    pub fn has(&self, version: ReleaseVersion) -> bool {
        self.of(version).is_dir()
    }

    /// Unpacks `bundle` into the folder of `version`, all of it or nothing. Call it for no version that is in force.
    ///
    /// # Errors
    /// [`UnpackError`]; the folder is as before.
    pub fn unpack(&self, version: ReleaseVersion, bundle: File) -> Result<(), UnpackError> {
        let partial = self.path(&format!("{version}.{PARTIAL}"));
        remove(&partial)?;
        if let Err(error) = unpack(bundle, &partial) {
            remove(&partial)?;
            return Err(error);
        }
        // Left by an earlier attempt.
        self.remove(version)?;
        fs::rename(&partial, self.of(version))?;
        Ok(self.sync()?)
    }

    /// Lets `current` lead to `version`, or to nothing, in one step.
    ///
    /// # Errors
    /// When the disk refuses; the link leads where it led.
    pub fn switch(&self, version: Option<ReleaseVersion>) -> io::Result<()> {
        let link = self.path(CURRENT);
        match version {
            None => remove(&link)?,
            Some(version) => {
                let new = self.path(&format!("{CURRENT}.{PARTIAL}"));
                remove(&new)?;
                symlink(version.to_string(), &new)?;
                fs::rename(new, link)?;
            }
        }
        self.sync()
    }

    /// Removes the folder of `version`, if there is one.
    ///
    /// # Errors
    /// When the disk refuses. A folder that is removed only in part has another name by then.
    pub fn remove(&self, version: ReleaseVersion) -> io::Result<()> {
        let (folder, gone) = (self.of(version), self.path(&format!("{version}.old.{PARTIAL}")));
        if !folder.exists() {
            return Ok(());
        }
        remove(&gone)?;
        fs::rename(folder, &gone)?;
        remove(&gone)
    }

    /// Removes what processes that were killed have left half done.
    ///
    /// # Errors
    /// When the disk refuses.
    pub fn sweep(&self) -> io::Result<()> {
        for entry in fs::read_dir(&self.updates.0.folder)? {
            let path = entry?.path();
            if path.extension().is_some_and(|extension| extension == PARTIAL) {
                remove(&path)?;
            }
        }
        Ok(())
    }

    /// Runs the hook, if there is one: `version` is in force now, and `previous` was before.
    ///
    /// # Errors
    /// [`HookError`].
    #[boxed]
    pub async fn run_hook(
        &self,
        occasion: Occasion,
        version: Option<ReleaseVersion>,
        previous: Option<ReleaseVersion>,
    ) -> Result<(), HookError> {
        match &self.updates.0.hook {
            Some(hook) => hook::run(hook, &self.updates.0.folder, occasion, version, previous).await,
            None => Ok(()),
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.updates.0.folder.join(name)
    }

    fn of(&self, version: ReleaseVersion) -> PathBuf {
        self.path(&version.to_string())
    }

    fn sync(&self) -> io::Result<()> {
        File::open(&self.updates.0.folder)?.sync_all()
    }
}

/// Removes a file, a link or a folder, if it is there.
fn remove(path: &Path) -> io::Result<()> {
    let removed = match fs::symlink_metadata(path) {
        Ok(found) if found.is_dir() => fs::remove_dir_all(path),
        Ok(_) => fs::remove_file(path),
        Err(error) => Err(error),
    };
    match removed {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        removed => removed,
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Seek, Write};

    use flate2::{Compression, write::GzEncoder};

    use super::*;

    fn config() -> Firmware {
        Firmware {
            public_key: String::new(),
            max_file_bytes: 1,
            download_seconds: 1,
            hook: String::new(),
            hook_seconds: 1,
        }
    }

    fn bundle(text: &str) -> File {
        let mut tar =
            tar::Builder::new(GzEncoder::new(tempfile::tempfile().unwrap(), Compression::default()));
        let mut header = tar::Header::new_gnu();
        header.set_size(text.len() as u64);
        header.set_mode(0o644);
        tar.append_data(&mut header, "text", text.as_bytes()).unwrap();
        let mut file = tar.into_inner().unwrap().finish().unwrap();
        file.rewind().unwrap();
        file
    }

    fn version(text: &str) -> ReleaseVersion {
        text.parse().unwrap()
    }

    #[test]
    fn versions_are_unpacked_switched_and_removed() {
        let folder = tempfile::tempdir().unwrap();
        let updates = Updates::new(folder.path().join("updates"), &config()).unwrap();
        let locked = updates.lock().unwrap().unwrap();
        assert!(updates.lock().unwrap().is_none(), "one at a time");
        let text = || fs::read_to_string(folder.path().join("updates/current/text")).ok();
        let (one, two) = (version("1.0.0"), version("2.0.0"));
        locked.unpack(one, bundle("one")).unwrap();
        assert_eq!((locked.current().unwrap(), text()), (None, None));
        locked.switch(Some(one)).unwrap();
        assert_eq!((locked.current().unwrap(), text().as_deref()), (Some(one), Some("one")));
        locked.unpack(two, bundle("old")).unwrap();
        locked.unpack(two, bundle("two")).unwrap();
        locked.switch(Some(two)).unwrap();
        locked.switch(Some(two)).unwrap();
        assert_eq!(text().as_deref(), Some("two"));
        locked.switch(Some(one)).unwrap();
        locked.remove(two).unwrap();
        locked.remove(two).unwrap();
        assert!(!locked.has(two) && locked.has(one));
        locked.switch(None).unwrap();
        locked.switch(None).unwrap();
        assert_eq!(locked.current().unwrap(), None);
        drop(locked);
        assert!(updates.lock().unwrap().is_some());
    }

    #[test]
    fn what_fails_or_was_killed_leaves_nothing_behind() {
        let folder = tempfile::tempdir().unwrap();
        let updates = Updates::new(folder.path().to_owned(), &config()).unwrap();
        let locked = updates.lock().unwrap().unwrap();
        locked.unpack(version("1.0.0"), bundle("one")).unwrap();
        locked.switch(Some(version("1.0.0"))).unwrap();
        let mut broken = tempfile::tempfile().unwrap();
        broken.write_all(b"no archive").unwrap();
        broken.rewind().unwrap();
        locked.unpack(version("2.0.0"), broken).unwrap_err();
        fs::create_dir_all(folder.path().join("3.0.0.partial/deep")).unwrap();
        symlink("3.0.0", folder.path().join("current.partial")).unwrap();
        locked.sweep().unwrap();
        let mut names: Vec<_> =
            fs::read_dir(folder.path()).unwrap().map(|it| it.unwrap().file_name()).collect();
        names.sort();
        assert_eq!(names, [".lock", "1.0.0", "current"]);
    }

    #[test]
    fn a_key_that_is_none_is_refused() {
        let broken = Firmware { public_key: "RWQf6L".to_owned(), ..config() };
        assert!(Updates::new("x".into(), &broken).is_err());
    }
}
