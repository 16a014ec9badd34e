use signalbox_domain::{
    identity::{
        ApiToken, ApiTokenCommand, ExternalIdentity, NewApiToken, Role, Session, SessionCommand, User,
        UserChanges, UserCommand,
    },
    kernel::UserId,
};
use signalbox_projections::{
    Listed, Page,
    identity::{
        SessionRow, UserRow,
        queries::{self, ApiTokenFilter, ListedApiToken},
    },
};
use uuid::Uuid;

use crate::world::{World, at, digest};

async fn session(world: &World, user: Uuid) -> Uuid {
    let id = world.clock.new_id();
    let start = SessionCommand::Start { user: UserId(user), expires_at: at(3600) };
    world.writer.run::<Session>(id, start).await;
    id
}

async fn session_row(world: &World, id: Uuid) -> Option<SessionRow> {
    sqlx::query_as("SELECT * FROM read.sessions WHERE id = $1")
        .bind(id)
        .fetch_optional(world.pool())
        .await
        .unwrap()
}

async fn is_live(world: &World, id: Uuid) -> bool {
    queries::live_session(world.pool(), id.into(), world.clock.now()).await.unwrap().is_some()
}

async fn change(world: &World, user: Uuid, changes: UserChanges) {
    world.writer.run::<User>(user, UserCommand::Change(changes)).await;
    world.fold().await;
}

#[tokio::test]
async fn a_user_is_shown_as_it_was_created() {
    let world = World::start().await;
    let id = world.writer.user(7, "Ada", Role::Operator).await;
    world.fold().await;
    let expected = UserRow {
        id: UserId(id),
        number: 7,
        email: "Ada@Example.org".to_owned(),
        username: "Ada".to_owned(),
        role: Role::Operator.into(),
        password_hash: "$argon2id$".to_owned(),
        sso_provider: None,
        sso_issuer: None,
        sso_subject: None,
        valid_after: 1,
        version: 1,
        created_at: at(0),
        updated_at: at(0),
    };
    assert_eq!(queries::user(world.pool(), id.into()).await.unwrap(), Some(expected));
    world.servers.finish().await;
}

#[tokio::test]
async fn changes_of_a_user_are_shown_and_nothing_else_changes() {
    let world = World::start().await;
    let id = world.writer.user(7, "Ada", Role::Operator).await;
    world.fold().await;
    let before = queries::user(world.pool(), id.into()).await.unwrap().unwrap();
    world.go_to(60);
    let changes = UserChanges {
        email: Some("countess@example.org".into()),
        username: Some("countess".into()),
        role: Some(Role::Viewer),
        password_hash: None,
    };
    change(&world, id, changes).await;
    let expected = UserRow {
        email: "countess@example.org".to_owned(),
        username: "countess".to_owned(),
        role: Role::Viewer.into(),
        version: 4,
        updated_at: at(60),
        ..before
    };
    assert_eq!(queries::user(world.pool(), id.into()).await.unwrap(), Some(expected));
    world.servers.finish().await;
}

#[tokio::test]
async fn a_linked_identity_finds_its_user_until_that_is_deleted() {
    let world = World::start().await;
    let id = world.writer.user(7, "Ada", Role::Operator).await;
    let link = async |issuer: &str| {
        let identity = ExternalIdentity {
            provider: "Plant".to_owned(),
            issuer: issuer.to_owned(),
            subject: "a".to_owned(),
        };
        world.writer.run::<User>(id, UserCommand::Link(identity)).await;
        world.fold().await;
    };
    let found = async |issuer: &str| {
        let user = queries::user_by_identity(world.pool(), issuer, "a").await.unwrap();
        user.map(|user| (user.id.0, user.sso_provider))
    };
    let removed = async |issuer: &str| queries::is_removed_identity(world.pool(), issuer, "a").await.unwrap();
    link("https://old").await;
    assert_eq!(found("https://old").await, Some((id, Some("Plant".to_owned()))));
    link("https://new").await;
    assert_eq!((found("https://old").await, removed("https://old").await), (None, false));
    assert_eq!(found("https://new").await.unwrap().0, id);
    world.writer.run::<User>(id, UserCommand::Delete).await;
    world.fold().await;
    assert_eq!((found("https://new").await, removed("https://new").await), (None, true));
    world.servers.finish().await;
}

