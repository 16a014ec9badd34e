use super::{place::Lookup, *};
use crate::scratch::Scratch;
use rustix::fs::{CWD, RenameFlags, renameat_with};
use std::{
    fs,
    io::Read,
    os::unix::fs::symlink,
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::{Duration, Instant},
};

struct Fixture {
    scratch: Scratch,
    roots: Roots,
}

const BOTH: [Lookup; 2] = [Lookup::Openat2, Lookup::PartByPart];

fn fixture() -> Fixture {
    fixture_with(Lookup::detect())
}

/// `in/` is the root, `out/` lies beside it.
fn fixture_with(lookup: Lookup) -> Fixture {
    let scratch = Scratch::new();
    fs::create_dir_all(scratch.path("in/sub")).unwrap();
    fs::create_dir(scratch.path("out")).unwrap();
    fs::write(scratch.path("in/sub/file"), "inside").unwrap();
    fs::write(scratch.path("out/secret"), "outside").unwrap();
    let roots = Roots::open_with(&[scratch.path("in")], lookup).unwrap();
    Fixture { scratch, roots }
}

impl Fixture {
    fn path(&self, relative: &str) -> String {
        self.scratch.path(relative).to_str().unwrap().to_owned()
    }

    fn link(&self, target: &str, link: &str) {
        symlink(self.scratch.path(target), self.scratch.path(link)).unwrap();
    }

    fn canonical(&self, relative: &str) -> PathBuf {
        fs::canonicalize(self.scratch.path(relative)).unwrap()
    }

    fn base(&self) -> Place {
        self.roots.source(".").unwrap()
    }
}

fn text(place: &Place) -> Result<String, ConfineError> {
    let (mut file, _) = place.open_file("shown")?;
    let mut text = String::new();
    file.read_to_string(&mut text).unwrap();
    Ok(text)
}

#[test]
fn relative_and_absolute_paths_inside_are_found() {
    for lookup in BOTH {
        let fixture = fixture_with(lookup);
        let own_name = fixture.canonical("in").file_name().unwrap().to_str().unwrap().to_owned();
        let out_and_in = format!("../{own_name}/sub/file");
        for path in ["sub/file", "./sub//file", "sub/../sub/file", &fixture.path("in/sub/file"), &out_and_in]
        {
            let place = fixture.roots.source(path).unwrap();
            assert_eq!(place.path(), fixture.canonical("in/sub/file"), "{path}");
            assert_eq!(text(&place).unwrap(), "inside");
        }
    }
}

#[test]
fn paths_that_leave_the_root_are_refused_whether_they_exist_or_not() {
    let fixture = fixture();
    let inside_name_outside = fixture.path("in") + "side/x";
    for path in
        ["../out/secret", "../out/nothing", "sub/../../out/secret", "/etc/passwd", "/etc/nothing", "..", "/"]
            .into_iter()
            .chain([fixture.path("out/secret").as_str(), inside_name_outside.as_str()])
    {
        assert!(matches!(fixture.roots.source(path), Err(ConfineError::Outside(_))), "source {path}");
        assert!(
            matches!(fixture.roots.destination(path), Err(ConfineError::Outside(_))),
            "destination {path}"
        );
    }
}

#[test]
fn a_missing_directory_has_no_parent_to_climb_to() {
    let fixture = fixture();
    for path in ["new/../../out/x", "new/../x"] {
        assert!(matches!(fixture.roots.destination(path), Err(ConfineError::Outside(_))), "{path}");
    }
}

#[test]
fn empty_paths_and_nul_are_refused() {
    let fixture = fixture();
    for path in ["", "sub/\0file", "\0"] {
        assert!(matches!(fixture.roots.source(path), Err(ConfineError::Invalid(_))), "{path:?}");
        assert!(matches!(fixture.roots.destination(path), Err(ConfineError::Invalid(_))), "{path:?}");
    }
}

#[test]
fn links_that_lead_out_are_not_read() {
    let fixture = fixture();
    fixture.link("out/secret", "in/file-link");
    fixture.link("out", "in/folder-link");
    symlink("../out/secret", fixture.scratch.path("in/relative-link")).unwrap();
    for path in ["file-link", "folder-link/secret", "folder-link/nothing", "relative-link"] {
        assert!(matches!(fixture.roots.source(path), Err(ConfineError::Outside(_))), "{path}");
    }
}

