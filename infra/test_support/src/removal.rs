//! Databases whose tests have ended are dropped where they take memory: hundreds would fill it.

use std::{
    collections::HashMap,
    sync::{OnceLock, mpsc},
    thread,
    time::{Duration, Instant},
};

use sqlx::{Connection, PgConnection};
use tokio::runtime;

const PERIOD: Duration = Duration::from_millis(500);
/// A test that cuts its connections makes others within this time.
const UNUSED: Duration = Duration::from_secs(10);
const USED: &str = "SELECT DISTINCT datname::text FROM pg_stat_activity WHERE datname = ANY($1)";

static REMOVER: OnceLock<mpsc::Sender<String>> = OnceLock::new();

/// Has database `name` of `server` dropped when it has been used and is not any more.
pub(crate) fn when_unused(server: &str, name: &str) {
    let remover = REMOVER.get_or_init(|| {
        let (sender, names) = mpsc::channel();
        let server = server.to_owned();
        thread::spawn(move || remove_all(&server, &names));
        sender
    });
    // It has ended where a test has ended the server.
    let _ = remover.send(name.to_owned());
}

/// In a thread of its own: the runtimes of tests end with them.
fn remove_all(server: &str, names: &mpsc::Receiver<String>) {
    let runtime = runtime::Builder::new_current_thread().enable_all().build().expect("start a runtime");
    let mut databases = Databases::default();
    runtime.block_on(async {
        let mut connection = PgConnection::connect(server).await.expect("reach PostgreSQL");
        loop {
            thread::sleep(PERIOD);
            databases.known.extend(names.try_iter());
            if databases.remove(&mut connection).await.is_err() {
                return;
            }
        }
    });
}

#[derive(Default)]
struct Databases {
    known: Vec<String>,
    /// When somebody was last connected.
    used: HashMap<String, Instant>,
}

impl Databases {
    async fn remove(&mut self, connection: &mut PgConnection) -> Result<(), sqlx::Error> {
        let used: Vec<String> =
            sqlx::query_scalar(USED).bind(&self.known).fetch_all(&mut *connection).await?;
        self.used.extend(used.into_iter().map(|name| (name, Instant::now())));
        let unused: Vec<_> =
            self.used.extract_if(|_, at| at.elapsed() > UNUSED).map(|(name, _)| name).collect();
        for name in unused {
            let dropped = sqlx::query(&format!("DROP DATABASE {name}")).execute(&mut *connection).await;
            // A test may have connected again: it is tried once more when that has ended.
            if dropped.is_ok() {
                self.known.retain(|known| *known != name);
            }
        }
        Ok(())
    }
}
