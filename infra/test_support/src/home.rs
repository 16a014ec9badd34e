//! The folder of this process's servers: in memory where there is room, since each test makes hundreds of files for seconds,
//! and `TMPDIR` is not set. It is removed when the process is gone, also after SIGKILL: statics are
//! never dropped, so a small shell waits for the end of its input and cleans up.

use std::{
    env,
    fs::Permissions,
    os::unix::{fs::PermissionsExt, process::CommandExt},
    path::{Path, PathBuf},
    process::{ChildStdin, Command, Stdio},
    sync::{
        LazyLock,
        atomic::{AtomicU32, Ordering},
    },
};

use rustix::fs::statvfs;

static HOME: LazyLock<Home> = LazyLock::new(Home::make);

/// PostgreSQL is given the time to see that its parent is gone and to stop.
const CLEAN_UP: &str = r#"
read -r _
tries=0
while [ -e "$0/postgres/cluster/postmaster.pid" ] && [ $tries -lt 100 ]; do tries=$((tries + 1)); sleep 0.1; done
tries=0
while ! rm -rf "$0" && [ $tries -lt 50 ]; do tries=$((tries + 1)); sleep 0.1; done
"#;

/// A file system in memory, and how much has to be free there.
const MEMORY: &str = "/dev/shm";
const ROOM: u64 = 4 << 30;

struct Home {
    path: PathBuf,
    is_in_memory: bool,
    _alive: ChildStdin,
}

impl Home {
    fn make() -> Self {
        let is_in_memory = env::var_os("TMPDIR").is_none() && has_room();
        let place = if is_in_memory { MEMORY.into() } else { env::temp_dir() };
        // The user that PostgreSQL runs as when this one is root has to pass through.
        let folder = tempfile::Builder::new()
            .prefix("signalbox-test-")
            .permissions(Permissions::from_mode(0o711))
            .tempdir_in(place)
            .expect("make a folder for the test servers");
        let alive = start_cleaner(folder.path());
        Self { path: folder.keep(), is_in_memory, _alive: alive }
    }
}

fn has_room() -> bool {
    statvfs(MEMORY).is_ok_and(|disk| disk.f_bavail.saturating_mul(disk.f_frsize) >= ROOM)
}

#[expect(clippy::zombie_processes, reason = "it outlives this process")]
fn start_cleaner(folder: &Path) -> ChildStdin {
    let mut cleaner = Command::new("sh")
        .args(["-c", CLEAN_UP])
        .arg(folder)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .current_dir("/")
        .process_group(0)
        .spawn()
        .expect("start the shell that cleans up");
    cleaner.stdin.take().expect("its input is a pipe")
}

/// The folder of the shared servers; PostgreSQL lives in `postgres` there.
pub(crate) fn of_servers() -> PathBuf {
    HOME.path.clone()
}

/// Whether the files of servers take memory.
pub(crate) fn is_in_memory() -> bool {
    HOME.is_in_memory
}

/// A name that no other test of this process has.
pub(crate) fn unique(prefix: &str) -> String {
    static COUNT: AtomicU32 = AtomicU32::new(1);
    format!("{prefix}_{}", COUNT.fetch_add(1, Ordering::Relaxed))
}

/// A folder that no other test of this process has; not made yet.
pub(crate) fn folder(prefix: &str) -> PathBuf {
    HOME.path.join(unique(prefix))
}
