use signalbox_database::faults;
use signalbox_domain::{
    identity::{Role, User, UserChanges, UserCommand},
    transfer::{Agent, AgentCommand, AgentProfile, Transfer, TransferCommand},
};
use signalbox_projections::{
    Leases, RebuildError, Retried, Runner, checkpoint, compare,
    identity::{IdentityProjection, queries},
    is_set_aside, progress, rebuild, retry, set_aside_streams,
    transfer::{TransferProjection, queries as transfers},
};
use signalbox_test_support::{eventually, seconds};
use sqlx::Executor;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::world::{World, file, new_transfer, spec};

/// Appends an event that no program has written.
pub(crate) async fn append(
    world: &World,
    kind: &str,
    id: &str,
    sequence: i64,
    word: &str,
    payload: &str,
) -> i64 {
    let mut transaction = signalbox_database::begin(world.pool(), "BEGIN").await.unwrap();
    let sql = "UPDATE log_head SET position = position + 1 WHERE log = 'events' RETURNING position";
    let position: i64 = sqlx::query_scalar(sql).fetch_one(&mut *transaction).await.unwrap();
    sqlx::query("INSERT INTO events VALUES ($1, $2, $3, $4, $5, '1', $6::jsonb, '{}', now())")
        .bind(position)
        .bind(kind)
        .bind(id)
        .bind(sequence)
        .bind(word)
        .bind(payload)
        .execute(&mut *transaction)
        .await
        .unwrap();
    transaction.commit().await.unwrap();
    position
}

