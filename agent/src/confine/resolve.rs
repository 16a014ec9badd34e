//! Finds the plain path beneath a root that a request's path names.
//!
//! Links are read and followed here, one at a time, and not by the kernel: an absolute link that stays inside a root is
//! allowed, one that leaves the roots is not. The result may be out of date at once, which `place` notices.

use super::{
    ConfineError, Folder, Place, check_entry_name, kind,
    place::{LOOKUP_FOLDER, Lookup, Root},
};
use rustix::{
    fs::{AtFlags, FileType, Mode, OFlags, openat, readlinkat, statat},
    io::Errno,
};
use std::{
    collections::VecDeque,
    ffi::{OsStr, OsString},
    fs, io,
    os::{fd::OwnedFd, unix::ffi::OsStringExt},
    path::{Component, Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
};

/// Links on the way of one path, as many as the kernel follows.
const MAX_LINKS: usize = 40;

/// The directories that transfers may use. Clones share them.
#[derive(Debug, Clone)]
pub struct Roots {
    /// The root as it was opened last. It is opened again for each path, in case its directory was made again.
    opened: Arc<[Mutex<Arc<Root>>]>,
    lookup: Lookup,
}

/// A place to write to, and the folders that do not exist yet.
#[derive(Debug, Clone)]
pub struct Destination {
    existing: Place,
    is_directory: bool,
    missing: Vec<OsString>,
}

impl Destination {
    /// Whether it is a folder that exists.
    pub fn is_directory(&self) -> bool {
        self.is_directory
    }

    /// The existing file or folder.
    pub fn existing(&self) -> Option<&Place> {
        self.missing.is_empty().then_some(&self.existing)
    }

    /// The folder and the last part of the path, if that is a name.
    pub fn split(mut self) -> Option<(Self, String)> {
        let name = match self.missing.pop() {
            Some(name) => name,
            None => {
                let (folder, name) = self.existing.split()?;
                self.existing = folder;
                name
            }
        };
        Some((Self { is_directory: true, ..self }, name.into_string().ok()?))
    }

    /// Makes the folders that are missing and opens the last one.
    pub fn make_folders(&self, shown: &str) -> Result<Folder, ConfineError> {
        let fault = |error| ConfineError::from_system(shown, error);
        let mut folder = self.existing.open_folder().map_err(fault)?;
        for name in &self.missing {
            folder = folder.make_folder(name).map_err(fault)?;
        }
        Ok(folder)
    }
}

impl Roots {
    /// Opens the configured directories; all of them must exist.
    pub fn open(configured: &[PathBuf]) -> Result<Self, ConfineError> {
        Self::open_with(configured, Lookup::detect())
    }

    pub(super) fn open_with(configured: &[PathBuf], lookup: Lookup) -> Result<Self, ConfineError> {
        let open = |root: &PathBuf| {
            let opened = fs::canonicalize(root).and_then(|path| Root::open(&path, lookup));
            let opened = opened.map_err(|error| ConfineError::Root(root.clone(), error))?;
            Ok(Mutex::new(Arc::new(opened)))
        };
        Ok(Self { opened: configured.iter().map(open).collect::<Result<_, ConfineError>>()?, lookup })
    }

    /// The existing file or folder that a transfer reads.
    pub fn source(&self, path: &str) -> Result<Place, ConfineError> {
        let resolved = self.resolve_path(path).map_err(|error| match error {
            // Nothing is written to a source.
            ConfineError::Link(shown) => ConfineError::Dangling(shown),
            other => other,
        })?;
        if resolved.missing.is_empty() {
            Ok(resolved.place)
        } else {
            Err(ConfineError::Missing(path.to_owned()))
        }
    }

    /// The place that a transfer writes to. The last part may be a link to a folder, but not to a file.
    pub fn destination(&self, path: &str) -> Result<Destination, ConfineError> {
        self.resolve_path(path)?.destination(path)
    }

    /// The place of an entry below a folder that was resolved before. Its name must be a clean one.
    pub fn entry(&self, base: &Place, name: &str) -> Result<Destination, ConfineError> {
        check_entry_name(name)?;
        self.resolve(base, Path::new(name), name)?.destination(name)
    }

    /// The file inside the roots that the link `name` of `folder` leads to.
    pub fn linked_file(&self, folder: &Place, name: &OsStr, shown: &str) -> Option<Place> {
        let resolved = self.resolve(folder, Path::new(name), shown).ok()?;
        (resolved.missing.is_empty() && resolved.kind == FileType::RegularFile).then_some(resolved.place)
    }

    fn resolve_path(&self, path: &str) -> Result<Resolved, ConfineError> {
        if path.is_empty() || path.contains('\0') {
            return Err(ConfineError::Invalid(path.replace('\0', "\\0")));
        }
        let first = self.opened.first().ok_or_else(|| ConfineError::Outside(path.to_owned()))?;
        let root = self.current(first).map_err(|error| ConfineError::from_system(path, error))?;
        self.resolve(&Place { root, path: PathBuf::new() }, Path::new(path), path)
    }

    /// Follows `path` from the folder `start`. Nothing is disclosed about what lies outside the roots, not even whether
    /// it exists.
    fn resolve(&self, start: &Place, path: &Path, shown: &str) -> Result<Resolved, ConfineError> {
        let mut walk = Walk {
            roots: self,
            shown,
            position: Position::Outside(start.path()),
            kind: FileType::Directory,
            missing: Vec::new(),
            pending: VecDeque::new(),
            links: 0,
            ends_in_link: false,
        };
        walk.enter(start.clone())?;
        walk.push_front(path, false)?;
        walk.run()
    }

    /// The root beneath which `path` (canonical) lies, and the rest of the path.
    fn root_of(&self, path: &Path) -> io::Result<Option<(Place, PathBuf)>> {
        for root in self.opened.iter() {
            let known = root.lock().unwrap_or_else(PoisonError::into_inner).path.clone();
            if let Ok(rest) = path.strip_prefix(&known) {
                let place = Place { root: self.current(root)?, path: PathBuf::new() };
                return Ok(Some((place, rest.to_owned())));
            }
        }
        Ok(None)
    }

    /// The root as it is on disk now; the descriptor opened before where that is the same directory.
    fn current(&self, root: &Mutex<Arc<Root>>) -> io::Result<Arc<Root>> {
        let mut root = root.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Root::open(&root.path, self.lookup)?;
        if !root.is_same(&now) {
            *root = Arc::new(now);
        }
        Ok(root.clone())
    }
}

/// Where a path ends.
struct Resolved {
    place: Place,
    kind: FileType,
    missing: Vec<OsString>,
    /// Whether the last part of the path is a link.
    ends_in_link: bool,
}

impl Resolved {
    fn destination(self, shown: &str) -> Result<Destination, ConfineError> {
        let is_directory = self.missing.is_empty() && self.kind == FileType::Directory;
        if self.missing.is_empty() && !is_directory && self.ends_in_link {
            return Err(ConfineError::Link(shown.to_owned()));
        }
        Ok(Destination { existing: self.place, is_directory, missing: self.missing })
    }
}

struct Walk<'a> {
    roots: &'a Roots,
    shown: &'a str,
    position: Position,
    kind: FileType,
    missing: Vec<OsString>,
    pending: VecDeque<Step>,
    links: usize,
    ends_in_link: bool,
}