#[test]
fn links_inside_are_read_and_a_root_may_be_a_link() {
    for lookup in BOTH {
        let fixture = fixture_with(lookup);
        fixture.link("in/sub/file", "in/absolute-link");
        fixture.link("in", "root-link");
        symlink("../sub/../absolute-link", fixture.scratch.path("in/sub/relative-link")).unwrap();
        let roots = Roots::open_with(&[fixture.scratch.path("root-link")], lookup).unwrap();
        for path in ["absolute-link", "sub/relative-link", &fixture.path("root-link/sub/file")] {
            assert_eq!(roots.source(path).unwrap().path(), fixture.canonical("in/sub/file"), "{path}");
        }
    }
}

#[test]
fn a_link_from_one_root_into_another_is_followed() {
    let fixture = fixture();
    fixture.link("out/secret", "in/link");
    let roots = Roots::open(&[fixture.scratch.path("in"), fixture.scratch.path("out")]).unwrap();
    assert_eq!(text(&roots.source("link").unwrap()).unwrap(), "outside");
}

#[test]
fn a_circle_of_links_ends() {
    let fixture = fixture();
    fixture.link("in/b", "in/a");
    fixture.link("in/a", "in/b");
    assert!(matches!(fixture.roots.source("a"), Err(ConfineError::Io(..))));
}

#[test]
fn a_source_behind_a_dangling_link_does_not_exist() {
    let fixture = fixture();
    fixture.link("in/new", "in/dangling");
    for path in ["dangling", "dangling/x"] {
        let error = fixture.roots.source(path).unwrap_err();
        assert!(matches!(error, ConfineError::Dangling(_)), "{path}: {error}");
    }
}

#[test]
fn nothing_is_written_through_links() {
    let fixture = fixture();
    fixture.link("out", "in/folder-link");
    fixture.link("out/secret", "in/file-link");
    fixture.link("out/new", "in/dangling-outside");
    fixture.link("in/new", "in/dangling");
    fixture.link("in/sub/file", "in/inside-link");
    for path in ["folder-link/x", "folder-link/", "file-link", "dangling-outside"] {
        assert!(matches!(fixture.roots.destination(path), Err(ConfineError::Outside(_))), "{path}");
    }
    for path in ["dangling", "dangling/x", "inside-link"] {
        assert!(matches!(fixture.roots.destination(path), Err(ConfineError::Link(_))), "{path}");
    }
    for name in ["folder-link/x", "file-link", "dangling", "inside-link"] {
        assert!(fixture.roots.entry(&fixture.base(), name).is_err(), "{name}");
    }
}

#[test]
fn a_link_to_a_directory_inside_may_be_a_destination() {
    let fixture = fixture();
    fixture.link("in/sub", "in/inside-folder");
    let (folder, name) = fixture.roots.destination("inside-folder/new").unwrap().split().unwrap();
    assert_eq!(folder.make_folders("new").unwrap().place().path(), fixture.canonical("in/sub"));
    assert_eq!(name, "new");
}

#[test]
fn bad_entry_names_are_refused() {
    let fixture = fixture();
    for name in ["../x", "a/../x", "..", ".", "a/./x", "/etc/x", "a//x", "", "/", "a/\0", "a//"] {
        let entry = fixture.roots.entry(&fixture.base(), name);
        assert!(matches!(entry, Err(ConfineError::Outside(_))), "{name:?}");
    }
    for name in ["x", "a/b c/\u{fc}.txt", "empty/", "..."] {
        assert!(fixture.roots.entry(&fixture.base(), name).is_ok(), "{name}");
    }
    assert!(check_file_name("a/b").is_err());
    assert!(check_file_name("..").is_err());
}

#[test]
fn a_file_in_the_place_of_a_directory_is_reported() {
    let fixture = fixture();
    assert!(matches!(fixture.roots.source("sub/file/x"), Err(ConfineError::NotDirectory(_))));
    assert!(matches!(fixture.roots.destination("sub/file/x"), Err(ConfineError::NotDirectory(_))));
}

#[test]
fn a_pipe_is_refused_without_waiting_for_its_writer() {
    let fixture = fixture();
    let pipe = fixture.scratch.path("in/pipe");
    rustix::fs::mknodat(CWD, &pipe, FileType::Fifo, rustix::fs::Mode::RWXU, 0).unwrap();
    let place = fixture.roots.source("pipe").unwrap();
    assert!(matches!(place.open_file("pipe"), Err(ConfineError::Special(_))));
}

