//! Work on behalf of a caller that may go away, such as a request whose client hangs up.
//!
//! sqlx leaves a statement running that no task waits for, and its connection is busy until it ends. A share that bounds the
//! caller's work would be free meanwhile, so one client that hangs up again and again would occupy a whole pool. [`on_behalf`]
//! cancels such statements at the server, and keeps the share until the connections are usable again. The hooks of the pools
//! (`pool.rs`) note which connections a caller uses: [`note`] when one is acquired, [`settle`] when it is returned.

use std::{
    collections::HashMap,
    pin::Pin,
    sync::{
        Arc, LazyLock, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll},
    time::Duration,
};

use signalbox_sockets::address_of_content;
use sqlx::{Connection, PgConnection, postgres::PgConnectOptions};
use tokio::{runtime::Handle, sync::watch::Sender, task::futures::TaskLocalFuture, time::timeout};

use crate::{Class, watch, within};

/// A connection without a running statement answers within this.
const GRACE: Duration = Duration::from_millis(50);
/// Time limit of a cancellation; after it, only the statement's own limit applies.
const CANCELLATION: Duration = Duration::from_secs(5);
/// How long a share is kept at most. By then the longest statement of a request has ended, and a connection that was closed instead
/// of returned keeps nothing.
const LONGEST: Duration = Duration::from_secs(20);

tokio::task_local! {
    static CALLER: Arc<Caller>;
}

/// Connections in use on behalf of callers, by the address of their content. The entry of one that was closed instead of
/// returned is replaced when the address is used again.
static USED: LazyLock<Mutex<HashMap<usize, Use>>> = LazyLock::new(Mutex::default);

struct Caller {
    is_gone: AtomicBool,
    /// Connections in use.
    used: Sender<usize>,
}

/// A connection in use, until this is dropped.
pub(crate) struct Use(Arc<Caller>);

impl Use {
    fn new(caller: Arc<Caller>) -> Self {
        caller.used.send_modify(|used| *used += 1);
        Self(caller)
    }
}

impl Drop for Use {
    fn drop(&mut self) {
        self.0.used.send_modify(|used| *used = used.saturating_sub(1));
    }
}

/// Runs `work` for a caller that may go away: when the returned future is dropped before it is ready, statements that `work`
/// began on connections of pools are cancelled. `share` is dropped when `work` has ended and those connections are usable again.
///
/// Only for work that changes nothing: a statement that is cancelled may have been carried out or not.
pub fn on_behalf<F: Future, S: Send + 'static>(share: S, work: F) -> impl Future<Output = F::Output> {
    let caller = Arc::new(Caller { is_gone: AtomicBool::new(false), used: Sender::new(0) });
    let work = Some(Box::pin(CALLER.scope(caller.clone(), work)));
    OnBehalf { caller, work, share: Some(share) }
}

/// Work with a record of its caller.
type Scoped<F> = TaskLocalFuture<Arc<Caller>, F>;

struct OnBehalf<F: Future, S: Send + 'static> {
    caller: Arc<Caller>,
    work: Option<Pin<Box<Scoped<F>>>>,
    share: Option<S>,
}

// The work is pinned in its box.
impl<F: Future, S: Send + 'static> Unpin for OnBehalf<F, S> {}

impl<F: Future, S: Send + 'static> Future for OnBehalf<F, S> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        let Some(work) = self.work.as_mut() else { return Poll::Pending };
        let Poll::Ready(output) = work.as_mut().poll(context) else { return Poll::Pending };
        (self.work, self.share) = (None, None);
        Poll::Ready(output)
    }
}

impl<F: Future, S: Send + 'static> Drop for OnBehalf<F, S> {
    fn drop(&mut self) {
        let Some(work) = self.work.take() else { return };
        // Known before the connections are returned.
        self.caller.is_gone.store(true, Ordering::SeqCst);
        drop(work);
        let (share, mut used) = (self.share.take(), self.caller.used.subscribe());
        let Ok(runtime) = Handle::try_current() else { return };
        runtime.spawn(async move {
            // The share is dropped either way.
            let _ = timeout(LONGEST, used.wait_for(|used| *used == 0)).await;
            drop(share);
        });
    }
}

/// The present caller uses a connection as long as this is kept; `None` outside of [`on_behalf`].
pub(crate) fn present() -> Option<Use> {
    CALLER.try_with(|caller| Use::new(caller.clone())).ok()
}

/// Continues the work of the caller of `using` in another task.
pub(crate) async fn continued<T>(using: Option<Use>, work: impl Future<Output = T>) -> T {
    match &using {
        Some(Use(caller)) => CALLER.scope(caller.clone(), work).await,
        None => work.await,
    }
}

/// The present caller uses `connection` from now on.
pub(crate) fn note(connection: &PgConnection) {
    let (using, address) = (present(), address_of_content(connection));
    let replaced = match using {
        Some(using) => all().insert(address, using),
        None => all().remove(&address),
    };
    // That of a connection that was closed instead of returned.
    drop(replaced);
}

/// `connection` is being returned to its pool. If its caller has gone away, a statement may still run on it: this cancels the
/// statement and waits for its end.
///
/// # Errors
/// The connection is of no use any more.
pub(crate) async fn settle(connection: &mut PgConnection) -> Result<(), sqlx::Error> {
    let Some(using) = all().remove(&address_of_content(connection)) else { return Ok(()) };
    if !using.0.is_gone.load(Ordering::SeqCst) {
        return Ok(());
    }
    match answer(connection).await {
        // That of the statement; the connection is ready after the next answer.
        Err(sqlx::Error::Database(_)) => within(CANCELLATION, connection.ping()).await,
        answered => answered,
    }
}

/// Waits until `connection` answers, and cancels the statement that runs on it.
async fn answer(connection: &mut PgConnection) -> Result<(), sqlx::Error> {
    let session = watch::session(connection);
    let mut ping = connection.ping();
    if let Ok(answered) = timeout(GRACE, &mut ping).await {
        return answered;
    }
    if let Some((session, server)) = session
        && let Err(error) = within(CANCELLATION, cancel(session, &server)).await
    {
        tracing::debug!(%error, "a statement of a caller that has gone away was not cancelled");
    }
    within(Class::Interactive.deadline(), ping).await
}

/// Over a connection of its own, because those of the pool may all be busy.
async fn cancel(session: i32, server: &PgConnectOptions) -> Result<(), sqlx::Error> {
    let mut connection = PgConnection::connect_with(server).await?;
    sqlx::query("SELECT pg_cancel_backend($1)").bind(session).execute(&mut connection).await?;
    connection.close().await
}

fn all() -> MutexGuard<'static, HashMap<usize, Use>> {
    USED.lock().unwrap_or_else(PoisonError::into_inner)
}
