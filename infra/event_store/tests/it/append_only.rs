use signalbox_domain::identity::Role;
use sqlx::Executor;

use crate::log::Log;

#[tokio::test]
async fn the_log_cannot_be_changed() {
    let log = Log::start().await;
    log.user("ada", Role::Viewer).await;
    let before = log.events().await;
    for statement in [
        "UPDATE events SET recorded_at = now()",
        "UPDATE events SET payload = payload WHERE position = 1",
        "DELETE FROM events",
        "DELETE FROM events WHERE position = 1",
        "TRUNCATE events",
        "TRUNCATE events CASCADE",
    ] {
        let refused = log.pool.execute(statement).await.unwrap_err().to_string();
        assert!(refused.contains("append-only"), "{statement}: {refused}");
    }
    assert_eq!(log.events().await, before);
}