#[tokio::test]
async fn a_session_lives_until_it_ends_or_expires() {
    let world = World::start().await;
    let user = world.writer.user(1, "ada", Role::Operator).await;
    let (ended, expired) = (session(&world, user).await, session(&world, user).await);
    world.fold().await;
    assert!(is_live(&world, ended).await && is_live(&world, expired).await);
    world.go_to(1800);
    world.writer.run::<Session>(ended, SessionCommand::Renew { expires_at: at(7200) }).await;
    world.fold().await;
    world.go_to(3600);
    assert!(is_live(&world, ended).await, "renewed");
    assert!(!is_live(&world, expired).await, "expired");
    world.writer.run::<Session>(ended, SessionCommand::End).await;
    world.fold().await;
    assert!(!is_live(&world, ended).await, "ended");
    assert_eq!(session_row(&world, ended).await.unwrap().ended_at, Some(at(3600)));
    world.servers.finish().await;
}

#[tokio::test]
async fn a_new_password_voids_the_sessions_before_it_but_none_after_it() {
    let world = World::start().await;
    let user = world.writer.user(1, "ada", Role::Operator).await;
    let before = session(&world, user).await;
    let new_password = UserChanges { password_hash: Some("$argon2id$new".into()), ..Default::default() };
    change(&world, user, new_password).await;
    let after = session(&world, user).await;
    world.fold().await;
    assert!(!is_live(&world, before).await);
    assert!(is_live(&world, after).await, "at the same moment of the clock");
    world.servers.finish().await;
}

#[tokio::test]
async fn a_deleted_user_is_gone_with_its_sessions() {
    let world = World::start().await;
    let (ada, bob) = (
        world.writer.user(1, "ada", Role::Operator).await,
        world.writer.user(2, "bob", Role::Operator).await,
    );
    let (of_ada, of_bob) = (session(&world, ada).await, session(&world, bob).await);
    world.writer.run::<User>(ada, UserCommand::Delete).await;
    world.fold().await;
    assert_eq!(queries::user(world.pool(), ada.into()).await.unwrap(), None);
    assert_eq!(session_row(&world, of_ada).await, None);
    assert!(is_live(&world, of_bob).await);
    world.servers.finish().await;
}

#[tokio::test]
async fn a_session_that_starts_after_its_user_was_deleted_is_never_live() {
    let world = World::start().await;
    let user = world.writer.user(1, "ada", Role::Operator).await;
    world.writer.run::<User>(user, UserCommand::Delete).await;
    let late = session(&world, user).await;
    world.fold().await;
    assert!(!is_live(&world, late).await);
    world.servers.finish().await;
}

async fn token(world: &World, user: Uuid, number: u8, expires_at: Option<i64>) -> Uuid {
    let id = world.clock.new_id();
    let new = NewApiToken {
        user: UserId(user),
        name: format!("token {number}"),
        secret_sha256: digest(number),
        expires_at: expires_at.map(at),
        controller: None,
    };
    world.writer.run::<ApiToken>(id, ApiTokenCommand::Create(new)).await;
    id
}

async fn token_user(world: &World, number: u8) -> Option<Uuid> {
    let now = world.clock.now();
    let live = queries::live_api_token(world.pool(), digest(number).as_str(), now).await.unwrap();
    live.map(|live| live.user_id.0)
}

#[tokio::test]
async fn an_api_token_ends_with_revocation_expiry_or_its_user() {
    let world = World::start().await;
    let (ada, bob) = (
        world.writer.user(1, "ada", Role::Operator).await,
        world.writer.user(2, "bob", Role::Operator).await,
    );
    let revoked = token(&world, ada, 1, None).await;
    token(&world, ada, 2, Some(3600)).await;
    token(&world, ada, 3, None).await;
    token(&world, bob, 4, None).await;
    world.fold().await;
    for (number, user) in [(1, ada), (2, ada), (3, ada), (4, bob)] {
        assert_eq!(token_user(&world, number).await, Some(user));
    }
    world.writer.run::<ApiToken>(revoked, ApiTokenCommand::Revoke).await;
    let new_password = UserChanges { password_hash: Some("$argon2id$new".into()), ..Default::default() };
    change(&world, ada, new_password).await;
    world.go_to(3600);
    assert_eq!(token_user(&world, 1).await, None, "revoked");
    assert_eq!(token_user(&world, 2).await, None, "expired");
    assert_eq!(token_user(&world, 3).await, Some(ada), "a new password does not end it");
    world.writer.run::<User>(ada, UserCommand::Delete).await;
    token(&world, ada, 5, None).await;
    world.fold().await;
    assert_eq!((token_user(&world, 3).await, token_user(&world, 5).await), (None, None));
    let (listed, total) = queries::api_tokens(
        world.pool(),
        &ApiTokenFilter::default(),
        ListedApiToken::default_order(),
        Page { limit: 10, offset: 0 },
    )
    .await
    .unwrap();
    assert_eq!((listed.len(), total, listed[0].token.user_id.0), (1, 1, bob));
    world.servers.finish().await;
}