#[test]
fn what_became_a_link_after_it_was_resolved_is_not_used() {
    for lookup in BOTH {
        let fixture = fixture_with(lookup);
        let file = fixture.roots.source("sub/file").unwrap();
        let destination = fixture.roots.destination("sub/new/x").unwrap();
        fs::remove_dir_all(fixture.scratch.path("in/sub")).unwrap();
        fixture.link("out", "in/sub");
        fs::write(fixture.scratch.path("out/file"), "outside").unwrap();
        assert!(text(&file).is_err());
        assert!(destination.make_folders("x").is_err());
        assert!(file.remove().is_err() && fixture.scratch.path("out/file").exists());
        fs::remove_file(fixture.scratch.path("in/sub")).unwrap();
        fs::create_dir(fixture.scratch.path("in/sub")).unwrap();
        fixture.link("out/secret", "in/sub/file");
        assert!(text(&file).is_err());
    }
}

#[test]
fn a_root_that_became_a_link_is_not_used_and_one_made_anew_is() {
    for lookup in BOTH {
        let fixture = fixture_with(lookup);
        fs::rename(fixture.scratch.path("in"), fixture.scratch.path("away")).unwrap();
        fixture.link("out", "in");
        assert!(fixture.roots.source("secret").is_err());
        fs::remove_file(fixture.scratch.path("in")).unwrap();
        fs::create_dir(fixture.scratch.path("in")).unwrap();
        fs::write(fixture.scratch.path("in/new"), "new").unwrap();
        assert_eq!(text(&fixture.roots.source("new").unwrap()).unwrap(), "new");
    }
}

#[test]
fn directories_are_made_inside() {
    for lookup in BOTH {
        let fixture = fixture_with(lookup);
        fixture.roots.destination("a/b/c").unwrap().make_folders("c").unwrap();
        assert!(fixture.scratch.path("in/a/b/c").is_dir());
    }
}

/// Once the other file's directory was taken for a link.
#[test]
fn a_directory_that_another_file_of_the_tree_makes_meanwhile_is_used() {
    let fixture = fixture();
    let barrier = std::sync::Barrier::new(2);
    let mut folders = Vec::new();
    thread::scope(|scope| {
        scope.spawn(|| {
            for round in 0..2000 {
                barrier.wait();
                // Whichever of the two is slower finds it there.
                let _ = fs::create_dir(fixture.scratch.path(format!("in/{round}")));
            }
        });
        for round in 0..2000 {
            let destination = fixture.roots.destination(&format!("{round}/x")).unwrap();
            barrier.wait();
            folders.push(destination.split().unwrap().0.make_folders("x"));
        }
    });
    for (round, folder) in folders.into_iter().enumerate() {
        assert!(folder.unwrap().place().path().ends_with(format!("in/{round}")));
    }
}

#[test]
fn a_root_must_be_an_existing_directory() {
    let fixture = fixture();
    for root in ["nothing", "out/secret"] {
        assert!(matches!(Roots::open(&[fixture.scratch.path(root)]), Err(ConfineError::Root(..))), "{root}");
    }
}

/// Files were read and written outside the root in this race when paths were checked first and then used.
#[test]
fn a_folder_that_is_swapped_for_a_link_all_the_time_leaks_nothing() {
    for lookup in BOTH {
        let fixture = fixture_with(lookup);
        fs::write(fixture.scratch.path("in/sub/secret"), "inside").unwrap();
        fixture.link("out", "in/link");
        let stop = AtomicBool::new(false);
        let (mut read, mut written) = (0, 0);
        thread::scope(|scope| {
            scope.spawn(|| {
                let (folder, link) = (fixture.scratch.path("in/sub"), fixture.scratch.path("in/link"));
                while !stop.load(Ordering::Relaxed) {
                    renameat_with(CWD, &folder, CWD, &link, RenameFlags::EXCHANGE).unwrap();
                }
            });
            let end = Instant::now() + Duration::from_secs(60);
            for round in 0.. {
                if let Ok(place) = fixture.roots.source("sub/secret")
                    && let Ok(text) = text(&place)
                {
                    assert_eq!(text, "inside");
                    read += 1;
                }
                written += u32::from(write(&fixture, &format!("sub/{round}/f")).is_ok());
                if (read >= 500 && written >= 500) || Instant::now() > end {
                    break;
                }
            }
            stop.store(true, Ordering::Relaxed);
        });
        assert!(read > 0 && written > 0, "{read} read, {written} written");
        let outside: Vec<_> = fs::read_dir(fixture.scratch.path("out")).unwrap().collect();
        assert_eq!(outside.len(), 1, "{lookup:?}");
    }
}

fn write(fixture: &Fixture, path: &str) -> Result<(), ConfineError> {
    let fault = |error| ConfineError::from_system(path, error);
    let (folder, name) = fixture.roots.destination(path)?.split().unwrap();
    let folder = folder.make_folders(path)?;
    folder.open_temporary(".part").map_err(fault)?;
    folder.check_final(&name)?;
    folder.rename(".part", &name).map_err(fault)
}
