use signalbox_domain::identity::Role;
use signalbox_projections::{
    RebuildError, checkpoint,
    identity::{IdentityProjection, queries},
    rebuild,
};
use sqlx::Executor;

use crate::world::World;

/// An event that no program has written: a user is renamed, but the new name is missing.
async fn poison(world: &World, user: uuid::Uuid, sequence: i64) -> i64 {
    let mut transaction = signalbox_database::begin(world.pool(), "BEGIN").await.unwrap();
    let sql = "UPDATE log_head SET position = position + 1 WHERE log = 'events' RETURNING position";
    let position: i64 = sqlx::query_scalar(sql).fetch_one(&mut *transaction).await.unwrap();
    sqlx::query(
        r#"INSERT INTO events VALUES ($1, 'user', $2, $3, 'user_renamed', '1', '{"type": "user_renamed"}', '{}', now())"#,
    )
    .bind(position)
    .bind(user.to_string())
    .bind(sequence)
    .execute(&mut *transaction)
    .await
    .unwrap();
    transaction.commit().await.unwrap();
    position
}

async fn set_aside(world: &World) -> Vec<(String, i64)> {
    sqlx::query_as("SELECT projection, position FROM read.poisonous_events")
        .fetch_all(world.pool())
        .await
        .unwrap()
}

#[tokio::test]
async fn a_poisonous_event_is_set_aside_and_those_around_it_are_applied() {
    let world = World::start().await;
    let ada = world.writer.user(1, "ada", Role::Viewer).await;
    let position = poison(&world, ada, 2).await;
    let bob = world.writer.user(2, "bob", Role::Viewer).await;
    world.fold().await;
    assert_eq!(set_aside(&world).await, [("identity".to_owned(), position)]);
    assert_eq!(queries::user(world.pool(), ada).await.unwrap().unwrap().username, "ada");
    assert!(queries::user(world.pool(), bob).await.unwrap().is_some());
    assert_eq!(checkpoint(world.pool(), "identity").await.unwrap(), 3);
}

#[tokio::test]
async fn a_poisonous_event_stops_a_rebuild_and_leaves_the_live_tables_alone() {
    let world = World::start().await;
    let ada = world.writer.user(1, "ada", Role::Viewer).await;
    let position = poison(&world, ada, 2).await;
    world.fold().await;
    world.pool().execute("UPDATE read.users SET username = 'marked'").await.unwrap();
    let error = rebuild::<IdentityProjection>(world.pool()).await.unwrap_err();
    assert!(matches!(&error, RebuildError::Poisonous(poison) if poison.position == position), "{error}");
    assert_eq!(queries::user(world.pool(), ada).await.unwrap().unwrap().username, "marked");
    let half_done: i64 =
        sqlx::query_scalar("SELECT count(*) FROM pg_namespace WHERE nspname LIKE 'read_rebuild%'")
            .fetch_one(world.pool())
            .await
            .unwrap();
    assert_eq!(half_done, 0);
}