/// A user is renamed, but the new name is missing.
async fn poison(world: &World, user: Uuid, sequence: i64) -> i64 {
    append(world, "user", &user.to_string(), sequence, "user_renamed", r#"{"type": "user_renamed"}"#).await
}

/// A user is changed by an event that can be applied.
async fn change(world: &World, user: Uuid, sequence: i64, word: &str, fields: &str) -> i64 {
    let payload = format!(r#"{{"type": "{word}", {fields}}}"#);
    append(world, "user", &user.to_string(), sequence, word, &payload).await
}

async fn set_aside(world: &World) -> Vec<(String, i64, i64)> {
    let streams = set_aside_streams(world.pool(), None).await.unwrap();
    streams.into_iter().map(|stream| (stream.projection, stream.position, stream.waiting)).collect()
}

async fn parts(world: &World) -> Vec<String> {
    faults(world.pool()).await.unwrap().into_iter().map(|fault| fault.part).collect()
}

/// Makes the table refuse every row whose `column` is `word`.
async fn refuse(world: &World, table: &str, column: &str, word: &str) {
    let check =
        format!("ALTER TABLE read.{table} ADD CONSTRAINT refused CHECK ({column} <> '{word}') NOT VALID");
    world.pool().execute(check.as_str()).await.unwrap();
}

async fn accept(world: &World, table: &str) {
    let drop = format!("ALTER TABLE read.{table} DROP CONSTRAINT refused");
    world.pool().execute(drop.as_str()).await.unwrap();
}

async fn rename(world: &World, user: Uuid, name: &str) {
    let changes = UserChanges { username: Some(name.to_owned()), ..Default::default() };
    world.writer.run::<User>(user, UserCommand::Change(changes)).await;
}

async fn name_of(world: &World, user: Uuid) -> String {
    queries::user(world.pool(), user.into()).await.unwrap().unwrap().username
}

#[tokio::test]
async fn an_undecodable_event_holds_only_its_own_stream() {
    let world = World::start().await;
    let ada = world.writer.user(1, "ada", Role::Viewer).await;
    let position = poison(&world, ada, 2).await;
    let bob = world.writer.user(2, "bob", Role::Viewer).await;
    change(&world, ada, 3, "user_email_changed", r#""from": "a@b.c", "to": "x@y.z""#).await;
    world.fold().await;
    assert_eq!(set_aside(&world).await, [("identity".to_owned(), position, 2)]);
    let shown = queries::user(world.pool(), ada.into()).await.unwrap().unwrap();
    assert_eq!((shown.username.as_str(), shown.email.as_str()), ("ada", "ada@Example.org"));
    assert!(queries::user(world.pool(), bob.into()).await.unwrap().is_some());
    assert_eq!(checkpoint(world.pool(), "identity").await.unwrap(), 4);
    assert_eq!(parts(&world).await, ["projection.identity.events"]);
    // A later event of the stream waits too.
    let later = change(&world, ada, 4, "user_email_changed", r#""from": "x@y.z", "to": "p@q.r""#).await;
    world.fold().await;
    assert_eq!(set_aside(&world).await, [("identity".to_owned(), position, 3)]);
    let waits = async |id: Uuid, at| {
        is_set_aside(world.pool(), "identity", "user", &id.to_string(), at).await.unwrap()
    };
    assert!(waits(ada, later).await && !waits(ada, position - 1).await && !waits(bob, later).await);
    assert!(progress(world.pool(), "identity").await.unwrap().has_set_aside);
}

#[tokio::test]
async fn an_event_that_cannot_be_read_as_a_row_holds_only_its_own_stream() {
    let world = World::start().await;
    let position = append(&world, "user", "not-a-key", 1, "user_created", "{}").await;
    let nested = format!("{}1{}", "[".repeat(200), "]".repeat(200));
    let deep = append(&world, "user", &Uuid::nil().to_string(), 1, "user_created", &nested).await;
    let bob = world.writer.user(2, "bob", Role::Viewer).await;
    world.fold().await;
    let expected = [("identity".to_owned(), position, 1), ("identity".to_owned(), deep, 1)];
    assert_eq!(set_aside(&world).await, expected);
    assert!(queries::user(world.pool(), bob.into()).await.unwrap().is_some());
}

#[tokio::test]
async fn an_event_that_the_database_refuses_is_found_among_many() {
    let world = World::start().await;
    let mut users = Vec::new();
    for number in 0..40 {
        users.push(world.writer.user(number, &format!("user-{number}"), Role::Viewer).await);
    }
    world.fold().await;
    refuse(&world, "users", "username", "unlucky").await;
    for (user, number) in users.iter().zip(0..) {
        if number == 17 {
            rename(&world, *user, "unlucky").await;
            let email = UserChanges { email: Some("new@example.org".to_owned()), ..Default::default() };
            world.writer.run::<User>(*user, UserCommand::Change(email)).await;
        } else {
            rename(&world, *user, "lucky").await;
            rename(&world, *user, &format!("last-{number}")).await;
        }
    }
    world.fold().await;
    let position = 40 + 17 * 2 + 1;
    assert_eq!(set_aside(&world).await, [("identity".to_owned(), position, 2)]);
    for (user, number) in users.iter().zip(0..) {
        let expected = if number == 17 { "user-17".to_owned() } else { format!("last-{number}") };
        assert_eq!(name_of(&world, *user).await, expected);
    }
    // The batch that is refused no more is as large as before.
    rename(&world, users[0], "lucky").await;
    world.fold().await;
    assert_eq!(name_of(&world, users[0]).await, "lucky");
}

/// The projection used to start over from its checkpoint without end.
#[tokio::test]
async fn an_event_that_takes_too_long_holds_only_its_own_stream() {
    let world = World::start().await;
    let ada = world.writer.user(1, "ada", Role::Viewer).await;
    let bob = world.writer.user(2, "bob", Role::Viewer).await;
    world.fold().await;
    // As the server reports a statement that exceeds its limit.
    let slow = "CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS $$
                BEGIN RAISE EXCEPTION 'canceling statement due to statement timeout' USING ERRCODE = '57014'; END $$";
    world.pool().execute(slow).await.unwrap();
    let trigger =
        "CREATE TRIGGER slow BEFORE INSERT OR UPDATE ON read.users FOR EACH ROW WHEN (NEW.username = 'slow')
                   EXECUTE FUNCTION slow()";
    world.pool().execute(trigger).await.unwrap();
    rename(&world, ada, "slow").await;
    rename(&world, bob, "quick").await;
    world.fold().await;
    assert_eq!(set_aside(&world).await, [("identity".to_owned(), 3, 1)]);
    assert_eq!(name_of(&world, bob).await, "quick");
}

#[tokio::test]
async fn a_failure_of_the_database_sets_nothing_aside() {
    let world = World::start().await;
    let ada = world.writer.user(1, "ada", Role::Viewer).await;
    world.pool().execute("ALTER TABLE read.users RENAME TO gone").await.unwrap();
    let mut runner = world.runner::<IdentityProjection>().await;
    assert!(runner.step().await.is_err());
    assert_eq!(set_aside(&world).await, []);
    world.pool().execute("ALTER TABLE read.gone RENAME TO users").await.unwrap();
    // The server stops while the row is written.
    let stop = "CREATE FUNCTION stop() RETURNS trigger LANGUAGE plpgsql AS $$
                BEGIN PERFORM pg_terminate_backend(pg_backend_pid()); RETURN NEW; END $$";
    world.pool().execute(stop).await.unwrap();
    let trigger = "CREATE TRIGGER stop BEFORE INSERT ON read.users FOR EACH ROW EXECUTE FUNCTION stop()";
    world.pool().execute(trigger).await.unwrap();
    assert!(world.runner::<IdentityProjection>().await.step().await.is_err());
    assert_eq!(set_aside(&world).await, []);
    world.pool().execute("DROP TRIGGER stop ON read.users").await.unwrap();
    world.fold().await;
    assert_eq!(name_of(&world, ada).await, "ada");
    world.servers.finish().await;
}

#[tokio::test]
async fn a_retry_applies_what_waits_in_order() {
    let world = World::start().await;
    let ada = world.writer.user(1, "ada", Role::Viewer).await;
    world.fold().await;
    refuse(&world, "users", "username", "unlucky").await;
    for name in ["unlucky", "later", "last"] {
        rename(&world, ada, name).await;
        world.fold().await;
    }
    let stream = set_aside_streams(world.pool(), Some("identity")).await.unwrap().remove(0);
    assert_eq!((stream.waiting, stream.sequence, stream.event_type.as_str()), (3, 2, "user_renamed"));
    let again = retry::<IdentityProjection>(world.pool(), &stream).await.unwrap();
    assert!(matches!(again, Retried::Waits(0, poison) if poison.key.position == stream.position));
    assert_eq!(set_aside_streams(world.pool(), None).await.unwrap()[0].attempts, 1);
    accept(&world, "users").await;
    assert_eq!(retry::<IdentityProjection>(world.pool(), &stream).await.unwrap(), Retried::Applied(3));
    assert_eq!(name_of(&world, ada).await, "last");
    assert_eq!(parts(&world).await, [""; 0]);
    assert_eq!(compare::<IdentityProjection>(world.pool()).await.unwrap().differences, 0);
    // The runner that had set it aside applies its events again.
    rename(&world, ada, "newest").await;
    world.fold().await;
    assert_eq!(name_of(&world, ada).await, "newest");
    world.servers.finish().await;
}

#[tokio::test]
async fn a_rebuild_sets_the_same_streams_aside_or_applies_them_again() {
    let world = World::start().await;
    let ada = world.writer.user(1, "ada", Role::Admin).await;
    let bob = world.writer.user(2, "bob", Role::Viewer).await;
    let position = poison(&world, ada, 2).await;
    change(&world, ada, 3, "user_role_changed", r#""from": "admin", "to": "viewer""#).await;
    world.fold().await;
    refuse(&world, "users", "username", "unlucky").await;
    rename(&world, bob, "unlucky").await;
    world.fold().await;
    assert_eq!(set_aside(&world).await.len(), 2);
    accept(&world, "users").await;
    let report = rebuild::<IdentityProjection>(world.pool()).await.unwrap();
    assert_eq!((report.differences, report.applied_again), (1, 1), "{report:?}");
    assert_eq!(report.set_aside.iter().map(|poison| poison.key.position).collect::<Vec<_>>(), [position]);
    assert_eq!(set_aside(&world).await, [("identity".to_owned(), position, 2)]);
    assert_eq!(name_of(&world, bob).await, "unlucky");
    let shown = queries::user(world.pool(), ada.into()).await.unwrap().unwrap();
    assert_eq!((shown.username.as_str(), shown.role.as_str()), ("ada", "viewer"));
    assert_eq!(compare::<IdentityProjection>(world.pool()).await.unwrap().differences, 0);
}

#[tokio::test]
async fn an_event_of_another_stream_stops_a_rebuild_and_leaves_the_live_tables_alone() {
    let world = World::start().await;
    let ada = world.writer.user(1, "ada", Role::Viewer).await;
    world.fold().await;
    let position = poison(&world, ada, 2).await;
    // As if an earlier version had applied it.
    world
        .pool()
        .execute("UPDATE read.checkpoints SET position = 2 WHERE projection = 'identity'")
        .await
        .unwrap();
    world.pool().execute("UPDATE read.users SET username = 'marked'").await.unwrap();
    let error = rebuild::<IdentityProjection>(world.pool()).await.unwrap_err();
    assert!(matches!(&error, RebuildError::Poisonous(poison) if poison.key.position == position), "{error}");
    assert_eq!(name_of(&world, ada).await, "marked");
    let half_done: i64 =
        sqlx::query_scalar("SELECT count(*) FROM pg_namespace WHERE nspname LIKE 'read_rebuild%'")
            .fetch_one(world.pool())
            .await
            .unwrap();
    assert_eq!(half_done, 0);
}

#[tokio::test]
async fn what_a_waiting_stream_withdraws_is_withdrawn() {
    let world = World::start().await;
    let ada = world.writer.user(1, "ada", Role::Admin).await;
    let bob = world.writer.user(2, "bob", Role::Admin).await;
    world.fold().await;
    poison(&world, ada, 2).await;
    poison(&world, bob, 2).await;
    change(&world, ada, 3, "user_role_changed", r#""from": "admin", "to": "viewer""#).await;
    let changed = change(&world, ada, 4, "user_password_changed", r#""password_hash": "$new""#).await;
    let session = |id: u128| (Uuid::from_u128(id), "session");
    for (id, user) in [(1, ada), (2, bob)] {
        let started = format!(
            r#"{{"type": "session_started", "user": "{user}", "expires_at": "2030-01-01T00:00:00Z"}}"#
        );
        let (id, kind) = session(id);
        append(&world, kind, &id.to_string(), 1, "session_started", &started).await;
    }
    change(&world, bob, 3, "user_deleted", r#""username": "bob", "email": "b@b.b", "role": "admin""#).await;
    // The end of a session cannot be decoded itself.
    let (first, kind) = session(1);
    append(&world, kind, &first.to_string(), 2, "session_ended", r#"{"type": "nonsense"}"#).await;
    world.fold().await;
    let shown = queries::user(world.pool(), ada.into()).await.unwrap().unwrap();
    assert_eq!((shown.role.as_str(), shown.password_hash.as_str()), ("viewer", "$new"));
    assert_eq!((shown.valid_after, shown.username.as_str()), (changed, "ada"));
    assert!(queries::user(world.pool(), bob.into()).await.unwrap().is_none());
    let sessions: Vec<(Uuid, bool)> = sqlx::query_as("SELECT id, ended_at IS NOT NULL FROM read.sessions")
        .fetch_all(world.pool())
        .await
        .unwrap();
    assert_eq!(sessions, [(first, true)]);
    assert_eq!(set_aside(&world).await.len(), 3);
    let report = rebuild::<IdentityProjection>(world.pool()).await.unwrap();
    assert_eq!((report.differences, report.set_aside.len()), (0, 3), "{report:?}");
}

#[tokio::test]
async fn the_token_of_an_agent_that_waits_is_revoked_with_it() {
    let world = World::start().await;
    let agent = world.writer.agent(1, "press").await;
    world.fold().await;
    let token = Uuid::from_u128(9);
    let created = format!(
        r#"{{"type": "agent_token_created", "number": 1, "name": "t", "agent": {{"id": "{}", "number": 1}},
             "description": null, "secret_sha256": "{}", "expires_at": null}}"#,
        agent.id,
        "0".repeat(64)
    );
    append(&world, "agent_token", &token.to_string(), 1, "agent_token_created", &created).await;
    world.fold().await;
    let tokens = async || -> i64 {
        sqlx::query_scalar("SELECT count(*) FROM read.agent_tokens").fetch_one(world.pool()).await.unwrap()
    };
    assert_eq!(tokens().await, 1);
    refuse(&world, "agents", "name", "unlucky").await;
    let profile = AgentProfile { name: "unlucky".to_owned(), ..Default::default() };
    world.writer.run::<Agent>(agent.id.0, AgentCommand::Update(profile)).await;
    world.fold().await;
    assert_eq!(tokens().await, 1);
    world.writer.run::<Agent>(agent.id.0, AgentCommand::Delete).await;
    world.fold().await;
    assert_eq!(tokens().await, 0);
    assert_eq!(set_aside(&world).await.len(), 1);
    assert_eq!(compare::<TransferProjection>(world.pool()).await.unwrap().differences, 0);
}

/// Recorded events may hold longer names than commands accept today.
#[tokio::test]
async fn a_file_name_that_is_too_long_for_an_index_is_shown() {
    let world = World::start().await;
    let (press, store) = (world.writer.agent(1, "press").await, world.writer.agent(2, "store").await);
    let id = world.writer.transfer(new_transfer(1, None, &spec("tree", press, store))).await;
    world.writer.run::<Transfer>(id, TransferCommand::Dispatch).await;
    world.fold().await;
    // Text that does not compress.
    let name = (0..400_u64)
        .map(|part| format!("{:016x}", part.wrapping_mul(0x9E37_79B9_7F4A_7C15)))
        .collect::<String>();
    for (sequence, size) in [(3, 1), (4, 2)] {
        let staged = serde_json::json!({"type": "files_staged", "files": [file(&name, size)]});
        append(&world, "transfer", &id.to_string(), sequence, "files_staged", &staged.to_string()).await;
        world.fold().await;
    }
    assert_eq!(set_aside(&world).await, []);
    let shown = transfers::transfer_file(world.pool(), id.into(), &name).await.unwrap().unwrap();
    assert_eq!((shown.size, shown.name == name), (2, true));
    let report = rebuild::<TransferProjection>(world.pool()).await.unwrap();
    assert_eq!(report.differences, 0, "{report:?}");
}

/// Makes PostgreSQL fail, for no fault of the values, when a user gets the address `email`.
async fn fail_at(world: &World, email: &str) {
    let sql = format!(
        "CREATE FUNCTION fail() RETURNS trigger LANGUAGE plpgsql AS $$
         BEGIN RAISE EXCEPTION 'too slow' USING ERRCODE = 'query_canceled'; END $$;
         CREATE TRIGGER failing BEFORE INSERT OR UPDATE ON read.users FOR EACH ROW WHEN (NEW.email = '{email}')
         EXECUTE FUNCTION fail()"
    );
    world.pool().execute(sql.as_str()).await.unwrap();
}

#[tokio::test]
async fn a_stream_whose_retry_fails_is_retried_after_others() {
    let world = World::start().await;
    let ada = world.writer.user(1, "ada", Role::Viewer).await;
    let bob = world.writer.user(2, "bob", Role::Viewer).await;
    world.fold().await;
    refuse(&world, "users", "email", "slow@example.org").await;
    for user in [ada, bob] {
        change(&world, user, 2, "user_email_changed", r#""from": "a@b.c", "to": "slow@example.org""#).await;
        world.fold().await;
    }
    accept(&world, "users").await;
    fail_at(&world, "slow@example.org").await;
    let streams = set_aside_streams(world.pool(), None).await.unwrap();
    assert!(retry::<IdentityProjection>(world.pool(), &streams[0]).await.is_err());
    let later = set_aside_streams(world.pool(), None).await.unwrap();
    assert_eq!((later[0].attempts, later[1].attempts), (1, 0));
    assert!(later[0].retry_at > later[1].retry_at, "{later:?}");
}

#[tokio::test]
async fn what_a_retry_has_applied_stays_when_it_fails_later() {
    let world = World::start().await;
    let ada = world.writer.user(1, "ada", Role::Viewer).await;
    world.fold().await;
    refuse(&world, "users", "email", "2@example.org").await;
    for sequence in 2..=603 {
        let to = format!(r#""from": "a@b.c", "to": "{sequence}@example.org""#);
        change(&world, ada, sequence, "user_email_changed", &to).await;
        // Together with later ones, the first would never be written.
        if sequence == 2 {
            world.fold().await;
        }
    }
    world.fold().await;
    accept(&world, "users").await;
    fail_at(&world, "603@example.org").await;
    let stream = set_aside_streams(world.pool(), None).await.unwrap().remove(0);
    assert_eq!((stream.sequence, stream.waiting), (2, 602));
    assert!(retry::<IdentityProjection>(world.pool(), &stream).await.is_err());
    let email = async || queries::user(world.pool(), ada.into()).await.unwrap().unwrap().email;
    assert_eq!(email().await, "501@example.org");
    let rest = set_aside_streams(world.pool(), None).await.unwrap().remove(0);
    assert_eq!((rest.sequence, rest.waiting, rest.attempts), (502, 102, 1));
    world.pool().execute("DROP TRIGGER failing ON read.users").await.unwrap();
    // A program that still has the old place applies nothing.
    assert_eq!(retry::<IdentityProjection>(world.pool(), &stream).await.unwrap(), Retried::Applied(0));
    assert_eq!(retry::<IdentityProjection>(world.pool(), &rest).await.unwrap(), Retried::Applied(102));
    assert_eq!(email().await, "603@example.org");
}

#[tokio::test]
async fn an_event_that_exceeds_the_time_limit_again_and_again_is_reported() {
    let world = World::start().await;
    let ada = world.writer.user(1, "ada", Role::Viewer).await;
    world.fold().await;
    fail_at(&world, "slow@example.org").await;
    change(&world, ada, 2, "user_email_changed", r#""from": "a@b.c", "to": "slow@example.org""#).await;
    let stop = CancellationToken::new();
    let running = tokio::spawn(Runner::<IdentityProjection>::run(
        world.pool().clone(),
        Leases::new(world.pool()),
        world.servers.bus.clone(),
        stop.clone(),
    ));
    let reported = async || parts(&world).await == ["projection.identity.events"];
    eventually(seconds(30), reported).await;
    // Other streams continue.
    let bob = world.writer.user(2, "bob", Role::Viewer).await;
    eventually(seconds(30), async || queries::user(world.pool(), bob.into()).await.unwrap().is_some()).await;
    stop.cancel();
    running.await.unwrap();
}

/// As after an upgrade: they healed one in 30 s.
#[tokio::test]
async fn streams_that_can_be_applied_again_are_applied_one_after_the_other() {
    let world = World::start().await;
    let mut users = Vec::new();
    for number in 0..5 {
        users.push(world.writer.user(number, &format!("user-{number}"), Role::Viewer).await);
    }
    world.fold().await;
    let check =
        "ALTER TABLE read.users ADD CONSTRAINT refused CHECK (username NOT LIKE 'unlucky%') NOT VALID";
    world.pool().execute(check).await.unwrap();
    for (user, number) in users.iter().zip(0..) {
        rename(&world, *user, &format!("unlucky-{number}")).await;
    }
    world.fold().await;
    assert_eq!(set_aside(&world).await.len(), 5);
    accept(&world, "users").await;
    world.pool().execute("UPDATE read.poisonous_events SET retry_at = now()").await.unwrap();
    let stop = CancellationToken::new();
    let running = tokio::spawn(Runner::<IdentityProjection>::run(
        world.pool().clone(),
        Leases::new(world.pool()),
        world.servers.bus.clone(),
        stop.clone(),
    ));
    eventually(seconds(20), async || set_aside(&world).await.is_empty()).await;
    stop.cancel();
    running.await.unwrap();
    assert_eq!(name_of(&world, users[4]).await, "unlucky-4");
}
