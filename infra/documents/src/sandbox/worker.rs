//! A child as its parent sees it.

use std::{
    io,
    pin::pin,
    process::{ExitStatus, Stdio},
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use futures::future::try_join_all;
use signalbox_confinement::{ProcessorClock, run_in_idle_time, worked_from_now};
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWriteExt},
    process::{Child, ChildStdin, ChildStdout, Command},
    time::{Instant, timeout, timeout_at},
};

use super::{
    FromChild, Full, Hello, Place, Share, ToChild, frames,
    job::{Job, Output, PoolOptions, Purpose, Recognition},
};
use crate::{
    failure::Failure,
    ocr::{AT_ONCE, Picture, Recognised},
    options::Options,
    reader::{Abilities, MAX_PDF_BYTES},
    services::GoogleVision,
};

/// How long a child may take to be ready.
const START: Duration = Duration::from_secs(20);
/// How long a child that closed its pipe may take to end.
const END: Duration = Duration::from_secs(2);

/// Most documents are read in this time on a processor. One that takes longer, such as a large picture that is prepared for
/// recognition, gives way to everything that takes milliseconds. One that only waits for a processor does not: it would wait on.
const QUICK: Duration = Duration::from_millis(250);

/// How often a stopped clock is looked at.
const CHECK: Duration = Duration::from_secs(1);

/// Bytes of a picture: more than any service takes. No PDF is made larger.
const MAX_BYTES: u64 = MAX_PDF_BYTES as u64;

/// A running child.
pub(super) struct Worker {
    child: Child,
    to: ChildStdin,
    from: ChildStdout,
    pub(super) abilities: Abilities,
}

/// How reading ended.
pub(super) enum Ended {
    /// The child said so, and ends.
    Said(Result<Output, Failure>),
    /// The child is gone.
    Crashed(Failure),
}

impl Worker {
    /// Starts a child and waits until it is ready.
    pub(super) async fn start(options: &PoolOptions) -> io::Result<Self> {
        let mut command = Command::new(&options.program);
        command.args(&options.arguments).env_clear().stdin(Stdio::piped()).stdout(Stdio::piped());
        command.stderr(Stdio::null()).kill_on_drop(true);
        // Tesseract's own threads are ten times slower than one; read by its library before main.
        command.env("OMP_THREAD_LIMIT", "1").env("LC_ALL", "C.UTF-8");
        let mut child = command.spawn()?;
        let missing = || io::Error::other("a pipe to the parser is missing");
        let mut to = child.stdin.take().ok_or_else(missing)?;
        let mut from = child.stdout.take().ok_or_else(missing)?;
        let hello = Hello { places: options.places.clone(), limits: options.limits };
        let ready = async {
            frames::send(&mut to, &hello).await?;
            frames::receive(&mut from).await
        };
        match timeout(START, ready).await?? {
            FromChild::Ready(abilities) => Ok(Self { child, to, from, abilities }),
            _ => Err(io::ErrorKind::InvalidData.into()),
        }
    }

    /// Has a document read; `wall` is the time that it may take.
    pub(super) async fn read<R: AsyncRead + Unpin>(
        &mut self,
        job: Job<'_, R>,
        admission: Admission<'_>,
        wall: Duration,
    ) -> Ended {
        let (clock, id) = (WallClock::start(wall), self.child.id());
        let advice = job.purpose.advice(job.options);
        let talk = async {
            let mut talk = pin!(self.talk(job, admission, &clock));
            let clock = id.and_then(|id| ProcessorClock::of_process(id.cast_signed()).ok());
            let worked = worked_from_now(clock);
            let mut left = QUICK;
            while !left.is_zero() {
                if let Ok(ended) = timeout(left, &mut talk).await {
                    return ended;
                }
                left = QUICK.saturating_sub(worked());
            }
            give_way(id);
            talk.await
        };
        match clock.limit(talk).await {
            Some(Ok(ended)) => Ended::Said(ended),
            Some(Err(Broken::Input)) => {
                self.kill().await;
                Ended::Crashed(Failure::unreadable())
            }
            Some(Err(Broken::Pipe)) => Ended::Crashed(self.reason(advice).await),
            None => {
                self.kill().await;
                Ended::Crashed(Failure::timeout(wall.as_secs(), advice))
            }
        }
    }