enum Position {
    /// On the way to a root, by a canonical path. The lookup only decides which root is entered.
    Outside(PathBuf),
    /// In a folder of a root, or at a file in it.
    Inside(Place, OwnedFd),
}

/// `None` is the parent folder.
struct Step {
    part: Option<OsString>,
    from_link: bool,
}

impl Walk<'_> {
    fn run(mut self) -> Result<Resolved, ConfineError> {
        while let Some(Step { part, from_link }) = self.pending.pop_front() {
            self.ends_in_link = from_link;
            match (&self.position, part) {
                (Position::Outside(path), part) => {
                    let next = match part {
                        Some(part) => fs::canonicalize(path.join(part)).map_err(|_| self.outside())?,
                        None => path.parent().unwrap_or(path).to_owned(),
                    };
                    self.move_to(next)?;
                }
                // A missing entry has no parent that could be trusted.
                (_, None) if !self.missing.is_empty() => return Err(self.outside()),
                (_, Some(part)) if !self.missing.is_empty() => self.missing.push(part),
                _ if self.kind != FileType::Directory => {
                    return Err(ConfineError::NotDirectory(self.shown.to_owned()));
                }
                (Position::Inside(place, _), None) => {
                    let path = place.path();
                    self.move_to(path.parent().unwrap_or(&path).to_owned())?;
                }
                (Position::Inside(..), Some(part)) => self.descend(part, from_link)?,
            }
        }
        match self.position {
            Position::Outside(_) => Err(self.outside()),
            Position::Inside(place, _) => Ok(Resolved {
                place,
                kind: self.kind,
                missing: self.missing,
                ends_in_link: self.ends_in_link,
            }),
        }
    }

    fn descend(&mut self, part: OsString, from_link: bool) -> Result<(), ConfineError> {
        let Position::Inside(place, folder) = &mut self.position else { return Err(self.outside()) };
        let fault = |error: Errno| ConfineError::from_system(self.shown, error.into());
        let kind = match statat(&*folder, &part, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => kind(&stat),
            // The name of a dangling link is not free: writing would create the link's target.
            Err(Errno::NOENT) if from_link => return Err(ConfineError::Link(self.shown.to_owned())),
            Err(Errno::NOENT) => {
                self.missing.push(part);
                return Ok(());
            }
            Err(error) => return Err(fault(error)),
        };
        match kind {
            FileType::Symlink => {
                let target = readlinkat(&*folder, &part, Vec::new()).map_err(fault)?;
                return self.follow(&PathBuf::from(OsString::from_vec(target.into_bytes())));
            }
            FileType::Directory => {
                let flags = LOOKUP_FOLDER | OFlags::CLOEXEC | OFlags::NOFOLLOW;
                *folder = openat(&*folder, &part, flags, Mode::empty()).map_err(fault)?;
            }
            _ => {}
        }
        place.path.push(&part);
        self.kind = kind;
        Ok(())
    }

    fn follow(&mut self, target: &Path) -> Result<(), ConfineError> {
        self.links += 1;
        if self.links > MAX_LINKS {
            return Err(ConfineError::Io(self.shown.to_owned(), Errno::LOOP.into()));
        }
        self.push_front(target, true)
    }

    /// Prepends `path` to the rest of the path. An absolute one starts at the root of the file system.
    fn push_front(&mut self, path: &Path, from_link: bool) -> Result<(), ConfineError> {
        let mut steps = Vec::new();
        for component in path.components() {
            match component {
                Component::RootDir => self.move_to(PathBuf::from("/"))?,
                Component::CurDir | Component::Prefix(_) => {}
                Component::ParentDir => steps.push(Step { part: None, from_link }),
                Component::Normal(part) => steps.push(Step { part: Some(part.to_owned()), from_link }),
            }
        }
        for step in steps.into_iter().rev() {
            self.pending.push_front(step);
        }
        Ok(())
    }

    /// Moves to `path` (canonical): into the root that contains it, or along on the outside.
    fn move_to(&mut self, path: PathBuf) -> Result<(), ConfineError> {
        let found = self.roots.root_of(&path).map_err(|_| self.outside())?;
        let Some((root, rest)) = found else {
            self.position = Position::Outside(path);
            return Ok(());
        };
        self.enter(root)?;
        // The canonical path was found by following links from outside, unless it is a parent folder.
        let steps = rest.iter().map(|part| Step { part: Some(part.to_owned()), from_link: true });
        steps.rev().for_each(|step| self.pending.push_front(step));
        Ok(())
    }

    fn enter(&mut self, place: Place) -> Result<(), ConfineError> {
        let fault = |error| ConfineError::from_system(self.shown, error);
        let folder = place.open_for_lookup().map_err(fault)?;
        self.position = Position::Inside(place, folder);
        self.kind = FileType::Directory;
        Ok(())
    }

    fn outside(&self) -> ConfineError {
        ConfineError::Outside(self.shown.to_owned())
    }
}
