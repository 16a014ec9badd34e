use super::*;
use crate::scratch::Scratch;
use std::os::unix::fs::symlink;

struct Fixture {
    scratch: Scratch,
    roots: Roots,
}

/// `in/` is the root, `out/` lies beside it.
fn fixture() -> Fixture {
    let scratch = Scratch::new();
    fs::create_dir_all(scratch.path("in/sub")).unwrap();
    fs::create_dir(scratch.path("out")).unwrap();
    fs::write(scratch.path("in/sub/file"), "inside").unwrap();
    fs::write(scratch.path("out/secret"), "outside").unwrap();
    let roots = Roots::open(&[scratch.path("in")]).unwrap();
    Fixture { scratch, roots }
}

impl Fixture {
    fn path(&self, relative: &str) -> String {
        self.scratch.path(relative).to_str().unwrap().to_owned()
    }

    fn link(&self, target: &str, link: &str) {
        symlink(self.scratch.path(target), self.scratch.path(link)).unwrap();
    }
}

#[test]
fn relative_and_absolute_paths_inside_are_found() {
    let fixture = fixture();
    let expected = fs::canonicalize(fixture.scratch.path("in/sub/file")).unwrap();
    for path in ["sub/file", "./sub//file", "sub/../sub/file", &fixture.path("in/sub/file")] {
        assert_eq!(fixture.roots.source(path).unwrap(), expected, "{path}");
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
    for path in ["file-link", "folder-link/secret", "folder-link/nothing"] {
        assert!(matches!(fixture.roots.source(path), Err(ConfineError::Outside(_))), "{path}");
    }
}

#[test]
fn links_inside_are_read_and_a_root_may_be_a_link() {
    let fixture = fixture();
    fixture.link("in/sub/file", "in/good-link");
    fixture.link("in", "root-link");
    let roots = Roots::open(&[fixture.scratch.path("root-link")]).unwrap();
    let expected = fs::canonicalize(fixture.scratch.path("in/sub/file")).unwrap();
    assert_eq!(roots.source("good-link").unwrap(), expected);
    assert_eq!(roots.source(&fixture.path("root-link/sub/file")).unwrap(), expected);
}

#[test]
fn nothing_is_written_through_links() {
    let fixture = fixture();
    fixture.link("out", "in/folder-link");
    fixture.link("out/secret", "in/file-link");
    fixture.link("out/new", "in/dangling");
    fixture.link("in/sub/file", "in/inside-link");
    for path in ["folder-link/x", "folder-link/", "file-link"] {
        assert!(matches!(fixture.roots.destination(path), Err(ConfineError::Outside(_))), "{path}");
    }
    for path in ["dangling", "dangling/x", "inside-link"] {
        assert!(matches!(fixture.roots.destination(path), Err(ConfineError::Link(_))), "{path}");
    }
    let base = fs::canonicalize(fixture.scratch.path("in")).unwrap();
    for name in ["folder-link/x", "file-link", "dangling", "inside-link"] {
        assert!(fixture.roots.entry(&base, name).is_err(), "{name}");
    }
}

#[test]
fn a_link_to_a_directory_inside_may_be_a_destination() {
    let fixture = fixture();
    fixture.link("in/sub", "in/inside-folder");
    let place = fixture.roots.destination("inside-folder/new").unwrap();
    assert_eq!(place.path(), fs::canonicalize(fixture.scratch.path("in/sub")).unwrap().join("new"));
}

#[test]
fn bad_entry_names_are_refused() {
    let fixture = fixture();
    let base = fs::canonicalize(fixture.scratch.path("in")).unwrap();
    for name in ["../x", "a/../x", "..", ".", "a/./x", "/etc/x", "a//x", "", "/", "a/\0", "a//"] {
        assert!(matches!(fixture.roots.entry(&base, name), Err(ConfineError::Outside(_))), "{name:?}");
    }
    for name in ["x", "a/b c/\u{fc}.txt", "empty/", "..."] {
        assert!(fixture.roots.entry(&base, name).is_ok(), "{name}");
    }
    assert!(check_file_name("a/b").is_err());
    assert!(check_file_name("..").is_err());
}

#[test]
fn a_file_in_the_place_of_a_directory_is_told() {
    let fixture = fixture();
    assert!(matches!(fixture.roots.source("sub/file/x"), Err(ConfineError::NotDirectory(_))));
    assert!(matches!(fixture.roots.destination("sub/file/x"), Err(ConfineError::NotDirectory(_))));
}

#[test]
fn a_file_that_became_a_link_after_it_was_resolved_is_not_opened() {
    let fixture = fixture();
    let path = fixture.roots.source("sub/file").unwrap();
    fs::remove_file(&path).unwrap();
    fixture.link("out/secret", "in/sub/file");
    assert!(fixture.roots.open_source(&path, "sub/file").is_err());
}

#[test]
fn a_directory_that_became_a_link_after_it_was_resolved_is_not_used() {
    let fixture = fixture();
    let path = fixture.roots.source("sub/file").unwrap();
    let place = fixture.roots.destination("sub/new/x").unwrap();
    fs::remove_dir_all(fixture.scratch.path("in/sub")).unwrap();
    fixture.link("out", "in/sub");
    fs::write(fixture.scratch.path("out/file"), "outside").unwrap();
    assert!(fixture.roots.open_source(&path, "sub/file").is_err());
    assert!(matches!(fixture.roots.make_directories(&place, "x"), Err(ConfineError::Outside(_))));
}

#[test]
fn directories_are_made_inside() {
    let fixture = fixture();
    let place = fixture.roots.destination("a/b/c").unwrap();
    assert!(fixture.roots.make_directories(&place, "c").unwrap().is_dir());
    assert!(fixture.scratch.path("in/a/b/c").is_dir());
}

/// Once the other file's directory was taken for a link.
#[test]
fn a_directory_that_another_file_of_the_tree_makes_meanwhile_is_used() {
    let fixture = fixture();
    let barrier = std::sync::Barrier::new(2);
    let mut places = Vec::new();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for round in 0..2000 {
                barrier.wait();
                fs::create_dir(fixture.scratch.path(format!("in/{round}"))).unwrap();
            }
        });
        for round in 0..2000 {
            barrier.wait();
            places.push(fixture.roots.destination(&format!("{round}/x")));
        }
    });
    for (round, place) in places.into_iter().enumerate() {
        assert!(place.unwrap().path().ends_with(format!("in/{round}/x")));
    }
}

#[test]
fn a_root_must_be_an_existing_directory() {
    let fixture = fixture();
    for root in ["nothing", "out/secret"] {
        assert!(matches!(Roots::open(&[fixture.scratch.path(root)]), Err(ConfineError::Root(..))), "{root}");
    }
}
