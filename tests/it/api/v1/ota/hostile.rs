//! Bundles that are made to do harm: they fail, and nothing of them is in force or left behind.

use super::{apply, calls, current, exists, hook, in_force, until_status, versions};
use crate::harness::{Bundle, Folder, World};

#[tokio::test]
async fn bundles_that_do_harm_fail_and_leave_nothing() {
    let folder = Folder::new();
    let hook = hook(&folder, "true");
    let world = World::with(|config| config.firmware.hook = hook).await;
    in_force(&world, "1.0.0").await;
    let (before, storage) = (versions(&world), world.config.storage.folder.clone());
    let bundle = || Bundle::bare().with("version.txt", b"hostile");
    let absolute = storage.join("escaped").display().to_string();
    for (number, (what, bytes)) in [
        ("a path that leads out", bundle().with("../escaped", b"x").bytes()),
        ("a path that leads out later", bundle().with("a/../../../escaped", b"x").bytes()),
        ("an absolute path", bundle().with(absolute.get(..99).unwrap_or(&absolute), b"x").bytes()),
        ("a link that leads out", bundle().with_link("a", "../1.0.0").with("a/version.txt", b"x").bytes()),
        ("a file name that no disk takes", bundle().with_long_path(&"x".repeat(300)).bytes()),
        ("a path that no disk takes", bundle().with_long_path(&format!("{}x", "x/".repeat(300))).bytes()),
        ("a ratio of 1,000 to 1", bundle().with("zeros", &vec![0; 16 << 20]).bytes()),
        ("no archive", b"nonsense".to_vec()),
        ("half an archive", Bundle::of(&"half ".repeat(1000))[..60].to_vec()),
    ]
    .into_iter()
    .enumerate()
    {
        let name = format!("firmware-2.0.{number}.tar.gz");
        let made = Bundle::upload(&world.admin, &name, &bytes, &[]).await.expect(201);
        let id = made["public_id"].as_str().unwrap();
        apply(&world.admin, id).await.expect(202);
        let failed = until_status(&world.admin, id, "failed").await;
        assert!(failed["error_message"].as_str().unwrap().starts_with("the bundle is"), "{what}: {failed}");
        assert_eq!((versions(&world), current(&world).as_deref()), (before.clone(), Some("1.0.0")), "{what}");
        assert!(!exists(&storage.join("escaped")) && !exists(&storage.join("updates/escaped")), "{what}");
    }
    assert_eq!(calls(&folder), ["apply 1.0.0"]);
    world.finish().await;
}
