//! Finding out what a package offers.

use signalbox_boxed::boxed;
use std::{
    collections::HashSet,
    fs, io,
    path::{Path, PathBuf},
    process::{ExitStatus, Stdio},
    sync::Arc,
    time::Duration,
};

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use signalbox_domain::kernel::Sha256Hex;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    process::{Child, Command},
    sync::{OnceCell, Semaphore},
    time::timeout,
};

use crate::{Wheel, WheelError, sdk};

/// How long a description may take.
const WALL: Duration = Duration::from_secs(20);
/// How long one may wait for those before it.
const QUEUE_TIMEOUT: Duration = Duration::from_secs(30);
/// Age after which an unused environment is deleted; a younger one may belong to an upload in progress.
const SWEPT_AFTER: Duration = Duration::from_secs(3600);
/// Longest description, in bytes.
const MAX_ANSWER: u64 = 4 << 20;
/// Oldest Python that the SDK runs on.
const LEAST_PYTHON: [u32; 2] = [3, 11];

/// Why a package could not be described.
#[derive(Debug, thiserror::Error)]
pub enum DescribeError {
    /// Its code fails, or does what it must not.
    #[error("{0}")]
    Plugin(String),
    /// It needs other packages, which are not there: their names and versions.
    #[error("it needs packages that are not installed here: {}", .0.join(", "))]
    Missing(Vec<String>),
    /// This machine has no Python for it.
    #[error("{0}")]
    NoPython(String),
    /// This machine cannot confine its code.
    #[error(
        "packages are not examined here, because {0}, and their code could do anything: use a kernel that has it, or set \
         sandbox.allow_unconfined = true"
    )]
    Unconfined(String),
    /// Others are being described.
    #[error("too many packages are being looked at: try again in a moment")]
    Busy,
    /// The wheel cannot be unpacked.
    #[error(transparent)]
    Wheel(#[from] WheelError),
    /// The machine failed.
    #[error("the process that looks at packages failed: {0}")]
    Io(#[from] io::Error),
}

/// The request to the child.
#[derive(Debug, Clone, Serialize)]
#[serde(untagged)]
pub enum Question {
    /// All its classes.
    Classes {},
    /// The channels that one of them has with this configuration.
    Channels {
        /// Id of the class.
        plugin_id: String,
        /// The configuration.
        config: Map<String, Value>,
    },
}

/// Looks at packages. Clones share one queue.
#[derive(Debug, Clone)]
pub struct Plugins(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    folder: PathBuf,
    program: PathBuf,
    python: String,
    allow_unconfined: bool,
    interpreter: OnceCell<Interpreter>,
    /// One at a time: each may take all of a processor and much memory.
    place: Semaphore,
}

#[derive(Debug)]
struct Interpreter {
    path: PathBuf,
    /// Where its libraries lie.
    folders: Vec<PathBuf>,
}

/// Python's description of itself.
#[derive(Debug, Deserialize)]
struct About {
    version: [u32; 2],
    executable: PathBuf,
    folders: Vec<PathBuf>,
}

#[derive(Debug, Serialize)]
struct Asked<'a> {
    /// `None` for the classes that come with the SDK.
    folder: Option<&'a Path>,
    #[serde(flatten)]
    question: &'a Question,
}

impl Plugins {
    /// Looks at packages below `folder`, with the interpreter `python` that `program describe-plugins` becomes; on a kernel
    /// that cannot confine it only if `allow_unconfined`.
    pub fn new(folder: PathBuf, program: PathBuf, python: String, allow_unconfined: bool) -> Self {
        let (interpreter, place) = (OnceCell::new(), Semaphore::new(1));
        // The process that looks at packages has another working folder.
        let folder = std::path::absolute(&folder).unwrap_or(folder);
        Self(Arc::new(Inner { folder, program, python, allow_unconfined, interpreter, place }))
    }

    /// Whether the package with this digest is unpacked here.
    pub fn is_unpacked(&self, sha256: &Sha256Hex) -> bool {
        self.environment(sha256).is_dir()
    }

    /// Unpacks `wheel` into an environment of its own, named after its digest, all of it or nothing.
    ///
    /// # Errors
    /// [`WheelError`].
    pub fn unpack(&self, wheel: Wheel, sha256: &Sha256Hex) -> Result<(), WheelError> {
        let environments = self.environments();
        fs::create_dir_all(&environments)?;
        let whole = tempfile::tempdir_in(&environments)?;
        let (unpacked, environment) = (whole.path().join("wheel"), self.environment(sha256));
        wheel.unpack(&unpacked)?;
        match fs::rename(unpacked, &environment) {
            // Somebody else has unpacked the same bytes.
            Err(_) if environment.is_dir() => Ok(()),
            renamed => Ok(renamed?),
        }
    }

    /// Removes the environment of a package, if there is one.
    ///
    /// # Errors
    /// When the disk refuses.
    pub fn remove(&self, sha256: &Sha256Hex) -> io::Result<()> {
        match fs::remove_dir_all(self.environment(sha256)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            removed => removed,
        }
    }