    async fn talk<R: AsyncRead + Unpin>(
        &mut self,
        mut job: Job<'_, R>,
        mut admission: Admission<'_>,
        clock: &WallClock,
    ) -> Result<Result<Output, Failure>, Broken> {
        let read = ToChild::Read {
            name: job.name.to_owned(),
            mime_type: job.mime_type.map(str::to_owned),
            options: job.options.clone(),
            remote_languages: job.recognise.map_or_else(Vec::new, |_| GoogleVision::languages()),
            as_pdf: job.purpose == Purpose::Searchable,
            bytes: job.length,
        };
        let asked = match job.purpose {
            Purpose::Text | Purpose::Searchable => read,
            Purpose::Picture { page, width } => {
                ToChild::Draw { name: job.name.to_owned(), page, width, bytes: job.length }
            }
        };
        frames::send(&mut self.to, &asked).await?;
        self.pass_on(&mut job).await?;
        let mut pictures = Vec::new();
        loop {
            match frames::receive(&mut self.from).await? {
                FromChild::Progress { done, all } => (job.progress)(done, all),
                FromChild::Picture { page, width, height, dpi } if pictures.len() < AT_ONCE => {
                    pictures.push(self.picture(page, width, height, dpi).await?);
                }
                FromChild::Recognise => {
                    let words = recognise(job.recognise, std::mem::take(&mut pictures), job.options).await;
                    frames::send(&mut self.to, &ToChild::Words(words)).await?;
                }
                FromChild::Admit => {
                    let admitted = clock.stopped(admission.recognise()).await;
                    frames::send(&mut self.to, &ToChild::Admitted(admitted)).await?;
                }
                FromChild::Done(parsed) => return Ok(Ok(Output::Text(parsed))),
                FromChild::Searchable { mut made, bytes } => {
                    made.pdf = self.bytes(bytes).await?;
                    return Ok(Ok(Output::Searchable(made)));
                }
                FromChild::Drawn { bytes: None } => return Ok(Ok(Output::Picture(None))),
                FromChild::Drawn { bytes: Some(bytes) } => {
                    return Ok(Ok(Output::Picture(Some(self.bytes(bytes).await?))));
                }
                FromChild::Failed(failure) => return Ok(Err(failure)),
                FromChild::Ready(_) | FromChild::Picture { .. } => return Err(Broken::Pipe),
            }
        }
    }

    async fn pass_on<R: AsyncRead + Unpin>(&mut self, job: &mut Job<'_, R>) -> Result<(), Broken> {
        let mut left = job.length;
        let mut piece = vec![0; 256 * 1024];
        while left > 0 {
            let most = usize::try_from(left).unwrap_or(usize::MAX).min(piece.len());
            let read = job.bytes.read(&mut piece[..most]).await.map_err(|_| Broken::Input)?;
            if read == 0 {
                return Err(Broken::Input);
            }
            self.to.write_all(&piece[..read]).await?;
            left -= read as u64;
        }
        Ok(self.to.flush().await?)
    }

    async fn picture(&mut self, page: usize, width: u32, height: u32, dpi: u32) -> Result<Picture, Broken> {
        let pixels = self.bytes(u64::from(width) * u64::from(height)).await?;
        Ok(Picture { page, width, height, dpi, pixels })
    }

    /// The next `count` bytes.
    async fn bytes(&mut self, count: u64) -> Result<Vec<u8>, Broken> {
        if count > MAX_BYTES {
            return Err(Broken::Pipe);
        }
        let mut bytes = Vec::new();
        (&mut self.from).take(count).read_to_end(&mut bytes).await?;
        if bytes.len() as u64 == count { Ok(bytes) } else { Err(Broken::Pipe) }
    }

    /// Why a child that closed its pipe has ended.
    async fn reason(&mut self, advice: &str) -> Failure {
        let status = timeout(END, self.child.wait()).await;
        self.kill().await;
        match status {
            Ok(Ok(status)) => reason_of(status, advice),
            _ => Failure::Crash,
        }
    }

    /// One that reads nothing and lives until it is killed.
    #[cfg(test)]
    pub(super) fn idle_for_test() -> Self {
        let mut command = Command::new("cat");
        let mut child =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).kill_on_drop(true).spawn().unwrap();
        let (to, from) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        let protection = signalbox_confinement::Protection::FULL;
        let abilities =
            Abilities { pdfium: Ok(()), languages: Vec::new(), mime_types: Vec::new(), protection };
        Self { child, to, from, abilities }
    }

    pub(super) fn is_running(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    pub(super) async fn kill(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill().await;
    }
}