    /// Removes the environments of packages that are not among `digests`, and what was left of unpacking.
    ///
    /// # Errors
    /// When the disk refuses.
    pub fn keep_only(&self, digests: &HashSet<String>) -> io::Result<()> {
        let environments = match fs::read_dir(self.environments()) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            environments => environments?,
        };
        for environment in environments {
            let environment = environment?;
            let is_known = environment.file_name().to_str().is_some_and(|name| digests.contains(name));
            let age = environment.metadata()?.modified()?.elapsed().unwrap_or_default();
            if !is_known && age > SWEPT_AFTER {
                fs::remove_dir_all(environment.path())?;
            }
        }
        Ok(())
    }

    /// Describes the package that was unpacked with this digest; `None`: the built-in classes.
    ///
    /// # Errors
    /// [`DescribeError`].
    #[boxed]
    pub async fn describe(
        &self,
        sha256: Option<&Sha256Hex>,
        question: &Question,
    ) -> Result<Value, DescribeError> {
        let place = timeout(QUEUE_TIMEOUT, self.0.place.acquire()).await;
        let _place = place.map_err(|_| DescribeError::Busy)?.map_err(|_| DescribeError::Busy)?;
        let interpreter = self.0.interpreter.get_or_try_init(|| self.find_interpreter()).await?;
        // Each time: the confined process must first run the code that was compiled in.
        let sdk = sdk::write(&self.0.folder)?.canonicalize()?;
        let environment = sha256.map(|sha256| self.environment(sha256));
        let folder = environment.as_deref();
        let asked = serde_json::to_vec(&Asked { folder, question }).map_err(io::Error::other)?;
        let mut child = self.start(interpreter, &sdk, folder.unwrap_or(&sdk))?;
        match timeout(WALL, ask(&mut child, &asked)).await {
            Ok(answer) => read(&answer?),
            Err(_) => {
                child.kill().await?;
                Err(plugin(format!("its code took longer than {} s", WALL.as_secs())))
            }
        }
    }

    fn start(&self, interpreter: &Interpreter, sdk: &Path, environment: &Path) -> io::Result<Child> {
        let mut command = Command::new(&self.0.program);
        command.arg("describe-plugins");
        if self.0.allow_unconfined {
            command.arg("--allow-unconfined");
        }
        command.arg(&interpreter.path).arg(sdk).arg(sdk);
        command.arg(environment).args(&interpreter.folders);
        command.env_clear().env("LC_ALL", "C.UTF-8").current_dir("/");
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).kill_on_drop(true);
        command.spawn()
    }

    async fn find_interpreter(&self) -> Result<Interpreter, DescribeError> {
        const ABOUT: &str = "import json, sys; print(json.dumps({'version': sys.version_info[:2], \
            'executable': sys.executable, 'folders': [sys.prefix, sys.base_prefix, *sys.path[1:]]}))";
        let python = &self.0.python;
        let missing = || {
            let [major, minor] = LEAST_PYTHON;
            DescribeError::NoPython(format!(
                "this machine has no Python {major}.{minor} or newer called {python}: install it, or set plugins.python"
            ))
        };
        let output = Command::new(python).args(["-I", "-c", ABOUT]).output().await.map_err(|_| missing())?;
        let about: About = serde_json::from_slice(&output.stdout).map_err(|_| missing())?;
        if about.version < LEAST_PYTHON {
            return Err(missing());
        }
        fs::create_dir_all(&self.0.folder)?;
        let folders = about.folders.into_iter().filter(|folder| folder.is_absolute() && folder.exists());
        Ok(Interpreter { path: about.executable, folders: folders.collect() })
    }

    fn environments(&self) -> PathBuf {
        self.0.folder.join("environments")
    }

    fn environment(&self, sha256: &Sha256Hex) -> PathBuf {
        self.environments().join(sha256.as_str())
    }
}

fn plugin(why: impl Into<String>) -> DescribeError {
    DescribeError::Plugin(why.into())
}

/// The child's answer, and its exit status.
struct Answer {
    status: ExitStatus,
    bytes: Vec<u8>,
}

async fn ask(child: &mut Child, asked: &[u8]) -> io::Result<Answer> {
    let missing = || io::Error::other("a pipe is missing");
    let mut to = child.stdin.take().ok_or_else(missing)?;
    let from = child.stdout.take().ok_or_else(missing)?;
    // A child that stops without reading reports the reason by its status.
    let _ = to.write_all(asked).await;
    drop(to);
    let mut bytes = Vec::new();
    from.take(MAX_ANSWER + 1).read_to_end(&mut bytes).await?;
    Ok(Answer { status: child.wait().await?, bytes })
}

fn read(answer: &Answer) -> Result<Value, DescribeError> {
    use std::os::unix::process::ExitStatusExt;
    if matches!(answer.status.signal(), Some(libc::SIGXCPU | libc::SIGKILL)) {
        return Err(plugin("its code used more computing time than is allowed"));
    }
    if answer.bytes.len() as u64 > MAX_ANSWER {
        return Err(plugin("it describes itself at too great a length"));
    }
    let value: Value = serde_json::from_slice(&answer.bytes)
        .map_err(|_| plugin("its code ended the process that looked at it"))?;
    if let Some(missing) = value.get("unconfined").and_then(Value::as_str) {
        return Err(DescribeError::Unconfined(missing.to_owned()));
    }
    if let Some(missing) = value.get("missing") {
        let missing = serde_json::from_value(missing.clone());
        return Err(missing
            .map_or_else(|_| plugin("it names what it needs in no readable way"), DescribeError::Missing));
    }
    match value.get("error").and_then(Value::as_str) {
        Some(error) => Err(plugin(error)),
        None => Ok(value),
    }
}