/// Has a child's main thread run in idle time, for good: each child reads one document.
fn give_way(id: Option<u32>) {
    if let Some(id) = id
        && let Err(error) = run_in_idle_time(Some(id.cast_signed()))
    {
        tracing::debug!(%error, "the priority of a parser was not lowered");
    }
}

/// The places that a document holds while it is read.
pub(super) struct Admission<'a> {
    pub(super) share: &'a Share,
    /// Held from the beginning; given up when the document recognises, or waits to.
    pub(super) place: Option<Place>,
    pub(super) recognition: &'a Recognition,
    /// Longest wait for it.
    pub(super) timeout: Duration,
}

impl Admission<'_> {
    /// Waits for a place of recognition, so that pages that take minutes hold up no document that takes milliseconds.
    async fn recognise(&mut self) -> Result<(), Failure> {
        let busy = || Failure::unavailable("too many pictures are being recognised: try again in a moment");
        let Recognition { places, waiting } = self.recognition;
        if let Some(place) = places.try_take(self.share) {
            self.place = Some(place);
            return Ok(());
        }
        let turn = async {
            let waits = waiting.take(self.share).await?;
            self.place = None;
            let place = places.take(self.share).await?;
            drop(waits);
            Ok::<_, Full>(place)
        };
        let place = timeout(self.timeout, turn).await.map_err(|_| busy())?.map_err(|_| busy())?;
        self.place = Some(place);
        Ok(())
    }
}

/// The time that a document may take, without that in which it waits for its turn.
struct WallClock {
    state: Mutex<Wall>,
}

/// When a document's time is over.
#[derive(Clone, Copy)]
enum Wall {
    Running { deadline: Instant },
    Stopped { left: Duration },
}

impl WallClock {
    fn start(wall: Duration) -> Self {
        Self { state: Mutex::new(Wall::Running { deadline: Instant::now() + wall }) }
    }

    fn state(&self) -> MutexGuard<'_, Wall> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs `waiting`, which is bounded by itself, off this clock.
    async fn stopped<T>(&self, waiting: impl Future<Output = T>) -> T {
        let left = match *self.state() {
            Wall::Running { deadline } => deadline.saturating_duration_since(Instant::now()),
            Wall::Stopped { left } => left,
        };
        *self.state() = Wall::Stopped { left };
        let result = waiting.await;
        *self.state() = Wall::Running { deadline: Instant::now() + left };
        result
    }

    /// The result of `work`; `None` when its time is over.
    async fn limit<T>(&self, work: impl Future<Output = T>) -> Option<T> {
        let mut work = pin!(work);
        loop {
            let until = match *self.state() {
                Wall::Running { deadline } => deadline,
                Wall::Stopped { .. } => Instant::now() + CHECK,
            };
            if let Ok(result) = timeout_at(until, &mut work).await {
                return Some(result);
            }
            if let Wall::Running { deadline } = *self.state()
                && deadline <= Instant::now()
            {
                return None;
            }
        }
    }
}

/// Has all `pictures` recognised at the same time.
async fn recognise(
    service: Option<&GoogleVision>,
    pictures: Vec<Picture>,
    options: &Options,
) -> Result<Vec<Recognised>, Failure> {
    let missing = || Failure::unavailable("no recognising service is configured");
    let service = service.ok_or_else(missing)?;
    let asked = pictures.into_iter().map(|picture| service.recognise(picture, &options.language));
    try_join_all(asked).await
}

/// Failures of the conversation with a child.
enum Broken {
    /// The document.
    Input,
    /// The child.
    Pipe,
}

impl From<io::Error> for Broken {
    fn from(_: io::Error) -> Self {
        Self::Pipe
    }
}

fn reason_of(status: ExitStatus, advice: &str) -> Failure {
    use std::os::unix::process::ExitStatusExt;
    match status.signal() {
        Some(libc::SIGXCPU) => {
            Failure::too_much(format!("the document needs more computing time than is allowed: {advice}"))
        }
        Some(libc::SIGABRT | libc::SIGTRAP | libc::SIGILL) => Failure::too_much(
            "the document needs more memory than is allowed, or made its parser fail: it may be damaged",
        ),
        _ => Failure::Crash,
    }
}
